//! What the client is told of denials, and what it does about them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::{Value, json};

use super::files::Wire;
use super::{Run, Turn};

/// What became of one start of a command.
#[derive(Clone, Debug, PartialEq)]
struct Report {
    /// Whether the client asked for a sandbox.
    sandboxed: bool,
    sandbox_type: Value,
    exit_code: Value,
    denied: Value,
}

/// All starts of each call, in order, as they passed over the wire.
fn reports(conversations: &[[Vec<Value>; 2]]) -> BTreeMap<String, Vec<Report>> {
    let mut reports = BTreeMap::<_, Vec<_>>::new();
    for [asked, told] in conversations {
        for start in asked.iter().filter(|message| message["method"] == "process/start") {
            let params = &start["params"];
            let answer = told.iter().find(|message| message["id"] == start["id"] && message["method"].is_null());
            let exit = told.iter().find(|message| {
                message["method"] == "process/exited" && message["params"]["processId"] == params["processId"]
            });
            let exit = &exit.expect("it ends")["params"];
            reports.entry(params["metadata"]["toolCallId"].as_str().unwrap().to_owned()).or_default().push(Report {
                sandboxed: params["sandbox"].is_object(),
                sandbox_type: answer.expect("an answer")["result"]["sandboxType"].clone(),
                exit_code: exit["exitCode"].clone(),
                denied: exit["sandboxDenied"].clone(),
            });
        }
    }
    reports
}

/// The same of a recording.
fn recorded(name: &str) -> BTreeMap<String, Vec<Report>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/transcripts/codex-client/{name}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let side = |dir: &str| lines.iter().filter(|line| line["dir"] == dir).map(|line| line["msg"].clone()).collect();
    reports(&[[side("c2s"), side("s2c")]])
}

fn on_the_wire(run: &mut Run) -> Wire {
    let wire = Wire::start(&run.server.url);
    run.server.url.clone_from(&wire.url);
    std::fs::create_dir(run.dir.path().join("outside")).unwrap();
    wire
}

/// What the client told the model, but for what differs from run to run.
fn told(run: &Run, outputs: &HashMap<String, String>) -> BTreeMap<String, String> {
    let place = run.dir.path().to_str().unwrap();
    let of_this_run = |line: &&str| line.starts_with("Chunk ID: ") || line.starts_with("Wall time: ");
    let text = |output: &str| {
        // What the client leaves out of much output depends on the pieces in which that comes.
        let is_cut = output.contains("Warning: truncated output");
        let lines = output.lines().filter(|line| !of_this_run(line)).take(if is_cut { 1 } else { usize::MAX });
        lines.collect::<Vec<_>>().join("\n")
    };
    outputs.iter().map(|(id, output)| (id.clone(), text(output).replace(place, "<PLACE>"))).collect()
}

/// What passed over the wire, and what the model was told, by the id of the call.
type Told = (BTreeMap<String, Vec<Report>>, BTreeMap<String, String>);

fn run_commands(mut run: Run, mode: &str) -> Told {
    let wire = on_the_wire(&mut run);
    let turns = COMMANDS.iter().map(|(id, cmd)| {
        let tty = id.starts_with("tty");
        Turn::call(id, json!({"cmd": cmd, "yield_time_ms": 30_000, "tty": tty, "login": false}))
    });
    let outputs = run.script_as(&["--sandbox", mode], "", turns.collect());
    for (place, names) in [("outside", &[][..]), ("workspace", if mode == "read-only" { &[] } else { &["new"] })] {
        let there: Vec<_> =
            std::fs::read_dir(run.dir.path().join(place)).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(there.iter().map(std::fs::DirEntry::file_name).collect::<Vec<_>>(), names, "{mode}: {place}");
    }
    (reports(&wire.conversations()), told(&run, &outputs))
}

const COMMANDS: &[(&str, &str)] = &[
    ("allowed", "echo x >new && cat new"),
    ("outside", "echo x >../outside/new"),
    ("removed", "rm -r ../outside"),
    ("metadata", "mkdir .git"),
    ("socket", "exec 3<>/dev/tcp/127.0.0.1/9"),
    ("device", "mknod null c 1 3"),
    ("text", "echo permission denied"),
    ("text-failed", "echo permission denied; exit 3"),
    ("text-usage", "echo Read-Only file system; exit 2"),
    ("text-split", "printf 'permission '; sleep 0.1; printf denied >&2; exit 1"),
    ("text-dropped", "echo permission denied; head -c 2000000 /dev/zero | tr '\\0' x; exit 1"),
    ("plain", "exit 3"),
    ("missing", "no-such-program"),
    ("forbidden", "./new"),
    ("sigsys", "kill -SYS $$"),
    ("killed", "kill -KILL $$"),
    ("tty", "echo x >../outside/new"),
    ("tty-allowed", "test -t 0 && echo terminal"),
];

