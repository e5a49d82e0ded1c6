//! Files as streams: blocks read ahead, and blocks written behind.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Block, FileHandle, FsError, MAX_BLOCK_BYTES};

type InFlight<T> = Pin<Box<dyn Future<Output = Result<T, FsError>> + Send>>;

/// How many blocks of a stream are under way at a time. 4: enough to hide the time of a round trip behind that of the
/// others, few enough that other calls of the connection hardly wait.
pub const BLOCKS_IN_FLIGHT: usize = 4;

/// Bytes in one block of a stream. 256 KiB.
pub const STREAM_BLOCK_BYTES: usize = 256 << 10;

/// A file that is open for reading, as a [`Stream`] of [`Bytes`] and as [`AsyncRead`]. It ends at the end of the file as
/// it is found; a file that grows meanwhile may end before its new end.
///
/// After an error it has ended. That too many calls are under way is none: the block is asked for again after a pause, for
/// which the runtime needs its time driver; likewise for [`FileWriter`].
#[must_use = "a reader does nothing unless it is polled"]
pub struct FileReader {
    handle: Arc<dyn FileHandle>,
    offset: u64,
    blocks_in_flight: usize,
    block_bytes: usize,
    in_flight: VecDeque<Pending>,
    /// What was read and not yet taken.
    rest: Bytes,
    ended: bool,
}

/// A block that was asked for, and its answer if it came before that of an earlier one.
enum Pending {
    Asked(InFlight<Block>),
    Came(Result<Block, FsError>),
}

impl FileReader {
    /// Reads from `offset` on.
    pub fn new(handle: impl Into<Arc<dyn FileHandle>>, offset: u64) -> Self {
        Self {
            handle: handle.into(),
            offset,
            blocks_in_flight: BLOCKS_IN_FLIGHT,
            block_bytes: STREAM_BLOCK_BYTES,
            in_flight: VecDeque::new(),
            rest: Bytes::new(),
            ended: false,
        }
    }

    /// Sets how many blocks are under way at a time, at least one, and how many bytes a block has, at most
    /// [`MAX_BLOCK_BYTES`].
    pub fn blocks(mut self, in_flight: usize, bytes: usize) -> Self {
        self.blocks_in_flight = in_flight.max(1);
        self.block_bytes = bytes.clamp(1, MAX_BLOCK_BYTES);
        self
    }

    fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FsError>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.rest))));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        while self.in_flight.len() < self.blocks_in_flight {
            let (handle, offset, length) = (Arc::clone(&self.handle), self.offset, self.block_bytes);
            let block = Box::pin(async move {
                let block = when_there_is_room(|| handle.read_block(offset, length)).await?;
                block.checked(length)
            });
            self.in_flight.push_back(Pending::Asked(block));
            self.offset = offset.saturating_add(length as u64);
        }
        // All of them are polled, so that all of them are sent.
        for pending in &mut self.in_flight {
            if let Pending::Asked(block) = pending
                && let Poll::Ready(block) = block.as_mut().poll(cx)
            {
                *pending = Pending::Came(block);
            }
        }
        let Some(Pending::Came(_)) = self.in_flight.front() else { return Poll::Pending };
        let Some(Pending::Came(block)) = self.in_flight.pop_front() else { return Poll::Pending };
        match block {
            Ok(block) => {
                if block.eof {
                    self.end();
                    if block.bytes.is_empty() {
                        return Poll::Ready(None);
                    }
                }
                Poll::Ready(Some(Ok(block.bytes)))
            }
            Err(error) => {
                self.end();
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.in_flight.clear();
    }
}

impl Stream for FileReader {
    type Item = Result<Bytes, FsError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_block(cx)
    }
}

impl AsyncRead for FileReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let Some(mut block) = ready!(self.poll_block(cx)).transpose()? else { return Poll::Ready(Ok(())) };
        let taken = block.split_to(block.len().min(buf.remaining()));
        buf.put_slice(&taken);
        self.rest = block;
        Poll::Ready(Ok(()))
    }
}

/// Makes a call as often as it finds that too many others are under way. Those end some day, and this one, which is a part
/// of something larger, is not to fail for their sake.
pub(crate) async fn when_there_is_room<T, F>(mut call: impl FnMut() -> F) -> Result<T, FsError>
where
    F: Future<Output = Result<T, FsError>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        match call().await {
            Err(FsError::Busy(_)) => tokio::time::sleep(pause).await,
            done => return done,
        }
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(320);

