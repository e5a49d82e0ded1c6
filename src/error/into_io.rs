//! Errors where an `io::Error` is wanted: the nearest kind, with the error itself as the cause.

use std::io;

use super::{CallError, ConnectError, SignalError, SpawnError, WaitError, WriteError};
use crate::http::HttpError;

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
        SpawnError::TimedOut { .. } => io::ErrorKind::TimedOut,
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
        ConnectError::Certificate { .. } => io::ErrorKind::InvalidData,
        ConnectError::TimedOut { .. } => io::ErrorKind::TimedOut,
        ConnectError::Disconnected(_) | ConnectError::Transport(_) => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::Other,
    };
    HttpError => |error| match error {
        HttpError::InvalidRequest(_) => io::ErrorKind::InvalidInput,
        HttpError::NameNotResolved { .. } => io::ErrorKind::HostUnreachable,
        HttpError::ConnectionRefused { .. } => io::ErrorKind::ConnectionRefused,
        HttpError::TimedOut { .. } => io::ErrorKind::TimedOut,
        HttpError::BodyTooLarge { .. } => io::ErrorKind::FileTooLarge,
        HttpError::BodyCut { .. } => io::ErrorKind::UnexpectedEof,
        HttpError::Unsupported(_) => io::ErrorKind::Unsupported,
        HttpError::Disconnected(_) => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::Other,
    };
}
