//! One strict pass over the text of a message.
//!
//! It checks everything that holds for the text as a whole, whatever the members mean: the grammar, no key twice in an
//! object at any depth, the number of values, the depth of nesting, one object and nothing behind it. On the way it
//! notes where the members of the envelope are, so that they can be decoded straight from the text.
//!
//! The pass is a loop with its own stack, not a recursion, so that the depth limit may be anything. The keys of the
//! objects that are open are kept to find duplicates: a short object compares them one by one, a long one sorts them
//! when it ends. That needs no hashing, and takes *n* log *n* steps however the keys were chosen.

mod keys;
mod string;

use self::keys::{Key, Keys};
pub(super) use self::string::{plain_length, unescape};
use crate::config::MessageLimits;

/// The members of a message's object, as JSON text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Envelope<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) method: Option<&'a str>,
    pub(super) params: Option<&'a str>,
    pub(super) trace: Option<&'a str>,
    pub(super) result: Option<&'a str>,
    pub(super) error: Option<&'a str>,
}

/// Why a text is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// It is larger than the limit.
    #[error("message of {size_bytes} bytes exceeds the limit of {limit_bytes} bytes")]
    TooLarge {
        /// Its size.
        size_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// It is not text in UTF-8.
    #[error("invalid UTF-8 at offset {offset}")]
    NotUtf8 {
        /// The first offending byte.
        offset: usize,
    },
    /// It is not JSON.
    #[error("{reason} at offset {offset}")]
    Syntax {
        /// What is wrong.
        reason: &'static str,
        /// Where.
        offset: usize,
    },
    /// It is JSON, and no object.
    #[error("expected a JSON object")]
    NotAnObject,
    /// An object has a key twice.
    #[error("duplicate key {key:?} in the object that ends at or after offset {offset}")]
    DuplicateKey {
        /// The key, shortened.
        key: String,
        /// Where it was noticed.
        offset: usize,
    },
    /// It has more values than the limit.
    #[error("more than {limit} JSON values")]
    TooManyValues {
        /// The limit.
        limit: usize,
    },
    /// It is nested deeper than the limit.
    #[error("nested deeper than {limit} containers")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// It is an object that matches no kind of message.
    #[error("{0}")]
    Envelope(String),
}

/// Checks `text` and finds the members of its envelope.
pub(super) fn scan<'a>(text: &'a str, limits: &MessageLimits) -> Result<Envelope<'a>, DecodeError> {
    let scanner = Scanner {
        text,
        offset: 0,
        values: 0,
        max_values: limits.max_json_values,
        max_depth: limits.max_json_depth,
        open: Vec::with_capacity(8),
        keys: Keys::new(text),
        envelope: Envelope::default(),
        member: Member::Other,
        member_offset: 0,
    };
    scanner.run()
}

struct Scanner<'a> {
    text: &'a str,
    offset: usize,
    values: usize,
    max_values: usize,
    max_depth: usize,
    open: Vec<Container>,
    keys: Keys<'a>,
    envelope: Envelope<'a>,
    /// Which member of the message's object is being read, and where its value begins.
    member: Member,
    member_offset: usize,
}

#[derive(Clone, Copy)]
enum Container {
    Array,
    /// Its keys begin at this index.
    Object {
        first_key: usize,
    },
}

#[derive(Clone, Copy)]
enum Member {
    Id,
    Method,
    Params,
    Trace,
    Result,
    Error,
    Other,
}

