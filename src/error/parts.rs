//! The pieces that the errors of several operations share.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::request::ProcessId;

/// A request that no backend would run. The host must change it; a retry is pointless. Nothing was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// There is no program.
    #[error("argv is empty")]
    EmptyArgv,
    /// The program's name is empty.
    #[error("argv[0] is empty")]
    EmptyProgram,
    /// An element contains a NUL, which would cut it short.
    #[error("{element} contains a NUL")]
    Nul {
        /// Which element, such as `argv[2]`.
        element: String,
    },
    /// A variable's name is empty, or contains `=` or a NUL.
    #[error("environment variable name {name:?} is empty or contains '=' or a NUL")]
    VariableName {
        /// The name.
        name: String,
    },
    /// An element that has to cross the wire is not Unicode.
    #[error("{element} is not Unicode text, which the wire needs")]
    NotUnicode {
        /// Which element.
        element: String,
    },
    /// The working directory is not absolute.
    #[error("working directory {path:?} is not absolute")]
    RelativeCwd {
        /// The path as given.
        path: PathBuf,
    },
    /// A path of another operating system's convention.
    #[error("'{uri}' is invalid on '{os}'")]
    ForeignPath {
        /// The canonical URI.
        uri: String,
        /// The operating system of the place.
        os: String,
    },
    /// There is no working directory: neither the request nor the place names one.
    #[error("no working directory: the request names none and the place has no default")]
    NoCwd,
    /// A terminal with no rows or no columns.
    #[error("terminal size {rows}x{cols} has a zero")]
    TerminalSize {
        /// Rows asked for.
        rows: u16,
        /// Columns asked for.
        cols: u16,
    },
    /// The environment policy cannot be expressed on the wire, and so cannot be carried out by a remote executor.
    #[error("the environment policy cannot be sent to a remote executor")]
    PolicyNotPortable,
    /// Something else that the executor refused as invalid.
    #[error("{0}")]
    Other(String),
}

/// A feature that this place does not have. Nothing was sent or started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{feature} is not supported by {place}")]
pub struct Unsupported {
    /// The feature, such as `close stdin`.
    pub feature: &'static str,
    /// Who lacks it, such as `the peer`.
    pub place: String,
}

/// The connection is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("disconnected ({sent}): {reason}")]
pub struct Disconnected {
    /// Whether the request may have run.
    pub sent: Sent,
    /// Why the connection ended.
    pub reason: Arc<str>,
}

/// Whether a request that ended in [`Disconnected`] may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// No byte of it left: it can safely be sent again.
    NotSent,
    /// It may or may not have run.
    Unknown,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSent => "the request was not sent",
            Self::Unknown => "the request may have run",
        })
    }
}

/// An error answer of a peer, as it came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer answered with error {code}: {message}")]
pub struct RpcError {
    /// The JSON-RPC code.
    pub code: i64,
    /// The peer's text.
    pub message: String,
    /// The member `data`, as JSON text, if present.
    pub data: Option<String>,
}

/// How exactly a peer misbehaved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerMisbehaved {
    /// A message that cannot be decoded.
    #[error("malformed message: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// A message above the size limit.
    #[error("message of {} bytes exceeds the limit of {limit_bytes} bytes", DisplaySize(*.size_bytes))]
    MessageTooLarge {
        /// Its size, if known.
        size_bytes: Option<u64>,
        /// The limit.
        limit_bytes: u64,
    },
    /// A result that does not have the form that the method needs.
    #[error("unusable result of {method}: {reason}")]
    BadResult {
        /// The method.
        method: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The peer could not make sense of what we sent and cannot say which message it was.
    #[error("the peer reported a malformed message: {0}")]
    ReportedMalformed(String),
    /// A request, an id or a notification that the protocol does not allow here.
    #[error("protocol violation: {0}")]
    Protocol(String),
    /// Events of one process that exceed what may be held back for reordering.
    #[error("events of process {process_id} exceed the reorder window")]
    ReorderWindow {
        /// The process.
        process_id: ProcessId,
    },
    /// Nothing was heard from the peer for too long.
    #[error("nothing heard from the peer for {} ms", .silence.as_millis())]
    Silent {
        /// How long.
        silence: Duration,
    },
}

/// An operating system call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{op}")]
pub struct OsError {
    /// What was being done, such as `create a pipe`.
    pub op: &'static str,
    /// The system's error.
    #[source]
    pub source: Arc<io::Error>,
}

impl OsError {
    /// Wraps a system error.
    pub fn new(op: &'static str, source: io::Error) -> Self {
        Self { op, source: Arc::new(source) }
    }
}

/// As many calls are in flight as the connection allows. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} calls are already in flight")]
pub struct Busy {
    /// The limit.
    pub limit: usize,
}

pub(super) struct DisplaySize(pub(super) Option<u64>);

impl fmt::Display for DisplaySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(size) => size.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}
