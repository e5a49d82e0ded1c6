//! When a stop becomes a kill: a pure state machine.
//!
//! ```text
//!             request(grace > 0)            deadline, or request(0)
//!  Running ───────────────────────► Asked ─────────────────────────► Killed
//!     │                               │ group ended                     ▲
//!     │ request(0)                    ▼                                 │
//!     └───────────────────────────► (Over) ─────────────────────────────┘ request(0)
//! ```
//!
//! Invariants:
//!
//! 1. The group is asked at most once, save after a withdrawal; later requests can only bring the kill forward.
//! 2. The kill follows the ask within the shortest grace time that was given, unless the group ended before.
//! 3. A timeout before the deadline changes nothing.
//! 4. `poll_timeout` is none unless a kill is due.
//! 5. No kill follows a withdrawal, unless somebody wants it anew.

use std::time::Duration;

use crate::time::Instant;

/// How far the stop of one process group has come.
#[derive(Debug, Default)]
pub(super) struct Stop {
    state: State,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Running,
    /// The group was asked to end. Without a deadline the grace time is beyond what a clock can express.
    Asked {
        kill_at: Option<Instant>,
    },
    Killed {
        at: Instant,
    },
    Over,
}

/// What the owner of the group has to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Action {
    /// Nothing.
    Nothing,
    /// Ask the group politely.
    Ask,
    /// Kill the group.
    Kill,
}

impl Stop {
    /// Somebody wants the group to end within `grace`.
    pub(super) fn request(&mut self, now: Instant, grace: Duration) -> Action {
        if grace.is_zero() {
            self.state = State::Killed { at: now };
            return Action::Kill;
        }
        let deadline = now.checked_add(grace);
        match &mut self.state {
            State::Running => {
                self.state = State::Asked { kill_at: deadline };
                Action::Ask
            }
            State::Asked { kill_at } => {
                *kill_at = match (*kill_at, deadline) {
                    (Some(old), Some(new)) => Some(old.min(new)),
                    (old, new) => old.or(new),
                };
                Action::Nothing
            }
            State::Killed { .. } | State::Over => Action::Nothing,
        }
    }

    /// Nobody wants the group to end any more; returns false if it was killed already.
    pub(super) fn withdraw(&mut self) -> bool {
        match self.state {
            State::Running | State::Over => true,
            State::Asked { .. } => {
                self.state = State::Running;
                true
            }
            State::Killed { .. } => false,
        }
    }

    /// When [`Stop::handle_timeout`] has to be called.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Asked { kill_at } => kill_at,
            State::Running | State::Killed { .. } | State::Over => None,
        }
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Action {
        match self.state {
            State::Asked { kill_at: Some(kill_at) } if kill_at <= now => {
                self.state = State::Killed { at: now };
                Action::Kill
            }
            _ => Action::Nothing,
        }
    }

    /// Nobody is left in the group.
    pub(super) fn group_ended(&mut self) {
        if matches!(self.state, State::Asked { .. }) {
            self.state = State::Over;
        }
    }

    /// Whether the group was asked and may still be in its grace time.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.state, State::Asked { .. })
    }

    /// When the group was killed, if it was.
    pub(super) fn killed_at(&self) -> Option<Instant> {
        match self.state {
            State::Killed { at } => Some(at),
            State::Running | State::Asked { .. } | State::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(2);

    #[test]
    fn a_stop_without_grace_kills_at_once() {
        let mut stop = Stop::default();
        assert_eq!(stop.request(Instant::now(), Duration::ZERO), Action::Kill);
        assert!(stop.killed_at().is_some());
        assert_eq!(stop.poll_timeout(), None);
    }

    #[test]
    fn a_group_is_asked_once_and_killed_at_the_deadline() {
        let start = Instant::now();
        let mut stop = Stop::default();
        assert_eq!(stop.request(start, GRACE), Action::Ask);
        assert_eq!(stop.request(start, GRACE * 2), Action::Nothing, "invariant 1");
        assert_eq!(stop.poll_timeout(), Some(start + GRACE));
        assert_eq!(stop.handle_timeout(start + GRACE - Duration::from_nanos(1)), Action::Nothing, "invariant 3");
        assert_eq!(stop.handle_timeout(start + GRACE), Action::Kill, "invariant 2");
        assert_eq!(stop.handle_timeout(start + GRACE), Action::Nothing);
        assert_eq!(stop.poll_timeout(), None, "invariant 4");
    }

    #[test]
    fn no_kill_follows_a_withdrawal() {
        let start = Instant::now();
        let mut stop = Stop::default();
        assert_eq!(stop.request(start, GRACE), Action::Ask);
        assert!(stop.withdraw());
        assert_eq!((stop.poll_timeout(), stop.handle_timeout(start + GRACE)), (None, Action::Nothing), "invariant 5");
        assert_eq!(stop.request(start + GRACE, GRACE), Action::Ask);
        assert_eq!(stop.handle_timeout(start + GRACE * 2), Action::Kill);
        assert!(!stop.withdraw(), "it is too late");
    }

    #[test]
    fn a_later_request_can_bring_the_kill_forward() {
        let start = Instant::now();
        let mut stop = Stop::default();
        assert_eq!(stop.request(start, GRACE), Action::Ask);
        let later = start + Duration::from_millis(100);
        assert_eq!(stop.request(later, Duration::from_millis(50)), Action::Nothing);
        assert_eq!(stop.poll_timeout(), Some(later + Duration::from_millis(50)));
        assert_eq!(stop.request(later, Duration::ZERO), Action::Kill);
    }

    #[test]
    fn an_endless_grace_has_no_deadline_until_a_shorter_one_comes() {
        let start = Instant::now();
        let mut stop = Stop::default();
        assert_eq!(stop.request(start, Duration::MAX), Action::Ask);
        assert_eq!(stop.poll_timeout(), None);
        assert_eq!(stop.request(start, GRACE), Action::Nothing);
        assert_eq!(stop.poll_timeout(), Some(start + GRACE));
    }

    #[test]
    fn a_group_that_ended_in_time_is_not_killed() {
        let start = Instant::now();
        let mut stop = Stop::default();
        assert_eq!(stop.request(start, GRACE), Action::Ask);
        stop.group_ended();
        assert_eq!(stop.handle_timeout(start + GRACE), Action::Nothing);
        assert_eq!(stop.killed_at(), None);
        assert_eq!(stop.request(start, Duration::ZERO), Action::Kill, "what joined the group since is still ended");
    }

    #[test]
    fn a_repeated_kill_kills_again() {
        let mut stop = Stop::default();
        assert_eq!(stop.request(Instant::now(), Duration::ZERO), Action::Kill);
        assert_eq!(stop.request(Instant::now(), Duration::ZERO), Action::Kill);
        assert_eq!(stop.request(Instant::now(), GRACE), Action::Nothing);
    }
}
