//! A place behind a connection: its present session, and the next one when that is lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::bodies::Bodies;
use super::command::{Command, Link};
use super::driver::{self, Beginning, Board};
use super::watches::Watches;
use super::{Facts, Handshake};
use crate::config::ClientConfig;
use crate::core::session::{ConnectionState, Mode};
use crate::error::{ConnectError, Disconnected, Sent};
use crate::time::{self, Instant, after};
use crate::transport::accepted::{Claim, Handover};
use crate::transport::{Connector, ReplaceError, Transport};

/// What all clones of a [`Remote`](super::Remote) share.
#[derive(Debug)]
pub(super) struct Place {
    dial: Option<Dial>,
    current: Mutex<Current>,
    board: Board,
}

/// How new sessions are begun.
#[derive(Debug)]
struct Dial {
    connector: Arc<dyn Connector>,
    config: ClientConfig,
}

/// The present session.
#[derive(Debug)]
struct Current {
    link: Arc<Link>,
    handshake: watch::Receiver<Handshake>,
    epoch: u64,
    /// How many connections stood before it.
    generations: u64,
    began_at: Instant,
    /// By this end: no other session is begun.
    closed: bool,
}

impl Place {
    /// One session over one connection.
    pub(super) fn over(transport: Box<dyn Transport>, config: ClientConfig, mode: Mode) -> Self {
        let board = Board::new(&config, Some(transport.peer()), None);
        let (link, handshake) = driver::start(transport, config, mode, board.clone());
        let current = Current { link, handshake, epoch: 1, generations: 0, began_at: time::now(), closed: false };
        Self { dial: None, current: Mutex::new(current), board }
    }

    /// One session over connections that the host hands over, this one first.
    pub(super) fn accepted(transport: Box<dyn Transport>, config: ClientConfig) -> Self {
        let handover = Handover::with_first(transport);
        Self::dialling_with(Arc::new(handover.clone()), config, Some(handover))
    }

    /// One session after another, over connections that `connector` makes.
    pub(super) fn dialling(connector: Arc<dyn Connector>, config: ClientConfig) -> Self {
        Self::dialling_with(connector, config, None)
    }

    fn dialling_with(connector: Arc<dyn Connector>, config: ClientConfig, handover: Option<Handover>) -> Self {
        let board = Board::new(&config, None, handover);
        let beginning = Beginning { epoch: 1, generations: 0, not_before: None };
        let (link, handshake) =
            driver::start_dialling(Arc::clone(&connector), config.clone(), beginning, board.clone());
        let current = Current { link, handshake, epoch: 1, generations: 0, began_at: time::now(), closed: false };
        Self { dial: Some(Dial { connector, config }), current: Mutex::new(current), board }
    }

    /// The session for a new call: if the former one is lost, and there can be another one, that. All who call share it.
    pub(super) fn link(&self) -> Arc<Link> {
        self.link_unless(|end| matches!(end, End::Permanent))
    }

    /// The same, also after an error that is permanent as long as nobody changes anything.
    pub(super) fn link_anew(&self) -> Arc<Link> {
        self.link_unless(|_| false)
    }

    /// The present session, lost or not.
    pub(super) fn present(&self) -> Arc<Link> {
        Arc::clone(&self.lock().link)
    }

    /// Begins no session any more; the present one is to be ended.
    pub(super) fn close(&self) -> Arc<Link> {
        let mut current = self.lock();
        current.closed = true;
        Arc::clone(&current.link)
    }

    /// The last session has ended, of a place that was closed.
    pub(super) fn note_closed(&self) {
        self.board.state.send_if_modified(|state| {
            let other = !matches!(state, ConnectionState::Closed);
            if other {
                *state = ConnectionState::Closed;
            }
            other
        });
    }

