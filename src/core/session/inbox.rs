//! The events of one process, from what comes over the wire to what its reader gets.
//!
//! ```text
//!                       ┌────────────── live: notifications, put in order
//!                       │  reader full: the event is let go ▼        ▲ read covers what was let go
//!                       └────────────── behind: waits for the reader, then reads retained output
//!
//!  notifications ─▶ order ─▶ reader (at most the window is unread)
//!  reads         ─▶   │
//!                     └ what neither brings ─▶ Gap
//! ```
//!
//! Exit and close are never let go: they are two small facts. What is lost for ever stands as a gap in its place, and
//! with what a read says of the present, missing facts are rebuilt.
//!
//! When the connection breaks, a read over the next one tells what has happened meanwhile. What that read cannot bring any
//! more was lost in the outage: it is a gap, and the end of the process's events. What this end had let go before is only a
//! gap.
//!
//! Invariants:
//! 1. The reader gets strictly rising numbers; what is missing is in a gap.
//! 2. One exit, one close, the close last. A peer that says otherwise ends the process's events in an error.
//! 3. Unread output stays below two windows and the reorder window: one of live events, one that was read, which is asked for
//!    only when three quarters of the window are free, and what was held back meanwhile.
//! 4. Held-back events stay below the reorder window.
//! 5. An old duplicate changes nothing, whether it comes by notification or by read.

use std::time::Duration;

use super::op::Consumption;
use crate::config::ClientConfig;
use crate::core::reorder::{Reorder, Violation};
use crate::error::{PeerMisbehaved, WaitError};
use crate::event::{Closed, Event, Exited, Gap, Output, Totals};
use crate::request::ProcessId;
use crate::status::{ExitStatus, LimitExceeded};
use crate::time::Instant;

mod catch_up;
mod reads;
mod resync;

use self::reads::{ReadSpec, Reading};

/// The state of one process's events.
#[derive(Debug)]
pub(crate) struct Inbox {
    process_id: ProcessId,
    order: Reorder<Item>,
    window_bytes: u64,
    window_events: u64,
    delivered_bytes: u64,
    delivered_events: u64,
    consumed: Consumption,
    /// How many bytes of output come before the next event, if known.
    position: Option<u64>,
    /// The highest number of which we know that there is an event.
    heard: u64,
    /// The highest number that we let go. From the next event to it, only a read can help.
    lost_to: u64,
    exit: Fact,
    close: Fact,
    exit_published: bool,
    /// Nothing follows: closed, or failed.
    over: bool,
    discarding: bool,
    /// Followed from some event on, not from its start.
    attached: bool,
    /// Attached to, and nothing is known until a read has told all.
    unread: bool,
    hole_since: Option<Instant>,
    /// The peer refused a read, which is tried again then; and how many it has refused in a row.
    retry_at: Option<Instant>,
    read_failures: u32,
    reading: Option<Reading>,
    /// The connection broke, and no read has yet told what happened meanwhile.
    resync: bool,
    /// A link has broken under a read: what is asked for next must fit into less of one.
    careful: bool,
    limit: Option<LimitExceeded>,
}

#[derive(Debug)]
enum Item {
    Output(Output),
    /// A number that stands for no bytes at all.
    Nothing,
    Exited(ExitFact),
    Closed(Closed),
}

/// What is known of the exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExitFact {
    pub(crate) seq: u64,
    pub(crate) status: ExitStatus,
    /// Older peers do not say.
    pub(crate) sandbox_denied: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fact {
    Unknown,
    /// Rebuilt facts have a number by deduction.
    Known {
        seq: u64,
        rebuilt: bool,
    },
}

impl Inbox {
    /// The events of a process that is about to be started.
    pub(crate) fn new(process_id: ProcessId, config: &ClientConfig) -> Self {
        Self {
            process_id,
            order: Reorder::new(1, config.reorder_events, config.reorder_bytes),
            window_bytes: config.output.retained_bytes as u64,
            window_events: config.output.retained_chunks as u64,
            delivered_bytes: 0,
            delivered_events: 0,
            consumed: Consumption::default(),
            position: Some(0),
            heard: 0,
            lost_to: 0,
            exit: Fact::Unknown,
            close: Fact::Unknown,
            exit_published: false,
            over: false,
            discarding: false,
            attached: false,
            unread: false,
            hole_since: None,
            retry_at: None,
            read_failures: 0,
            reading: None,
            resync: false,
            careful: false,
            limit: None,
        }
    }

