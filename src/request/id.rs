//! What a process is called, and whom it belongs to.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The id of a process within its session: any text, also empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(Arc<str>);

impl ProcessId {
    /// An id of the host's choice.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// A fresh random id.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().to_string().into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Maps by process id are looked up by what stands in a message, without a copy of it.
impl Borrow<str> for ProcessId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whom a process belongs to. The executor puts both into the child's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// The thread of conversation.
    pub thread_id: Option<ThreadId>,
    /// The tool call.
    pub tool_call_id: Option<String>,
}

impl Metadata {
    /// Metadata with both members; either may be absent.
    pub fn new(thread_id: Option<ThreadId>, tool_call_id: Option<String>) -> Self {
        Self { thread_id, tool_call_id }
    }
}

/// The id of a thread of conversation: a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId(uuid::Uuid);

impl ThreadId {
    /// The id that is this number.
    pub const fn from_u128(number: u128) -> Self {
        Self(uuid::Uuid::from_u128(number))
    }

    /// The id that is written so, in any of the usual spellings of UUIDs.
    ///
    /// # Errors
    ///
    /// [`InvalidThreadId`] with what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, InvalidThreadId> {
        uuid::Uuid::parse_str(text).map(Self).map_err(|error| InvalidThreadId { reason: error.to_string() })
    }
}

/// In the canonical spelling.
impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

/// A text that is no UUID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct InvalidThreadId {
    reason: String,
}
