//! Pseudo-terminals.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{above_standard, check, platform};
use crate::request::TerminalSize;

/// Both sides of a terminal.
pub(super) struct Pair {
    pub(super) master: OwnedFd,
    pub(super) slave: OwnedFd,
}

/// Opens a terminal of this size, with the system's default settings.
pub(super) fn open(size: TerminalSize) -> io::Result<Pair> {
    // SAFETY: the call touches no memory.
    let master = check(unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    let master = above_standard(unsafe { OwnedFd::from_raw_fd(master) })?;
    // SAFETY: the descriptor is open.
    check(unsafe { libc::grantpt(master.as_raw_fd()) })?;
    // SAFETY: the descriptor is open.
    check(unsafe { libc::unlockpt(master.as_raw_fd()) })?;
    let slave = above_standard(platform::open_slave(&master)?)?;
    // Through the slave: macOS refuses a size on a master whose slave was never opened.
    resize(std::os::fd::AsFd::as_fd(&slave), size)?;
    Ok(Pair { master, slave })
}

/// Sets the size; the foreground process group gets `SIGWINCH` if it changed.
pub(super) fn resize(terminal: BorrowedFd<'_>, size: TerminalSize) -> io::Result<()> {
    let size = libc::winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request reads a `winsize`, which the pointer refers to.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) })?;
    Ok(())
}

/// The terminal's foreground process group, if it has one.
pub(super) fn foreground_group(terminal: BorrowedFd<'_>) -> io::Result<Option<libc::pid_t>> {
    let mut group: libc::pid_t = 0;
    // Not `tcgetpgrp`, which some C libraries refuse for a terminal that is not the caller's own.
    // SAFETY: the request writes a `pid_t`, which the pointer refers to.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGPGRP, &raw mut group) })?;
    Ok((group > 1).then_some(group))
}
