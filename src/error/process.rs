//! What can go wrong with a process that runs, or with a call about its place.

use super::parts::DisplaySize;
use super::{Busy, Disconnected, InvalidRequest, OsError, PeerMisbehaved, RpcError, SpawnError, Unsupported};
use crate::request::ProcessId;

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
    /// It is too late: the process is being ended, such as by the close of its place.
    #[error("the process is being ended")]
    Ending,
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
    /// Output was lost while the connection was down: more than the place keeps. The gap in its place was handed out before;
    /// the process is ended, since nobody can follow it any more.
    #[error("output of process {process_id} was lost while the connection was down ({} bytes)", DisplaySize(*.bytes))]
    OutputLost {
        /// The process.
        process_id: ProcessId,
        /// How many bytes, if known.
        bytes: Option<u64>,
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

/// A command could not be run to its end.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// It was started, and its events cannot be followed to the end.
    #[error(transparent)]
    Wait(#[from] WaitError),
}
