//! The reference's real client, driven by a scripted model on loopback, runs its commands on `longarm serve`.
//!
//! Needs the reference's program, named by the variable `LONGARM_REFERENCE`. Without it the tests say so and pass, but
//! fail in CI on Linux, where it has to be there.

#[cfg(target_os = "linux")]
#[path = "interop_codex_client/denials.rs"]
mod denials;
#[path = "interop_codex_client/files.rs"]
mod files;
#[path = "interop_codex_client/http.rs"]
mod http;
#[path = "../src/testing/patience.rs"]
mod patience;
#[cfg(target_os = "linux")]
#[path = "interop_codex_client/sandbox.rs"]
mod sandbox;

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use self::patience::Patience;

/// What only the server has in its environment.
const TOKEN_VARIABLE: &str = "LONGARM_TEST_TOKEN";
const TOKEN: &str = "token-of-the-executor";

/// The client takes a second or two; this is for a machine under load.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A command that is given so many milliseconds is waited for until it has ended, however long it takes.
const TO_THE_END: u32 = 20_000;

#[test]
fn a_command_runs_and_its_output_reaches_the_model() {
    let Some(run) = Run::new() else { return };
    let outputs =
        run.script(vec![Turn::call("one", json!({"cmd": "echo hi; echo there >&2", "yield_time_ms": 20_000}))]);
    let output = &outputs["one"];
    assert!(output.contains("Process exited with code 0"), "{output}");
    assert!(output.contains("hi") && output.contains("there"), "{output}");
}

#[test]
fn exit_codes_and_signals_reach_the_model() {
    let Some(run) = Run::new() else { return };
    let call = |id, cmd| Turn::call(id, json!({"cmd": cmd, "yield_time_ms": 20_000}));
    let outputs = run.script(vec![
        call("seven", "exit 7"),
        call("missing", "/no/such/program"),
        call("killed", "kill -9 $$"),
        call("silent", "true"),
    ]);
    for (id, code) in [("seven", 7), ("missing", 127), ("killed", 137), ("silent", 0)] {
        let output = &outputs[id];
        assert!(output.contains(&format!("Process exited with code {code}")), "{id}: {output}");
    }
}

#[test]
fn input_written_to_a_terminal_reaches_the_command() {
    let Some(run) = Run::new() else { return };
    let outputs = run.script(vec![
        Turn::call(
            "start",
            json!({"cmd": "read line; echo got:$line; read more; echo also:$more", "tty": true, "yield_time_ms": 500}),
        ),
        Turn::write("start", "first", "hello\n", 3_000),
        Turn::write("start", "second", "world\n", 20_000),
    ]);
    assert!(outputs["start"].contains("Process running with session ID"), "{}", outputs["start"]);
    let both = outputs["first"].clone() + &outputs["second"];
    assert!(both.contains("got:hello") && both.contains("also:world"), "{both}");
    assert!(outputs["second"].contains("Process exited with code 0"), "{both}");
}

#[test]
fn a_terminal_is_a_terminal_of_24_by_80() {
    let Some(run) = Run::new() else { return };
    let cmd = "tty; stty size; ps -o pgid=,sid=,tpgid= -p $$ | tr -s ' '";
    let outputs = run.script(vec![Turn::call("tty", json!({"cmd": cmd, "tty": true, "yield_time_ms": 20_000}))]);
    let output = &outputs["tty"];
    assert!(output.contains("/dev/pts/") && output.contains("24 80"), "{output}");
    assert!(output.contains("Process exited with code 0"), "{output}");
}

#[test]
fn an_interrupt_is_handled_by_the_command_or_ends_it() {
    let Some(run) = Run::new() else { return };
    let trap = "trap 'echo got-int; exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let outputs = run.script(vec![
        Turn::call("trap", json!({"cmd": trap, "yield_time_ms": 1_000})),
        Turn::wait_for("trap", "ready"),
        Turn::write("trap", "interrupt", "\u{3}", 20_000),
        Turn::call("tty", json!({"cmd": "echo ready; sleep 600", "tty": true, "yield_time_ms": 1_000})),
        Turn::wait_for("tty", "ready"),
        Turn::write("tty", "ctrl-c", "\u{3}", 20_000),
    ]);
    assert!(outputs["trap"].contains("Process running with session ID"), "{}", outputs["trap"]);
    let output = &outputs["interrupt"];
    assert!(output.contains("got-int") && output.contains("Process exited with code 9"), "{output}");
    let output = &outputs["ctrl-c"];
    assert!(
        output.contains("Process exited with code 130") || output.contains("Process exited with code 1\n"),
        "{output}"
    );
}

