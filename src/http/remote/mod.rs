//! The HTTP requests of a place behind a connection: the peer makes them.
//!
//! # Towards a plain peer
//!
//! | asked for | what happens |
//! | --- | --- |
//! | a body that is read slowly | the peer cannot be slowed down: up to [`http_buffer_bytes`](crate::config::ClientConfig::http_buffer_bytes) of all bodies are held, then the body that has come ends in [`HttpError::Overflow`] |
//! | a body that is given up | the peer cannot be told: it goes on, and what it sends is let go |
//! | a request that is given up before its answer | the peer goes on with it |
//! | [`HttpClient::send`] | the body is streamed and collected here, since the peer knows no bound |
//! | an error | [`HttpError::Failed`] with the peer's text, without URLs; few causes can be told apart |

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;

use super::error::origin_of;
use super::{
    Headers, HttpBody, HttpClient, HttpError, HttpRequest, HttpResponse, Redirects, RequestHeader, StreamedResponse,
};
use crate::backend::ExecBackend as _;
use crate::backend::remote::Remote;
use crate::backend::remote::bodies::{Bound, Found};
use crate::core::session::{Failure, LinkId};
use crate::error::{CallError, Disconnected, PeerMisbehaved, Sent, Unsupported};
use crate::info::Features;
use crate::wire::Base64;
use crate::wire::http::{CancelParams, CreditParams, RedirectPolicy, RequestExtension, RequestParams, RequestResult};
use crate::wire::{http, http_error, method};

/// The HTTP requests of the place behind a [`Remote`].
#[derive(Clone, Debug)]
pub(crate) struct RemoteHttpClient {
    remote: Remote,
}

impl RemoteHttpClient {
    pub(crate) const fn new(remote: Remote) -> Self {
        Self { remote }
    }

    /// What the peer has, once it has said so; and whether it would not send what the request needs.
    async fn features(&self, request: &HttpRequest) -> Result<Features, HttpError> {
        if self.remote.ready().await.is_err() {
            return Err(self.remote.not_connected(Sent::NotSent).into());
        }
        if request.headers.iter().any(|header| header.variable.is_some()) {
            let info = self.remote.info().await.map_err(of_call)?;
            if !info.capabilities.iter().any(|flag| flag == "httpHeaderEnvVars") {
                // It would send the header without the value.
                let feature = "a header from a variable of the executor";
                return Err(Unsupported { feature, place: "the peer".into() }.into());
            }
        }
        Ok(self.remote.agreed_features().unwrap_or_default())
    }

    /// Makes a request over a connection that stands, and waits for one. What it is to answer belongs to that connection; if
    /// that breaks before the request has left, it goes over the next one.
    async fn ask<T: Ends + Send>(
        &self,
        origin: &str,
        params: impl Fn(LinkId) -> (RequestParams, T) + Send,
    ) -> Result<(RequestResult, T), HttpError> {
        loop {
            let on = self.remote.standing_connection().await?;
            let (params, mut guard) = params(on);
            let result = self.remote.ask_over::<method::HttpRequest>(Some(on), params).await;
            if result.is_err() {
                guard.end();
            }
            match result {
                Ok(result) => return Ok((result, guard)),
                Err(Failure::Disconnected(Disconnected { sent: Sent::NotSent, .. })) => {}
                Err(failure) => return Err(of_failure(failure, origin)),
            }
        }
    }

    /// Makes a request whose body is streamed, and held within the bound until it is read.
    async fn open(
        &self,
        request: HttpRequest,
        features: Features,
        bound: Bound,
    ) -> Result<StreamedResponse, HttpError> {
        let origin = origin_of(&request.url);
        let bodies = self.remote.bodies();
        let ask = |on| {
            let id = bodies.next_id();
            let credit_bytes = bodies.add(&id, &origin, bound, on);
            let longarm =
                credit_bytes.map(|bytes| RequestExtension { credit_bytes: Some(bytes), max_body_bytes: None });
            // From here on, dropping it gives the request up.
            let reader = Reader { remote: self.remote.clone(), id: id.clone(), extended: features.http, ended: false };
            (params(request.clone(), id, true, longarm), reader)
        };
        let (RequestResult { status, headers, .. }, reader) = self.ask(&origin, ask).await?;
        Ok(StreamedResponse { status, headers: headers_of(headers), body: HttpBody::new(reader) })
    }
}

