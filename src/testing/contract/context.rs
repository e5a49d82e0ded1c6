//! What a case works with.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Helper, Make};
use crate::collect::{CollectLimits, CollectedOutput};
use crate::environment::Environment;
use crate::event::{Closed, Event, Exited, OutputStream};
use crate::process::Process;
use crate::request::{ExecRequest, Stdin};
use crate::status::ExitStatus;

/// A fresh place, the helper program, and a directory that vanishes with the case.
pub(crate) struct Context {
    environment: Environment,
    child: Helper,
    make: Arc<Make>,
    scratch: Scratch,
}

impl Context {
    pub(super) async fn new(child: Helper, make: Arc<Make>) -> Self {
        let environment = Environment::with_backend(make().await);
        Self { environment, child, make, scratch: Scratch::new() }
    }

    pub(super) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Another place of the same kind.
    pub(super) async fn another_environment(&self) -> Environment {
        Environment::with_backend((self.make)().await)
    }

    pub(super) fn child_path(&self) -> &Path {
        &self.child.program
    }

    /// Another path of the helper program, which itself runs in the directory of the case.
    pub(super) fn child_at(&self, program: impl Into<OsString>, args: &[&str]) -> ExecRequest {
        let request = ExecRequest::new([program.into()]).cwd(self.dir());
        self.child.args.iter().map(AsRef::as_ref).chain(args.iter().map(OsStr::new)).fold(request, ExecRequest::arg)
    }

    /// The directory of the case.
    pub(super) fn dir(&self) -> &Path {
        &self.scratch.0
    }

    /// The helper program with these arguments, in the directory of the case.
    pub(super) fn child(&self, args: &[&str]) -> ExecRequest {
        self.child_at(&self.child.program, args)
    }

    pub(super) async fn spawn(&self, request: ExecRequest) -> Process {
        self.environment.spawn(request).await.unwrap_or_else(|error| panic!("the start failed: {error}"))
    }

    /// Starts the helper program and watches its events.
    pub(super) async fn watch(&self, args: &[&str]) -> Watched {
        Watched::new(self.spawn(self.child(args)).await)
    }

    /// The same, with a pipe to standard input.
    pub(super) async fn watch_piped(&self, args: &[&str]) -> Watched {
        Watched::new(self.spawn(self.child(args).stdin(Stdin::Piped)).await)
    }

    /// Runs a request to its end.
    pub(super) async fn output(&self, request: ExecRequest) -> CollectedOutput {
        let output = self.spawn(request).await.output(CollectLimits::default()).await;
        output.unwrap_or_else(|error| panic!("the events failed: {error}"))
    }

    /// Checks, from a place that is not closed, that the process with this sign of life disappears.
    pub(super) async fn assert_gone(&self, life: u32) {
        let environment = self.another_environment().await;
        let request = self.child(&["wait-gone", &life.to_string(), "10"]);
        let process = environment.spawn(request).await.unwrap_or_else(|error| panic!("the start failed: {error}"));
        let output = process.output(CollectLimits::default()).await;
        let output = output.unwrap_or_else(|error| panic!("the events failed: {error}"));
        assert!(output.status.success(), "process {life} is still there: {}", output.stderr.to_text());
        environment.close().await;
    }
}

/// A process whose events are checked against the contract as they come.
pub(super) struct Watched {
    pub(super) process: Process,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) pty: Vec<u8>,
    pub(super) exited: Option<Exited>,
    pub(super) closed: Option<Closed>,
    last_seq: u64,
}

impl Watched {
    pub(super) fn new(process: Process) -> Self {
        let [stdout, stderr, pty] = [Vec::new(), Vec::new(), Vec::new()];
        Self { process, stdout, stderr, pty, exited: None, closed: None, last_seq: 0 }
    }

