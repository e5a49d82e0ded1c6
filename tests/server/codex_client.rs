//! What the reference's own client sent in a whole conversation, sent to this server: the answers, the bytes of each
//! stream, the exits and their order within a process are compared with what its server answered.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use longarm::server::Server;
use longarm::{Local, LocalConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::client::{RawClient, decode};

/// Recordings with programs that every system has, and those with sandboxes.
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
    "workspace_write",
    "read_only",
    "git_protection",
    "denied_then_approved",
    "permission_profile",
    "interrupt_sandboxed",
    "escalated",
    "user_approval",
    "network_denied",
    "network_allowed",
];

/// One difference: of which recording, the method and the process, which member, what ours has there, and why.
type Known = (&'static str, &'static str, &'static str, &'static str, &'static str);

const KNOWN_DIFFERENCES: &[Known] = &[
    ("background_terminal", "process/exited <PROCESS-1>", "exitCode", "137", "128 + n on a terminal as elsewhere"),
    ("interrupt_sandboxed", "process/exited <PROCESS-1>", "exitCode", "9", TRAPPED),
    ("interrupt_sandboxed", "process/output <PROCESS-1>", "stdout", "ready\ngot-int\n", TRAPPED),
    ("network_denied", "process/exited <PROCESS-2>", "exitCode", "0", PAIRS),
    ("network_denied", "process/exited <PROCESS-2>", "sandboxDenied", "false", PAIRS),
    ("network_denied", "process/output <PROCESS-2>", "stderr", "", PAIRS),
    ("network_denied", "process/output <PROCESS-2>", "stdout", "inet Operation not permitted\nunix b'u'\n", PAIRS),
];

const TRAPPED: &str = "an interrupt reaches the command in the sandbox, which may handle it";
const PAIRS: &str = "a pair of sockets between the command's own processes may be used";

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

const MISSING_CHANGED: &str = "fs/missingChanged";

type Difference = (String, String, Value, Value);

/// Pieces of output by process and number, with their streams.
#[derive(Default)]
struct Output {
    pieces: BTreeMap<(String, u64), (String, Vec<u8>)>,
    /// By process: after which number how many bytes were left out.
    left_out: BTreeMap<String, (u64, usize)>,
}

impl Output {
    /// Takes a piece, which may come by a notification and by a read too.
    fn add(&mut self, process: &str, piece: &Value) {
        let text = |name: &str| piece[name].as_str().unwrap().to_owned();
        let seq = piece["seq"].as_u64().unwrap();
        let piece = (text("stream"), decode(&text("chunk")));
        let earlier = self.pieces.insert((process.to_owned(), seq), piece.clone());
        assert!(earlier.is_none_or(|earlier| earlier == piece), "one number, one piece");
    }

    /// What came of one stream between two numbers.
    fn between(&self, process: &str, stream: &str, numbers: RangeInclusive<u64>) -> String {
        let pieces = self.pieces.range((process.to_owned(), *numbers.start())..=(process.to_owned(), *numbers.end()));
        let bytes: Vec<u8> =
            pieces.filter(|(_, (name, _))| name == stream).flat_map(|(_, (_, bytes))| bytes).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn stream(&self, process: &str, stream: &str) -> String {
        self.between(process, stream, 0..=u64::MAX)
    }

    /// How many bytes came of a process, on all streams.
    fn length(&self, process: &str) -> usize {
        self.pieces.iter().filter(|((of, _), _)| of == process).map(|(_, (_, bytes))| bytes.len()).sum()
    }
}

struct Replay {
    server: Server,
    root: String,
    client: RawClient,
    session: String,
    /// The requests that have no answer yet.
    asked: BTreeMap<i64, Value>,
    /// Where what the commands fetch is served.
    port: u16,
    recorded: Output,
    came: Output,
    /// The processes that are closed, and nothing more is to come of.
    closed: BTreeSet<String>,
    /// The process whose output was recorded last.
    spoke_last: String,
    differences: Vec<Difference>,
}

/// What was there when it was recorded.
fn lay_out(name: &str, root: &Path) {
    let files: &[(&str, &str)] = match name {
        "workdir_and_shell" => &[("workspace/sub dir/file.txt", "content\n")],
        "read_only" => &[("workspace/data.txt", "data\n")],
        "git_protection" => &[("workspace/.git/config", "[core]\n\tbare = false\n")],
        "permission_profile" => &[
            ("workspace/open.txt", "open\n"),
            ("workspace/private/key", "private\n"),
            ("workspace/a/prod.env", "env\n"),
            ("secret/key", "secret\n"),
        ],
        _ => &[],
    };
    let directories: &[&str] = match name {
        "git_protection" => &["workspace/.git/hooks", "workspace/.codex"],
        "permission_profile" => &["server"],
        _ => &[],
    };
    for directory in ["workspace", "outside"].iter().chain(directories) {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    for (file, content) in files {
        std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        std::fs::write(root.join(file), content).unwrap();
    }
}

/// What the commands of the recordings fetched.
async fn serve(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let byte = stream.read_u8().await.unwrap();
            request.push(byte);
        }
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nserved x\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

async fn replay(name: &str) -> Vec<Difference> {
    // What is below `/tmp` may be written under most intents.
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = directory.path().canonicalize().unwrap();
    lay_out(name, &root);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(serve(listener));
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
        if lines.iter().any(|line| line["msg"]["method"] == MISSING_CHANGED) {
            // So was the call for the watch that is told of.
            let missing = [format!("file://{}/workspace/.agents/skills", root.display())];
            let watch = client.call("fs/watchMissing", json!({"watchId": 1, "missing": missing})).await;
            assert_eq!(watch["watching"], true);
        }
    }
    let mut replay = Replay {
        server,
        root: root.to_str().unwrap().to_owned(),
        client,
        session,
        asked: BTreeMap::new(),
        port,
        recorded: Output::default(),
        came: Output::default(),
        closed: BTreeSet::new(),
        spoke_last: String::new(),
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
    serving.abort();
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
        let processes: BTreeSet<_> = self.recorded.pieces.keys().map(|(process, _)| process.clone()).collect();
        for process in processes.difference(&self.closed.clone()) {
            while self.came.length(process) < self.recorded.length(process) {
                let of_it = |message: &Value| {
                    message["method"] == "process/output" && message["params"]["processId"] == process.as_str()
                };
                let event = self.client.next_where(of_it).await;
                self.came.add(process, &event["params"]);
            }
        }
    }

    /// What stands for a path, the session or the thread in a recording.
    fn real(&self, text: &str) -> String {
        let mut text = text.replace("<SESSION>", &self.session);
        for placeholder in ["<THREAD>", "<ID>"] {
            text = text.replace(placeholder, "67e55044-10b1-426f-9247-bb680e5fe0c8");
        }
        for (directory, real) in [
            ("workspace-parent", ""),
            ("workspace-grandparent", "/workspace-grandparent"),
            ("workspace-ancestor", "/workspace-ancestor"),
            ("workspace", "/workspace"),
            ("outside", "/outside"),
        ] {
            let real = format!("{}{real}", self.root);
            text = text.replace(&format!("file:///{directory}"), &format!("file://{real}"));
            text = text.replace(&format!("\"/{directory}"), &format!("\"{real}"));
        }
        text.replace("<WORKSPACE>", &format!("{}/workspace", self.root)).replace("<HTTP_PORT>", &self.port.to_string())
    }

    async fn expect(&mut self, recorded: &Value) {
        match recorded["method"].as_str() {
            // Compared when the process is closed: the pieces are the system's.
            Some("process/output") => {
                let params = &recorded["params"];
                self.spoke_last = params["processId"].as_str().unwrap().to_owned();
                self.recorded.add(&self.spoke_last, params);
            }
            Some(MISSING_CHANGED) => {
                let told = self.client.next_where(|message| message["method"] == MISSING_CHANGED).await;
                self.compare(MISSING_CHANGED, "", &recorded["params"], &told["params"]);
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
        if method == "process/closed" {
            self.compare_streams(&process);
        }
    }

    /// All has come of this process.
    fn compare_streams(&mut self, process: &str) {
        self.closed.insert(process.to_owned());
        const STREAMS: [&str; 3] = ["stdout", "stderr", "pty"];
        let root = format!("{}/workspace", self.root);
        let came = STREAMS.map(|name| self.recordable(&self.came.stream(process, name)));
        let length: usize = came.iter().map(String::len).sum();
        let left_out = self.recorded.left_out.get(process).copied();
        for (name, ours) in STREAMS.into_iter().zip(came) {
            let recorded = |numbers| self.recorded.between(process, name, numbers).replace("/workspace", &root);
            let (recorded, is_same) = match left_out {
                None => {
                    let whole = recorded(0..=u64::MAX);
                    let is_same = ours == whole;
                    (whole, is_same)
                }
                // What is there frames what is not.
                Some((after, bytes)) => {
                    let (start, end) = (recorded(0..=after), recorded(after + 1..=u64::MAX));
                    let is_same = length == self.recorded.length(process) + bytes;
                    let is_same = is_same && ours.starts_with(&start) && ours.ends_with(&end);
                    (format!("{start}({bytes} bytes left out){end}"), is_same)
                }
            };
            if !is_same {
                self.differences.push((format!("process/output {process}"), name.into(), recorded.into(), ours.into()));
            }
        }
    }

    /// As a text would be if this run had the ports and the times of the recording.
    fn recordable(&self, text: &str) -> String {
        let text = text.replace(&format!("port {} ", self.port), "port 40000 ");
        let Some((before, rest)) = text.split_once("port 40000 after ") else { return text };
        let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        format!("{before}port 40000 after 0{rest}")
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
            let bytes = event.split(['(', ' ']).rev().nth(1).and_then(|bytes| bytes.parse().ok()).unwrap();
            let process = self.spoke_last.clone();
            let (after, _) =
                self.recorded.pieces.range((process.clone(), 0)..=(process.clone(), u64::MAX)).next_back().unwrap();
            self.recorded.left_out.insert(process, (after.1, bytes));
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
        let told: Vec<_> = self.client.others.iter().filter(|message| message["method"] == MISSING_CHANGED).collect();
        assert!(told.is_empty(), "a watch is told of once: {told:?}");
        drop(self.client);
        self.server.shutdown().await;
        // None of the commands made these, and what held them is gone.
        for name in [".agents", ".aws"] {
            assert!(!Path::new(&self.root).join("workspace").join(name).exists(), "{name} is left");
        }
        self.differences
    }
}
