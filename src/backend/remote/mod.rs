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
//! A place that was made with [`Remote::with_connector`] comes back by itself: it dials again and resumes its session, and
//! processes, event streams and writes go on as if nothing had happened. What a break does to each kind of call is in the
//! guide, on the page about recovery. When the session itself is lost, its processes are: their event streams end in
//! [`Disconnected`], and the next call begins a new session.
//!
//! Over a single transport, every call and every event stream ends in [`Disconnected`]. The session's processes are kept by
//! the peer for a while; [`Remote::resume`] over a new transport and [`Remote::attach`] pick them up.

mod ask;
pub(crate) mod bodies;
mod command;
mod connection;
mod driver;
mod events;
mod failure;
mod place;
mod process;
pub(crate) mod watches;
mod wire;

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

pub(crate) use self::ask::result_of;
use self::command::Command;
use self::place::Place;
use self::process::{AbandonOnDrop, RemoteProcess};
use crate::backend::{ExecBackend, Features, Spawned};
use crate::config::ClientConfig;
use crate::core::session::{Answer, Failure, LinkId, Mode, Op, SIGN_OF_LIFE, Started};
use crate::error::{CallError, ConnectError, Disconnected, Sent, SpawnError, WaitError};
use crate::fs::FileSystem;
use crate::fs::remote::RemoteFileSystem;
use crate::http::HttpClient;
use crate::http::remote::RemoteHttpClient;
use crate::info::EnvironmentInfo;
use crate::request::{ExecRequest, ProcessId};
use crate::transport::{Connector, ReplaceError, Transport};
use crate::wire::method::{self, NoParams};

pub use self::connection::{Connection, Readiness, Replacement};
pub use crate::core::session::{ConnectionState, ListedProcess, ProcessState};

/// A place behind a connection. Clones share the connection.
///
/// Dropping the last clone kills the session's processes that were not detached, in the background and within a bound, and
/// closes the connection. [`close`](ExecBackend::close) gives them [`close_grace`](ClientConfig::close_grace) to end, and
/// waits; [`leave`](Remote::leave) keeps the processes.
#[derive(Clone)]
pub struct Remote {
    place: Arc<Place>,
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
    /// noticed that the former connection is gone. Then `transport` is used up; asking again needs another one.
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
        Self { place: Arc::new(Place::over(transport, config, mode)) }
    }

    /// A place that connects when it is first used, and comes back when its connection breaks, as
    /// [`ClientConfig::recovery`] says. Calls that are made meanwhile wait; a first connection goes the same way. Must be
    /// called within a tokio runtime.
    ///
    /// With a connector that [cannot reconnect](Connector::can_reconnect), there is one attempt at one connection.
    pub fn with_connector(connector: Arc<dyn Connector>, config: ClientConfig) -> Self {
        Self { place: Arc::new(Place::dialling(connector, config)) }
    }

    /// A place behind a connection that the host has accepted, and authenticated, by itself. When it breaks, calls wait until
    /// the host hands over the next one with [`replace`](Self::replace), for as long as [`ClientConfig::recovery`] says. Must
    /// be called within a tokio runtime.
    pub fn accepted(transport: Box<dyn Transport>, config: ClientConfig) -> Self {
        let remote = Self { place: Arc::new(Place::accepted(transport, config)) };
        remote.start_connecting();
        remote
    }

    /// Hands over another connection for the session of a place that was made with [`accepted`](Self::accepted). The present
    /// one is given up, also if its handshake is under way, and the session goes on over the new one: what is returned says
    /// whether it does. While there is no session yet, the new one is a first connection like the former.
    ///
    /// # Errors
    ///
    /// A [`ReplaceError`]; then the present connection stays.
    pub fn replace(&self, transport: Box<dyn Transport>) -> Result<Replacement, ReplaceError> {
        let claim = self.place.replace(transport)?;
        Ok(Replacement { claim, connection: self.connection() })
    }

    /// Watches the connection: whether it stands, is being made again, or is given up, and why.
    pub fn connection(&self) -> Connection {
        Connection::new(self.place.state().subscribe())
    }

    /// Whether the place can be used, without doing anything about it.
    pub fn readiness(&self) -> Readiness {
        self.place.state().borrow().clone().into()
    }

    /// Makes a connection in the background, if there is none and none is being made.
    pub fn start_connecting(&self) {
        self.place.link().send(Command::Connect);
    }

    /// Waits until the connection stands, and makes one if there is none. All who wait share one attempt.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`], when the attempt is given up. One that is not retryable stays until [`refresh`](Self::refresh).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped; the attempt goes on.
    pub async fn wait_until_ready(&self) -> Result<(), ConnectError> {
        let link = self.place.link();
        self.wait_connected(&link).await
    }

    async fn wait_connected(&self, link: &command::Link) -> Result<(), ConnectError> {
        let mut connection = self.connection();
        if !link.send(Command::Connect) {
            return Err(self.place.failure());
        }
        match connection.wait_for(|state| state.is_connected() || state.is_over()).await {
            Some(ConnectionState::Connected { .. }) => Ok(()),
            _ => Err(self.place.failure()),
        }
    }

    /// Makes sure that the place can be reached now: a connection that stands has to show a sign of life within 10 s, else
    /// it counts as broken; a lost session, or one that never came about, is followed by a new one, also after an error
    /// that is not retryable. Then waits as [`wait_until_ready`](Self::wait_until_ready) does. All who ask at one time share one
    /// sign of life.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn refresh(&self) -> Result<(), ConnectError> {
        let link = self.place.link_anew();
        let state = self.place.state().borrow().clone();
        if let ConnectionState::Connected { generation, .. } = state
            && tokio::time::timeout(SIGN_OF_LIFE, link.probe()).await.is_err()
        {
            let (done, suspected) = oneshot::channel();
            link.send(Command::Suspect { generation, done });
            // An error means that the session has ended, and its state tells that.
            let _ = suspected.await;
        }
        self.wait_connected(&link).await
    }

    /// Waits until the peer has answered the handshake, and connects if nobody has yet.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn ready(&self) -> Result<(), ConnectError> {
        self.place.ready().await
    }

    /// The id by which the session can be resumed; none while the peer has not answered the handshake.
    pub fn session_id(&self) -> Option<String> {
        self.place.facts(|facts| facts.session_id.clone())
    }

    /// Who is at the other end, for messages.
    pub fn peer(&self) -> &str {
        self.place.peer()
    }

    /// Waits until the session has ended, with its last connection, and says why.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn disconnected(&self) -> Disconnected {
        let link = self.place.present();
        link.ended().await;
        link.disconnected(Sent::NotSent)
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
        let link = &self.place.link();
        let (route, mut events, control) = link.route();
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
        match self.place.link().call(Op::List).await? {
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
        match self.place.link().call(Op::Status).await? {
            Answer::Done => Ok(()),
            other => Err(failure::mismatch(&other).into()),
        }
    }

    /// Closes the connection and keeps the session's processes; returns the id to resume it by, unless no handshake succeeded.
    /// Event streams end in `Disconnected`. A handshake that is under way is waited for; where nothing has needed a connection
    /// yet, none is made. Later calls fail.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the connection is closed whether or not the future is dropped.
    pub async fn leave(&self) -> Option<String> {
        let link = self.place.close();
        let leaving = LeaveOnDrop(&link);
        let idle = matches!(*self.place.state().borrow(), ConnectionState::Idle);
        if !idle {
            // Without the answer to the handshake there is no id to come back with.
            self.place.answered().await;
        }
        drop(leaving);
        link.ended().await;
        self.place.note_closed();
        self.session_id()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("peer", &self.peer()).field("session_id", &self.session_id()).finish()
    }
}

