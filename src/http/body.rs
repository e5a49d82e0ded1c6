//! The body of a response, as it comes.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures_core::Stream;
use tokio::io::{AsyncRead, ReadBuf};

use super::HttpError;

/// The body of a response: a stream of chunks, and an [`AsyncRead`]. What is not read is not received, within a small
/// bound. Dropping it before its end closes the connection that it comes by.
#[must_use = "a body that is dropped ends its exchange"]
pub struct HttpBody {
    chunks: Option<Chunks>,
    /// What a reader has left of a chunk.
    rest: Bytes,
}

type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, HttpError>> + Send>>;

impl HttpBody {
    /// A body of these chunks. The first error is the last item.
    pub fn new(chunks: impl Stream<Item = Result<Bytes, HttpError>> + Send + 'static) -> Self {
        Self { chunks: Some(Box::pin(chunks)), rest: Bytes::new() }
    }

    /// The next bytes; none at the end. Where they are cut has no meaning.
    ///
    /// # Errors
    ///
    /// An [`HttpError`]; then there is nothing after it.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        poll_fn(|cx| self.poll_chunk(cx)).await.transpose()
    }

    /// All that is left of the body.
    ///
    /// # Errors
    ///
    /// An [`HttpError`]; `BodyTooLarge` if there are more than `max_bytes`.
    pub async fn collect(mut self, max_bytes: u64) -> Result<Bytes, HttpError> {
        let mut whole = BytesMut::new();
        let mut only = Bytes::new();
        while let Some(chunk) = self.chunk().await? {
            if (only.len() + whole.len()) as u64 + chunk.len() as u64 > max_bytes {
                return Err(HttpError::BodyTooLarge { limit: max_bytes });
            }
            if only.is_empty() && whole.is_empty() {
                only = chunk;
                continue;
            }
            whole.extend_from_slice(&std::mem::take(&mut only));
            whole.extend_from_slice(&chunk);
        }
        Ok(if only.is_empty() { whole.freeze() } else { only })
    }

    /// As [`chunk`](Self::chunk). No chunk is empty.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, HttpError>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.rest))));
        }
        while let Some(chunks) = &mut self.chunks {
            match ready!(chunks.as_mut().poll_next(cx)) {
                Some(Ok(chunk)) if chunk.is_empty() => {}
                Some(Ok(chunk)) => return Poll::Ready(Some(Ok(chunk))),
                Some(Err(error)) => {
                    self.chunks = None;
                    return Poll::Ready(Some(Err(error)));
                }
                None => self.chunks = None,
            }
        }
        Poll::Ready(None)
    }
}

impl Stream for HttpBody {
    type Item = Result<Bytes, HttpError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_chunk(cx)
    }
}

impl AsyncRead for HttpBody {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let body = self.get_mut();
        let Some(chunk) = ready!(body.poll_chunk(cx)).transpose()? else { return Poll::Ready(Ok(())) };
        body.rest = chunk;
        let count = body.rest.len().min(buf.remaining());
        buf.put_slice(&body.rest[..count]);
        body.rest.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for HttpBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpBody").field("ended", &self.chunks.is_none()).finish_non_exhaustive()
    }
}
