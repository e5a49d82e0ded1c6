//! The buffers that output is read into.
//!
//! Reads are up to 64 KiB, most output is a few bytes. Small pieces are copied out into their own size; a large piece
//! takes its buffer along, so that it is never copied, and gives it back when the last reader has dropped it: the same
//! few buffers go round, warm in the cache, instead of fresh memory for each piece.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use bytes::Bytes;

/// The buffers of one place.
#[derive(Debug)]
pub(super) struct Buffers {
    size: usize,
    free: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    /// Buffers of `size` bytes; none yet.
    pub(super) fn new(size: usize) -> Self {
        Self { size: size.max(1), free: Mutex::default() }
    }

    /// How much one read brings at most.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Has `read` append to an empty buffer what fits into it, and returns that; empty if it appended nothing.
    pub(super) fn fill<E>(
        self: &Arc<Self>,
        read: impl FnOnce(&mut Vec<u8>) -> Poll<Result<usize, E>>,
    ) -> Poll<Result<Bytes, E>> {
        let buffer = self.lock().pop().unwrap_or_else(|| Vec::with_capacity(self.size));
        let mut filled = Filled { buffer, home: Arc::clone(self) };
        match read(&mut filled.buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(_)) if filled.buffer.len() > self.size / 2 => Poll::Ready(Ok(Bytes::from_owner(filled))),
            Poll::Ready(Ok(_)) => Poll::Ready(Ok(Bytes::copy_from_slice(&filled.buffer))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        // Nothing that can panic runs under the lock.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer in use; it goes home when it is dropped.
struct Filled {
    buffer: Vec<u8>,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut free = self.home.lock();
        if free.len() < KEPT {
            free.push(buffer);
        }
    }
}

/// As many are kept for the next reads; more are given back to the system.
const KEPT: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(buffers: &Arc<Buffers>, bytes: usize) -> Bytes {
        let result: Poll<Result<Bytes, ()>> = buffers.fill(|buffer| {
            assert!(buffer.is_empty() && buffer.capacity() >= 1024);
            buffer.resize(bytes, b'x');
            Poll::Ready(Ok(bytes))
        });
        match result {
            Poll::Ready(Ok(bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pieces_come_whole_whatever_their_size() {
        let buffers = Arc::new(Buffers::new(1024));
        for bytes in [0, 1, 511, 512, 513, 1024, 3] {
            assert_eq!(filled(&buffers, bytes).len(), bytes);
        }
    }

    #[test]
    fn buffers_come_back_and_only_a_few_are_kept() {
        let buffers = Arc::new(Buffers::new(1024));
        let small = filled(&buffers, 10);
        assert_eq!(buffers.lock().len(), 1, "a small piece does not hold its buffer");
        let large: Vec<_> = (0..KEPT * 2).map(|_| filled(&buffers, 1000)).collect();
        assert_eq!(buffers.lock().len(), 0);
        drop(large);
        assert_eq!(buffers.lock().len(), KEPT);
        drop(small);
    }

    #[test]
    fn an_unfinished_read_gives_its_buffer_back() {
        let buffers = Arc::new(Buffers::new(1024));
        let result: Poll<Result<Bytes, ()>> = buffers.fill(|_| Poll::Pending);
        assert!(result.is_pending());
        assert_eq!(buffers.lock().len(), 1);
    }
}
