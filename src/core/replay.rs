//! What a server keeps of one process for its client: the only queue of the server's on the way of output.
//!
//! A [`ProcessLog`] numbers the events of a process, retains its output within a bound, and knows which of it the
//! attached client has been sent and which it has *seen*. From that follows whether the process may go on writing.
//!
//! ```text
//!   evicted        retained, seen      retained, sent, not seen     retained, not sent      not yet pulled
//!  ─────────────┬───────────────────┬─────────────────────────────┬─────────────────────┬───────────────────
//!               first               seen()                        sent                  next_seq
//! ```
//!
//! - *Sent* is what was handed to the connection, or was there before the client attached: a client that comes back
//!   catches up by reading, and is sent only what happens from then on.
//! - *Confirmed* is what the client has acknowledged ([`Reader::Credits`]) or, for a client that does not acknowledge
//!   ([`Reader::Plain`]), what was sent. To such a client, what came while it was away (the *backlog*) is confirmed
//!   by its reading it, or by [`ProcessLog::release_backlog`].
//! - *Seen* is what is both sent and confirmed. Only that may be evicted, so that an attached client never meets a hole in
//!   its notifications.
//!
//! Invariants (those of the house by their numbers):
//!
//! 1. Numbers rise from 1 without holes, save where the backend reported a gap; an attached client is sent each event
//!    once, in order.
//! 2. At most one exit and one close; nothing follows the close.
//! 5. What can be read does not depend on what was sent.
//! 6. Retained bytes stay within the bound, or one chunk if that is larger; nothing unseen is evicted, unless
//!    [`WhenFull::DropOldest`] says so, which is counted.
//! 7. An old acknowledgement, or one beyond the end, changes nothing that a right one would not.
//!
//! Numbers and offsets stay within `LIMIT`: what would lead beyond it ends the log in a failure.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::config::{OutputLimits, WhenFull};
use crate::event::{OutputStream, Totals};
use crate::status::ExitStatus;

/// The events of one process, its retained output, and how far its client has got.
#[derive(Debug)]
pub(crate) struct ProcessLog {
    limits: OutputLimits,
    reader: Reader,
    chunks: VecDeque<Chunk>,
    retained_bytes: usize,
    /// The number of the next event.
    next_seq: u64,
    exit: Option<Exit>,
    close: Option<Close>,
    failure: Option<String>,
    totals: Totals,
    /// Bytes that the backend itself reported as lost; `None` once it could not say how many.
    lost_by_backend: Option<u64>,
    /// How many bytes came in all, with those of which the backend said that they are lost. It only rises.
    position: u64,
    /// The last event that the client was sent, or that came before it attached.
    sent: u64,
    confirmed: u64,
    /// The last event of what came while a plain client was away and that it has not confirmed.
    backlog: Option<u64>,
    dropped: u64,
}

/// Who follows the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Nobody.
    Detached,
    /// A client that does not acknowledge: what was sent counts as seen.
    Plain,
    /// A client that acknowledges.
    Credits,
}

/// One piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) seq: u64,
    pub(crate) stream: OutputStream,
    pub(crate) bytes: Bytes,
    /// Bytes of output, on all streams, that came before this chunk.
    pub(crate) offset: u64,
}

/// The end of the process itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) seq: u64,
    pub(crate) status: ExitStatus,
    pub(crate) sandbox_denied: bool,
}

/// The end of its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Close {
    pub(crate) seq: u64,
    pub(crate) totals: Option<Totals>,
    pub(crate) cut: bool,
}

/// The next event that the client has to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent<'a> {
    Output(&'a Chunk),
    Exit(&'a Exit),
    Close(&'a Close),
}

impl Unsent<'_> {
    pub(crate) const fn seq(&self) -> u64 {
        match self {
            Self::Output(chunk) => chunk.seq,
            Self::Exit(exit) => exit.seq,
            Self::Close(close) => close.seq,
        }
    }
}

/// What a read returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) next_seq: u64,
    /// The process's own next number, if `next_seq` is not that although nothing follows the last chunk.
    pub(crate) process_next_seq: Option<u64>,
    /// Bytes of output that came before the first chunk of `chunks`; all of them, if there is none.
    pub(crate) offset: u64,
    /// Whether retained output follows the last chunk.
    pub(crate) more: bool,
}

