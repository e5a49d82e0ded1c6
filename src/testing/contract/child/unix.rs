//! What the child needs of a Unix system.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;

use rustix::fs::FlockOperation;

/// Sends a signal to this process; by default it ends by it.
pub(super) fn raise(signal: i32) -> io::Result<()> {
    // SAFETY: `raise` takes a number and touches no memory of ours.
    check(unsafe { libc::raise(signal) })
}

pub(super) fn ignore_stop() -> io::Result<()> {
    // SAFETY: `SIG_IGN` is a valid disposition and runs no code of ours.
    if unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

pub(super) fn block_resize() -> io::Result<()> {
    block(libc::SIGWINCH)
}

pub(super) fn wait_for_resize() -> io::Result<()> {
    wait_for(libc::SIGWINCH)
}

/// Keeps a signal pending until it is waited for.
pub(super) fn block(signal: i32) -> io::Result<()> {
    let set = set_of(signal);
    // SAFETY: `set` is an initialised signal set that lives through the call; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

pub(super) fn wait_for(signal: i32) -> io::Result<()> {
    let set = set_of(signal);
    let mut received = 0;
    // SAFETY: both point to initialised memory of the right type that lives through the call.
    match unsafe { libc::sigwait(&raw const set, &raw mut received) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The polite request to end.
pub(super) fn stop_signal() -> io::Result<i32> {
    Ok(libc::SIGTERM)
}

/// Whether a blocked signal has come.
pub(super) fn is_pending(signal: i32) -> io::Result<bool> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigpending` initialises the set if it succeeds, which is checked before it is read.
    unsafe {
        check(libc::sigpending(set.as_mut_ptr()))?;
        Ok(libc::sigismember(set.as_ptr(), signal) == 1)
    }
}

fn set_of(signal: i32) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the whole set; `sigaddset` gets an initialised one.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        set.assume_init()
    }
}

/// Turns off echo, line editing and signal characters of the terminal on standard input.
pub(super) fn set_raw() -> io::Result<()> {
    let mut settings = MaybeUninit::uninit();
    // SAFETY: `tcgetattr` initialises the settings if it succeeds, which is checked before they are used.
    unsafe {
        check(libc::tcgetattr(0, settings.as_mut_ptr()))?;
        libc::cfmakeraw(settings.as_mut_ptr());
        check(libc::tcsetattr(0, libc::TCSANOW, settings.as_ptr()))
    }
}

/// Rows and columns of the terminal on standard output.
pub(super) fn terminal_size() -> io::Result<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: this request writes one `winsize`, which lives through the call.
    check(unsafe { libc::ioctl(1, libc::TIOCGWINSZ, &raw mut size) })?;
    Ok((size.ws_row, size.ws_col))
}

pub(super) fn close_output() -> io::Result<()> {
    for fd in [1, 2] {
        // SAFETY: nothing writes to these two any more: the program says nothing until it ends.
        check(unsafe { libc::close(fd) })?;
    }
    Ok(())
}

/// Holds a file until this process ends, which it shows.
pub(super) fn hold(file: File, _name: &str) -> io::Result<()> {
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // Open until the end. Programs that this one executes do not get it.
    std::mem::forget(file);
    Ok(())
}

/// Whether a process holds the file.
pub(super) fn is_held(name: &str) -> io::Result<bool> {
    match rustix::fs::flock(File::open(name)?, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Leaves the session, the terminal and the process group.
pub(super) fn start_session() -> io::Result<()> {
    // SAFETY: the call touches no memory.
    check(unsafe { libc::setsid() })
}

/// One fact a line: open descriptors beyond the standard ones, blocked and ignored signals, whether this process leads its
/// group and its session.
pub(super) fn inherited() -> io::Result<String> {
    // SAFETY: these three only return numbers.
    let (pid, group, session) = unsafe { (libc::getpid(), libc::getpgrp(), libc::getsid(0)) };
    let (blocked, ignored) = (signals(is_blocked), signals(is_ignored));
    let descriptors: Vec<i32> = (3..1024).filter(|fd| is_open(*fd)).collect();
    Ok(format!(
        "descriptors {descriptors:?}\nblocked {blocked:?}\nignored {ignored:?}\ngroup leader {}\nsession leader {}",
        pid == group,
        pid == session
    ))
}

fn signals(holds: fn(i32) -> bool) -> Vec<i32> {
    // The runtime of this program ignores SIGPIPE itself.
    (1..32).filter(|signal| *signal != libc::SIGPIPE && holds(*signal)).collect()
}

fn is_blocked(signal: i32) -> bool {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: without a new set the call only writes the present one, in full; it is read after that.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
        libc::sigismember(mask.as_ptr(), signal) == 1
    }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call only writes the present one, which is read only if it succeeds.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

fn is_open(fd: i32) -> bool {
    // SAFETY: reading the flags of a descriptor that may not be open touches no memory.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
