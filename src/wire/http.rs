//! HTTP requests that the executor makes: methods and notifications of the plain wire, and their members beyond it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::bytes::Base64;
use super::process::RawObject;

/// Bytes in one notification about a body at most, as the reference has it.
pub const MAX_DELTA_BYTES: usize = 1 << 20;

/// Parameters of `http/request`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestParams {
    /// The method, case kept.
    pub method: String,
    /// The absolute URL.
    pub url: String,
    /// The headers, in order.
    #[serde(default)]
    pub headers: Vec<RequestHeader>,
    /// The body.
    pub body_base64: Option<Base64>,
    /// How long the whole exchange may take; without limit, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What happens at a redirect.
    #[serde(default)]
    pub redirect_policy: RedirectPolicy,
    /// Names the body's notifications.
    pub request_id: String,
    /// Whether the body comes by notifications, behind the answer.
    #[serde(default)]
    pub stream_response: bool,
    /// Members beyond the plain wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<RequestExtension>,
}

/// Without the URL, the values of headers and the body.
impl fmt::Debug for RequestParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestParams")
            .field("method", &self.method)
            .field("headers", &self.headers)
            .field("timeout_ms", &self.timeout_ms)
            .field("redirect_policy", &self.redirect_policy)
            .field("request_id", &self.request_id)
            .field("stream_response", &self.stream_response)
            .field("longarm", &self.longarm)
            .finish_non_exhaustive()
    }
}

/// A header of a request.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestHeader {
    /// The name.
    pub name: String,
    /// The value, or what comes before that of the variable.
    pub value: String,
    /// The executor's variable whose value is appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_env_var: Option<String>,
}

/// Without the value.
impl fmt::Debug for RequestHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHeader")
            .field("name", &self.name)
            .field("value_env_var", &self.value_env_var)
            .finish_non_exhaustive()
    }
}

/// What happens at a redirect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RedirectPolicy {
    /// It is followed.
    #[default]
    Follow,
    /// It is the response.
    Stop,
}

/// Additional members of `http/request`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestExtension {
    /// Bytes of a streamed body that may be sent at first; further ones when `longarm/http/credit` says so. Without it,
    /// they are sent as fast as the connection takes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit_bytes: Option<u64>,
    /// Bytes of a body that is not streamed, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<u64>,
}

/// Result of `http/request`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestResult {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Vec<ResponseHeader>,
    /// The body; empty, if it is streamed.
    pub body_base64: Base64,
}

/// A header of a response.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseHeader {
    /// The name, in lower case.
    pub name: String,
    /// The value.
    pub value: String,
}

/// Without the value.
impl fmt::Debug for ResponseHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseHeader").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Parameters of the notification `http/request/bodyDelta`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BodyDeltaParams {
    /// The stream.
    pub request_id: String,
    /// 1, 2, 3, …
    pub seq: u64,
    /// Bytes of the body; none in the last one, from the reference.
    pub delta_base64: Base64,
    /// Whether it is the last one.
    #[serde(default)]
    pub done: bool,
    /// Why the body ended before its end.
    pub error: Option<String>,
    /// Members beyond the plain wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<BodyDeltaExtension>,
}

/// Additional members of `http/request/bodyDelta`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BodyDeltaExtension {
    /// The error with all that it names, in the form of the errors of `http/request`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RawObject>,
}

/// Parameters of the notification `longarm/http/credit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreditParams {
    /// The stream.
    pub request_id: String,
    /// Bytes of the body that may be sent, since its begin. It never falls.
    pub credit_bytes: u64,
}

/// Parameters of the notification `longarm/http/cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelParams {
    /// The request. Nothing follows about it, but for an error answer if it has none yet.
    pub request_id: String,
}
