//! Processes: what comes from the peer about them, what their readers take, and when something is due.

use bytes::Bytes;

use super::answer::is_unknown_process;
use super::inbox::{ExitFact, Inbox};
use super::op::{Answer, Consumption, Failure, RouteKey};
use super::route::{Route, Start};
use super::{ACK_DELAY, Cleanup, PAUSE, Session, SessionEvent};
use crate::error::{PeerMisbehaved, RpcError, WaitError};
use crate::event::{Closed, Event, Output, OutputStream};
use crate::request::ProcessId;
use crate::status::{ExitStatus, LimitExceeded};
use crate::time::Instant;
use crate::wire::codec::Payload;
use crate::wire::fs::MissingChangedParams;
use crate::wire::http::{BodyDeltaParams, MAX_DELTA_BYTES};
use crate::wire::method::{self, Method, Notification, Read};
use crate::wire::process::{ClosedParams, ExitedParams, OutputParams, ReadResult, TerminateParams};
use crate::wire::sandbox::DenialReport;

impl Session {
    pub(super) fn handle_notification(&mut self, now: Instant, method: &str, params: Payload<'_>) {
        let result = match method {
            method::Output::NAME => params.decode::<OutputParams>().map(|params| {
                if let Some(route) = self.route_of(&params.process_id) {
                    self.handle_output(now, route, params.seq, params.stream, params.chunk.0);
                }
            }),
            method::Exited::NAME => params.decode::<ExitedParams>().map(|params| {
                if let Some(route) = self.route_of(&params.process_id) {
                    let fact = exit_fact(&params);
                    let denied = params.sandbox_denied.unwrap_or(false);
                    self.note_denial(route, denied, params.longarm.and_then(|extension| extension.denial));
                    self.with_inbox(now, route, |inbox, out| inbox.exited(now, fact, out));
                }
            }),
            method::Closed::NAME => params.decode::<ClosedParams>().map(|params| {
                if let Some(route) = self.route_of(&params.process_id) {
                    let closed = closed_event(&params);
                    self.with_inbox(now, route, |inbox, out| inbox.closed(now, closed, out));
                }
            }),
            method::MissingChanged::NAME => params.decode::<MissingChangedParams>().map(|params| {
                self.events.push_back(SessionEvent::MissingChanged { watch_id: params.watch_id });
            }),
            method::BodyDelta::NAME => match params.decode::<BodyDeltaParams>() {
                Ok(delta) if delta.delta_base64.0.len() > MAX_DELTA_BYTES => {
                    let size_bytes = Some(delta.delta_base64.0.len() as u64);
                    let limit_bytes = MAX_DELTA_BYTES as u64;
                    return self.fault(now, PeerMisbehaved::MessageTooLarge { size_bytes, limit_bytes });
                }
                Ok(delta) => {
                    self.events.push_back(SessionEvent::BodyDelta(Box::new(delta)));
                    Ok(())
                }
                Err(error) => Err(error),
            },
            // A newer peer may have more to tell.
            _ => Ok(()),
        };
        if let Err(error) = result {
            self.fault(now, PeerMisbehaved::Malformed { reason: format!("notification {method}: {error}") });
        }
    }

    pub(super) fn handle_output(&mut self, now: Instant, key: RouteKey, seq: u64, stream: OutputStream, bytes: Bytes) {
        self.with_inbox(now, key, |inbox, out| inbox.output(now, Output { seq, stream, bytes }, out));
    }

    /// The reader of a process has taken events.
    pub(crate) fn handle_consumed(&mut self, now: Instant, key: RouteKey, consumed: Consumption) {
        self.with_inbox(now, key, |inbox, out| inbox.handle_consumed(now, consumed, out));
        self.note_consumed(now, key);
    }

    /// Nobody reads the events of the process any more.
    pub(crate) fn discard(&mut self, now: Instant, key: RouteKey) {
        let Some(route) = self.routes.get_mut(&key) else { return };
        route.inbox.discard();
        self.update(now, key);
    }

    /// Nobody acts on the process any more.
    pub(crate) fn release(&mut self, now: Instant, key: RouteKey) {
        let Some(route) = self.routes.get_mut(&key) else { return };
        route.released = true;
        self.update(now, key);
    }

