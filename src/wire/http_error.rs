//! The errors of HTTP requests on the wire.
//!
//! To every peer they are a code and a text, as the reference has them, save that the cause is told and the URL is not. A
//! peer with the extension's feature `http` also finds `data.longarm`, from which the same [`HttpError`] is made again.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::error_code::ErrorCode;
use super::http::BodyDeltaExtension;
use super::process::RawObject;
use crate::error::{Busy, Disconnected, RpcError, Sent, Unsupported};
use crate::http::{HttpError, InvalidHttpRequest, MAX_REDIRECTS};

/// The error answer that stands for `error`; with all that it names, if the peer is to have that.
pub fn to_rpc(error: &HttpError, detailed: bool) -> RpcError {
    // A server in front of another one passes its answers on as they are.
    if let HttpError::Remote(answer) = error {
        return answer.clone();
    }
    let (code, message) = match error {
        HttpError::InvalidRequest(invalid) => (ErrorCode::INVALID_PARAMS, invalid_text(invalid)),
        HttpError::TooManyRedirects { .. } => (ErrorCode::INTERNAL, format!("{FAILED}{TOO_MANY_REDIRECTS}")),
        HttpError::BodyCut { .. } | HttpError::BodyTooLarge { .. } | HttpError::TimedOut { in_body: true, .. } => {
            (ErrorCode::INTERNAL, format!("{BODY_FAILED}{error}"))
        }
        _ => (ErrorCode::INTERNAL, format!("{FAILED}{error}")),
    };
    let detail = if detailed { Detail::of(error) } else { None };
    let data = detail.and_then(|longarm| serde_json::to_string(&Data { longarm }).ok());
    RpcError { code: code.0, message, data }
}

/// The error that an answer to a request to `origin` stands for. No text has a URL, whatever the peer put there.
pub fn from_rpc(answer: RpcError, origin: &str) -> HttpError {
    let data = answer.data.as_deref().and_then(|data| serde_json::from_str::<AnyData>(data).ok());
    let detail = data.and_then(|data| serde_json::from_str::<Detail>(data.longarm?.get()).ok());
    if let Some(detail) = detail {
        return detail.into_error(origin);
    }
    let origin = origin.to_owned();
    match ErrorCode(answer.code) {
        ErrorCode::METHOD_NOT_FOUND => Unsupported { feature: "HTTP", place: "the peer".into() }.into(),
        ErrorCode::INVALID_PARAMS => invalid(&answer.message).into(),
        ErrorCode::INTERNAL => {
            if let Some(reason) = answer.message.strip_prefix(BODY_FAILED) {
                return HttpError::BodyCut { origin, reason: without_urls(reason) };
            }
            match answer.message.strip_prefix(FAILED) {
                Some(TOO_MANY_REDIRECTS) => HttpError::TooManyRedirects { origin, limit: MAX_REDIRECTS },
                Some(reason) => HttpError::Failed { origin, reason: without_urls(reason) },
                None => remote(answer),
            }
        }
        _ => remote(answer),
    }
}

/// The text by which every peer is told why a body ended, and for a peer with the extension the whole error.
pub fn to_delta(error: &HttpError, detailed: bool) -> (String, Option<BodyDeltaExtension>) {
    let detail = if detailed { Detail::of(error) } else { None };
    let detail = detail.and_then(|detail| RawObject::from_json(&serde_json::to_string(&detail).ok()?).ok());
    (error.to_string(), detail.map(|error| BodyDeltaExtension { error: Some(error) }))
}

/// The error by which the body of a request to `origin` ended.
pub fn from_delta(text: &str, extension: Option<&BodyDeltaExtension>, origin: &str) -> HttpError {
    let detail = extension.and_then(|extension| extension.error.as_ref());
    match detail.and_then(|detail| serde_json::from_str::<Detail>(detail.as_json()).ok()) {
        Some(detail) => detail.into_error(origin),
        None => HttpError::BodyCut { origin: origin.into(), reason: without_urls(text) },
    }
}

