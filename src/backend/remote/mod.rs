//! Processes on another machine, over one connection.
//!
//! [`Remote`] is a thin proxy. All that matters is decided by the state machine in [`core`](crate::core); one task for
//! each connection moves bytes and wakes whoever waits.
//!
//! # Slow readers
//!
//! The events of each process are held within a bound until they are read. Towards a peer with the extension the bytes
//! count as seen only when they are read: beyond the bound the peer stops reading from that process, and nothing is
//! lost. A plain peer does not know how far a reader is. One that is only a little slower than its process holds that
//! peer's messages up for a quarter of a second at most, in which the process waits; of one that stops, what does not fit
//! is let go, fetched again with `process/read` once the reader has caught up, and what the peer has dropped meanwhile
//! shows as a [`Gap`](crate::event::Gap). So towards a plain peer nothing is lost while at most its retained bound (1 MiB)
//! for each process is behind.
//!
//! # Towards a plain peer
//!
//! | asked for | what happens |
//! | --- | --- |
//! | `close_stdin`, `resize`, a terminal of another size than 24 × 80, a signal other than interrupt | `Unsupported`, before anything is sent |
//! | `terminate` with a grace time | the process group is killed at once: the plain wire has no polite stop |
//! | `terminate` with descendants | `Unsupported` |
//! | a time limit | kept by this end: when it passes, the process is killed and its status marked |
//! | an output limit | kept by this end, over the bytes that arrived |
//!
//! # When the connection ends
//!
//! Every call and every event stream ends in [`Disconnected`]. The session's processes are
//! kept by the peer for a while; [`Remote::resume`] over a new transport and [`Remote::attach`] pick them up.

mod ask;
pub(crate) mod bodies;
mod command;
mod driver;
mod events;
mod failure;
mod process;
pub(crate) mod watches;

use std::fmt;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};

pub(crate) use self::ask::result_of;
use self::command::{Command, Link};
use self::process::{AbandonOnDrop, RemoteProcess};
use crate::backend::{ExecBackend, Features, Spawned};
use crate::config::ClientConfig;
use crate::core::session::{Answer, Failure, Mode, Op, Started};
use crate::error::{CallError, ConnectError, Disconnected, Sent, SpawnError, WaitError};
use crate::fs::FileSystem;
use crate::fs::remote::RemoteFileSystem;
use crate::http::HttpClient;
use crate::http::remote::RemoteHttpClient;
use crate::info::EnvironmentInfo;
use crate::request::{ExecRequest, ProcessId};
use crate::transport::Transport;
use crate::wire::method::{self, NoParams};

pub use crate::core::session::{ListedProcess, ProcessState};

/// A place behind a connection. Clones share the connection.
///
/// Dropping the last clone kills the session's processes that were not detached, in the background and within a bound, and
/// closes the connection. [`close`](ExecBackend::close) gives them [`close_grace`](ClientConfig::close_grace) to end, and
/// waits; [`leave`](Remote::leave) keeps the processes.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
}

impl Remote {
    /// Starts a new session over `transport` and waits for the peer's answer. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the connection is closed.
    pub async fn connect(transport: Box<dyn Transport>, config: ClientConfig) -> Result<Self, ConnectError> {
        let remote = Self::connect_pipelined(transport, config);
        remote.ready().await?;
        Ok(remote)
    }

    /// Starts a new session over `transport` without waiting: first requests leave together with the handshake, which
    /// saves a round trip. Requests that depend on what the peer is (its directories, its features) wait for its answer.
    /// A failed handshake shows in [`ready`](Self::ready), and as `Disconnected` in every call. Must be called within a
    /// tokio runtime.
    pub fn connect_pipelined(transport: Box<dyn Transport>, config: ClientConfig) -> Self {
        Self::open(transport, config, Mode::Fresh)
    }

    /// Resumes a session over `transport`. Its processes are still known; [`attach`](Self::attach) follows them again.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`]: `UnknownSession` if it does not exist any more, `SessionAttached` while the peer has not yet
    /// noticed that the former connection is gone.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the connection is closed.
    pub async fn resume(
        transport: Box<dyn Transport>,
        config: ClientConfig,
        session_id: impl Into<String>,
    ) -> Result<Self, ConnectError> {
        let remote = Self::open(transport, config, Mode::Resume(session_id.into()));
        remote.ready().await?;
        Ok(remote)
    }

    fn open(transport: Box<dyn Transport>, config: ClientConfig, mode: Mode) -> Self {
        let peer = transport.peer();
        let (link, handshake) = driver::start(transport, config, mode);
        Self { shared: Arc::new(Shared { link, handshake, peer }) }
    }

