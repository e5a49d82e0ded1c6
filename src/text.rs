//! Output as text: UTF-8 that may be cut anywhere, decoded without losing or doubling a character.
//!
//! Output comes as bytes, cut where the process, the system or a limit happened to cut it. A [`TextDecoder`] keeps the
//! beginning of a character for the next chunk of the same stream; bytes that are not UTF-8 become one mark
//! (U+FFFD) for each maximal run that could have begun a character, and never swallow their neighbours.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use crate::event::{Event, Output, OutputStream};

/// Decodes one stream of bytes, chunk by chunk.
///
/// ```
/// use longarm::text::TextDecoder;
///
/// let mut decoder = TextDecoder::new();
/// assert_eq!(decoder.push(b"\xe2"), "");
/// assert_eq!(decoder.push(b"\x82\xac\n\xff"), "\u{20ac}\n\u{fffd}");
/// assert_eq!(decoder.push(b"ok\xf0\x9f"), "ok");
/// assert_eq!(decoder.finish(), Some('\u{fffd}'));
/// ```
#[derive(Clone, Debug, Default)]
pub struct TextDecoder {
    /// The beginning of a character: at most three bytes.
    incomplete: Vec<u8>,
}

impl TextDecoder {
    /// A decoder at the beginning of a stream.
    pub const fn new() -> Self {
        Self { incomplete: Vec::new() }
    }

    /// Decodes the next chunk, with what was kept of the one before.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, str> {
        if self.incomplete.is_empty() {
            return decode(bytes, &mut self.incomplete);
        }
        let mut joined = std::mem::take(&mut self.incomplete);
        joined.extend_from_slice(bytes);
        Cow::Owned(decode(&joined, &mut self.incomplete).into_owned())
    }

    /// Ends the stream, or a part of it after which bytes are missing: a mark, if a character was begun and never ended.
    pub fn finish(&mut self) -> Option<char> {
        let begun = !self.incomplete.is_empty();
        self.incomplete.clear();
        begun.then_some(char::REPLACEMENT_CHARACTER)
    }
}

/// Decodes the events of one process, each stream for itself.
#[derive(Clone, Debug, Default)]
pub struct EventText {
    stdout: TextDecoder,
    stderr: TextDecoder,
    pty: TextDecoder,
}

impl EventText {
    /// A decoder at the beginning of a process.
    pub const fn new() -> Self {
        Self { stdout: TextDecoder::new(), stderr: TextDecoder::new(), pty: TextDecoder::new() }
    }

    /// The text that an event adds to each stream; empty texts are left out.
    ///
    /// Output adds to one stream. A gap and the end of the streams add a mark to each stream on which a character was
    /// begun.
    pub fn push<'a>(&mut self, event: &'a Event) -> Vec<(OutputStream, Cow<'a, str>)> {
        match event {
            Event::Output(Output { stream, bytes, .. }) => {
                let text = self.decoder(*stream).push(bytes);
                if text.is_empty() { Vec::new() } else { vec![(*stream, text)] }
            }
            Event::Gap(_) | Event::Closed(_) => self.finish(),
            Event::Exited(_) => Vec::new(),
        }
    }

    /// Ends all streams, when the events end otherwise.
    pub fn finish<'a>(&mut self) -> Vec<(OutputStream, Cow<'a, str>)> {
        [OutputStream::Stdout, OutputStream::Stderr, OutputStream::Pty]
            .into_iter()
            .filter_map(|stream| self.decoder(stream).finish().map(|mark| (stream, Cow::Owned(mark.into()))))
            .collect()
    }

    fn decoder(&mut self, stream: OutputStream) -> &mut TextDecoder {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
            OutputStream::Pty => &mut self.pty,
        }
    }
}

/// How many bytes at the end of `bytes` begin a character that is not complete: at most three.
pub fn incomplete_suffix(bytes: &[u8]) -> usize {
    let longest = bytes.len().min(3);
    (1..=longest)
        .find(|&length| {
            let suffix = bytes.get(bytes.len() - length..).unwrap_or_default();
            matches!(std::str::from_utf8(suffix), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

/// How many bytes at the beginning of `bytes` can only be the end of a character: at most three.
pub fn continuation_prefix(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count()
}

fn decode<'a>(bytes: &'a [u8], incomplete: &mut Vec<u8>) -> Cow<'a, str> {
    let (complete, rest) = bytes.split_at(bytes.len() - incomplete_suffix(bytes));
    incomplete.extend_from_slice(rest);
    String::from_utf8_lossy(complete)
}
