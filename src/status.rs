//! How a process ended.

use std::fmt;

use crate::request::Signal;

/// How a process ended: its exit code or the signal that ended it, and whether a limit of ours was the cause.
///
/// A peer that speaks only the plain wire sends one number; from it a death by signal cannot be told from an exit
/// with 128 + *n*, so such a status is reported as an exit code (see [`ExitStatus::from_wire`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExitStatus {
    kind: Kind,
    cause: Option<LimitExceeded>,
}

/// The limit that made the executor end a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitExceeded {
    /// The request's time limit passed.
    Time,
    /// The process wrote more output than the request allowed.
    Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Exited(i32),
    Signaled(Signal),
    Unknown,
}

impl ExitStatus {
    /// The process called exit with this code.
    pub const fn exited(code: i32) -> Self {
        Self { kind: Kind::Exited(code), cause: None }
    }

    /// A signal ended the process.
    pub const fn signaled(signal: Signal) -> Self {
        Self { kind: Kind::Signaled(signal), cause: None }
    }

    /// The process ended, and nobody can say how.
    pub const fn unknown() -> Self {
        Self { kind: Kind::Unknown, cause: None }
    }

    /// The status that a wire `exitCode` stands for: −1 is unknown, all else an exit code.
    pub const fn from_wire(exit_code: i32) -> Self {
        if exit_code == -1 { Self::unknown() } else { Self::exited(exit_code) }
    }

    /// The same status, with the limit that made the executor end the process.
    #[must_use]
    pub const fn with_limit(mut self, limit: Option<LimitExceeded>) -> Self {
        self.cause = limit;
        self
    }

    /// Whether the process exited by itself with code 0.
    pub const fn success(&self) -> bool {
        matches!(self.kind, Kind::Exited(0)) && self.cause.is_none()
    }

    /// The exit code, if the process called exit.
    pub const fn code(&self) -> Option<i32> {
        match self.kind {
            Kind::Exited(code) => Some(code),
            Kind::Signaled(_) | Kind::Unknown => None,
        }
    }

    /// The signal that ended the process, if one did.
    pub const fn signal(&self) -> Option<Signal> {
        match self.kind {
            Kind::Signaled(signal) => Some(signal),
            Kind::Exited(_) | Kind::Unknown => None,
        }
    }

    /// The limit of the request that made the executor end the process.
    pub const fn limit_exceeded(&self) -> Option<LimitExceeded> {
        self.cause
    }

    /// Whether the request's time limit made the executor end the process.
    pub const fn timed_out(&self) -> bool {
        matches!(self.cause, Some(LimitExceeded::Time))
    }

    /// The number that goes over the wire as `exitCode`: the exit code, 128 + *n* for signal *n*, −1 if unknown.
    pub const fn wire_code(&self) -> i32 {
        match self.kind {
            Kind::Exited(code) => code,
            Kind::Signaled(signal) => 128 + signal.number(),
            Kind::Unknown => -1,
        }
    }
}

/// For backends that start processes by the standard library.
impl From<std::process::ExitStatus> for ExitStatus {
    fn from(status: std::process::ExitStatus) -> Self {
        #[cfg(unix)]
        if let Some(number) = std::os::unix::process::ExitStatusExt::signal(&status) {
            return Self::signaled(Signal::from_number(number));
        }
        status.code().map_or(Self::unknown(), Self::exited)
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Exited(code) => write!(f, "exit code {code}")?,
            Kind::Signaled(signal) => write!(f, "signal {signal}")?,
            Kind::Unknown => f.write_str("unknown status")?,
        }
        match self.cause {
            Some(LimitExceeded::Time) => f.write_str(" (time limit)"),
            Some(LimitExceeded::Output) => f.write_str(" (output limit)"),
            None => Ok(()),
        }
    }
}
