//! What an answer means for the call that it answers.

use serde::de::DeserializeOwned;

use super::op::{Answer, Failure, ListedProcess, ProcessState, RouteKey, Started, Token};
use super::route::{Names, Start};
use super::{Call, Session};
use crate::error::{InvalidRequest, PeerMisbehaved, RpcError};
use crate::request::ProcessId;
use crate::time::Instant;
use crate::wire::codec::Payload;
use crate::wire::extension::{self, CloseStdinResult, CloseStdinStatus, ListResult};
use crate::wire::method::{self, CloseStdin, List, Method, Resize, Status, Terminate, Write};
use crate::wire::process::{StartResult, TerminateResult, WriteResult, WriteStatus};
use crate::wire::spawn_error::{self, Asked};
use crate::wire::{ErrorCode, environment};

type Raw<'a> = Result<Payload<'a>, RpcError>;

impl Session {
    pub(super) fn handle_answer(&mut self, now: Instant, call: Call, answer: Raw<'_>) {
        match call {
            Call::Info => self.handle_info(now, answer),
            Call::Read { route } => self.handle_read_answer(now, route, answer),
            Call::Start { route, token, names } => self.handle_started(now, route, token, &names, answer),
            Call::Piece { route, piece, close, again } => {
                let result = match self.piece_result(route, close, answer) {
                    // It was closed by what was sent before the connection broke.
                    Err(Failure::StdinClosed) if close && again => Ok(()),
                    result => result,
                };
                let hole = result.as_ref().err().filter(|_| !close).cloned();
                let mut finished = Vec::new();
                if let Some(route) = self.routes.get_mut(&route) {
                    finished.extend(route.input.settle(piece, result));
                    finished.extend(hole.map(|failure| route.input.fail(failure)).unwrap_or_default());
                }
                for finished in finished {
                    self.answer(finished.token, finished.result.map(|()| Answer::Done));
                }
                self.queue_input(route);
            }
            Call::Stop { route, token, .. } => self.handle_stopped(now, route, token, answer),
            Call::Act { token, process_id, method } => {
                let result = answer.map(|_| Answer::Done).map_err(|error| act_failure(error, process_id, method));
                self.answer(token, result);
            }
            Call::List(token) => {
                let result = decoded::<ListResult>(List::NAME, answer)
                    .map(|list| Answer::List(list.processes.into_iter().map(listed).collect()));
                self.answer(token, result);
            }
            Call::Ask { token, .. } => {
                let result = answer.map(|payload| Answer::Json(payload.as_json().into())).map_err(Failure::from);
                self.answer(token, result);
            }
            Call::Status(token) => {
                let result = decoded::<environment::StatusResult>(Status::NAME, answer).map(|_| Answer::Done);
                self.answer(token, result);
            }
        }
    }

    fn handle_started(&mut self, now: Instant, key: RouteKey, token: Token, names: &Names, answer: Raw<'_>) {
        let Some(route) = self.routes.get_mut(&key) else {
            return self.answer(token, Err(Failure::Closed));
        };
        route.start = Start::Done;
        let closing = self.closing.is_some();
        match answer {
            Err(error) => {
                let process_id = route.process_id.clone();
                self.forget(key);
                let asked = Asked { process_id: &process_id, program: &names.program, cwd: &names.cwd };
                let error = spawn_error::from_rpc(error, asked);
                self.answer(token, Err(Failure::Spawn(Box::new(error))));
            }
            Ok(payload) => {
                route.deadline = route.time_limit.and_then(|limit| now.checked_add(limit));
                let abandoned = route.abandoned;
                let result = decode::<StartResult>(method::Start::NAME, payload);
                // The stop of a place that is being closed was answered before there was a process.
                let outlived = closing && !route.detached && !route.stopping;
                if abandoned || outlived || result.is_err() {
                    // Either nobody wants it, or nobody can tell what it is. An earlier stop may have come too soon.
                    route.stopping = false;
                    route.released = true;
                    route.inbox.discard();
                    self.kill(key);
                }
                self.update(now, key);
                let started = |result: StartResult| {
                    let enforcement = result.longarm.and_then(|extension| extension.enforcement).map(Into::into);
                    Answer::Started(Started { sandbox_type: result.sandbox_type, enforcement })
                };
                self.answer(token, result.map(started));
            }
        }
    }

    fn handle_stopped(&mut self, now: Instant, key: RouteKey, token: Option<Token>, answer: Raw<'_>) {
        let result = decoded::<TerminateResult>(Terminate::NAME, answer).map(|result| Answer::Running(result.running));
        match token {
            Some(token) => self.answer(token, result),
            None => {
                if let Some(route) = self.routes.get_mut(&key) {
                    route.stopping = false;
                }
                self.update(now, key);
            }
        }
    }

    fn piece_result(&self, route: RouteKey, close: bool, answer: Raw<'_>) -> Result<(), Failure> {
        let process_id =
            || self.routes.get(&route).map_or_else(|| ProcessId::new(""), |route| route.process_id.clone());
        if close {
            return match decoded::<CloseStdinResult>(CloseStdin::NAME, answer)?.status {
                CloseStdinStatus::Accepted => Ok(()),
                CloseStdinStatus::StdinClosed => Err(Failure::StdinClosed),
                CloseStdinStatus::UnknownProcess => Err(Failure::UnknownProcess(process_id())),
            };
        }
        match decoded::<WriteResult>(Write::NAME, answer)?.status {
            WriteStatus::Accepted => Ok(()),
            WriteStatus::StdinClosed => Err(Failure::StdinClosed),
            WriteStatus::UnknownProcess => Err(Failure::UnknownProcess(process_id())),
            // It was started before anybody could write to it.
            WriteStatus::Starting => {
                Err(PeerMisbehaved::Protocol(format!("process {} is starting again", process_id())).into())
            }
        }
    }
}

fn decode<T: DeserializeOwned>(method: &str, payload: Payload<'_>) -> Result<T, Failure> {
    payload.decode::<T>().map_err(|error| error.into_bad_result(method).into())
}

fn decoded<T: DeserializeOwned>(method: &str, answer: Raw<'_>) -> Result<T, Failure> {
    decode(method, answer?)
}

/// One code stands for an unknown process, for a process without a terminal, and for more, so that the text must tell.
fn act_failure(error: RpcError, process_id: ProcessId, method: &str) -> Failure {
    match ErrorCode(error.code) {
        ErrorCode::INVALID_REQUEST if method == Resize::NAME && error.message.ends_with("has no terminal") => {
            Failure::NoTerminal(process_id)
        }
        ErrorCode::INVALID_REQUEST if is_unknown_process(&error) => Failure::UnknownProcess(process_id),
        ErrorCode::INVALID_PARAMS => InvalidRequest::Other(error.message).into(),
        _ => error.into(),
    }
}

/// Whether the peer says that it has no such process. The code alone also stands for limits and for the order of the
/// handshake.
pub(super) fn is_unknown_process(error: &RpcError) -> bool {
    error.code == ErrorCode::INVALID_REQUEST.0 && error.message.starts_with("unknown process id")
}

fn listed(process: extension::ListedProcess) -> ListedProcess {
    ListedProcess {
        process_id: process.process_id,
        state: match process.state {
            extension::ProcessState::Starting => ProcessState::Starting,
            extension::ProcessState::Running => ProcessState::Running,
            extension::ProcessState::Exited => ProcessState::Exited,
            extension::ProcessState::Closed => ProcessState::Closed,
        },
        next_seq: process.next_seq,
        tty: process.tty,
        exit_code: process.exit_code,
    }
}
