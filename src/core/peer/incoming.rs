//! What the attached client says: notifications take effect, and requests are refused or dispatched.

use std::sync::Arc;

use bytes::Bytes;

use super::process::Process;
use super::reply::{self, Reply};
use super::request::{Call, FileRequest, Request};
use super::{Fault, MAX_REQUEST_ID_BYTES, Peer, RESERVED_BYTES, RESERVED_CALLS, UNREADABLE};
use crate::core::stdin_queue::StdinQueue;
use crate::error::{Busy, PeerMisbehaved, RpcError};
use crate::fs::Symlinks;
use crate::info::Features;
use crate::time::Instant;
use crate::wire::RequestId;
use crate::wire::codec::{self, Message, Payload};
use crate::wire::extension::AckParams;
use crate::wire::fs_error;
use crate::wire::method::{self, Notification};
use crate::wire::trace::Trace;

/// Why a request is refused whatever it asks for.
enum Refusal {
    /// It may not be made.
    Never(String),
    /// There is no room for it now.
    TooMany(String),
}

impl Peer {
    /// A message of the attached client.
    ///
    /// # Errors
    ///
    /// What the client did that ends its connection.
    pub(crate) fn handle_message(&mut self, now: Instant, message: &Bytes) -> Result<(), PeerMisbehaved> {
        if self.connection.is_none() {
            return Ok(());
        }
        let config = Arc::clone(&self.config);
        if let Some((id, write)) = codec::hot::decode_write(message, &config.messages) {
            self.handle_request(now, id, message.len(), Trace::default(), |_| Ok(Request::Write(write)));
            return Ok(());
        }
        if self.offers.files
            && let Some((id, write)) = codec::hot::decode_write_block(message, &config.messages)
        {
            let request = Request::File(FileRequest::WriteBlock(write));
            self.handle_request(now, id, message.len(), Trace::default(), |_| Ok(request));
            return Ok(());
        }
        if self.offers.files
            && let Some((id, write)) = codec::hot::decode_write_file(message, &config.messages)
        {
            let request = Request::File(FileRequest::WriteFile(write));
            self.handle_request(now, id, message.len(), Trace::default(), |_| Ok(request));
            return Ok(());
        }
        let offers = self.offers;
        match codec::decode(message, &config.messages) {
            Err(malformed) => self.push_answer(RequestId::MALFORMED, Reply::Fault(Fault::malformed(&malformed))),
            Ok(Message::Request { id, method, params, trace }) => {
                let trace = trace.as_ref().map(Trace::of).unwrap_or_default();
                self.handle_request(now, id, message.len(), trace, |features| {
                    Request::decode(&method, params, features, offers)
                });
            }
            Ok(Message::Notification { method, params }) => return self.handle_notification(now, &method, params),
            Ok(Message::Response { id, .. } | Message::Error { id, .. }) => {
                return Err(PeerMisbehaved::Protocol(format!("an answer with id {id}, which was never asked")));
            }
        }
        Ok(())
    }

