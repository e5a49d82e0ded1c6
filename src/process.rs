//! A running process, as its owner holds it.
//!
//! [`Process`] is unique: it owns the events. [`ProcessHandle`] is a cheap clone for acting on the process from other
//! tasks, and [`ProcessStdin`] writes to it as to a file.
//!
//! # Dropping
//!
//! Dropping a [`Process`] kills a process that still runs, with its whole tree, at once and without blocking. A process
//! that has exited is left alone, together with what it left behind. [`Process::detach`] lets a process live on.
//! Dropping an [`Events`] gives the events back to the handle; where the handle is gone, the output is discarded, so
//! that the process does not wait for a reader that will never come.

mod events;
mod handle;
mod stdin;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::sync::oneshot;

use self::events::{Source, Taken};
use self::handle::Shared;
use crate::backend::{Spawned, Terminate};
use crate::collect::{CollectLimits, CollectedOutput, Collector};
use crate::error::{SignalError, WaitError, WriteError};
use crate::event::Event;
use crate::request::{ProcessId, Signal, TerminalSize};
use crate::sandbox::{Denial, Enforcement};
use crate::status::ExitStatus;

pub use self::events::Events;
pub use self::handle::ProcessHandle;
pub use self::stdin::ProcessStdin;

/// A running process. See the [module documentation](self) for what dropping it does.
#[must_use = "dropping a process kills it"]
pub struct Process {
    handle: ProcessHandle,
    /// Never locked: `get_mut` serves. The mutex makes the handle `Sync`, which a stream need not be, so that futures
    /// that write to the process may move between threads.
    slot: Mutex<Slot>,
    /// Whether standard input may be open.
    takes_input: bool,
}

/// Where the source of the events is.
enum Slot {
    Held(Source),
    Taken(oneshot::Receiver<Source>),
}

impl Process {
    /// Takes charge of what a backend has started. `stop_grace` is what [`terminate`](Self::terminate) grants.
    pub fn new(spawned: Spawned, stop_grace: Duration) -> Self {
        let Spawned { process_id, control, events, sandbox_type } = spawned;
        let shared = Arc::new(Shared::new(process_id, control, sandbox_type, stop_grace));
        let slot = Slot::Held(Source::new(events, Arc::clone(&shared)));
        Self { handle: ProcessHandle::new(shared), slot: Mutex::new(slot), takes_input: true }
    }

    /// A process that is known to have no input to close.
    pub(crate) fn without_input(mut self) -> Self {
        self.takes_input = false;
        self
    }

    /// The id of the process within its session.
    pub fn id(&self) -> &ProcessId {
        self.handle.id()
    }

    /// The process id of the operating system, where it has a meaning for this host.
    pub fn os_id(&self) -> Option<u32> {
        self.handle.os_id()
    }

    /// The type of sandbox that is enforced, by its wire name; `none` without one, absent if the place cannot say.
    pub fn sandbox_type(&self) -> Option<&str> {
        self.handle.sandbox_type()
    }

    /// What the sandbox of the process enforces, and by which means. None if the place does not say; then
    /// [`sandbox_type`](Self::sandbox_type) may.
    pub fn enforcement(&self) -> Option<Enforcement> {
        self.handle.enforcement()
    }

    /// What the sandbox denied, and on which evidence, once the exit has been met among the events. None if it denied nothing and
    /// nothing was seen, or if the place does not say. Also after a success it tells of
    /// [names](crate::sandbox::Evidence::ProtectedName) that appeared, which programs would execute something from.
    pub fn denial(&self) -> Option<Denial> {
        self.handle.denial()
    }

    /// A handle for acting on the process from elsewhere. It does not keep the process alive.
    pub fn handle(&self) -> ProcessHandle {
        self.handle.clone()
    }

