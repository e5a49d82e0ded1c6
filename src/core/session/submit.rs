//! What an application asks for, turned into calls.

use std::sync::Arc;

use bytes::Bytes;

use super::handshake::{Facts, Info};
use super::input::{Departure, Piece};
use super::op::{Answer, Ask, Failure, Op, RouteKey, Token};
use super::route::{Kind, Outgoing, Route, Start};
use super::start::{self, check_size, millis, names, require};
use super::{Call, Cleanup, Held, Session, State};
use crate::core::calls::Class;
use crate::error::{Busy, SpawnError};
use crate::request::{ExecRequest, ProcessId, Signal};
use crate::time::Instant;
use crate::wire::codec::hot;
use crate::wire::extension::{CloseStdinParams, ResizeParams, SignalByNameParams, TerminateExtension};
use crate::wire::method::{self, CloseStdin, List, Method, NoParams, Resize, SendSignal, SendSignalByName, Status};
use crate::wire::process::{PlainSignal, SignalParams, TerminateParams, WriteParams};
use crate::wire::{Base64, RequestId};

impl Session {
    /// Makes a call. It is answered by an event, now or later, exactly once.
    pub(crate) fn submit(&mut self, now: Instant, token: Token, route: RouteKey, op: Op) {
        self.connect(now);
        if let Some(failure) = self.refusal(&op) {
            return self.answer(token, Err(failure));
        }
        if let Err(failure) = self.register(token, route, &op) {
            return self.answer(token, Err(failure));
        }
        if self.must_wait(&op) {
            return self.hold(token, route, op);
        }
        self.dispatch(now, token, route, op);
    }

    /// The error of every call on a session that is closed, or being closed.
    fn refusal(&self, op: &Op) -> Option<Failure> {
        if let State::Ended { reason } = &self.state {
            return Some(Self::not_sent(Arc::clone(reason)));
        }
        if let Op::Ask(ask) = op
            && ask.on.is_some_and(|link| !self.is_on(link))
        {
            return Some(Self::not_sent(OTHER_CONNECTION.into()));
        }
        self.closing?;
        Some(match op {
            Op::Start { .. } | Op::Attach { .. } | Op::List | Op::Info | Op::Status | Op::Ask(_) => Failure::Closed,
            _ => Self::not_sent("the environment is closed".into()),
        })
    }

    /// Makes a process known before the peer can say anything of it.
    fn register(&mut self, token: Token, key: RouteKey, op: &Op) -> Result<(), Failure> {
        let (id, route) = match op {
            Op::Start { request } => {
                let id = request.requested_id().cloned().unwrap_or_else(|| ProcessId::new(""));
                if self.is_live(&id) {
                    return Err(Failure::Spawn(Box::new(SpawnError::AlreadyExists(id))));
                }
                (id.clone(), Route::starting(id, &self.config))
            }
            Op::Attach { process_id, after_seq } => {
                if self.is_live(process_id) {
                    return Err(Failure::Taken);
                }
                (process_id.clone(), Route::attaching(process_id.clone(), *after_seq, token, &self.config))
            }
            _ => return Ok(()),
        };
        self.by_id.insert(id, key);
        self.routes.insert(key, route);
        Ok(())
    }

    fn is_live(&self, id: &ProcessId) -> bool {
        self.by_id.get(id).and_then(|key| self.routes.get(key)).is_some_and(|route| !route.inbox.is_over())
    }

    /// Whether the call depends on something that the peer has not said yet.
    pub(super) fn must_wait(&self, op: &Op) -> bool {
        match (&self.facts, op) {
            (Some(Facts { info: Info::Asked(_) | Info::Unasked, .. }), Op::Start { request }) => {
                start::needs_answer(request)
            }
            (Some(_), _) => false,
            // Nothing goes on behind a resume that may be refused.
            (None, _) if self.session_id.is_some() => true,
            (None, op) => match op {
                Op::Start { request } => start::needs_answer(request),
                Op::Signal { signal } => *signal != Signal::Interrupt,
                Op::Terminate { grace, descendants } => !grace.is_zero() || *descendants,
                Op::CloseStdin | Op::Resize { .. } | Op::List | Op::Info => true,
                Op::Attach { .. } | Op::Write { .. } | Op::Status | Op::Ask(_) => false,
            },
        }
    }

    pub(super) fn hold(&mut self, token: Token, route: RouteKey, op: Op) {
        let limit = self.config.max_calls;
        if self.held.len() >= limit || !self.ask_for_info() {
            return self.refuse(token, route, &op, Busy { limit }.into());
        }
        self.held.push_back(Held { token, route, op });
    }

    fn refuse(&mut self, token: Token, route: RouteKey, op: &Op, failure: Failure) {
        if matches!(op, Op::Start { .. } | Op::Attach { .. }) {
            self.forget(route);
        }
        self.answer(token, Err(failure));
    }

