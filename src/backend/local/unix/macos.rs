//! Unix systems other than Linux: children by the standard library, exits by waiting threads.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::check;
use super::launch::{LaunchFailure, Prepared, Stage};
use super::process::Child;
use crate::request::Signal;

/// Where programs are looked for when the child has no `PATH`.
pub(super) const DEFAULT_PATH: &str = "/usr/bin:/bin";

/// Unread terminal output is discarded at the last close of the slave.
pub(super) const HOLDS_SLAVE: bool = true;

/// Pipes grow by themselves, up to 64 KiB.
pub(super) const ENLARGES_PIPES: bool = false;

/// A pipe, closed on exec. There is no call that does both at once: a child of somebody else that is made between the
/// two inherits the pipe. Ours do not, since they close all that is not theirs.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    check(unsafe { libc::pipe(ends.as_mut_ptr()) })?;
    // SAFETY: the call returned two new descriptors that nobody else owns.
    let (read, write) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    for end in [&read, &write] {
        // SAFETY: the descriptor is open; the call touches no memory.
        check(unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) })?;
    }
    Ok((read, write))
}

/// What a pipe holds: see [`ENLARGES_PIPES`].
pub(super) fn enlarge_pipe(_fd: RawFd) -> usize {
    64 << 10
}

/// There is none: output is never paced, see [`ENLARGES_PIPES`].
#[derive(Debug)]
pub(super) enum Pacer {}

impl Pacer {
    pub(super) fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn start(&self, _period: Duration) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn poll_elapsed(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}

/// There is no such request.
pub(super) fn interrupt_foreground(_master: BorrowedFd<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Opens the other side of a terminal.
pub(super) fn open_slave(master: &OwnedFd) -> io::Result<OwnedFd> {
    let mut name: [libc::c_char; 128] = [0; 128];
    // SAFETY: the request writes a terminated name of at most 128 bytes, as the system's header says.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::c_ulong::from(libc::TIOCPTYGNAME), name.as_mut_ptr()) })?;
    // SAFETY: the call above wrote a terminated string.
    let slave = check(unsafe { libc::open(name.as_ptr(), libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(slave) })
}

/// There is nothing that holds a process and all that it starts.
#[derive(Debug)]
pub(super) enum Container {}

impl Container {
    pub(super) fn kill(&self) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn signal(&self, _signal: Signal, _told: Option<libc::pid_t>) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn signals_at_once(&self) -> bool {
        match *self {}
    }

    pub(super) fn has_members(&self) -> bool {
        match *self {}
    }
}

/// Makes children. Nothing is kept between two of them.
#[derive(Debug)]
pub(super) struct Launcher;

impl Launcher {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Tries the candidates in order, by the same rule as on Linux. In a sandbox, the program that applies its policy does so.
    #[allow(clippy::needless_pass_by_ref_mut, reason = "the signature is that of Linux")]
    pub(super) fn start(&mut self, prepared: &Prepared) -> Result<Child, LaunchFailure> {
        if let Some(sandbox) = &prepared.sandbox {
            let mut command = sandbox.command();
            command.args(prepared.argv.iter().map(|arg| OsStr::from_bytes(arg.as_bytes())));
            return match equip(command, prepared).and_then(|mut command| command.spawn()) {
                Ok(child) => Ok(Child::new(process_id(&child)?, None, None).ends_with_leader()),
                Err(error) if stage(prepared) == Stage::Cwd => Err(LaunchFailure::new(Stage::Cwd, error)),
                Err(error) => Err(not_started(error)),
            };
        }
        let mut failure = io::Error::from_raw_os_error(libc::ENOENT);
        let mut refused = None;
        for candidate in &prepared.candidates {
            match command(prepared, OsStr::from_bytes(candidate.as_bytes())).and_then(|mut command| command.spawn()) {
                Ok(child) => return Ok(Child::new(process_id(&child)?, None, None)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EACCES) => refused = Some(error),
                    Some(libc::ENOENT | libc::ENOTDIR) => failure = error,
                    _ => return Err(LaunchFailure::new(stage(prepared), error)),
                },
            }
        }
        Err(LaunchFailure::new(stage(prepared), refused.unwrap_or(failure)))
    }
}

fn process_id(child: &std::process::Child) -> Result<libc::pid_t, LaunchFailure> {
    let id = libc::pid_t::try_from(child.id());
    id.map_err(|_| LaunchFailure::new(Stage::Fork, io::Error::from_raw_os_error(libc::EOVERFLOW)))
}

/// The program that applies policies was not executed: it is not there, or there are too many arguments or processes.
fn not_started(error: io::Error) -> LaunchFailure {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::EPERM) => super::sandbox::not_started(&error),
        Some(libc::EAGAIN) => LaunchFailure::new(Stage::Fork, error),
        Some(libc::E2BIG) => LaunchFailure::new(Stage::Exec, error),
        _ => LaunchFailure::new(Stage::Sandbox, error),
    }
}

