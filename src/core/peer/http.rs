//! HTTP: the requests that the place makes for a connection, and the bodies of their responses on the way.
//!
//! ```text
//!   (free) ─ request ─▶ waiting ─ head ─▶ collecting ─ end of the body, failure ─▶ answered ─▶ (free)
//!                          │         └─▶ streaming ── last notification, cancel ────────────▶ (free)
//!                          └─ failure, cancel ─▶ answered ─▶ (free)
//! ```
//!
//! Rules beyond those of the [session](super):
//!
//! - Bodies are pulled. Of a streamed one, the next piece is asked for when the last has left; it leaves in turn with the
//!   events of processes, and, to a client that gives credit, only within that. So what is held of it is one piece.
//! - A body that is not streamed is collected up to its bound, and all of them together up to another.
//! - The answer goes before the first notification of a body. The last one says that it is, and frees the id.

use std::collections::HashMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::action::{Action, HttpHead, HttpKey};
use super::fault::Fault;
use super::fit;
use super::reply::Reply;
use super::request::Call;
use super::{MAX_REQUEST_ID_BYTES, Peer, Turn};
use crate::error::Busy;
use crate::http::{HttpError, HttpRequest, InvalidHttpRequest, Redirects, RequestHeader};
use crate::wire::http::{
    BodyDeltaParams, CancelParams, CreditParams, RedirectPolicy, RequestParams, RequestResult, ResponseHeader,
};
use crate::wire::method::{self, Method};
use crate::wire::{Base64, codec, fs, http_error};

/// What a connection has of HTTP.
#[derive(Debug, Default)]
pub(super) struct Http {
    exchanges: HashMap<HttpKey, Exchange>,
    /// Ids of streams in use.
    streams: HashMap<String, HttpKey>,
    /// Bytes of bodies that are being collected.
    collected_bytes: usize,
}

#[derive(Debug)]
struct Exchange {
    request_id: String,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Waiting { call: Call, wanted: Wanted },
    Collecting { call: Call, head: HttpHead, body: BytesMut, limit: u64 },
    Streaming(Body),
}

/// What is to become of the body.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Whole { limit: u64 },
    Streamed { credit_bytes: Option<u64> },
}

/// A body that is streamed.
#[derive(Debug)]
struct Body {
    last_seq: u64,
    sent_bytes: u64,
    /// How many may be sent, if the client says.
    credit_bytes: Option<u64>,
    next: Next,
    in_round: bool,
}

/// What follows of a body.
#[derive(Debug)]
enum Next {
    /// It was asked for.
    Pulled,
    Bytes(Bytes),
    End(Option<HttpError>),
}

impl Body {
    /// How many of the bytes that are there may leave. An end always may.
    fn allowed(&self) -> usize {
        let Next::Bytes(bytes) = &self.next else { return 0 };
        let credit = self.credit_bytes.map_or(u64::MAX, |credit| credit.saturating_sub(self.sent_bytes));
        bytes.len().min(DELTA_BYTES).min(usize::try_from(credit).unwrap_or(usize::MAX))
    }

    fn may_send(&self) -> bool {
        matches!(self.next, Next::End(_)) || self.allowed() > 0
    }
}

impl Http {
    /// Whether the driver may hold something for it.
    pub(super) fn is_used(&self) -> bool {
        !self.exchanges.is_empty()
    }

    fn body(&mut self, exchange: HttpKey) -> Option<&mut Body> {
        match &mut self.exchanges.get_mut(&exchange)?.phase {
            Phase::Streaming(body) => Some(body),
            Phase::Waiting { .. } | Phase::Collecting { .. } => None,
        }
    }

    /// Forgets an exchange. Returns the call, if it has no answer yet.
    fn remove(&mut self, exchange: HttpKey) -> Option<Call> {
        let Exchange { request_id, phase } = self.exchanges.remove(&exchange)?;
        if self.streams.get(&request_id) == Some(&exchange) {
            self.streams.remove(&request_id);
        }
        match phase {
            Phase::Waiting { call, .. } => Some(call),
            Phase::Collecting { call, body, .. } => {
                self.collected_bytes -= body.len();
                Some(call)
            }
            Phase::Streaming(_) => None,
        }
    }
}

