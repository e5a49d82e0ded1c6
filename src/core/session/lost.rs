//! What a broken connection means for calls and processes, when there is to be another one.
//!
//! | what | becomes |
//! | --- | --- |
//! | a call that was sent | `Disconnected`, sent: unknown; never repeated |
//! | a call that was not sent | waits for the next connection |
//! | a piece of a write, the closing of input | goes out again, under the same id |
//! | a start that was sent | `Disconnected`; its process, if there is one, is ended after the recovery, and its id is taken until then |
//! | a call that needs this very connection, such as one about an open file | `Disconnected`, sent or not |
//! | a stop that nobody waits for | goes out again |
//! | a stop that was not sent | goes out before what waits |
//! | a read of retained output | a new one, from the last event that was handed out |
//! | an acknowledgement | goes out again |

use std::sync::Arc;

use super::handshake::{Facts, Info};
use super::op::{Failure, RouteKey};
use super::route::{Kind, Outgoing, Start};
use super::{Call, Cleanup, ConnectionState, Ending, Session, SessionEvent, State, Token};
use crate::core::recovery::Recovery;
use crate::error::{ConnectError, Disconnected, Sent};
use crate::time::{Instant, after};

impl Session {
    /// The connection is of no use any more. Comes back if that is possible; else ends everything.
    pub(super) fn lose(&mut self, now: Instant, reason: Arc<str>, ending: Ending, error: ConnectError) {
        if !self.may_come_back(now, ending, &error) {
            return self.end(reason, ending, Some(error));
        }
        let (link, cause) = (self.link, Arc::clone(&reason));
        self.events.push_back(SessionEvent::HangUp { link, ending, reason: cause });
        self.interrupt(now, &reason);
        match std::mem::replace(&mut self.state, State::Idle) {
            // It was of no use yet: the same outage goes on.
            State::Handshaking { recovery: Some(recovery), .. } => self.try_again(now, recovery, error),
            State::Open { settling: Some(settling) } => {
                self.publish_recovering(&settling.recovery);
                // What would be permanent was forgiven.
                let forgiven = || Disconnected { sent: Sent::NotSent, reason }.into();
                let error = if error.is_retryable() { error } else { forgiven() };
                self.try_again(now, Box::new(settling.recovery), error);
            }
            _ => {
                let until = self.next_dial(now);
                let recovery = Recovery::new(now, until, Some(reason), &self.config.recovery);
                self.publish_recovering(&recovery);
                self.state = State::Away(Box::new(recovery));
            }
        }
    }

    fn publish_recovering(&mut self, recovery: &Recovery) {
        let (reason, deadline) = (recovery.reason(), recovery.deadline());
        self.publish(ConnectionState::Recovering { reason, deadline });
    }

    fn may_come_back(&mut self, now: Instant, ending: Ending, error: &ConnectError) -> bool {
        if !self.recovers || (self.closing.is_some() && !self.has_to_stop()) {
            return false;
        }
        match &self.state {
            State::Handshaking { .. } => error.is_retryable(),
            State::Open { .. } => match ending {
                // What was asked for is not asked for again, and of retained output a smaller piece, so that the next
                // connection may fare better.
                Ending::ProtocolError | Ending::TooLarge => self.forgives(now),
                Ending::Normal | Ending::Lost => true,
            },
            State::Idle | State::Away(_) | State::Ended { .. } => false,
        }
    }

    /// Whether a peer that broke the protocol gets another chance: a few, and again after a quiet time.
    fn forgives(&mut self, now: Instant) -> bool {
        let quiet = self.config.recovery.deadline;
        if self.last_fault.is_none_or(|last| now.saturating_duration_since(last) > quiet) {
            self.faults = 0;
        }
        self.faults += 1;
        self.last_fault = Some(now);
        self.faults < MAX_FAULTS
    }

    /// Whether a session that is being closed still has something to end at the peer.
    pub(super) fn has_to_stop(&self) -> bool {
        let begun = |start: &Start| match start {
            Start::Done => true,
            Start::Called(call) => self.calls.is_sent(*call),
            Start::Held | Start::Attaching(_) => false,
        };
        let live = |route: &super::Route| !route.detached && !route.is_closed() && begun(&route.start);
        self.session_id.is_some() && self.routes.values().any(live)
    }

    fn interrupt(&mut self, now: Instant, reason: &Arc<str>) {
        self.greeting.clear();
        self.replies = 0;
        self.reads = 0;
        self.pieces = 0;
        let bound =
            |what: &Call| matches!(what, Call::Read { .. } | Call::Piece { .. } | Call::Ask { on: Some(_), .. });
        for (call, sent) in self.calls.take(|what, sent| sent == Sent::Unknown || bound(what)) {
            self.interrupt_call(call, sent, reason);
        }
        let calls = &self.calls;
        let stays = |outgoing: &Outgoing| matches!(outgoing.kind, Kind::Call(call) if calls.contains(call));
        self.outbox.retain(stays);
        self.parked.retain(stays);
        self.ack_queued = false;
        for (_, ends) in std::mem::take(&mut self.unconfirmed) {
            self.last_acks.extend(ends);
        }
        self.acks_due |= !self.last_acks.is_empty();
        // What they would free is gone with the connection.
        for cleanup in std::mem::take(&mut self.cleanups) {
            match cleanup {
                Cleanup::Ask { token, .. } => self.answer(token, Err(Self::not_sent(Arc::clone(reason)))),
                stop @ Cleanup::Stop { .. } => self.cleanups.push_back(stop),
            }
        }
        self.input_ready.clear();
        self.read_ready.clear();
        self.pauses.clear();
        self.cleanup_waits_since = None;
        let keys: Vec<_> = self.routes.keys().copied().collect();
        for key in keys {
            self.interrupt_route(now, key);
        }
    }

