//! The connections of a session, one after another.
//!
//! Each attempt at one has a [`LinkId`]. What is said of an attempt that is not the present one is old, and changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::op::RouteKey;
use super::{Call, Ending, Session, SessionEvent, State};
use crate::core::recovery::{Next, Recovery};
use crate::error::{ConnectError, TransportError, explain};
use crate::time::{Instant, after};

/// Names one attempt at a connection; a later one has a greater number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LinkId(pub(crate) u64);

impl LinkId {
    /// The first one of a session.
    pub(crate) const FIRST: Self = Self(1);
}

/// How the connection to a place is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Nothing has needed it yet.
    Idle,
    /// A first connection, or one with a new session, is being made. Calls wait for it.
    Connecting,
    /// It stands. Both numbers count from 1 and only rise.
    Connected {
        /// How many connections have stood so far, this one included.
        generation: u64,
        /// How many sessions there have been, this one included. Processes belong to one session.
        session: u64,
    },
    /// It broke, and is being made again. Calls wait for it.
    Recovering {
        /// Why it broke.
        reason: Arc<str>,
        /// When it is given up.
        deadline: Instant,
    },
    /// It could not be made, or made again. Where it can be dialled, the next call may begin a new session.
    Failed {
        /// Why.
        reason: Arc<str>,
    },
    /// The peer does not know the session any more, and so none of its processes. The next call begins a new one.
    SessionLost {
        /// Why.
        reason: Arc<str>,
    },
    /// This end has closed it.
    Closed,
}

impl ConnectionState {
    /// Whether calls can be made at once.
    pub const fn is_connected(&self) -> bool {
        matches!(self, Self::Connected { .. })
    }

    /// Whether nothing changes any more by itself.
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::SessionLost { .. } | Self::Closed)
    }
}

/// A connection that stands again, and has not yet told all that happened meanwhile.
#[derive(Debug)]
pub(super) struct Settling {
    pub(super) recovery: Recovery,
    /// It has this long at least, however late the connection came.
    pub(super) grace: Instant,
    /// Processes whose reads are wanted or under way.
    pub(super) reads: BTreeSet<RouteKey>,
}

impl Settling {
    /// When the processes that were not told of are given up.
    pub(super) fn deadline(&self) -> Instant {
        self.grace.max(self.recovery.deadline())
    }
}

impl Session {
    /// Asks for a connection, not before `not_before`, if nobody has yet.
    pub(crate) fn connect(&mut self, now: Instant) {
        if !matches!(self.state, State::Idle) {
            return;
        }
        let until = self.not_before.map_or(now, |until| until.max(now));
        let recovery = Recovery::new(now, until, None, &self.config.recovery);
        self.state = State::Away(Box::new(recovery));
        self.publish(ConnectionState::Connecting);
    }

    /// An attempt has led to a connection, or to none. False if the connection is not wanted.
    pub(crate) fn handle_dialled(&mut self, now: Instant, link: LinkId, result: Result<(), ConnectError>) -> bool {
        if link != self.link || !matches!(&self.state, State::Away(recovery) if recovery.is_dialling()) {
            return false;
        }
        let State::Away(mut recovery) = std::mem::replace(&mut self.state, State::Idle) else { return false };
        match result {
            Ok(()) => {
                recovery.handle_connected();
                self.begin_handshake(now, Some(recovery));
                true
            }
            Err(error) if !self.recovers => {
                self.state = State::Away(recovery);
                self.end(explain(&error).into(), Ending::Lost, Some(error));
                false
            }
            Err(error) => {
                self.try_again(now, recovery, error);
                false
            }
        }
    }

    /// The host has another connection for the session. The present one is given up for it, or the attempt at one.
    pub(crate) fn replace(&mut self, now: Instant) {
        if self.is_on(self.link) {
            let reason: Arc<str> = "replaced by another connection".into();
            self.lose(now, reason, Ending::Normal, TransportError::Closed(None).into());
        }
    }

