//! How long what there is of a closed process is kept.
//!
//! A closed process stays readable, and its id taken, for [`ServerConfig::closed_retention`]. That time runs
//!
//! - while a plain client is attached, as it does for the reference;
//! - else only once everything was seen, the close included. So between two peers of this library nothing is lost while
//!   the session lives, however long the client was cut off, and a plain client that comes back to what it has not seen
//!   has the whole time.
//!
//! What is kept so is bounded by [`ServerConfig::max_closed_processes`]: beyond it, the one that closed first among those
//! that were seen goes early. Where all are unseen, the start of another process is refused instead.

use std::collections::BTreeMap;

use super::Peer;
use super::action::Action;
use super::process::ProcessKey;
use super::timers::Timer;
#[cfg(doc)]
use crate::config::ServerConfig;
use crate::time::{Instant, after};

/// The closed processes of a session, in the order in which they closed.
#[derive(Debug, Default)]
pub(super) struct ClosedOrder {
    keys: BTreeMap<u64, ProcessKey>,
    next: u64,
}

impl ClosedOrder {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Appends a process, and returns its place.
    fn push(&mut self, key: ProcessKey) -> u64 {
        let place = self.next;
        self.next += 1;
        self.keys.insert(place, key);
        place
    }
}

impl Peer {
    /// Keeps a process that has just closed.
    pub(super) fn retain(&mut self, now: Instant, key: ProcessKey) {
        let Some(process) = self.processes.get_mut(key) else { return };
        process.closed_place = Some(self.closed.push(key));
        self.update_retention(now, key);
        self.trim_closed();
    }

    /// Lets the time of a closed process run, or not, as is right now.
    pub(super) fn update_retention(&mut self, now: Instant, key: ProcessKey) {
        let Some(process) = self.processes.get_mut(key) else { return };
        match (process.log.may_be_forgotten(), process.forget_at) {
            (true, None) => {
                let at = after(now, self.config.closed_retention);
                process.forget_at = Some(at);
                self.timers.insert(at, Timer::Retention { process: key });
            }
            (false, Some(at)) => {
                process.forget_at = None;
                self.timers.remove(Some(at), Timer::Retention { process: key });
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Whether one more closed process could be kept, if need be in the place of another one.
    pub(super) fn has_room_for_closed(&mut self) -> bool {
        self.trim_closed();
        self.closed.len() < self.config.max_closed_processes || self.oldest_seen().is_some()
    }

    /// Forgets closed processes beyond the bound, as far as they were seen.
    fn trim_closed(&mut self) {
        while self.closed.len() > self.config.max_closed_processes
            && let Some(key) = self.oldest_seen()
        {
            self.forget(key);
        }
    }

    /// The process that closed first among those of which everything was seen.
    fn oldest_seen(&self) -> Option<ProcessKey> {
        let seen = |key: &ProcessKey| self.processes.get(*key).is_some_and(|process| process.log.is_seen());
        self.closed.keys.values().copied().find(seen)
    }

    pub(super) fn forget(&mut self, key: ProcessKey) {
        let Some(process) = self.processes.remove(key) else { return };
        if let Some(place) = process.closed_place {
            self.closed.keys.remove(&place);
        }
        self.timers.remove(process.forget_at, Timer::Retention { process: key });
        self.stdin_excess -= process.stdin.excess_bytes();
        self.actions.push_back(Action::Forget { process: key });
    }
}