    /// Waits until the peer has answered the handshake.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn ready(&self) -> Result<(), ConnectError> {
        let mut handshake = self.shared.handshake.clone();
        let state = handshake.wait_for(|state| !matches!(state, Handshake::Pending)).await;
        match state.as_deref() {
            Ok(Handshake::Failed(error)) => Err(error.clone()),
            Ok(Handshake::Done(_)) => Ok(()),
            Ok(Handshake::Pending) | Err(_) => Err(self.shared.link.disconnected(Sent::Unknown).into()),
        }
    }

    /// The id by which the session can be resumed; none while the peer has not answered the handshake.
    pub fn session_id(&self) -> Option<String> {
        match &*self.shared.handshake.borrow() {
            Handshake::Done(facts) => Some(facts.session_id.clone()),
            Handshake::Pending | Handshake::Failed(_) => None,
        }
    }

    /// Who is at the other end, for messages.
    pub fn peer(&self) -> &str {
        &self.shared.peer
    }

    /// Waits until the connection has ended, and says why.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn disconnected(&self) -> Disconnected {
        self.shared.link.ended().await;
        self.shared.link.disconnected(Sent::NotSent)
    }

    /// Follows a process of a resumed session, from the event after number `after_seq`; 0 is from its start. What the peer
    /// no longer holds shows as a [`Gap`](crate::event::Gap).
    ///
    /// # Errors
    ///
    /// A [`WaitError`]; `EventsTaken` if this connection already follows the process. If the process has closed and nothing
    /// follows `after_seq`, that is the only item of the event stream, as `Failed`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the process is not followed: it is not ended, none of its output counts as read, and it
    /// can be attached to again.
    pub async fn attach(&self, process_id: ProcessId, after_seq: u64) -> Result<Spawned, WaitError> {
        let link = &self.shared.link;
        let (route, mut events) = link.route();
        let control = RemoteProcess::new(Arc::clone(link), route);
        // Declared last, so dropped first: nothing of the process is to count as read.
        let abandon = AbandonOnDrop::new(Arc::clone(link), route);
        let op = Op::Attach { process_id: process_id.clone(), after_seq };
        match link.call_with_events(route, op, &mut events).await? {
            Answer::Started(started) => {
                abandon.disarm();
                Ok(spawned(process_id, control, events, started))
            }
            other => Err(failure::mismatch(&other).into()),
        }
    }

    /// The session's processes, as the peer lists them.
    ///
    /// # Errors
    ///
    /// A [`CallError`]; `Unsupported` towards a plain peer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn list_processes(&self) -> Result<Vec<ListedProcess>, CallError> {
        match self.shared.link.call(Op::List).await? {
            Answer::List(processes) => Ok(processes),
            other => Err(failure::mismatch(&other).into()),
        }
    }

    /// Asks the peer for a sign of life.
    ///
    /// # Errors
    ///
    /// A [`CallError`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn status(&self) -> Result<(), CallError> {
        match self.shared.link.call(Op::Status).await? {
            Answer::Done => Ok(()),
            other => Err(failure::mismatch(&other).into()),
        }
    }

    /// Closes the connection and keeps the session's processes; returns the id to resume it by, unless the handshake never
    /// succeeded. Event streams end in `Disconnected`.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the connection is closed whether or not the future is dropped.
    pub async fn leave(&self) -> Option<String> {
        // Without the answer to the handshake there is no id to come back with.
        let _ = self.ready().await;
        self.shared.link.send(Command::Leave);
        self.shared.link.ended().await;
        self.session_id()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("peer", &self.shared.peer).field("session_id", &self.session_id()).finish()
    }
}

#[async_trait::async_trait]
impl ExecBackend for Remote {
    async fn spawn(&self, request: ExecRequest) -> Result<Spawned, SpawnError> {
        let link = &self.shared.link;
        let process_id = request.requested_id().cloned().unwrap_or_else(ProcessId::random);
        let (route, mut events) = link.route();
        let control = RemoteProcess::new(Arc::clone(link), route);
        let abandon = AbandonOnDrop::new(Arc::clone(link), route);
        let op = Op::Start { request: Box::new(request.process_id(process_id.clone())) };
        match link.call_with_events(route, op, &mut events).await? {
            Answer::Started(started) => {
                abandon.disarm();
                Ok(spawned(process_id, control, events, started))
            }
            other => Err(failure::mismatch(&other).into()),
        }
    }

    async fn info(&self) -> Result<EnvironmentInfo, CallError> {
        match self.shared.link.call(Op::Info).await? {
            Answer::Info(info) => Ok(*info),
            other => Err(failure::mismatch(&other).into()),
        }
    }

    async fn fresh_info(&self) -> Result<EnvironmentInfo, CallError> {
        Ok(self.ask::<method::Info>(NoParams).await?.into())
    }

    /// What the peer has; nothing while it has not answered the handshake.
    fn features(&self) -> Features {
        match &*self.shared.handshake.borrow() {
            Handshake::Done(facts) => facts.features,
            Handshake::Pending | Handshake::Failed(_) => Features::default(),
        }
    }

    fn fs(&self) -> Option<Arc<dyn FileSystem>> {
        Some(Arc::new(RemoteFileSystem::new(self.clone())))
    }

    fn http(&self) -> Option<Arc<dyn HttpClient>> {
        Some(Arc::new(RemoteHttpClient::new(self.clone())))
    }

    async fn close(&self) {
        self.shared.link.send(Command::Close);
        self.shared.link.ended().await;
    }
}

fn spawned(process_id: ProcessId, control: RemoteProcess, events: events::Events, started: Started) -> Spawned {
    Spawned { process_id, control: Arc::new(control), events: Box::pin(events), sandbox_type: started.sandbox_type }
}

struct Shared {
    link: Arc<Link>,
    handshake: watch::Receiver<Handshake>,
    peer: String,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.link.send(Command::AbandonAll);
    }
}

/// How far the handshake is.
#[derive(Debug)]
enum Handshake {
    Pending,
    Done(Facts),
    Failed(ConnectError),
}

/// What the answer to the handshake says.
#[derive(Debug)]
struct Facts {
    session_id: String,
    features: Features,
}

type Reply = oneshot::Sender<Result<Answer, Failure>>;
