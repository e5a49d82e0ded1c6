//! Why a process could not be started.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::parts::DisplaySize;
use super::{Busy, Disconnected, InvalidRequest, OsError, PeerMisbehaved, RpcError, Sent, Unsupported};
use crate::request::ProcessId;
use crate::sandbox::SandboxError;

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
    /// The process was to be contained, and the executor was not given what this takes.
    #[error(
        "processes cannot be contained here: {reason}; what this takes is a cgroup in which the executor may make \
             others (such as by Delegate=yes in a systemd unit), or CAP_SYS_ADMIN"
    )]
    ContainmentUnavailable {
        /// What was tried, and what came of it.
        reason: String,
    },
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
    /// The start took too long: a file system holds it up, or others before it. Nothing is running. Transient.
    #[error("the start took longer than {} ms", .limit.as_millis())]
    TimedOut {
        /// The limit.
        limit: Duration,
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
            | Self::TimedOut { .. }
            | Self::Sandbox(SandboxError::Changed { .. })
            | Self::Busy(_) => true,
            Self::Disconnected(disconnected) => disconnected.sent == Sent::NotSent,
            _ => false,
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
