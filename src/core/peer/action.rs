//! What a session asks of its driver, and how it hears of the end.

use std::time::Duration;

use bytes::Bytes;

use super::process::ProcessKey;
use super::request::Call;
use crate::error::{CallError, SignalError, SpawnError, WriteError};
use crate::info::EnvironmentInfo;
use crate::request::{ExecRequest, Signal, TerminalSize};

/// Something for the driver to do, in the order in which it is handed out. Each with a matching [`Completion`] is
/// reported back by it.
#[derive(Debug)]
pub(crate) enum Action {
    /// Start a process. Ends in [`Completion::Started`].
    Start { process: ProcessKey, request: Box<ExecRequest> },
    /// Give up a start, and with it whatever was started. Ends in nothing.
    CancelStart { process: ProcessKey },
    /// Write to standard input. Ends in [`Completion::StdinDone`].
    Write { process: ProcessKey, data: Bytes },
    /// Close standard input. Ends in [`Completion::StdinDone`].
    CloseStdin { process: ProcessKey },
    /// Set the size of the terminal. Ends in [`Completion::Acted`].
    Resize { process: ProcessKey, size: TerminalSize, call: Call },
    /// Send a signal. Ends in [`Completion::Acted`].
    Signal { process: ProcessKey, signal: Signal, call: Call },
    /// End the process tree. Ends in [`Completion::Terminated`].
    Terminate { process: ProcessKey, grace: Duration, descendants: bool, call: Option<Call> },
    /// Ask for the facts of the place. Ends in [`Completion::Info`].
    Info { call: Call },
    /// Drop all that there is of a process. Ends in nothing.
    Forget { process: ProcessKey },
}

/// How an [`Action`] ended.
#[derive(Debug)]
pub(crate) enum Completion {
    /// The process runs, with this sandbox, or could not be started.
    Started { process: ProcessKey, result: Result<Option<String>, SpawnError> },
    /// A write or the closing of standard input is done.
    StdinDone { process: ProcessKey, result: Result<(), WriteError> },
    /// A resize or a signal is done.
    Acted { call: Call, result: Result<(), SignalError> },
    /// The process is being ended; true if it was running.
    Terminated { call: Option<Call>, result: Result<bool, SignalError> },
    /// The facts of the place.
    Info { call: Call, result: Result<EnvironmentInfo, CallError> },
}