impl fmt::Debug for FileReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileReader").field("handle", &self.handle).field("offset", &self.offset).finish_non_exhaustive()
    }
}

/// A file that is open for writing, as [`AsyncWrite`]. What was written is in the file once it is flushed; shutting it
/// down also closes the file.
///
/// After an error, an unknown part of what was not yet flushed is in the file, and every later call fails.
#[must_use = "what is written must be flushed"]
pub struct FileWriter {
    handle: Arc<dyn FileHandle>,
    offset: u64,
    blocks_in_flight: usize,
    block_bytes: usize,
    in_flight: Vec<InFlight<()>>,
    /// What is not yet a whole block.
    gathered: BytesMut,
    failure: Option<FsError>,
    closing: Option<InFlight<()>>,
    closed: bool,
}

impl FileWriter {
    /// Writes from `offset` on.
    pub fn new(handle: impl Into<Arc<dyn FileHandle>>, offset: u64) -> Self {
        Self {
            handle: handle.into(),
            offset,
            blocks_in_flight: BLOCKS_IN_FLIGHT,
            block_bytes: STREAM_BLOCK_BYTES,
            in_flight: Vec::new(),
            gathered: BytesMut::new(),
            failure: None,
            closing: None,
            closed: false,
        }
    }

    /// Sets how many blocks are under way at a time, at least one, and how many bytes a block has, at most
    /// [`MAX_BLOCK_BYTES`].
    pub fn blocks(mut self, in_flight: usize, bytes: usize) -> Self {
        self.blocks_in_flight = in_flight.max(1);
        self.block_bytes = bytes.clamp(1, MAX_BLOCK_BYTES);
        self
    }

    /// Waits until at most `most` blocks are under way.
    fn poll_in_flight(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<()>> {
        let failure = &mut self.failure;
        self.in_flight.retain_mut(|block| match block.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(error)) => {
                failure.get_or_insert(error);
                false
            }
        });
        if let Some(error) = &self.failure {
            self.in_flight.clear();
            return Poll::Ready(Err(error.clone().into()));
        }
        if self.in_flight.len() > most { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn send_gathered(&mut self) {
        let (handle, offset, block) = (Arc::clone(&self.handle), self.offset, self.gathered.split().freeze());
        self.offset = offset.saturating_add(block.len() as u64);
        let written = async move { when_there_is_room(|| handle.write_block(offset, block.clone())).await };
        self.in_flight.push(Box::pin(written));
    }

    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.gathered.is_empty() {
            let most = self.blocks_in_flight - 1;
            ready!(self.poll_in_flight(cx, most))?;
            self.send_gathered();
        }
        self.poll_in_flight(cx, 0)
    }
}

impl AsyncWrite for FileWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut data: &[u8]) -> Poll<io::Result<usize>> {
        if self.closed || self.closing.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.gathered.len() >= self.block_bytes {
            let most = self.blocks_in_flight - 1;
            ready!(self.poll_in_flight(cx, most))?;
            self.send_gathered();
        }
        let room = self.block_bytes - self.gathered.len();
        let taken = data.len().min(room);
        self.gathered.extend_from_slice(data.get(..taken).unwrap_or_default());
        data.advance(taken);
        // The block just filled leaves at once if it may; whether it could not is the next call's matter.
        if self.gathered.len() >= self.block_bytes && self.in_flight.len() < self.blocks_in_flight {
            self.send_gathered();
        }
        match self.poll_in_flight(cx, usize::MAX) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(taken)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flushed(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closed {
            return Poll::Ready(Ok(()));
        }
        if self.closing.is_none() {
            ready!(self.poll_flushed(cx))?;
        }
        let handle = Arc::clone(&self.handle);
        let closing = self.closing.get_or_insert_with(|| Box::pin(async move { handle.close().await }));
        let result = ready!(closing.as_mut().poll(cx));
        self.closed = true;
        Poll::Ready(result.map_err(Into::into))
    }
}

impl fmt::Debug for FileWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWriter").field("handle", &self.handle).field("offset", &self.offset).finish_non_exhaustive()
    }
}