    /// Takes the next event. Panics if there is none, or if it breaks the order.
    pub(super) async fn step(&mut self) {
        let event = self.process.next_event().await.unwrap_or_else(|error| panic!("the events failed: {error}"));
        let event = event.unwrap_or_else(|| panic!("the events ended without a close: {self}"));
        assert!(self.closed.is_none(), "{event:?} follows the close");
        assert_eq!(event.seq(), self.last_seq + 1, "numbers rise without holes");
        self.last_seq = event.seq();
        match event {
            Event::Output(output) => {
                assert!(!output.bytes.is_empty(), "output is never empty");
                match output.stream {
                    OutputStream::Stdout => self.stdout.extend_from_slice(&output.bytes),
                    OutputStream::Stderr => self.stderr.extend_from_slice(&output.bytes),
                    OutputStream::Pty => self.pty.extend_from_slice(&output.bytes),
                }
            }
            Event::Gap(gap) => panic!("{gap:?}, though nothing needed to be lost"),
            Event::Exited(exited) => {
                assert!(self.exited.replace(exited).is_none(), "there is one exit");
            }
            Event::Closed(closed) => {
                assert!(self.exited.is_some(), "the close follows the exit");
                if let Some(totals) = closed.totals {
                    let seen = [&self.stdout, &self.stderr, &self.pty].map(|bytes| bytes.len() as u64);
                    assert_eq!([totals.stdout, totals.stderr, totals.pty], seen, "totals count all bytes");
                }
                self.closed = Some(closed);
            }
        }
    }

    /// Reads on until standard output has this text.
    pub(super) async fn until_stdout(&mut self, text: &str) {
        while !contains(&self.stdout, text) {
            self.step().await;
        }
    }

    /// Reads on until standard error has this text.
    pub(super) async fn until_stderr(&mut self, text: &str) {
        while !contains(&self.stderr, text) {
            self.step().await;
        }
    }

    /// Reads on until the terminal has this text.
    pub(super) async fn until_pty(&mut self, text: &str) {
        while !contains(&self.pty, text) {
            self.step().await;
        }
    }

    /// Reads on until the exit.
    pub(super) async fn until_exit(&mut self) -> ExitStatus {
        loop {
            if let Some(exited) = self.exited {
                return exited.status;
            }
            self.step().await;
        }
    }

    /// Reads all events, and checks that nothing follows.
    pub(super) async fn read_to_end(&mut self) -> ExitStatus {
        while self.closed.is_none() {
            self.step().await;
        }
        let after = self.process.next_event().await;
        assert!(matches!(after, Ok(None)), "{after:?} follows the close");
        self.until_exit().await
    }

    pub(super) fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(super) fn pty_text(&self) -> String {
        String::from_utf8_lossy(&self.pty).into_owned()
    }

    /// Whether there is a sign of life.
    pub(super) fn has_life(&self) -> bool {
        self.numbers().next().is_some()
    }

    /// The whole lines of standard output that are numbers.
    fn numbers(&self) -> impl Iterator<Item = u32> {
        let text = self.stdout_text();
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        whole.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>().into_iter()
    }

    /// The first line of standard output that is a number: the sign of life of a process.
    pub(super) async fn life(&mut self) -> u32 {
        let [life] = self.lives().await;
        life
    }

    /// The first lines of standard output that are numbers.
    pub(super) async fn lives<const N: usize>(&mut self) -> [u32; N] {
        loop {
            let numbers: Vec<u32> = self.numbers().take(N).collect();
            if let Ok(lives) = numbers.try_into() {
                return lives;
            }
            self.step().await;
        }
    }

    pub(super) async fn write(&self, data: impl Into<Vec<u8>>) {
        self.process.write(data.into()).await.unwrap_or_else(|error| panic!("the write failed: {error}"));
    }
}

impl std::fmt::Display for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let streams = [&self.stdout, &self.stderr, &self.pty].map(|bytes| {
            let shown = bytes.get(..bytes.len().min(400)).unwrap_or_default();
            String::from_utf8_lossy(shown).into_owned()
        });
        write!(f, "after event {}: {streams:?}", self.last_seq)
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// A directory of its own.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("longarm-contract-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&dir).unwrap_or_else(|error| panic!("no scratch directory: {error}"));
        Self(dir.canonicalize().unwrap_or(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} stays behind: {error}", self.0.display());
        }
    }
}
