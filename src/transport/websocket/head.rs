//! The head of an HTTP message, read within bounds.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes in a head at most.
pub(super) const MAX_HEAD_BYTES: usize = 16 << 10;
/// Headers in a head at most.
pub(super) const MAX_HEADERS: usize = 64;

/// A head, and what came after it.
pub(super) struct Head {
    pub(super) bytes: Vec<u8>,
    pub(super) rest: Vec<u8>,
}

pub(super) enum HeadError {
    /// The connection ended, or failed, before the head did.
    Io(io::Error),
    TooLarge,
}

/// Reads up to and including the empty line. The caller bounds the time.
pub(super) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Result<Head, HeadError> {
    let mut bytes = Vec::with_capacity(1024);
    let mut scanned = 0;
    loop {
        if stream.read_buf(&mut bytes).await.map_err(HeadError::Io)? == 0 {
            return Err(HeadError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        if let Some(end) = end_of_head(&bytes, scanned) {
            if end > MAX_HEAD_BYTES {
                return Err(HeadError::TooLarge);
            }
            let rest = bytes.split_off(end);
            return Ok(Head { bytes, rest });
        }
        if bytes.len() >= MAX_HEAD_BYTES {
            return Err(HeadError::TooLarge);
        }
        // The empty line may have begun in the last bytes.
        scanned = bytes.len().saturating_sub(3);
    }
}

/// The index behind the first empty line that begins at or after `from`; both kinds of line end count.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let tail = bytes.get(from..)?;
    memchr::memchr_iter(b'\n', tail).find_map(|found| match tail.get(found + 1..)? {
        [b'\n', ..] => Some(from + found + 2),
        [b'\r', b'\n', ..] => Some(from + found + 3),
        _ => None,
    })
}

/// Whether a header that holds a list of words, or several such headers, has `word`, whatever its case.
pub(super) fn has_word(headers: &[httparse::Header<'_>], name: &str, word: &str) -> bool {
    let values = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    values.flat_map(|header| items(header.value)).any(|item| item.eq_ignore_ascii_case(word.as_bytes()))
}

/// The items of a header whose value is a list.
pub(super) fn items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// The first header of this name.
pub(super) fn header<'a>(headers: &[httparse::Header<'a>], name: &str) -> Option<&'a [u8]> {
    headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}
