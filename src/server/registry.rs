//! The sessions of a server, by id, and its connections.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Counts, ServeError};
use crate::backend::ExecBackend;
use crate::config::ServerConfig;

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct Registry {
    backend: Arc<dyn ExecBackend>,
    config: ServerConfig,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    shut_down: bool,
}

impl Registry {
    pub(crate) fn new(backend: Arc<dyn ExecBackend>, config: ServerConfig) -> Self {
        Self { backend, config, state: Mutex::default() }
    }

    pub(crate) fn backend(&self) -> &Arc<dyn ExecBackend> {
        &self.backend
    }

    pub(crate) fn config(&self) -> &ServerConfig {
        &self.config
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Counts one more connection until the guard is dropped.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<Admission, ServeError> {
        let mut state = self.state();
        if state.shut_down {
            return Err(ServeError::ShutDown);
        }
        let limit = self.config.max_connections;
        if state.counts.connections >= limit {
            return Err(ServeError::TooManyConnections { limit });
        }
        state.counts.connections += 1;
        Ok(Admission { registry: Arc::clone(self) })
    }

    pub(crate) async fn shutdown(&self) {
        self.state().shut_down = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code under the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's place among those of the server.
#[derive(Debug)]
pub(crate) struct Admission {
    registry: Arc<Registry>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.registry.state().counts.connections -= 1;
    }
}
