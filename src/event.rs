//! What a process tells its owner, and in which order.
//!
//! Every event of a process has a number, its *sequence number*, counted from 1 without holes and shared by all kinds.
//! Events are delivered in rising order. A hole is never silent: a [`Gap`] stands in its place and says what is
//! missing. Three facts are kept apart:
//!
//! - [`Event::Exited`]: the process itself has ended. It is reported at once, and output may follow it, from what was
//!   still in the pipes or from descendants that hold them.
//! - [`Event::Closed`]: every output stream has ended. It comes once, after `Exited`, and is the last event.
//! - The end of the process *tree* is neither: a descendant that closed its streams may live on.

use bytes::Bytes;

use crate::status::ExitStatus;

/// The stream on which output came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The merged stream of a terminal.
    Pty,
}

/// One event of a process. See the module documentation for the order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Bytes that the process wrote.
    Output(Output),
    /// Events that are lost, in place of them.
    Gap(Gap),
    /// The process has ended.
    Exited(Exited),
    /// All output streams have ended; nothing follows.
    Closed(Closed),
}

impl Event {
    /// The (last) sequence number that this event stands for.
    pub const fn seq(&self) -> u64 {
        match self {
            Self::Output(output) => output.seq,
            Self::Gap(gap) => gap.last_seq,
            Self::Exited(exited) => exited.seq,
            Self::Closed(closed) => closed.seq,
        }
    }
}

/// A piece of output: bytes exactly as the process wrote them, cut at arbitrary places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Sequence number.
    pub seq: u64,
    /// The stream.
    pub stream: OutputStream,
    /// The bytes; never empty.
    pub bytes: Bytes,
}

/// A hole in the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first sequence number that is missing.
    pub first_seq: u64,
    /// The last sequence number that is missing.
    pub last_seq: u64,
    /// How many bytes of output are missing, if known.
    pub bytes: Option<u64>,
}

/// The process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exited {
    /// Sequence number.
    pub seq: u64,
    /// How it ended.
    pub status: ExitStatus,
    /// Whether the executor has evidence that a sandbox denied something. That a protected name changed is not a part of it:
    /// [`Process::denial`](crate::Process::denial) tells, also after a success.
    pub sandbox_denied: bool,
}

/// All output streams have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Sequence number.
    pub seq: u64,
    /// How many bytes the process wrote on each stream, if the executor says so.
    pub totals: Option<Totals>,
    /// The executor closed its end while someone still held the other end: output may have been cut.
    pub cut: bool,
}

/// Bytes written on each stream since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes on standard output.
    pub stdout: u64,
    /// Bytes on standard error.
    pub stderr: u64,
    /// Bytes on the terminal.
    pub pty: u64,
}

impl Totals {
    /// Counts `bytes` more on `stream`, up to the largest number there is.
    pub const fn add(&mut self, stream: OutputStream, bytes: u64) {
        let count = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
            OutputStream::Pty => &mut self.pty,
        };
        *count = count.saturating_add(bytes);
    }

    /// Bytes on all streams, up to the largest number there is.
    pub const fn sum(&self) -> u64 {
        self.stdout.saturating_add(self.stderr).saturating_add(self.pty)
    }
}