    /// The events after number `after_seq` of a process that exists.
    pub(crate) fn attached(process_id: ProcessId, after_seq: u64, config: &ClientConfig) -> Self {
        let mut inbox = Self::new(process_id, config);
        inbox.order = Reorder::new(after_seq.saturating_add(1), config.reorder_events, config.reorder_bytes);
        inbox.position = (after_seq == 0).then_some(0);
        inbox.consumed.seq = after_seq;
        inbox.attached = true;
        inbox.unread = true;
        inbox
    }

    /// Whether nothing follows any more.
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// Whether it is followed from some event on, and not from its start.
    pub(crate) const fn is_attached(&self) -> bool {
        self.attached
    }

    /// Whether the exit is known, published or not.
    pub(crate) const fn has_exited(&self) -> bool {
        !matches!(self.exit, Fact::Unknown)
    }

    /// Bytes of output that came, as far as they were published; of a process that is discarded, all that came.
    pub(crate) const fn output_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// The number up to which everything was consumed.
    pub(crate) fn consumed_seq(&self) -> u64 {
        if self.discarding { self.last_seq() } else { self.consumed.seq }
    }

    /// The highest number of which we know that there is an event.
    pub(crate) fn last_seq(&self) -> u64 {
        self.heard.max(self.consumed.seq)
    }

    /// Whether the reader has all that it may have unread, and nothing was let go yet.
    pub(crate) const fn is_full(&self) -> bool {
        !self.has_room() && !self.is_behind() && !self.discarding && !self.over
    }

    /// Whether nobody reads.
    pub(crate) const fn is_discarding(&self) -> bool {
        self.discarding
    }

    /// What the reader has taken in all, in bytes and events.
    pub(crate) const fn consumed(&self) -> Consumption {
        self.consumed
    }

    /// This end ends the process for this limit; the status is to say so, if the exit has not come yet.
    pub(crate) const fn set_limit(&mut self, limit: LimitExceeded) {
        if matches!(self.exit, Fact::Unknown) && self.limit.is_none() {
            self.limit = Some(limit);
        }
    }

    /// Nobody reads any more: everything counts as consumed.
    pub(crate) fn discard(&mut self) {
        self.discarding = true;
        self.order.clear();
        self.hole_since = None;
        self.retry_at = None;
        // Whatever was held is given up with the close among it.
        if matches!(self.close, Fact::Known { .. }) {
            self.end();
        }
    }

    /// Output came by notification.
    pub(crate) fn output(&mut self, now: Instant, output: Output, out: &mut Vec<Event>) -> Result<(), WaitError> {
        let (seq, bytes) = (output.seq, output.bytes.len());
        if self.over {
            return Ok(());
        }
        self.check_number(seq)?;
        self.check_before_close(seq)?;
        self.hear(seq);
        if self.discarding {
            self.delivered_bytes = self.delivered_bytes.saturating_add(bytes as u64);
            return Ok(());
        }
        let closes_gap = seq == self.order.next();
        if (self.is_behind() && self.reading.is_none()) || (closes_gap && !self.has_room()) {
            self.let_go(seq);
            return Ok(());
        }
        let item = if bytes == 0 { Item::Nothing } else { Item::Output(output) };
        match self.order.insert(seq, bytes, item) {
            Ok(_) => self.publish(now, out),
            // Not the peer's fault: what is held waits for the reader, or for a read of ours.
            Err(Violation::Full)
                if self.unread || self.resync || self.reading.is_some() || self.order.peek_next().is_some() =>
            {
                self.let_go(seq);
                Ok(())
            }
            Err(Violation::Full | Violation::TooLarge | Violation::LastNumber) => Err(self.window_exceeded()),
        }
    }

    /// The exit came by notification.
    pub(crate) fn exited(&mut self, now: Instant, fact: ExitFact, out: &mut Vec<Event>) -> Result<(), WaitError> {
        if self.over {
            return Ok(());
        }
        self.check_number(fact.seq)?;
        match self.exit {
            Fact::Known { seq, .. } if seq == fact.seq => return Ok(()),
            // The deduction was wrong: the number of the exit stood for something that is lost.
            Fact::Known { rebuilt: true, .. } => return self.nothing_at(now, fact.seq, out),
            Fact::Known { rebuilt: false, .. } => return Err(self.violation("a second exit event")),
            Fact::Unknown => {}
        }
        self.check_before_close(fact.seq)?;
        self.hear(fact.seq);
        if self.discarding {
            self.exit = Fact::Known { seq: fact.seq, rebuilt: false };
            return Ok(());
        }
        self.insert_exit(fact, false)?;
        self.publish(now, out)
    }