    fn handle_notification(&mut self, now: Instant, method: &str, params: Payload<'_>) -> Result<(), PeerMisbehaved> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match method {
            method::Initialized::NAME => connection.initialized = true,
            method::Ack::NAME if connection.features.credits => {
                let AckParams { acks } =
                    params.decode().map_err(|error| PeerMisbehaved::Malformed { reason: error.to_string() })?;
                for (id, seq) in acks {
                    // One that is forgotten, or was never there, needs no acknowledgement.
                    if let Some((key, process)) = self.process_of(&id) {
                        process.log.acknowledge(seq);
                        self.update_retention(now, key);
                    }
                }
            }
            method::HttpCredit::NAME if connection.features.http => {
                let params =
                    params.decode().map_err(|error| PeerMisbehaved::Malformed { reason: error.to_string() })?;
                self.credit_body(&params);
            }
            method::HttpCancel::NAME if connection.features.http => {
                let params =
                    params.decode().map_err(|error| PeerMisbehaved::Malformed { reason: error.to_string() })?;
                self.cancel_http(&params);
            }
            _ => return Err(PeerMisbehaved::Protocol(format!("unexpected notification {method:?}"))),
        }
        Ok(())
    }

    fn handle_request(
        &mut self,
        now: Instant,
        id: RequestId,
        bytes: usize,
        trace: Trace,
        decode: impl FnOnce(Features) -> Result<Request, Fault>,
    ) {
        let request = match decode(self.features()) {
            Ok(request) => request,
            Err(fault) => {
                let number = self.records.arrived(UNREADABLE, trace);
                self.records.answered(number, false);
                return self.push_answer(id, Reply::Fault(fault));
            }
        };
        let number = self.records.arrived(request.method(), trace);
        if let Some(refusal) = self.refusal(&id, &request, bytes) {
            let fault = match (&request, refusal) {
                // Such a client knows that it may ask again.
                (Request::File(_), Refusal::TooMany(text)) if self.features().fs => {
                    let limit = self.connection.as_ref().map_or(0, |connection| connection.calls);
                    let busy = fs_error::to_rpc(&Busy { limit }.into(), "", Symlinks::Follow, true);
                    RpcError { message: text, ..busy }.into()
                }
                (_, Refusal::Never(text) | Refusal::TooMany(text)) => Fault::invalid_request(text),
            };
            self.records.answered(number, false);
            self.push_answer(id, Reply::Fault(fault));
            return self.note_refusal(&request);
        }
        let Some(connection) = &mut self.connection else { return };
        connection.calls += 1;
        connection.call_bytes += bytes;
        let call = Call { connection: connection.number, id, number, bytes };
        self.dispatch(now, call, request);
    }

    /// Why a request is refused whatever it asks for: the state of the handshake, or a limit.
    fn refusal(&self, id: &RequestId, request: &Request, bytes: usize) -> Option<Refusal> {
        let connection = self.connection.as_ref()?;
        if matches!(request, Request::Initialize(_)) {
            return Some(Refusal::Never("initialize may only be sent once per connection".into()));
        }
        if !connection.initialized {
            let text = format!("client must send initialized before using {} methods", request.family());
            return Some(Refusal::Never(text));
        }
        if reply::id_bytes(id) > MAX_REQUEST_ID_BYTES {
            return Some(Refusal::Never(format!("a request id is longer than {MAX_REQUEST_ID_BYTES} bytes")));
        }
        let limit = self.config.max_requests_in_flight;
        // A client that has filled the limit can still end processes and ask for things.
        let reserve = if request.may_wait() { 0 } else { RESERVED_CALLS };
        if connection.calls >= limit.saturating_add(reserve) {
            return Some(Refusal::TooMany(format!("more than {limit} requests without an answer")));
        }
        let limit = self.config.max_request_bytes_in_flight;
        if let Some((process, size)) = self.input_of(request) {
            // What its process has room for is taken however much waits for others.
            let (before, after) = (process.stdin.excess_bytes(), process.stdin.excess_with(size));
            let too_much = after > before && self.stdin_excess.saturating_add(after - before) > limit;
            let text = || format!("more than {limit} bytes of input wait for processes to read theirs");
            return too_much.then(|| Refusal::TooMany(text()));
        }
        let reserve = if request.may_wait() { 0 } else { RESERVED_BYTES };
        if connection.call_bytes.saturating_add(bytes) > limit.saturating_add(reserve) {
            let text = format!("more than {limit} bytes of requests without an answer");
            return Some(Refusal::TooMany(text));
        }
        None
    }

    /// The process that a write is for, if it goes to its queue at once, and how much that holds.
    fn input_of(&self, request: &Request) -> Option<(&Process, usize)> {
        let Request::Write(write) = request else { return None };
        let process = self.processes.get(self.processes.key(&write.process_id)?)?;
        (!process.is_starting()).then(|| (process, write.chunk.0.len().saturating_add(write.write_id.len())))
    }

    /// A client that does not wait for the answers to its writes may have sent later ones already, which must not be applied
    /// without the one that was refused.
    fn note_refusal(&mut self, request: &Request) {
        let Request::Write(write) = request else { return };
        if self.features().any()
            && let Some(key) = self.processes.key(&write.process_id)
        {
            self.with_stdin(key, StdinQueue::handle_refusal);
        }
    }
}
