//! What leaves, and in which order: the handshake; what has to be told or asked before anything else; what was asked for; what
//! waited for a connection, as there are places.

use bytes::Bytes;

use super::op::{Ask, RouteKey};
use super::route::{Kind, Outgoing};
use super::{Call, Class, Cleanup, Session, SessionEvent, State, TELLS_SENT};
use crate::time::{Instant, after};
use crate::wire::RequestId;
use crate::wire::codec;
use crate::wire::extension::AckParams;
use crate::wire::method::{Ack, Method, Read, Terminate};
use crate::wire::process::ReadParams;

impl Session {
    /// The next message for the transport; it counts as sent.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Bytes> {
        if let Some(outgoing) = self.greeting.pop_front() {
            if let (Kind::Initialize, State::Handshaking { sent, .. }) = (outgoing.kind, &mut self.state) {
                *sent = true;
            }
            return Some(outgoing.bytes);
        }
        if !self.may_send() {
            return None;
        }
        // What was waited for may have been given up by this end.
        self.note_settled();
        self.refill(now);
        while let Some(outgoing) = self.outbox.pop_front().or_else(|| self.next_parked()) {
            match outgoing.kind {
                Kind::Initialize | Kind::Initialized | Kind::Notice => {}
                Kind::Call(call) if self.calls.contains(call) => {
                    self.calls.mark_sent(call);
                    if TELLS_SENT && let Some(token) = self.calls.get(call).and_then(Call::token) {
                        self.events.push_back(SessionEvent::Sent { token });
                    }
                }
                // It was taken back.
                Kind::Call(_) => continue,
                Kind::Reply => self.replies -= 1,
                Kind::Ack => self.ack_queued = false,
            }
            self.finish_closing();
            return Some(outgoing.bytes);
        }
        self.finish_closing();
        None
    }

    /// The next of what waited, if there is a place for it.
    fn next_parked(&mut self) -> Option<Outgoing> {
        match self.parked.front()?.kind {
            Kind::Call(call) if !self.calls.unpark(call) => None,
            _ => self.parked.pop_front(),
        }
    }

    /// Sends a notification, behind what was asked for before it. On a session that is over it has no meaning.
    pub(crate) fn notify(&mut self, bytes: Bytes) {
        if matches!(self.state, State::Open { .. }) {
            self.queue(Outgoing { kind: Kind::Notice, bytes });
        }
    }

    /// Puts down a message, behind all that was asked for before it.
    pub(super) fn queue(&mut self, outgoing: Outgoing) {
        if self.parked.is_empty() {
            return self.outbox.push_back(outgoing);
        }
        if let Kind::Call(call) = outgoing.kind {
            self.calls.park(call);
        }
        self.parked.push_back(outgoing);
    }

    pub(super) fn traced(&self, call: i64, request: Bytes) -> Bytes {
        self.traces.add_to(request, || self.calls.get(call).and_then(Call::token))
    }

    pub(super) fn send<M: Method>(&mut self, call: i64, params: &M::Params) {
        let bytes = codec::encode_request::<M>(&RequestId::Number(call), params);
        let bytes = self.traced(call, bytes);
        self.queue(Outgoing { kind: Kind::Call(call), bytes });
    }

    /// The same for what comes before all that waits.
    pub(super) fn send_ahead<M: Method>(&mut self, call: i64, params: &M::Params) {
        let bytes = codec::encode_request::<M>(&RequestId::Number(call), params);
        let bytes = self.traced(call, bytes);
        self.outbox.push_back(Outgoing { kind: Kind::Call(call), bytes });
    }

    pub(super) fn send_ask(&mut self, call: i64, ask: Ask) {
        let cleanup = ask.cleanup;
        let bytes = self.traced(call, (ask.encode)(&RequestId::Number(call)));
        let outgoing = Outgoing { kind: Kind::Call(call), bytes };
        if cleanup { self.outbox.push_back(outgoing) } else { self.queue(outgoing) }
    }

    /// Makes messages of what waits for a place or for its time.
    pub(super) fn refill(&mut self, now: Instant) {
        self.send_urgent(now);
        while self.has_room_for_piece() {
            let Some(route) = self.input_ready.pop_front() else { break };
            self.send_piece(route);
        }
    }

    pub(super) fn send_urgent(&mut self, now: Instant) {
        self.send_cleanups(now);
        // While one waits for the transport, the next one gathers more.
        if self.acks_due && !self.ack_queued {
            self.send_acks();
        }
        // After an outage all processes are asked for at once.
        let max_reads = if self.settling().is_some() { MAX_READS.max(self.calls.limit() / 2) } else { MAX_READS };
        while self.reads < max_reads && self.calls.admits(Class::Ahead) {
            let Some(route) = self.read_ready.pop_front() else { break };
            self.send_read(now, route);
        }
    }

    pub(super) fn send_cleanups(&mut self, now: Instant) {
        while self.calls.admits(Class::Cleanup) {
            let Some(cleanup) = self.cleanups.pop_front() else { break };
            self.cleanup_waits_since = None;
            match cleanup {
                Cleanup::Stop { route, token, params } => {
                    let stop = Call::Stop { route, token, params: params.clone() };
                    if let Ok(call) = self.calls.admit(Class::Cleanup, stop) {
                        self.send_ahead::<Terminate>(call, &params);
                    }
                }
                Cleanup::Ask { token, ask } => {
                    if let Ok(call) = self.calls.admit(Class::Cleanup, Call::Ask { token, on: ask.on, cleanup: true }) {
                        self.send_ask(call, *ask);
                    }
                }
            }
        }
        if self.cleanups.is_empty() {
            self.cleanup_waits_since = None;
        } else {
            self.cleanup_waits_since.get_or_insert(now);
        }
    }

    pub(super) fn cleanup_deadline(&self) -> Option<Instant> {
        self.cleanup_waits_since.map(|since| after(since, self.config.cleanup_patience))
    }

    pub(super) fn send_acks(&mut self) {
        self.ack_at = None;
        self.acks_due = false;
        let ends = std::mem::take(&mut self.last_acks);
        let mut params = AckParams { acks: ends.clone() };
        if !ends.is_empty() {
            self.unconfirmed.push_back((self.calls.last_id(), ends));
        }
        for key in std::mem::take(&mut self.acks) {
            let Some(route) = self.routes.get_mut(&key) else { continue };
            let consumed = route.inbox.consumed_seq();
            if consumed > route.acked_seq {
                route.acked_seq = consumed;
                (route.acked_bytes, route.acked_events) = route.consumption();
                params.acks.push((route.process_id.clone(), consumed));
            }
        }
        if !params.acks.is_empty() {
            let bytes = codec::encode_notification::<Ack>(&params);
            self.outbox.push_back(Outgoing { kind: Kind::Ack, bytes });
            self.ack_queued = true;
        }
    }

    pub(super) fn send_read(&mut self, now: Instant, key: RouteKey) {
        let bounds_reads = self.features().exit;
        let Some(route) = self.routes.get_mut(&key) else { return };
        route.read_queued = false;
        let Some(spec) = route.inbox.wants_read(now, bounds_reads) else { return };
        let params = ReadParams {
            process_id: route.process_id.clone(),
            after_seq: Some(spec.after_seq()),
            max_bytes: spec.max_bytes(),
            wait_ms: Some(0),
        };
        let Ok(call) = self.calls.admit(Class::Ahead, Call::Read { route: key }) else { return };
        route.inbox.handle_read_started(spec);
        self.reads += 1;
        self.send_ahead::<Read>(call, &params);
        self.rearm(now, key);
    }
}

/// Reads under way. They carry up to a window each, so that a few are enough to fill the connection.
const MAX_READS: usize = 8;
