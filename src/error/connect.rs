//! What can go wrong with a connection.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::parts::DisplaySize;
use super::{Disconnected, PeerMisbehaved, RpcError};

/// A connection could not be made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is unusable.
    #[error("invalid address {address:?}: {reason}")]
    InvalidAddress {
        /// The address, without credentials, query or fragment.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The other side cannot be reached.
    #[error("cannot connect to {address}")]
    Unreachable {
        /// The address, without credentials, query or fragment.
        address: String,
        /// The cause.
        #[source]
        source: Arc<io::Error>,
    },
    /// The certificate of the other side is not trusted, or none can be checked. Permanent.
    #[error("the certificate of {address} is not trusted: {reason}")]
    Certificate {
        /// The address, without credentials, query or fragment.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The other side refused the upgrade.
    #[error("{address} refused the connection with HTTP status {status}: {reason}")]
    Refused {
        /// The address, without credentials, query or fragment.
        address: String,
        /// HTTP status code.
        status: u16,
        /// The body, shortened.
        reason: String,
        /// How long the other side asks to wait before the next attempt, if it says so in seconds.
        retry_after: Option<Duration>,
    },
    /// It took too long.
    #[error("{what} took longer than {} ms", .limit.as_millis())]
    TimedOut {
        /// What was awaited.
        what: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The server program could not be started.
    #[error("cannot start {program:?}")]
    Launch {
        /// The program.
        program: PathBuf,
        /// The cause.
        #[source]
        source: Arc<io::Error>,
    },
    /// The session to resume is unknown or expired. Permanent.
    #[error("unknown session {0}")]
    UnknownSession(String),
    /// The session to resume is attached to another connection. Retryable.
    #[error("session {0} is attached to another connection")]
    SessionAttached(String),
    /// The connection ended during the handshake.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The connection ended during the handshake.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    /// The peer misbehaved.
    #[error(transparent)]
    Peer(#[from] PeerMisbehaved),
    /// An error answer to the handshake.
    #[error(transparent)]
    Remote(#[from] RpcError),
}

impl ConnectError {
    /// Whether a later attempt may succeed without a change by the host.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::SessionAttached(_)
            | Self::Peer(PeerMisbehaved::Silent { .. })
            | Self::Disconnected(_) => true,
            // What was too large once is too large again.
            Self::Transport(error) => !matches!(error, TransportError::MessageTooLarge { .. }),
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=599),
            _ => false,
        }
    }

    /// How long the other side asks to wait before the next attempt.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// A transport failed. It is not usable any more.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The other side closed the connection in good order.
    #[error("the peer closed the connection{}", CloseReason(.0))]
    Closed(Option<String>),
    /// A message above the limit, in either direction.
    #[error("message of {} bytes exceeds the limit of {limit_bytes} bytes", DisplaySize(*.size_bytes))]
    MessageTooLarge {
        /// Its size, if known.
        size_bytes: Option<u64>,
        /// The limit.
        limit_bytes: u64,
    },
    /// Bytes that are no message of this transport.
    #[error("framing violation: {0}")]
    Framing(String),
    /// Reading or writing failed.
    #[error("connection failed")]
    Io(#[source] Arc<io::Error>),
}

impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

struct CloseReason<'a>(&'a Option<String>);

impl fmt::Display for CloseReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}
