//! Another opinion on what a good text is: serde_json's reader, and a visitor that counts.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use longarm::config::MessageLimits;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Whether the text is one JSON object within the limits, without a key that stands twice.
pub(crate) fn accepts(text: &[u8], limits: &MessageLimits) -> bool {
    // The reader itself refuses more than 127 containers.
    assert!(limits.max_json_depth <= 127);
    let left = Cell::new(limits.max_json_values);
    let mut reader = serde_json::Deserializer::from_slice(text);
    let counter = Counter { values: &left, depth: limits.max_json_depth };
    std::str::from_utf8(text).is_ok()
        && text.trim_ascii_start().starts_with(b"{")
        && counter.deserialize(&mut reader).is_ok()
        && reader.end().is_ok()
}

/// Takes one value, counting down.
#[derive(Clone, Copy)]
struct Counter<'a> {
    values: &'a Cell<usize>,
    depth: usize,
}

impl Counter<'_> {
    fn enter<E: de::Error>(self) -> Result<Self, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Self { depth, ..self }),
            None => Err(E::custom("too deep")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Counter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.values.get().checked_sub(1) {
            Some(left) => self.values.set(left),
            None => return Err(de::Error::custom("too many")),
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inner = self.enter()?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let inner = self.enter()?;
        let mut keys = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            if !keys.insert(key) {
                return Err(de::Error::custom("key stands twice"));
            }
            members.next_value_seed(inner)?;
        }
        Ok(())
    }
}