    /// The process outlives the environment; false if it is too late for that.
    pub(crate) fn detach(&mut self, key: RouteKey) -> bool {
        let Some(route) = self.routes.get_mut(&key) else { return !self.is_ended() };
        if self.closing.is_some() && route.stopping {
            // The stop that the close wants is taken back, if it has not left.
            let before = self.cleanups.len();
            let wanted =
                |cleanup: &Cleanup| matches!(cleanup, Cleanup::Stop { route, token: None, .. } if *route == key);
            self.cleanups.retain(|cleanup| !wanted(cleanup));
            if self.cleanups.len() == before {
                return false;
            }
            (route.stopping, route.closing) = (false, false);
        }
        route.detached = true;
        true
    }

    /// Kills the process; nobody waits for the answer.
    pub(crate) fn kill(&mut self, key: RouteKey) {
        if self.is_ended() {
            return;
        }
        let Some(route) = self.routes.get_mut(&key).filter(|route| !route.stopping && !route.is_closed()) else {
            return;
        };
        route.stopping = true;
        let process_id = route.process_id.clone();
        let params = TerminateParams { process_id, longarm: None };
        self.cleanups.push_back(Cleanup::Stop { route: key, token: None, params });
    }

    /// Nobody waits for the start any more: it is taken back, or the process is ended. One that was attached to is let go
    /// as if nobody had asked for it: its output stays with the peer.
    pub(crate) fn abandon(&mut self, now: Instant, key: RouteKey) {
        let Some(route) = self.routes.get_mut(&key) else { return };
        if route.inbox.is_attached() {
            if let Start::Attaching(token) = route.start {
                self.held.retain(|held| held.route != key);
                self.answer(token, Err(Failure::Closed));
            }
            return self.forget(key);
        }
        match route.start {
            Start::Held => {
                let index = self.held.iter().position(|held| held.route == key);
                if let Some(held) = index.and_then(|index| self.held.remove(index)) {
                    self.answer(held.token, Err(Failure::Closed));
                }
                self.forget(key);
                return;
            }
            Start::Called(call) => {
                if let Some(super::Call::Start { token, .. }) = self.calls.cancel_unsent(call) {
                    self.answer(token, Err(Failure::Closed));
                    self.forget(key);
                    return;
                }
            }
            Start::Attaching(_) | Start::Done => {}
        }
        if let Some(route) = self.routes.get_mut(&key) {
            route.abandoned = true;
            route.inbox.discard();
        }
        self.kill(key);
        self.update(now, key);
    }

    pub(super) fn handle_route_timeout(&mut self, now: Instant, key: RouteKey) {
        let Some(route) = self.routes.get_mut(&key) else { return };
        route.timer = None;
        if route.deadline.is_some_and(|deadline| deadline <= now) {
            route.deadline = None;
            if !route.inbox.has_exited() && !route.stopping {
                route.inbox.set_limit(LimitExceeded::Time);
                self.kill(key);
            }
        }
        self.update(now, key);
    }

    pub(super) fn handle_read_answer(&mut self, now: Instant, key: RouteKey, answer: Result<Payload<'_>, RpcError>) {
        self.reads -= 1;
        let Some(route) = self.routes.get_mut(&key) else { return };
        let attaching = match route.start {
            Start::Attaching(token) => {
                route.start = Start::Done;
                Some(token)
            }
            Start::Held | Start::Called(_) | Start::Done => None,
        };
        let process_id = route.process_id.clone();
        if answer.is_ok() {
            self.note_told(now, key);
        }
        let result = match answer {
            Ok(payload) => payload.decode::<ReadResult>().map_err(|error| error.into_bad_result(Read::NAME).into()),
            Err(error) => Err(read_error(error, process_id)),
        };
        match (attaching, result) {
            (None, Ok(mut result)) => {
                self.note_denial_read(key, &mut result);
                self.with_inbox(now, key, |inbox, out| inbox.handle_read(now, &result, out));
            }
            (None, Err(error)) => self.with_inbox(now, key, |inbox, out| inbox.handle_read_error(now, error, out)),
            (Some(token), Ok(mut result)) => {
                self.note_denial_read(key, &mut result);
                self.answer(token, Ok(Answer::Started(super::op::Started::default())));
                self.with_inbox(now, key, |inbox, out| inbox.handle_read(now, &result, out));
            }
            (Some(token), Err(error)) => {
                self.forget(key);
                self.answer(token, Err(wait_failure(error)));
            }
        }
    }

