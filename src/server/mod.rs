//! The server: any backend, behind any transport.
//!
//! A [`Server`] owns *sessions*. A session owns processes and outlives the connection that made it: a client that comes
//! back within [`ServerConfig::session_ttl`] and names the session finds its processes, their retained output and
//! the answers to its earlier writes. [`Server::serve`] carries one connection, over whatever [`Transport`] it is given;
//! an accept loop is a loop around it.
//!
//! One task drives each session. It owns all the session's state. An output chunk passes two bounded places: the backend's
//! own queue, from which it is pulled ([`Local`](crate::Local) has one with a short lock, of
//! [`LocalConfig::output`](crate::LocalConfig::output)), and the log in which it is retained for the client
//! ([`ServerConfig::output`]). A process whose output nobody takes is paused when both are full; since the log
//! can do all that a queue is for, the first may be small: `longarm serve` gives it 256 KiB. What the task does is decided
//! by `core::peer`, which does no I/O.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![warn(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::fmt;
use std::sync::Arc;

use crate::backend::ExecBackend;
use crate::config::ServerConfig;
use crate::error::{PeerMisbehaved, TransportError};
use crate::transport::{CloseReason, Transport};

mod alarm;
mod calls;
mod connection;
mod files;
mod http;
mod link;
mod measure;
mod registry;
mod session_task;
mod slots;
mod stdio;
#[cfg(feature = "websocket")]
mod websocket;

use self::registry::Registry;

pub use self::stdio::serve_stdio;
#[cfg(feature = "websocket")]
pub use self::websocket::serve_websocket;

/// Serves a backend to clients. Cheap to clone; all clones are the same server.
///
/// Dropping all clones ends nothing: connections that are being served go on, and detached sessions live until their
/// time is over. [`Server::shutdown`] ends everything.
#[derive(Clone)]
pub struct Server {
    registry: Arc<Registry>,
}

impl Server {
    /// A builder of a server of `backend`.
    pub fn builder(backend: Arc<dyn ExecBackend>) -> ServerBuilder {
        ServerBuilder { backend, config: ServerConfig::default() }
    }

    /// A server of `backend` with default limits.
    pub fn new(backend: Arc<dyn ExecBackend>) -> Self {
        Self::builder(backend).build()
    }

    /// Serves one connection until it ends; returns `Ok` when the client left in good order or the server was shut down.
    ///
    /// Needs a tokio runtime, on which it starts the task of the session that the client opens. The connection is closed
    /// when this returns. The session is then detached, and lives on for [`ServerConfig::session_ttl`].
    ///
    /// # Errors
    ///
    /// A [`ServeError`] that says why the connection ended. Others are not affected.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection, without a closing handshake, and detaches the session. Nothing else is
    /// lost.
    pub async fn serve(&self, transport: Box<dyn Transport>) -> Result<(), ServeError> {
        connection::serve(&self.registry, transport).await
    }

    /// Ends all sessions: asks their processes to stop, kills them after [`ServerConfig::shutdown_grace`], sends what they
    /// still say, closes the connections as going away, and returns when no task is left. Afterwards every connection is
    /// refused. Idempotent. The backend itself is not closed: it belongs to the host.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the shutdown, only the waiting for it.
    pub async fn shutdown(&self) {
        self.registry.shutdown().await;
    }

    /// How many sessions and connections there are.
    pub fn counts(&self) -> Counts {
        self.registry.counts()
    }

    /// The limits.
    pub fn config(&self) -> &ServerConfig {
        self.registry.config()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// Builds a [`Server`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct ServerBuilder {
    backend: Arc<dyn ExecBackend>,
    config: ServerConfig,
}

impl ServerBuilder {
    /// The limits and times.
    pub fn config(mut self, config: ServerConfig) -> Self {
        self.config = config;
        self
    }

    /// Makes the server.
    pub fn build(self) -> Server {
        Server { registry: Arc::new(Registry::new(self.backend, self.config)) }
    }
}

/// How much a server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections being served, in the handshake or later.
    pub connections: usize,
    /// Sessions with a connection.
    pub attached: usize,
    /// Sessions that wait for their client.
    pub detached: usize,
}

/// Why a connection ended otherwise than in good order.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The client broke the protocol, or was silent for too long.
    #[error(transparent)]
    Peer(#[from] PeerMisbehaved),
    /// The server has as many connections as it takes.
    #[error("the server already serves {limit} connections")]
    TooManyConnections {
        /// The limit.
        limit: usize,
    },
    /// The server was shut down before the connection came.
    #[error("the server is shut down")]
    ShutDown,
}

impl ServeError {
    /// What the client is told when the connection is closed for this reason.
    pub(crate) fn close_reason(&self) -> CloseReason {
        match self {
            Self::Transport(TransportError::Closed(_)) => CloseReason::Normal,
            Self::Transport(TransportError::MessageTooLarge { .. })
            | Self::Peer(PeerMisbehaved::MessageTooLarge { .. }) => CloseReason::TooLarge,
            Self::Transport(_) | Self::Peer(_) => CloseReason::ProtocolError,
            Self::TooManyConnections { .. } => CloseReason::Policy,
            Self::ShutDown => CloseReason::GoingAway,
        }
    }
}
