//! The ends of a session: by this end, by a fault of the peer, by the loss of the connection.

use std::sync::Arc;
use std::time::Duration;

use super::handshake::{Facts, Info};
use super::op::{Failure, RouteKey, Token};
use super::route::Start;
use super::{CLOSE_PATIENCE, Call, Cleanup, ConnectionState, Ending, LinkId, Session, SessionEvent, State};
use crate::error::{ConnectError, Disconnected, PeerMisbehaved, Sent, TransportError, WaitError};
use crate::time::Instant;
use crate::wire::extension::TerminateExtension;
use crate::wire::process::TerminateParams;

impl Session {
    /// Ends all processes that are not detached, then the connection, within a bound: politely by [`Self::close`], at once
    /// when nobody is left to wait for them.
    pub(crate) fn close(&mut self, now: Instant) {
        self.close_with(now, self.config.close_grace);
    }

    /// As [`Self::close`], without a grace time.
    pub(crate) fn abandon_all(&mut self, now: Instant) {
        self.close_with(now, Duration::ZERO);
    }

    fn close_with(&mut self, now: Instant, grace: Duration) {
        if self.closing.is_some() || self.is_ended() {
            return;
        }
        if !self.may_send() && !self.has_to_stop() {
            // Nothing can have been started.
            return self.close_now();
        }
        for held in std::mem::take(&mut self.held) {
            if matches!(held.op, super::Op::Start { .. } | super::Op::Attach { .. }) {
                self.forget(held.route);
            }
            self.answer(held.token, Err(Failure::Closed));
        }
        self.take_back_starts();
        // The plain wire has no polite stop, and none for what a closed process left behind.
        let extended = self.features().terminate;
        let grace = if extended { grace } else { Duration::ZERO };
        let live = |(key, route): (&RouteKey, &super::Route)| {
            let left = !route.is_closed() || (extended && self.by_id.get(&route.process_id) == Some(key));
            (!route.detached && left && !matches!(route.start, Start::Attaching(_))).then_some(*key)
        };
        let live: Vec<_> = self.routes.iter().filter_map(live).collect();
        // A grace time beyond what a clock can express has no end.
        let patience = grace.saturating_add(CLOSE_PATIENCE);
        let deadline = now.checked_add(patience);
        self.closing = Some(deadline);
        for key in live {
            self.stop_for_close(now, key, grace);
        }
        self.finish_closing();
    }

    /// What was not started yet is not started any more.
    fn take_back_starts(&mut self) {
        for (call, _) in self.calls.take(|what, sent| sent == Sent::NotSent && matches!(what, Call::Start { .. })) {
            if let Call::Start { route, token, .. } = call {
                self.forget(route);
                self.answer(token, Err(Failure::Closed));
            }
        }
    }

    /// Leaves the connection and keeps the session.
    pub(crate) fn leave(&mut self) {
        self.end("left by this end".into(), Ending::Normal, None);
    }

    /// The connection `link` has ended.
    pub(crate) fn handle_disconnect(&mut self, now: Instant, link: LinkId, error: &TransportError) {
        if !self.is_on(link) {
            return;
        }
        let ending = match error {
            TransportError::MessageTooLarge { .. } => Ending::TooLarge,
            TransportError::Framing(_) => Ending::ProtocolError,
            _ => Ending::Lost,
        };
        let reason = match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        self.lose(now, reason.into(), ending, error.clone().into());
    }

    /// Nothing was heard over the connection `link` for too long.
    pub(crate) fn handle_silence(&mut self, now: Instant, link: LinkId, silence: Duration) {
        if self.is_on(link) {
            let misbehaviour = PeerMisbehaved::Silent { silence };
            self.lose(now, misbehaviour.to_string().into(), Ending::Lost, misbehaviour.into());
        }
    }

    /// The peer broke the protocol in a way that concerns the whole connection.
    pub(super) fn fault(&mut self, now: Instant, misbehaviour: PeerMisbehaved) {
        let ending = match misbehaviour {
            PeerMisbehaved::MessageTooLarge { .. } => Ending::TooLarge,
            _ => Ending::ProtocolError,
        };
        let reason: Arc<str> = misbehaviour.to_string().into();
        self.lose(now, reason, ending, misbehaviour.into());
    }

    pub(super) fn close_now(&mut self) {
        self.end(CLOSED.into(), Ending::Normal, None);
    }

    /// Ends a session that is being closed once its stops are answered.
    pub(super) fn finish_closing(&mut self) {
        if self.closing.is_none() || !self.may_send() {
            return;
        }
        // A process whose start is under way may come about behind its stop.
        let unsettled = self.calls.iter().any(|call| matches!(call, Call::Stop { .. } | Call::Start { .. }));
        if unsettled || !self.cleanups.is_empty() {
            return;
        }
        if !self.routes.values().any(|route| route.closing && !route.inbox.is_over()) {
            self.close_now();
        }
    }

    /// Ends a process because its place is closed.
    fn stop_for_close(&mut self, now: Instant, key: RouteKey, grace: Duration) {
        let extended = self.features().terminate;
        let Some(route) = self.routes.get_mut(&key) else { return };
        // With the plain wire there is nothing to wait for, and nothing more to be said.
        if route.stopping && !extended {
            return;
        }
        route.stopping = true;
        route.closing = extended;
        let longarm = extended.then(|| TerminateExtension { grace_ms: super::start::millis(grace), descendants: true });
        let params = TerminateParams { process_id: route.process_id.clone(), longarm };
        self.cleanups.push_back(Cleanup::Stop { route: key, token: None, params });
        // A reader that does not read must not hold up the end.
        self.update(now, key);
    }