    /// Tells the evidence of a denial, before the exit that it belongs to is told.
    fn note_denial(&mut self, key: RouteKey, denied: bool, denial: Option<DenialReport>) {
        if let Some(denial) = denial {
            self.events.push_back(SessionEvent::Denial { route: key, denial: denial.into_denial(denied) });
        }
    }

    /// The same, of a read.
    fn note_denial_read(&mut self, key: RouteKey, result: &mut ReadResult) {
        let denial = result.longarm.as_mut().and_then(|extension| extension.denial.take());
        self.note_denial(key, result.sandbox_denied, denial);
    }

    /// Lets the inbox of a process work, and does what follows from it.
    pub(super) fn with_inbox(
        &mut self,
        now: Instant,
        key: RouteKey,
        work: impl FnOnce(&mut Inbox, &mut Vec<Event>) -> Result<(), WaitError>,
    ) {
        let takes = |route: &&mut Route| !route.failed || route.inbox.is_discarding();
        let Some(route) = self.routes.get_mut(&key).filter(takes) else { return };
        let result = work(&mut route.inbox, &mut self.scratch);
        self.events.extend(self.scratch.drain(..).map(|event| SessionEvent::Event { route: key, event }));
        match result {
            Ok(()) => self.update(now, key),
            Err(error) => self.fail_route(now, key, error),
        }
    }

    /// Does what follows from a change of a process's state.
    pub(super) fn update(&mut self, now: Instant, key: RouteKey) {
        let bounds_reads = self.features().exit;
        let Some(route) = self.routes.get_mut(&key) else { return };
        if route.inbox.is_over() && route.released {
            self.acknowledge_end(now, key);
            self.forget(key);
            return;
        }
        let over_limit = route.output_limit.is_some_and(|limit| route.inbox.output_bytes() > limit);
        if over_limit && !route.inbox.has_exited() && !route.stopping {
            route.output_limit = None;
            route.inbox.set_limit(LimitExceeded::Output);
            self.kill(key);
        }
        let Some(route) = self.routes.get_mut(&key) else { return };
        if route.closing && route.inbox.is_full() {
            self.give_up_reader(key);
        }
        let Some(route) = self.routes.get_mut(&key) else { return };
        if !route.read_queued && route.inbox.wants_read(now, bounds_reads).is_some() {
            route.read_queued = true;
            self.read_ready.push_back(key);
        }
        if route.inbox.is_discarding() {
            self.note_consumed(now, key);
        }
        self.note_full(now, key);
        self.rearm(now, key);
    }

    /// Gives the reader of a plain peer's process time to make room, once each time that it is full.
    fn note_full(&mut self, now: Instant, key: RouteKey) {
        let credits = self.features().credits;
        let Some(route) = self.routes.get_mut(&key) else { return };
        let full = route.inbox.is_full() && !credits;
        if !full {
            self.pauses.remove(&key);
        } else if !route.was_full && self.no_pause_until.is_none_or(|until| until <= now) {
            self.pauses.insert(key, now + PAUSE);
        }
        route.was_full = full;
    }

    /// Puts a consumption down for acknowledgement: soon, or at once if much has come together.
    pub(super) fn note_consumed(&mut self, now: Instant, key: RouteKey) {
        if !self.features().credits {
            return;
        }
        let Some(route) = self.routes.get(&key) else { return };
        if route.inbox.consumed_seq() <= route.acked_seq {
            return;
        }
        self.acks.insert(key);
        let (bytes, events) = route.consumption();
        let window = &self.config.output;
        let much = bytes.saturating_sub(route.acked_bytes) >= window.retained_bytes as u64 / 4
            || events.saturating_sub(route.acked_events) >= window.retained_chunks as u64 / 4;
        if much {
            self.acks_due = true;
        } else {
            self.ack_at.get_or_insert(now + ACK_DELAY);
        }
    }

