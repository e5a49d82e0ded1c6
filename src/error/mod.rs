//! Errors: one enum per operation, and the pieces they share.
//!
//! A variant says who is at fault and what it was about; foreign error types appear only behind `source()`.

mod connect;
mod into_io;
mod parts;
mod process;
mod spawn;

pub use self::connect::{ConnectError, TransportError};
pub use self::parts::{Busy, Disconnected, InvalidRequest, OsError, PeerMisbehaved, RpcError, Sent, Unsupported};
pub use self::process::{CallError, RunError, SignalError, WaitError, WriteError};
pub use self::spawn::SpawnError;

/// An error with all its causes, in one line: no text repeats that of its cause.
pub fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