/// One difference: in which mode, of which call, in what, what ours has there, and why.
type Known = (&'static str, &'static str, &'static str, &'static str, &'static str);

const KNOWN_DIFFERENCES: &[Known] = &[
    (
        "workspace-write",
        "device",
        "told",
        "Process exited with code 1\nOriginal token count: 8\nOutput:\nmknod: null: Permission denied",
        "the second wall refuses a device before the kernel asks for the right to make it",
    ),
    ("workspace-write", "text-dropped", "sandboxDenied", "true", DROPPED),
    ("read-only", "text-dropped", "sandboxDenied", "true", DROPPED),
];

const DROPPED: &str = "output is searched as it comes, also what is not retained";

#[test]
fn denials_are_reported_as_by_the_references_server() {
    let mut differences = Vec::new();
    for mode in ["workspace-write", "read-only"] {
        let Some(theirs) = Run::on_reference() else { return };
        let (their_reports, their_texts) = run_commands(theirs, mode);
        let (reports, texts) = run_commands(Run::new().unwrap(), mode);
        for (id, _) in COMMANDS {
            let [theirs] = &their_reports[*id][..] else { panic!("{id} is started once") };
            let [ours] = &reports[*id][..] else { panic!("{id} is started once") };
            assert!(theirs.sandboxed && ours.sandboxed, "{id}");
            for (member, theirs, ours) in [
                ("sandboxType", theirs.sandbox_type.to_string(), ours.sandbox_type.to_string()),
                ("exitCode", theirs.exit_code.to_string(), ours.exit_code.to_string()),
                ("sandboxDenied", theirs.denied.to_string(), ours.denied.to_string()),
                ("told", their_texts[*id].clone(), texts[*id].clone()),
            ] {
                if theirs != ours {
                    differences.push((mode, *id, member, ours));
                }
            }
        }
    }
    let known: Vec<_> = KNOWN_DIFFERENCES.iter().map(|known| (known.0, known.1, known.2, known.3.to_owned())).collect();
    assert_eq!(differences, known);
}

const REVIEWED: &str = "approvals_reviewer = \"auto_review\"\n\
    approval_policy = { granular = { sandbox_approval = true, rules = true, mcp_elicitations = true } }\n";

#[test]
fn a_denied_command_that_is_approved_runs_again_without_a_sandbox() {
    let Some(mut run) = Run::new() else { return };
    let wire = on_the_wire(&mut run);
    let insist = |id: &str, cmd: &str, text: &str| Turn::Insist {
        id: id.into(),
        // The client asks only about a command that ends within a moment of its start.
        arguments: json!({"cmd": cmd, "yield_time_ms": 20_000, "login": false}),
        text: text.into(),
    };
    let outputs = run.script_as(
        &["--sandbox", "workspace-write"],
        REVIEWED,
        vec![
            insist("approved", "echo first >../outside/f; rc=$?; cat ../outside/f; exit $rc", "exited with code 0"),
            insist("refused", "echo second >../outside/refused", REFUSED),
        ],
    );
    let reports = reports(&wire.conversations());
    let (mut asked, recorded) = (0, recorded("denied_then_approved"));
    for (id, output) in &outputs {
        // Other attempts were too slow to be asked about.
        let call = match &id[..] {
            id if id.starts_with("approved") && output.contains("exited with code 0") => {
                assert!(output.ends_with("Output:\nfirst\n"), "{output}");
                "call1"
            }
            _ if output.contains(REFUSED) => "call2",
            _ => continue,
        };
        assert_eq!(reports[id], recorded[call], "{id}");
        asked += 1;
    }
    assert_eq!(asked, 2);
    let outside = run.dir.path().join("outside");
    assert_eq!(std::fs::read_to_string(outside.join("f")).unwrap(), "first\n");
    assert!(!outside.join("refused").exists());
}

const REFUSED: &str = "This action was rejected due to unacceptable risk";

#[test]
fn a_command_that_asks_to_leave_the_sandbox_leaves_it_if_that_is_approved() {
    let escalated = |id: &str, cmd: &str| {
        let ask = json!({"sandbox_permissions": "require_escalated", "justification": "it has to"});
        let mut arguments = json!({"cmd": cmd, "yield_time_ms": 20_000, "login": false});
        arguments.as_object_mut().unwrap().extend(ask.as_object().unwrap().clone());
        Turn::call(id, arguments)
    };
    let recorded = recorded("escalated");
    for server in [Run::on_reference as fn() -> _, Run::new] {
        let Some(mut run) = server() else { return };
        let wire = on_the_wire(&mut run);
        let outputs = run.script_as(
            &["--sandbox", "workspace-write"],
            REVIEWED,
            vec![
                escalated("call1", "echo allowed >../outside/f; cat ../outside/f"),
                escalated("call2", "echo x >../outside/refused"),
                Turn::call("call3", json!({"cmd": "ls ../outside", "yield_time_ms": 20_000, "login": false})),
            ],
        );
        assert_eq!(reports(&wire.conversations()), recorded);
        let told = told(&run, &outputs);
        assert_eq!(told["call1"], "Process exited with code 0\nOriginal token count: 2\nOutput:\nallowed");
        assert!(told["call2"].contains(REFUSED), "{}", told["call2"]);
        assert_eq!(told["call3"], "Process exited with code 0\nOriginal token count: 1\nOutput:\nf");
    }
}