#[test]
fn two_megabytes_of_output_arrive_whole() {
    let Some(run) = Run::new() else { return };
    let cmd = "echo BEGIN; head -c 2000000 /dev/zero | tr '\\0' x; echo; echo END";
    let outputs =
        run.script(vec![Turn::call("large", json!({"cmd": cmd, "yield_time_ms": 30_000, "max_output_tokens": 200}))]);
    let output = &outputs["large"];
    assert!(output.contains("BEGIN") && output.contains("END"), "{output}");
    assert!(output.contains("Process exited with code 0"), "{output}");
    // The client counts what it got, four bytes to a token.
    let bytes = "BEGIN\n".len() + 2_000_000 + "\nEND\n".len();
    assert!(output.contains(&format!("Original token count: {}", bytes.div_ceil(4))), "{output}");
}

#[test]
fn commands_at_the_same_time_do_not_disturb_each_other() {
    let Some(run) = Run::new() else { return };
    let calls = (0..8).map(|n| {
        let cmd = format!("for i in 1 2 3; do echo line-{n}-$i; sleep 0.1; done");
        (format!("call{n}"), json!({"cmd": cmd, "yield_time_ms": 20_000}))
    });
    let outputs = run.script(vec![Turn::Calls(calls.collect())]);
    for n in 0..8 {
        let output = &outputs[&format!("call{n}")];
        assert!(output.contains(&format!("line-{n}-1\nline-{n}-2\nline-{n}-3")), "{output}");
    }
}

/// What the model says in one turn.
enum Turn {
    /// Starts commands, side by side.
    Calls(Vec<(String, Value)>),
    /// Calls another tool than the one for commands.
    Tool { id: String, namespace: Option<&'static str>, name: &'static str, arguments: Value },
    /// Writes to the session that an earlier call has left running.
    Write { session_of: String, id: String, chars: String, yield_time_ms: u32 },
    /// Polls such a session, over as many turns as it takes, until its output has a text.
    WaitFor { session_of: String, text: String },
    /// Starts a command again and again, until what the client tells of it has a text.
    Insist { id: String, arguments: Value, text: String },
}

impl Turn {
    fn call(id: &str, arguments: Value) -> Self {
        Self::Calls(vec![(id.into(), arguments)])
    }

    fn tool(id: &str, name: &'static str, arguments: Value) -> Self {
        Self::Tool { id: id.into(), namespace: None, name, arguments }
    }

    /// The same of a tool in this namespace.
    fn of(mut self, of: &'static str) -> Self {
        if let Self::Tool { namespace, .. } = &mut self {
            *namespace = Some(of);
        }
        self
    }

    fn write(session_of: &str, id: &str, chars: &str, yield_time_ms: u32) -> Self {
        Self::Write { session_of: session_of.into(), id: id.into(), chars: chars.into(), yield_time_ms }
    }

    fn wait_for(session_of: &str, text: &str) -> Self {
        Self::WaitFor { session_of: session_of.into(), text: text.into() }
    }

    /// Whether there is nothing to say, given what the client has told so far.
    fn is_over(&self, outputs: &HashMap<String, String>) -> bool {
        match self {
            Self::WaitFor { session_of: id, text } | Self::Insist { id, text, .. } => {
                let mut of_it = outputs.iter().filter(|(call, _)| call.split('#').next() == Some(id));
                of_it.any(|(_, output)| output.contains(text.as_str()))
            }
            _ => false,
        }
    }

    /// The items of the model's answer.
    fn items(&self, outputs: &HashMap<String, String>) -> Vec<Value> {
        match self {
            Self::Calls(calls) => calls.iter().map(|(id, arguments)| call(id, "exec_command", arguments)).collect(),
            Self::Tool { id, namespace, name, arguments } => {
                let mut call = call(id, name, arguments);
                if let Some(namespace) = namespace {
                    call["namespace"] = (*namespace).into();
                }
                vec![call]
            }
            Self::Write { session_of, id, chars, yield_time_ms } => {
                vec![write_call(outputs, session_of, id, chars, *yield_time_ms)]
            }
            Self::WaitFor { session_of, .. } => {
                let id = format!("{session_of}#{}", outputs.len());
                vec![write_call(outputs, session_of, &id, "", 250)]
            }
            Self::Insist { id, arguments, .. } => {
                vec![call(&format!("{id}#{}", outputs.len()), "exec_command", arguments)]
            }
        }
    }
}

fn call(id: &str, name: &str, arguments: &Value) -> Value {
    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments.to_string()})
}

fn write_call(outputs: &HashMap<String, String>, session_of: &str, id: &str, chars: &str, yield_time_ms: u32) -> Value {
    let earlier = outputs.get(session_of).map(String::as_str).unwrap_or_default();
    let session = earlier.split("Process running with session ID ").nth(1).and_then(|rest| rest.split('\n').next());
    let session: u64 = session.and_then(|id| id.trim().parse().ok()).unwrap_or_default();
    call(id, "write_stdin", &json!({"session_id": session, "chars": chars, "yield_time_ms": yield_time_ms}))
}

