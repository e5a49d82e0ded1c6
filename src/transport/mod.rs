//! Carriers of messages: one ordered, bidirectional stream of messages a connection.
//!
//! A transport knows messages as bytes (one JSON text each) and nothing of their meaning. It splits into a sending and a
//! receiving half, which one task drives. Partial input lives in the transport, never in a future: dropping a pending
//! receive loses nothing.

pub(crate) mod accepted;
#[cfg(feature = "axum")]
pub mod axum;
pub mod memory;
mod parts;
pub mod stdio;
#[cfg(feature = "websocket")]
pub mod websocket;

use std::fmt;

use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;

use crate::error::{ConnectError, TransportError};

pub use self::accepted::{ReplaceError, ReplaceOutcome};
pub use self::parts::{PartsTransport, from_parts};

/// One established connection.
pub trait Transport: fmt::Debug + Send + 'static {
    /// Splits into halves.
    fn split(self: Box<Self>) -> (Box<dyn Outgoing>, Box<dyn Incoming>);

    /// Who is at the other end, for messages: an address without credentials, or a command.
    fn peer(&self) -> String {
        "the peer".into()
    }
}

/// The sending half: a sink of messages. `poll_ready` is pending while too much is buffered.
pub trait Outgoing: Sink<Bytes, Error = TransportError> + fmt::Debug + Send + Unpin {
    /// Queues a ping behind the messages sent so far. Its answer shows in [`Incoming::received_bytes`], and brings `mark`
    /// back to [`Incoming::answered_mark`].
    fn start_ping(&mut self, mark: u64) -> PingStart {
        let _ = mark;
        PingStart::Unsupported
    }

    /// How many bytes have been handed to the system so far, if that is known. While this end does not read, their going on
    /// is the peer's sign of life.
    fn sent_bytes(&self) -> Option<u64> {
        None
    }

    /// Says why the connection is about to be closed; followed by `poll_close`.
    fn set_close_reason(&mut self, reason: CloseReason) {
        let _ = reason;
    }
}

/// What became of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingStart {
    /// It leaves with the next flush.
    Queued,
    /// Not now: too much is on its way already, or the connection is about to be closed. A later one may be taken.
    Busy,
    /// The transport has no pings.
    Unsupported,
}

/// The receiving half: a stream of messages. It ends after the peer has closed, or with an error.
pub trait Incoming: Stream<Item = Result<Bytes, TransportError>> + fmt::Debug + Send + Unpin {
    /// How many bytes have come from the peer so far, of any kind, also inside an unfinished message: the sign of life.
    fn received_bytes(&self) -> u64;

    /// The mark of the last ping that the peer has answered: it has read everything that was sent before. None if no answer
    /// has come yet.
    fn answered_mark(&self) -> Option<u64> {
        None
    }
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// All is well.
    Normal,
    /// This end is shutting down.
    GoingAway,
    /// The peer broke the protocol.
    ProtocolError,
    /// The peer sent text that is not UTF-8.
    BadText,
    /// The peer did something that is not allowed here.
    Policy,
    /// The peer sent a message above the limit.
    TooLarge,
}

/// Makes connections to one peer, again and again.
#[async_trait::async_trait]
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Makes a new connection.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the attempt is given up and its resources are freed.
    async fn connect(&self) -> Result<Box<dyn Transport>, ConnectError>;

    /// Whether a session survives on the other side when a connection breaks, so that dialling again makes sense.
    fn can_reconnect(&self) -> bool;
}
