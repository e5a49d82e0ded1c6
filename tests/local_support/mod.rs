//! What the tests of the local backend share.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

#[path = "../../src/testing/patience.rs"]
mod patience;

use std::time::Duration;

use futures_util::StreamExt;
use longarm::ExecRequest;
use longarm::backend::local::{Local, LocalConfig};
use longarm::backend::{EventSource, ExecBackend, Spawned};
use longarm::event::{Closed, Event, OutputStream};
use longarm::status::ExitStatus;

pub(crate) use self::patience::{Patience, within};

/// Longer than anything that works takes; what takes longer fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A place with the host's variables.
pub(crate) fn local() -> Local {
    Local::new(LocalConfig::from_host())
}

/// A shell script, in `/tmp`.
pub(crate) fn sh(script: &str) -> ExecRequest {
    ExecRequest::new(["sh", "-c", script]).cwd("/tmp")
}

/// All that a process told.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) pty: Vec<u8>,
    pub(crate) status: ExitStatus,
    pub(crate) closed: Closed,
    pub(crate) kinds: Vec<String>,
}

/// Spawns and collects.
pub(crate) async fn run(local: &Local, request: ExecRequest) -> Run {
    let Spawned { events, .. } = local.spawn(request).await.unwrap();
    collect(events).await
}

/// Reads all events, and checks their numbers.
pub(crate) async fn collect(events: EventSource) -> Run {
    within(PATIENCE, collect_all(events)).await.expect("the process ends")
}

async fn collect_all(mut events: EventSource) -> Run {
    let (mut stdout, mut stderr, mut pty) = (Vec::new(), Vec::new(), Vec::new());
    let (mut status, mut closed, mut kinds, mut seq) = (None, None, Vec::new(), 0);
    while let Some(event) = events.next().await {
        let event = event.unwrap();
        seq += 1;
        assert_eq!(event.seq(), seq, "numbers rise without holes");
        assert!(closed.is_none(), "nothing follows the close");
        match event {
            Event::Output(output) => {
                assert!(!output.bytes.is_empty());
                kinds.push(format!("{:?}", output.stream).to_lowercase());
                match output.stream {
                    OutputStream::Stdout => stdout.extend_from_slice(&output.bytes),
                    OutputStream::Stderr => stderr.extend_from_slice(&output.bytes),
                    OutputStream::Pty => pty.extend_from_slice(&output.bytes),
                }
            }
            Event::Exited(exited) => {
                assert!(status.replace(exited.status).is_none(), "one exit");
                kinds.push("exited".into());
            }
            Event::Closed(event) => {
                closed = Some(event);
                kinds.push("closed".into());
            }
            other => panic!("unexpected event {other:?}"),
        }
    }
    let status = status.expect("there was an exit");
    let closed = closed.expect("there was a close");
    let totals = closed.totals.expect("totals are known");
    assert_eq!(totals.stdout, stdout.len() as u64);
    assert_eq!(totals.stderr, stderr.len() as u64);
    assert_eq!(totals.pty, pty.len() as u64);
    Run { stdout, stderr, pty, status, closed, kinds }
}

/// The next event; fails when there is none.
pub(crate) async fn next(events: &mut EventSource) -> Event {
    let next = within(PATIENCE, events.next()).await.expect("an event comes");
    next.expect("the stream goes on").unwrap()
}

/// Reads until the output of all streams contains `text`; returns all of it.
pub(crate) async fn read_until(events: &mut EventSource, text: &str) -> Vec<u8> {
    let mut all = Vec::new();
    while !String::from_utf8_lossy(&all).contains(text) {
        match next(events).await {
            Event::Output(output) => all.extend_from_slice(&output.bytes),
            other => panic!("{other:?} came before {text:?}, after {:?}", String::from_utf8_lossy(&all)),
        }
    }
    all
}

/// A run that has not happened yet.
pub(crate) fn empty_run() -> Run {
    Run {
        stdout: Vec::new(),
        stderr: Vec::new(),
        pty: Vec::new(),
        status: ExitStatus::unknown(),
        closed: Closed { seq: 0, totals: None, cut: false },
        kinds: Vec::new(),
    }
}

/// Whether there is such a process, also as a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// Whether there is such a process, and it has not ended.
pub(crate) fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Makes a program. By another one: if this one had the file open for writing, so would a child that another test is making at
/// that moment, and nobody could execute it until that child has its own program.
#[cfg(unix)]
pub(crate) fn write_program(path: &std::path::Path, content: impl AsRef<[u8]>) {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut install = install.spawn().unwrap();
    install.stdin.take().unwrap().write_all(content.as_ref()).unwrap();
    let installed = install.wait().unwrap();
    assert!(installed.success(), "{installed}");
}

/// Lets this program have as many descriptors as it may, up to a bound.
#[cfg(unix)]
pub(crate) fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls fill and read the structure.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(8192);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

/// Polls a future once, outside of its task: its value, if it is ready.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(future).poll(&mut cx) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}
