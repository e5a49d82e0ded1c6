//! Output kept within a bound: the beginning and the end of each stream, and a count of what was dropped between.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::event::{Event, Exited, Gap, OutputStream};
use crate::status::ExitStatus;
use crate::text::{continuation_prefix, incomplete_suffix};

/// Bounds on collected output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectLimits {
    /// Bytes kept of the beginning of each stream. 512 KiB.
    pub head_bytes: usize,
    /// Bytes kept of the end of each stream. 512 KiB.
    pub tail_bytes: usize,
    /// How long to wait after the exit for the end of the streams. 2 s.
    pub drain_timeout: Duration,
}

impl CollectLimits {
    /// These bounds with another size for the beginning.
    #[must_use]
    pub const fn head_bytes(mut self, bytes: usize) -> Self {
        self.head_bytes = bytes;
        self
    }

    /// These bounds with another size for the end.
    #[must_use]
    pub const fn tail_bytes(mut self, bytes: usize) -> Self {
        self.tail_bytes = bytes;
        self
    }

    /// These bounds with another time to wait for the end of the streams.
    #[must_use]
    pub const fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }
}

impl Default for CollectLimits {
    fn default() -> Self {
        Self { head_bytes: 512 << 10, tail_bytes: 512 << 10, drain_timeout: Duration::from_secs(2) }
    }
}

/// All that was collected of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectedOutput {
    /// How the process ended.
    pub status: ExitStatus,
    /// Whether the executor has evidence that a sandbox denied something. That a protected name changed is not a part of it:
    /// [`Process::denial`](crate::Process::denial) tells, also after a success.
    pub sandbox_denied: bool,
    /// Standard output.
    pub stdout: Collected,
    /// Standard error.
    pub stderr: Collected,
    /// The merged stream of a terminal.
    pub pty: Collected,
    /// What did not arrive, on any stream. None if nothing is missing.
    pub missing: Option<Missing>,
    /// The streams had not ended in time: a descendant holds them, and output may still come.
    pub still_open: bool,
    /// The executor closed its end of the streams while a descendant still held them.
    pub cut: bool,
}

/// Output that was lost on its way, as explicit gaps between events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// How many gaps there were.
    pub gaps: u64,
    /// How many bytes they held, if all of them say.
    pub bytes: Option<u64>,
}

/// What was kept of one stream.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// The beginning.
    pub head: Vec<u8>,
    /// The end, if there was more than the beginning holds.
    pub tail: Vec<u8>,
    /// Bytes dropped between the two.
    pub dropped_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

impl Collected {
    /// Whether the process wrote nothing on this stream.
    pub fn is_empty(&self) -> bool {
        self.total_bytes == 0
    }

    /// What was kept, in one piece. Something is missing in it if [`dropped_bytes`](Self::dropped_bytes) is not zero.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.head.as_slice(), &self.tail].concat()
    }

    /// What was kept, as text. Where bytes were dropped, the text is cut at whole characters and says how many are left
    /// out; bytes that are not UTF-8 become marks.
    pub fn to_text(&self) -> String {
        if self.dropped_bytes == 0 {
            return String::from_utf8_lossy(&self.to_bytes()).into_owned();
        }
        let (head, _) = self.head.split_at(self.head.len() - incomplete_suffix(&self.head));
        let (_, tail) = self.tail.split_at(continuation_prefix(&self.tail));
        let shown = head.len() + tail.len();
        let left_out = self.total_bytes.saturating_sub(u64::try_from(shown).unwrap_or(u64::MAX));
        format!("{}\n[{left_out} bytes left out]\n{}", String::from_utf8_lossy(head), String::from_utf8_lossy(tail))
    }
}

/// Shows sizes only.
impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collected")
            .field("head_bytes", &self.head.len())
            .field("tail_bytes", &self.tail.len())
            .field("dropped_bytes", &self.dropped_bytes)
            .field("total_bytes", &self.total_bytes)
            .finish()
    }
}

/// Keeps the beginning and the end of a stream of bytes. Holds at most as many bytes as it was told.
#[derive(Clone, Debug)]
pub struct HeadTail {
    head: Vec<u8>,
    head_bytes: usize,
    tail: VecDeque<u8>,
    tail_bytes: usize,
    total_bytes: u64,
}

impl HeadTail {
    /// Keeps `head_bytes` of the beginning and `tail_bytes` of the end.
    pub const fn new(head_bytes: usize, tail_bytes: usize) -> Self {
        Self { head: Vec::new(), head_bytes, tail: VecDeque::new(), tail_bytes, total_bytes: 0 }
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total_bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let (head, rest) = bytes.split_at(bytes.len().min(self.head_bytes - self.head.len()));
        self.head.extend_from_slice(head);
        let (_, rest) = rest.split_at(rest.len().saturating_sub(self.tail_bytes));
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_bytes);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// What was kept.
    pub fn finish(self) -> Collected {
        let kept = u64::try_from(self.head.len() + self.tail.len()).unwrap_or(u64::MAX);
        Collected {
            head: self.head,
            tail: self.tail.into(),
            dropped_bytes: self.total_bytes - kept,
            total_bytes: self.total_bytes,
        }
    }
}

/// Gathers the events of one process.
#[derive(Debug)]
pub(crate) struct Collector {
    stdout: HeadTail,
    stderr: HeadTail,
    pty: HeadTail,
    missing: Option<Missing>,
    exited: Option<Exited>,
    closed: bool,
    cut: bool,
}

impl Collector {
    /// `exited` is the exit, if it was met before.
    pub(crate) const fn new(limits: CollectLimits, exited: Option<Exited>) -> Self {
        Self {
            stdout: HeadTail::new(limits.head_bytes, limits.tail_bytes),
            stderr: HeadTail::new(limits.head_bytes, limits.tail_bytes),
            pty: HeadTail::new(limits.head_bytes, limits.tail_bytes),
            missing: None,
            exited,
            closed: false,
            cut: false,
        }
    }

    /// Takes an event; true after the last one.
    pub(crate) fn push(&mut self, event: Event) -> bool {
        match event {
            Event::Output(output) => match output.stream {
                OutputStream::Stdout => self.stdout.push(&output.bytes),
                OutputStream::Stderr => self.stderr.push(&output.bytes),
                OutputStream::Pty => self.pty.push(&output.bytes),
            },
            Event::Gap(gap) => self.add_gap(gap),
            Event::Exited(exited) => self.exited = Some(exited),
            Event::Closed(closed) => {
                self.closed = true;
                self.cut = closed.cut;
            }
        }
        self.closed
    }

    /// What was collected; none if the process has not ended.
    pub(crate) fn finish(self) -> Option<CollectedOutput> {
        let exited = self.exited?;
        Some(CollectedOutput {
            status: exited.status,
            sandbox_denied: exited.sandbox_denied,
            stdout: self.stdout.finish(),
            stderr: self.stderr.finish(),
            pty: self.pty.finish(),
            missing: self.missing,
            still_open: !self.closed,
            cut: self.cut,
        })
    }

    fn add_gap(&mut self, gap: Gap) {
        let missing = self.missing.get_or_insert(Missing { gaps: 0, bytes: Some(0) });
        missing.gaps = missing.gaps.saturating_add(1);
        missing.bytes = missing.bytes.zip(gap.bytes).map(|(sum, more)| sum.saturating_add(more));
    }
}
