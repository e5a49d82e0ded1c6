//! Running the program and talking to it.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::patience::Patience;

/// For a machine under load.
const TIME_LIMIT: Duration = Duration::from_secs(60);

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_longarm");

/// Where `exec` runs its command.
pub(crate) enum Place {
    Local,
    Stdio,
    Connect(Server),
}

impl Place {
    pub(crate) fn all() -> [Self; 3] {
        [Self::Local, Self::Stdio, Self::Connect(Server::start())]
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Stdio => "stdio",
            Self::Connect(_) => "connect",
        }
    }

    /// `longarm exec` with the options that lead to this place.
    pub(crate) fn exec(&self) -> Command {
        self.command("exec")
    }

    /// `longarm cp` with the options that lead to this place.
    pub(crate) fn cp(&self) -> Command {
        self.command("cp")
    }

    pub(crate) fn info(&self) -> Command {
        self.command("info")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg(name);
        match self {
            Self::Local => {}
            Self::Stdio => {
                command.arg("--stdio").arg(format!("'{PROGRAM}' serve --listen stdio"));
            }
            Self::Connect(server) => {
                command.args(["--connect", &server.url]);
            }
        }
        command
    }

    pub(crate) fn run(&self, args: &[impl AsRef<OsStr>]) -> Outcome {
        run(self.exec().args(args), b"")
    }
}

/// What a run of the program came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Outcome {
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// The one line on standard error.
    pub(crate) fn reason(&self) -> &str {
        let text = std::str::from_utf8(&self.stderr).unwrap();
        assert!(text.starts_with("longarm: ") && text.ends_with('\n') && text.lines().count() == 1, "{text:?}");
        text.trim_end()
    }
}

pub(crate) fn run(command: &mut Command, stdin: &[u8]) -> Outcome {
    let mut running = Running::start(command);
    let mut input = running.stdin.take().unwrap();
    let stdin = stdin.to_vec();
    let writer = std::thread::spawn(move || {
        // A program that does not read its input closes it, which is its right.
        let _ = input.write_all(&stdin);
    });
    let outcome = running.finish();
    writer.join().unwrap();
    outcome
}

/// The program while it runs; killed when a test forgets it.
pub(crate) struct Running {
    child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    stderr: Option<mpsc::Receiver<Vec<u8>>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A shell makes its background jobs ignore some of them, and the tests may run in one.
        // SAFETY: the closure makes system calls that are safe after a fork.
        unsafe {
            command.pre_exec(|| {
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take().map(BufReader::new),
            stderr: Some(apart(move || read_all(&mut stderr))),
            child,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of standard output.
    pub(crate) fn line(&mut self) -> String {
        let mut stdout = self.stdout.take().unwrap();
        let read = apart(move || {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            (stdout, line)
        });
        let (stdout, line) = in_time("a line of output", &read);
        self.stdout = Some(stdout);
        line.trim_end().to_owned()
    }

    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Sends a signal, by its name without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for the end and gathers the rest of the output.
    pub(crate) fn finish(&mut self) -> Outcome {
        let stdout = self.stdout.take().map(|mut stdout| apart(move || read_all(&mut stdout)));
        let status = self.wait();
        let stdout = stdout.map(|read| in_time("the end of the output", &read)).unwrap_or_default();
        Outcome { status, stdout, stderr: in_time("the end of the errors", &self.stderr.take().unwrap()) }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut patience = Patience::new(TIME_LIMIT);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(patience.is_left(), "the program does not end");
            // The standard library has no wait with a limit.
            patience.block(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Usually it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `longarm serve` on a WebSocket.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(args: &[&str]) -> Self {
        Self::from_command(Command::new(PROGRAM).arg("serve").args(args))
    }

    pub(crate) fn from_command(command: &mut Command) -> Self {
        let mut running = Running::start(command);
        let url = running.line();
        assert!(url.starts_with("ws://127.0.0.1:"), "{url:?}: {:?}", running.finish());
        Self { running, url }
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    let signal = match name {
        "CONT" => libc::SIGCONT,
        "HUP" => libc::SIGHUP,
        "INT" => libc::SIGINT,
        "KILL" => libc::SIGKILL,
        "QUIT" => libc::SIGQUIT,
        "STOP" => libc::SIGSTOP,
        "TERM" => libc::SIGTERM,
        _ => panic!("what is {name}?"),
    };
    // SAFETY: the call touches no memory.
    let result = unsafe { libc::kill(libc::pid_t::try_from(pid).unwrap(), signal) };
    assert_eq!(result, 0, "cannot send {name} to {pid}: {}", std::io::Error::last_os_error());
}

/// Does something in a thread of its own, which may never end.
fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (tell, told) = mpsc::channel();
    // Who asked may have given up.
    std::thread::spawn(move || drop(tell.send(work())));
    told
}

fn in_time<T>(what: &str, told: &mpsc::Receiver<T>) -> T {
    told.recv_timeout(TIME_LIMIT).unwrap_or_else(|error| panic!("{what} does not come: {error}"))
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let mut patience = Patience::new(TIME_LIMIT);
    while !condition() {
        assert!(patience.is_left(), "{what} does not come true");
        patience.block(Duration::from_millis(5));
    }
}

/// Whether a process exists and is no zombie.
pub(crate) fn is_alive(pid: &str) -> bool {
    if cfg!(target_os = "linux") {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        return stat.is_ok_and(|stat| !stat.contains(") Z "));
    }
    let state = Command::new("ps").args(["-o", "stat=", "-p", pid]).output().unwrap();
    let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

/// Whether a process has this text in its command line.
#[cfg(target_os = "linux")]
pub(crate) fn someone_is_called(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| line.windows(text.len()).any(|part| part == text.as_bytes()))
}

fn read_all(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}