    /// The close came by notification.
    pub(crate) fn closed(&mut self, now: Instant, closed: Closed, out: &mut Vec<Event>) -> Result<(), WaitError> {
        if self.over {
            return Ok(());
        }
        self.check_number(closed.seq)?;
        self.check_totals(closed.totals)?;
        match self.close {
            Fact::Known { seq, .. } if seq == closed.seq => return Ok(()),
            Fact::Known { .. } => return Err(self.violation("a second close event")),
            Fact::Unknown => {}
        }
        if self.heard > closed.seq {
            return Err(self.violation("an event after the close"));
        }
        self.hear(closed.seq);
        if self.discarding {
            self.close = Fact::Known { seq: closed.seq, rebuilt: false };
            self.end();
            return Ok(());
        }
        self.insert_close(closed, false)?;
        self.publish(now, out)
    }

    /// The reader has taken more.
    pub(crate) fn handle_consumed(
        &mut self,
        now: Instant,
        consumed: Consumption,
        out: &mut Vec<Event>,
    ) -> Result<(), WaitError> {
        // Notices may overtake each other; the counters only rise.
        self.consumed.seq = self.consumed.seq.max(consumed.seq);
        self.consumed.bytes = self.consumed.bytes.max(consumed.bytes);
        self.consumed.events = self.consumed.events.max(consumed.events);
        if self.over { Ok(()) } else { self.publish(now, out) }
    }