#[async_trait::async_trait]
impl ExecBackend for Remote {
    async fn spawn(&self, request: ExecRequest) -> Result<Spawned, SpawnError> {
        let link = &self.place.link();
        let process_id = request.requested_id().cloned().unwrap_or_else(ProcessId::random);
        let (route, mut events, control) = link.route();
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
        match self.place.link().call(Op::Info).await? {
            Answer::Info(info) => Ok(*info),
            other => Err(failure::mismatch(&other).into()),
        }
    }

    async fn fresh_info(&self) -> Result<EnvironmentInfo, CallError> {
        Ok(self.ask::<method::Info>(NoParams).await?.into())
    }

    /// What the peer has; nothing while it has not answered the handshake.
    fn features(&self) -> Features {
        self.place.facts(|facts| facts.features).unwrap_or_default()
    }

    fn fs(&self) -> Option<Arc<dyn FileSystem>> {
        Some(Arc::new(RemoteFileSystem::new(self.clone())))
    }

    fn http(&self) -> Option<Arc<dyn HttpClient>> {
        Some(Arc::new(RemoteHttpClient::new(self.clone())))
    }

    async fn close(&self) {
        let link = self.place.close();
        link.send(Command::Close);
        link.ended().await;
        self.place.note_closed();
    }
}

/// Leaves the connection, whether or not anybody waits for that.
struct LeaveOnDrop<'a>(&'a command::Link);

impl Drop for LeaveOnDrop<'_> {
    fn drop(&mut self) {
        self.0.send(Command::Leave);
    }
}

fn spawned(process_id: ProcessId, mut control: RemoteProcess, events: events::Events, started: Started) -> Spawned {
    let Started { sandbox_type, enforcement } = started;
    control.set_enforcement(enforcement);
    Spawned { process_id, control: Arc::new(control), events: Box::pin(events), sandbox_type }
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
    /// The connection over which it came.
    link: LinkId,
    /// How many connections have stood.
    generation: u64,
    session_id: String,
    features: Features,
}

type Reply = oneshot::Sender<Result<Answer, Failure>>;
