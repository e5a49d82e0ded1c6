//! Bytes ↔ lines.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use futures_core::Stream;
use futures_sink::Sink;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use crate::error::TransportError;
use crate::transport::{Incoming, Outgoing};

/// Room made for each read.
const READ_BYTES: usize = 64 << 10;
/// Bytes queued for the writer before it is no longer ready.
const QUEUE_BYTES: usize = 256 << 10;
/// Pieces handed over in one write.
const MAX_SLICES: usize = 64;
/// Bytes gathered for one write towards a writer that takes only one piece.
const GATHER_BYTES: usize = 64 << 10;

/// The receiving half. What was read of an unfinished line is kept here, whatever becomes of the futures.
pub(super) struct LineReader<R> {
    io: R,
    buffer: BytesMut,
    /// How much of `buffer` is known to hold no line feed.
    scanned: usize,
    max_line_bytes: usize,
    received_bytes: u64,
    ended: bool,
}

impl<R> LineReader<R> {
    pub(super) fn new(io: R, max_line_bytes: usize) -> Self {
        Self { io, buffer: BytesMut::new(), scanned: 0, max_line_bytes, received_bytes: 0, ended: false }
    }

    /// The next line that is already here, or what is wrong with it.
    fn take_line(&mut self) -> Result<Option<Bytes>, TransportError> {
        while let Some(found) = memchr::memchr(b'\n', &self.buffer[self.scanned..]) {
            let mut line = self.buffer.split_to(self.scanned + found + 1);
            self.scanned = 0;
            line.truncate(line.len() - 1);
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            self.check_size(line.len())?;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if std::str::from_utf8(&line).is_err() {
                return Err(TransportError::Framing("a line is not valid UTF-8".into()));
            }
            return Ok(Some(line.freeze()));
        }
        self.scanned = self.buffer.len();
        // One more byte may be the carriage return.
        self.check_size(self.scanned.saturating_sub(1))?;
        Ok(None)
    }

    fn check_size(&self, line_bytes: usize) -> Result<(), TransportError> {
        if line_bytes > self.max_line_bytes {
            return Err(TransportError::MessageTooLarge { size_bytes: None, limit_bytes: self.max_line_bytes as u64 });
        }
        Ok(())
    }
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, TransportError>>> {
        loop {
            if let Some(line) = self.take_line().transpose() {
                return Poll::Ready(Some(line));
            }
            self.buffer.reserve(READ_BYTES);
            // The future holds no state of its own: bytes are in the buffer once it is ready, and none were taken before.
            let read = ready!(pin!(self.io.read_buf(&mut self.buffer)).poll(cx));
            match read {
                Ok(0) => return Poll::Ready(None),
                Ok(count) => self.received_bytes += count as u64,
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }
}

impl<R: AsyncRead + Unpin> Stream for LineReader<R> {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = ready!(self.poll_line(cx));
        if !matches!(next, Some(Ok(_))) {
            self.ended = true;
            self.buffer = BytesMut::new();
        }
        Poll::Ready(next)
    }
}

impl<R: AsyncRead + Send + Unpin> Incoming for LineReader<R> {
    fn received_bytes(&self) -> u64 {
        self.received_bytes
    }
}

impl<R> fmt::Debug for LineReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineReader")
            .field("buffered", &self.buffer.len())
            .field("received_bytes", &self.received_bytes)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// The sending half.
pub(super) struct LineWriter<W> {
    /// Gone once closed, since for some writers only dropping them is the end of the stream.
    io: Option<W>,
    queue: VecDeque<Bytes>,
    queued_bytes: usize,
    /// Bytes taken from the queue for a writer that takes only one piece; counted in `queued_bytes`.
    gathered: BytesMut,
    failed: Option<TransportError>,
}

impl<W> LineWriter<W> {
    pub(super) fn new(io: W) -> Self {
        Self { io: Some(io), queue: VecDeque::new(), queued_bytes: 0, gathered: BytesMut::new(), failed: None }
    }
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    /// Writes until no more than `rest` bytes are queued.
    fn poll_drain(&mut self, rest: usize, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        if let Some(error) = &self.failed {
            return Poll::Ready(Err(error.clone()));
        }
        let result = ready!(self.poll_write_queue(rest, cx));
        Poll::Ready(result.map_err(|error| self.fail(error)))
    }

    fn poll_write_queue(&mut self, rest: usize, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.queued_bytes > rest {
            let Some(io) = &mut self.io else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
            let written = if io.is_write_vectored() {
                let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                let mut count = 0;
                for (slice, piece) in slices.iter_mut().zip(&self.queue) {
                    *slice = IoSlice::new(piece);
                    count += 1;
                }
                ready!(Pin::new(io).poll_write_vectored(cx, &slices[..count]))?
            } else {
                while self.gathered.len() < GATHER_BYTES
                    && let Some(piece) = self.queue.pop_front()
                {
                    self.gathered.extend_from_slice(&piece);
                }
                ready!(Pin::new(io).poll_write(cx, &self.gathered))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.consume(written);
        }
        Poll::Ready(Ok(()))
    }

    fn consume(&mut self, mut written: usize) {
        self.queued_bytes -= written;
        let from_gathered = written.min(self.gathered.len());
        self.gathered.advance(from_gathered);
        written -= from_gathered;
        while let Some(front) = self.queue.front_mut()
            && written > 0
        {
            let step = written.min(front.len());
            front.advance(step);
            written -= step;
            if front.is_empty() {
                self.queue.pop_front();
            }
        }
    }

    fn fail(&mut self, error: io::Error) -> TransportError {
        let error = match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected => TransportError::Closed(None),
            _ => error.into(),
        };
        self.failed = Some(error.clone());
        self.queue.clear();
        self.queued_bytes = 0;
        self.io = None;
        error
    }
}

impl<W: AsyncWrite + Unpin> Sink<Bytes> for LineWriter<W> {
    type Error = TransportError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        if self.io.is_none() && self.failed.is_none() {
            return Poll::Ready(Err(TransportError::Closed(None)));
        }
        self.poll_drain(QUEUE_BYTES, cx)
    }

    fn start_send(mut self: Pin<&mut Self>, message: Bytes) -> Result<(), TransportError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        // It would end the message early, and make another one of the rest.
        if memchr::memchr(b'\n', &message).is_some() {
            return Err(TransportError::Framing("a message to send contains a line feed".into()));
        }
        self.queued_bytes += message.len() + 1;
        if !message.is_empty() {
            self.queue.push_back(message);
        }
        self.queue.push_back(Bytes::from_static(b"\n"));
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        ready!(self.poll_drain(0, cx))?;
        let Some(io) = &mut self.io else { return Poll::Ready(Ok(())) };
        let result = ready!(Pin::new(io).poll_flush(cx));
        Poll::Ready(result.map_err(|error| self.fail(error)))
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        ready!(self.as_mut().poll_flush(cx))?;
        let Some(io) = &mut self.io else { return Poll::Ready(Ok(())) };
        let result = ready!(Pin::new(io).poll_shutdown(cx));
        self.io = None;
        Poll::Ready(result.map_err(|error| self.fail(error)))
    }
}

impl<W: AsyncWrite + Send + Unpin> Outgoing for LineWriter<W> {}

impl<W> fmt::Debug for LineWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineWriter")
            .field("queued_bytes", &self.queued_bytes)
            .field("closed", &self.io.is_none())
            .finish_non_exhaustive()
    }
}