fn invalid_text(invalid: &InvalidHttpRequest) -> String {
    match invalid {
        InvalidHttpRequest::Method { reason } => format!("{METHOD}{reason}"),
        InvalidHttpRequest::Url { reason } => format!("{URL}{reason}"),
        InvalidHttpRequest::Scheme { scheme } => format!("{SCHEME}{scheme}"),
        InvalidHttpRequest::HeaderName { reason } => format!("{HEADER_NAME}{reason}"),
        InvalidHttpRequest::HeaderValue { name, reason } => format!("{HEADER_VALUE}{name}: {reason}"),
        InvalidHttpRequest::VariableNotSet { name, variable } => format!("{HEADER}{name}{NOT_SET}{variable}"),
        InvalidHttpRequest::VariableEmpty { name, variable } => format!("{HEADER}{name}{EMPTY}{variable}"),
        InvalidHttpRequest::VariableProtected { name, variable } => format!("{HEADER}{name}{PROTECTED}{variable}"),
        InvalidHttpRequest::IdInUse { id } => format!("{ID}{id}{IN_USE}"),
        InvalidHttpRequest::Other(text) => text.clone(),
    }
}

/// What an answer with the code of invalid parameters stands for, by its text.
fn invalid(text: &str) -> InvalidHttpRequest {
    let after = |prefix: &str| text.strip_prefix(prefix).map(str::to_owned);
    if let Some(reason) = after(METHOD) {
        return InvalidHttpRequest::Method { reason };
    }
    if let Some(reason) = after(URL) {
        return InvalidHttpRequest::Url { reason: without_urls(&reason) };
    }
    if let Some(scheme) = after(SCHEME) {
        return InvalidHttpRequest::Scheme { scheme };
    }
    if let Some(reason) = after(HEADER_NAME) {
        return InvalidHttpRequest::HeaderName { reason };
    }
    if let Some((name, reason)) = text.strip_prefix(HEADER_VALUE).and_then(|rest| rest.split_once(": ")) {
        return InvalidHttpRequest::HeaderValue { name: name.into(), reason: reason.into() };
    }
    if let Some(id) = text.strip_prefix(ID).and_then(|rest| rest.strip_suffix(IN_USE)) {
        return InvalidHttpRequest::IdInUse { id: id.into() };
    }
    let variable = |middle: &str| {
        let (name, variable) = text.strip_prefix(HEADER)?.split_once(middle)?;
        Some((name.to_owned(), variable.to_owned()))
    };
    if let Some((name, variable)) = variable(NOT_SET) {
        return InvalidHttpRequest::VariableNotSet { name, variable };
    }
    if let Some((name, variable)) = variable(EMPTY) {
        return InvalidHttpRequest::VariableEmpty { name, variable };
    }
    if let Some((name, variable)) = variable(PROTECTED) {
        return InvalidHttpRequest::VariableProtected { name, variable };
    }
    InvalidHttpRequest::Other(without_urls(text))
}

fn remote(answer: RpcError) -> HttpError {
    let message = without_urls(&answer.message);
    RpcError { message, data: None, ..answer }.into()
}

/// The text without what may be a URL, as the reference shows them: whole, with all that they carry.
fn without_urls(text: &str) -> String {
    let is_url = |word: &str| word.contains("://");
    if !is_url(text) {
        return text.into();
    }
    // As it is written, in parentheses behind these words, it may hold blanks and parentheses.
    if let Some((before, after)) = text.split_once(" for url (") {
        let after = after.rsplit_once(')').map_or("", |(_, after)| after);
        return without_urls(&format!("{before}{after}"));
    }
    text.split(' ').map(|word| if is_url(word) { "(URL)" } else { word }).collect::<Vec<_>>().join(" ")
}

#[derive(Serialize)]
struct Data {
    longarm: Detail,
}

/// The data of any peer, whose members may be anything.
#[derive(Deserialize)]
struct AnyData {
    longarm: Option<Box<RawValue>>,
}

