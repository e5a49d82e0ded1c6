//! What an application asks of a session, and what it gets.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::link::LinkId;
use crate::error::{Busy, Disconnected, InvalidRequest, PeerMisbehaved, RpcError, SpawnError, Unsupported};
use crate::info::EnvironmentInfo;
use crate::request::{ExecRequest, ProcessId, Signal, TerminalSize};
use crate::sandbox::Enforcement;
use crate::wire::RequestId;
use crate::wire::method::{self, Method as _};

/// Names one process on this connection, for as long as the connection lives. Unlike a process id, it is never used
/// twice, so what is meant for an ended process cannot reach a later one of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RouteKey(pub(crate) u64);

impl RouteKey {
    /// Calls about the place name no process.
    pub(crate) const NONE: Self = Self(0);
}

/// Names one call of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Token(pub(crate) u64);

/// A new session, or one that exists already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Fresh,
    Resume(String),
}

/// A call.
#[derive(Debug)]
pub(crate) enum Op {
    /// Starts a process; the request carries its id.
    Start {
        request: Box<ExecRequest>,
    },
    /// Follows a process that exists.
    Attach {
        process_id: ProcessId,
        after_seq: u64,
    },
    Write {
        data: Bytes,
    },
    CloseStdin,
    Resize {
        size: TerminalSize,
    },
    Signal {
        signal: Signal,
    },
    Terminate {
        grace: Duration,
        descendants: bool,
    },
    List,
    Info,
    Status,
    /// Makes a call that concerns no process.
    Ask(Box<Ask>),
}

impl Op {
    /// Whether it means nothing to anybody but its caller: given up before it is sent, it is not made.
    pub(crate) const fn is_lone(&self) -> bool {
        match self {
            Self::Resize { .. } | Self::Signal { .. } | Self::List | Self::Info | Self::Status => true,
            Self::Ask(ask) => !ask.cleanup,
            Self::Start { .. }
            | Self::Attach { .. }
            | Self::Write { .. }
            | Self::CloseStdin
            | Self::Terminate { .. } => false,
        }
    }

    /// The method that it calls, for measuring.
    pub(crate) const fn method(&self) -> &'static str {
        match self {
            Self::Start { .. } => method::Start::NAME,
            Self::Attach { .. } => method::Read::NAME,
            Self::Write { .. } => method::Write::NAME,
            Self::CloseStdin => method::CloseStdin::NAME,
            Self::Resize { .. } => method::Resize::NAME,
            Self::Signal { .. } => method::SendSignal::NAME,
            Self::Terminate { .. } => method::Terminate::NAME,
            Self::List => method::List::NAME,
            Self::Info => method::Info::NAME,
            Self::Status => method::Status::NAME,
            Self::Ask(ask) => ask.method,
        }
    }
}

/// A call of any method, whose result is for the caller to read.
pub(crate) struct Ask {
    pub(crate) method: &'static str,
    /// Whether it frees something at the peer, and so has a place also when all others are taken.
    pub(crate) cleanup: bool,
    /// The connection without which it has no meaning, such as that of an open file.
    pub(crate) on: Option<LinkId>,
    /// Makes the message. It is called when there is a place.
    pub(crate) encode: Box<dyn FnOnce(&RequestId) -> Bytes + Send>,
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("method", &self.method).field("cleanup", &self.cleanup).finish_non_exhaustive()
    }
}

/// What a call yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Started(Started),
    Done,
    Running(bool),
    List(Vec<ListedProcess>),
    Info(Box<EnvironmentInfo>),
    /// The result of an [`Op::Ask`], as JSON text.
    Json(Box<str>),
    /// The same, of a call for bytes of a file: the bytes, and for a block whether the file ends.
    FileBytes {
        bytes: Bytes,
        eof: Option<bool>,
    },
}

impl Answer {
    /// For messages.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Started(_) => "a start",
            Self::Done => "done",
            Self::Running(_) => "a stop",
            Self::List(_) => "a list",
            Self::Info(_) => "facts",
            Self::Json(_) => "a result",
            Self::FileBytes { .. } => "bytes of a file",
        }
    }
}

/// What is known of a process that was started or attached to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Started {
    /// The type of sandbox, if the peer says.
    pub(crate) sandbox_type: Option<String>,
    /// What it enforces, if the peer says.
    pub(crate) enforcement: Option<Enforcement>,
}

/// Why a call yields nothing: the errors of all operations.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Spawn(Box<SpawnError>),
    InvalidRequest(InvalidRequest),
    Unsupported(Unsupported),
    StdinClosed,
    UnknownProcess(ProcessId),
    NoTerminal(ProcessId),
    /// The process is followed already.
    Taken,
    /// The session is being closed by this end.
    Closed,
    Busy(Busy),
    Disconnected(Disconnected),
    Peer(PeerMisbehaved),
    Remote(RpcError),
}

macro_rules! into_failure {
    ($($error:ty => $variant:ident;)*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )*};
}

into_failure! {
    InvalidRequest => InvalidRequest;
    Unsupported => Unsupported;
    Busy => Busy;
    Disconnected => Disconnected;
    PeerMisbehaved => Peer;
    RpcError => Remote;
}

/// What the reader of a process has taken since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consumption {
    /// The sequence number of the last event.
    pub(crate) seq: u64,
    /// Bytes of output.
    pub(crate) bytes: u64,
    /// Events of any kind.
    pub(crate) events: u64,
}

/// A process of the session, as the peer lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedProcess {
    /// Its id.
    pub process_id: ProcessId,
    /// What it is doing.
    pub state: ProcessState,
    /// The number that its next event will have.
    pub next_seq: u64,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Its exit code, 128 + *n* for signal *n*, once it has ended.
    pub exit_code: Option<i32>,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessState {
    /// It is being started.
    Starting,
    /// It runs.
    Running,
    /// It has ended, and its output streams are still open.
    Exited,
    /// Its output streams have ended too.
    Closed,
}