    /// The host has found that nothing comes back over connection number `generation`.
    pub(crate) fn suspect(&mut self, now: Instant, generation: u64) {
        if generation == self.generation && matches!(self.state, State::Open { .. }) {
            let error = ConnectError::TimedOut { what: "a call for a sign of life", limit: SIGN_OF_LIFE };
            self.lose(now, error.to_string().into(), Ending::Lost, error);
        }
    }

    /// Goes on after `error` ended an attempt, if there is time.
    pub(super) fn try_again(&mut self, now: Instant, mut recovery: Box<Recovery>, error: ConnectError) {
        let until = self.next_dial(now);
        let key = self.session_id.as_deref().unwrap_or(&self.write_prefix);
        let next = recovery.handle_failure(now, until, error, &self.config.recovery.retry, key);
        self.state = State::Away(recovery);
        self.proceed(next);
    }

    pub(super) fn handle_away_timeout(&mut self, now: Instant) {
        let State::Away(recovery) = &mut self.state else { return };
        let next = recovery.handle_timeout(now);
        if let Next::Dial = next {
            self.last_dial = Some(now);
        }
        self.proceed(next);
    }

    fn proceed(&mut self, next: Next) {
        match next {
            Next::Wait => {}
            Next::Dial => {
                self.link = LinkId(self.link.0 + 1);
                self.events.push_back(SessionEvent::Dial { link: self.link });
            }
            Next::GiveUp { reason, error } => self.end(reason, Ending::Lost, Some(error)),
        }
    }

    /// The first moment for another connection: a link that breaks again and again is not dialled without a pause.
    pub(super) fn next_dial(&self, now: Instant) -> Instant {
        self.last_dial.map_or(now, |last| after(last, self.config.recovery.retry.first).max(now))
    }

    pub(super) fn publish(&mut self, state: ConnectionState) {
        self.events.push_back(SessionEvent::State(state));
    }

    /// What is not told yet of an outage, if the connection stands again.
    pub(super) fn settling(&self) -> Option<&Settling> {
        match &self.state {
            State::Open { settling } => settling.as_deref(),
            State::Idle | State::Away(_) | State::Handshaking { .. } | State::Ended { .. } => None,
        }
    }

    /// How long the next answer may take while what was missed is told.
    pub(super) fn settling_patience(&self) -> Duration {
        SIGN_OF_LIFE.min(self.config.recovery.deadline)
    }

    /// The peer has told something of what was missed: as long as it does, it has time.
    pub(super) fn note_told(&mut self, now: Instant, key: RouteKey) {
        let until = after(now, self.settling_patience());
        let State::Open { settling: Some(settling) } = &mut self.state else { return };
        if !settling.reads.contains(&key) {
            return;
        }
        let before = settling.deadline();
        settling.recovery.extend(until);
        let deadline = settling.deadline();
        if deadline > before {
            let reason = settling.recovery.reason();
            self.publish(ConnectionState::Recovering { reason, deadline });
        }
    }

    /// The peer has not told in time what happened to some processes. They fail alone, and are ended there; everything else
    /// goes on.
    pub(super) fn settling_timed_out(&mut self, now: Instant) {
        let State::Open { settling: Some(settling) } = &mut self.state else { return };
        let late = std::mem::take(&mut settling.reads);
        let reads = self.calls.take(|what, _| matches!(what, Call::Read { route } if late.contains(route)));
        self.reads -= reads.len();
        for key in late {
            if self.routes.get(&key).is_some_and(|route| route.inbox.is_resyncing()) {
                self.with_inbox(now, key, |inbox, _| inbox.give_up_resync());
            }
        }
        self.note_settled();
    }

    /// The connection stands, and all that happened meanwhile was told.
    pub(super) fn note_settled(&mut self) {
        let State::Open { settling } = &mut self.state else { return };
        let Some(unsettled) = settling else { return };
        let routes = &self.routes;
        unsettled.reads.retain(|key| routes.get(key).is_some_and(|route| route.inbox.is_resyncing()));
        if unsettled.reads.is_empty() {
            *settling = None;
            let (generation, session) = (self.generation, self.epoch);
            self.publish(ConnectionState::Connected { generation, session });
        }
    }
}

/// How long the answer to a call may take that asks for a sign of life.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
