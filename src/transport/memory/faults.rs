//! Faults on purpose, for tests of what stands above a transport.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use super::queue::Queue;

/// What goes wrong in one direction of a connection. By default nothing.
///
/// ```
/// use longarm::transport::memory::{self, Faults};
///
/// let (client, server) = memory::pair_with_faults(Faults::none().cut_after_messages(3), Faults::none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "faults do nothing until a pair is made with them"]
pub struct Faults {
    cut_after_messages: Option<u64>,
    cut_after_bytes: Option<u64>,
    delay: Option<Duration>,
    duplicate_every: Option<u64>,
}

impl Faults {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self::default()
    }

    /// Breaks the connection, in both directions, in place of message `count` + 1. What was under way in the other
    /// direction is lost.
    pub fn cut_after_messages(mut self, count: u64) -> Self {
        self.cut_after_messages = Some(count);
        self
    }

    /// Breaks the connection, in both directions, in place of the message that goes beyond `count` bytes.
    pub fn cut_after_bytes(mut self, count: u64) -> Self {
        self.cut_after_bytes = Some(count);
        self
    }

    /// Delivers each message no sooner than this after it was sent, by tokio's clock.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Delivers every `nth` message twice. Zero never does.
    pub fn duplicate_every(mut self, nth: u64) -> Self {
        self.duplicate_every = Some(nth);
        self
    }
}

/// What becomes of a message that is sent.
pub(super) enum Fate {
    Plain(Bytes),
    Deliver(Vec<Bytes>),
    Cut,
}

#[derive(Default)]
pub(super) struct Injector {
    faults: Faults,
    progress: Mutex<Progress>,
    partner: Mutex<Weak<Queue>>,
}

#[derive(Default)]
struct Progress {
    messages: u64,
    bytes: u64,
    due: VecDeque<tokio::time::Instant>,
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Injector {
    pub(super) fn new(faults: Faults) -> Self {
        Self { faults, ..Self::default() }
    }

    pub(super) fn set_partner(&self, partner: Weak<Queue>) {
        *self.partner.lock().unwrap_or_else(PoisonError::into_inner) = partner;
    }

    pub(super) fn break_partner(&self) {
        let partner = self.partner.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(partner) = partner {
            partner.cut();
        }
    }

    pub(super) fn on_send(&self, message: Bytes) -> Fate {
        if self.faults == Faults::default() {
            return Fate::Plain(message);
        }
        let mut progress = self.progress();
        progress.messages += 1;
        progress.bytes += message.len() as u64;
        let over_messages = self.faults.cut_after_messages.is_some_and(|limit| progress.messages > limit);
        let over_bytes = self.faults.cut_after_bytes.is_some_and(|limit| progress.bytes > limit);
        if over_messages || over_bytes {
            return Fate::Cut;
        }
        let twice = self.faults.duplicate_every.is_some_and(|nth| nth != 0 && progress.messages.is_multiple_of(nth));
        let messages = if twice { vec![message.clone(), message] } else { vec![message] };
        if let Some(delay) = self.faults.delay {
            let due = tokio::time::Instant::now() + delay;
            progress.due.extend(messages.iter().map(|_| due));
        }
        Fate::Deliver(messages)
    }

    /// Ready when the oldest message is due.
    pub(super) fn poll_delay(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut progress = self.progress();
        let Some(due) = progress.due.front().copied() else { return Poll::Ready(()) };
        let sleep = progress.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        sleep.as_mut().poll(cx)
    }

    pub(super) fn on_receive(&self) {
        let mut progress = self.progress();
        progress.due.pop_front();
        progress.sleep = None;
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.faults.fmt(f)
    }
}
