//! The two halves over one WebSocket.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

use super::io::Io;
use crate::config::MessageLimits;
use crate::error::TransportError;
use crate::transport::{CloseReason, Incoming, Outgoing, PingStart};

/// A WebSocket, its queue of fragments and its state of closing.
pub(super) struct Socket {
    stream: WebSocketStream<Counted>,
    /// Frames of a message that is too large for one frame, and of what follows them.
    waiting: VecDeque<Frame>,
    /// Pings whose answers may still be buffered.
    pings: usize,
    answered_mark: Option<u64>,
    close_queued: bool,
    max_message_bytes: u64,
}

impl Socket {
    pub(super) async fn new(stream: Io, early: Vec<u8>, role: Role, limits: MessageLimits) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(match role {
                Role::Server => SERVER_READ_BYTES,
                Role::Client => CLIENT_READ_BYTES,
            })
            .write_buffer_size(WRITE_BUFFER_BYTES)
            .max_write_buffer_size(WRITE_BUFFER_BYTES + MAX_SENT_FRAME_BYTES + CONTROL_BYTES)
            .max_message_size(Some(limits.max_message_bytes))
            .max_frame_size(Some(limits.max_message_bytes))
            .accept_unmasked_frames(false);
        let counted = Counted { stream, received_bytes: 0, sent_bytes: 0 };
        Self {
            stream: WebSocketStream::from_partially_read(counted, early, role, Some(config)).await,
            waiting: VecDeque::new(),
            pings: 0,
            answered_mark: None,
            close_queued: false,
            max_message_bytes: limits.max_message_bytes as u64,
        }
    }

    pub(super) fn split(self) -> (WebSocketSender, WebSocketReceiver) {
        let shared = Shared(Arc::new(Mutex::new(self)));
        let sender = WebSocketSender { socket: shared.clone(), reason: CloseReason::Normal, closing: Closing::Open };
        (sender, WebSocketReceiver { socket: shared, ended: false })
    }

    fn queue(&mut self, message: Bytes) -> Result<(), TransportError> {
        if message.len() <= MAX_SENT_FRAME_BYTES {
            return self.queue_frame(Frame::message(message, OpCode::Data(Data::Text), true));
        }
        let mut rest = message;
        let mut kind = Data::Text;
        while !rest.is_empty() {
            let part = rest.split_to(rest.len().min(MAX_SENT_FRAME_BYTES));
            self.waiting.push_back(Frame::message(part, OpCode::Data(kind), rest.is_empty()));
            kind = Data::Continue;
        }
        Ok(())
    }

    fn queue_frame(&mut self, frame: Frame) -> Result<(), TransportError> {
        if !self.waiting.is_empty() {
            self.waiting.push_back(frame);
            return Ok(());
        }
        match Pin::new(&mut self.stream).start_send(Message::Frame(frame)) {
            Err(WsError::WriteBufferFull(message)) => {
                if let Message::Frame(frame) = *message {
                    self.waiting.push_back(frame);
                }
                Ok(())
            }
            result => result.map_err(from_write_error),
        }
    }

    /// Hands all waiting frames to the library, with no more than one of them in its buffer.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        while let Some(frame) = self.waiting.pop_front() {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Pending => {
                    self.waiting.push_front(frame);
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(from_write_error(error))),
                Poll::Ready(Ok(())) => {}
            }
            Pin::new(&mut self.stream).start_send(Message::Frame(frame)).map_err(from_write_error)?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        ready!(self.poll_waiting(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx)).map_err(from_write_error)?;
        self.pings = 0;
        Poll::Ready(Ok(()))
    }

    /// Queues a close frame, once. When the connection is already closing there is nothing left to say.
    fn queue_close(&mut self, reason: CloseReason) {
        if std::mem::replace(&mut self.close_queued, true) {
            return;
        }
        // A message of which a part was sent cannot be finished any more.
        self.waiting.clear();
        let (code, text) = match reason {
            CloseReason::Normal => (CloseCode::Normal, ""),
            CloseReason::GoingAway => (CloseCode::Away, "shutting down"),
            CloseReason::ProtocolError => (CloseCode::Protocol, "protocol error"),
            CloseReason::BadText => (CloseCode::Invalid, "text is not valid UTF-8"),
            CloseReason::Policy => (CloseCode::Policy, "not allowed"),
            CloseReason::TooLarge => (CloseCode::Size, "message too large"),
        };
        let frame = CloseFrame { code, reason: text.into() };
        // The only errors are those of a connection that is already closed or closing.
        let _ = Pin::new(&mut self.stream).start_send(Message::Close(Some(frame)));
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, TransportError>>> {
        loop {
            // The library buffers an answer to every ping; a peer that never reads could make it grow.
            if self.pings >= MAX_BUFFERED_PONGS {
                match ready!(Pin::new(&mut self.stream).poll_flush(cx)) {
                    Ok(()) => self.pings = 0,
                    Err(error) => return Poll::Ready(Some(Err(from_write_error(error)))),
                }
            }
            match ready!(Pin::new(&mut self.stream).poll_next(cx)) {
                Some(Ok(Message::Text(text))) => return Poll::Ready(Some(Ok(text.into()))),
                Some(Ok(Message::Binary(bytes))) => return Poll::Ready(Some(Ok(bytes))),
                Some(Ok(Message::Ping(_))) => self.pings += 1,
                Some(Ok(Message::Pong(payload))) => {
                    // One that nobody asked for is allowed, and means nothing.
                    let mark = payload.as_ref().try_into().ok().map(u64::from_be_bytes);
                    self.answered_mark = mark.or(self.answered_mark);
                }
                Some(Ok(Message::Frame(_))) => {}
                Some(Ok(Message::Close(frame))) => {
                    self.close_queued = true;
                    // The answer is queued; what cannot leave now leaves when the sending half is closed.
                    let _ = Pin::new(&mut self.stream).poll_flush(cx);
                    return Poll::Ready(close_error(frame).map(Err));
                }
                Some(Err(error)) => {
                    let (error, reason) = self.explain_read_error(error);
                    if let Some(reason) = reason {
                        self.queue_close(reason);
                        let _ = Pin::new(&mut self.stream).poll_flush(cx);
                    }
                    return Poll::Ready(error.map(Err));
                }
                None => return Poll::Ready(None),
            }
        }
    }

    /// What the host is told, if it is more than an end; and what the peer is told.
    fn explain_read_error(&self, error: WsError) -> (Option<TransportError>, Option<CloseReason>) {
        match error {
            WsError::Capacity(CapacityError::MessageTooLong { size, .. }) => {
                let limit_bytes = self.max_message_bytes;
                let error = TransportError::MessageTooLarge { size_bytes: Some(size as u64), limit_bytes };
                (Some(error), Some(CloseReason::TooLarge))
            }
            WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => (None, None),
            WsError::Utf8(_) => {
                (Some(TransportError::Framing("text is not valid UTF-8".into())), Some(CloseReason::BadText))
            }
            WsError::Io(error) => (Some(error.into()), None),
            error => (Some(TransportError::Framing(error.to_string())), Some(CloseReason::ProtocolError)),
        }
    }

    /// Reads and drops what still comes. Ready at the end of the stream, also if it is an error.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 4096];
        for _ in 0..DRAIN_READS {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.stream.get_mut().stream).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("waiting_frames", &self.waiting.len())
            .field("received_bytes", &self.stream.get_ref().received_bytes)
            .field("close_queued", &self.close_queued)
            .finish_non_exhaustive()
    }
}

