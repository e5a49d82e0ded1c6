//! The keys of the objects that are open, to find one that stands twice.

use super::string::unescape;

/// The keys of all open objects, those of the innermost last.
///
/// A key is a span of eight bytes, so that an object of nothing but short keys costs no more than its text.
pub(super) struct Keys<'a> {
    text: &'a str,
    /// What the keys with escapes stand for.
    unescaped: String,
    keys: Vec<Key>,
}

/// Where the text of a key is.
#[derive(Clone, Copy)]
pub(super) struct Key {
    begin: u32,
    /// The length, and one bit that tells which of the two texts it is in.
    length: u32,
}

impl<'a> Keys<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, unescaped: String::new(), keys: Vec::with_capacity(16) }
    }

    pub(super) fn count(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn truncate(&mut self, count: usize) {
        self.keys.truncate(count);
    }

    pub(super) fn text(&self, key: Key) -> &str {
        key.text(self.text, &self.unescaped)
    }

    /// Adds the key that stands as `raw` in the text, at `begin`. None if it has an invalid escape, or is out of reach.
    pub(super) fn push(&mut self, raw: &'a str, begin: usize) -> Option<Key> {
        let key = if raw.contains('\\') {
            let begin = self.unescaped.len();
            self.unescaped.push_str(&unescape(raw)?);
            Key::new(begin, self.unescaped.len() - begin, IN_UNESCAPED)?
        } else {
            Key::new(begin, raw.len(), 0)?
        };
        self.keys.push(key);
        Some(key)
    }

    /// Whether a short object, whose keys begin at `first`, has its last key twice.
    pub(super) fn has_last_twice(&self, first: usize) -> bool {
        match self.keys.get(first..) {
            Some([siblings @ .., last]) if siblings.len() < SHORT_OBJECT_KEYS => {
                let last = self.text(*last);
                siblings.iter().any(|key| self.text(*key) == last)
            }
            _ => false,
        }
    }

    /// A key that a long object, whose keys begin at `first`, has twice. Reorders them.
    pub(super) fn find_twice(&mut self, first: usize) -> Option<Key> {
        let keys = self.keys.get_mut(first..).filter(|keys| keys.len() > SHORT_OBJECT_KEYS)?;
        let text = |key: &Key| key.text(self.text, &self.unescaped);
        keys.sort_unstable_by(|a, b| text(a).cmp(text(b)));
        keys.iter().zip(keys.iter().skip(1)).find(|(key, next)| text(key) == text(next)).map(|(key, _)| *key)
    }
}

impl Key {
    fn new(begin: usize, length: usize, flag: u32) -> Option<Self> {
        let length = u32::try_from(length).ok().filter(|length| *length < IN_UNESCAPED)?;
        Some(Self { begin: u32::try_from(begin).ok()?, length: length | flag })
    }

    fn text<'t>(&self, text: &'t str, unescaped: &'t str) -> &'t str {
        let text = if self.length & IN_UNESCAPED == 0 { text } else { unescaped };
        let begin = self.begin as usize;
        text.get(begin..begin + (self.length & !IN_UNESCAPED) as usize).unwrap_or_default()
    }
}

const IN_UNESCAPED: u32 = 1 << 31;

/// Objects with at most so many keys compare each key with all before it, which is faster there than to sort.
const SHORT_OBJECT_KEYS: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hold_no_more_than_a_small_multiple_of_their_text() {
        // The shortest members there are: nearly nothing but key.
        let names: Vec<String> = (0..50_000_u32).map(|n| format!("{n:x}")).collect();
        for escape in ["", "\\n"] {
            let text: String = names.iter().map(|name| format!("\"{escape}{name}\":0,")).collect();
            let mut keys = Keys::new(&text);
            let mut begin = 1;
            for name in &names {
                let end = begin + escape.len() + name.len();
                let key = keys.push(&text[begin..end], begin).unwrap();
                assert_eq!(keys.text(key).trim_start(), name);
                begin = end + 5;
            }
            let held = keys.keys.capacity() * size_of::<Key>() + keys.unescaped.capacity();
            assert!(held <= 3 * text.len(), "{held} bytes for {}", text.len());
            assert!(keys.find_twice(0).is_none());
        }
    }
}