    /// When a hole has lasted so long that a read must close it, or a read that the peer refused is tried again. There is a
    /// time only while [`Self::wants_read`] has something to say when it has come.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.over || self.reading.is_some() {
            return None;
        }
        if self.discarding {
            return self.retry_at.filter(|_| self.resync);
        }
        let hole = self.hole_since.map(|since| since + HOLE_PATIENCE);
        self.retry_at.or(hole).filter(|_| self.has_caught_up())
    }

    /// The events have ended in an error.
    pub(crate) fn fail(&mut self) {
        self.end();
    }

    /// Nothing follows, and nothing is waited for any more.
    fn end(&mut self) {
        self.over = true;
        self.hole_since = None;
        self.retry_at = None;
        self.resync = false;
        self.order.clear();
    }

    /// Hands out what is in order, as far as the reader has room.
    fn publish(&mut self, now: Instant, out: &mut Vec<Event>) -> Result<(), WaitError> {
        while self.has_room() && self.publish_one(out)? {}
        // The end needs no room, and the reader should know of it.
        while matches!(self.order.peek_next(), Some(Item::Exited(_) | Item::Closed(_))) && self.publish_one(out)? {}
        let waits = !self.over && self.order.has_hole() && !self.is_behind() && self.reading.is_none();
        self.hole_since = if waits { Some(self.hole_since.unwrap_or(now)) } else { None };
        Ok(())
    }

    /// Hands out the next event; false if it is not there, or still lacks something.
    fn publish_one(&mut self, out: &mut Vec<Event>) -> Result<bool, WaitError> {
        match self.order.peek_next() {
            None | Some(Item::Exited(ExitFact { sandbox_denied: None, .. })) => return Ok(false),
            Some(Item::Closed(_)) if !self.exit_published => {
                return Err(self.violation("a close event without an exit event"));
            }
            Some(_) => {}
        }
        let seq = self.order.next();
        let Some(item) = self.order.pop_next() else { return Ok(false) };
        self.delivered_events += 1;
        out.push(match item {
            Item::Output(output) => {
                let bytes = output.bytes.len() as u64;
                self.delivered_bytes = self.delivered_bytes.saturating_add(bytes);
                self.position = self.position.map(|position| position.saturating_add(bytes));
                Event::Output(output)
            }
            Item::Nothing => Event::Gap(Gap { first_seq: seq, last_seq: seq, bytes: Some(0) }),
            Item::Exited(fact) => {
                self.exit_published = true;
                let limit = fact.status.limit_exceeded().or(self.limit);
                Event::Exited(Exited {
                    seq: fact.seq,
                    status: fact.status.with_limit(limit),
                    sandbox_denied: fact.sandbox_denied.unwrap_or(false),
                })
            }
            Item::Closed(closed) => {
                self.end();
                Event::Closed(closed)
            }
        });
        Ok(!self.over)
    }

    fn insert_exit(&mut self, fact: ExitFact, rebuilt: bool) -> Result<(), WaitError> {
        if fact.seq < self.order.next() || self.order.holds(fact.seq) {
            return Err(self.violation("an exit event whose number is taken"));
        }
        self.exit = Fact::Known { seq: fact.seq, rebuilt };
        let inserted = self.order.insert_regardless(fact.seq, 0, Item::Exited(fact));
        inserted.map(drop).map_err(|_| self.window_exceeded())
    }

    fn insert_close(&mut self, closed: Closed, rebuilt: bool) -> Result<(), WaitError> {
        if closed.seq < self.order.next() || self.order.last_held().is_some_and(|last| last >= closed.seq) {
            return Err(self.violation("a close event before other events"));
        }
        self.close = Fact::Known { seq: closed.seq, rebuilt };
        let inserted = self.order.insert_regardless(closed.seq, 0, Item::Closed(closed));
        inserted.map(drop).map_err(|_| self.window_exceeded())
    }

    fn nothing_at(&mut self, now: Instant, seq: u64, out: &mut Vec<Event>) -> Result<(), WaitError> {
        self.check_before_close(seq)?;
        self.hear(seq);
        if self.discarding {
            return Ok(());
        }
        match self.order.insert(seq, 0, Item::Nothing) {
            Ok(_) => self.publish(now, out),
            Err(_) => Err(self.window_exceeded()),
        }
    }

    /// No honest peer counts so far, and what is beyond cannot be counted on with.
    fn check_number(&self, number: u64) -> Result<(), WaitError> {
        if number > MAX_NUMBER { Err(self.violation("a number beyond all bounds")) } else { Ok(()) }
    }

    fn check_totals(&self, totals: Option<Totals>) -> Result<(), WaitError> {
        totals.map_or(Ok(()), |totals| self.check_number(totals.sum()))
    }

    fn check_before_close(&self, seq: u64) -> Result<(), WaitError> {
        match self.close {
            Fact::Known { seq: last, .. } if seq >= last => Err(self.violation("an event after the close")),
            Fact::Known { .. } | Fact::Unknown => Ok(()),
        }
    }

    fn hear(&mut self, seq: u64) {
        self.heard = self.heard.max(seq);
    }

    fn let_go(&mut self, seq: u64) {
        self.lost_to = self.lost_to.max(seq);
        self.hole_since = None;
    }

    /// Whether the next event is one that we let go, or comes before one.
    const fn is_behind(&self) -> bool {
        self.lost_to >= self.order.next()
    }

    const fn unread_bytes(&self) -> u64 {
        self.delivered_bytes.saturating_sub(self.consumed.bytes)
    }

    const fn unread_events(&self) -> u64 {
        self.delivered_events.saturating_sub(self.consumed.events)
    }

    const fn has_room(&self) -> bool {
        self.unread_bytes() < self.window_bytes && self.unread_events() < self.window_events
    }

    const fn has_caught_up(&self) -> bool {
        self.unread_bytes() <= self.window_bytes / 4 && self.unread_events() <= self.window_events / 4
    }

    fn window_exceeded(&self) -> WaitError {
        PeerMisbehaved::ReorderWindow { process_id: self.process_id.clone() }.into()
    }

    fn violation(&self, what: &str) -> WaitError {
        PeerMisbehaved::Protocol(format!("{what} of process {}", self.process_id)).into()
    }
}

/// The largest number and offset, as many peers count them in signed numbers.
const MAX_NUMBER: u64 = i64::MAX as u64;

/// How long a missing event may be late. The reference sends a few in a thousand out of order, and those follow at once.
const HOLE_PATIENCE: Duration = Duration::from_secs(1);

/// What is asked for at a time over links that break before they have carried a whole answer.
const CAREFUL_BYTES: u64 = 128 << 10;

/// A peer that refuses a read may have too much to do: so often and with this pause it is asked again.
const READ_RETRIES: u32 = 3;
const RETRY_DELAY: Duration = Duration::from_secs(1);

#[cfg(test)]
pub(super) mod model;
#[cfg(test)]
mod tests;
