//! Which processes a place has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::shared::Shared;

/// The processes whose supervisors run.
#[derive(Debug, Default)]
pub(super) struct Registry {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// Starts under way: each may still yield a process, which has to be ended if the place is closed meanwhile.
    starting: usize,
    next: u64,
    live: HashMap<u64, Arc<Shared>>,
}

/// A start under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Starting {
    registry: Arc<Registry>,
}

/// One process's place in the registry; dropping it frees the place.
#[derive(Debug)]
pub(super) struct Registration {
    registry: Arc<Registry>,
    key: u64,
}

impl Registry {
    /// Adds a process, unless the place is closed.
    pub(super) fn add(self: &Arc<Self>, shared: &Arc<Shared>) -> Option<Registration> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        let key = state.next;
        state.next += 1;
        state.live.insert(key, Arc::clone(shared));
        Some(Registration { registry: Arc::clone(self), key })
    }

    /// Announces a process, unless the place is closed. What comes of it has to be added or ended before the result is
    /// dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Starting> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.starting += 1;
        Some(Starting { registry: Arc::clone(self) })
    }

    /// Whether no process can be added any more.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Lets no process be added any more, and returns those there are.
    pub(super) fn close(&self) -> Vec<Arc<Shared>> {
        let mut state = self.lock();
        state.closed = true;
        state.live.values().cloned().collect()
    }

    /// Waits until no start is under way and all but detached processes are gone; returns whether those are, too.
    pub(super) async fn ended(&self) -> bool {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            let (starting, live) = {
                let state = self.lock();
                (state.starting, state.live.values().cloned().collect::<Vec<_>>())
            };
            if starting == 0 && live.iter().all(|shared| shared.control().detached) {
                return live.is_empty();
            }
            drop(live);
            changed.await;
        }
    }

    /// The processes whose supervisors run.
    pub(super) fn live(&self) -> Vec<Arc<Shared>> {
        self.lock().live.values().cloned().collect()
    }

    /// A process was detached, or is gone, or a start has ended: closing may have nothing left to wait for.
    pub(super) fn note_change(&self) {
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.registry.lock().starting -= 1;
        self.registry.note_change();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let gone = self.registry.lock().live.remove(&self.key);
        self.registry.note_change();
        drop(gone);
    }
}
