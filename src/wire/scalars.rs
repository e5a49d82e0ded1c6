//! The wire forms of small public types: ids, paths, streams, signals.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use crate::event::OutputStream;
use crate::request::{ProcessId, Signal};

impl Serialize for ProcessId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ProcessId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "a string", |id| Ok::<_, fmt::Error>(Self::new(id)))
    }
}

impl Serialize for OutputStream {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(stream_name(*self))
    }
}

impl<'de> Deserialize<'de> for OutputStream {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "an output stream", |name| match name {
            "stdout" => Ok(Self::Stdout),
            "stderr" => Ok(Self::Stderr),
            "pty" => Ok(Self::Pty),
            other => Err(format!("unknown variant `{other}`, expected one of `stdout`, `stderr`, `pty`")),
        })
    }
}

/// The wire name of a stream.
pub(crate) const fn stream_name(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
        OutputStream::Pty => "pty",
    }
}

/// A name, or a number for signals that have none.
impl Serialize for Signal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.name() {
            Some(name) => serializer.serialize_str(name),
            None => serializer.serialize_i32(self.number()),
        }
    }
}

impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SignalVisitor;

        impl Visitor<'_> for SignalVisitor {
            type Value = Signal;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name or the number of a signal")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Signal, E> {
                Signal::from_name(name).ok_or_else(|| E::custom(format_args!("unknown signal `{name}`")))
            }

            // Numbers differ between systems, names do not: a number never becomes a named signal.
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Signal, E> {
                i32::try_from(number)
                    .map(Signal::Other)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Signal, E> {
                i32::try_from(number)
                    .map(Signal::Other)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }
        }

        deserializer.deserialize_any(SignalVisitor)
    }
}

/// Decodes a string through `parse`, without a copy where the text has no escapes.
fn text<'de, D, T, E>(
    deserializer: D,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    E: fmt::Display,
{
    struct TextVisitor(&'static str);

    impl<'de> Visitor<'de> for TextVisitor {
        type Value = Cow<'de, str>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
            Ok(Cow::Borrowed(text))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Cow<'de, str>, E> {
            Ok(Cow::Owned(text.into()))
        }
    }

    let text = deserializer.deserialize_str(TextVisitor(expected))?;
    parse(&text).map_err(de::Error::custom)
}
