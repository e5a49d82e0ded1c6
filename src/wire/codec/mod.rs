//! Bytes to messages, and messages to bytes.
//!
//! [`decode`] makes one strict pass over a message and leaves its parameters, result or error data where they are in the
//! text, from where [`Payload::decode`] reads them into their own type. The messages that carry bulk, output and writes,
//! have a shorter way beside it in [`hot`], which both drivers try first.
//!
//! Encoders return a complete message. They cannot fail: every type of this module's siblings has a JSON form.

mod encode;
pub mod hot;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

#[cfg(feature = "tracing")]
pub(crate) use self::encode::push_string;
pub use self::encode::{encode_error, encode_notification, encode_request, encode_response};
use super::error_code::ErrorCode;
use super::request_id::RequestId;
pub use super::scan::DecodeError;
use super::scan::{Envelope, scan, unescape};
use super::trace::TraceMember;
use crate::config::MessageLimits;
use crate::error::{PeerMisbehaved, RpcError};

/// A message, with what it carries still in the form of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Asks for something and wants an answer.
    Request {
        /// Ties the answer to it.
        id: RequestId,
        /// What is asked for.
        method: Cow<'a, str>,
        /// Its parameters.
        params: Payload<'a>,
        /// Which trace it belongs to, if it says so.
        trace: Option<TraceMember<'a>>,
    },
    /// Tells something.
    Notification {
        /// What is told.
        method: Cow<'a, str>,
        /// Its parameters.
        params: Payload<'a>,
    },
    /// The good answer to a request.
    Response {
        /// The request's id.
        id: RequestId,
        /// Its result.
        result: Payload<'a>,
    },
    /// The bad answer to a request.
    Error {
        /// The request's id.
        id: RequestId,
        /// What went wrong.
        error: RpcError,
    },
}

/// Decodes one message.
///
/// It allocates for the ids it returns, and a few bytes for every key of the objects that are open at a time.
///
/// # Errors
///
/// A [`DecodeError`]. A server answers it with [`RequestId::MALFORMED`] and [`ErrorCode::INVALID_REQUEST`].
pub fn decode<'a>(bytes: &'a [u8], limits: &MessageLimits) -> Result<Message<'a>, DecodeError> {
    if bytes.len() > limits.max_message_bytes {
        return Err(DecodeError::TooLarge { size_bytes: bytes.len(), limit_bytes: limits.max_message_bytes });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| DecodeError::NotUtf8 { offset: error.valid_up_to() })?;
    Message::from_envelope(&scan(text, limits)?)
}

impl<'a> Message<'a> {
    fn from_envelope(envelope: &Envelope<'a>) -> Result<Self, DecodeError> {
        if let Some(method) = envelope.method {
            let method = string(method).ok_or_else(|| malformed("member `method` is not a string"))?;
            let params = Payload(envelope.params.unwrap_or(NULL));
            // Without an id, what it says of its trace is of no consequence to anybody.
            let Some(id) = envelope.id else { return Ok(Self::Notification { method, params }) };
            let id = request_id(id)?;
            let trace = read_trace(envelope.trace)?;
            return Ok(Self::Request { id, method, params, trace });
        }
        if envelope.result.is_none() && envelope.error.is_none() {
            return Err(malformed("none of the members `method`, `result` and `error`"));
        }
        let id = request_id(envelope.id.ok_or_else(|| malformed("member `id` is missing"))?)?;
        match (envelope.result, envelope.error) {
            (Some(result), _) => Ok(Self::Response { id, result: Payload(result) }),
            (None, error) => Ok(Self::Error { id, error: rpc_error(error.unwrap_or(NULL))? }),
        }
    }
}

/// Parameters or a result, as JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a>(&'a str);

impl<'a> Payload<'a> {
    /// The payload of this JSON text, which was a part of a decoded message.
    pub(crate) const fn of_json(json: &'a str) -> Self {
        Self(json)
    }

    /// Reads it as a value of type `T`.
    ///
    /// # Errors
    ///
    /// A [`PayloadError`], if the text does not have the form that the type needs.
    pub fn decode<T: Deserialize<'a>>(self) -> Result<T, PayloadError> {
        serde_json::from_str(self.0).map_err(|error| PayloadError::new(&error))
    }

    /// The JSON text; `null` if it was absent.
    pub const fn as_json(self) -> &'a str {
        self.0
    }
}

/// A payload that does not have the form that its method needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PayloadError(String);

impl PayloadError {
    fn new(error: &serde_json::Error) -> Self {
        let mut text = error.to_string();
        // The place is one within the payload, which means nothing to the reader of an answer.
        if error.line() != 0
            && let Some(at) = text.rfind(" at line ")
        {
            text.truncate(at);
        }
        Self(text)
    }

    /// As the answer to a request that had it for its parameters.
    pub fn into_invalid_params(self) -> RpcError {
        ErrorCode::INVALID_PARAMS.error(self.0)
    }

    /// As what a peer did wrong that had it for its result or its notification's parameters.
    pub fn into_bad_result(self, method: &str) -> PeerMisbehaved {
        PeerMisbehaved::BadResult { method: method.into(), reason: self.0 }
    }
}

impl From<DecodeError> for PeerMisbehaved {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::TooLarge { size_bytes, limit_bytes } => {
                Self::MessageTooLarge { size_bytes: Some(size_bytes as u64), limit_bytes: limit_bytes as u64 }
            }
            other => Self::Malformed { reason: other.to_string() },
        }
    }
}

fn string(json: &str) -> Option<Cow<'_, str>> {
    json.strip_prefix('"')?.strip_suffix('"').and_then(unescape)
}

fn request_id(json: &str) -> Result<RequestId, DecodeError> {
    let id = match string(json) {
        Some(text) => Some(RequestId::from(&*text)),
        None => json.parse().ok().map(RequestId::Number),
    };
    id.ok_or_else(|| malformed("member `id` is neither a string nor a signed 64-bit integer"))
}

fn read_trace(json: Option<&str>) -> Result<Option<TraceMember<'_>>, DecodeError> {
    let Some(json) = json else { return Ok(None) };
    serde_json::from_str(json).map_err(|error| malformed(&format!("member `trace`: {}", PayloadError::new(&error))))
}

fn rpc_error(json: &str) -> Result<RpcError, DecodeError> {
    #[derive(Deserialize)]
    struct WireError {
        code: ErrorCode,
        message: String,
        data: Option<Box<RawValue>>,
    }

    match serde_json::from_str::<WireError>(json) {
        Ok(WireError { code, message, data }) => {
            Ok(RpcError { code: code.0, message, data: data.map(|data| String::from(Box::<str>::from(data))) })
        }
        Err(error) => Err(malformed(&format!("member `error`: {}", PayloadError::new(&error)))),
    }
}

fn malformed(reason: &str) -> DecodeError {
    DecodeError::Envelope(reason.into())
}

const NULL: &str = "null";
