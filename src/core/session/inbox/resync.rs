//! What a broken connection means for the events of a process.

use super::{Fact, Inbox};
use crate::wire::process::ReadResult;

impl Inbox {
    /// The connection broke: a read has to tell what happens until there is another one.
    pub(crate) fn interrupt(&mut self) {
        self.hole_since = None;
        self.retry_at = None;
        self.reading = None;
        self.resync = !self.over;
    }

    /// Whether a read is wanted, or under way, that tells what happened in an outage, and nothing but the peer is waited for.
    pub(crate) fn is_resyncing(&self) -> bool {
        let wanted = self.resync && (self.discarding || self.has_caught_up());
        !self.over && (wanted || self.reading.is_some_and(|reading| reading.resync))
    }

    /// What became of a process that nobody follows.
    pub(super) fn take_state(&mut self, result: &ReadResult) {
        if self.check_number(result.next_seq).is_err() {
            self.over = true;
            return;
        }
        let last = result.next_seq.saturating_sub(1);
        self.hear(last);
        if result.exited && self.exit == Fact::Unknown {
            self.exit = Fact::Known { seq: last, rebuilt: true };
        }
        self.over |= result.closed || result.failure.is_some();
    }
}
