//! Reads of retained output: when one is wanted, and what its answer or its refusal means.

use super::{CAREFUL_BYTES, ExitFact, Inbox, Item, READ_RETRIES, RETRY_DELAY};
use crate::error::WaitError;
use crate::event::Event;
use crate::time::Instant;
use crate::wire::process::ReadResult;

/// A read that the inbox wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadSpec {
    /// Retained output, and the state of the process.
    CatchUp { after_seq: u64, max_bytes: Option<u64> },
    /// Only whether a sandbox denied something.
    Denial,
    /// Only the state of a process whose output nobody wants.
    State,
}

impl ReadSpec {
    pub(crate) const fn after_seq(self) -> u64 {
        match self {
            Self::CatchUp { after_seq, .. } => after_seq,
            // Beyond every event, so that no chunk is returned.
            Self::Denial | Self::State => i64::MAX as u64,
        }
    }

    pub(crate) const fn max_bytes(self) -> Option<u64> {
        match self {
            Self::CatchUp { max_bytes, .. } => max_bytes,
            Self::Denial | Self::State => Some(0),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) spec: ReadSpec,
    pub(super) lost_to: u64,
    /// It tells what happened in an outage.
    pub(super) resync: bool,
}

impl Inbox {
    /// The read that is needed now, if any and none is under way. A peer that `bounds_reads` says where it cuts its answers, so
    /// that each read can have a limit. Of one that does not, the only answer that is known to be whole is one without a limit;
    /// such a peer retains little.
    pub(crate) fn wants_read(&self, now: Instant, bounds_reads: bool) -> Option<ReadSpec> {
        if self.over || self.reading.is_some() {
            return None;
        }
        let retries_later = self.retry_at.is_some_and(|at| at > now);
        if self.discarding {
            return (self.resync && !retries_later).then_some(ReadSpec::State);
        }
        let after_seq = self.order.next().saturating_sub(1);
        let max_bytes = if self.careful { Some(CAREFUL_BYTES) } else { bounds_reads.then_some(self.window_bytes) };
        let everything = ReadSpec::CatchUp { after_seq, max_bytes };
        if self.resync && self.has_caught_up() && !retries_later {
            return Some(everything);
        }
        if matches!(self.order.peek_next(), Some(Item::Exited(ExitFact { sandbox_denied: None, .. }))) {
            return Some(ReadSpec::Denial);
        }
        if retries_later {
            return None;
        }
        if self.unread && self.has_caught_up() {
            return Some(everything);
        }
        let due = self.poll_timeout().is_some_and(|deadline| deadline <= now);
        if (self.is_behind() || due) && self.has_caught_up() {
            return Some(ReadSpec::CatchUp { after_seq, max_bytes: Some(self.window_bytes) });
        }
        None
    }

    /// The read was sent.
    pub(crate) fn handle_read_started(&mut self, spec: ReadSpec) {
        self.hole_since = None;
        self.retry_at = None;
        let resync = spec != ReadSpec::Denial && std::mem::take(&mut self.resync);
        self.reading = Some(Reading { spec, lost_to: self.lost_to, resync });
    }

    /// The read was answered.
    pub(crate) fn handle_read(
        &mut self,
        now: Instant,
        result: &ReadResult,
        out: &mut Vec<Event>,
    ) -> Result<(), WaitError> {
        let Some(reading) = self.reading.take() else { return Ok(()) };
        if self.over {
            return Ok(());
        }
        self.read_failures = 0;
        if self.discarding {
            if reading.resync {
                self.take_state(result);
            }
            return Ok(());
        }
        if let Some(reason) = &result.failure {
            self.check_number(result.next_seq)?;
            self.hear(result.next_seq.saturating_sub(1));
            return Err(WaitError::Failed { process_id: self.process_id.clone(), reason: reason.clone() });
        }
        match reading.spec {
            ReadSpec::Denial => self.handle_denial(now, result.sandbox_denied, out),
            // It was asked for nobody.
            ReadSpec::State => Ok(()),
            ReadSpec::CatchUp { after_seq, max_bytes } => {
                self.check_read(result)?;
                self.catch_up(after_seq, max_bytes, reading, result, out)?;
                if self.over { Ok(()) } else { self.publish(now, out) }
            }
        }
    }

    /// The read was answered with an error. A peer that cannot say whether a sandbox denied something saw no denial.
    pub(crate) fn handle_read_error(
        &mut self,
        now: Instant,
        error: WaitError,
        out: &mut Vec<Event>,
    ) -> Result<(), WaitError> {
        let Some(reading) = self.reading.take() else { return Ok(()) };
        if self.over {
            return Ok(());
        }
        let retries = matches!(error, WaitError::Remote(_)) && self.read_failures < READ_RETRIES;
        if self.discarding {
            if !reading.resync {
                return Ok(());
            }
            if matches!(error, WaitError::UnknownProcess(_)) {
                // It is gone, with its end.
                self.end();
            } else if retries {
                self.retry(now, reading);
            }
            // What a peer will not tell of a process that nobody follows is left open: it may run.
            return Ok(());
        }
        match reading.spec {
            ReadSpec::Denial => self.handle_denial(now, false, out),
            ReadSpec::CatchUp { .. } if retries => {
                self.retry(now, reading);
                Ok(())
            }
            ReadSpec::State => Ok(()),
            ReadSpec::CatchUp { .. } => Err(error),
        }
    }

    /// The read is made again, after a while.
    fn retry(&mut self, now: Instant, reading: Reading) {
        self.read_failures += 1;
        self.retry_at = Some(now + RETRY_DELAY);
        self.resync |= reading.resync;
    }

    fn handle_denial(&mut self, now: Instant, denied: bool, out: &mut Vec<Event>) -> Result<(), WaitError> {
        if let Some(Item::Exited(fact)) = self.order.peek_next_mut() {
            fact.sandbox_denied.get_or_insert(denied);
        }
        self.publish(now, out)
    }

    fn check_read(&self, result: &ReadResult) -> Result<(), WaitError> {
        self.check_number(result.next_seq)?;
        if let Some(last) = result.chunks.iter().map(|chunk| chunk.seq).max() {
            self.check_number(last)?;
        }
        let Some(extension) = &result.longarm else { return Ok(()) };
        self.check_number(extension.offset)?;
        self.check_number(extension.next_seq.unwrap_or(0))?;
        self.check_totals(Some(extension.total_bytes.into()))
    }
}
