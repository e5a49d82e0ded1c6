//! What the child needs of a system that is not Unix: it says that it cannot do it.

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

pub(super) fn is_alive(_pid: u32) -> io::Result<bool> {
    unsupported()
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}