/// The standard library does not say which step failed: a directory that can be looked into can be entered.
fn stage(prepared: &Prepared) -> Stage {
    let cwd = OsStr::from_bytes(prepared.cwd.as_bytes());
    if std::fs::metadata(std::path::Path::new(cwd).join(".")).is_ok() { Stage::Exec } else { Stage::Cwd }
}

fn command(prepared: &Prepared, program: &OsStr) -> io::Result<Command> {
    let mut command = Command::new(program);
    let mut argv = prepared.argv.iter().map(|arg| OsStr::from_bytes(arg.as_bytes()));
    if let Some(arg0) = argv.next() {
        command.arg0(arg0);
    }
    command.args(argv);
    equip(command, prepared)
}

/// Gives a child all but its program and arguments.
fn equip(mut command: Command, prepared: &Prepared) -> io::Result<Command> {
    command.env_clear().current_dir(OsStr::from_bytes(prepared.cwd.as_bytes()));
    for variable in &prepared.envp {
        // The first byte may not separate: names are never empty.
        let bytes = variable.as_bytes();
        if let Some(at) = bytes.iter().position(|byte| *byte == b'=') {
            command.env(OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..]));
        }
    }
    let [stdin, stdout, stderr] = &prepared.child_ends;
    let end = |fd: &Arc<OwnedFd>| fd.as_fd().try_clone_to_owned().map(Stdio::from);
    command.stdin(end(stdin)?).stdout(end(stdout)?).stderr(end(stderr)?);
    let terminal = prepared.terminal;
    let limit = prepared.descriptor_limit.map(|(soft, hard)| libc::rlimit { rlim_cur: soft, rlim_max: hard });
    // SAFETY: the closure calls only what is safe in a signal handler, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            let mut signal = 1;
            while signal < 32 {
                libc::signal(signal, libc::SIG_DFL);
                signal += 1;
            }
            check(libc::setsid())?;
            if terminal {
                check(libc::ioctl(0, libc::c_ulong::from(libc::TIOCSCTTY), 0))?;
            }
            mark_close_on_exec();
            if let Some(limit) = &limit {
                check(libc::setrlimit(libc::RLIMIT_NOFILE, limit))?;
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            Ok(())
        });
    }
    Ok(command)
}

/// Marks, not closes: one of the descriptors tells the standard library how the execution went.
///
/// # Safety
///
/// Only in a child: changes descriptors whoever owns them.
unsafe fn mark_close_on_exec() {
    // SAFETY: system calls that touch no memory but the structure.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        // The kernel's own bound on descriptors of a process, where the limit is none.
        let end = limit.rlim_cur.min(10_240) as libc::c_int;
        let mut fd = 3;
        while fd < end {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            fd += 1;
        }
    }
}

/// The user's directory for caches, which services of the system write on behalf of programs.
#[cfg(target_vendor = "apple")]
pub(super) fn user_cache_dir() -> Option<PathBuf> {
    let mut path = vec![0_u8; libc::PATH_MAX as usize];
    // SAFETY: the pointer and the length describe the vector, of which the call writes a terminated string.
    let length = unsafe { libc::confstr(libc::_CS_DARWIN_USER_CACHE_DIR, path.as_mut_ptr().cast(), path.len()) };
    // With the terminator; zero is an error, and what is longer was cut.
    if length == 0 || length > path.len() {
        return None;
    }
    path.truncate(length - 1);
    Some(OsString::from_vec(path).into())
}

/// The program that a process executes, if it still does.
#[cfg(target_vendor = "apple")]
pub(super) fn program_of(process: u32) -> Option<PathBuf> {
    let process = libc::c_int::try_from(process).ok()?;
    let mut path = vec![0_u8; libc::PROC_PIDPATHINFO_MAXSIZE as usize];
    // SAFETY: the pointer and the length describe the vector, in which the call writes at most as much.
    let length = unsafe { libc::proc_pidpath(process, path.as_mut_ptr().cast(), path.len() as u32) };
    // Zero is an error.
    path.truncate(usize::try_from(length).ok().filter(|length| *length > 0)?);
    Some(OsString::from_vec(path).into())
}

#[cfg(not(target_vendor = "apple"))]
pub(super) fn user_cache_dir() -> Option<PathBuf> {
    None
}

#[cfg(not(target_vendor = "apple"))]
pub(super) fn program_of(_process: u32) -> Option<PathBuf> {
    None
}

/// There are no pidfds.
pub(super) fn signal_group_by_pidfd(_pidfd: RawFd, _signal: libc::c_int) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// There are no pidfds.
pub(super) fn wait_target(_pidfd: RawFd) -> Option<(libc::idtype_t, libc::id_t)> {
    None
}
