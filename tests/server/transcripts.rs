//! The recordings of the reference, replayed against this server: what its client sent is sent, and what its server
//! answered is compared, member by member. Where ours differs on purpose, the difference is listed with its reason; one
//! that is listed and not found fails the test as much as one that is found and not listed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use longarm::backend::Features;
use longarm::server::Server;
use longarm::wire::extension::Offer;
use longarm::{Local, LocalConfig};
use serde_json::{Value, json};

use crate::client::{RawClient, decode};

/// One difference: of which transcript, the id of the answer (or the method and the process of the notification), which
/// member, what ours has there, and why. Answers to malformed messages are counted from 0, for they have no id of their own.
/// `<TMP>` stands for the directory of the test, and `<TIME_MS>` for a time.
type Known = (&'static str, &'static str, &'static str, &'static str, &'static str);

const KNOWN_DIFFERENCES: &[Known] = &[
    ("handshake", "3", "result.environmentInfo.executorVersion", VERSION, "the version is our own"),
    ("handshake", "3", "result.environmentInfo.prependPathDirs", "[]", "no programs are bundled"),
    ("handshake", "3", "result.environmentInfo.providerId", "(absent)", "there is no build id"),
    (
        "envelope_errors",
        "malformed 0",
        "error.message",
        "malformed message: expected a value at offset 0",
        "the text names the fault, not the peer",
    ),
    (
        "envelope_errors",
        "malformed 1",
        "error.message",
        "malformed message: expected a JSON object",
        "the text names the fault, not the peer",
    ),
    (
        "envelope_errors",
        "malformed 2",
        "error.message",
        "malformed message: member `id` is neither a string nor a signed 64-bit integer",
        "the text names the fault, not the peer",
    ),
    (
        "envelope_errors",
        "malformed 3",
        "error.message",
        r#"malformed message: duplicate key "id" in the object that ends at or after offset 12"#,
        "the text names the fault, not the peer",
    ),
    (
        "envelope_errors",
        "malformed 4",
        "error.message",
        "malformed message: expected a JSON object",
        "the text names the fault, not the peer",
    ),
    (
        "envelope_errors",
        "9",
        "error.message",
        "invalid type: sequence, expected no parameters",
        "the text of a decoding error is the decoder's",
    ),
    (
        "envelope_errors",
        "10",
        "error.message",
        "invalid type: integer `5`, expected a string",
        "the text of a decoding error is the decoder's",
    ),
    ("environment", "2", "result.executorVersion", VERSION, "the version is our own"),
    ("environment", "2", "result.prependPathDirs", "[]", "no programs are bundled"),
    ("environment", "2", "result.providerId", "(absent)", "there is no build id"),
    ("environment", "3", "result.executorVersion", VERSION, "the version is our own"),
    ("environment", "3", "result.prependPathDirs", "[]", "no programs are bundled"),
    ("environment", "3", "result.providerId", "(absent)", "there is no build id"),
    ("process_start_errors", "3", "error.code", "-32602", "an invalid element is the request's fault (A8)"),
    ("process_start_errors", "3", "error.data.kind", "(absent)", "an invalid element is the request's fault (A8)"),
    (
        "process_start_errors",
        "3",
        "error.message",
        "argv[0] is empty",
        "our texts name the program, the directory or the element",
    ),
    (
        "process_start_errors",
        "4",
        "error.data.longarm",
        r#"{"kind":"programNotFound","program":"/nonexistent/program","searched":null}"#,
        "the details from which our client makes its error",
    ),
    (
        "process_start_errors",
        "4",
        "error.message",
        r#"program "/nonexistent/program" not found"#,
        "our texts name the program, the directory or the element",
    ),
    ("process_start_errors", "5", "error.data.kind", "spawnNotFound", "a program not found is so on a terminal too"),
    (
        "process_start_errors",
        "5",
        "error.data.longarm",
        r#"{"kind":"programNotFound","program":"nonexistent-program","searched":"/usr/bin:/bin"}"#,
        "the details from which our client makes its error",
    ),
    (
        "process_start_errors",
        "5",
        "error.message",
        r#"program "nonexistent-program" not found on PATH "/usr/bin:/bin""#,
        "our texts name the program, the directory or the element",
    ),
    (
        "process_start_errors",
        "6",
        "error.data.longarm",
        r#"{"kind":"permissionDenied","program":"/etc"}"#,
        "the details from which our client makes its error",
    ),
    (
        "process_start_errors",
        "6",
        "error.message",
        r#"program "/etc" may not be executed"#,
        "our texts name the program, the directory or the element",
    ),
    (
        "process_start_errors",
        "7",
        "error.data.longarm",
        r#"{"kind":"cwdNotFound","path":"<TMP>/missing"}"#,
        "the details from which our client makes its error",
    ),
    (
        "process_start_errors",
        "7",
        "error.message",
        r#"working directory "<TMP>/missing" does not exist"#,
        "our texts name the program, the directory or the element",
    ),
    (
        "process_start_errors",
        "10",
        "error.data.longarm",
        r#"{"kind":"foreignPath","os":"linux","uri":"file:///C:/Windows"}"#,
        "the details from which our client makes its error",
    ),
    (
        "process_start_errors",
        "11",
        "error.data.longarm",
        r#"{"kind":"foreignPath","os":"linux","uri":"file://server/share"}"#,
        "the details from which our client makes its error",
    ),
    ("process_start_errors", "12", "error.code", "-32602", "an invalid element is the request's fault (A8)"),
    ("process_start_errors", "12", "error.data.kind", "(absent)", "an invalid element is the request's fault (A8)"),
    (
        "process_start_errors",
        "12",
        "error.message",
        "argv[1] contains a NUL",
        "our texts name the program, the directory or the element",
    ),
    (
        "process_read",
        "11",
        "error.message",
        "invalid value: integer `-1`, expected u64",
        "the text of a decoding error is the decoder's",
    ),
    ("process_terminate", "process/exited tt", "params.exitCode", "137", "128 + n on a terminal as elsewhere"),
    ("session_resume", "1", "result.environmentInfo.executorVersion", VERSION, "the version is our own"),
    ("session_resume", "1", "result.environmentInfo.prependPathDirs", "[]", "no programs are bundled"),
    ("session_resume", "1", "result.environmentInfo.providerId", "(absent)", "there is no build id"),
    ("session_resume", "third 1", "result.environmentInfo.executorVersion", VERSION, "the version is our own"),
    ("session_resume", "third 1", "result.environmentInfo.prependPathDirs", "[]", "no programs are bundled"),
    ("session_resume", "third 1", "result.environmentInfo.providerId", "(absent)", "there is no build id"),
    ("fs_getMetadata", "2", "result.createdAtMs", "<TIME_MS>", "ours says when it was created"),
    ("fs_getMetadata", "3", "result.createdAtMs", "<TIME_MS>", "ours says when it was created"),
    ("fs_getMetadata", "4", "result.createdAtMs", "<TIME_MS>", "ours says when it was created"),
];

/// The answers that announce capabilities, and where in them.
const ANNOUNCEMENTS: &[(&str, &str, &str)] = &[
    ("handshake", "3", "result.environmentInfo.capabilities"),
    ("environment", "2", "result.capabilities"),
    ("environment", "3", "result.capabilities"),
    ("session_resume", "1", "result.environmentInfo.capabilities"),
    ("session_resume", "third 1", "result.environmentInfo.capabilities"),
];

/// What the reference announces and this server does not have, so that it does not announce it.
/// Headers from variables come with HTTP.
const NOT_ANNOUNCED: &[&str] = &[
    "capabilityDiscoverySandbox",
    "capabilityDiscoveryV2",
    "credentialMasking",
    "credentialMaskingCustomProviders",
    #[cfg(not(feature = "http"))]
    "httpHeaderEnvVars",
    "linuxApprovedRootWritePreservesRestrictions",
    "linuxRootWritePreservesDevices",
    "networkProxyLaunch",
    "networkProxyReviewDomains",
    "networkProxyTransparentTcp",
    "shellSnapshotV2",
    "windowsMxc",
];

/// All that is listed: the transcript, the id, the member, and what ours has there.
fn known_differences() -> Vec<[String; 4]> {
    let listed = KNOWN_DIFFERENCES.iter().map(|known| [known.0, known.1, known.2, known.3].map(str::to_owned));
    let announced = ANNOUNCEMENTS.iter().flat_map(|(transcript, id, place)| {
        let row = move |name: &str, ours: &str| {
            [(*transcript).into(), (*id).into(), format!("{place}.{name}"), ours.to_owned()]
        };
        let absent = NOT_ANNOUNCED.iter().map(move |name| row(name, "(absent)"));
        // Our own extension, of which another client takes no notice.
        absent.chain([row("longarm", &json!(Offer::of(Features::all())).to_string())])
    });
    listed.chain(announced).collect()
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

const TRANSCRIPTS: &[&str] = &[
    "handshake",
    "handshake_unknown_session",
    "handshake_initialized_too_early",
    "envelope_errors",
    "environment",
    "process_start_pipe",
    "process_start_tty",
    "process_start_errors",
    "process_read",
    "process_write",
    "process_signal",
    "process_terminate",
    "process_late_output",
    "env_policy",
    "session_resume",
    "concurrent_requests_default",
    "concurrent_requests_4",
    "environment_config_read",
    "fs_canonicalize",
    "fs_copy",
    "fs_createDirectory",
    "fs_getMetadata",
    "fs_open_readBlock",
    "fs_open_writeBlock",
    "fs_readDirectory",
    "fs_readFile",
    "fs_remove",
    "fs_walk",
    "fs_watchMissing",
    "fs_writeFile",
    #[cfg(target_os = "linux")]
    "sandbox",
];

/// What was there when the calls about files were recorded.
fn lay_out_files(tmp: &Path) {
    let fs = tmp.join("fs");
    std::fs::create_dir_all(fs.join("dir/sub")).unwrap();
    std::fs::write(fs.join("a.txt"), "hello world").unwrap();
    std::fs::write(fs.join("dir/b.txt"), "b").unwrap();
    std::fs::write(fs.join("sp ace%#.txt"), "s").unwrap();
    for (name, target) in [("link", "a.txt"), ("dlink", "dir"), ("dangling", "gone")] {
        std::os::unix::fs::symlink(target, fs.join(name)).unwrap();
    }
    let made = std::process::Command::new("mkfifo").arg(fs.join("fifo")).status().unwrap();
    assert!(made.success());
}

#[tokio::test]
async fn recordings_of_the_reference_are_answered_alike() {
    let listed = known_differences();
    let mut found = BTreeSet::new();
    let mut unexpected = Vec::new();
    for name in TRANSCRIPTS {
        for (id, member, expected, actual) in replay(name).await {
            let text = actual.as_str().map_or_else(|| actual.to_string(), str::to_owned);
            let difference = [(*name).to_owned(), id, member, text];
            match listed.iter().position(|known| *known == difference) {
                Some(known) => drop(found.insert(known)),
                None => unexpected.push(format!("{difference:?}, recorded as {expected}")),
            }
        }
    }
    assert!(unexpected.is_empty(), "not listed:\n{}", unexpected.join("\n"));
    let gone: Vec<_> =
        listed.iter().enumerate().filter(|(index, _)| !found.contains(index)).map(|(_, known)| known).collect();
    assert!(gone.is_empty(), "listed, and differing no more: {gone:?}");
}

type Difference = (String, String, Value, Value);

struct Replay {
    server: Server,
    tmp: String,
    session: Option<String>,
    connections: BTreeMap<&'static str, RawClient>,
    speaking: &'static str,
    /// The requests by connection and id.
    asked: BTreeMap<(&'static str, String), Value>,
    /// Output by process and stream: what was recorded so far, and what came.
    recorded: BTreeMap<(String, String), Vec<u8>>,
    came: BTreeMap<(String, String), Vec<u8>>,
    /// How many answers to malformed messages there were.
    malformed: usize,
    answered_reads: u32,
    differences: Vec<Difference>,
}

async fn replay(name: &str) -> Vec<Difference> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("cwd")).unwrap();
    if name.starts_with("fs_") {
        lay_out_files(directory.path());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    let base: [(&str, &str); 9] = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", "/root"),
        ("FOO", "foo"),
        ("FOOBAR", "fb"),
        ("MY_KEY", "k"),
        ("Api_Token", "t"),
        ("TERM", "xterm"),
        ("LANG", "C.UTF-8"),
        ("CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN", "never"),
    ];
    let base = base.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
    let config = LocalConfig::from_host().base_env(base).default_cwd(directory.path().join("cwd"));
    let server = Server::new(Arc::new(Local::new(config)));
    let mut client = RawClient::connect(&server).0;
    if !name.starts_with("handshake") && name != "session_resume" {
        client.initialize(None, &[]).await.unwrap();
    }
    let mut replay = Replay {
        server,
        tmp: directory.path().to_str().unwrap().to_owned(),
        session: None,
        connections: BTreeMap::from([("first", client)]),
        speaking: "first",
        asked: BTreeMap::new(),
        recorded: BTreeMap::new(),
        came: BTreeMap::new(),
        malformed: 0,
        answered_reads: 0,
        differences: Vec::new(),
    };
    for line in text.lines() {
        replay.step(&serde_json::from_str(line).unwrap()).await;
    }
    replay.finish().await
}

impl Replay {
    fn client(&mut self) -> &mut RawClient {
        self.connections.get_mut(self.speaking).unwrap()
    }

    async fn step(&mut self, line: &Value) {
        if let Some(event) = line["event"].as_str() {
            return self.event(event).await;
        }
        if line["dir"] == "c2s" {
            let text = match line["raw"].as_str() {
                Some(raw) => raw.to_owned(),
                None => line["msg"].to_string(),
            };
            let session = self.session.clone().unwrap_or_else(|| "<SESSION>".into());
            let text = text.replace("<TMP>", &self.tmp).replace("<SESSION>", &session);
            let text = self.with_events_for_times(&text);
            if self.speaking == "third" && text.contains("process/read") {
                self.await_what_came_while_detached().await;
            }
            if let Ok(message) = serde_json::from_str::<Value>(&text)
                && message["method"].is_string()
            {
                self.asked.insert((self.speaking, message["id"].to_string()), message);
            }
            return self.client().send_text(text).await;
        }
        let recorded = &line["msg"];
        match recorded["method"].as_str() {
            None => self.answer(recorded).await,
            Some("process/output") => self.output(&recorded["params"]).await,
            Some(method) => self.notification(method, recorded).await,
        }
    }

    async fn event(&mut self, event: &str) {
        match event {
            "connection closed without a close frame" => assert_eq!(self.client().next().await, None),
            "second connection opened" => self.open("second"),
            "third connection opened" => self.open("third"),
            "second connection closed" => {
                self.connections.remove("second");
            }
            "first connection closed" => {
                self.connections.remove("first");
                while self.server.counts().attached > 0 {
                    tokio::task::yield_now().await;
                }
            }
            other => panic!("what is {other:?}?"),
        }
    }

    fn open(&mut self, name: &'static str) {
        self.connections.insert(name, RawClient::connect(&self.server).0);
        self.speaking = name;
    }

    async fn answer(&mut self, recorded: &Value) {
        let id = recorded["id"].clone();
        let request = self.asked.get(&(self.speaking, id.to_string())).cloned().unwrap_or_default();
        let method = request["method"].as_str().unwrap_or("(malformed)").to_owned();
        let mut answer = self.client().next_where(|message| message["id"] == id).await;
        // A waiting read is answered by the first news; the recorded one came a moment later, after the close.
        while recorded["result"]["closed"] == true && answer["result"]["closed"] == false {
            self.client().send_text(request.to_string()).await;
            answer = self.client().next_where(|message| message["id"] == id).await;
        }
        if let Some(session) = answer["result"]["sessionId"].as_str() {
            self.session.get_or_insert_with(|| session.to_owned());
        }
        // Every answer to what cannot be understood has the same id.
        let key = if id == -1 { format!("malformed {}", self.malformed) } else { id.to_string() };
        self.malformed += usize::from(id == -1);
        let key = if self.speaking == "first" { key } else { format!("{} {key}", self.speaking) };
        self.compare(&key, "", recorded, &answer);
        if self.speaking == "third" && method == "process/read" {
            self.client().others.retain(|message| message["method"] != "process/output");
        }
        if method == "process/read" {
            self.answered_reads += 1;
            std::fs::write(Path::new(&self.tmp).join(format!("go-{}", self.answered_reads)), "").unwrap();
        }
    }

    /// The times of some commands are made events, so that load cannot mix up what comes when: they go on when so many reads
    /// were answered. What was to be ended before it ends by itself takes longer.
    fn with_events_for_times(&self, text: &str) -> String {
        let until = |reads: u32| format!("until [ -e {}/go-{reads} ]; do sleep 0.02; done;", self.tmp);
        text.replace("while-detached; sleep 1;", &format!("while-detached; {}", until(1)))
            .replace("sleep 0.4; echo one; sleep 0.4;", &format!("{} echo one; {}", until(1), until(2)))
            .replace("(sleep 0.5; echo late)", &format!("({} echo late)", until(1)))
            .replace(r#"["sleep","2"]"#, r#"["sleep","600"]"#)
    }

    /// Until the client came back, the recorded one took its time; this one asks.
    async fn await_what_came_while_detached(&mut self) {
        let mut probe = json!({"id": "probe", "method": "process/read"});
        probe["params"] = json!({"processId": "bg", "waitMs": 20_000});
        self.client().send_text(probe.to_string()).await;
        let read = self.client().next_where(|message| message["id"] == "probe").await;
        assert_eq!(read["result"]["chunks"].as_array().map(Vec::len), Some(1));
        self.client().others.retain(|message| message["method"] != "process/output");
    }

    /// Output may come in other pieces than were recorded: its bytes are compared.
    async fn output(&mut self, params: &Value) {
        let key = |params: &Value| {
            (params["processId"].as_str().unwrap().to_owned(), params["stream"].as_str().unwrap().to_owned())
        };
        let wanted = key(params);
        let chunk = params["chunk"].as_str().unwrap();
        self.recorded.entry(wanted.clone()).or_default().extend(decode(chunk));
        while self.came.get(&wanted).map_or(0, Vec::len) < self.recorded[&wanted].len() {
            let event = self.client().next_where(|message| message["method"] == "process/output").await;
            let bytes = decode(event["params"]["chunk"].as_str().unwrap());
            self.came.entry(key(&event["params"])).or_default().extend(bytes);
        }
    }

    async fn notification(&mut self, method: &str, recorded: &Value) {
        if method == "fs/missingChanged" {
            // What the recording had done at this point, so that the watch would end.
            let name = if recorded["params"]["watchId"] == 1 { "later" } else { "a.txt" };
            std::fs::write(Path::new(&self.tmp).join("fs").join(name), "x").unwrap();
        }
        let process = recorded["params"]["processId"].clone();
        let wanted = |message: &Value| message["method"] == method && message["params"]["processId"] == process;
        let event = self.client().next_where(wanted).await;
        // The number counts the pieces of output too.
        let (mut recorded, mut event) = (recorded.clone(), event);
        for message in [&mut recorded, &mut event] {
            message["params"]["seq"] = json!(0);
        }
        let key = format!("{method} {}", process.as_str().unwrap_or_default());
        self.compare(&key, "", &recorded, &event);
    }

    fn compare(&mut self, id: &str, path: &str, recorded: &Value, actual: &Value) {
        // What this machine has is not the recorded machine's.
        let of_the_machine = ["shell", "userHomeDir", "temporaryDirectories", "tempDir", "hostname"];
        if of_the_machine.iter().any(|member| path.ends_with(member)) {
            assert_eq!(std::mem::discriminant(recorded), std::mem::discriminant(actual), "{path}");
            return;
        }
        match (recorded, actual) {
            (Value::Object(members), Value::Object(ours)) => {
                let names: BTreeSet<_> = members.keys().chain(ours.keys()).collect();
                for name in names {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    match (members.get(name), ours.get(name)) {
                        (Some(recorded), Some(actual)) => self.compare(id, &path, recorded, actual),
                        (recorded, actual) => self.differ(id, &path, recorded, actual),
                    }
                }
            }
            (Value::String(recorded), actual) if recorded == "<TIME_MS>" => {
                assert!(actual.as_i64().is_some_and(|time| time > 0), "{path}: {actual}");
            }
            (Value::Array(recorded), Value::Array(actual)) if recorded.len() == actual.len() => {
                let (mut recorded, mut actual) = (recorded.clone(), actual.clone());
                for entries in [&mut recorded, &mut actual] {
                    // The order of a directory is the system's; of all else it is the protocol's.
                    entries.sort_by_key(|entry| entry["fileName"].as_str().unwrap_or_default().to_owned());
                }
                for (recorded, actual) in recorded.iter().zip(&actual) {
                    self.compare(id, &format!("{path}[]"), recorded, actual);
                }
            }
            (Value::String(recorded), Value::String(actual)) => {
                let session = self.session.clone().unwrap_or_else(|| "<SESSION>".into());
                let expected = recorded.replace("<TMP>", &self.tmp).replace("<SESSION>", &session);
                let expected = expected.replace("<HOME>", "/root");
                if expected != *actual {
                    self.differ(id, path, Some(&json!(expected)), Some(&json!(actual)));
                }
            }
            (recorded, actual) if recorded != actual => self.differ(id, path, Some(recorded), Some(actual)),
            _ => {}
        }
    }

    fn differ(&mut self, id: &str, path: &str, recorded: Option<&Value>, actual: Option<&Value>) {
        // A whole object that is missing or added differs by each of its members.
        let whole = [recorded, actual].into_iter().flatten().next();
        if recorded.is_none() != actual.is_none()
            && let Some(Value::Object(members)) = whole
            && path.ends_with("data")
        {
            for (name, value) in members {
                let (recorded, actual) = (recorded.map(|_| value), actual.map(|_| value));
                self.differ(id, &format!("{path}.{name}"), recorded, actual);
            }
            return;
        }
        let value = |value: Option<&Value>| match value {
            None => json!("(absent)"),
            Some(time) if path.ends_with("AtMs") && time.as_i64().is_some_and(|time| time > 0) => json!("<TIME_MS>"),
            // What stands for the directory in a recording stands for it here.
            Some(value) => serde_json::from_str(&value.to_string().replace(&self.tmp, "<TMP>")).unwrap(),
        };
        let difference = (id.into(), path.into(), value(recorded), value(actual));
        self.differences.push(difference);
    }

    async fn finish(self) -> Vec<Difference> {
        assert_eq!(self.recorded, self.came, "the same bytes");
        // Nothing came that was not recorded, up to here. What goes on beyond the recording is another matter.
        for (name, client) in &self.connections {
            assert_eq!(client.others, [] as [Value; 0], "left over on the {name} connection");
        }
        drop(self.connections);
        self.server.shutdown().await;
        self.differences
    }
}
