//! Our client and the reference's own server.
//!
//! The server's program is named by `LONGARM_REFERENCE`. Without it the tests say that they are skipped; in CI on Linux
//! they fail instead.

#![cfg(all(unix, feature = "websocket"))]

#[path = "interop_reference/files.rs"]
mod files;
#[path = "interop_reference/http.rs"]
mod http;
#[path = "../src/testing/patience.rs"]
mod patience;
#[cfg(target_os = "linux")]
#[path = "interop_reference/sandbox.rs"]
mod sandbox;

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use longarm::backend::{ExecBackend as _, Spawned, Terminate};
use longarm::config::ClientConfig;
use longarm::error::{InvalidRequest, SignalError, SpawnError, WaitError, WriteError};
use longarm::event::{Event, OutputStream};
use longarm::request::{ProcessId, Signal, Stdin, TerminalSize};
use longarm::status::ExitStatus;
use longarm::transport::websocket::{self, ConnectOptions};
use longarm::{ExecRequest, Remote, ShellEnvPolicy};

use self::patience::within;

/// Generous: it only ends tests that hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server of the reference, in a home of its own.
struct Reference {
    child: Child,
    url: String,
    _home: tempfile::TempDir,
}

impl Reference {
    /// None if there is no reference here.
    fn start() -> Option<Self> {
        let Some(program) = std::env::var_os("LONGARM_REFERENCE") else {
            let required = cfg!(target_os = "linux") && std::env::var_os("CI").is_some_and(|ci| ci == "true");
            assert!(!required, "LONGARM_REFERENCE must name the reference's program in CI");
            eprintln!("SKIPPED: LONGARM_REFERENCE does not name the reference's program");
            return None;
        };
        let home = tempfile::tempdir().expect("a home");
        let mut child = Command::new(program)
            .args(["exec-server", "--listen", "ws://127.0.0.1:0"])
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("HOME", home.path())
            .env("SECRET_TOKEN", "of-the-server")
            .env("PLAIN", "of-the-server")
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the reference starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut url = String::new();
            let read = stdout.read_line(&mut url).map(|_| url);
            // Who asked may have given up.
            drop(tell.send(read));
        });
        let url = told.recv_timeout(Duration::from_secs(60)).expect("the reference says where it listens in time");
        let url = url.expect("the reference says where it listens").trim().to_owned();
        Some(Self { child, url, _home: home })
    }

    async fn connect(&self) -> Remote {
        let transport = websocket::connect(&self.url, &ConnectOptions::default()).await.expect("connected");
        Remote::connect(Box::new(transport), ClientConfig::default()).await.expect("a session")
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a test with a connected client, or not at all.
async fn with_reference<F: Future<Output = ()>>(test: impl FnOnce(Remote) -> F) {
    let Some(reference) = Reference::start() else { return };
    let remote = reference.connect().await;
    let run = async {
        test(remote.clone()).await;
        remote.close().await;
    };
    within(PATIENCE, run).await.expect("the test ends");
}

fn sh(script: &str) -> ExecRequest {
    ExecRequest::new(["sh", "-c", script]).cwd("/tmp")
}

#[derive(Debug, Default)]
struct Outcome {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    pty: Vec<u8>,
    gaps: u64,
    status: Option<ExitStatus>,
    closed: bool,
}

impl Outcome {
    fn stdout(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text")
    }

    fn pty(&self) -> String {
        String::from_utf8_lossy(&self.pty).into_owned()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Output(output) => match output.stream {
                OutputStream::Stdout => self.stdout.extend_from_slice(&output.bytes),
                OutputStream::Stderr => self.stderr.extend_from_slice(&output.bytes),
                OutputStream::Pty => self.pty.extend_from_slice(&output.bytes),
            },
            Event::Gap(gap) => self.gaps += gap.last_seq - gap.first_seq + 1,
            Event::Exited(exited) => self.status = Some(exited.status),
            Event::Closed(_) => self.closed = true,
            other => panic!("{other:?}"),
        }
    }
}

async fn finish(process: &mut Spawned) -> Outcome {
    let mut outcome = Outcome::default();
    while let Some(event) = process.events.next().await {
        outcome.take(event.expect("no error"));
    }
    assert!(outcome.closed && outcome.status.is_some());
    outcome
}

async fn run(remote: &Remote, request: ExecRequest) -> Outcome {
    finish(&mut remote.spawn(request).await.expect("a process")).await
}

/// Reads on until the output contains `text`.
async fn until(process: &mut Spawned, outcome: &mut Outcome, text: &str) {
    loop {
        let seen = String::from_utf8_lossy(&outcome.stdout).contains(text) || outcome.pty().contains(text);
        if seen {
            return;
        }
        let event = process.events.next().await.expect("more events").expect("no error");
        outcome.take(event);
    }
}

