//! WebSocket: one text message each, on TCP, with every limit set.
//!
//! [`connect`] and [`WebSocketConnector`] are the client's side, [`Listener`] is the server's. Text and binary messages
//! are accepted, also in fragments; messages are sent as text, in one frame up to 512 KiB and in fragments above. There is no
//! compression. The client speaks TLS (`wss`) with the feature `tls`; the server does not: in front of an untrusted network, put
//! a tunnel or a proxy.
//!
//! An end of the connection without a close frame is an ordinary disconnect, as the reference never sends one. This
//! side does: 1000 and 1001 when it closes by itself, 1002 after a violation of the framing, 1007 after text that is not
//! UTF-8, 1008 after something that is not allowed, 1009 after a message above the limit.

mod client;
mod head;
mod io;
mod listener;
mod secure;
mod socket;
#[cfg(test)]
mod tests;
mod token;
pub(super) mod upgrade;

use tokio_tungstenite::tungstenite::protocol::Role;

use super::{Incoming, Outgoing, Transport};
use crate::config::MessageLimits;

use self::io::Io;

pub(crate) use self::client::check_url;
pub use self::client::{ConnectOptions, WebSocketConnector, connect};
pub use self::listener::{ListenOptions, Listener, parse_listen_url};
pub use self::token::{CapabilityToken, TokenError};

/// An established WebSocket connection, of either side.
#[derive(Debug)]
#[must_use = "dropping a transport disconnects the peer"]
pub struct WebSocketTransport {
    socket: socket::Socket,
    peer: String,
}

impl WebSocketTransport {
    async fn new(io: Io, early: Vec<u8>, role: Role, limits: MessageLimits, peer: String) -> Self {
        Self { socket: socket::Socket::new(io, early, role, limits).await, peer }
    }

    /// The server's side of a connection that a web framework has upgraded.
    #[cfg(feature = "axum")]
    pub(super) async fn upgraded(upgraded: hyper::upgrade::Upgraded, limits: MessageLimits, peer: String) -> Self {
        let io = Io::Upgraded(hyper_util::rt::TokioIo::new(upgraded));
        Self { socket: socket::Socket::new(io, Vec::new(), Role::Server, limits).await, peer }
    }
}

impl Transport for WebSocketTransport {
    fn split(self: Box<Self>) -> (Box<dyn Outgoing>, Box<dyn Incoming>) {
        let (outgoing, incoming) = self.socket.split();
        (Box::new(outgoing), Box::new(incoming))
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }
}
