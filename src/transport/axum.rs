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
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{StatusCode, Version};
use hyper::upgrade::OnUpgrade;

use super::websocket::WebSocketTransport;
use super::websocket::upgrade::{Refusal, accept, has_origin};
use crate::config::MessageLimits;
use crate::error::TransportError;

/// A request for a WebSocket that is not answered yet. As an extractor it refuses what is none, and, as the
/// [`Listener`](super::websocket::Listener) does, what a page in a browser has sent, unless the request has the extension
/// [`AllowOrigin`]. HTTP/1.1 only.
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
        let headers = || parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        if has_origin(headers()) && parts.extensions.get::<AllowOrigin>().is_none() {
            return Err(NoUpgrade::Origin);
        }
        let accept = accept(parts.method.as_str(), parts.version == Version::HTTP_11, headers)?;
        let accept = HeaderValue::try_from(accept).map_err(|_| NoUpgrade::NoKey)?;
        let on_upgrade = parts.extensions.remove::<OnUpgrade>().ok_or(NoUpgrade::Impossible)?;
        let peer = "an accepted WebSocket".into();
        Ok(Self { accept, on_upgrade, limits: MessageLimits::default(), peer })
    }
}

impl From<Refusal> for NoUpgrade {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Method => Self::Method,
            Refusal::Connection | Refusal::Upgrade => Self::NotAsked,
            Refusal::Version => Self::WebSocketVersion,
            Refusal::Key => Self::NoKey,
            Refusal::Http => Self::Version,
        }
    }
}

/// As an extension of a request, lets [`Upgrade`] take one that a browser has sent. Whatever guards the handler has to look at
/// the header `Origin` then, or any page that a user looks at can connect as that user.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowOrigin;

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
    /// It comes from a page in a browser, as the header `Origin` says, and there is no [`AllowOrigin`].
    #[error("requests of browsers are not taken")]
    Origin,
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
            Self::Origin => 403,
            Self::Method => 405,
            Self::Version | Self::Impossible => 426,
            Self::NotAsked | Self::WebSocketVersion | Self::NoKey => 400,
        }
    }
}

impl IntoResponse for NoUpgrade {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = (status, self.to_string()).into_response();
        let headers = response.headers_mut();
        match status {
            StatusCode::METHOD_NOT_ALLOWED => drop(headers.insert(header::ALLOW, HeaderValue::from_static("GET"))),
            StatusCode::UPGRADE_REQUIRED => {
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            }
            _ => {}
        }
        response
    }
}