#[tokio::test]
async fn one_shot_commands_and_their_exit_codes() {
    with_reference(|remote| async move {
        let info = remote.info().await.expect("facts");
        assert_eq!(info.platform_os.as_deref(), Some("linux"));
        assert_eq!(remote.features(), longarm::backend::Features::default());
        remote.status().await.expect("ready");
        let outcome = run(&remote, sh("echo out; echo err >&2; exit 3")).await;
        assert_eq!((outcome.stdout(), &outcome.stderr[..]), ("out\n", &b"err\n"[..]));
        assert_eq!(outcome.status, Some(ExitStatus::exited(3)));
        assert!(run(&remote, sh("exit 0")).await.status.expect("a status").success());
        assert_eq!(run(&remote, sh("kill -TERM $$")).await.status, Some(ExitStatus::exited(143)));
        let cwd = run(&remote, ExecRequest::new(["pwd"])).await;
        assert_eq!(
            cwd.stdout().trim(),
            info.cwd.expect("a directory").to_host_native_path().expect("a path").to_str().expect("text")
        );
        for round in 0..50 {
            assert_eq!(run(&remote, sh(&format!("echo {round}"))).await.stdout(), format!("{round}\n"));
        }
    })
    .await;
}

#[tokio::test]
async fn input_is_written_once_and_in_order() {
    with_reference(|remote| async move {
        let mut process = remote.spawn(sh("head -c 300000").stdin(Stdin::Piped)).await.expect("a process");
        let data: Vec<u8> = (0..300_000_u32).map(|index| (index % 251) as u8).collect();
        process.control.write(Bytes::from(data.clone())).await.expect("written");
        let echoed = finish(&mut process).await;
        assert!(echoed.stdout == data, "{} bytes", echoed.stdout.len());
        let closed = remote.spawn(sh("cat")).await.expect("a process");
        assert!(matches!(closed.control.write("x".into()).await, Err(WriteError::StdinClosed)));
    })
    .await;
}

#[tokio::test]
async fn a_terminal_echoes_and_takes_control_characters() {
    with_reference(|remote| async move {
        let request = sh("stty size; read line; echo got:$line; exec cat").terminal(TerminalSize::default());
        let mut process = remote.spawn(request.env("TERM", "dumb")).await.expect("a process");
        let mut outcome = Outcome::default();
        until(&mut process, &mut outcome, "24 80").await;
        process.control.write("hello\n".into()).await.expect("written");
        until(&mut process, &mut outcome, "got:hello").await;
        process.control.write("\u{3}".into()).await.expect("written");
        let rest = finish(&mut process).await;
        // The reference reports 1 for every death by signal in a terminal.
        assert_eq!(rest.status, Some(ExitStatus::exited(1)));
        assert!(outcome.stdout.is_empty());
    })
    .await;
}

#[tokio::test]
async fn an_interrupt_can_be_handled_and_a_stop_cannot() {
    with_reference(|remote| async move {
        let mut process = remote
            .spawn(sh("trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"))
            .await
            .expect("a process");
        let mut outcome = Outcome::default();
        until(&mut process, &mut outcome, "ready").await;
        process.control.signal(Signal::Interrupt).await.expect("sent");
        let rest = finish(&mut process).await;
        assert_eq!((rest.stdout(), rest.status), ("caught\n", Some(ExitStatus::exited(9))));

        let mut process =
            remote.spawn(sh("trap '' INT TERM; echo ready; while :; do sleep 0.05; done")).await.expect("a process");
        until(&mut process, &mut Outcome::default(), "ready").await;
        assert!(process.control.terminate(Terminate::graceful(Duration::from_secs(60))).await.expect("answered"));
        assert_eq!(finish(&mut process).await.status, Some(ExitStatus::exited(137)));
        assert!(!process.control.terminate(Terminate::kill()).await.expect("answered"));
    })
    .await;
}

