//! What can go wrong with a request.

use url::Url;

use crate::error::{Busy, Disconnected, PeerMisbehaved, RpcError, Sent, Unsupported};

/// An HTTP request failed. No text has more of a URL than its origin, and none has the value of a header.
///
/// `origin` is that of the last request of a chain of redirects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The request is invalid. Nothing was sent.
    #[error(transparent)]
    InvalidRequest(#[from] InvalidHttpRequest),
    /// The name of the host is unknown, or the name service does not answer.
    #[error("the name of {origin} cannot be resolved: {reason}")]
    NameNotResolved {
        /// Scheme, host and port.
        origin: String,
        /// The system's text.
        reason: String,
    },
    /// Nothing listens there.
    #[error("{origin} refused the connection")]
    ConnectionRefused {
        /// Scheme, host and port.
        origin: String,
    },
    /// The connection could not be made for another reason.
    #[error("cannot connect to {origin}: {reason}")]
    Connect {
        /// Scheme, host and port.
        origin: String,
        /// The cause.
        reason: String,
    },
    /// The certificate of the host is not to be trusted.
    #[error("the certificate of {origin} is not trusted: {reason}")]
    Certificate {
        /// Scheme, host and port.
        origin: String,
        /// The cause.
        reason: String,
    },
    /// The exchange took longer than the request allows.
    #[error("{} {origin} did not end in time", if *.in_body { "the body from" } else { "the exchange with" })]
    TimedOut {
        /// Scheme, host and port.
        origin: String,
        /// Whether the head of the response had come.
        in_body: bool,
    },
    /// The chain of redirects is too long.
    #[error("more than {limit} redirects, the last to {origin}")]
    TooManyRedirects {
        /// Scheme, host and port of the last one.
        origin: String,
        /// How many are followed.
        limit: usize,
    },
    /// A redirect leads to something that is not HTTP.
    #[error("{origin} redirects to a URL with the scheme {scheme}")]
    RedirectScheme {
        /// Scheme, host and port of the redirect.
        origin: String,
        /// The scheme that it leads to.
        scheme: String,
    },
    /// The body is larger than what is collected. A streamed body has no such limit.
    #[error("the body is larger than {limit} bytes: read it as a stream")]
    BodyTooLarge {
        /// The limit.
        limit: u64,
    },
    /// The body ended before its end.
    #[error("the body from {origin} was cut short: {reason}")]
    BodyCut {
        /// Scheme, host and port.
        origin: String,
        /// The cause.
        reason: String,
    },
    /// The body came faster than it was read, from a peer that cannot be slowed down, or the bound on what is held for
    /// all bodies was reached.
    #[error("the body was not read fast enough: more than {limit} bytes would be held")]
    Overflow {
        /// The bound in bytes.
        limit: u64,
    },
    /// The exchange failed otherwise, such as by a response that is not HTTP.
    #[error("the exchange with {origin} failed: {reason}")]
    Failed {
        /// Scheme, host and port.
        origin: String,
        /// The cause.
        reason: String,
    },
    /// The place lacks a feature that the request needs. Nothing was sent.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// Too many calls are in flight.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The connection to the executor ended.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    /// The peer misbehaved.
    #[error(transparent)]
    Peer(#[from] PeerMisbehaved),
    /// An error answer of the executor that fits no other variant. Its text has no URL.
    #[error(transparent)]
    Remote(#[from] RpcError),
    /// The environment was closed.
    #[error("the environment is closed")]
    Closed,
}

impl HttpError {
    /// Whether the same request may succeed if it is made again, and is known not to have reached its target. After a
    /// redirect it has reached the one that it was made to, so that no failure is retryable.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::NameNotResolved { .. } | Self::ConnectionRefused { .. } | Self::Connect { .. } | Self::Busy(_) => {
                true
            }
            Self::Disconnected(disconnected) => matches!(disconnected.sent, Sent::NotSent),
            _ => false,
        }
    }
}

/// A request that no place would make. The host must change it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHttpRequest {
    /// The method is not an HTTP token.
    #[error("the method is invalid: {reason}")]
    Method {
        /// What is wrong with it.
        reason: String,
    },
    /// The URL cannot be read.
    #[error("the URL is invalid: {reason}")]
    Url {
        /// What is wrong with it.
        reason: String,
    },
    /// The URL is not an HTTP one.
    #[error("only http and https URLs are supported, got {scheme}")]
    Scheme {
        /// Its scheme.
        scheme: String,
    },
    /// A name of a header is not an HTTP token.
    #[error("a header name is invalid: {reason}")]
    HeaderName {
        /// What is wrong with it.
        reason: String,
    },
    /// A header's value contains what no header can.
    #[error("the value of header {name} is invalid: {reason}")]
    HeaderValue {
        /// The header.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The variable of a header is not set at the place.
    #[error("header {name} needs the executor's variable {variable}, which is not set")]
    VariableNotSet {
        /// The header.
        name: String,
        /// The variable.
        variable: String,
    },
    /// The variable of a header is empty at the place.
    #[error("header {name} needs the executor's variable {variable}, which is empty")]
    VariableEmpty {
        /// The header.
        name: String,
        /// The variable.
        variable: String,
    },
    /// The variable of a header holds a secret of the executor itself.
    #[error("header {name} may not use the executor's variable {variable}")]
    VariableProtected {
        /// The header.
        name: String,
        /// The variable.
        variable: String,
    },
    /// The stream's id is in use.
    #[error("the request id {id:?} is already in use")]
    IdInUse {
        /// The id.
        id: String,
    },
    /// Something else that the executor refused as invalid. The text has no URL.
    #[error("{0}")]
    Other(String),
}

/// Scheme, host and port of a URL: what may be shown of it.
pub(crate) fn origin_of(url: &str) -> String {
    Url::parse(url).map_or_else(|_| "(no URL)".into(), |url| origin(&url))
}

/// The same, of a URL that was read.
pub(crate) fn origin(url: &Url) -> String {
    let mut shown = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
    if let Some(port) = url.port() {
        shown.push(':');
        shown.push_str(&port.to_string());
    }
    shown
}