    /// A process that is being ended with its place waits for its reader: what it has not read is given up, so that the end
    /// comes.
    pub(super) fn give_up_reader(&mut self, key: RouteKey) {
        let Some(route) = self.routes.get_mut(&key) else { return };
        route.inbox.discard();
        let error = Disconnected { sent: Sent::Unknown, reason: CLOSED.into() }.into();
        self.events.push_back(SessionEvent::Failed { route: key, error });
    }

    /// Ends everything. `rejection` is the handshake's error, if it was not done.
    pub(super) fn end(&mut self, reason: Arc<str>, ending: Ending, rejection: Option<ConnectError>) {
        if self.is_ended() {
            return;
        }
        let state = match &rejection {
            _ if self.closing.is_some() => ConnectionState::Closed,
            None => ConnectionState::Closed,
            Some(ConnectError::UnknownSession(_)) if self.facts.is_some() => {
                ConnectionState::SessionLost { reason: Arc::clone(&reason) }
            }
            Some(_) => ConnectionState::Failed { reason: Arc::clone(&reason) },
        };
        if self.facts.is_none() {
            let unknown = || Disconnected { sent: Sent::Unknown, reason: Arc::clone(&reason) }.into();
            self.events.push_back(SessionEvent::Rejected(rejection.clone().unwrap_or_else(unknown)));
        }
        self.events.push_back(SessionEvent::Over { reason: Arc::clone(&reason), state });
        if let (Some(ConnectError::Peer(misbehaviour)), Ending::ProtocolError | Ending::TooLarge) = (&rejection, ending)
        {
            for key in self.followed() {
                self.fail_at_end(key, misbehaviour.clone().into());
            }
        }
        self.state = State::Ended { reason: Arc::clone(&reason) };
        let disconnected = |sent| Disconnected { sent, reason: Arc::clone(&reason) };
        for (token, sent) in self.unanswered() {
            self.answer(token, Err(disconnected(sent).into()));
        }
        let mut finished = Vec::new();
        for route in self.routes.values_mut() {
            finished.extend(route.input.end(|sent| disconnected(sent).into()));
        }
        for job in finished {
            self.answer(job.token, job.result.map(|()| super::Answer::Done));
        }
        for key in self.followed() {
            self.fail_at_end(key, disconnected(Sent::Unknown).into());
        }
        self.outbox.clear();
        self.parked.clear();
        self.greeting.clear();
        self.replies = 0;
        self.unconfirmed.clear();
        self.closing = None;
        self.routes.clear();
        self.by_id.clear();
        self.input_ready.clear();
        self.read_ready.clear();
        self.acks.clear();
        self.last_acks.clear();
        self.ack_at = None;
        self.timers.clear();
        self.pauses.clear();
        self.cleanup_waits_since = None;
        self.events.push_back(SessionEvent::End { reason, ending });
    }

    /// All calls of the application that have no answer, but those in the queues of input.
    fn unanswered(&mut self) -> Vec<(Token, Sent)> {
        let mut tokens = Vec::new();
        for (call, sent) in self.calls.drain() {
            match call {
                Call::Start { token, .. }
                | Call::Act { token, .. }
                | Call::List(token)
                | Call::Status(token)
                | Call::Ask { token, .. } => {
                    tokens.push((token, sent));
                }
                Call::Stop { token, .. } => tokens.extend(token.map(|token| (token, sent))),
                Call::Piece { .. } | Call::Read { .. } | Call::Info => {}
            }
        }
        tokens.extend(self.held.drain(..).map(|held| (held.token, Sent::NotSent)));
        tokens
            .extend(self.cleanups.drain(..).filter_map(|cleanup| cleanup.token()).map(|token| (token, Sent::NotSent)));
        if let Some(Facts { info: Info::Asked(waiting), .. }) = &mut self.facts {
            tokens.extend(waiting.drain(..).map(|token| (token, Sent::Unknown)));
        }
        for route in self.routes.values_mut() {
            if let Start::Attaching(token) = route.start {
                // A held one is counted above.
                route.start = Start::Done;
                if !tokens.iter().any(|(known, _)| *known == token) {
                    tokens.push((token, Sent::Unknown));
                }
            }
        }
        tokens
    }

    /// Processes whose events somebody waits for.
    fn followed(&self) -> Vec<RouteKey> {
        let mut keys: Vec<_> = self
            .routes
            .iter()
            .filter(|(_, route)| !route.inbox.is_over() && !route.inbox.is_discarding() && !route.failed)
            .map(|(key, _)| *key)
            .collect();
        keys.sort_unstable();
        keys
    }

    fn fail_at_end(&mut self, key: RouteKey, error: WaitError) {
        if let Some(route) = self.routes.get_mut(&key) {
            route.failed = true;
            route.inbox.fail();
            self.events.push_back(SessionEvent::Failed { route: key, error });
        }
    }
}

const CLOSED: &str = "closed by this end";
