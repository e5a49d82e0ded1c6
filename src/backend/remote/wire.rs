//! One connection of a session.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};

use crate::config;
use crate::core::keepalive::{Keepalive, Verdict};
use crate::core::session::{Ending, LinkId, Session};
use crate::error::TransportError;
use crate::time::Instant;
use crate::transport::{CloseReason, Incoming, Outgoing, PingStart, Transport};

/// A connection, and what is known of its life.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) link: LinkId,
    outgoing: Box<dyn Outgoing>,
    incoming: Box<dyn Incoming>,
    keepalive: Keepalive,
    unflushed: bool,
}

impl Wire {
    pub(super) fn new(link: LinkId, transport: Box<dyn Transport>, config: config::Keepalive, now: Instant) -> Self {
        let (outgoing, incoming) = transport.split();
        Self { link, outgoing, incoming, keepalive: Keepalive::new(config, now), unflushed: false }
    }

    /// The next message, or the end.
    pub(super) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<bytes::Bytes, TransportError>> {
        self.incoming.poll_next_unpin(cx).map(|next| next.unwrap_or(Err(TransportError::Closed(None))))
    }

    /// Takes note of what has come, and whether this end reads.
    pub(super) fn note_life(&mut self, now: Instant, listening: bool) {
        self.keepalive.handle_received(now, self.incoming.received_bytes());
        self.keepalive.set_listening(now, listening);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.keepalive.poll_timeout()
    }

    /// Pings if that is due; says how long the peer has been silent, if that is too long.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<Duration> {
        match self.keepalive.handle_timeout(now) {
            Verdict::Alive => {}
            Verdict::Ping => match self.outgoing.start_ping(0) {
                PingStart::Queued => self.unflushed = true,
                // The silence of the peer counts all the same.
                PingStart::Busy => {}
                PingStart::Unsupported => self.keepalive.disable(),
            },
            Verdict::Dead { silence } => return Some(silence),
        }
        None
    }

    /// Hands messages to the transport for as long as it takes them.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        session: &mut Session,
    ) -> Poll<Result<(), TransportError>> {
        // Readiness comes first: a message that was polled counts as sent.
        while self.outgoing.poll_ready_unpin(cx)?.is_ready() {
            let Some(message) = session.poll_transmit(now) else { break };
            self.outgoing.start_send_unpin(message)?;
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(self.outgoing.poll_flush_unpin(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Closes the connection, within a bound.
    pub(super) async fn close(mut self, ending: Ending) {
        self.outgoing.set_close_reason(match ending {
            Ending::Normal | Ending::Lost => CloseReason::Normal,
            Ending::ProtocolError => CloseReason::ProtocolError,
            Ending::TooLarge => CloseReason::TooLarge,
        });
        // A peer that does not take the close loses the connection all the same.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.outgoing.close()).await;
    }

    /// The same for a connection that another one follows. One that is lost has nobody to tell.
    pub(super) fn hang_up(self, ending: Ending) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        match ending {
            Ending::Lost => None,
            Ending::Normal | Ending::ProtocolError | Ending::TooLarge => Some(Box::pin(self.close(ending))),
        }
    }
}

/// How long the transport may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