impl ProcessLog {
    pub(crate) const fn new(limits: OutputLimits, reader: Reader) -> Self {
        Self {
            limits,
            reader,
            chunks: VecDeque::new(),
            retained_bytes: 0,
            next_seq: 1,
            exit: None,
            close: None,
            failure: None,
            totals: Totals { stdout: 0, stderr: 0, pty: 0 },
            lost_by_backend: Some(0),
            position: 0,
            sent: 0,
            confirmed: 0,
            backlog: None,
            dropped: 0,
        }
    }

    /// Appends output. What exceeds the size of a chunk is cut into several.
    pub(crate) fn push_output(&mut self, stream: OutputStream, mut bytes: Bytes) {
        if self.close.is_some() {
            return;
        }
        while !bytes.is_empty() {
            let chunk = bytes.split_to(bytes.len().min(self.limits.chunk_bytes.max(1)));
            if !self.can_count(1, chunk.len() as u64) {
                return self.fail(BEYOND_LIMIT.into());
            }
            let offset = self.position;
            self.position += chunk.len() as u64;
            self.totals.add(stream, chunk.len() as u64);
            self.retained_bytes += chunk.len();
            let seq = self.take_seq();
            self.chunks.push_back(Chunk { seq, stream, bytes: chunk, offset });
        }
        self.evict();
    }

    /// Notes that the backend lost `events` events with `bytes` bytes of output, if it knows.
    pub(crate) fn push_gap(&mut self, events: u64, bytes: Option<u64>) {
        if self.close.is_some() {
            return;
        }
        if !self.can_count(events, bytes.unwrap_or(0)) {
            return self.fail(BEYOND_LIMIT.into());
        }
        self.next_seq += events;
        self.position += bytes.unwrap_or(0);
        self.lost_by_backend = match (self.lost_by_backend, bytes) {
            (Some(lost), Some(more)) => Some(lost.saturating_add(more)),
            _ => None,
        };
    }

    /// Appends the exit, unless there was one.
    pub(crate) fn push_exit(&mut self, status: ExitStatus, sandbox_denied: bool) {
        if self.exit.is_none() && self.close.is_none() {
            let seq = self.take_seq();
            self.exit = Some(Exit { seq, status, sandbox_denied });
        }
    }

    /// Appends the close, unless there was one, and before it an exit of unknown status if none has come.
    pub(crate) fn push_close(&mut self, totals: Option<Totals>, cut: bool) {
        if self.close.is_some() {
            return;
        }
        self.push_exit(ExitStatus::unknown(), false);
        let seq = self.take_seq();
        let counted = (self.lost_by_backend == Some(0)).then_some(self.totals);
        self.close = Some(Close { seq, totals: totals.or(counted), cut });
    }

    /// Ends the log because the backend can no longer follow the process.
    pub(crate) fn fail(&mut self, reason: String) {
        if self.close.is_none() {
            self.failure = Some(reason);
            self.push_close(None, false);
        }
    }

    /// A client comes. It is sent what happens from now on.
    pub(crate) fn attach(&mut self, reader: Reader) {
        let seen = self.seen();
        self.reader = reader;
        self.confirmed = seen;
        self.sent = self.last_seq();
        self.backlog = None;
        if reader == Reader::Plain {
            if self.chunks.back().is_some_and(|chunk| chunk.seq > seen) {
                self.backlog = Some(self.sent);
            } else {
                self.confirmed = self.sent;
            }
        }
    }

    /// The client is gone.
    pub(crate) fn detach(&mut self) {
        self.confirmed = self.seen();
        self.reader = Reader::Detached;
        self.backlog = None;
        self.evict();
    }

