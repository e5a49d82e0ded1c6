//! From what a call ended in to the error of its operation.

use crate::core::session::{Answer, Failure};
use crate::error::{CallError, PeerMisbehaved, SignalError, SpawnError, WaitError, WriteError};

/// An answer of another kind than the call has. It does not happen, and is no reason to panic.
pub(super) fn mismatch(answer: &Answer) -> PeerMisbehaved {
    PeerMisbehaved::Protocol(format!("an answer of another kind: {}", answer.kind()))
}

/// What an error means that has no place in this operation's enum.
macro_rules! other {
    ($failure:expr) => {
        PeerMisbehaved::Protocol(format!("an error of another kind: {:?}", $failure)).into()
    };
}

impl From<Failure> for SpawnError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Spawn(error) => *error,
            Failure::InvalidRequest(error) => error.into(),
            Failure::Unsupported(error) => error.into(),
            Failure::Busy(error) => error.into(),
            Failure::Disconnected(error) => error.into(),
            Failure::Peer(error) => error.into(),
            Failure::Remote(error) => error.into(),
            Failure::Closed => Self::Closed,
            other @ (Failure::StdinClosed | Failure::UnknownProcess(_) | Failure::NoTerminal(_) | Failure::Taken) => {
                other!(other)
            }
        }
    }
}

impl From<Failure> for WriteError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::StdinClosed => Self::StdinClosed,
            Failure::UnknownProcess(id) => Self::UnknownProcess(id),
            Failure::Unsupported(error) => error.into(),
            Failure::Busy(error) => error.into(),
            Failure::Disconnected(error) => error.into(),
            Failure::Peer(error) => error.into(),
            Failure::Remote(error) => error.into(),
            other @ (Failure::Spawn(_)
            | Failure::InvalidRequest(_)
            | Failure::NoTerminal(_)
            | Failure::Taken
            | Failure::Closed) => other!(other),
        }
    }
}

impl From<Failure> for SignalError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoTerminal(id) => Self::NoTerminal(id),
            Failure::UnknownProcess(id) => Self::UnknownProcess(id),
            Failure::InvalidRequest(error) => error.into(),
            Failure::Unsupported(error) => error.into(),
            Failure::Busy(error) => error.into(),
            Failure::Disconnected(error) => error.into(),
            Failure::Peer(error) => error.into(),
            Failure::Remote(error) => error.into(),
            other @ (Failure::Spawn(_) | Failure::StdinClosed | Failure::Taken | Failure::Closed) => other!(other),
        }
    }
}

impl From<Failure> for WaitError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::UnknownProcess(id) => Self::UnknownProcess(id),
            Failure::Taken => Self::EventsTaken,
            Failure::Closed => Self::Closed,
            Failure::Disconnected(error) => error.into(),
            Failure::Peer(error) => error.into(),
            Failure::Remote(error) => error.into(),
            other @ (Failure::Spawn(_)
            | Failure::StdinClosed
            | Failure::NoTerminal(_)
            | Failure::InvalidRequest(_)
            | Failure::Unsupported(_)
            | Failure::Busy(_)) => other!(other),
        }
    }
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsupported(error) => error.into(),
            Failure::Busy(error) => error.into(),
            Failure::Disconnected(error) => error.into(),
            Failure::Peer(error) => error.into(),
            Failure::Remote(error) => error.into(),
            Failure::Closed => Self::Closed,
            other @ (Failure::Spawn(_)
            | Failure::StdinClosed
            | Failure::UnknownProcess(_)
            | Failure::NoTerminal(_)
            | Failure::Taken
            | Failure::InvalidRequest(_)) => other!(other),
        }
    }
}
