//! Connections within one process: for tests, and for a host that embeds client and server.
//!
//! A message is handed over as it is, without copies and without a size limit. Each direction holds a bounded number of
//! messages and bytes; a sender waits while that is full. Dropping or closing either end is a disconnect: what was sent
//! before is still received, then the stream ends.

#[cfg(feature = "testing")]
mod faults;
mod queue;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;

use self::queue::Queue;
use super::{Incoming, Outgoing, Transport};
use crate::error::TransportError;

#[cfg(feature = "testing")]
pub use self::faults::Faults;

/// Makes a connection and returns its two ends.
///
/// ```
/// use longarm::transport::memory;
///
/// let (client, server) = memory::pair();
/// ```
pub fn pair() -> (MemoryTransport, MemoryTransport) {
    connect(Arc::new(Queue::new()), Arc::new(Queue::new()))
}

/// Makes a connection with faults: `forth` applies to what the first end sends, `back` to what the second sends.
///
/// Must be called within a tokio runtime if there are delays.
#[cfg(feature = "testing")]
pub fn pair_with_faults(forth: Faults, back: Faults) -> (MemoryTransport, MemoryTransport) {
    let (forth_queue, back_queue) = (Arc::new(Queue::with_faults(forth)), Arc::new(Queue::with_faults(back)));
    forth_queue.break_together(&back_queue);
    back_queue.break_together(&forth_queue);
    connect(forth_queue, back_queue)
}

fn connect(forth: Arc<Queue>, back: Arc<Queue>) -> (MemoryTransport, MemoryTransport) {
    let first = MemoryTransport {
        sender: MemorySender { queue: Arc::clone(&forth) },
        receiver: MemoryReceiver { queue: Arc::clone(&back), received_bytes: 0, ended: false },
    };
    let second = MemoryTransport {
        sender: MemorySender { queue: back },
        receiver: MemoryReceiver { queue: forth, received_bytes: 0, ended: false },
    };
    (first, second)
}

/// One end of a connection within this process. See [`pair`].
#[derive(Debug)]
#[must_use = "dropping an end disconnects the other"]
pub struct MemoryTransport {
    sender: MemorySender,
    receiver: MemoryReceiver,
}

impl Transport for MemoryTransport {
    fn split(self: Box<Self>) -> (Box<dyn Outgoing>, Box<dyn Incoming>) {
        (Box::new(self.sender), Box::new(self.receiver))
    }

    fn peer(&self) -> String {
        "memory".into()
    }
}

#[derive(Debug)]
struct MemorySender {
    queue: Arc<Queue>,
}

impl Sink<Bytes> for MemorySender {
    type Error = TransportError;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.queue.poll_ready(cx)
    }

    fn start_send(self: Pin<&mut Self>, message: Bytes) -> Result<(), TransportError> {
        self.queue.push(message)
    }

    /// A message counts as flushed once it is in the queue: the other end can take it.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.queue.close_sender();
        Poll::Ready(Ok(()))
    }
}

impl Outgoing for MemorySender {}

impl Drop for MemorySender {
    fn drop(&mut self) {
        self.queue.close_sender();
    }
}

#[derive(Debug)]
struct MemoryReceiver {
    queue: Arc<Queue>,
    received_bytes: u64,
    ended: bool,
}

impl Stream for MemoryReceiver {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = std::task::ready!(self.queue.poll_pop(cx));
        match &next {
            Some(Ok(message)) => self.received_bytes += message.len() as u64,
            Some(Err(_)) | None => self.ended = true,
        }
        Poll::Ready(next)
    }
}

impl Incoming for MemoryReceiver {
    fn received_bytes(&self) -> u64 {
        self.received_bytes
    }
}

impl Drop for MemoryReceiver {
    fn drop(&mut self) {
        self.queue.close_receiver();
    }
}
