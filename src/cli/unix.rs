//! Terminals, signals, limits and standard streams of Unix.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use longarm::TerminalSize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

/// How long to wait before a stream is tried again that somebody made non-blocking.
pub(super) const RETRY_TIME: Duration = Duration::from_millis(5);

/// What longarm is told by signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// A request to end, or the end of the terminal.
    Terminate,
    /// The terminal has another size.
    Resize,
}

/// A signal that was ignored from the start stays so, as `nohup` and background jobs of shells have it.
pub(super) struct Signals {
    interrupt: Option<SignalStream>,
    terminate: Option<SignalStream>,
    hangup: Option<SignalStream>,
    quit: Option<SignalStream>,
    resize: SignalStream,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: unless_ignored(SignalKind::interrupt())?,
            terminate: unless_ignored(SignalKind::terminate())?,
            hangup: unless_ignored(SignalKind::hangup())?,
            // Else it would end us at once, and leave the terminal raw.
            quit: unless_ignored(SignalKind::quit())?,
            resize: signal(SignalKind::window_change())?,
        })
    }

    /// The next signal of any kind.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = next_of(&mut self.interrupt) => Signal::Interrupt,
            Some(()) = next_of(&mut self.terminate) => Signal::Terminate,
            Some(()) = next_of(&mut self.hangup) => Signal::Terminate,
            Some(()) = next_of(&mut self.quit) => Signal::Terminate,
            Some(()) = self.resize.recv() => Signal::Resize,
            else => std::future::pending().await,
        }
    }

    /// The next signal that asks this program to end.
    pub(super) async fn stop(&mut self) {
        while self.next().await == Signal::Resize {}
    }
}

fn unless_ignored(kind: SignalKind) -> io::Result<Option<SignalStream>> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call only fills `action`.
    let action = unsafe {
        if libc::sigaction(kind.as_raw_value(), std::ptr::null(), action.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        action.assume_init()
    };
    if action.sa_sigaction == libc::SIG_IGN {
        return Ok(None);
    }
    signal(kind).map(Some)
}

/// The next one; never, if the signal is ignored.
async fn next_of(stream: &mut Option<SignalStream>) -> Option<()> {
    match stream {
        Some(stream) => stream.recv().await,
        None => std::future::pending().await,
    }
}

/// The terminal on standard input in raw mode; as it was before once this is dropped.
pub(super) struct RawMode {
    terminal: OwnedFd,
    saved: libc::termios,
}

impl RawMode {
    /// Makes the terminal raw, if there is one. With `keep_signals` its interrupt character still interrupts.
    pub(super) fn enter(keep_signals: bool) -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let terminal = stdin.as_fd().try_clone_to_owned()?;
        let mut saved = MaybeUninit::uninit();
        // SAFETY: the descriptor is open, and `saved` has room for a termios, which the call fills if it succeeds.
        let saved = unsafe {
            if libc::tcgetattr(terminal.as_raw_fd(), saved.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            saved.assume_init()
        };
        let mut raw = saved;
        // SAFETY: `raw` is a valid termios.
        unsafe { libc::cfmakeraw(&raw mut raw) };
        if keep_signals {
            raw.c_lflag |= libc::ISIG;
            // A stopped program would leave the terminal raw.
            raw.c_cc[libc::VSUSP] = libc::_POSIX_VDISABLE;
        }
        let mode = Self { terminal, saved };
        mode.set(&raw)?;
        Ok(Some(mode))
    }

    fn set(&self, termios: &libc::termios) -> io::Result<()> {
        // SAFETY: the descriptor is open and `termios` is valid.
        match unsafe { libc::tcsetattr(self.terminal.as_raw_fd(), libc::TCSANOW, termios) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = self.set(&self.saved);
    }
}

pub(super) fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// The size of the terminal on any of the standard streams.
pub(super) fn terminal_size() -> Option<TerminalSize> {
    [libc::STDOUT_FILENO, libc::STDIN_FILENO, libc::STDERR_FILENO].into_iter().find_map(|fd| {
        let mut size = MaybeUninit::<libc::winsize>::zeroed();
        // SAFETY: `size` has room for a winsize, for which all zeros is a valid value; a closed descriptor is an error.
        let size = unsafe {
            if libc::ioctl(fd, libc::TIOCGWINSZ, size.as_mut_ptr()) != 0 {
                return None;
            }
            size.assume_init()
        };
        (size.ws_row > 0 && size.ws_col > 0).then_some(TerminalSize { rows: size.ws_row, cols: size.ws_col })
    })
}

/// Raises the soft limit of open descriptors to the hard one; returns what both were.
pub(super) fn raise_descriptor_limit() -> Option<(u64, u64)> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: `limit` has room for an rlimit, which the call fills if it succeeds.
    let limit = unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) != 0 {
            return None;
        }
        limit.assume_init()
    };
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
    // SAFETY: `raised` is a valid rlimit. A system that refuses it leaves us with what we have.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
    // The type differs between systems.
    #[allow(clippy::useless_conversion)]
    Some((limit.rlim_cur.into(), limit.rlim_max.into()))
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Standard input and output for a server. Pipes are polled; all else is read and written by threads.
pub(super) fn standard_streams() -> io::Result<(Reader, Writer)> {
    let stdin: Reader = match pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?) {
        Ok(pipe) => Box::new(pipe),
        Err(_) => Box::new(tokio::io::stdin()),
    };
    let stdout: Writer = match pipe::Sender::from_owned_fd(io::stdout().as_fd().try_clone_to_owned()?) {
        Ok(pipe) => Box::new(pipe),
        Err(_) => Box::new(tokio::io::stdout()),
    };
    Ok((stdin, stdout))
}

/// Standard input without a buffer.
pub(super) fn raw_stdin() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Standard output without a buffer.
pub(super) fn raw_stdout() -> io::Result<File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

/// Standard error without a buffer.
pub(super) fn raw_stderr() -> io::Result<File> {
    Ok(io::stderr().as_fd().try_clone_to_owned()?.into())
}

/// `K=V`, split at the first sign.
pub(super) fn split_variable(pair: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = pair.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (bytes.get(..at)?, bytes.get(at + 1..)?);
    Some((OsString::from_vec(name.into()), OsString::from_vec(value.into())))
}

/// The bytes of a path.
pub(super) fn path_bytes(path: &OsStr) -> Option<Vec<u8>> {
    Some(path.as_bytes().to_vec())
}
