//! Connections that a host accepted and authenticated by itself, and hands over.
//!
//! A place behind them cannot dial: when a connection breaks, it waits until the host hands over the next one.
//! [`Handover`] is the host's side of that.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{Connector, Transport};
use crate::error::ConnectError;

/// Hands connections to whoever waits for one. Clones hand to the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handover {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    slot: Mutex<Slot>,
    /// There is a connection to take.
    offered: Notify,
    /// Something has become of one.
    settled: Notify,
}

#[derive(Debug, Default)]
struct Slot {
    last: u64,
    /// The one that waits to be taken.
    pending: Option<(u64, Box<dyn Transport>)>,
    /// The one that is being tried.
    trying: Option<u64>,
    /// The session went on over it.
    installed: Option<u64>,
    /// No longer tried: this and all before it. What was not installed led to nothing.
    failed: Option<u64>,
    /// Who has the right to hand over.
    claim: Option<u64>,
}

/// One connection that was handed over. Dropping it gives up the right, and takes back a connection that nobody took.
#[derive(Debug)]
pub(crate) struct Claim {
    shared: Arc<Shared>,
    number: u64,
}

impl Handover {
    /// With a first connection, to be taken at once.
    pub(crate) fn with_first(transport: Box<dyn Transport>) -> Self {
        let handover = Self::default();
        handover.shared.lock().pending = Some((0, transport));
        handover
    }

    /// Whether the connection of this number was taken, or a later one.
    pub(crate) fn has_taken(&self, number: u64) -> bool {
        let slot = self.shared.lock();
        slot.trying.max(slot.installed).max(slot.failed).is_some_and(|last| last >= number)
    }

    /// The session goes on over the one that was taken last.
    pub(crate) fn note_installed(&self) {
        let mut slot = self.shared.lock();
        if let Some(number) = slot.trying.take() {
            slot.installed = Some(number);
            drop(slot);
            self.shared.settled.notify_waiters();
        }
    }

    /// The right to hand a connection over. None if another one is on its way.
    pub(crate) fn claim(&self) -> Option<Claim> {
        let mut slot = self.shared.lock();
        if slot.claim.is_some() {
            return None;
        }
        slot.last += 1;
        slot.claim = Some(slot.last);
        Some(Claim { shared: Arc::clone(&self.shared), number: slot.last })
    }
}

impl Claim {
    /// Hands the connection over to whoever waits for one.
    pub(crate) fn hand_over(&self, transport: Box<dyn Transport>) {
        self.shared.lock().pending = Some((self.number, transport));
        self.shared.offered.notify_one();
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Waits until it is known what became of the connection: whether the session went on over it.
    pub(crate) async fn settled(&self) -> bool {
        loop {
            let mut settled = std::pin::pin!(self.shared.settled.notified());
            // From here on a notice is not missed.
            settled.as_mut().enable();
            {
                let slot = self.shared.lock();
                if slot.installed == Some(self.number) {
                    return true;
                }
                if slot.failed >= Some(self.number) {
                    return false;
                }
            }
            settled.await;
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut slot = self.shared.lock();
        if slot.claim == Some(self.number) {
            slot.claim = None;
        }
        slot.pending.take_if(|(number, _)| *number == self.number);
    }
}

#[async_trait::async_trait]
impl Connector for Handover {
    /// Waits for the next connection. That there is another wait means that the former one led to nothing, or is broken.
    async fn connect(&self) -> Result<Box<dyn Transport>, ConnectError> {
        {
            let mut slot = self.shared.lock();
            if let Some(number) = slot.trying.take() {
                slot.failed = slot.failed.max(Some(number));
                drop(slot);
                self.shared.settled.notify_waiters();
            }
        }
        loop {
            // One notice is kept for whoever asks later.
            let offered = self.shared.offered.notified();
            {
                let mut slot = self.shared.lock();
                if let Some((number, transport)) = slot.pending.take() {
                    slot.trying = Some(number);
                    return Ok(transport);
                }
            }
            offered.await;
        }
    }

    fn can_reconnect(&self) -> bool {
        true
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        // Nothing panics while it is held.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a connection that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplaceOutcome {
    /// The session goes on over it.
    Installed,
    /// It led to nothing: it broke, or the peer refused. The place waits for another one.
    Failed,
    /// The place is given up.
    GivenUp,
}

/// A connection cannot be handed over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// The place dials by itself, or has a single connection.
    #[error("the place takes no connections from the host")]
    NotAccepted,
    /// Another replacement is on its way.
    #[error("another replacement is on its way")]
    Overlapping,
    /// The place is closed, or was given up.
    #[error("the place is closed: {reason}")]
    Closed {
        /// Why.
        reason: Arc<str>,
    },
}

impl fmt::Display for ReplaceOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Installed => "installed",
            Self::Failed => "failed",
            Self::GivenUp => "given up",
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::transport::memory;

    fn offer(handover: &Handover) -> Option<Claim> {
        let claim = handover.claim()?;
        claim.hand_over(Box::new(memory::pair().0));
        Some(claim)
    }

    #[tokio::test]
    async fn one_is_handed_over_at_a_time_and_a_dropped_claim_frees_the_place() {
        let handover = Handover::default();
        let claim = offer(&handover).unwrap();
        assert!(offer(&handover).is_none(), "overlapping");
        drop(claim);
        assert!(handover.connect().now_or_never().is_none(), "it was taken back");
        let _claim = offer(&handover).unwrap();
        assert!(handover.connect().now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn asking_for_another_one_tells_that_the_former_led_to_nothing() {
        let handover = Handover::default();
        let claim = offer(&handover).unwrap();
        handover.connect().await.unwrap();
        assert!(claim.settled().now_or_never().is_none());
        let mut again = handover.connect();
        assert!((&mut again).now_or_never().is_none());
        assert!(!claim.settled().await);
        drop(claim);
        let _next = offer(&handover).unwrap();
        assert!(again.await.is_ok());
    }

    #[tokio::test]
    async fn what_is_installed_is_that_one_and_stays_so() {
        let handover = Handover::default();
        let first = offer(&handover).unwrap();
        handover.connect().await.unwrap();
        drop(first);
        let second = offer(&handover).unwrap();
        assert!(!handover.has_taken(second.number()));
        // The session has gone on over the first one, whose claim is gone.
        handover.note_installed();
        assert!(second.settled().now_or_never().is_none(), "nobody has taken it");
        handover.connect().await.unwrap();
        assert!(handover.has_taken(second.number()));
        handover.note_installed();
        assert!(handover.connect().now_or_never().is_none(), "it broke again");
        assert!(second.settled().await, "and was installed");
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let handover = Handover::default();
        let waiting = tokio::spawn({
            let handover = handover.clone();
            async move { handover.connect().await.is_ok() }
        });
        tokio::task::yield_now().await;
        let _claim = offer(&handover).unwrap();
        assert!(waiting.await.unwrap());
    }
}
