//! Strings: where one ends, and what its escapes stand for.

use std::borrow::Cow;

/// Why a string is invalid, and how far behind its opening quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) reason: &'static str,
    pub(super) at: usize,
}

/// The offset of the quote that ends the string whose text begins at `rest`. Everything before it is checked.
pub(super) fn end(rest: &[u8]) -> Result<usize, Fault> {
    let mut at = 0;
    loop {
        at += plain_length(rest.get(at..).unwrap_or_default());
        match rest.get(at) {
            Some(b'"') => return Ok(at),
            Some(b'\\') => {
                at += escape_length(rest.get(at..).unwrap_or_default()).map_err(|reason| Fault { reason, at })?
            }
            Some(_) => return Err(Fault { reason: "control character in a string", at }),
            None => return Err(Fault { reason: "unexpected end", at }),
        }
    }
}

/// How many bytes come before the first that is a quote, a backslash or a control character.
pub(in crate::wire) fn plain_length(bytes: &[u8]) -> usize {
    // The compiler turns the inner loop into a few vector instructions, since it never leaves early.
    let mut blocks = bytes.chunks_exact(BLOCK_BYTES);
    let mut length = 0;
    for block in &mut blocks {
        if block.iter().fold(false, |found, byte| found | is_special(*byte)) {
            break;
        }
        length += BLOCK_BYTES;
    }
    let rest = bytes.get(length..).unwrap_or_default();
    length + rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len())
}

const fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

const BLOCK_BYTES: usize = 64;

/// The length of the escape that `bytes` begins with; two escapes, if they are a surrogate pair.
fn escape_length(bytes: &[u8]) -> Result<usize, &'static str> {
    match bytes.get(1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(2),
        Some(b'u') => unicode_escape(bytes).map(|(_, length)| length),
        Some(_) => Err("invalid escape"),
        None => Err("unexpected end"),
    }
}

/// The character that an escape `\u…` or a pair of them stands for, and the length.
fn unicode_escape(bytes: &[u8]) -> Result<(char, usize), &'static str> {
    let first = code_unit(bytes)?;
    if !(0xD800..0xE000).contains(&first) {
        return char::from_u32(first).map(|c| (c, 6)).ok_or("invalid escape");
    }
    if first >= 0xDC00 {
        return Err("lone trailing surrogate in an escape");
    }
    match code_unit(bytes.get(6..).unwrap_or_default()) {
        Ok(second) if (0xDC00..0xE000).contains(&second) => {
            let code_point = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            char::from_u32(code_point).map(|c| (c, 12)).ok_or("invalid escape")
        }
        _ => Err("lone leading surrogate in an escape"),
    }
}

fn code_unit(bytes: &[u8]) -> Result<u32, &'static str> {
    let [b'\\', b'u', digits @ ..] = bytes else { return Err("invalid escape") };
    let digits = digits.get(..4).ok_or("unexpected end")?;
    digits.iter().try_fold(0, |unit, digit| {
        char::from(*digit).to_digit(16).map(|value| unit << 4 | value).ok_or("invalid escape")
    })
}

/// The text that a checked string stands for. None if it has an invalid escape.
pub(in crate::wire) fn unescape(raw: &str) -> Option<Cow<'_, str>> {
    let Some((plain, mut rest)) = split_at_escape(raw) else { return Some(Cow::Borrowed(raw)) };
    let mut text = String::with_capacity(raw.len());
    text.push_str(plain);
    loop {
        let (character, length) = match rest.as_bytes().get(1)? {
            b'"' => ('"', 2),
            b'\\' => ('\\', 2),
            b'/' => ('/', 2),
            b'b' => ('\u{8}', 2),
            b'f' => ('\u{c}', 2),
            b'n' => ('\n', 2),
            b'r' => ('\r', 2),
            b't' => ('\t', 2),
            b'u' => unicode_escape(rest.as_bytes()).ok()?,
            _ => return None,
        };
        text.push(character);
        let behind = rest.get(length..)?;
        match split_at_escape(behind) {
            Some((plain, next)) => {
                text.push_str(plain);
                rest = next;
            }
            None => {
                text.push_str(behind);
                return Some(Cow::Owned(text));
            }
        }
    }
}

fn split_at_escape(text: &str) -> Option<(&str, &str)> {
    text.find('\\').and_then(|at| text.split_at_checked(at))
}