    /// Makes a call for which all is known.
    pub(super) fn dispatch(&mut self, now: Instant, token: Token, key: RouteKey, op: Op) {
        let op = match op {
            Op::Ask(ask) => return self.ask(token, ask),
            op => op,
        };
        let result = match &op {
            // It is dispatched above.
            Op::Ask(_) => Ok(()),
            Op::Start { request } => self.start(token, key, request),
            Op::Attach { .. } => {
                self.update(now, key);
                Ok(())
            }
            Op::Write { data } => self.push_input(token, key, Some(data.clone())),
            Op::CloseStdin => self.push_input(token, key, None),
            Op::Resize { size } => check_size(*size).map_err(Failure::from).and_then(|()| {
                require(self.features().resize, "resizing a terminal")?;
                self.act::<Resize>(token, key, |process_id| ResizeParams {
                    process_id,
                    rows: size.rows,
                    cols: size.cols,
                })
            }),
            Op::Signal { signal } => self.signal(token, key, *signal),
            Op::Terminate { grace, descendants } => self.terminate(token, key, millis(*grace), *descendants),
            Op::List => self.list(token),
            Op::Info => self.info(token),
            Op::Status => self.place_call::<Status>(Call::Status(token), &NoParams),
        };
        if let Err(failure) = result {
            self.refuse(token, key, &op, failure);
        }
    }

    fn start(&mut self, token: Token, key: RouteKey, request: &ExecRequest) -> Result<(), Failure> {
        let features = self.features();
        let info = match &self.facts {
            Some(Facts { info: Info::Known(info), .. }) => Some(&**info),
            _ => None,
        };
        let Some(route) = self.routes.get_mut(&key) else { return Err(Failure::Closed) };
        let params = start::params(request, &route.process_id, info, features)?;
        let names = Box::new(names(request, &params));
        let call = self.calls.admit(Class::Regular, Call::Start { route: key, token, names })?;
        route.start = Start::Called(call);
        route.tty = Some(params.tty);
        (route.time_limit, route.output_limit) = start::limits_kept_here(request, features);
        self.send::<method::Start>(call, &params);
        Ok(())
    }

    /// Queues a write, or the closing of standard input.
    fn push_input(&mut self, token: Token, key: RouteKey, data: Option<Bytes>) -> Result<(), Failure> {
        let close_stdin = self.features().close_stdin;
        let max_jobs = self.config.max_queued_writes;
        let Some(route) = self.routes.get_mut(&key).filter(|route| !route.is_closed()) else {
            return Err(Failure::StdinClosed);
        };
        if let Some(failure) = route.input.failure() {
            return Err(failure.clone());
        }
        match data {
            Some(data) => route.input.push_write(token, data, max_jobs)?,
            None => {
                require(route.tty != Some(true), "closing the input of a terminal")?;
                require(close_stdin, "closing standard input")?;
                route.input.push_close(token, max_jobs)?;
            }
        }
        self.queue_input(key);
        Ok(())
    }

    /// Puts a process in line if it has input that may go out.
    pub(super) fn queue_input(&mut self, key: RouteKey) {
        let width = self.width();
        let Some(route) = self.routes.get_mut(&key) else { return };
        if !route.input_queued && route.input.wants_to_send(width) {
            route.input_queued = true;
            self.input_ready.push_back(key);
        }
    }

    pub(super) fn send_piece(&mut self, key: RouteKey) {
        let width = self.width();
        let Some(route) = self.routes.get_mut(&key) else { return };
        route.input_queued = false;
        let next = route.input.next_piece(width, &mut self.last_piece);
        let Some(Departure { id, piece, again }) = next else { return };
        let close = piece == Piece::Close;
        let process_id = route.process_id.clone();
        let place = Call::Piece { route: key, piece: id, close, again };
        // The caller has seen that there is room.
        let Ok(call) = self.calls.admit(Class::Regular, place) else { return };
        self.pieces += 1;
        match piece {
            Piece::Close => self.send::<CloseStdin>(call, &CloseStdinParams { process_id }),
            Piece::Write(data) => {
                let write_id = format!("{}{}", self.write_prefix, id.0);
                let params = WriteParams { process_id, chunk: Base64(data), write_id };
                let bytes = hot::encode_write(&RequestId::Number(call), &params);
                self.outbox.push_back(Outgoing { kind: Kind::Call(call), bytes });
            }
        }
        self.queue_input(key);
    }

    /// Pieces of one process on the wire. Some configurations of the reference let writes overtake each other, so that
    /// there the answer to one must be awaited before the next.
    ///
    /// The answer to a piece may take as long as a process takes to read, so that the fewer places for pieces are left, the
    /// fewer more a process may take: one that takes none yet finds some, however many do not read.
    fn width(&self) -> usize {
        if !self.features().any() {
            return 1;
        }
        let places = self.max_pieces();
        let share = places.saturating_sub(self.pieces).saturating_mul(PIECES_EXTENDED * 4) / places.max(1);
        share.clamp(1, PIECES_EXTENDED)
    }

