//! What the reference's own client sent in a whole conversation, sent to this server: the answers, the bytes of each
//! stream, the exits and their order within a process are compared with what its server answered.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use longarm::server::Server;
use longarm::{Local, LocalConfig};
use serde_json::{Value, json};

use crate::client::{RawClient, decode};

/// Recordings without a sandbox, with programs that every system has.
const RECORDINGS: &[&str] = &[
    "one_shot",
    "exit_codes",
    "stderr",
    "bytes_and_utf8",
    "long_running_poll",
    "tty_properties",
    "stdin_closed",
    "interrupt_pipe",
    "parallel_sessions",
    "turn_interrupted",
    "background_terminal",
    "workdir_and_shell",
    "cut_while_running",
    "cut_between_calls",
    "ended_while_cut",
];

/// One difference: of which recording, the method and the process, which member, what ours has there, and why.
type Known = (&'static str, &'static str, &'static str, &'static str, &'static str);

const KNOWN_DIFFERENCES: &[Known] =
    &[("background_terminal", "process/exited <PROCESS-1>", "exitCode", "137", "128 + n on a terminal as elsewhere")];

/// What every answer to a handshake has otherwise.
const HANDSHAKE: &[(&str, &str, &str)] = &[
    ("environmentInfo.providerId", "(absent)", "there is no build id"),
    ("environmentInfo.executorVersion", env!("CARGO_PKG_VERSION"), "the version is our own"),
    ("environmentInfo.prependPathDirs", "[]", "no programs are bundled"),
];

/// The recordings with a handshake.
const WITH_HANDSHAKE: &[&str] = &["one_shot", "cut_while_running", "cut_between_calls", "ended_while_cut"];

/// All that is listed: the recording, the method and the process, the member, and what ours has there.
fn known_differences() -> Vec<[&'static str; 4]> {
    let handshakes = WITH_HANDSHAKE
        .iter()
        .flat_map(|name| HANDSHAKE.iter().map(|(member, ours, _)| [*name, "initialize", *member, *ours]));
    let listed = KNOWN_DIFFERENCES.iter().map(|known| [known.0, known.1, known.2, known.3]);
    listed.chain(handshakes).collect()
}

/// Members that say what a machine is, or that hold every capability (which the recordings of single calls compare).
const OF_THE_MACHINE: &[&str] = &[
    "environmentInfo.shell",
    "environmentInfo.cwd",
    "environmentInfo.userHomeDir",
    "environmentInfo.temporaryDirectories",
    "environmentInfo.tempDir",
    "environmentInfo.capabilities",
    "sessionId",
    "hostname",
    "userHomeDir",
    "codexHomeDir",
];

#[tokio::test]
async fn whole_conversations_of_the_references_client_go_as_they_were_recorded() {
    let listed = known_differences();
    let mut found = BTreeSet::new();
    let mut unexpected = Vec::new();
    for name in RECORDINGS {
        for (what, member, recorded, ours) in replay(name).await {
            let text = ours.as_str().map_or_else(|| ours.to_string(), str::to_owned);
            match listed.iter().position(|known| *known == [*name, &what, &member, &text]) {
                Some(known) => drop(found.insert(known)),
                None => unexpected.push(format!("{name}: {what} {member}: {recorded} became {text}")),
            }
        }
    }
    assert!(unexpected.is_empty(), "not listed:\n{}", unexpected.join("\n"));
    let gone: Vec<_> = listed.iter().enumerate().filter(|(index, _)| !found.contains(index)).collect();
    assert!(gone.is_empty(), "listed, and differing no more: {gone:?}");
}

type Difference = (String, String, Value, Value);

/// Pieces of output by process and number, with their streams.
#[derive(Default)]
struct Output(BTreeMap<(String, u64), (String, Vec<u8>)>);

impl Output {
    /// Takes a piece, which may come by a notification and by a read too.
    fn add(&mut self, process: &str, piece: &Value) {
        let text = |name: &str| piece[name].as_str().unwrap().to_owned();
        let seq = piece["seq"].as_u64().unwrap();
        let piece = (text("stream"), decode(&text("chunk")));
        let earlier = self.0.insert((process.to_owned(), seq), piece.clone());
        assert!(earlier.is_none_or(|earlier| earlier == piece), "one number, one piece");
    }

    fn stream(&self, process: &str, stream: &str) -> String {
        let pieces = self.0.iter().filter(|((of, _), (name, _))| of == process && name == stream);
        let bytes: Vec<u8> = pieces.flat_map(|(_, (_, bytes))| bytes).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn bytes(&self) -> usize {
        self.0.values().map(|(_, bytes)| bytes.len()).sum()
    }
}

struct Replay {
    server: Server,
    root: String,
    client: RawClient,
    session: String,
    /// The requests that have no answer yet.
    asked: BTreeMap<i64, Value>,
    recorded: Output,
    came: Output,
    /// Rows of output were left out, so that the streams cannot be compared whole.
    shortened: bool,
    differences: Vec<Difference>,
}

async fn replay(name: &str) -> Vec<Difference> {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("workspace/sub dir")).unwrap();
    std::fs::write(root.join("workspace/sub dir/file.txt"), "content\n").unwrap();
    let base = [("PATH", "/usr/bin:/bin"), ("HOME", root.to_str().unwrap()), ("LANG", "C.UTF-8")];
    let base = base.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let local = Local::new(LocalConfig::from_host().base_env(base).default_cwd(root.join("workspace")));
    let server = Server::new(Arc::new(local));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/transcripts/codex-client/{name}.jsonl"));
    let lines: Vec<Value> =
        std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut client = RawClient::connect(&server).0;
    let mut session = String::new();
    if lines.iter().find(|line| line["dir"] == "c2s").is_some_and(|line| line["msg"]["method"] != "initialize") {
        // The start was left out.
        let result = client.initialize(None, &[]).await.unwrap();
        session = result["sessionId"].as_str().unwrap().to_owned();
    }
    let mut replay = Replay {
        server,
        root: root.to_str().unwrap().to_owned(),
        client,
        session,
        asked: BTreeMap::new(),
        recorded: Output::default(),
        came: Output::default(),
        shortened: false,
        differences: Vec::new(),
    };
    for (index, line) in lines.iter().enumerate() {
        match line["dir"].as_str().unwrap() {
            "c2s" => replay.send(&line["msg"]).await,
            "s2c" => replay.expect(&line["msg"]).await,
            "event" => {
                let is_last = lines[index..].iter().all(|line| line["dir"] == "event");
                replay.event(line["event"].as_str().unwrap(), is_last).await;
            }
            _ => {}
        }
    }
    replay.finish().await
}

impl Replay {
    async fn send(&mut self, message: &Value) {
        self.await_output().await;
        let text = self.real(&message.to_string());
        if let Some(id) = message["id"].as_i64() {
            self.asked.insert(id, serde_json::from_str(&text).unwrap());
        }
        self.client.send_text(text).await;
    }

    /// What was recorded so far has come before the client did anything more.
    async fn await_output(&mut self) {
        while self.came.bytes() < self.recorded.bytes() {
            let event = self.client.next_where(|message| message["method"] == "process/output").await;
            self.came.add(event["params"]["processId"].as_str().unwrap(), &event["params"]);
        }
    }

    /// What stands for a path, the session or the thread in a recording.
    fn real(&self, text: &str) -> String {
        let mut text = text.replace("<SESSION>", &self.session);
        for placeholder in ["<THREAD>", "<ID>"] {
            text = text.replace(placeholder, "67e55044-10b1-426f-9247-bb680e5fe0c8");
        }
        for directory in ["workspace-parent", "workspace-grandparent", "workspace-ancestor", "workspace"] {
            let real = format!("{}/{directory}", self.root);
            text = text.replace(&format!("file:///{directory}"), &format!("file://{real}"));
            text = text.replace(&format!("\"/{directory}"), &format!("\"{real}"));
        }
        text.replace("<WORKSPACE>", &format!("{}/workspace", self.root))
    }

    async fn expect(&mut self, recorded: &Value) {
        match recorded["method"].as_str() {
            // Compared when the process is closed: the pieces are the system's.
            Some("process/output") => {
                let params = &recorded["params"];
                self.recorded.add(params["processId"].as_str().unwrap(), params);
            }
            Some(method) => self.notification(method, &recorded["params"]).await,
            None => self.answer(recorded).await,
        }
    }

    async fn notification(&mut self, method: &str, recorded: &Value) {
        let process = recorded["processId"].as_str().unwrap_or_default().to_owned();
        let ours = loop {
            let about = |message: &Value| message["params"]["processId"] == process.as_str();
            let event = self.client.next_where(|message| message["method"].is_string() && about(message)).await;
            if event["method"] != "process/output" {
                assert_eq!(event["method"], method, "in this order");
                break event["params"].clone();
            }
            self.came.add(&process, &event["params"]);
        };
        self.compare(&format!("{method} {process}"), "", recorded, &ours);
        if method == "process/closed" && !self.shortened {
            self.compare_streams(&process);
        }
    }

    fn compare_streams(&self, process: &str) {
        for name in ["stdout", "stderr", "pty"] {
            let recorded = self.recorded.stream(process, name);
            let recorded = recorded.replace("/workspace", &format!("{}/workspace", self.root));
            assert_eq!(self.came.stream(process, name), recorded, "{name} of {process}");
        }
    }

    async fn answer(&mut self, recorded: &Value) {
        let id = recorded["id"].as_i64().unwrap();
        let request = self.asked.remove(&id).unwrap();
        let method = request["method"].as_str().unwrap().to_owned();
        let is_answer = |message: &Value| message["id"] == id && message.get("method").is_none();
        let mut answer = self.client.next_where(is_answer).await;
        // The recorded client came back later, when all was over.
        while recorded["result"]["closed"] == true && answer["result"]["closed"] == false {
            self.client.send_text(request.to_string()).await;
            answer = self.client.next_where(is_answer).await;
        }
        if let Some(session) = answer["result"]["sessionId"].as_str() {
            self.session = session.to_owned();
        }
        match (recorded.get("error"), answer.get("error")) {
            (Some(recorded), Some(ours)) => assert_eq!((&method, &recorded["code"]), (&method, &ours["code"])),
            (None, None) if method == "process/read" => {
                let process = request["params"]["processId"].as_str().unwrap();
                self.catch_up(process, &recorded["result"], &answer["result"]);
            }
            (None, None) => self.compare(&method, "", &recorded["result"], &answer["result"]),
            _ => panic!("{method}: {recorded} became {answer}"),
        }
    }

    /// How far a process has come when it is read after a cut is a matter of time: the bytes count, whichever way they
    /// come.
    fn catch_up(&mut self, process: &str, recorded: &Value, ours: &Value) {
        for (result, output) in [(recorded, &mut self.recorded), (ours, &mut self.came)] {
            assert_eq!(result["failure"], Value::Null);
            result["chunks"].as_array().unwrap().iter().for_each(|chunk| output.add(process, chunk));
        }
        if recorded["closed"] == true {
            self.compare_streams(process);
            assert_eq!(recorded["exitCode"], ours["exitCode"]);
        }
    }

    async fn event(&mut self, event: &str, is_last: bool) {
        if event.contains("process/output notifications left out") {
            self.shortened = true;
        } else if event.contains("cuts the connection") {
            self.cut().await;
        } else if event == "client closed the connection" || event.starts_with("start-up calls") || is_last {
            // The next connection is made where it is cut.
        } else {
            panic!("what is {event:?}?");
        }
    }

    /// The recorded client comes back a moment later, to what went on meanwhile.
    async fn cut(&mut self) {
        self.await_output().await;
        self.client = RawClient::connect(&self.server).0;
        while self.server.counts().attached > 0 {
            tokio::task::yield_now().await;
        }
    }

    fn compare(&mut self, what: &str, path: &str, recorded: &Value, ours: &Value) {
        if OF_THE_MACHINE.contains(&path) {
            return assert_eq!(std::mem::discriminant(recorded), std::mem::discriminant(ours), "{path}");
        }
        match (recorded, ours) {
            (Value::Object(members), Value::Object(others)) => {
                for name in members.keys().chain(others.keys()).collect::<BTreeSet<_>>() {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    // The number of an event counts the pieces of output too.
                    if path != "seq" {
                        let absent = json!("(absent)");
                        let value =
                            |object: &serde_json::Map<String, Value>| object.get(name).unwrap_or(&absent).clone();
                        self.compare(what, &path, &value(members), &value(others));
                    }
                }
            }
            (recorded, ours) if recorded != ours => {
                self.differences.push((what.into(), path.into(), recorded.clone(), ours.clone()));
            }
            _ => {}
        }
    }

    async fn finish(self) -> Vec<Difference> {
        drop(self.client);
        self.server.shutdown().await;
        self.differences
    }
}