/// A server of ours and the place where the client works.
struct Run {
    reference: PathBuf,
    server: Server,
    dir: tempfile::TempDir,
    /// Further lines of the client's configuration.
    config: String,
}

impl Run {
    fn new() -> Option<Self> {
        Self::on(|_, _| Server::start())
    }

    /// The same with the reference's own server.
    fn on_reference() -> Option<Self> {
        Self::on(Server::reference)
    }

    fn on(server: impl FnOnce(&Path, &Path) -> Server) -> Option<Self> {
        let Some(reference) = std::env::var_os("LONGARM_REFERENCE") else {
            let must = cfg!(target_os = "linux") && std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!must, "LONGARM_REFERENCE is not set, and CI on Linux needs it");
            eprintln!("SKIPPED: LONGARM_REFERENCE does not name the reference's program");
            return None;
        };
        // The client treats what is below /tmp specially, and both servers what is within a repository.
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["home/.codex", "home-of-server", "workspace"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let reference = PathBuf::from(reference);
        let server = server(&reference, &dir.path().join("home-of-server"));
        Some(Self { reference, server, dir, config: String::new() })
    }

    /// Lets the client carry out `turns` and returns what it told the model, by the id of the call.
    fn script(&self, turns: Vec<Turn>) -> HashMap<String, String> {
        self.script_as(&["--dangerously-bypass-approvals-and-sandbox"], "", turns)
    }

    /// The same with these options, and `more` at the beginning of the client's configuration.
    fn script_as(&self, options: &[&str], more: &str, turns: Vec<Turn>) -> HashMap<String, String> {
        let model = Model::start(turns);
        let home = self.dir.path().join("home");
        let config = format!(
            "{more}model = \"mock\"\nmodel_provider = \"mock\"\n[model_providers.mock]\nname = \"mock\"\n\
             base_url = \"http://127.0.0.1:{}/v1\"\nwire_api = \"responses\"\n{}",
            model.port, self.config
        );
        std::fs::write(home.join(".codex/config.toml"), config).unwrap();
        let nowhere = "http://127.0.0.1:9";
        let mut client = Command::new(&self.reference)
            .args(["exec", "--skip-git-repo-check"])
            .args(options)
            .arg("hi")
            .current_dir(self.dir.path().join("workspace"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &home)
            .env("CODEX_EXEC_SERVER_URL", &self.server.url)
            .envs([
                ("HTTP_PROXY", nowhere),
                ("HTTPS_PROXY", nowhere),
                ("ALL_PROXY", nowhere),
                ("NO_PROXY", "127.0.0.1"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = collect(vec![Box::new(client.stdout.take().unwrap()), Box::new(client.stderr.take().unwrap())]);
        let status = wait(&mut client).unwrap_or_else(|| panic!("the client does not end: {}", log.lock().unwrap()));
        let outputs = model.outputs.lock().unwrap().clone();
        assert!(status.success(), "the client failed with {status}: {}", log.lock().unwrap());
        assert!(
            model.done.load(std::sync::atomic::Ordering::SeqCst),
            "the client stopped early: {}",
            log.lock().unwrap()
        );
        outputs
    }
}

/// `longarm serve`, or the reference's server, killed at the end.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longarm"));
        command.args(["serve", "--listen", "ws://127.0.0.1:0"]).env(TOKEN_VARIABLE, TOKEN);
        Self::spawn(command)
    }

    fn reference(program: &Path, home: &Path) -> Self {
        let mut command = Command::new(program);
        command.args(["exec-server", "--listen", "ws://127.0.0.1:0"]).current_dir(home).env_clear().env("HOME", home);
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path))).stderr(Stdio::null());
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut url = String::new();
            stdout.read_line(&mut url).unwrap();
            // Who asked may have given up.
            drop(tell.send(url));
        });
        let url = told.recv_timeout(Duration::from_secs(60)).expect("it says where it listens");
        Self { child, url: url.trim().into() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, which the test then tells.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A scripted model: an HTTP server that answers each turn with the next lines of its script.
struct Model {
    port: u16,
    outputs: Arc<Mutex<HashMap<String, String>>>,
    done: Arc<std::sync::atomic::AtomicBool>,
}

impl Model {
    fn start(turns: Vec<Turn>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let outputs = Arc::new(Mutex::new(HashMap::new()));
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (told, ended) = (Arc::clone(&outputs), Arc::clone(&done));
        let turns = Arc::new(Mutex::new(VecDeque::from(turns)));
        // Lives until the test's process ends.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (told, ended, turns) = (Arc::clone(&told), Arc::clone(&ended), Arc::clone(&turns));
                std::thread::spawn(move || {
                    let result = answer(stream.unwrap(), |request| {
                        if let Some(verdict) = reviewed(request) {
                            return vec![message(&verdict)];
                        }
                        let mut told = told.lock().unwrap();
                        remember_outputs(request, &mut told);
                        if let Some(item) = unfinished(request, &told) {
                            return vec![item];
                        }
                        let mut turns = turns.lock().unwrap();
                        while turns.front().is_some_and(|turn| turn.is_over(&told)) {
                            turns.pop_front();
                        }
                        match turns.front() {
                            Some(turn) => {
                                let items = turn.items(&told);
                                if !matches!(turn, Turn::WaitFor { .. } | Turn::Insist { .. }) {
                                    turns.pop_front();
                                }
                                items
                            }
                            None => {
                                ended.store(true, std::sync::atomic::Ordering::SeqCst);
                                vec![message("done")]
                            }
                        }
                    });
                    if let Err(error) = result {
                        eprintln!("the model's connection failed: {error}");
                    }
                });
            }
        });
        Self { port, outputs, done }
    }
}