    fn interrupt_call(&mut self, call: Call, sent: Sent, reason: &Arc<str>) {
        match call {
            Call::Start { route, token, .. } => {
                self.answer_unknown(token, reason);
                self.doubt(route);
            }
            Call::Act { token, .. }
            | Call::List(token)
            | Call::Status(token)
            | Call::Stop { token: Some(token), .. } => self.answer_unknown(token, reason),
            Call::Ask { token, .. } => {
                let disconnected = Disconnected { sent, reason: Arc::clone(reason) };
                self.answer(token, Err(disconnected.into()));
            }
            Call::Stop { route, token: None, params } => {
                self.cleanups.push_back(Cleanup::Stop { route, token: None, params });
            }
            Call::Info => {
                let waiting = match &mut self.facts {
                    Some(Facts { info: info @ Info::Asked(_), .. }) => std::mem::replace(info, Info::Unasked),
                    _ => return,
                };
                if let Info::Asked(waiting) = waiting {
                    waiting.into_iter().for_each(|token| self.answer_unknown(token, reason));
                }
            }
            Call::Read { route } => self.give_up_attach(route, reason),
            // It goes out again.
            Call::Piece { .. } => {}
        }
    }

    fn answer_unknown(&mut self, token: Token, reason: &Arc<str>) {
        let disconnected = Disconnected { sent: Sent::Unknown, reason: Arc::clone(reason) };
        self.answer(token, Err(disconnected.into()));
    }

    /// Nobody knows whether the start of this process took effect. It is ended, never adopted.
    fn doubt(&mut self, key: RouteKey) {
        if self.session_id.is_none() {
            // What it may have started belongs to a session that nobody can come back to.
            return self.forget(key);
        }
        let Some(route) = self.routes.get_mut(&key) else { return };
        route.start = Start::Done;
        route.abandoned = true;
        route.released = true;
        route.inbox.discard();
        self.kill(key);
    }

    fn give_up_attach(&mut self, key: RouteKey, reason: &Arc<str>) {
        let Some(route) = self.routes.get_mut(&key) else { return };
        if let Start::Attaching(token) = route.start {
            route.start = Start::Done;
            self.answer_unknown(token, reason);
            self.forget(key);
        }
    }

    fn interrupt_route(&mut self, now: Instant, key: RouteKey) {
        let Some(route) = self.routes.get_mut(&key) else { return };
        route.read_queued = false;
        route.input_queued = false;
        route.was_full = false;
        route.input.rewind();
        // What was sent of them may be lost.
        (route.acked_seq, route.acked_bytes, route.acked_events) = (0, 0, 0);
        if matches!(route.start, Start::Done) {
            route.inbox.interrupt();
        }
        self.rearm(now, key);
    }

    /// The session goes on over a new connection: everything that has to be told to the peer, or asked of it, comes before what
    /// waited meanwhile.
    pub(super) fn resume(&mut self, now: Instant, recovery: Recovery) {
        let mut keys: Vec<_> = self.routes.keys().copied().collect();
        keys.sort_unstable();
        for &key in &keys {
            self.note_consumed(now, key);
            self.update(now, key);
            self.queue_input(key);
        }
        let resyncing = |key: &RouteKey| self.routes.get(key).is_some_and(|route| route.inbox.is_resyncing());
        let reads = keys.into_iter().filter(resyncing).collect();
        let grace = after(now, self.settling_patience());
        if grace > recovery.deadline() {
            self.publish(ConnectionState::Recovering { reason: recovery.reason(), deadline: grace });
        }
        self.state = State::Open { settling: Some(Box::new(super::link::Settling { recovery, grace, reads })) };
        for waiting in std::mem::take(&mut self.outbox) {
            match waiting.kind {
                Kind::Call(call) if self.calls.get(call).is_some_and(Call::is_urgent) => {
                    self.outbox.push_back(waiting);
                    continue;
                }
                Kind::Call(call) => self.calls.park(call),
                _ => {}
            }
            self.parked.push_back(waiting);
        }
        self.send_urgent(now);
        self.release_held(now);
        self.note_settled();
    }

    /// The error of a call that was not sent.
    pub(super) fn not_sent(reason: Arc<str>) -> Failure {
        Disconnected { sent: Sent::NotSent, reason }.into()
    }
}

/// A peer that breaks the protocol so often, without a quiet time between, is given up.
const MAX_FAULTS: u32 = 3;