    /// Pieces of all processes on the wire. The other places are for calls that no process can hold up.
    fn max_pieces(&self) -> usize {
        let limit = self.calls.limit();
        (limit - limit / 4).max(1)
    }

    /// Whether one more piece may go out.
    pub(super) fn has_room_for_piece(&self) -> bool {
        self.pieces < self.max_pieces() && self.calls.has_room()
    }

    fn signal(&mut self, token: Token, key: RouteKey, signal: Signal) -> Result<(), Failure> {
        if signal == Signal::Interrupt {
            let signal = PlainSignal::Interrupt;
            return self.act::<SendSignal>(token, key, |process_id| SignalParams { process_id, signal });
        }
        require(self.features().signal, "a signal other than interrupt")?;
        require(signal.name().is_some(), "a signal without a name")?;
        self.act::<SendSignalByName>(token, key, |process_id| SignalByNameParams { process_id, signal })
    }

    /// A call about a process that may have ended: then it succeeds, and nothing is sent.
    fn act<M: Method>(
        &mut self,
        token: Token,
        key: RouteKey,
        params: impl FnOnce(ProcessId) -> M::Params,
    ) -> Result<(), Failure> {
        let Some(route) = self.routes.get(&key).filter(|route| !route.is_closed()) else {
            self.answer(token, Ok(Answer::Done));
            return Ok(());
        };
        let process_id = route.process_id.clone();
        if M::NAME == Resize::NAME && route.tty == Some(false) {
            return Err(Failure::NoTerminal(process_id));
        }
        let call = Call::Act { token, process_id: process_id.clone(), method: M::NAME };
        self.place_call::<M>(call, &params(process_id))
    }

    fn terminate(&mut self, token: Token, key: RouteKey, grace_ms: u64, descendants: bool) -> Result<(), Failure> {
        let extended = self.features().terminate;
        if descendants {
            require(extended, "ending the descendants of an exited process")?;
        }
        let current = self.routes.get(&key).filter(|route| !route.is_closed() || descendants);
        let Some(process_id) = current.map(|route| route.process_id.clone()) else {
            self.answer(token, Ok(Answer::Running(false)));
            return Ok(());
        };
        if self.by_id.get(&process_id).is_some_and(|current| *current != key) {
            // The id belongs to a later process.
            self.answer(token, Ok(Answer::Running(false)));
            return Ok(());
        }
        if self.cleanups.len() >= MAX_STOPS {
            return Err(Busy { limit: MAX_STOPS }.into());
        }
        // The plain wire has no polite stop.
        let wanted = extended && (grace_ms > 0 || descendants);
        let longarm = wanted.then_some(TerminateExtension { grace_ms, descendants });
        self.cleanups.push_back(Cleanup::Stop {
            route: key,
            token: Some(token),
            params: TerminateParams { process_id, longarm },
        });
        Ok(())
    }

    fn ask(&mut self, token: Token, ask: Box<Ask>) {
        if ask.cleanup {
            // There are no more of them than there is to clean up, which the peer bounds, and one call for a sign of life.
            return self.cleanups.push_back(Cleanup::Ask { token, ask });
        }
        match self.calls.admit(Class::Regular, Call::Ask { token, on: ask.on, cleanup: false }) {
            Ok(call) => self.send_ask(call, *ask),
            Err(busy) => self.answer(token, Err(busy.into())),
        }
    }

    fn list(&mut self, token: Token) -> Result<(), Failure> {
        require(self.features().list, "the list of processes")?;
        self.place_call::<List>(Call::List(token), &NoParams)
    }

    fn info(&mut self, token: Token) -> Result<(), Failure> {
        if !self.ask_for_info() {
            return Err(self.calls.busy().into());
        }
        let limit = self.config.max_calls;
        match self.facts.as_mut().map(|facts| &mut facts.info) {
            Some(Info::Known(info)) => {
                let info = info.clone();
                self.answer(token, Ok(Answer::Info(info)));
                Ok(())
            }
            Some(Info::Asked(waiting)) if waiting.len() < limit => {
                waiting.push(token);
                Ok(())
            }
            Some(Info::Refused(error)) => Err(error.clone().into()),
            Some(Info::Asked(_) | Info::Unasked) | None => Err(Busy { limit }.into()),
        }
    }

    fn place_call<M: Method>(&mut self, call: Call, params: &M::Params) -> Result<(), Failure> {
        let id = self.calls.admit(Class::Regular, call)?;
        self.send::<M>(id, params);
        Ok(())
    }
}

pub(super) const OTHER_CONNECTION: &str = "the connection that it belonged to has ended";

/// Pieces of one process on the wire towards a peer with the extension, which keeps them in order.
const PIECES_EXTENDED: usize = 8;

/// Stops that wait for a place: one for each process that a session may have.
const MAX_STOPS: usize = 4_096;