/// An [`HttpError`] with all that it names. An origin that is absent is that of the request's own URL.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Detail {
    Method { reason: String },
    Url { reason: String },
    Scheme { scheme: String },
    HeaderName { reason: String },
    HeaderValue { name: String, reason: String },
    VariableNotSet { name: String, variable: String },
    VariableEmpty { name: String, variable: String },
    VariableProtected { name: String, variable: String },
    IdInUse { id: String },
    InvalidRequest { reason: String },
    NameNotResolved { origin: String, reason: String },
    ConnectionRefused { origin: String },
    Connect { origin: String, reason: String },
    Certificate { origin: String, reason: String },
    TimedOut { origin: String, in_body: bool },
    TooManyRedirects { origin: String, limit: usize },
    RedirectScheme { origin: String, scheme: String },
    BodyTooLarge { limit: u64 },
    BodyCut { origin: String, reason: String },
    Overflow { limit: u64 },
    Failed { origin: String, reason: String },
    Unsupported { reason: String },
    Busy { limit: usize },
    Disconnected { may_have_run: bool, reason: String },
    Closed,
}

impl Detail {
    /// None for errors that mean something to this end only.
    fn of(error: &HttpError) -> Option<Self> {
        Some(match error.clone() {
            HttpError::InvalidRequest(invalid) => match invalid {
                InvalidHttpRequest::Method { reason } => Self::Method { reason },
                InvalidHttpRequest::Url { reason } => Self::Url { reason },
                InvalidHttpRequest::Scheme { scheme } => Self::Scheme { scheme },
                InvalidHttpRequest::HeaderName { reason } => Self::HeaderName { reason },
                InvalidHttpRequest::HeaderValue { name, reason } => Self::HeaderValue { name, reason },
                InvalidHttpRequest::VariableNotSet { name, variable } => Self::VariableNotSet { name, variable },
                InvalidHttpRequest::VariableEmpty { name, variable } => Self::VariableEmpty { name, variable },
                InvalidHttpRequest::VariableProtected { name, variable } => Self::VariableProtected { name, variable },
                InvalidHttpRequest::IdInUse { id } => Self::IdInUse { id },
                InvalidHttpRequest::Other(reason) => Self::InvalidRequest { reason },
            },
            HttpError::NameNotResolved { origin, reason } => Self::NameNotResolved { origin, reason },
            HttpError::ConnectionRefused { origin } => Self::ConnectionRefused { origin },
            HttpError::Connect { origin, reason } => Self::Connect { origin, reason },
            HttpError::Certificate { origin, reason } => Self::Certificate { origin, reason },
            HttpError::TimedOut { origin, in_body } => Self::TimedOut { origin, in_body },
            HttpError::TooManyRedirects { origin, limit } => Self::TooManyRedirects { origin, limit },
            HttpError::RedirectScheme { origin, scheme } => Self::RedirectScheme { origin, scheme },
            HttpError::BodyTooLarge { limit } => Self::BodyTooLarge { limit },
            HttpError::BodyCut { origin, reason } => Self::BodyCut { origin, reason },
            HttpError::Overflow { limit } => Self::Overflow { limit },
            HttpError::Failed { origin, reason } => Self::Failed { origin, reason },
            HttpError::Unsupported(unsupported) => Self::Unsupported { reason: unsupported.to_string() },
            HttpError::Busy(Busy { limit }) => Self::Busy { limit },
            HttpError::Disconnected(Disconnected { sent, reason }) => {
                Self::Disconnected { may_have_run: sent == Sent::Unknown, reason: reason.to_string() }
            }
            HttpError::Closed => Self::Closed,
            HttpError::Peer(_) | HttpError::Remote(_) => return None,
        })
    }