    fn link_unless(&self, refuses: impl FnOnce(End) -> bool) -> Arc<Link> {
        let mut current = self.lock();
        // The state is that of the present session, and tells that nothing more is to be done for it. Only a runtime that
        // is gone leaves none.
        let over = self.board.state.borrow().is_over() || current.link.is_gone();
        let Some(dial) = self.dial.as_ref().filter(|_| over) else {
            return Arc::clone(&current.link);
        };
        let single = self.board.handover.is_some() || !dial.connector.can_reconnect();
        if current.closed || single || refuses(current.end()) {
            return Arc::clone(&current.link);
        }
        let generations = match &*current.handshake.borrow() {
            Handshake::Done(facts) => facts.generation,
            Handshake::Pending | Handshake::Failed(_) => current.generations,
        };
        let epoch = current.epoch + 1;
        let not_before = Some(after(current.began_at, dial.config.recovery.new_session_delay));
        let beginning = Beginning { epoch, generations, not_before };
        // Nobody is to take the end of the former session for that of the next.
        self.board.state.send_replace(ConnectionState::Connecting);
        let (link, handshake) =
            driver::start_dialling(Arc::clone(&dial.connector), dial.config.clone(), beginning, self.board.clone());
        let began_at = time::now();
        *current = Current { link: Arc::clone(&link), handshake, epoch, generations, began_at, closed: false };
        link
    }

    /// Hands over another connection for the session.
    pub(super) fn replace(&self, transport: Box<dyn Transport>) -> Result<Claim, ReplaceError> {
        let handover = self.board.handover.as_ref().ok_or(ReplaceError::NotAccepted)?;
        let link = self.present();
        if link.is_over() {
            let Disconnected { reason, .. } = link.disconnected(Sent::NotSent);
            return Err(ReplaceError::Closed { reason });
        }
        let claim = handover.claim().ok_or(ReplaceError::Overlapping)?;
        link.send(Command::Replace { number: claim.number() });
        claim.hand_over(transport);
        Ok(claim)
    }

    /// Waits until the first handshake of the present session has come to something, without doing anything about it.
    pub(super) async fn answered(&self) {
        let mut handshake = self.lock().handshake.clone();
        // An error means that the task is gone.
        let _ = handshake.wait_for(|state| !matches!(state, Handshake::Pending)).await;
    }

    /// Waits until the peer has answered the first handshake of the present session.
    pub(super) async fn ready(&self) -> Result<(), ConnectError> {
        let (link, mut handshake) = {
            let link = self.link();
            (link, self.lock().handshake.clone())
        };
        link.send(Command::Connect);
        let state = handshake.wait_for(|state| !matches!(state, Handshake::Pending)).await;
        match state.as_deref() {
            Ok(Handshake::Failed(error)) => Err(error.clone()),
            Ok(Handshake::Done(_)) => Ok(()),
            Ok(Handshake::Pending) | Err(_) => Err(link.disconnected(Sent::Unknown).into()),
        }
    }

    /// What the last handshake of the present session said.
    pub(super) fn facts<T>(&self, read: impl FnOnce(&Facts) -> T) -> Option<T> {
        match &*self.lock().handshake.borrow() {
            Handshake::Done(facts) => Some(read(facts)),
            Handshake::Pending | Handshake::Failed(_) => None,
        }
    }

    /// Why there is no connection, if that is final: the error of the handshake, or of what came after it.
    pub(super) fn failure(&self) -> ConnectError {
        let current = self.lock();
        match &*current.handshake.borrow() {
            Handshake::Failed(error) => error.clone(),
            Handshake::Pending | Handshake::Done(_) => current.link.disconnected(Sent::NotSent).into(),
        }
    }

    /// Why the last connection ended that has.
    pub(super) fn last_end(&self) -> Option<Arc<str>> {
        self.board.last_end()
    }

    pub(super) const fn watches(&self) -> &Arc<Watches> {
        &self.board.watches
    }

    pub(super) const fn bodies(&self) -> &Arc<Bodies> {
        &self.board.bodies
    }

    pub(super) fn state(&self) -> &watch::Sender<ConnectionState> {
        &self.board.state
    }

    pub(super) fn peer(&self) -> &str {
        self.board.peer.get().map_or("not connected yet", String::as_str)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        // Nothing panics while it is held.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.present().send(Command::AbandonAll);
    }
}

/// How a session ended.
enum End {
    /// Another one may fare better.
    Lost,
    /// There never was a connection, and there will be none.
    Permanent,
}

impl Current {
    fn end(&self) -> End {
        match &*self.handshake.borrow() {
            Handshake::Failed(error) if !error.is_retryable() => End::Permanent,
            _ => End::Lost,
        }
    }
}