/// One task drives both halves, so that the lock is never contended.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Socket>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Socket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct WebSocketSender {
    socket: Shared,
    reason: CloseReason,
    closing: Closing,
}

#[derive(Debug)]
enum Closing {
    Open,
    /// The close frame and what was queued before it are on their way.
    Flushing(Pin<Box<Sleep>>),
    /// All was sent; the peer's end is awaited, since data that arrives after the end of a socket would reset the
    /// connection and take our close frame with it.
    Draining(Pin<Box<Sleep>>),
    Closed,
}

impl Sink<Bytes> for WebSocketSender {
    type Error = TransportError;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        let mut socket = self.socket.lock();
        ready!(socket.poll_waiting(cx))?;
        Pin::new(&mut socket.stream).poll_ready(cx).map_err(from_write_error)
    }

    fn start_send(self: Pin<&mut Self>, message: Bytes) -> Result<(), TransportError> {
        let mut socket = self.socket.lock();
        if socket.close_queued {
            return Err(TransportError::Closed(None));
        }
        socket.queue(message)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.socket.lock().poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        let this = &mut *self;
        let mut socket = this.socket.lock();
        loop {
            match &mut this.closing {
                Closing::Open => this.closing = Closing::Flushing(Box::pin(tokio::time::sleep(FLUSH_TIME))),
                Closing::Flushing(deadline) => {
                    let flushed = if socket.close_queued {
                        socket.poll_flush(cx)
                    } else {
                        match socket.poll_waiting(cx) {
                            Poll::Ready(Ok(())) => {
                                socket.queue_close(this.reason);
                                continue;
                            }
                            other => other,
                        }
                    };
                    let flushed = match flushed {
                        Poll::Ready(flushed) => flushed,
                        Poll::Pending => {
                            ready!(deadline.as_mut().poll(cx));
                            Ok(())
                        }
                    };
                    // The peer may already be gone, which is what a close is for.
                    let shut = Pin::new(&mut socket.stream.get_mut().stream).poll_shutdown(cx);
                    let open = flushed.is_ok() && !matches!(shut, Poll::Ready(Err(_)));
                    this.closing = match open {
                        true => Closing::Draining(Box::pin(tokio::time::sleep(DRAIN_TIME))),
                        false => Closing::Closed,
                    };
                }
                Closing::Draining(deadline) => {
                    if socket.poll_drain(cx).is_pending() {
                        ready!(deadline.as_mut().poll(cx));
                    }
                    this.closing = Closing::Closed;
                }
                Closing::Closed => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl Outgoing for WebSocketSender {
    fn start_ping(&mut self, mark: u64) -> PingStart {
        let mut socket = self.socket.lock();
        let payload = Bytes::copy_from_slice(&mark.to_be_bytes());
        // Control frames may stand between fragments, so that a ping never waits for a large message. If the buffer is
        // full, bytes are on their way already, and the peer has enough to answer to.
        let queued = !socket.close_queued && Pin::new(&mut socket.stream).start_send(Message::Ping(payload)).is_ok();
        if queued { PingStart::Queued } else { PingStart::Busy }
    }

    fn sent_bytes(&self) -> Option<u64> {
        Some(self.socket.lock().stream.get_ref().sent_bytes)
    }

    fn set_close_reason(&mut self, reason: CloseReason) {
        self.reason = reason;
    }
}

#[derive(Debug)]
pub(super) struct WebSocketReceiver {
    socket: Shared,
    ended: bool,
}

impl Stream for WebSocketReceiver {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = ready!(self.socket.lock().poll_message(cx));
        self.ended = !matches!(next, Some(Ok(_)));
        Poll::Ready(next)
    }
}

impl Incoming for WebSocketReceiver {
    fn received_bytes(&self) -> u64 {
        self.socket.lock().stream.get_ref().received_bytes
    }

    fn answered_mark(&self) -> Option<u64> {
        self.socket.lock().answered_mark
    }
}

/// A socket that counts what comes in, whether or not it makes a message yet, and what goes out.
#[derive(Debug)]
struct Counted {
    stream: Io,
    received_bytes: u64,
    sent_bytes: u64,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.received_bytes += (buf.filled().len() - before) as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.sent_bytes += written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn from_write_error(error: WsError) -> TransportError {
    match error {
        WsError::ConnectionClosed
        | WsError::AlreadyClosed
        | WsError::Protocol(ProtocolError::SendAfterClosing | ProtocolError::ResetWithoutClosingHandshake) => {
            TransportError::Closed(None)
        }
        WsError::Io(error) => error.into(),
        error => TransportError::Framing(error.to_string()),
    }
}

/// What a close frame of the peer means beyond an ordinary end.
fn close_error(frame: Option<CloseFrame>) -> Option<TransportError> {
    let frame = frame?;
    if matches!(frame.code, CloseCode::Normal | CloseCode::Away | CloseCode::Status) && frame.reason.is_empty() {
        return None;
    }
    let text = match frame.reason.as_str() {
        "" => format!("code {}", u16::from(frame.code)),
        reason => format!("code {}, {reason}", u16::from(frame.code)),
    };
    Some(TransportError::Closed(Some(text)))
}

/// Larger messages leave in several frames. With each piece that the socket takes, the library moves up all that is left of a
/// frame; and the reference drops a connection for one of more than 16 MiB.
const MAX_SENT_FRAME_BYTES: usize = 512 << 10;
/// Small messages gather up to here and leave together. The library never holds more than this and one frame.
const WRITE_BUFFER_BYTES: usize = 64 << 10;
/// Room for answers to pings beside the largest frame.
const CONTROL_BYTES: usize = 64 << 10;
const MAX_BUFFERED_PONGS: usize = 64;
/// The library clears its buffer before each read, which for the short messages that a server gets should be short.
const SERVER_READ_BYTES: usize = 16 << 10;
const CLIENT_READ_BYTES: usize = 64 << 10;
/// How long a close waits for what is queued to leave.
const FLUSH_TIME: Duration = Duration::from_secs(2);
/// How long a close waits for the peer's end.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// Reads of one poll while draining.
const DRAIN_READS: usize = 16;
