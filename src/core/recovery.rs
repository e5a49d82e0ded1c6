//! From no connection to one: when to dial, when to try again, when to give up.
//!
//! ```text
//!              timeout            connected             shaken hands
//!   Waiting ───────────▶ Dialling ─────────▶ Handshaking ───────────▶ (the session goes on)
//!      ▲                    │ failed              │ failed
//!      └──── retryable, and time is left ─────────┘
//!      └──── permanent, or no time is left ──▶ given up
//! ```
//!
//! One deadline bounds all attempts of one outage that lead to nothing. The same machine makes a first connection.
//!
//! Invariants: a spurious timeout changes nothing; the text of a given-up recovery has the end of the former connection and
//! the last error, so that all who waited hear the same.

use std::sync::Arc;
use std::time::Duration;

use super::backoff;
use crate::config;
use crate::error::{ConnectError, explain};
use crate::time::{Instant, after};

/// The way to one connection.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Why the former connection ended. None before the first one.
    cause: Option<Arc<str>>,
    deadline: Instant,
    limit: Duration,
    attempts: u32,
    step: Step,
    last_error: Option<ConnectError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Waiting { until: Instant },
    Dialling,
    Handshaking,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing, until [`Recovery::poll_timeout`].
    Wait,
    /// Make a connection.
    Dial,
    /// It is over.
    GiveUp { reason: Arc<str>, error: ConnectError },
}

impl Recovery {
    /// After `cause` ended the former connection, or towards a first one; not before `until`.
    pub(crate) fn new(now: Instant, until: Instant, cause: Option<Arc<str>>, config: &config::Recovery) -> Self {
        Self {
            cause,
            deadline: after(now, config.deadline),
            limit: config.deadline,
            attempts: 0,
            step: Step::Waiting { until },
            last_error: None,
        }
    }

    /// When it is given up.
    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// It is not given up before `until`.
    pub(crate) fn extend(&mut self, until: Instant) {
        self.deadline = self.deadline.max(until);
    }

    /// Why the former connection ended, if there was one.
    pub(crate) const fn cause(&self) -> Option<&Arc<str>> {
        self.cause.as_ref()
    }

    /// Why there is no connection.
    pub(crate) fn reason(&self) -> Arc<str> {
        self.cause.as_ref().map_or_else(|| "not connected".into(), Arc::clone)
    }

    /// Whether a connection is being made.
    pub(crate) const fn is_dialling(&self) -> bool {
        matches!(self.step, Step::Dialling)
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Instant {
        match self.step {
            Step::Waiting { until } => until.min(self.deadline),
            Step::Dialling | Step::Handshaking => self.deadline,
        }
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Next {
        if now >= self.deadline {
            return self.give_up();
        }
        match self.step {
            Step::Waiting { until } if until <= now => {
                self.step = Step::Dialling;
                Next::Dial
            }
            Step::Waiting { .. } | Step::Dialling | Step::Handshaking => Next::Wait,
        }
    }

    /// A connection was made.
    pub(crate) const fn handle_connected(&mut self) {
        self.step = Step::Handshaking;
    }

    /// An attempt has failed, or a connection before it was of any use. The next one is not made before `until`, nor before
    /// the other side asks for it. `key` is for the jitter.
    pub(crate) fn handle_failure(
        &mut self,
        now: Instant,
        until: Instant,
        error: ConnectError,
        retry: &config::RetryDelay,
        key: &str,
    ) -> Next {
        let permanent = !error.is_retryable();
        let asked = error.retry_after();
        self.last_error = Some(error);
        if permanent || now >= self.deadline {
            return self.give_up();
        }
        let delay = backoff::delay(retry, key, self.attempts);
        self.attempts = self.attempts.saturating_add(1);
        let mut until = after(now, delay).max(until);
        if let Some(asked) = asked {
            // What asks for more time than there is gets all but the last moment of it.
            let last_chance = self.deadline.checked_sub(LAST_CHANCE).unwrap_or(now);
            until = after(now, asked).min(last_chance).max(until);
        }
        self.step = Step::Waiting { until };
        Next::Wait
    }

    /// The peer refuses for now, and the connection stays. When it is to be asked again, if there is time.
    pub(crate) fn handle_refusal(&mut self, now: Instant, retry: &config::RetryDelay, key: &str) -> Option<Instant> {
        let again = after(now, backoff::delay(retry, key, self.attempts));
        self.attempts = self.attempts.saturating_add(1);
        (again < self.deadline).then_some(again)
    }

    fn give_up(&mut self) -> Next {
        let error = self.last_error.take().unwrap_or(ConnectError::TimedOut { what: "connecting", limit: self.limit });
        let last = explain(&error);
        let reason = match &self.cause {
            Some(cause) => format!("{cause}; not connected again: {last}"),
            None => last,
        };
        Next::GiveUp { reason: reason.into(), error }
    }
}

/// So much of the time is left for the last attempt, however long the other side asks to wait.
const LAST_CHANCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
