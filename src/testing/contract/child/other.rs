//! What the child needs of a system that is not Unix: it says that it cannot do it.

use std::fs::File;
use std::io;

pub(super) fn raise(_signal: i32) -> io::Result<()> {
    unsupported()
}

pub(super) fn ignore_stop() -> io::Result<()> {
    unsupported()
}

pub(super) fn block_resize() -> io::Result<()> {
    unsupported()
}

pub(super) fn wait_for_resize() -> io::Result<()> {
    unsupported()
}

pub(super) fn block(_signal: i32) -> io::Result<()> {
    unsupported()
}

pub(super) fn wait_for(_signal: i32) -> io::Result<()> {
    unsupported()
}

pub(super) fn stop_signal() -> io::Result<i32> {
    unsupported()
}

pub(super) fn is_pending(_signal: i32) -> io::Result<bool> {
    unsupported()
}

pub(super) fn set_raw() -> io::Result<()> {
    unsupported()
}

pub(super) fn terminal_size() -> io::Result<(u16, u16)> {
    unsupported()
}

pub(super) fn inherited() -> io::Result<String> {
    unsupported()
}

pub(super) fn close_output() -> io::Result<()> {
    unsupported()
}

/// Holds a file until this process ends, which it shows.
#[cfg(windows)]
pub(super) fn hold(file: File, name: &str) -> io::Result<()> {
    use std::os::windows::fs::OpenOptionsExt as _;

    drop(file);
    let alone = File::options().write(true).share_mode(0).open(name)?;
    std::mem::forget(alone);
    Ok(())
}

/// Whether a process holds the file.
#[cfg(windows)]
pub(super) fn is_held(name: &str) -> io::Result<bool> {
    const SHARING_VIOLATION: i32 = 32;

    match File::open(name) {
        Ok(_) => Ok(false),
        Err(error) if error.raw_os_error() == Some(SHARING_VIOLATION) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(not(windows))]
pub(super) fn hold(_file: File, _name: &str) -> io::Result<()> {
    unsupported()
}

#[cfg(not(windows))]
pub(super) fn is_held(_name: &str) -> io::Result<bool> {
    unsupported()
}

/// There are no sessions that one could leave.
pub(super) fn start_session() -> io::Result<()> {
    Ok(())
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}