/// Answers one HTTP request of the client and closes the connection.
fn answer(stream: TcpStream, turn: impl FnOnce(&Value) -> Vec<Value>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let is_turn = line.starts_with("POST ") && line.contains("/responses");
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (kind, body) = if is_turn {
        let request: Value = serde_json::from_slice(&body)?;
        ("text/event-stream", event_stream(turn(&request)))
    } else {
        ("application/json", json!({"data": [], "models": []}).to_string())
    };
    let stream = reader.get_mut();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn event_stream(items: Vec<Value>) -> String {
    let usage = json!({"input_tokens": 1, "input_tokens_details": null, "output_tokens": 1,
        "output_tokens_details": null, "total_tokens": 2});
    let mut events = vec![json!({"type": "response.created", "response": {"id": "r"}})];
    events.extend(items.into_iter().map(|item| json!({"type": "response.output_item.done", "item": item})));
    events.push(json!({"type": "response.completed", "response": {"id": "r", "usage": usage}}));
    let line = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(line).collect()
}

fn message(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": text}]})
}

/// The verdict, if the client asks for a review of an action: allowed is all that does not say that it is not.
fn reviewed(request: &Value) -> Option<String> {
    request.pointer("/text/format/schema/properties/outcome")?;
    let texts = request["input"].as_array()?.last()?["content"].as_array()?.iter();
    let mut texts = texts.filter_map(|content| content["text"].as_str());
    texts.find(|text| text.starts_with("Planned action JSON:"))?;
    let (risk, outcome) = if texts.next()?.contains("refused") { ("critical", "deny") } else { ("low", "allow") };
    let verdict =
        json!({"risk_level": risk, "user_authorization": "high", "outcome": outcome, "rationale": "so it is"});
    Some(verdict.to_string())
}

/// Looks again at the first command that is to be waited for and has not ended.
fn unfinished(request: &Value, told: &HashMap<String, String>) -> Option<Value> {
    let mut calls = request["input"].as_array()?.iter().filter(|item| item["type"] == "function_call");
    let id = calls.find_map(|item| {
        let arguments: Value = serde_json::from_str(item["arguments"].as_str()?).ok()?;
        let id = item["call_id"].as_str().filter(|id| !id.contains('+'))?;
        let runs = told.get(id)?.contains("Process running with session ID ") && !told[id].contains("Process exited");
        (runs && arguments["yield_time_ms"].as_u64()? >= TO_THE_END.into()).then_some(id)
    })?;
    let looks = told.keys().filter(|other| other.split('+').next() == Some(id)).count();
    Some(write_call(told, id, &format!("{id}+{looks}"), "", TO_THE_END))
}

/// By id; what came when a command was looked at again is put to what it told first.
fn remember_outputs(request: &Value, told: &mut HashMap<String, String>) {
    for item in request["input"].as_array().into_iter().flatten() {
        if item["type"] == "function_call_output" {
            let output = match &item["output"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let id = item["call_id"].as_str().unwrap_or_default();
            if let Some((first, _)) = id.split_once('+') {
                told.entry(first.into()).or_default().push_str(&output);
            }
            told.insert(id.into(), output);
        }
    }
}

/// Gathers what comes on several streams.
fn collect(streams: Vec<Box<dyn io::Read + Send>>) -> Arc<Mutex<String>> {
    let log = Arc::new(Mutex::new(String::new()));
    for mut stream in streams {
        let log = Arc::clone(&log);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                log.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
    }
    log
}

/// Waits for the end of a process; kills it and returns none when that takes too long.
fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let mut patience = Patience::new(TIME_LIMIT);
    while patience.is_left() {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        patience.block(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}
