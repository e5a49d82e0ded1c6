//! Connections made of any sink and stream of messages.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;

use super::{Incoming, Outgoing, Transport};
use crate::error::TransportError;

/// Makes a connection of a sink and a stream of whole messages, such as those of a WebSocket that some web framework has
/// accepted; `peer` names the other side in messages.
///
/// Each message is one JSON text. The stream's end, or an error of either, is the end of the connection. There are no pings:
/// a connection that goes silent is found dead by whoever makes the sink and the stream.
///
/// ```
/// use bytes::Bytes;
/// use futures_util::{SinkExt, sink, stream};
/// use longarm::transport;
/// use std::io;
///
/// // In place of the two halves of a socket:
/// let sink = sink::drain::<Bytes>().sink_map_err(io::Error::other);
/// let stream = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"{}"))]);
/// let transport = transport::from_parts(sink, stream, "the host's socket");
/// ```
pub fn from_parts<S, R, E, F>(sink: S, stream: R, peer: impl Into<String>) -> PartsTransport<S, R>
where
    S: Sink<Bytes, Error = E> + Send + Unpin + 'static,
    R: Stream<Item = Result<Bytes, F>> + Send + Unpin + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
    F: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    PartsTransport { sink: SinkPart { sink }, stream: StreamPart { stream, received_bytes: 0 }, peer: peer.into() }
}

/// A connection over a sink and a stream. See [`from_parts`].
#[must_use = "dropping a transport disconnects the peer"]
pub struct PartsTransport<S, R> {
    sink: SinkPart<S>,
    stream: StreamPart<R>,
    peer: String,
}

impl<S, R> fmt::Debug for PartsTransport<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartsTransport").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl<S, R, E, F> Transport for PartsTransport<S, R>
where
    S: Sink<Bytes, Error = E> + Send + Unpin + 'static,
    R: Stream<Item = Result<Bytes, F>> + Send + Unpin + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
    F: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    fn split(self: Box<Self>) -> (Box<dyn Outgoing>, Box<dyn Incoming>) {
        (Box::new(self.sink), Box::new(self.stream))
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }
}

struct SinkPart<S> {
    sink: S,
}

impl<S, E> Sink<Bytes> for SinkPart<S>
where
    S: Sink<Bytes, Error = E> + Unpin,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    type Error = TransportError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Pin::new(&mut self.sink).poll_ready(cx).map_err(broken)
    }

    fn start_send(mut self: Pin<&mut Self>, message: Bytes) -> Result<(), TransportError> {
        Pin::new(&mut self.sink).start_send(message).map_err(broken)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Pin::new(&mut self.sink).poll_flush(cx).map_err(broken)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Pin::new(&mut self.sink).poll_close(cx).map_err(broken)
    }
}

impl<S, E> Outgoing for SinkPart<S>
where
    S: Sink<Bytes, Error = E> + Send + Unpin,
    E: Into<Box<dyn Error + Send + Sync>>,
{
}

impl<S> fmt::Debug for SinkPart<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkPart").finish_non_exhaustive()
    }
}

struct StreamPart<R> {
    stream: R,
    received_bytes: u64,
}

impl<R, F> Stream for StreamPart<R>
where
    R: Stream<Item = Result<Bytes, F>> + Unpin,
    F: Into<Box<dyn Error + Send + Sync>>,
{
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(Pin::new(&mut self.stream).poll_next(cx));
        if let Some(Ok(message)) = &next {
            self.received_bytes += message.len() as u64;
        }
        Poll::Ready(next.map(|message| message.map_err(broken)))
    }
}

impl<R, F> Incoming for StreamPart<R>
where
    R: Stream<Item = Result<Bytes, F>> + Send + Unpin,
    F: Into<Box<dyn Error + Send + Sync>>,
{
    fn received_bytes(&self) -> u64 {
        self.received_bytes
    }
}

impl<R> fmt::Debug for StreamPart<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamPart").field("received_bytes", &self.received_bytes).finish_non_exhaustive()
    }
}

fn broken(error: impl Into<Box<dyn Error + Send + Sync>>) -> TransportError {
    io::Error::other(error).into()
}