impl<'a> Scanner<'a> {
    fn run(mut self) -> Result<Envelope<'a>, DecodeError> {
        self.skip_blanks();
        let is_object = self.peek() == Some(b'{');
        loop {
            let mut progress = self.value()?;
            while progress == Progress::ValueEnded {
                progress = self.next_in_container()?;
            }
            if progress == Progress::TextEnded {
                return if is_object { Ok(self.envelope) } else { Err(DecodeError::NotAnObject) };
            }
        }
    }

    /// Reads a scalar, an empty container, or the beginning of another one up to its first value.
    fn value(&mut self) -> Result<Progress, DecodeError> {
        self.skip_blanks();
        self.count_value()?;
        if self.open.len() == 1 {
            self.member_offset = self.offset;
        }
        match self.peek() {
            Some(b'"') => self.string().map(|_| Progress::ValueEnded),
            Some(b'{') => {
                self.open_container(Container::Object { first_key: self.keys.count() })?;
                if self.peek() == Some(b'}') {
                    return Ok(self.close_container());
                }
                self.key()?;
                Ok(Progress::BeforeValue)
            }
            Some(b'[') => {
                self.open_container(Container::Array)?;
                if self.peek() == Some(b']') {
                    return Ok(self.close_container());
                }
                Ok(Progress::BeforeValue)
            }
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| Progress::ValueEnded),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(_) => Err(self.syntax("expected a value")),
            None => Err(self.syntax("unexpected end")),
        }
    }

    /// After a value: goes on to the next one of the same container, or ends that container, or the text.
    fn next_in_container(&mut self) -> Result<Progress, DecodeError> {
        if self.open.len() == 1 {
            self.note_member();
        }
        self.skip_blanks();
        match (self.open.last().copied(), self.peek()) {
            (None, None) => Ok(Progress::TextEnded),
            (None, Some(_)) => Err(self.syntax("trailing text")),
            (Some(Container::Array), Some(b',')) => {
                self.offset += 1;
                Ok(Progress::BeforeValue)
            }
            (Some(Container::Object { .. }), Some(b',')) => {
                self.offset += 1;
                self.skip_blanks();
                self.key()?;
                Ok(Progress::BeforeValue)
            }
            (Some(Container::Array), Some(b']')) => Ok(self.close_container()),
            (Some(Container::Object { first_key }), Some(b'}')) => {
                if let Some(key) = self.keys.find_twice(first_key) {
                    return Err(self.duplicate(key));
                }
                Ok(self.close_container())
            }
            (Some(_), Some(_)) => Err(self.syntax("expected a comma or the end of the container")),
            (Some(_), None) => Err(self.syntax("unexpected end")),
        }
    }

    fn open_container(&mut self, container: Container) -> Result<(), DecodeError> {
        if self.open.len() >= self.max_depth {
            return Err(DecodeError::TooDeep { limit: self.max_depth });
        }
        self.open.push(container);
        self.offset += 1;
        self.skip_blanks();
        Ok(())
    }

    fn close_container(&mut self) -> Progress {
        self.offset += 1;
        if let Some(Container::Object { first_key }) = self.open.pop() {
            self.keys.truncate(first_key);
        }
        Progress::ValueEnded
    }

    fn count_value(&mut self) -> Result<(), DecodeError> {
        self.values += 1;
        if self.values > self.max_values {
            return Err(DecodeError::TooManyValues { limit: self.max_values });
        }
        Ok(())
    }

    /// Reads a key and its colon.
    fn key(&mut self) -> Result<(), DecodeError> {
        if self.peek() != Some(b'"') {
            return Err(self.syntax("expected a key"));
        }
        let begin = self.offset + 1;
        let raw = self.string()?;
        let Some(Container::Object { first_key }) = self.open.last().copied() else {
            return Err(self.syntax("key outside of an object"));
        };
        let Some(key) = self.keys.push(raw, begin) else { return Err(self.syntax("invalid key before")) };
        if self.open.len() == 1 {
            self.member = Member::of_key(self.keys.text(key));
        }
        if self.keys.has_last_twice(first_key) {
            return Err(self.duplicate(key));
        }
        self.skip_blanks();
        if self.peek() != Some(b':') {
            return Err(self.syntax("expected a colon"));
        }
        self.offset += 1;
        Ok(())
    }

    fn note_member(&mut self) {
        let value = self.text.get(self.member_offset..self.offset);
        match self.member {
            Member::Id => self.envelope.id = value,
            Member::Method => self.envelope.method = value,
            Member::Params => self.envelope.params = value,
            Member::Trace => self.envelope.trace = value,
            Member::Result => self.envelope.result = value,
            Member::Error => self.envelope.error = value,
            Member::Other => {}
        }
        self.member = Member::Other;
    }

    /// Reads a string; returns what is between its quotes.
    fn string(&mut self) -> Result<&'a str, DecodeError> {
        let begin = self.offset + 1;
        let rest = self.text.as_bytes().get(begin..).unwrap_or_default();
        match string::end(rest) {
            Ok(length) => {
                self.offset = begin + length + 1;
                self.text.get(begin..begin + length).ok_or_else(|| self.syntax("broken string before"))
            }
            Err(fault) => {
                self.offset = begin + fault.at;
                Err(self.syntax(fault.reason))
            }
        }
    }

    fn number(&mut self) -> Result<(), DecodeError> {
        if self.peek() == Some(b'-') {
            self.offset += 1;
        }
        if self.peek() == Some(b'0') {
            self.offset += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.offset += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.offset += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.offset += 1;
            }
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.syntax("invalid number"));
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), DecodeError> {
        let rest = self.text.as_bytes().get(self.offset..).unwrap_or_default();
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.syntax("invalid number"));
        }
        self.offset += count;
        Ok(())
    }

    fn literal(&mut self, literal: &str) -> Result<Progress, DecodeError> {
        let rest = self.text.get(self.offset..).unwrap_or_default();
        if !rest.starts_with(literal) {
            return Err(self.syntax("expected a value"));
        }
        self.offset += literal.len();
        Ok(Progress::ValueEnded)
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.offset += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    fn syntax(&self, reason: &'static str) -> DecodeError {
        DecodeError::Syntax { reason, offset: self.offset }
    }

    fn duplicate(&self, key: Key) -> DecodeError {
        let shown = self.keys.text(key).chars().take(MAX_KEY_SHOWN_CHARS).collect();
        DecodeError::DuplicateKey { key: shown, offset: self.offset }
    }
}

/// Where a step of the scanner has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    BeforeValue,
    ValueEnded,
    TextEnded,
}

impl Member {
    fn of_key(key: &str) -> Self {
        match key {
            "id" => Self::Id,
            "method" => Self::Method,
            "params" => Self::Params,
            "trace" => Self::Trace,
            "result" => Self::Result,
            "error" => Self::Error,
            _ => Self::Other,
        }
    }
}

const MAX_KEY_SHOWN_CHARS: usize = 64;

#[cfg(test)]
mod tests;