#[tokio::test]
async fn a_large_output_arrives_complete() {
    with_reference(|remote| async move {
        const LINES: u64 = 2_000_000;
        let mut process = remote.spawn(sh(&format!("seq {LINES}"))).await.expect("a process");
        let (mut bytes, mut newlines, mut tail) = (0_u64, 0_u64, Vec::new());
        while let Some(event) = process.events.next().await {
            match event.expect("no error") {
                Event::Output(output) => {
                    bytes += output.bytes.len() as u64;
                    newlines += output.bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
                    tail = output.bytes.to_vec();
                }
                Event::Gap(gap) => panic!("{gap:?}"),
                _ => {}
            }
        }
        assert_eq!((bytes, newlines), (14_888_896, LINES));
        assert!(tail.ends_with(b"2000000\n"));
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_stops_gets_a_gap_and_the_end() {
    with_reference(|remote| async move {
        let dir = tempfile::tempdir().expect("a directory");
        let mut process = remote.spawn(sh("seq 1000000; : >done").cwd(dir.path())).await.expect("a process");
        // Nobody reads until the process has written everything, which another process sees.
        run(&remote, sh("until [ -e done ]; do sleep 0.05; done").cwd(dir.path())).await;
        let outcome = finish(&mut process).await;
        assert!(outcome.gaps > 0, "more was written than both ends hold");
        assert!(outcome.stdout.starts_with(b"1\n2\n3\n"));
        assert!(outcome.stdout.ends_with(b"999999\n1000000\n"));
        assert_eq!(outcome.status, Some(ExitStatus::exited(0)));
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_is_late_within_the_retained_bound_loses_nothing() {
    with_reference(|remote| async move {
        // Beyond our window, within that and what the server retains.
        let dir = tempfile::tempdir().expect("a directory");
        let command = sh("head -c 1800000 /dev/zero; : >done").cwd(dir.path());
        let mut process = remote.spawn(command).await.expect("a process");
        run(&remote, sh("until [ -e done ]; do sleep 0.05; done").cwd(dir.path())).await;
        let outcome = finish(&mut process).await;
        assert_eq!((outcome.stdout.len(), outcome.gaps), (1_800_000, 0));
    })
    .await;
}

#[tokio::test]
async fn policies_of_the_environment_are_carried_out() {
    with_reference(|remote| async move {
        let env = ExecRequest::new(["/usr/bin/env"]).cwd("/tmp").env("MINE", "1");
        let all = run(&remote, env.clone()).await;
        assert!(all.stdout().contains("PLAIN=of-the-server\n") && all.stdout().contains("MINE=1\n"));
        let policy = ShellEnvPolicy::inherit_all().ignore_default_excludes(false).set("SET", "2");
        let filtered = run(&remote, env.clone().env_policy(policy)).await;
        assert!(!filtered.stdout().contains("SECRET_TOKEN") && filtered.stdout().contains("SET=2\n"));
        let exact = run(&remote, env.env_clear()).await;
        assert_eq!(exact.stdout(), "MINE=1\n");
    })
    .await;
}

#[tokio::test]
async fn errors_of_a_start_are_typed() {
    with_reference(|remote| async move {
        let error = |request: ExecRequest| {
            let remote = remote.clone();
            async move { remote.spawn(request).await.expect_err("refused") }
        };
        let program = error(ExecRequest::new(["/nonexistent/program"]).cwd("/tmp")).await;
        assert!(matches!(program, SpawnError::ProgramOrCwdNotFound { .. }), "{program:?}");
        let cwd = error(sh("true").cwd("/nonexistent/directory")).await;
        assert!(cwd.to_string().contains("/nonexistent/directory"), "{cwd}");
        assert!(matches!(error(ExecRequest::new(["/etc"]).cwd("/tmp")).await, SpawnError::PermissionDenied { .. }));
        let foreign = longarm::PathUri::parse("file:///C:/Windows").expect("a URI");
        assert!(matches!(error(sh("true").cwd(foreign)).await, SpawnError::InvalidRequest(_)));
        assert!(matches!(error(sh("a\0b")).await, SpawnError::InvalidRequest(InvalidRequest::Nul { .. })));

        let id = ProcessId::new("once");
        let mut first = remote.spawn(sh("true").process_id(id.clone())).await.expect("a process");
        finish(&mut first).await;
        // The server keeps the id of a closed process for a while.
        assert!(matches!(error(sh("true").process_id(id)).await, SpawnError::AlreadyExists(_)));
        let unknown = remote.attach(ProcessId::new("unknown"), 0).await;
        assert!(matches!(unknown, Err(WaitError::UnknownProcess(_))), "{unknown:?}");
    })
    .await;
}

#[tokio::test]
async fn what_the_plain_wire_lacks_is_refused_before_anything_is_sent() {
    with_reference(|remote| async move {
        let sized = sh("true").terminal(TerminalSize { rows: 10, cols: 10 });
        assert!(matches!(remote.spawn(sized).await, Err(SpawnError::Unsupported(_))));
        assert!(matches!(remote.spawn(sh("true").contain(true)).await, Err(SpawnError::Unsupported(_))));
        let process = remote.spawn(sh("cat").stdin(Stdin::Piped)).await.expect("a process");
        assert!(matches!(process.control.close_stdin().await, Err(WriteError::Unsupported(_))));
        let resize = process.control.resize(TerminalSize::default()).await;
        assert!(matches!(resize, Err(SignalError::Unsupported(_))), "{resize:?}");
        assert!(matches!(process.control.signal(Signal::Terminate).await, Err(SignalError::Unsupported(_))));
        let descendants = Terminate::kill().with_descendants();
        assert!(matches!(process.control.terminate(descendants).await, Err(SignalError::Unsupported(_))));
        assert!(matches!(remote.list_processes().await, Err(longarm::error::CallError::Unsupported(_))));
    })
    .await;
}

#[tokio::test]
async fn limits_are_kept_by_our_end() {
    with_reference(|remote| async move {
        // The limit must not pass before the shell comes to its first line.
        for limit in [1, 4, 16].map(Duration::from_secs) {
            let timed = run(&remote, sh("echo before; sleep 600").time_limit(limit)).await;
            assert!(timed.status.expect("a status").timed_out());
            if !timed.stdout.is_empty() || limit > Duration::from_secs(10) {
                assert_eq!(timed.stdout(), "before\n");
                break;
            }
        }
        let flood = run(&remote, sh("yes").output_limit_bytes(100_000)).await;
        let limit = flood.status.expect("a status").limit_exceeded();
        assert_eq!(limit, Some(longarm::status::LimitExceeded::Output));
        assert!(flood.stdout.len() >= 100_000);
    })
    .await;
}

#[tokio::test]
async fn a_session_is_left_resumed_and_followed_again() {
    let Some(reference) = Reference::start() else { return };
    let run = async {
        let remote = reference.connect().await;
        let mut process =
            remote.spawn(sh("echo one; read go; echo two; exit 4").stdin(Stdin::Piped)).await.expect("a process");
        let id = process.process_id.clone();
        let mut outcome = Outcome::default();
        until(&mut process, &mut outcome, "one").await;
        let session = remote.leave().await.expect("a session");
        assert!(matches!(process.events.next().await, Some(Err(WaitError::Disconnected(_)))));
        let resumed = loop {
            let transport = websocket::connect(&reference.url, &ConnectOptions::default()).await.expect("connected");
            match Remote::resume(Box::new(transport), ClientConfig::default(), session.clone()).await {
                Ok(remote) => break remote,
                // The server has not noticed yet that the first connection is gone.
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        };
        let mut process = resumed.attach(id.clone(), 1).await.expect("attached");
        process.control.write("go\n".into()).await.expect("written");
        let outcome = finish(&mut process).await;
        assert_eq!((outcome.stdout(), outcome.status), ("two\n", Some(ExitStatus::exited(4))));
        drop(process);
        // All of it once more, from what is retained.
        let mut again = resumed.attach(id, 0).await.expect("attached");
        let outcome = finish(&mut again).await;
        assert_eq!((outcome.stdout(), outcome.gaps), ("one\ntwo\n", 0));
        resumed.close().await;
    };
    within(PATIENCE, run).await.expect("the test ends");
}

#[tokio::test]
async fn nothing_is_left_behind_when_a_place_is_closed() {
    let Some(reference) = Reference::start() else { return };
    let run = async {
        let remote = reference.connect().await;
        let mut pids = Vec::new();
        for _ in 0..5 {
            let mut process = remote.spawn(sh("echo $$; sleep 600")).await.expect("a process");
            let mut outcome = Outcome::default();
            until(&mut process, &mut outcome, "\n").await;
            pids.push(outcome.stdout().trim().to_owned());
            drop(process.events);
        }
        // One is given up before its start is answered. Its time is nobody else's.
        let mark = format!("sleep 601.{}", uuid::Uuid::new_v4().as_u128());
        let start = remote.spawn(sh(&mark));
        assert!(tokio::time::timeout(Duration::ZERO, start).await.is_err());
        remote.close().await;
        while pids.iter().any(|pid| is_running(pid)) || some_process_runs(&mark) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(PATIENCE, run).await.expect("the test ends");
}

#[tokio::test]
async fn many_processes_at_once_stay_apart() {
    with_reference(|remote| async move {
        let remote = Arc::new(remote);
        let runs = (0..40).map(|number| {
            let remote = Arc::clone(&remote);
            async move {
                let outcome = run(&remote, sh(&format!("for i in 1 2 3; do echo {number}; done; exit {number}"))).await;
                assert_eq!(outcome.stdout(), format!("{number}\n").repeat(3));
                assert_eq!(outcome.status, Some(ExitStatus::exited(number)));
            }
        });
        futures_util::future::join_all(runs).await;
    })
    .await;
}

fn is_running(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn some_process_runs(command: &str) -> bool {
    let wanted = OsString::from(command.replace(' ', "\0") + "\0");
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        std::fs::read(process.path().join("cmdline")).is_ok_and(|line| line == wanted.as_encoded_bytes())
    })
}
