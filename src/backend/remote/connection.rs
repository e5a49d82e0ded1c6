//! How the connection to a place is, for whoever wants to know.

use tokio::sync::watch;

use crate::core::session::ConnectionState;
use crate::transport::ReplaceOutcome;
use crate::transport::accepted::Claim;

/// Watches the connection of a place, through all of its connections and sessions. Watching makes no connection.
#[derive(Clone, Debug)]
pub struct Connection {
    states: watch::Receiver<ConnectionState>,
}

impl Connection {
    pub(super) const fn new(states: watch::Receiver<ConnectionState>) -> Self {
        Self { states }
    }

    /// How it is now.
    pub fn state(&self) -> ConnectionState {
        self.states.borrow().clone()
    }

    /// Waits for another state than the last one that this watch returned, and returns it; states between may be left out.
    /// None when the place is gone.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn changed(&mut self) -> Option<ConnectionState> {
        self.states.changed().await.ok()?;
        Some(self.states.borrow_and_update().clone())
    }

    /// Waits for a state that is `wanted`, and returns it. None when the place is gone before.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn wait_for(
        &mut self,
        mut wanted: impl FnMut(&ConnectionState) -> bool + Send,
    ) -> Option<ConnectionState> {
        let state = self.states.wait_for(|state| wanted(state)).await.ok()?;
        Some(state.clone())
    }
}

/// A connection that was handed over. Until it is known what became of it, another one is refused; dropping this allows the
/// next one, and takes the connection back if nobody has begun to use it.
#[derive(Debug)]
#[must_use = "dropped at once, the connection may be taken back before it is used"]
pub struct Replacement {
    pub(super) claim: Claim,
    pub(super) connection: Connection,
}

impl Replacement {
    /// Waits until it is known what became of the connection.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, so is the replacement.
    pub async fn outcome(mut self) -> ReplaceOutcome {
        tokio::select! {
            biased;
            installed = self.claim.settled() => {
                if installed { ReplaceOutcome::Installed } else { ReplaceOutcome::Failed }
            }
            _ = self.connection.wait_for(ConnectionState::is_over) => ReplaceOutcome::GivenUp,
        }
    }
}

/// Whether a place can be used, as far as can be said without a connection being made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readiness {
    /// Calls can be made at once.
    Ready,
    /// It is not connected yet, or is being connected: a call waits.
    Unknown,
    /// It could not be reached, or reached again. A later call may try once more.
    Failed {
        /// Why.
        reason: std::sync::Arc<str>,
    },
}

impl From<ConnectionState> for Readiness {
    fn from(state: ConnectionState) -> Self {
        match state {
            ConnectionState::Connected { .. } => Self::Ready,
            ConnectionState::Idle | ConnectionState::Connecting | ConnectionState::Recovering { .. } => Self::Unknown,
            ConnectionState::Failed { reason } | ConnectionState::SessionLost { reason } => Self::Failed { reason },
            ConnectionState::Closed => Self::Failed { reason: "closed by this end".into() },
        }
    }
}