    fn into_error(self, asked: &str) -> HttpError {
        // An origin is shown, so it must be one.
        let origin = |origin: String| if is_origin(&origin) { origin } else { asked.to_owned() };
        match self {
            Self::Method { reason } => InvalidHttpRequest::Method { reason }.into(),
            Self::Url { reason } => InvalidHttpRequest::Url { reason: without_urls(&reason) }.into(),
            Self::Scheme { scheme } => InvalidHttpRequest::Scheme { scheme }.into(),
            Self::HeaderName { reason } => InvalidHttpRequest::HeaderName { reason }.into(),
            Self::HeaderValue { name, reason } => InvalidHttpRequest::HeaderValue { name, reason }.into(),
            Self::VariableNotSet { name, variable } => InvalidHttpRequest::VariableNotSet { name, variable }.into(),
            Self::VariableEmpty { name, variable } => InvalidHttpRequest::VariableEmpty { name, variable }.into(),
            Self::VariableProtected { name, variable } => {
                InvalidHttpRequest::VariableProtected { name, variable }.into()
            }
            Self::IdInUse { id } => InvalidHttpRequest::IdInUse { id }.into(),
            Self::InvalidRequest { reason } => InvalidHttpRequest::Other(without_urls(&reason)).into(),
            Self::NameNotResolved { origin: at, reason } => {
                HttpError::NameNotResolved { origin: origin(at), reason: without_urls(&reason) }
            }
            Self::ConnectionRefused { origin: at } => HttpError::ConnectionRefused { origin: origin(at) },
            Self::Connect { origin: at, reason } => {
                HttpError::Connect { origin: origin(at), reason: without_urls(&reason) }
            }
            Self::Certificate { origin: at, reason } => {
                HttpError::Certificate { origin: origin(at), reason: without_urls(&reason) }
            }
            Self::TimedOut { origin: at, in_body } => HttpError::TimedOut { origin: origin(at), in_body },
            Self::TooManyRedirects { origin: at, limit } => HttpError::TooManyRedirects { origin: origin(at), limit },
            Self::RedirectScheme { origin: at, scheme } => HttpError::RedirectScheme { origin: origin(at), scheme },
            Self::BodyTooLarge { limit } => HttpError::BodyTooLarge { limit },
            Self::BodyCut { origin: at, reason } => {
                HttpError::BodyCut { origin: origin(at), reason: without_urls(&reason) }
            }
            Self::Overflow { limit } => HttpError::Overflow { limit },
            Self::Failed { origin: at, reason } => {
                HttpError::Failed { origin: origin(at), reason: without_urls(&reason) }
            }
            Self::Unsupported { reason } => {
                Unsupported { feature: "the request", place: format!("the executor: {reason}") }.into()
            }
            Self::Busy { limit } => Busy { limit }.into(),
            Self::Disconnected { may_have_run, reason } => {
                let sent = if may_have_run { Sent::Unknown } else { Sent::NotSent };
                Disconnected { sent, reason: reason.into() }.into()
            }
            Self::Closed => HttpError::Closed,
        }
    }
}

/// Whether a text is a scheme, a host and perhaps a port, without anything that a URL may hide.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    host.is_some_and(|host| !host.contains(['/', '?', '#', '@', '\\', ' ']))
}

// Texts of the reference.
const FAILED: &str = "http/request failed: ";
const BODY_FAILED: &str = "failed to read http/request response body: ";
const TOO_MANY_REDIRECTS: &str = "too many redirects";
const METHOD: &str = "http/request method is invalid: ";
const URL: &str = "http/request url is invalid: ";
const SCHEME: &str = "http/request only supports http and https URLs, got ";
const HEADER_NAME: &str = "http/request header name is invalid: ";
const HEADER_VALUE: &str = "http/request header value is invalid for ";
const HEADER: &str = "http/request header ";
const NOT_SET: &str = " requires executor environment variable ";
const EMPTY: &str = " requires a non-empty executor environment variable ";
const PROTECTED: &str = " cannot use executor environment variable ";
const ID: &str = "http/request streamResponse requestId `";
const IN_USE: &str = "` is already active";

#[cfg(test)]
mod tests;
