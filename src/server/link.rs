//! The two halves of a connection, with its signs of life.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::Sink;

use super::ServeError;
use crate::config::Keepalive as KeepaliveConfig;
use crate::core::keepalive::{Keepalive, Verdict};
use crate::core::pacing::Pacing;
use crate::error::{PeerMisbehaved, TransportError};
use crate::time::{self, Instant};
use crate::transport::{CloseReason, Incoming, Outgoing, PingStart, Transport};

/// A connection, as its present driver holds it.
#[derive(Debug)]
pub(super) struct Link {
    outgoing: Box<dyn Outgoing>,
    incoming: Box<dyn Incoming>,
    keepalive: Keepalive,
    pacing: Pacing,
    unflushed: bool,
}

impl Link {
    pub(super) fn new(transport: Box<dyn Transport>, keepalive: KeepaliveConfig) -> Self {
        let (outgoing, incoming) = transport.split();
        let now = time::now();
        Self {
            outgoing,
            incoming,
            keepalive: Keepalive::new(keepalive, now),
            pacing: Pacing::new(now),
            unflushed: false,
        }
    }

    /// The next message of the client; none at the end of the connection.
    pub(super) fn poll_message(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
    ) -> Poll<Option<Result<Bytes, TransportError>>> {
        let next = Pin::new(&mut self.incoming).poll_next(cx);
        self.keepalive.handle_received(now, self.incoming.received_bytes());
        if let Some(mark) = self.incoming.answered_mark() {
            self.pacing.handle_answer(now, mark);
        }
        next
    }

    /// Whether the client is being listened to, so that its silence has a meaning.
    pub(super) fn set_listening(&mut self, now: Instant, listening: bool) {
        self.keepalive.set_listening(now, listening);
    }

    /// Ready when the connection takes one more message.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Pin::new(&mut self.outgoing).poll_ready(cx)
    }

    /// Whether the client has read enough of what was sent, so that more output may follow.
    pub(super) fn has_room(&self) -> bool {
        self.pacing.has_room()
    }

    /// Hands over a message, after [`Self::poll_ready`].
    pub(super) fn start_send(&mut self, now: Instant, message: Bytes) -> Result<(), TransportError> {
        self.unflushed = true;
        self.pacing.handle_sent(now, message.len());
        Pin::new(&mut self.outgoing).start_send(message)?;
        self.mark(now);
        Ok(())
    }

    /// Puts a mark behind what was sent, if it is time for one. To be called on every turn: an answer may call for one.
    pub(super) fn mark(&mut self, now: Instant) {
        if self.pacing.wants_mark() {
            self.ping(now);
        }
    }

    /// Another connection asks for the session of this one: this one has to show a sign of life within `limit`.
    pub(super) fn challenge(&mut self, now: Instant, limit: std::time::Duration) {
        if self.keepalive.challenge(now, limit) {
            self.ping(now);
        }
    }

    fn ping(&mut self, now: Instant) {
        match self.outgoing.start_ping(self.pacing.mark()) {
            PingStart::Queued => {
                self.unflushed = true;
                self.pacing.handle_marked(now);
            }
            // For the keepalive the silence of the peer counts all the same; a mark is tried again.
            PingStart::Busy => {}
            PingStart::Unsupported => {
                self.keepalive.disable();
                self.pacing.disable();
            }
        }
    }

    /// Pushes on what was handed over; ready when all has left.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        if self.unflushed {
            ready!(Pin::new(&mut self.outgoing).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.keepalive.poll_timeout(), self.pacing.poll_timeout()].into_iter().flatten().min()
    }

    /// Pings when it is time, and says when the client has been silent for too long.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), ServeError> {
        self.pacing.handle_timeout(now);
        if let Some(sent) = self.outgoing.sent_bytes() {
            self.keepalive.handle_sent(now, sent);
        }
        match self.keepalive.handle_timeout(now) {
            Verdict::Alive => {}
            Verdict::Ping => self.ping(now),
            Verdict::Dead { silence } => return Err(PeerMisbehaved::Silent { silence }.into()),
        }
        Ok(())
    }

    /// Says why, and closes. Waits for what was handed over, so the caller has to bound the time.
    pub(super) async fn close(mut self, reason: CloseReason) -> Result<(), TransportError> {
        self.outgoing.set_close_reason(reason);
        std::future::poll_fn(|cx| Pin::new(&mut self.outgoing).poll_close(cx)).await
    }
}
