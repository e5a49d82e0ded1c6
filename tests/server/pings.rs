//! A connection that can send pings, which memory has none of.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;
use longarm::error::TransportError;
use longarm::transport::memory::MemoryTransport;
use longarm::transport::{Incoming, Outgoing, PingStart, Transport};

/// Sends pings into the void, or says that it cannot, and answers them when a test says so.
#[derive(Debug)]
pub(crate) struct Pinged {
    transport: MemoryTransport,
    ping: PingStart,
    marks: Arc<Marks>,
}

/// What the pings carried.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    last: Mutex<Option<u64>>,
    answered: Mutex<Option<u64>>,
}

impl Marks {
    /// Answers all pings so far. It shows when the next message arrives.
    pub(crate) fn answer(&self) {
        *self.answered.lock().unwrap() = *self.last.lock().unwrap();
    }

    /// The mark of the last ping.
    pub(crate) fn last(&self) -> Option<u64> {
        *self.last.lock().unwrap()
    }
}

impl Pinged {
    pub(crate) fn new(transport: MemoryTransport, ping: PingStart) -> Self {
        Self { transport, ping, marks: Arc::default() }
    }

    pub(crate) fn marks(&self) -> Arc<Marks> {
        Arc::clone(&self.marks)
    }
}

impl Transport for Pinged {
    fn split(self: Box<Self>) -> (Box<dyn Outgoing>, Box<dyn Incoming>) {
        let Self { transport, ping, marks } = *self;
        let (outgoing, incoming) = Box::new(transport).split();
        let sender = Sender { outgoing, ping, marks: Arc::clone(&marks) };
        (Box::new(sender), Box::new(Receiver { incoming, marks }))
    }

    fn peer(&self) -> String {
        "pinged".into()
    }
}

#[derive(Debug)]
struct Sender {
    outgoing: Box<dyn Outgoing>,
    ping: PingStart,
    marks: Arc<Marks>,
}

impl Sink<Bytes> for Sender {
    type Error = TransportError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Pin::new(&mut self.outgoing).poll_ready(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, message: Bytes) -> Result<(), Self::Error> {
        Pin::new(&mut self.outgoing).start_send(message)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Pin::new(&mut self.outgoing).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Pin::new(&mut self.outgoing).poll_close(cx)
    }
}

impl Outgoing for Sender {
    fn start_ping(&mut self, mark: u64) -> PingStart {
        if self.ping == PingStart::Queued {
            *self.marks.last.lock().unwrap() = Some(mark);
        }
        self.ping
    }
}

#[derive(Debug)]
struct Receiver {
    incoming: Box<dyn Incoming>,
    marks: Arc<Marks>,
}

impl Stream for Receiver {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.incoming).poll_next(cx)
    }
}

impl Incoming for Receiver {
    fn received_bytes(&self) -> u64 {
        self.incoming.received_bytes()
    }

    fn answered_mark(&self) -> Option<u64> {
        *self.marks.answered.lock().unwrap()
    }
}
