//! WebSockets that an axum handler has accepted (feature `axum`).
//!
//! [`Upgrade`] is an extractor. Whatever stands before it in the handler, or in a layer, decides who may connect; this module
//! answers the request, and makes a [`Transport`](super::Transport) of the connection, with the same limits, fragments, pings
//! and signs of life as everywhere else in this crate. It is good for either direction: an executor that dials its host gives
//! the host a place ([`Environment::accepted`](crate::Environment::accepted), and
//! [`Remote::replace`](crate::Remote::replace) for every later connection of that executor), and a host that dials an executor
//! behind axum is served by [`Server::serve`](crate::server::Server::serve).
//!
//! ```no_run
//! // Not run: it serves until it is stopped.
//! use std::sync::Arc;
//! use axum::extract::State;
//! use axum::http::{HeaderMap, StatusCode};
//! use axum::response::{IntoResponse, Response};
//! use axum::routing::get;
//! use longarm::transport::axum::Upgrade;
//! use longarm::{Local, LocalConfig, server::Server};
//!
//! async fn executor(State(server): State<Server>, headers: HeaderMap, upgrade: Upgrade) -> Response {
//!     if headers.get("authorization").is_none_or(|token| token != "Bearer let me in") {
//!         return StatusCode::UNAUTHORIZED.into_response();
//!     }
//!     let (response, accepted) = upgrade.accept();
//!     tokio::spawn(async move {
//!         if let Ok(transport) = accepted.await {
//!             // How it ends is the client's to see.
//!             let _ = server.serve(Box::new(transport)).await;
//!         }
//!     });
//!     response
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
//! let app = axum::Router::new().route("/exec", get(executor)).with_state(server);
//! axum::serve(tokio::net::TcpListener::bind("127.0.0.1:4500").await?, app).await
//! # }
//! ```

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum_core::body::Body;
use axum_core::extract::FromRequestParts;
use axum_core::response::{IntoResponse, Response};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::websocket::WebSocketTransport;
use crate::config::MessageLimits;
use crate::error::TransportError;

/// A request for a WebSocket that is not answered yet. As an extractor it refuses what is none; HTTP/1.1 only.
///
/// Dropping it leaves the connection as it is, for whatever the handler answers.
#[must_use = "the request is not answered before `accept`"]
pub struct Upgrade {
    accept: HeaderValue,
    on_upgrade: OnUpgrade,
    limits: MessageLimits,
    peer: String,
}

impl Upgrade {
    /// Bounds on messages.
    pub fn limits(mut self, limits: MessageLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Names the other side, for messages.
    pub fn peer(mut self, peer: impl Into<String>) -> Self {
        self.peer = peer.into();
        self
    }

    /// The answer that the handler has to return, and the connection, which stands once that has left.
    pub fn accept(self) -> (Response, Accepted) {
        let Self { accept, on_upgrade, limits, peer } = self;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        let upgraded = Box::pin(async move {
            let upgraded = on_upgrade.await.map_err(|error| TransportError::from(io::Error::other(error)))?;
            Ok(WebSocketTransport::upgraded(upgraded, limits, peer).await)
        });
        (response, Accepted { upgraded })
    }
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgrade").field("peer", &self.peer).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl<S: Sync> FromRequestParts<S> for Upgrade {
    type Rejection = NoUpgrade;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoUpgrade> {
        if parts.method != Method::GET {
            return Err(NoUpgrade::Method);
        }
        if parts.version != Version::HTTP_11 {
            return Err(NoUpgrade::Version);
        }
        let headers = &parts.headers;
        if !has_word(headers, &header::CONNECTION, "upgrade") || !has_word(headers, &header::UPGRADE, "websocket") {
            return Err(NoUpgrade::NotAsked);
        }
        if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err(NoUpgrade::WebSocketVersion);
        }
        let key = headers.get(header::SEC_WEBSOCKET_KEY).ok_or(NoUpgrade::NoKey)?;
        let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes())).map_err(|_| NoUpgrade::NoKey)?;
        let on_upgrade = parts.extensions.remove::<OnUpgrade>().ok_or(NoUpgrade::Impossible)?;
        let peer = "an accepted WebSocket".into();
        Ok(Self { accept, on_upgrade, limits: MessageLimits::default(), peer })
    }
}

/// Whether one of the headers of this name has the word in its list.
fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}

/// The connection behind an accepted [`Upgrade`]. It resolves once the answer has left.
///
/// # Cancel safety
///
/// When it is dropped, so is the connection.
#[must_use = "dropped, it closes the connection"]
pub struct Accepted {
    upgraded: Pin<Box<dyn Future<Output = Result<WebSocketTransport, TransportError>> + Send>>,
}

impl Future for Accepted {
    type Output = Result<WebSocketTransport, TransportError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.upgraded.as_mut().poll(cx)
    }
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").finish_non_exhaustive()
    }
}

/// A request is none for a WebSocket. As an answer it says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoUpgrade {
    /// Another method than GET.
    #[error("the request method must be GET")]
    Method,
    /// Another version than 1.1.
    #[error("an upgrade needs HTTP/1.1")]
    Version,
    /// `Connection` and `Upgrade` do not ask for it.
    #[error("the request does not ask for a WebSocket")]
    NotAsked,
    /// Another version of the WebSocket protocol than 13.
    #[error("the header Sec-WebSocket-Version is not '13'")]
    WebSocketVersion,
    /// There is no key.
    #[error("the header Sec-WebSocket-Key is missing")]
    NoKey,
    /// The server that runs the handler lets no connection be upgraded, or somebody else has taken it.
    #[error("the connection cannot be upgraded")]
    Impossible,
}

impl NoUpgrade {
    /// The status of the answer.
    pub const fn status(self) -> u16 {
        match self {
            Self::Method => 405,
            Self::Version | Self::Impossible => 426,
            Self::NotAsked | Self::WebSocketVersion | Self::NoKey => 400,
        }
    }
}

impl IntoResponse for NoUpgrade {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::BAD_REQUEST);
        (status, self.to_string()).into_response()
    }
}
