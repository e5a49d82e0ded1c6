//! The sessions of a server, by id, and its connections.
//!
//! The registry is where it is decided, under one lock, whether a session is attached, waits, or is over; the session's
//! task and the connections that want it only carry that out. So a client that comes back in the last moment either
//! has the session, or is told that there is none, and never both.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::session_task::{Attach, Session};
use super::{Counts, ServeError};
use crate::backend::ExecBackend;
use crate::config::ServerConfig;
use crate::core::peer::{Fault, Offers, Peer};
use crate::time::{self, Instant};

/// What all connections of a server share.
#[derive(Debug)]
pub(super) struct Registry {
    backend: Arc<dyn ExecBackend>,
    config: Arc<ServerConfig>,
    /// The tasks of the sessions. Locked before `state` where both are, and never by a session's task.
    tasks: Mutex<JoinSet<()>>,
    state: Mutex<State>,
    shutdown: watch::Sender<bool>,
    connections: watch::Sender<usize>,
    /// Held by who waits for the tasks, so that others who do wait for them too.
    joining: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<String, Entry>,
    shut_down: bool,
}

/// A session.
#[derive(Debug)]
struct Entry {
    mailbox: mpsc::Sender<Attach>,
    /// Tells an attached session that another connection asks for it.
    challenges: mpsc::Sender<()>,
    /// When it is over; none while it is attached.
    expires_at: Option<Instant>,
}

impl Registry {
    pub(super) fn new(backend: Arc<dyn ExecBackend>, config: ServerConfig) -> Self {
        Self {
            backend,
            config: Arc::new(config),
            tasks: Mutex::default(),
            state: Mutex::default(),
            shutdown: watch::Sender::new(false),
            connections: watch::Sender::new(0),
            joining: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn backend(&self) -> &Arc<dyn ExecBackend> {
        &self.backend
    }

    /// What the place offers besides processes.
    pub(super) fn offers(&self) -> Offers {
        Offers { files: self.backend.fs().is_some(), http: self.backend.http().is_some() }
    }

    pub(super) fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    pub(super) fn counts(&self) -> Counts {
        let connections = *self.connections.borrow();
        let state = self.state();
        let attached = state.sessions.values().filter(|entry| entry.expires_at.is_none()).count();
        Counts { connections, attached, detached: state.sessions.len() - attached }
    }

    /// Counts one more connection until the guard is dropped.
    pub(super) fn admit(self: &Arc<Self>) -> Result<Admission, ServeError> {
        let state = self.state();
        if state.shut_down {
            return Err(ServeError::ShutDown);
        }
        let limit = self.config.max_connections;
        let admitted = self.connections.send_if_modified(|connections| {
            let room = *connections < limit;
            *connections += usize::from(room);
            room
        });
        if admitted {
            Ok(Admission { registry: Arc::clone(self) })
        } else {
            Err(ServeError::TooManyConnections { limit })
        }
    }

    /// Opens a session for a connection. Gives the connection back with the reason if there is no room.
    pub(super) fn open(self: &Arc<Self>, attach: Attach) -> Result<(), Box<(Attach, Fault)>> {
        // Held until the task is there, so that a shutdown that this session comes before finds the task.
        let mut tasks = self.tasks();
        let mut state = self.state();
        if state.shut_down {
            return Err(Box::new((attach, Fault::invalid_request("the server is shutting down"))));
        }
        let limit = self.config.max_sessions;
        if state.sessions.len() >= limit {
            let fault = Fault::invalid_request(format!("the server already has {limit} sessions"));
            return Err(Box::new((attach, fault)));
        }
        let id = uuid::Uuid::new_v4().to_string();
        let peer = Peer::new(id.clone(), Arc::clone(&self.config), self.backend.features(), self.offers(), time::now());
        let (mailbox, commands) = mpsc::channel(1);
        let (challenges, challenged) = mpsc::channel(1);
        if let Err(error) = mailbox.try_send(attach) {
            return Err(Box::new((error.into_inner(), Fault::internal("the new session takes no connection"))));
        }
        let session = Session::new(peer, Arc::clone(self), commands, challenged);
        state.sessions.insert(id, Entry { mailbox, challenges, expires_at: None });
        // A runtime that is ending drops the session at once, which then removes itself.
        drop(state);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(session.run());
        Ok(())
    }

    /// Attaches a connection to a session that waits for one. One that has a connection keeps it if that shows a sign of life
    /// soon; whoever asks is refused at once, as by the reference, and may ask again.
    pub(super) fn resume(&self, id: &str, attach: Attach) -> Result<(), Box<(Attach, Fault)>> {
        let mut state = self.state();
        let unknown = |attach| Err(Box::new((attach, Fault::unknown_session(id))));
        let Some(entry) = state.sessions.get_mut(id) else { return unknown(attach) };
        match entry.expires_at {
            None => {
                // If one is under way already, that is enough.
                let _ = entry.challenges.try_send(());
                return Err(Box::new((attach, Fault::session_attached(id))));
            }
            Some(expiry) if time::now() >= expiry => return unknown(attach),
            Some(_) => {}
        }
        if let Err(error) = entry.mailbox.try_send(attach) {
            return unknown(error.into_inner());
        }
        entry.expires_at = None;
        Ok(())
    }

    /// A session has lost its connection.
    pub(super) fn detached(&self, id: &str, expires_at: Instant) {
        if let Some(entry) = self.state().sessions.get_mut(id) {
            entry.expires_at = Some(expires_at);
        }
    }

    /// Removes a session if its time is over, and says whether it is. If not, a connection is on its way to it.
    pub(super) fn expire(&self, id: &str, now: Instant) -> bool {
        let mut state = self.state();
        let over = state.sessions.get(id).is_none_or(|entry| entry.expires_at.is_some_and(|expiry| now >= expiry));
        if over {
            state.sessions.remove(id);
        }
        over
    }

    /// A session is over, for whatever reason.
    pub(super) fn remove(&self, id: &str) {
        self.state().sessions.remove(id);
    }

    /// Ends when a shutdown begins, or has begun.
    pub(super) fn shutdown_begun(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut begun = self.shutdown.subscribe();
        async move {
            // The sender is gone only with the registry, whose sessions and connections are then gone too.
            let _begun = begun.wait_for(|begun| *begun).await;
        }
    }

    pub(super) fn is_shut_down(&self) -> bool {
        *self.shutdown.borrow()
    }

    pub(super) async fn shutdown(&self) {
        self.state().shut_down = true;
        self.shutdown.send_replace(true);
        let _joining = self.joining.lock().await;
        std::future::poll_fn(|cx| {
            let mut tasks = self.tasks();
            while ready!(tasks.poll_join_next(cx)).is_some() {}
            Poll::Ready(())
        })
        .await;
        // A connection that the host has stopped driving never ends, hence the bound.
        let mut connections = self.connections.subscribe();
        let none_left = connections.wait_for(|connections| *connections == 0);
        let _in_time = tokio::time::timeout(CLOSE_PATIENCE * 2, none_left).await;
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code under the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's place among those of the server.
#[derive(Debug)]
pub(super) struct Admission {
    registry: Arc<Registry>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.registry.connections.send_modify(|connections| *connections -= 1);
    }
}

/// How long the closing of a connection may take, in which its peer has to read what was sent to it.
pub(super) const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
