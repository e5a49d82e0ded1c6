//! What a read of retained output tells, put together with what is known.

use super::{CAREFUL_BYTES, ExitFact, Fact, Inbox, Item, Reading};
use crate::error::{PeerMisbehaved, WaitError};
use crate::event::{Closed, Event, Gap, Output};
use crate::status::ExitStatus;
use crate::wire::extension::ReadExtension;
use crate::wire::method::{Method, Read};
use crate::wire::process::{ReadChunk, ReadResult};

impl Inbox {
    /// Takes in the answer to a read. After it, everything up to the read's horizon is handed out, as an event or a gap.
    ///
    /// A read that is complete (the peer says that nothing was cut off, or it had no limit, or returned nothing) knows the
    /// process's next number; else its horizon is its last chunk, and more must be read.
    pub(super) fn catch_up(
        &mut self,
        after_seq: u64,
        max_bytes: Option<u64>,
        reading: Reading,
        result: &ReadResult,
        out: &mut Vec<Event>,
    ) -> Result<(), WaitError> {
        // One that says so says where it was cut, and its next number where that is not the plain member's.
        let (cut, told) = match &result.longarm {
            Some(extension) => (extension.more, extension.next_seq),
            None => (max_bytes.is_some(), None),
        };
        let complete = !cut || result.chunks.is_empty();
        let last_chunk = self.check_chunks(after_seq, max_bytes, result)?;
        let next_seq = told.filter(|_| !cut).unwrap_or(result.next_seq);
        let horizon = if complete { next_seq.saturating_sub(1) } else { last_chunk };
        if last_chunk > horizon {
            return Err(bad_result("a chunk beyond the next number"));
        }
        if complete && horizon < reading.lost_to {
            return Err(bad_result("fewer events than were announced"));
        }
        self.hear(horizon);
        if complete {
            self.unread = false;
            self.careful = false;
            if result.closed && self.close == Fact::Unknown {
                self.rebuild_close(horizon, last_chunk, result)?;
            }
        } else {
            // Until it is, there is no telling what else happened meanwhile.
            self.resync |= reading.resync;
            // Of a peer that does not say, only an answer without a limit is whole: once little is left, that is asked for.
            self.careful &= result.longarm.is_some() || !is_small(result);
        }
        if result.exited && self.exit == Fact::Unknown {
            if let Some(seq) = self.place_of_exit(horizon, complete, result) {
                let status = status_of(result);
                self.insert_exit(ExitFact { seq, status, sandbox_denied: Some(result.sandbox_denied) }, true)?;
            } else if complete && self.attached {
                // It came before the events that were asked for.
                self.exit = Fact::Known { seq: 0, rebuilt: true };
                self.exit_published = true;
            }
        }
        let first_chunk = result.chunks.first().map_or_else(|| horizon.saturating_add(1), |chunk| chunk.seq);
        let offset = result.longarm.as_ref().map(|extension| extension.offset);
        self.take_chunks(&result.chunks)?;
        // Up to there, what is missing may be what this end let go.
        let let_go_to = reading.resync.then_some(reading.lost_to);
        self.publish_to(horizon, first_chunk, offset, let_go_to, result.sandbox_denied, out)
    }

    /// The highest number among the chunks, or `after_seq`.
    fn check_chunks(&self, after_seq: u64, max_bytes: Option<u64>, result: &ReadResult) -> Result<u64, WaitError> {
        if result.chunks.len() > MAX_CHUNKS {
            return Err(bad_result("too many chunks"));
        }
        let (mut last, mut bytes) = (after_seq, 0_u64);
        for chunk in &result.chunks {
            if chunk.seq <= last {
                return Err(bad_result("chunks out of order"));
            }
            last = chunk.seq;
            bytes = bytes.saturating_add(chunk.chunk.0.len() as u64);
        }
        // A single chunk comes whole whatever the limit.
        if max_bytes.is_some_and(|max| bytes > max) && result.chunks.len() > 1 {
            return Err(bad_result("more bytes than were asked for"));
        }
        if matches!(self.close, Fact::Known { seq, .. } if last >= seq) {
            return Err(bad_result("a chunk after the close event"));
        }
        Ok(last)
    }

    fn rebuild_close(&mut self, horizon: u64, last_chunk: u64, result: &ReadResult) -> Result<(), WaitError> {
        if self.attached && horizon < self.order.next() {
            let reason = format!("it has closed, and no event follows number {}", self.order.next() - 1);
            return Err(WaitError::Failed { process_id: self.process_id.clone(), reason });
        }
        if horizon < self.order.next() || horizon == last_chunk {
            return Err(bad_result("closed, and no number for it"));
        }
        let totals = result.longarm.as_ref().map(|extension| extension.total_bytes.into());
        let cut = result.longarm.as_ref().is_some_and(|extension| extension.cut);
        self.insert_close(Closed { seq: horizon, totals, cut }, true)
    }

