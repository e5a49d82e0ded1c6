//! The buffer that output is read into.
//!
//! Reads are up to 64 KiB, most output is a few bytes: each thread keeps one buffer, small pieces are copied out of it
//! into their own size, and a large piece takes the buffer along, so that it is never copied.

use std::cell::RefCell;
use std::task::Poll;

use bytes::Bytes;

thread_local! {
    /// Empty between two reads; it holds no data, only room.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Has `read` append at most `limit` bytes to an empty buffer, and returns them; none if it appended none.
pub(super) fn fill<E>(
    limit: usize,
    read: impl FnOnce(&mut Vec<u8>) -> Poll<Result<usize, E>>,
) -> Poll<Result<Bytes, E>> {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.capacity() != limit {
            *buffer = Vec::with_capacity(limit);
        }
        read(buffer).map_ok(|_| take(buffer))
    })
}

fn take(buffer: &mut Vec<u8>) -> Bytes {
    if buffer.len() > buffer.capacity() / 2 {
        return std::mem::take(buffer).into();
    }
    let bytes = Bytes::copy_from_slice(buffer);
    buffer.clear();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(bytes: usize) -> Bytes {
        let result: Poll<Result<Bytes, ()>> = fill(1024, |buffer| {
            assert!(buffer.is_empty());
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
        for bytes in [0, 1, 511, 512, 513, 1024, 3] {
            assert_eq!(filled(bytes).len(), bytes);
        }
    }

    #[test]
    fn an_unfinished_read_leaves_the_buffer_empty() {
        let result: Poll<Result<Bytes, ()>> = fill(1024, |_| Poll::Pending);
        assert!(result.is_pending());
        assert_eq!(filled(2).len(), 2);
    }
}
