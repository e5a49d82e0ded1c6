//! Errors: one enum per operation, and the pieces they share.
//!
//! A variant says who is at fault and what it was about; foreign error types appear only behind `source()`.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::request::ProcessId;
use crate::sandbox::SandboxError;

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

/// A process could not be started. Unless it is [`SpawnError::Disconnected`], nothing is running.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The request is invalid.
    #[error(transparent)]
    InvalidRequest(#[from] InvalidRequest),
    /// The place lacks a feature that the request needs.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The sandbox was refused.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// There is no such program.
    #[error("program {program:?} not found{}", SearchedPath(.searched))]
    ProgramNotFound {
        /// The program as asked for.
        program: PathBuf,
        /// The `PATH` that was searched, if the name was looked up.
        searched: Option<String>,
    },
    /// The program is a script whose interpreter does not exist.
    #[error("interpreter {interpreter:?} of script {program:?} not found")]
    InterpreterNotFound {
        /// The script.
        program: PathBuf,
        /// The interpreter named in its first line.
        interpreter: PathBuf,
    },
    /// There is no such working directory.
    #[error("working directory {path:?} does not exist")]
    CwdNotFound {
        /// The directory.
        path: PathBuf,
    },
    /// The working directory is something else.
    #[error("working directory {path:?} is not a directory")]
    CwdNotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The working directory may not be entered.
    #[error("working directory {path:?} may not be entered")]
    CwdPermissionDenied {
        /// The directory.
        path: PathBuf,
    },
    /// The peer says "not found" and cannot say what: the program or the working directory.
    #[error("program {program:?} or working directory {cwd:?} not found")]
    ProgramOrCwdNotFound {
        /// The program as asked for.
        program: PathBuf,
        /// The working directory.
        cwd: PathBuf,
    },
    /// The program may not be executed: no permission, or it is a directory.
    #[error("program {program:?} may not be executed")]
    PermissionDenied {
        /// The program.
        program: PathBuf,
    },
    /// The file is not a program of a format that the system can execute.
    #[error("program {program:?} is not an executable")]
    NotExecutable {
        /// The file.
        program: PathBuf,
    },
    /// The program's file is open for writing. Transient: a retry may help.
    #[error("program {program:?} is being written to")]
    TextBusy {
        /// The program.
        program: PathBuf,
    },
    /// Arguments and variables together are too long for the system.
    #[error("arguments and environment of {bytes} bytes are too long for the system")]
    ArgumentListTooLong {
        /// Their size.
        bytes: u64,
    },
    /// The executor has no descriptors left. Transient.
    #[error("out of file descriptors (soft limit {})", DisplaySize(*.limit))]
    DescriptorLimit {
        /// The soft limit, if known.
        limit: Option<u64>,
    },
    /// The system allows no more processes. Transient.
    #[error("the system allows no more processes (limit {})", DisplaySize(*.limit))]
    ProcessLimit {
        /// The limit, if known.
        limit: Option<u64>,
    },
    /// The executor has as many processes as it takes. Transient.
    #[error("the session already has {limit} processes")]
    TooManyProcesses {
        /// The limit.
        limit: u64,
    },
    /// Another process of the session has this id.
    #[error("process {0} already exists")]
    AlreadyExists(ProcessId),
    /// It was terminated before it had started.
    #[error("start of process {0} was cancelled")]
    Cancelled(ProcessId),
    /// The environment was closed.
    #[error("the environment is closed")]
    Closed,
    /// Too many calls are in flight.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The connection ended.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    /// The peer misbehaved.
    #[error(transparent)]
    Peer(#[from] PeerMisbehaved),
    /// An error answer that fits no other variant.
    #[error(transparent)]
    Remote(#[from] RpcError),
    /// Another system error.
    #[error(transparent)]
    Os(#[from] OsError),
}

impl SpawnError {
    /// Whether the same request may succeed later without a change by the host.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::TextBusy { .. }
            | Self::DescriptorLimit { .. }
            | Self::ProcessLimit { .. }
            | Self::TooManyProcesses { .. }
            | Self::Busy(_) => true,
            Self::Disconnected(disconnected) => disconnected.sent == Sent::NotSent,
            _ => false,
        }
    }
}

/// As many calls are in flight as the connection allows. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} calls are already in flight")]
pub struct Busy {
    /// The limit.
    pub limit: usize,
}

/// A write to standard input, or its closing, failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Standard input is not a pipe, was closed, or nobody reads it any more. The bytes were not delivered.
    #[error("standard input is closed")]
    StdinClosed,
    /// The place does not know this process (any more).
    #[error("unknown process {0}")]
    UnknownProcess(ProcessId),
    /// The place lacks the feature.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// Too many calls are in flight.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The connection ended.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    /// The peer misbehaved.
    #[error(transparent)]
    Peer(#[from] PeerMisbehaved),
    /// An error answer that fits no other variant.
    #[error(transparent)]
    Remote(#[from] RpcError),
    /// A system error.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// A signal, a resize or a stop failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// The process has no terminal to resize.
    #[error("process {0} has no terminal")]
    NoTerminal(ProcessId),
    /// The request itself is wrong.
    #[error(transparent)]
    InvalidRequest(#[from] InvalidRequest),
    /// The place does not know this process (any more).
    #[error("unknown process {0}")]
    UnknownProcess(ProcessId),
    /// The place lacks the feature.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// Too many calls are in flight.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The connection ended.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    /// The peer misbehaved.
    #[error(transparent)]
    Peer(#[from] PeerMisbehaved),
    /// An error answer that fits no other variant.
    #[error(transparent)]
    Remote(#[from] RpcError),
    /// A system error.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// The events of a process cannot be followed any further. It is the last item of its event stream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The connection ended, and with it what we can know. The process may still run.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    /// The place reports a failure of this process.
    #[error("process {process_id} failed: {reason}")]
    Failed {
        /// The process.
        process_id: ProcessId,
        /// The place's text.
        reason: String,
    },
    /// The place does not know this process (any more).
    #[error("unknown process {0}")]
    UnknownProcess(ProcessId),
    /// The peer misbehaved.
    #[error(transparent)]
    Peer(#[from] PeerMisbehaved),
    /// An error answer that fits no other variant.
    #[error(transparent)]
    Remote(#[from] RpcError),
    /// The environment was closed, or the process's supervisor is gone with its runtime.
    #[error("the environment is closed")]
    Closed,
    /// The event stream was taken by someone else.
    #[error("the event stream was already taken")]
    EventsTaken,
    /// A system error.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// A call about the place failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The place lacks the feature.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// Too many calls are in flight.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The connection ended.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    /// The peer misbehaved.
    #[error(transparent)]
    Peer(#[from] PeerMisbehaved),
    /// An error answer.
    #[error(transparent)]
    Remote(#[from] RpcError),
    /// The environment was closed.
    #[error("the environment is closed")]
    Closed,
    /// A system error.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// A connection could not be made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is unusable.
    #[error("invalid address {address:?}: {reason}")]
    InvalidAddress {
        /// The address, without credentials, query or fragment.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The other side cannot be reached.
    #[error("cannot connect to {address}")]
    Unreachable {
        /// The address, without credentials, query or fragment.
        address: String,
        /// The cause.
        #[source]
        source: Arc<io::Error>,
    },
    /// The other side refused the upgrade.
    #[error("{address} refused the connection with HTTP status {status}: {reason}")]
    Refused {
        /// The address, without credentials, query or fragment.
        address: String,
        /// HTTP status code.
        status: u16,
        /// The body, shortened.
        reason: String,
    },
    /// It took too long.
    #[error("{what} took longer than {} ms", .limit.as_millis())]
    TimedOut {
        /// What was awaited.
        what: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The server program could not be started.
    #[error("cannot start {program:?}")]
    Launch {
        /// The program.
        program: PathBuf,
        /// The cause.
        #[source]
        source: Arc<io::Error>,
    },
    /// The session to resume is unknown or expired. Permanent.
    #[error("unknown session {0}")]
    UnknownSession(String),
    /// The session to resume is attached to another connection. Retryable.
    #[error("session {0} is attached to another connection")]
    SessionAttached(String),
    /// The connection ended during the handshake.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The connection ended during the handshake.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    /// The peer misbehaved.
    #[error(transparent)]
    Peer(#[from] PeerMisbehaved),
    /// An error answer to the handshake.
    #[error(transparent)]
    Remote(#[from] RpcError),
}

impl ConnectError {
    /// Whether a later attempt may succeed without a change by the host.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::SessionAttached(_)
            | Self::Transport(_)
            | Self::Disconnected(_) => true,
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=599),
            _ => false,
        }
    }
}

/// A transport failed. It is not usable any more.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The other side closed the connection in good order.
    #[error("the peer closed the connection{}", CloseReason(.0))]
    Closed(Option<String>),
    /// A message above the limit, in either direction.
    #[error("message of {} bytes exceeds the limit of {limit_bytes} bytes", DisplaySize(*.size_bytes))]
    MessageTooLarge {
        /// Its size, if known.
        size_bytes: Option<u64>,
        /// The limit.
        limit_bytes: u64,
    },
    /// Bytes that are no message of this transport.
    #[error("framing violation: {0}")]
    Framing(String),
    /// Reading or writing failed.
    #[error("connection failed")]
    Io(#[source] Arc<io::Error>),
}

impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

macro_rules! into_io_error {
    ($($error:ty => $kind:expr;)*) => {$(
        impl From<$error> for io::Error {
            fn from(error: $error) -> Self {
                let kind: fn(&$error) -> io::ErrorKind = $kind;
                Self::new(kind(&error), error)
            }
        }
    )*};
}

into_io_error! {
    SpawnError => |error| match error {
        SpawnError::InvalidRequest(_) => io::ErrorKind::InvalidInput,
        SpawnError::Unsupported(_) | SpawnError::Sandbox(_) => io::ErrorKind::Unsupported,
        SpawnError::ProgramNotFound { .. }
        | SpawnError::InterpreterNotFound { .. }
        | SpawnError::CwdNotFound { .. }
        | SpawnError::ProgramOrCwdNotFound { .. } => io::ErrorKind::NotFound,
        SpawnError::CwdNotADirectory { .. } => io::ErrorKind::NotADirectory,
        SpawnError::CwdPermissionDenied { .. } | SpawnError::PermissionDenied { .. } => io::ErrorKind::PermissionDenied,
        SpawnError::TextBusy { .. } => io::ErrorKind::ExecutableFileBusy,
        SpawnError::ArgumentListTooLong { .. } => io::ErrorKind::ArgumentListTooLong,
        SpawnError::AlreadyExists(_) => io::ErrorKind::AlreadyExists,
        SpawnError::Disconnected(_) => io::ErrorKind::NotConnected,
        SpawnError::Os(os) => os.source.kind(),
        _ => io::ErrorKind::Other,
    };
    WriteError => |error| match error {
        WriteError::StdinClosed => io::ErrorKind::BrokenPipe,
        WriteError::UnknownProcess(_) => io::ErrorKind::NotFound,
        WriteError::Unsupported(_) => io::ErrorKind::Unsupported,
        WriteError::Disconnected(_) => io::ErrorKind::NotConnected,
        WriteError::Os(os) => os.source.kind(),
        _ => io::ErrorKind::Other,
    };
    SignalError => |error| match error {
        SignalError::InvalidRequest(_) | SignalError::NoTerminal(_) => io::ErrorKind::InvalidInput,
        SignalError::UnknownProcess(_) => io::ErrorKind::NotFound,
        SignalError::Unsupported(_) => io::ErrorKind::Unsupported,
        SignalError::Disconnected(_) => io::ErrorKind::NotConnected,
        SignalError::Os(os) => os.source.kind(),
        _ => io::ErrorKind::Other,
    };
    WaitError => |error| match error {
        WaitError::Disconnected(_) => io::ErrorKind::NotConnected,
        WaitError::UnknownProcess(_) => io::ErrorKind::NotFound,
        WaitError::Os(os) => os.source.kind(),
        _ => io::ErrorKind::Other,
    };
    CallError => |error| match error {
        CallError::Unsupported(_) => io::ErrorKind::Unsupported,
        CallError::Disconnected(_) => io::ErrorKind::NotConnected,
        CallError::Os(os) => os.source.kind(),
        _ => io::ErrorKind::Other,
    };
    ConnectError => |error| match error {
        ConnectError::InvalidAddress { .. } => io::ErrorKind::InvalidInput,
        ConnectError::Unreachable { source, .. } | ConnectError::Launch { source, .. } => source.kind(),
        ConnectError::Refused { .. } => io::ErrorKind::ConnectionRefused,
        ConnectError::TimedOut { .. } => io::ErrorKind::TimedOut,
        ConnectError::Disconnected(_) | ConnectError::Transport(_) => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::Other,
    };
}

struct DisplaySize(Option<u64>);

impl fmt::Display for DisplaySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(size) => size.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

struct SearchedPath<'a>(&'a Option<String>);

impl fmt::Display for SearchedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(f, " on PATH {path:?}"),
            None => Ok(()),
        }
    }
}

struct CloseReason<'a>(&'a Option<String>);

impl fmt::Display for CloseReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}
