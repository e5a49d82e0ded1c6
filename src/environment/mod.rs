//! The handle of one place, for the host; and places by name.
//!
//! [`Environment`] is one place. [`Environments`] are a host's places by name, with a default: taken from an
//! [`EnvironmentProvider`] (a TOML file with the feature `toml`, a variable that names a server, or one of the host's own), and
//! changed while the host runs.

#[cfg(feature = "toml")]
mod file;
mod named;
mod provider;

use std::fmt;
use std::sync::Arc;

use crate::backend::local::{Local, LocalConfig};
use crate::backend::remote::{Connection, Readiness, Remote};
use crate::backend::{ExecBackend, Features};
use crate::collect::{CollectLimits, CollectedOutput};
use crate::config::ClientConfig;
use crate::error::{CallError, ConnectError, RunError, SpawnError, WaitError};
use crate::fs::{FileSystem, NoFileSystem};
use crate::http::{HttpClient, NoHttpClient};
use crate::info::EnvironmentInfo;
use crate::process::Process;
use crate::request::{ExecRequest, ProcessId, Stdin};
use crate::status::ExitStatus;
use crate::transport::{Connector, Transport};

#[cfg(feature = "toml")]
pub use self::file::EnvironmentsFile;
pub use self::named::{EnvironmentChanges, EnvironmentId, Environments, EnvironmentsError};
pub use self::provider::{DefaultEnvironment, EnvironmentProvider, Place, Snapshot, UrlVariable};

/// A place where commands run: this machine, another one, or a host's own backend. The code that uses it is the same.
///
/// Clones are cheap and stand for the same place. [`close`](Self::close) ends its processes, except detached ones, and
/// waits until nothing of them is left; dropping the last clone does the same without waiting, as far as the backend can.
#[derive(Clone)]
#[must_use = "an environment does nothing until a command is spawned"]
pub struct Environment {
    backend: Arc<dyn ExecBackend>,
    remote: Option<Remote>,
}

impl Environment {
    /// This machine, with the variables and the working directory that this program has now: they are taken once, here.
    ///
    /// [`Local`] with a [`LocalConfig`] of one's own, turned into an environment, takes nothing from the host.
    pub fn local() -> Self {
        Local::new(LocalConfig::from_host()).into()
    }

    /// A place of the host's own making.
    pub fn with_backend(backend: Arc<dyn ExecBackend>) -> Self {
        Self { backend, remote: None }
    }

    /// The place at the other end of a connection, in a new session. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the connection is closed.
    pub async fn connect(transport: impl Transport, config: ClientConfig) -> Result<Self, ConnectError> {
        Ok(Remote::connect(Box::new(transport), config).await?.into())
    }

    /// As [`connect`](Self::connect), over a new connection of `connector`.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the connection is closed.
    pub async fn connect_with(connector: &dyn Connector, config: ClientConfig) -> Result<Self, ConnectError> {
        Ok(Remote::connect(connector.connect().await?, config).await?.into())
    }

    /// A place that connects when it is first used, over connections of `connector`, and comes back when one breaks: its
    /// processes, their events and their input go on over the next one. Must be called within a tokio runtime.
    ///
    /// What a break means for each kind of call is in the guide, on the page about recovery.
    pub fn with_connector(connector: impl Connector, config: ClientConfig) -> Self {
        Remote::with_connector(Arc::new(connector), config).into()
    }

    /// A place behind a connection that the host has accepted, and authenticated, by itself. When it breaks, everything waits
    /// until the host hands over the next one with [`Remote::replace`]. Must be called within a tokio runtime.
    pub fn accepted(transport: impl Transport, config: ClientConfig) -> Self {
        Remote::accepted(Box::new(transport), config).into()
    }

    /// The place at the other end of a connection, in the session that was left or lost. Its processes can be followed
    /// again with [`attach`](Self::attach). Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`]: `UnknownSession` if the session does not exist any more, `SessionAttached` while the peer has
    /// not yet noticed that the former connection is gone.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the connection is closed.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use longarm::{CollectLimits, Environment, ExecRequest, Local, LocalConfig};
    /// use longarm::{config::ClientConfig, server::Server, transport::memory};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(unix)] {
    /// let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
    /// let connect = || {
    ///     let (near, far) = memory::pair();
    ///     let server = server.clone();
    ///     tokio::spawn(async move { server.serve(Box::new(far)).await });
    ///     near
    /// };
    /// let before = Environment::connect(connect(), ClientConfig::default()).await?;
    /// let process = before.spawn(ExecRequest::new(["sh", "-c", "echo hi; sleep 0.1; echo there"])).await?;
    /// process.detach().await?;
    /// let id = process.id().clone();
    /// let session = before.leave().await.ok_or("no session")?;
    ///
    /// let after = loop {
    ///     match Environment::resume(connect(), ClientConfig::default(), session.clone()).await {
    ///         // The server has not yet noticed that the former connection is gone.
    ///         Err(error) if error.is_retryable() => tokio::task::yield_now().await,
    ///         result => break result?,
    ///     }
    /// };
    /// let process = after.attach(id, 0).await?;
    /// assert_eq!(process.output(CollectLimits::default()).await?.stdout.to_text(), "hi\nthere\n");
    /// # after.close().await;
    /// # }
    /// # Ok(()) }
    /// ```
    pub async fn resume(
        transport: impl Transport,
        config: ClientConfig,
        session_id: impl Into<String> + Send,
    ) -> Result<Self, ConnectError> {
        Ok(Remote::resume(Box::new(transport), config, session_id).await?.into())
    }

