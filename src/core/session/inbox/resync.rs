//! What a broken connection means for the events of a process.

use super::{Fact, Inbox, ReadSpec, Reading};
use crate::error::WaitError;
use crate::wire::process::ReadResult;

impl Inbox {
    /// The connection broke: a read has to tell what happens until there is another one.
    pub(crate) fn interrupt(&mut self) {
        self.hole_since = None;
        self.retry_at = None;
        self.careful |= matches!(self.reading, Some(Reading { spec: ReadSpec::CatchUp { .. }, .. }));
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
            // Nothing that it says can be relied on. The process may run.
            return;
        }
        let last = result.next_seq.saturating_sub(1);
        self.hear(last);
        if result.exited && self.exit == Fact::Unknown {
            self.exit = Fact::Known { seq: last, rebuilt: true };
        }
        if result.closed || result.failure.is_some() {
            self.end();
        }
    }

    /// The peer has had all the time there was to tell what happened. Nobody can follow the process any more.
    pub(crate) fn give_up_resync(&mut self) -> Result<(), WaitError> {
        (self.resync, self.reading, self.retry_at) = (false, None, None);
        if self.over || self.discarding {
            return Ok(());
        }
        Err(self.violation("no word, for too long after an outage,"))
    }
}
