//! The contract of a place where processes run.
//!
//! [`ExecBackend`] is object-safe; [`Local`](crate::Local) runs processes on this machine,
//! [`Remote`](crate::Remote) on another one, and a host may write its own. The contract in prose:
//!
//! - **Start.** [`ExecBackend::spawn`] returns when the program runs or could not be started; then nothing is running.
//!   Dropping the future before it ends leaves no process behind.
//! - **Events** come in the order that [`crate::event`] describes. They are pulled: a backend that is not polled must
//!   stop reading once a bounded amount is held, and so pause the process, never drop silently.
//! - **Control** calls may be made at any time, from any task, also after the exit; those that have nothing to act on
//!   succeed or say so by a typed error. A write takes effect after the earlier ones; `terminate` and `signal` never wait
//!   for a write.
//! - **Ending** a process means its process group (its session, with a terminal), while output is drained; of a process
//!   that is to be [contained](ExecRequest::contain), all that descends from it.
//! - **Dropping** the event source means that nobody wants the output: the backend discards it from then on and
//!   counts it in the totals.
//!
//! The public contract suite (feature `testing`) checks a backend against these rules.

mod channel;
mod input_queue;
pub mod local;
pub mod remote;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;

use crate::error::{CallError, SignalError, SpawnError, Unsupported, WaitError, WriteError};
use crate::event::Event;
use crate::fs::FileSystem;
use crate::http::HttpClient;
use crate::info::EnvironmentInfo;
use crate::request::{ExecRequest, ProcessId, Signal, TerminalSize};
use crate::sandbox::{Denial, Enforcement};

pub use crate::info::Features;

pub use self::channel::{EventSender, channel};
pub use self::input_queue::InputQueue;

/// A place where processes run. See the [module documentation](self) for the contract.
#[async_trait::async_trait]
pub trait ExecBackend: fmt::Debug + Send + Sync + 'static {
    /// Starts a process.
    ///
    /// # Errors
    ///
    /// A [`SpawnError`] that names what is wrong. Unless it is `Disconnected`, nothing is running.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the process either was not started or is ended.
    async fn spawn(&self, request: ExecRequest) -> Result<Spawned, SpawnError>;

    /// What this place is: shell, directories, operating system, capabilities. May be what it was when it was first asked.
    ///
    /// # Errors
    ///
    /// A [`CallError`].
    async fn info(&self) -> Result<EnvironmentInfo, CallError>;

    /// The same, looked at anew. A place whose facts do not change needs nothing more than [`info`](Self::info).
    ///
    /// # Errors
    ///
    /// A [`CallError`].
    async fn fresh_info(&self) -> Result<EnvironmentInfo, CallError> {
        self.info().await
    }

    /// The features beyond the plain wire that this place has. By default none.
    fn features(&self) -> Features {
        Features::default()
    }

    /// The files of this place. None if it does not offer them.
    fn fs(&self) -> Option<Arc<dyn FileSystem>> {
        None
    }

    /// The HTTP requests of this place. None if it makes none.
    fn http(&self) -> Option<Arc<dyn HttpClient>> {
        None
    }

    /// Ends all processes that were not detached, and all that the backend runs in the background. Idempotent.
    async fn close(&self);
}

/// What [`ExecBackend::spawn`] returns.
pub struct Spawned {
    /// The id under which the process is known.
    pub process_id: ProcessId,
    /// The means to act on it.
    pub control: Arc<dyn ProcessControl>,
    /// Its events.
    pub events: EventSource,
    /// The sandbox type that is enforced, by its wire name; `none` without a sandbox, absent if the place cannot say.
    pub sandbox_type: Option<String>,
}

impl fmt::Debug for Spawned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawned").field("process_id", &self.process_id).finish_non_exhaustive()
    }
}

/// The events of one process. An error is the last item; so is [`Event::Closed`].
pub type EventSource = Pin<Box<dyn Stream<Item = Result<Event, WaitError>> + Send>>;

/// The means to act on one process. All calls take effect in the order in which they are made, save that nothing waits
/// for a blocked write but later writes and the closing of standard input.
#[async_trait::async_trait]
pub trait ProcessControl: fmt::Debug + Send + Sync + 'static {
    /// The process id of the operating system, where it has a meaning for the host.
    fn os_id(&self) -> Option<u32> {
        None
    }

    /// What the process's sandbox enforces; [`Enforcement::NONE`] without one. None if the place does not say.
    fn enforcement(&self) -> Option<Enforcement> {
        None
    }

    /// What the sandbox denied, and on which evidence, once the exit has been met among the events. None if it denied nothing and
    /// nothing was seen, or if the place does not say.
    fn denial(&self) -> Option<Denial> {
        None
    }

    /// Writes all of `data` to standard input; returns when it was handed to the system (Local) or accepted (Remote).
    ///
    /// # Errors
    ///
    /// A [`WriteError`]; then a part of `data`, from its beginning, may have been written. Nothing ever follows it: after
    /// the failure of a write, all later ones fail too.
    ///
    /// # Cancel safety
    ///
    /// A write whose future was polled once is applied exactly once, whether or not the future is dropped, unless the
    /// process stops reading.
    async fn write(&self, data: Bytes) -> Result<(), WriteError>;

    /// Closes standard input after everything written before. With a terminal it is `Unsupported`: send the
    /// end-of-file character.
    ///
    /// # Errors
    ///
    /// A [`WriteError`]; `StdinClosed` if it was already closed.
    async fn close_stdin(&self) -> Result<(), WriteError>;

    /// Sets the size of the terminal. For places without terminals, which this is made for, it is `Unsupported`.
    ///
    /// # Errors
    ///
    /// A [`SignalError`]; `NoTerminal` without one.
    async fn resize(&self, size: TerminalSize) -> Result<(), SignalError> {
        let _ = size;
        Err(Unsupported { feature: "resizing a terminal", place: "this place".into() }.into())
    }

    /// Sends a signal to the process group; an interrupt with a terminal goes to its foreground process group. Success on
    /// an exited process.
    ///
    /// # Errors
    ///
    /// A [`SignalError`]; `Unsupported` for signals that the place does not have.
    async fn signal(&self, signal: Signal) -> Result<(), SignalError>;

    /// Ends the process tree; returns at once, with whether the process was still running.
    ///
    /// # Errors
    ///
    /// A [`SignalError`].
    async fn terminate(&self, how: Terminate) -> Result<bool, SignalError>;

    /// Kills the process tree. Called when the last handle is dropped: it must not block, and cannot fail.
    fn kill_now(&self);

    /// Lets the process outlive its handle and its environment. By default that is `Unsupported`. A process that was asked
    /// to end is not killed any more, whether or not it ends by itself.
    ///
    /// # Errors
    ///
    /// A [`SignalError`]; `Ending` if it is too late for that.
    async fn detach(&self) -> Result<(), SignalError> {
        Err(Unsupported { feature: "detaching a process", place: "this place".into() }.into())
    }
}

/// How to end a process tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Terminate {
    /// How long it may take to end by itself after a polite request. Zero kills at once.
    pub grace: Duration,
    /// Also end what an already exited process left behind in its group.
    pub descendants: bool,
}

impl Terminate {
    /// Kills at once.
    pub const fn kill() -> Self {
        Self { grace: Duration::ZERO, descendants: false }
    }

    /// Asks politely, then kills after `grace`.
    pub const fn graceful(grace: Duration) -> Self {
        Self { grace, descendants: false }
    }

    /// The same, also for what an exited process left behind.
    #[must_use]
    pub const fn with_descendants(mut self) -> Self {
        self.descendants = true;
        self
    }
}