impl Peer {
    pub(super) fn http(&mut self, call: Call, params: RequestParams) {
        let extension = params.longarm.filter(|_| self.features().http).unwrap_or_default();
        // What surrounds the bytes of a file in a message also surrounds those of a body.
        let largest = self.config.max_http_body_bytes.min(fs::whole_file_bytes(self.config.max_answer_bytes));
        let wanted = if params.stream_response {
            Wanted::Streamed { credit_bytes: extension.credit_bytes }
        } else {
            Wanted::Whole { limit: extension.max_body_bytes.map_or(largest, |asked| asked.min(largest)) }
        };
        let limit = self.config.max_http_requests;
        let exchange = HttpKey(self.next_ticket());
        let Some(http) = self.connection.as_mut().map(|connection| &mut connection.http) else { return };
        if http.exchanges.len() >= limit {
            return self.refuse_http(call, &Busy { limit }.into());
        }
        let request_id = params.request_id.clone();
        if request_id.len() > MAX_REQUEST_ID_BYTES {
            let text = format!("http/request requestId is longer than {MAX_REQUEST_ID_BYTES} bytes");
            return self.refuse_http(call, &InvalidHttpRequest::Other(text).into());
        }
        if params.stream_response {
            if http.streams.contains_key(&request_id) {
                return self.refuse_http(call, &InvalidHttpRequest::IdInUse { id: request_id }.into());
            }
            http.streams.insert(request_id.clone(), exchange);
        }
        http.exchanges.insert(exchange, Exchange { request_id, phase: Phase::Waiting { call, wanted } });
        self.actions.push_back(Action::Http { exchange, request: Box::new(request(params)) });
    }

    fn refuse_http(&mut self, call: Call, error: &HttpError) {
        let fault: Fault = http_error::to_rpc(error, self.features().http).into();
        self.answer(call, Reply::Fault(fault));
    }

    /// The head of a response has come, or none will.
    pub(super) fn http_head(&mut self, exchange: HttpKey, result: Result<HttpHead, HttpError>) {
        let head = match result {
            Ok(head) => head,
            Err(error) => return self.fail_http(exchange, &error),
        };
        let Some(http) = self.connection.as_mut().map(|connection| &mut connection.http) else { return };
        let Some(Exchange { request_id, phase: Phase::Waiting { call, wanted } }) = http.exchanges.remove(&exchange)
        else {
            return;
        };
        let phase = match wanted {
            Wanted::Whole { limit } => Phase::Collecting { call, head, body: BytesMut::new(), limit },
            Wanted::Streamed { credit_bytes } => {
                let reply = self.fitting_response(&call, head, Bytes::new());
                let is_refused = matches!(reply, Reply::Fault(_));
                self.answer(call, reply);
                if is_refused {
                    // No body follows an answer that does not fit.
                    if let Some(connection) = &mut self.connection {
                        connection.http.streams.remove(&request_id);
                    }
                    self.actions.push_back(Action::ForgetHttp { exchange });
                    return;
                }
                Phase::Streaming(Body { last_seq: 0, sent_bytes: 0, credit_bytes, next: Next::Pulled, in_round: false })
            }
        };
        if let Some(connection) = &mut self.connection {
            connection.http.exchanges.insert(exchange, Exchange { request_id, phase });
            self.actions.push_back(Action::PullBody { exchange });
        }
    }

    /// Bytes of a body have come, or its end.
    pub(super) fn http_body(&mut self, exchange: HttpKey, result: Result<Option<Bytes>, HttpError>) {
        let Some(connection) = &mut self.connection else { return };
        let held_bytes = connection.http.collected_bytes.saturating_add(connection.files.held_bytes());
        let Some(Exchange { phase, .. }) = connection.http.exchanges.get_mut(&exchange) else { return };
        match phase {
            Phase::Waiting { .. } => debug_assert!(false, "a body before its head"),
            Phase::Streaming(body) => {
                body.next = match result {
                    Ok(Some(bytes)) => Next::Bytes(bytes),
                    Ok(None) => Next::End(None),
                    Err(error) => Next::End(Some(error)),
                };
                self.enter_body(exchange);
            }
            Phase::Collecting { body, limit, .. } => match result {
                Err(error) => self.fail_http(exchange, &error),
                Ok(None) => self.collected(exchange),
                Ok(Some(bytes)) => {
                    let all_limit = self.config.max_http_bytes_in_flight;
                    if (body.len() as u64).saturating_add(bytes.len() as u64) > *limit {
                        let limit = *limit;
                        self.give_up_http(exchange, &HttpError::BodyTooLarge { limit });
                    } else if held_bytes.saturating_add(bytes.len()) > all_limit {
                        self.give_up_http(exchange, &HttpError::Overflow { limit: all_limit as u64 });
                    } else {
                        body.extend_from_slice(&bytes);
                        connection.http.collected_bytes += bytes.len();
                        self.actions.push_back(Action::PullBody { exchange });
                    }
                }
            },
        }
    }

    /// A whole body is there.
    fn collected(&mut self, exchange: HttpKey) {
        let Some(http) = self.connection.as_mut().map(|connection| &mut connection.http) else { return };
        let Some(Exchange { phase, .. }) = http.exchanges.remove(&exchange) else { return };
        let Phase::Collecting { call, head, body, .. } = phase else { return };
        http.collected_bytes -= body.len();
        let reply = self.fitting_response(&call, head, body.freeze());
        self.answer_bulky(call, reply);
    }

    /// The response as an answer, if a message may be so large.
    fn fitting_response(&self, call: &Call, head: HttpHead, body: Bytes) -> Reply {
        fit::fitting(response(head, body), &call.id, method::HttpRequest::NAME, self.config.max_answer_bytes)
    }

