//! Acting on a process, from any task.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::backend::{ProcessControl, Terminate};
use crate::error::{SignalError, WaitError, WriteError};
use crate::event::Exited;
use crate::request::{ProcessId, Signal, TerminalSize};
use crate::sandbox::{Denial, Enforcement};
use crate::status::ExitStatus;

use super::ProcessStdin;

/// The means to act on a process from any task. A cheap clone; it neither holds the events nor keeps the process alive.
#[derive(Clone)]
pub struct ProcessHandle {
    pub(super) shared: Arc<Shared>,
}

impl ProcessHandle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The id of the process within its session.
    pub fn id(&self) -> &ProcessId {
        &self.shared.process_id
    }

    /// The process id of the operating system, where it has a meaning for this host.
    pub fn os_id(&self) -> Option<u32> {
        self.shared.control.os_id()
    }

    /// The type of sandbox that is enforced, by its wire name; `none` without one, absent if the place cannot say.
    pub fn sandbox_type(&self) -> Option<&str> {
        self.shared.sandbox_type.as_deref()
    }

    /// What the sandbox of the process enforces, and by which means. None if the place does not say; then
    /// [`sandbox_type`](Self::sandbox_type) may.
    pub fn enforcement(&self) -> Option<Enforcement> {
        self.shared.control.enforcement()
    }

    /// What the sandbox denied, and on which evidence, once the exit has been met among the events. None if it denied nothing and
    /// nothing was seen, or if the place does not say. Also after a success it tells of
    /// [names](crate::sandbox::Evidence::ProtectedName) that appeared, which programs would execute something from.
    pub fn denial(&self) -> Option<Denial> {
        self.shared.exited()?;
        self.shared.control.denial()
    }

    /// How the process ended, if the exit has been met among its events.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.shared.exited().map(|exited| exited.status)
    }

    /// Waits until the exit has been met among the events. Somebody has to follow them: the [`Process`](super::Process) or
    /// its [`Events`](super::Events), whoever has them.
    ///
    /// # Errors
    ///
    /// A [`WaitError`] if the end cannot be known: `Closed` if the events are gone before the exit.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn wait(&self) -> Result<ExitStatus, WaitError> {
        let mut outcome = self.shared.outcome();
        // The handle keeps the sender.
        let known = outcome.wait_for(Option::is_some).await.map_err(|_| WaitError::Closed)?.clone();
        known.ok_or(WaitError::Closed)?.map(|exited| exited.status)
    }

    /// As [`Process::write`](super::Process::write).
    ///
    /// # Errors
    ///
    /// A [`WriteError`].
    pub async fn write(&self, data: impl Into<Bytes> + Send) -> Result<(), WriteError> {
        self.shared.control.write(data.into()).await
    }

    /// As [`Process::close_stdin`](super::Process::close_stdin).
    ///
    /// # Errors
    ///
    /// A [`WriteError`].
    pub async fn close_stdin(&self) -> Result<(), WriteError> {
        self.shared.control.close_stdin().await
    }

    /// As [`Process::stdin`](super::Process::stdin).
    pub fn stdin(&self) -> ProcessStdin {
        ProcessStdin::new(self.clone())
    }

    /// As [`Process::resize`](super::Process::resize).
    ///
    /// # Errors
    ///
    /// A [`SignalError`].
    pub async fn resize(&self, size: TerminalSize) -> Result<(), SignalError> {
        self.shared.control.resize(size).await
    }

    /// As [`Process::signal`](super::Process::signal).
    ///
    /// # Errors
    ///
    /// A [`SignalError`].
    pub async fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        self.shared.control.signal(signal).await
    }

    /// As [`Process::interrupt`](super::Process::interrupt).
    ///
    /// # Errors
    ///
    /// A [`SignalError`].
    pub async fn interrupt(&self) -> Result<(), SignalError> {
        self.signal(Signal::Interrupt).await
    }

    /// As [`Process::terminate`](super::Process::terminate).
    ///
    /// # Errors
    ///
    /// A [`SignalError`].
    pub async fn terminate(&self) -> Result<bool, SignalError> {
        self.terminate_with(Terminate::graceful(self.shared.stop_grace)).await
    }

    /// As [`Process::terminate_with`](super::Process::terminate_with).
    ///
    /// # Errors
    ///
    /// A [`SignalError`].
    pub async fn terminate_with(&self, how: Terminate) -> Result<bool, SignalError> {
        self.shared.control.terminate(how).await
    }

    /// As [`Process::kill`](super::Process::kill).
    ///
    /// # Errors
    ///
    /// A [`SignalError`].
    pub async fn kill(&self) -> Result<bool, SignalError> {
        self.terminate_with(Terminate::kill()).await
    }

    /// As [`Process::detach`](super::Process::detach).
    ///
    /// # Errors
    ///
    /// A [`SignalError`].
    pub async fn detach(&self) -> Result<(), SignalError> {
        self.shared.control.detach().await?;
        self.shared.detached.store(true, Ordering::Release);
        Ok(())
    }
}

impl fmt::Debug for ProcessHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt_as("ProcessHandle", f)
    }
}

/// What the handles of one process share.
pub(super) struct Shared {
    process_id: ProcessId,
    control: Arc<dyn ProcessControl>,
    sandbox_type: Option<String>,
    stop_grace: Duration,
    detached: AtomicBool,
    /// How the process ended, as soon as anyone has met the exit or the end of the events.
    outcome: watch::Sender<Option<Outcome>>,
}

pub(super) type Outcome = Result<Exited, WaitError>;

impl Shared {
    pub(super) fn new(
        process_id: ProcessId,
        control: Arc<dyn ProcessControl>,
        sandbox_type: Option<String>,
        stop_grace: Duration,
    ) -> Self {
        let detached = AtomicBool::new(false);
        Self { process_id, control, sandbox_type, stop_grace, detached, outcome: watch::Sender::new(None) }
    }

    pub(super) fn outcome(&self) -> watch::Receiver<Option<Outcome>> {
        self.outcome.subscribe()
    }

    /// The exit, if it has been met.
    pub(super) fn exited(&self) -> Option<Exited> {
        self.outcome.borrow().as_ref().and_then(|outcome| outcome.as_ref().ok().copied())
    }

    /// Records the outcome; the first one counts.
    pub(super) fn settle(&self, outcome: Outcome) {
        self.outcome.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                *known = Some(outcome);
            }
            first
        });
    }

    /// The owner is gone: kills the process unless it has exited or was detached.
    pub(super) fn abandon(&self) {
        if self.exited().is_none() && !self.detached.load(Ordering::Acquire) {
            self.control.kill_now();
        }
    }

    pub(super) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name).field("id", &self.process_id).field("os_id", &self.control.os_id()).finish_non_exhaustive()
    }
}
