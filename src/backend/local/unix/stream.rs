//! Our ends of a child's streams.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Launched, platform, read, terminal, write};
use crate::request::TerminalSize;

/// The reading end of an output pipe, or a terminal.
#[derive(Debug)]
pub(in crate::backend::local) struct OutputReader {
    end: End,
    is_terminal: bool,
    /// Kept only to stay open until the output is drained.
    _held_slave: Option<Arc<OwnedFd>>,
}

#[derive(Debug)]
enum End {
    Watched(AsyncFd<OwnedFd>),
    /// Taken off the runtime's selector: somebody reads it by the clock.
    Unwatched(Arc<OwnedFd>),
}

impl OutputReader {
    /// Takes the output ends of a child. Must be called within a runtime.
    pub(in crate::backend::local) fn take(launched: Launched) -> io::Result<(Self, Option<Self>)> {
        let is_terminal = launched.stderr.is_none();
        let first = Self {
            end: End::Watched(AsyncFd::with_interest(launched.stdout, Interest::READABLE)?),
            is_terminal,
            _held_slave: launched.held_slave,
        };
        Ok((first, None))
    }
}