    /// The client acknowledges everything up to `seq`.
    pub(crate) fn acknowledge(&mut self, seq: u64) {
        if self.reader == Reader::Credits {
            self.confirmed = self.confirmed.max(seq.min(self.last_seq()));
            self.evict();
        }
    }

    /// Takes what came while a plain client was away as seen, though it has not read it.
    pub(crate) fn release_backlog(&mut self) {
        if self.backlog.take().is_some() {
            self.confirmed = self.sent;
            self.evict();
        }
    }

    pub(crate) const fn has_backlog(&self) -> bool {
        self.backlog.is_some()
    }

    /// Whether the process may go on writing: there is room for one more chunk beside what has not been seen.
    pub(crate) fn wants_output(&self) -> bool {
        if self.close.is_some() {
            return false;
        }
        if self.reader == Reader::Detached && self.limits.when_full == WhenFull::DropOldest {
            return true;
        }
        let unseen = self.unseen_bytes();
        unseen == 0
            || (unseen.saturating_add(self.limits.chunk_bytes as u64) <= self.limits.retained_bytes as u64
                && self.unseen_chunks() < self.limits.retained_chunks)
    }

    /// Whether everything so far was seen.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen() >= self.last_seq()
    }

    /// Whether the time after which a closed process is forgotten runs: a plain client is there, which has that time
    /// whatever it does with it, or the close was acknowledged, or was seen by a client that is gone.
    pub(crate) fn may_be_forgotten(&self) -> bool {
        self.close.is_some_and(|close| match self.reader {
            Reader::Plain => true,
            // It may have learned of the close by reading, and need not have been sent it yet.
            Reader::Credits => self.confirmed >= close.seq,
            Reader::Detached => self.is_seen(),
        })
    }

    /// The next event that the attached client has to be sent.
    pub(crate) fn next_unsent(&self) -> Option<Unsent<'_>> {
        if self.reader == Reader::Detached || self.sent >= self.last_seq() {
            return None;
        }
        let chunk = self.chunks.get(self.first_after(self.sent));
        let exit = self.exit.as_ref().filter(|exit| exit.seq > self.sent);
        match (chunk, exit) {
            (Some(chunk), Some(exit)) if exit.seq < chunk.seq => Some(Unsent::Exit(exit)),
            (Some(chunk), _) => Some(Unsent::Output(chunk)),
            (None, Some(exit)) => Some(Unsent::Exit(exit)),
            (None, None) => self.close.as_ref().filter(|close| close.seq > self.sent).map(Unsent::Close),
        }
    }

    /// The event `seq`, got from [`Self::next_unsent`], was handed to the connection.
    pub(crate) fn mark_sent(&mut self, seq: u64) {
        debug_assert!(seq > self.sent && seq <= self.last_seq());
        self.sent = self.sent.max(seq.min(self.last_seq()));
        if self.reader == Reader::Plain && self.backlog.is_none() {
            self.confirmed = self.sent;
        }
        self.evict();
    }

    /// Whether a read after `after_seq` is answered at once.
    pub(crate) fn is_readable(&self, after_seq: u64) -> bool {
        self.close.is_some()
            || self.chunks.back().is_some_and(|chunk| chunk.seq > after_seq)
            || (self.exit.is_some() && after_seq < self.last_seq())
    }

    /// The retained output after `after_seq`: whole chunks of at most `max_bytes` bytes together, but at least one.
    pub(crate) fn read(&mut self, after_seq: u64, max_bytes: Option<u64>) -> Reading {
        // A peer need not take more in one message than this leaves room for.
        let bound = max_bytes.unwrap_or(MAX_READ_BYTES).min(MAX_READ_BYTES);
        let mut sum = 0_u64;
        let mut chunks = Vec::new();
        let mut rest = self.chunks.range(self.first_after(after_seq)..).peekable();
        while let Some(chunk) = rest.peek() {
            let with_it = sum.saturating_add(chunk.bytes.len() as u64);
            if !chunks.is_empty() && with_it > bound {
                break;
            }
            sum = with_it;
            chunks.extend(rest.next().cloned());
            if sum >= bound {
                break;
            }
        }
        let more = rest.peek().is_some();
        let complete = !more && max_bytes.is_none();
        let next_seq = match chunks.last() {
            Some(last) if !complete => last.seq + 1,
            _ => self.next_seq,
        };
        let offset = chunks.first().map_or(self.position, |chunk| chunk.offset);
        let upto = chunks.last().map_or(after_seq, |chunk| chunk.seq);
        self.confirm_backlog(upto);
        let process_next_seq = (!more && next_seq != self.next_seq).then_some(self.next_seq);
        Reading { chunks, next_seq, process_next_seq, offset, more }
    }

    pub(crate) const fn next_seq(&self) -> u64 {
        self.next_seq
    }

    pub(crate) const fn exit(&self) -> Option<&Exit> {
        self.exit.as_ref()
    }

    pub(crate) const fn close(&self) -> Option<&Close> {
        self.close.as_ref()
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Bytes written on each stream so far.
    pub(crate) const fn totals(&self) -> Totals {
        self.totals
    }

    #[cfg(test)]
    pub(crate) const fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// Bytes that were evicted though nobody had seen them.
    #[cfg(test)]
    pub(crate) const fn dropped_bytes(&self) -> u64 {
        self.dropped
    }

    /// Whether so many events and bytes more leave room for the exit and the close.
    const fn can_count(&self, events: u64, bytes: u64) -> bool {
        self.next_seq.saturating_add(events) <= LIMIT - 2 && self.position.saturating_add(bytes) <= LIMIT
    }

    /// There is one: see [`Self::can_count`].
    fn take_seq(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    const fn last_seq(&self) -> u64 {
        self.next_seq - 1
    }

    fn seen(&self) -> u64 {
        self.confirmed.min(self.sent)
    }

    /// The place in `chunks` of the first chunk after `seq`.
    fn first_after(&self, seq: u64) -> usize {
        // The usual case, the end of the log, needs no search.
        if self.chunks.back().is_none_or(|last| last.seq <= seq) {
            return self.chunks.len();
        }
        self.chunks.partition_point(|chunk| chunk.seq <= seq)
    }

    fn unseen_chunks(&self) -> usize {
        self.chunks.len() - self.first_after(self.seen())
    }

    fn unseen_bytes(&self) -> u64 {
        self.chunks.get(self.first_after(self.seen())).map_or(0, |first| self.position.saturating_sub(first.offset))
    }

    fn confirm_backlog(&mut self, upto: u64) {
        let Some(backlog) = self.backlog else { return };
        self.confirmed = self.confirmed.max(upto.min(backlog));
        if self.confirmed >= backlog {
            self.release_backlog();
        } else {
            self.evict();
        }
    }

    fn evict(&mut self) {
        let seen = self.seen();
        let may_drop = self.reader == Reader::Detached && self.limits.when_full == WhenFull::DropOldest;
        while self.retained_bytes > self.limits.retained_bytes || self.chunks.len() > self.limits.retained_chunks {
            let Some(oldest) = self.chunks.front() else { break };
            let unseen = oldest.seq > seen;
            if unseen && !may_drop {
                break;
            }
            let bytes = oldest.bytes.len();
            if unseen {
                self.dropped += bytes as u64;
            }
            self.retained_bytes -= bytes;
            self.chunks.pop_front();
        }
    }
}

/// The largest number and the largest offset, as many peers count them in signed numbers.
const LIMIT: u64 = i64::MAX as u64;
const BEYOND_LIMIT: &str = "the process has more events or bytes than can be counted";

/// One read returns no more than this, so that its answer fits into a message (64 MiB) after base64.
const MAX_READ_BYTES: u64 = 32 << 20;

#[cfg(test)]
mod tests;