    /// Starts a command.
    ///
    /// # Errors
    ///
    /// A [`SpawnError`] that names what is wrong. Unless it is `Disconnected`, nothing is running.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the process either was not started or is ended.
    pub async fn spawn(&self, request: ExecRequest) -> Result<Process, SpawnError> {
        let stop_grace = request.requested_stop_grace();
        let takes_input = request.requested_stdin() == Stdin::Piped && request.requested_terminal().is_none();
        let spawned = self.backend.spawn(request).await?;
        let process = Process::new(spawned, stop_grace);
        Ok(if takes_input { process } else { process.without_input() })
    }

    /// Runs a command to its end and keeps its output within the default bounds: [`spawn`](Self::spawn), then
    /// [`Process::output`].
    ///
    /// # Errors
    ///
    /// A [`RunError`]: of the start, or of the following of its events.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the process either was not started or is killed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use longarm::{Environment, ExecRequest};
    /// # #[cfg(unix)] {
    /// let output = Environment::local().output(ExecRequest::new(["echo", "hi"])).await?;
    /// assert_eq!(output.stdout.to_text(), "hi\n");
    /// # }
    /// # Ok(()) }
    /// ```
    pub async fn output(&self, request: ExecRequest) -> Result<CollectedOutput, RunError> {
        Ok(self.spawn(request).await?.output(CollectLimits::default()).await?)
    }

    /// Runs a command to its exit and drops its output. Standard input is closed at once.
    ///
    /// # Errors
    ///
    /// A [`RunError`]: of the start, or of the following of its events.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the process either was not started or is killed.
    pub async fn status(&self, request: ExecRequest) -> Result<ExitStatus, RunError> {
        // Nobody could write to it.
        Ok(self.spawn(request.stdin(Stdin::Null)).await?.wait().await?)
    }

    /// Follows a process of a resumed session, from the event after number `after_seq`; 0 is from its start. What the
    /// place no longer holds shows as a gap. The grace time of a stop is the default one.
    ///
    /// # Errors
    ///
    /// A [`WaitError`]; `EventsTaken` if this connection already follows the process.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the process is not followed. It is never ended.
    pub async fn attach(&self, process_id: ProcessId, after_seq: u64) -> Result<Process, WaitError> {
        let Some(remote) = &self.remote else {
            return Err(WaitError::UnknownProcess(process_id));
        };
        let spawned = remote.attach(process_id, after_seq).await?;
        Ok(Process::new(spawned, crate::request::DEFAULT_STOP_GRACE))
    }

    /// Watches the connection behind the place; none if there never is one.
    pub fn connection(&self) -> Option<Connection> {
        self.remote.as_ref().map(Remote::connection)
    }

    /// Whether the place can be used, without doing anything about it.
    pub fn readiness(&self) -> Readiness {
        self.remote.as_ref().map_or(Readiness::Ready, Remote::readiness)
    }

    /// Waits until the place can be used, and connects if it has to be. All who wait share one attempt.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`], when the attempt is given up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped; the attempt goes on.
    pub async fn wait_until_ready(&self) -> Result<(), ConnectError> {
        match &self.remote {
            Some(remote) => remote.wait_until_ready().await,
            None => Ok(()),
        }
    }

    /// Makes sure that the place can be reached now: see [`Remote::refresh`].
    ///
    /// # Errors
    ///
    /// A [`ConnectError`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn refresh(&self) -> Result<(), ConnectError> {
        match &self.remote {
            Some(remote) => remote.refresh().await,
            None => Ok(()),
        }
    }

    /// What the place is: shell, directories, operating system, capabilities. It is what the place said first, so that
    /// asking again costs nothing.
    ///
    /// # Errors
    ///
    /// A [`CallError`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn info(&self) -> Result<EnvironmentInfo, CallError> {
        self.backend.info().await
    }

    /// What the place is now: it is asked anew. What [`info`](Self::info) says stays as it is.
    ///
    /// # Errors
    ///
    /// A [`CallError`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn fresh_info(&self) -> Result<EnvironmentInfo, CallError> {
        self.backend.fresh_info().await
    }

    /// The files of the place. Every call of a place that offers none ends in `Unsupported`.
    pub fn fs(&self) -> Arc<dyn FileSystem> {
        self.backend.fs().unwrap_or_else(|| Arc::new(NoFileSystem))
    }

    /// The HTTP requests of the place: the executor makes them. Every request of a place that makes none ends in
    /// `Unsupported`.
    pub fn http(&self) -> Arc<dyn HttpClient> {
        self.backend.http().unwrap_or_else(|| Arc::new(NoHttpClient))
    }

    /// The features beyond the plain wire that the place has.
    pub fn features(&self) -> Features {
        self.backend.features()
    }

    /// Ends all processes that were not detached and waits until they are gone. Later spawns fail. Idempotent.
    pub async fn close(&self) {
        self.backend.close().await;
    }

    /// Closes the connection and keeps the session's processes, all of them; returns the id to [`resume`](Self::resume) it
    /// by. None of a place that is not behind a connection, to which nothing happens, and of one that never had a session,
    /// which is closed.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the connection is closed whether or not the future is dropped.
    pub async fn leave(&self) -> Option<String> {
        self.remote.as_ref()?.leave().await
    }

    /// The connection behind the place, if there is one: its session id, its processes, its end.
    pub fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    /// The backend, for a server or for a backend around it.
    pub fn backend(&self) -> &Arc<dyn ExecBackend> {
        &self.backend
    }
}

impl From<Local> for Environment {
    fn from(local: Local) -> Self {
        Self::with_backend(Arc::new(local))
    }
}

impl From<Remote> for Environment {
    fn from(remote: Remote) -> Self {
        Self { backend: Arc::new(remote.clone()), remote: Some(remote) }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Environment").field(&self.backend).finish()
    }
}