    /// Acknowledges all that there was of a process, which this end has, and which is about to be forgotten.
    fn acknowledge_end(&mut self, now: Instant, key: RouteKey) {
        let has_all = |route: &&Route| route.is_closed() || route.inbox.is_discarding();
        let Some(route) = self.routes.get(&key).filter(has_all) else { return };
        let last = route.inbox.last_seq();
        if self.features().credits && last > route.acked_seq {
            self.last_acks.push((route.process_id.clone(), last));
            self.ack_at.get_or_insert(now + ACK_DELAY);
            self.acks_due |= self.last_acks.len() >= LAST_ACKS;
        }
    }

    /// The events of one process end in an error. The connection and all other processes go on.
    fn fail_route(&mut self, now: Instant, key: RouteKey, error: WaitError) {
        let credits = self.features().credits;
        let Some(route) = self.routes.get_mut(&key) else { return };
        if route.failed {
            // It had nothing more to tell anyone, and now it is not even counted.
            route.inbox.fail();
            return self.update(now, key);
        }
        route.failed = true;
        // Nobody can follow it any more, so it must not run on unseen.
        let kills = matches!(error, WaitError::Peer(_) | WaitError::Remote(_) | WaitError::OutputLost { .. });
        if credits && (kills || matches!(error, WaitError::Failed { .. })) {
            // The peer keeps what it has of it until it hears that this end needs nothing of that.
            route.inbox.discard();
        }
        if !(credits && kills) {
            route.inbox.fail();
        }
        if route.inbox.is_over() && self.by_id.get(&route.process_id) == Some(&key) {
            self.by_id.remove(&route.process_id);
        }
        if kills {
            self.kill(key);
        }
        self.events.push_back(SessionEvent::Failed { route: key, error });
        self.update(now, key);
    }

    /// Forgets a process.
    pub(super) fn forget(&mut self, key: RouteKey) {
        let Some(mut route) = self.routes.remove(&key) else { return };
        for job in route.input.end(|_| Failure::StdinClosed) {
            self.answer(job.token, job.result.map(|()| Answer::Done));
        }
        if self.by_id.get(&route.process_id) == Some(&key) {
            self.by_id.remove(&route.process_id);
        }
        if let Some(due) = route.timer {
            self.timers.remove(&(due, key));
        }
        self.acks.remove(&key);
        self.pauses.remove(&key);
    }

    /// Brings the timer of a process in line with what it waits for. What is due already waits for a place, not for time.
    pub(super) fn rearm(&mut self, now: Instant, key: RouteKey) {
        let Some(route) = self.routes.get_mut(&key) else { return };
        let due = route.poll_timeout().filter(|due| *due > now || !route.read_queued);
        if due == route.timer {
            return;
        }
        if let Some(old) = std::mem::replace(&mut route.timer, due) {
            self.timers.remove(&(old, key));
        }
        if let Some(due) = due {
            self.timers.insert((due, key));
        }
    }

    fn route_of(&self, id: &ProcessId) -> Option<RouteKey> {
        self.by_id.get(id).copied()
    }
}

impl Route {
    /// What counts as consumed, in bytes and events.
    pub(super) const fn consumption(&self) -> (u64, u64) {
        let consumed = self.inbox.consumed();
        if self.inbox.is_discarding() {
            (self.inbox.output_bytes(), consumed.events)
        } else {
            (consumed.bytes, consumed.events)
        }
    }
}

/// So many last acknowledgements go at once.
const LAST_ACKS: usize = 256;

fn exit_fact(params: &ExitedParams) -> ExitFact {
    let extension = params.longarm.as_ref();
    let status = extension.map_or_else(|| ExitStatus::from_wire(params.exit_code), |it| it.status(params.exit_code));
    ExitFact { seq: params.seq, status, sandbox_denied: params.sandbox_denied }
}

fn closed_event(params: &ClosedParams) -> Closed {
    let totals = params.longarm.map(|extension| extension.total_bytes.into());
    Closed { seq: params.seq, totals, cut: params.longarm.is_some_and(|extension| extension.cut) }
}

fn read_error(error: RpcError, process_id: ProcessId) -> WaitError {
    if is_unknown_process(&error) { WaitError::UnknownProcess(process_id) } else { error.into() }
}

fn wait_failure(error: WaitError) -> Failure {
    match error {
        WaitError::UnknownProcess(id) => Failure::UnknownProcess(id),
        WaitError::Peer(error) => error.into(),
        WaitError::Remote(error) => error.into(),
        other => PeerMisbehaved::Protocol(other.to_string()).into(),
    }
}
