//! Bytes as base64 text.

use std::fmt;

use base64_simd::STANDARD;
use bytes::Bytes;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// Bytes that stand on the wire as standard base64 with padding. Every other spelling is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Base64(pub Bytes);

impl From<Bytes> for Base64 {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<Base64> for Bytes {
    fn from(base64: Base64) -> Self {
        base64.0
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode_to_string(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl Visitor<'_> for TextVisitor {
            type Value = Base64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a base64 string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Base64, E> {
                decode(text).map(Base64).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// Decodes standard base64 with padding.
///
/// # Errors
///
/// An [`InvalidBase64`] that says what is wrong and where.
pub fn decode(text: &str) -> Result<Bytes, InvalidBase64> {
    match STANDARD.decode_to_vec(text) {
        Ok(bytes) => Ok(bytes.into()),
        Err(_) => Err(InvalidBase64::find(text.as_bytes())),
    }
}

/// Why a text is not standard base64 with padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidBase64 {
    /// A byte outside of the alphabet, or a `=` where none may stand.
    #[error("Invalid symbol {symbol}, offset {offset}.")]
    Symbol {
        /// The byte.
        symbol: u8,
        /// Its place in the text.
        offset: usize,
    },
    /// The last symbol holds bits that belong to no byte.
    #[error("Invalid last symbol {symbol}, offset {offset}.")]
    LastSymbol {
        /// The symbol.
        symbol: u8,
        /// Its place in the text.
        offset: usize,
    },
    /// One symbol alone stands for no byte.
    #[error("Invalid input length: {0}")]
    Length(usize),
    /// The text does not end in the padding that its length needs.
    #[error("Invalid padding")]
    Padding,
}

impl InvalidBase64 {
    /// Looks for the fault in a text that the decoder refused.
    fn find(text: &[u8]) -> Self {
        let symbols = text.iter().position(|byte| !is_symbol(*byte)).unwrap_or(text.len());
        let (head, tail) = text.split_at(symbols);
        let partial = head.len() % 4;
        match tail.first() {
            Some(b'=') if partial >= 2 => {}
            Some(symbol) => return Self::Symbol { symbol: *symbol, offset: symbols },
            None if partial == 1 => return Self::Length(text.len()),
            None => {}
        }
        if let Some(index) = tail.iter().position(|byte| *byte != b'=') {
            // Text after padding is the padding's fault.
            return if index + partial == 4 { Self::Symbol { symbol: b'=', offset: symbols } } else { Self::Padding };
        }
        if (partial + tail.len()) % 4 != 0 || tail.len() > 2 {
            return Self::Padding;
        }
        match head.last() {
            Some(symbol) => Self::LastSymbol { symbol: *symbol, offset: symbols - 1 },
            None => Self::Padding,
        }
    }
}

const fn is_symbol(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_standard_base64_decodes() {
        for (text, bytes) in
            [("", &b""[..]), ("aA==", b"h"), ("aGk=", b"hi"), ("aGkh", b"hi!"), ("+/+/", b"\xfb\xff\xbf")]
        {
            assert_eq!(decode(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn every_other_spelling_is_refused_and_the_fault_is_named() {
        let symbol = |symbol, offset| InvalidBase64::Symbol { symbol, offset };
        for (text, fault) in [
            ("!!!", symbol(b'!', 0)),
            ("aGk-", symbol(b'-', 3)),
            ("aG k", symbol(b' ', 2)),
            ("aGkh\n", symbol(b'\n', 4)),
            ("aA==aGkh", symbol(b'=', 2)),
            ("aGk", InvalidBase64::Padding),
            ("aA=", InvalidBase64::Padding),
            ("aA", InvalidBase64::Padding),
            ("aGk==", InvalidBase64::Padding),
            ("aGkh=", symbol(b'=', 4)),
            ("a===", symbol(b'=', 1)),
            ("====", symbol(b'=', 0)),
            ("aGkha", InvalidBase64::Length(5)),
            ("aB==", InvalidBase64::LastSymbol { symbol: b'B', offset: 1 }),
            ("aGl=", InvalidBase64::LastSymbol { symbol: b'l', offset: 2 }),
        ] {
            assert_eq!(decode(text).unwrap_err(), fault, "{text:?}");
        }
    }

    #[test]
    fn the_text_of_a_bad_symbol_is_that_of_the_reference() {
        assert_eq!(decode("!").unwrap_err().to_string(), "Invalid symbol 33, offset 0.");
    }
}