    /// Which number the exit must have that was not announced, unless the peer says.
    ///
    /// What is evicted is the oldest output. So a hole behind a retained chunk can only be the exit. If there is none, the
    /// exit is in the leading hole, unless more is to be read.
    fn place_of_exit(&self, horizon: u64, complete: bool, result: &ReadResult) -> Option<u64> {
        let next = self.order.next();
        if let Some(seq) = result.longarm.as_ref().and_then(|extension| extension.exit_seq) {
            return (next <= seq && seq <= horizon).then_some(seq);
        }
        let mut expected = next;
        let mut leading = None;
        let mut seen_chunk = false;
        let mut chunks = result.chunks.iter().map(|chunk| chunk.seq).filter(|seq| *seq >= next).peekable();
        while expected <= horizon {
            if self.order.holds(expected) {
                chunks.next_if(|seq| *seq == expected);
                expected += 1;
                continue;
            }
            if chunks.next_if(|seq| *seq == expected).is_some() {
                seen_chunk = true;
                expected += 1;
                continue;
            }
            let known = chunks.peek().copied().into_iter().chain(self.order.first_held_from(expected)).min();
            let end = known.map_or(horizon, |known| (known - 1).min(horizon));
            if seen_chunk {
                return Some(end);
            }
            leading.get_or_insert((expected, end));
            expected = end + 1;
        }
        let (start, end) = leading?;
        let evicted = match (&result.longarm, self.position) {
            (Some(ReadExtension { offset, .. }), Some(position)) => *offset > position,
            _ => false,
        };
        if start == end { (!evicted).then_some(end) } else { complete.then_some(end) }
    }

    fn take_chunks(&mut self, chunks: &[ReadChunk]) -> Result<(), WaitError> {
        for chunk in chunks {
            let bytes = chunk.chunk.0.clone();
            let size = bytes.len();
            let item = if bytes.is_empty() {
                Item::Nothing
            } else {
                Item::Output(Output { seq: chunk.seq, stream: chunk.stream, bytes })
            };
            if self.order.insert_regardless(chunk.seq, size, item).is_err() {
                return Err(self.window_exceeded());
            }
        }
        Ok(())
    }

    /// Hands out everything up to `horizon`. What is in nobody's hands is a gap, and behind `let_go_to`, if that is set, the
    /// end.
    fn publish_to(
        &mut self,
        horizon: u64,
        first_chunk: u64,
        offset: Option<u64>,
        let_go_to: Option<u64>,
        sandbox_denied: bool,
        out: &mut Vec<Event>,
    ) -> Result<(), WaitError> {
        while self.order.next() <= horizon {
            if self.order.next() == first_chunk && self.position.is_none() {
                self.position = offset;
            }
            if let Some(Item::Exited(fact)) = self.order.peek_next_mut() {
                fact.sandbox_denied.get_or_insert(sandbox_denied);
            }
            if self.publish_one(out)? {
                continue;
            }
            if self.over {
                break;
            }
            let first_seq = self.order.next();
            let last_seq = self.order.first_held().map_or(horizon, |held| held.saturating_sub(1).min(horizon));
            let bytes = offset.and_then(|offset| self.bytes_of_hole(last_seq, first_chunk, offset));
            self.position = self.position.zip(bytes).map(|(position, bytes)| position.saturating_add(bytes));
            self.order.skip_to(last_seq.saturating_add(1));
            self.delivered_events += 1;
            out.push(Event::Gap(Gap { first_seq, last_seq, bytes }));
            if let_go_to.is_some_and(|let_go_to| last_seq > let_go_to) && bytes != Some(0) {
                return Err(WaitError::OutputLost { process_id: self.process_id.clone(), bytes });
            }
        }
        Ok(())
    }
}

impl Inbox {
    /// How many bytes are lost from the next event to `last_seq`: what precedes the first chunk and is in nobody's hands,
    /// if there is only one such hole.
    fn bytes_of_hole(&self, last_seq: u64, first_chunk: u64, offset: u64) -> Option<u64> {
        let behind = last_seq.saturating_add(1);
        let numbers = first_chunk.checked_sub(behind)?;
        let (held, held_bytes) = self.order.held_between(behind..first_chunk);
        let lost = offset.checked_sub(self.position?)?.checked_sub(held_bytes)?;
        (held == numbers).then_some(lost)
    }
}

fn bad_result(reason: &str) -> WaitError {
    PeerMisbehaved::BadResult { method: Read::NAME.into(), reason: reason.into() }.into()
}

/// How the process ended, by what the read says of the present.
fn status_of(result: &ReadResult) -> ExitStatus {
    match (result.exit_code, &result.longarm) {
        (Some(code), Some(extension)) => extension.status(code),
        (Some(code), None) => ExitStatus::from_wire(code),
        (None, _) => ExitStatus::unknown(),
    }
}

/// Whether one chunk more would have fitted into a careful read.
fn is_small(result: &ReadResult) -> bool {
    let sizes = || result.chunks.iter().map(|chunk| chunk.chunk.0.len() as u64);
    sizes().sum::<u64>().saturating_add(sizes().max().unwrap_or(0)) <= CAREFUL_BYTES
}

/// More than any peer retains for one process.
const MAX_CHUNKS: usize = 1 << 16;