    /// The next event, or none after the last.
    ///
    /// # Errors
    ///
    /// A [`WaitError`] if the events cannot be followed any further, again on every later call; `EventsTaken` while an
    /// [`Events`] exists.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next_event(&mut self) -> Result<Option<Event>, WaitError> {
        self.source()?.next().await
    }

    /// The events as a stream of its own. None while another one exists.
    pub fn take_events(&mut self) -> Option<Events> {
        self.source().ok()?;
        let (back, taken) = oneshot::channel();
        let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(slot, Slot::Taken(taken)) {
            Slot::Held(source) => Some(Events::new(Taken::new(source, back))),
            // `source` has just succeeded, so this does not come up; if it did, the slot would stay as it was.
            Slot::Taken(taken) => {
                *slot = Slot::Taken(taken);
                None
            }
        }
    }

    /// How the process ended, if it has: as [`wait`](Self::wait), without waiting. Looks at some events that have come, and
    /// so discards output as that does; none while an [`Events`] exists that has not passed the exit.
    ///
    /// # Errors
    ///
    /// A [`WaitError`] if the end cannot be known.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, WaitError> {
        for _ in 0..LOOK_AHEAD {
            let known = self.handle.shared.outcome().borrow().clone();
            if let Some(outcome) = known {
                return outcome.map(|exited| Some(exited.status));
            }
            let Ok(source) = self.source() else { break };
            // What this yields is output, which is discarded, or makes the outcome known.
            if source.next().now_or_never().is_none() {
                break;
            }
        }
        Ok(None)
    }

    /// Waits until the process has ended; returns at once if it has. Output may still follow.
    ///
    /// Standard input stays open: a process that reads a pipe to its end ends only after
    /// [`close_stdin`](Self::close_stdin).
    ///
    /// A process waits for its reader when too much output is held. So this discards the output that it meets on its way,
    /// if nobody else holds the events: to keep it, follow the events or [`collect`](Self::collect) instead. While an
    /// [`Events`] exists, this waits until that one has passed the exit, or takes over when it is dropped.
    ///
    /// # Errors
    ///
    /// A [`WaitError`] if the end cannot be known.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again, also after it has returned: the answer stays the same.
    pub async fn wait(&mut self) -> Result<ExitStatus, WaitError> {
        let mut outcome = self.handle.shared.outcome();
        let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(known) = outcome.borrow_and_update().clone() {
                return known.map(|exited| exited.status);
            }
            match slot {
                Slot::Held(source) => {
                    // What this yields is output, which is discarded, or makes the outcome known.
                    let discarded = source.next().await;
                    drop(discarded);
                }
                Slot::Taken(back) => tokio::select! {
                    biased;
                    changed = outcome.changed() => debug_assert!(changed.is_ok(), "the handle keeps the sender"),
                    source = back => *slot = Slot::Held(source.map_err(|_| WaitError::Closed)?),
                },
            }
        }
    }

    /// Closes standard input, reads the rest of the output to its end, as [`collect`](Self::collect) does, and gives up the
    /// handle.
    ///
    /// Input written before is still delivered. A terminal's input, and that of a place that cannot close it, stays open:
    /// there a process that reads its input to the end does not end.
    ///
    /// # Errors
    ///
    /// As [`collect`](Self::collect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the process, and so kills it.
    pub async fn output(mut self, limits: CollectLimits) -> Result<CollectedOutput, WaitError> {
        let handle = self.takes_input.then(|| self.handle());
        let close = async {
            if let Some(handle) = handle {
                // It is closed already, or it cannot be closed; of anything else the events tell.
                let _ = handle.close_stdin().await;
            }
            std::future::pending().await
        };
        // Together: the process may want its output to be taken before it reads on.
        tokio::select! {
            biased;
            output = close => output,
            output = self.collect(limits) => output,
        }
    }

    /// Reads the rest of the output, keeping a bounded head and tail of each stream, until all streams have ended.
    ///
    /// Standard input stays open, as with [`wait`](Self::wait).
    ///
    /// After the exit it waits for the end of the streams for [`CollectLimits::drain_timeout`] at most: a descendant may
    /// hold them for ever. Then it returns with [`CollectedOutput::still_open`] set, and the events go on.
    ///
    /// # Errors
    ///
    /// A [`WaitError`]; `EventsTaken` while an [`Events`] exists.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the output collected so far.
    pub async fn collect(&mut self, limits: CollectLimits) -> Result<CollectedOutput, WaitError> {
        let exited = self.handle.shared.exited();
        let source = self.source()?;
        let drained_by = || tokio::time::Instant::now().checked_add(limits.drain_timeout);
        let mut collector = Collector::new(limits, exited);
        let mut deadline = exited.and_then(|_| drained_by());
        let mut late = 0;
        loop {
            let event = match deadline {
                None => Some(source.next().await),
                Some(deadline) if tokio::time::Instant::now() < deadline => {
                    tokio::time::timeout_at(deadline, source.next()).await.ok()
                }
                // What has come in time is taken, but no more than that: a descendant may write faster than this reads.
                Some(_) if late < LOOK_AHEAD => {
                    late += 1;
                    source.next().now_or_never()
                }
                Some(_) => None,
            };
            let Some(Some(event)) = event.transpose()? else { break };
            if matches!(event, Event::Exited(_)) {
                deadline = drained_by();
            }
            if collector.push(event) {
                break;
            }
        }
        collector.finish().ok_or(WaitError::Closed)
    }

    /// Writes all of `data` to standard input, after all earlier writes.
    ///
    /// # Errors
    ///
    /// A [`WriteError`].
    ///
    /// # Cancel safety
    ///
    /// Once the future has been polled, the write is applied exactly once, whether or not it is dropped.
    pub async fn write(&self, data: impl Into<Bytes> + Send) -> Result<(), WriteError> {
        self.handle.write(data).await
    }

    /// Closes standard input, after all earlier writes.
    ///
    /// # Errors
    ///
    /// A [`WriteError`]: `StdinClosed` if it was closed already, `Unsupported` with a terminal (send its end-of-file
    /// character instead) and towards a place that cannot do it.
    pub async fn close_stdin(&self) -> Result<(), WriteError> {
        self.handle.close_stdin().await
    }

    /// Standard input as a writer. There may be several; their writes interleave.
    pub fn stdin(&self) -> ProcessStdin {
        ProcessStdin::new(self.handle())
    }

    /// Sets the size of the terminal.
    ///
    /// # Errors
    ///
    /// A [`SignalError`]; `NoTerminal` without one.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), SignalError> {
        self.handle.resize(size).await
    }

    /// Sends a signal to the process group. Harmless after the exit.
    ///
    /// # Errors
    ///
    /// A [`SignalError`]; `Unsupported` for signals that the place does not have.
    pub async fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        self.handle.signal(signal).await
    }

    /// Does what Ctrl-C does: interrupts the process group, or with a terminal its foreground process group.
    ///
    /// # Errors
    ///
    /// A [`SignalError`].
    pub async fn interrupt(&self) -> Result<(), SignalError> {
        self.handle.interrupt().await
    }

    /// Asks the process tree to end, and kills it after the request's stop grace. Returns at once, with whether the
    /// process was still running.
    ///
    /// # Errors
    ///
    /// A [`SignalError`].
    pub async fn terminate(&self) -> Result<bool, SignalError> {
        self.handle.terminate().await
    }

    /// Ends the process tree in the given way. Returns at once, with whether the process was still running.
    ///
    /// # Errors
    ///
    /// A [`SignalError`].
    pub async fn terminate_with(&self, how: Terminate) -> Result<bool, SignalError> {
        self.handle.terminate_with(how).await
    }

    /// Kills the process tree. Returns at once, with whether the process was still running.
    ///
    /// # Errors
    ///
    /// A [`SignalError`].
    pub async fn kill(&self) -> Result<bool, SignalError> {
        self.handle.kill().await
    }

    /// Lets the process outlive this handle and its environment.
    ///
    /// On this machine it then lives until it ends. In a sandbox on Linux it does not outlive this program even so, as little
    /// as those that it has started outlive it; and the loopback ports of a managed network lead nowhere once the runtime that
    /// it was spawned in has gone. At a remote place it belongs to the session there: it lives while the
    /// connection does, and after its end for as long as the server keeps the session (with `longarm serve`, the time of
    /// `--session-ttl`; 80 s by default); then it is killed. A server on standard streams ends with its connection, and
    /// takes the process with it.
    ///
    /// # Errors
    ///
    /// A [`SignalError`]; then the process still ends with its handle. `Ending` if its kill is on its way, or, for a remote
    /// process, any stop of the place that is being closed.
    pub async fn detach(&self) -> Result<(), SignalError> {
        self.handle.detach().await
    }

    /// The source of the events, taken back if its borrower is gone.
    fn source(&mut self) -> Result<&mut Source, WaitError> {
        let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Slot::Taken(back) = slot {
            match back.try_recv() {
                Ok(source) => *slot = Slot::Held(source),
                Err(oneshot::error::TryRecvError::Empty) => return Err(WaitError::EventsTaken),
                Err(oneshot::error::TryRecvError::Closed) => return Err(WaitError::Closed),
            }
        }
        match slot {
            Slot::Held(source) => Ok(source),
            Slot::Taken(_) => Err(WaitError::EventsTaken),
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.shared.fmt_as("Process", f)
    }
}

/// Events that one [`Process::try_wait`] looks at, and that [`Process::collect`] takes after its time.
const LOOK_AHEAD: usize = 1_024;

impl Drop for Process {
    fn drop(&mut self) {
        self.handle.shared.abandon();
    }
}
