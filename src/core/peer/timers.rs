//! What a session has to do later, in order.

use std::collections::BTreeSet;

use super::process::ProcessKey;
use crate::time::Instant;

/// Something due at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A waiting read is to be answered with what there is.
    Read { process: ProcessKey, read: u64 },
    /// A closed process is to be forgotten.
    Retention { process: ProcessKey },
    /// What a plain client has not read since it came back is to be taken as seen.
    Backlog { connection: u64 },
}

/// Timers, each at most once at one time.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    pub(super) fn insert(&mut self, at: Instant, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(super) fn remove(&mut self, at: Option<Instant>, timer: Timer) {
        if let Some(at) = at {
            self.0.remove(&(at, timer));
        }
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        if self.first()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