    /// Answers a request that failed. Of a stream whose head was told, the body has an end of its own.
    fn fail_http(&mut self, exchange: HttpKey, error: &HttpError) {
        let Some(connection) = &mut self.connection else { return };
        if let Some(call) = connection.http.remove(exchange) {
            self.refuse_http(call, error);
        }
    }

    /// The same, while the place is still at it.
    fn give_up_http(&mut self, exchange: HttpKey, error: &HttpError) {
        self.actions.push_back(Action::ForgetHttp { exchange });
        self.fail_http(exchange, error);
    }

    /// The client lets more of a body come.
    pub(super) fn credit_body(&mut self, params: &CreditParams) {
        let Some(http) = self.connection.as_mut().map(|connection| &mut connection.http) else { return };
        // One that has ended needs none.
        let Some(exchange) = http.streams.get(&params.request_id).copied() else { return };
        match http.exchanges.get_mut(&exchange).map(|exchange| &mut exchange.phase) {
            Some(Phase::Waiting { wanted: Wanted::Streamed { credit_bytes: Some(credit) }, .. }) => {
                *credit = (*credit).max(params.credit_bytes);
            }
            Some(Phase::Streaming(Body { credit_bytes: Some(credit), .. })) => {
                *credit = (*credit).max(params.credit_bytes);
                self.enter_body(exchange);
            }
            _ => {}
        }
    }

    /// Nobody at the client waits for a request any more.
    pub(super) fn cancel_http(&mut self, params: &CancelParams) {
        let Some(http) = self.connection.as_ref().map(|connection| &connection.http) else { return };
        let named = |(key, exchange): (&HttpKey, &Exchange)| (exchange.request_id == params.request_id).then_some(*key);
        let mut named: Vec<_> = http.exchanges.iter().filter_map(named).collect();
        named.sort_unstable_by_key(|exchange| exchange.0);
        for exchange in named {
            self.give_up_http(exchange, &HttpError::Closed);
        }
    }

    /// Puts a body that has something to send into the round.
    fn enter_body(&mut self, exchange: HttpKey) {
        let Some(connection) = &mut self.connection else { return };
        let Some(body) = connection.http.body(exchange) else { return };
        if !body.in_round && body.may_send() {
            body.in_round = true;
            self.round.push_back(Turn::Body(exchange));
        }
    }

    /// The next notification about a body whose turn it is.
    pub(super) fn next_delta_of(&mut self, exchange: HttpKey) -> Option<Bytes> {
        let detailed = self.features().http;
        let http = &mut self.connection.as_mut()?.http;
        let request_id = http.exchanges.get(&exchange)?.request_id.clone();
        let body = http.body(exchange)?;
        body.in_round = false;
        if !body.may_send() {
            return None;
        }
        body.last_seq += 1;
        let seq = body.last_seq;
        let allowed = body.allowed();
        let mut delta = BodyDeltaParams {
            request_id,
            seq,
            delta_base64: Base64::default(),
            done: false,
            error: None,
            longarm: None,
        };
        match &mut body.next {
            Next::Pulled => return None,
            Next::Bytes(bytes) => {
                delta.delta_base64 = Base64(bytes.split_to(allowed));
                body.sent_bytes = body.sent_bytes.saturating_add(allowed as u64);
                if bytes.is_empty() {
                    body.next = Next::Pulled;
                    self.actions.push_back(Action::PullBody { exchange });
                }
                self.enter_body(exchange);
            }
            Next::End(error) => {
                delta.done = true;
                if let Some(error) = error {
                    let (text, extension) = http_error::to_delta(error, detailed);
                    delta.error = Some(text);
                    delta.longarm = extension;
                }
                http.remove(exchange);
            }
        }
        Some(codec::encode_notification::<method::BodyDelta>(&delta))
    }
}

fn request(params: RequestParams) -> HttpRequest {
    let mut request = HttpRequest::new(params.method, params.url);
    let headers = params.headers.into_iter();
    request.headers = headers
        .map(|header| RequestHeader { name: header.name, value: header.value, variable: header.value_env_var })
        .collect();
    request.body = params.body_base64.map(Bytes::from);
    request.timeout = params.timeout_ms.map(Duration::from_millis);
    request.redirects = match params.redirect_policy {
        RedirectPolicy::Follow => Redirects::Follow,
        RedirectPolicy::Stop => Redirects::Stop,
    };
    request
}

fn response(head: HttpHead, body: Bytes) -> Reply {
    let headers = head.headers.iter();
    let headers = headers.map(|(name, value)| ResponseHeader { name: name.into(), value: value.into() }).collect();
    Reply::Http(Box::new(RequestResult { status: head.status, headers, body_base64: Base64(body) }))
}

/// Bytes of a body in one notification. As little as a piece of output, so that an event of a process waits no longer for
/// its turn.
const DELTA_BYTES: usize = 64 << 10;