#[async_trait::async_trait]
impl HttpClient for RemoteHttpClient {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let features = self.features(&request).await?;
        let limit = request.max_body_bytes;
        if !features.http || limit > MAX_WHOLE_BODY_BYTES {
            let bound = if features.http { Bound::Window } else { Bound::Own(limit) };
            let StreamedResponse { status, headers, body } = self.open(request, features, bound).await?;
            return Ok(HttpResponse { status, headers, body: body.collect(limit).await? });
        }
        let origin = origin_of(&request.url);
        let ask = |_| {
            let id = self.remote.bodies().next_id();
            let longarm = Some(RequestExtension { credit_bytes: None, max_body_bytes: Some(limit) });
            let cancel = Cancel { remote: &self.remote, id: Some(id.clone()) };
            (params(request.clone(), id, false, longarm), cancel)
        };
        let (result, mut cancel) = self.ask(&origin, ask).await?;
        cancel.end();
        let RequestResult { status, headers, body_base64: Base64(body) } = result;
        if body.len() as u64 > limit {
            return Err(HttpError::BodyTooLarge { limit });
        }
        Ok(HttpResponse { status, headers: headers_of(headers), body })
    }

    async fn stream(&self, request: HttpRequest) -> Result<StreamedResponse, HttpError> {
        let features = self.features(&request).await?;
        let bound = if features.http { Bound::Window } else { Bound::Shared };
        self.open(request, features, bound).await
    }
}

/// The body of a response, on this side of the connection.
#[derive(Debug)]
struct Reader {
    remote: Remote,
    id: String,
    extended: bool,
    /// The peer has refused the request.
    ended: bool,
}

impl Stream for Reader {
    type Item = Result<Bytes, HttpError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Found { result, credit_bytes } = ready!(self.remote.bodies().poll(&self.id, cx));
        if let Some(credit_bytes) = credit_bytes {
            self.remote.notify::<method::HttpCredit>(&CreditParams { request_id: self.id.clone(), credit_bytes });
        }
        Poll::Ready(result.transpose())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let may_come = self.remote.bodies().remove(&self.id);
        if may_come && self.extended && !self.ended {
            self.remote.notify::<method::HttpCancel>(&CancelParams { request_id: std::mem::take(&mut self.id) });
        }
    }
}

/// What gives a request up when it is dropped, unless the request has come to an end.
trait Ends {
    fn end(&mut self);
}

impl Ends for Reader {
    fn end(&mut self) {
        self.ended = true;
    }
}

impl Ends for Cancel<'_> {
    fn end(&mut self) {
        self.id = None;
    }
}

/// Gives a request up, unless it is answered.
struct Cancel<'a> {
    remote: &'a Remote,
    id: Option<String>,
}

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        if let Some(request_id) = self.id.take() {
            self.remote.notify::<method::HttpCancel>(&CancelParams { request_id });
        }
    }
}

fn params(request: HttpRequest, id: String, stream: bool, longarm: Option<RequestExtension>) -> RequestParams {
    let headers = request.headers.into_iter();
    RequestParams {
        method: request.method,
        url: request.url,
        headers: headers
            .map(|RequestHeader { name, value, variable }| http::RequestHeader { name, value, value_env_var: variable })
            .collect(),
        body_base64: request.body.map(Base64),
        timeout_ms: request.timeout.map(millis),
        redirect_policy: match request.redirects {
            Redirects::Follow => RedirectPolicy::Follow,
            Redirects::Stop => RedirectPolicy::Stop,
        },
        request_id: id,
        stream_response: stream,
        longarm,
    }
}

/// Whole milliseconds, and not none where there is some time.
fn millis(time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 && !time.is_zero() { 1 } else { millis }
}

fn headers_of(headers: Vec<http::ResponseHeader>) -> Headers {
    headers.into_iter().map(|http::ResponseHeader { name, value }| (name, value)).collect()
}

fn of_failure(failure: Failure, origin: &str) -> HttpError {
    match failure {
        Failure::Remote(answer) => http_error::from_rpc(answer, origin),
        Failure::Unsupported(error) => error.into(),
        Failure::Busy(error) => error.into(),
        Failure::Disconnected(error) => error.into(),
        Failure::Peer(error) => error.into(),
        Failure::Closed => HttpError::Closed,
        other => PeerMisbehaved::Protocol(format!("an error of another kind: {other:?}")).into(),
    }
}

fn of_call(error: CallError) -> HttpError {
    match error {
        CallError::Unsupported(error) => error.into(),
        CallError::Busy(error) => error.into(),
        CallError::Disconnected(error) => error.into(),
        CallError::Peer(error) => error.into(),
        CallError::Remote(error) => error.into(),
        _ => HttpError::Closed,
    }
}

/// Larger bodies come in pieces, so that nothing else on the connection waits for long.
const MAX_WHOLE_BODY_BYTES: u64 = 1 << 20;
