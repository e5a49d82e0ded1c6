//! What the logic of this backend needs of a Unix system. `windows.rs` has the same names.
//!
//! - [`Launcher`]: makes children; one for each spawner thread.
//! - [`Launched`]: a child that runs, with our ends of its streams.
//! - [`Child`]: the process group: exit status, signals, release.
//! - [`ExitWatch`], [`OutputReader`], [`InputWriter`]: the asynchronous ends, all driven by `poll_*`.
//! - [`classify()`]: from a failed launch to a [`SpawnError`](crate::error::SpawnError).
//! - [`host_shell`], [`home_dir`], [`temporary_directories`], [`hostname`]: facts about the user and the machine.

#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
mod child;
mod classify;
#[cfg(target_os = "linux")]
mod clone_into;
#[cfg(target_os = "linux")]
mod container;
mod host;
#[cfg(target_os = "linux")]
mod init_program;
mod launch;
#[cfg(target_os = "linux")]
mod namespace;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod platform;
#[cfg(not(target_os = "linux"))]
#[path = "macos.rs"]
mod platform;
mod process;
#[cfg(target_os = "linux")]
pub(super) mod sandbox;
#[cfg(not(target_os = "linux"))]
#[path = "seatbelt.rs"]
pub(super) mod sandbox;
mod search;
mod stream;
mod terminal;

pub(super) use self::classify::{classify, no_thread};
#[cfg(target_os = "linux")]
pub(super) use self::container::ContainerPlan;
pub(super) use self::host::{home_dir, host_shell, hostname, login_shell, temporary_directories};
pub(super) use self::launch::{Common, Launched, Launcher};
pub(super) use self::process::{Child, ExitWatch};
pub(super) use self::stream::{InputWriter, OutputReader};

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the runtime watch a descriptor.
#[allow(deprecated, reason = "the call that replaces it is newer than the oldest tokio that we accept")]
fn watch(fd: &Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // What the deprecated call cannot promise holds here: the registration shares the ownership of the descriptor, which
    // so stays open as long as it is registered.
    AsyncFd::with_interest(Arc::clone(fd), interest)
}

/// The result of a system call that returns −1 on failure.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A pipe, both ends closed on exec and never one of the three standard descriptors: a host may run with those closed,
/// and a child's set-up would then overwrite one end with another.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = platform::pipe()?;
    Ok((above_standard(read)?, above_standard(write)?))
}

/// The same file under a descriptor above 2.
fn above_standard(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > libc::STDERR_FILENO { Ok(fd) } else { duplicate(&fd) }
}

/// Another descriptor of the same file, above 2 and closed on exec.
fn duplicate(fd: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open, since it is borrowed; the call touches no memory.
    let new = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open, since it is borrowed; the calls touch no memory.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

/// Opens the null device.
fn open_null() -> io::Result<OwnedFd> {
    // SAFETY: the path is a constant with a terminating NUL.
    let fd = check(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    above_standard(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One `read` into the spare capacity of `buffer`; zero bytes are the end. Interrupted calls are repeated.
fn read(fd: RawFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        let spare = buffer.spare_capacity_mut();
        // SAFETY: the pointer and the length describe the writable spare capacity of the vector.
        let count = unsafe { libc::read(fd, spare.as_mut_ptr().cast(), spare.len()) };
        match usize::try_from(count) {
            Ok(count) => {
                // SAFETY: the kernel wrote `count` bytes at the start of the spare capacity, and no more than fit.
                unsafe { buffer.set_len(buffer.len() + count) };
                return Ok(count);
            }
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// One `write` that raises no `SIGPIPE`, whatever the host's disposition is. Interrupted calls are repeated.
fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let _guard = if sigpipe_is_ignored() { None } else { Some(SigpipeBlocked::new()?) };
    loop {
        // SAFETY: the pointer and the length describe readable memory.
        let count = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(count) {
            Ok(count) => return Ok(count),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Rust programs ignore the signal from the start, but a library can find itself in any program.
fn sigpipe_is_ignored() -> bool {
    // SAFETY: all zeroes is a valid value of the C structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only queries, into a valid structure.
    let result = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// While it lives, `SIGPIPE` stays pending for this thread; one that came meanwhile is taken away at the end.
struct SigpipeBlocked {
    previous: libc::sigset_t,
    was_pending: bool,
}

impl SigpipeBlocked {
    fn new() -> io::Result<Self> {
        let was_pending = sigpipe_is_pending();
        // SAFETY: all zeroes is a valid value of the C structure; it is filled by the call below.
        let mut previous: libc::sigset_t = unsafe { std::mem::zeroed() };
        let set = sigpipe_set();
        // SAFETY: both sets are valid.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut previous) };
        if result == 0 { Ok(Self { previous, was_pending }) } else { Err(io::Error::from_raw_os_error(result)) }
    }
}

impl Drop for SigpipeBlocked {
    fn drop(&mut self) {
        if !self.was_pending && sigpipe_is_pending() {
            let set = sigpipe_set();
            let mut signal = 0;
            // SAFETY: both pointers are valid; the signal is pending for this thread, so that the call does not block.
            unsafe { libc::sigwait(&raw const set, &raw mut signal) };
        }
        // SAFETY: restores the mask that the same thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.previous, std::ptr::null_mut()) };
    }
}

fn sigpipe_set() -> libc::sigset_t {
    // SAFETY: all zeroes is a valid value of the C structure, which is then initialised as POSIX asks for.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPIPE);
        set
    }
}

fn sigpipe_is_pending() -> bool {
    // SAFETY: all zeroes is a valid value of the C structure, which the call fills.
    unsafe {
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&raw mut pending) == 0 && libc::sigismember(&raw const pending, libc::SIGPIPE) == 1
    }
}
