//! The host's side of a fake process.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Action, Call, Running, lock};
use crate::backend::{EventSender, ProcessControl, Terminate};
use crate::error::{SignalError, WriteError};
use crate::request::{ExecRequest, ProcessId, Signal, Stdin, TerminalSize};
use crate::status::ExitStatus;

/// The host's side.
pub(super) struct FakeControl {
    calls: Arc<Mutex<Vec<Call>>>,
    process_id: ProcessId,
    stdin: Mutex<Option<mpsc::Sender<Bytes>>>,
    signals: SignalSender,
    size: watch::Sender<Option<TerminalSize>>,
    stop: watch::Sender<Stop>,
    exited: watch::Receiver<bool>,
    detached: AtomicBool,
}

/// The child's side.
#[derive(Debug)]
pub(super) struct ChildEnds {
    pub(super) stdin: Option<mpsc::Receiver<Bytes>>,
    pub(super) signals: SignalSender,
    pub(super) size: watch::Receiver<Option<TerminalSize>>,
}

/// Present once the program handles signals.
type SignalSender = Arc<Mutex<Option<mpsc::UnboundedSender<Signal>>>>;

#[derive(Clone, Copy, Debug, Default)]
struct Stop {
    now: Option<Signal>,
    kill_at: Option<Instant>,
}

/// A process that does not run yet.
pub(super) struct Start {
    control: FakeControl,
    exited: watch::Sender<bool>,
}

impl Start {
    /// Runs the program until it returns or is ended, and reports its exit. It ends with the last handle.
    pub(super) fn run(self, program: Running, events: EventSender) -> FakeControl {
        let stop = self.control.stop.subscribe();
        let exited = self.exited;
        tokio::spawn(async move {
            let status = tokio::select! {
                biased;
                signal = stopped(stop) => ExitStatus::signaled(signal),
                status = program => status,
            };
            exited.send_replace(true);
            events.exited(status).await;
        });
        self.control
    }
}

impl FakeControl {
    pub(super) fn prepare(
        process_id: ProcessId,
        request: &ExecRequest,
        calls: Arc<Mutex<Vec<Call>>>,
    ) -> (Start, ChildEnds) {
        let piped = request.requested_stdin() == Stdin::Piped || request.requested_terminal().is_some();
        let (sender, receiver) = mpsc::channel(1);
        let (stdin, input) = if piped { (Some(sender), Some(receiver)) } else { (None, None) };
        let (exited, has_exited) = watch::channel(false);
        let (size, size_seen) = watch::channel(request.requested_terminal());
        let signals = SignalSender::default();
        let ends = ChildEnds { stdin: input, signals: Arc::clone(&signals), size: size_seen };
        let control = Self {
            calls,
            process_id,
            stdin: Mutex::new(stdin),
            signals,
            size,
            stop: watch::Sender::new(Stop::default()),
            exited: has_exited,
            detached: AtomicBool::new(false),
        };
        (Start { control, exited }, ends)
    }

    pub(super) fn has_exited(&self) -> bool {
        *self.exited.borrow()
    }

    pub(super) fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Acquire)
    }

    pub(super) async fn close(&self) {
        self.end_by(Signal::Kill);
        // An error means that the task is gone, and so is the program.
        let _ = self.exited.clone().wait_for(|exited| *exited).await;
    }

    fn record(&self, action: Action) {
        lock(&self.calls).push(Call { process_id: self.process_id.clone(), action });
    }

    /// Gives the signal to the program if it handles signals, or ends it.
    fn deliver(&self, signal: Signal) {
        let handled =
            signal != Signal::Kill && lock(&self.signals).as_ref().is_some_and(|signals| signals.send(signal).is_ok());
        if !handled && !matches!(signal, Signal::Continue | Signal::WindowChange) {
            self.end_by(signal);
        }
    }

    fn end_by(&self, signal: Signal) {
        self.stop.send_modify(|stop| {
            stop.now.get_or_insert(signal);
        });
    }
}

impl fmt::Debug for FakeControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeControl").field("process_id", &self.process_id).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl ProcessControl for FakeControl {
    async fn write(&self, data: Bytes) -> Result<(), WriteError> {
        self.record(Action::Write(data.clone()));
        let stdin = lock(&self.stdin).clone().ok_or(WriteError::StdinClosed)?;
        stdin.send(data).await.map_err(|_| WriteError::StdinClosed)
    }

    async fn close_stdin(&self) -> Result<(), WriteError> {
        self.record(Action::CloseStdin);
        lock(&self.stdin).take().map(drop).ok_or(WriteError::StdinClosed)
    }

    async fn resize(&self, size: TerminalSize) -> Result<(), SignalError> {
        self.record(Action::Resize(size));
        if self.size.borrow().is_none() {
            return Err(SignalError::NoTerminal(self.process_id.clone()));
        }
        self.size.send_replace(Some(size));
        Ok(())
    }

    async fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        self.record(Action::Signal(signal));
        self.deliver(signal);
        Ok(())
    }

    async fn terminate(&self, how: Terminate) -> Result<bool, SignalError> {
        self.record(Action::Terminate(how));
        let running = !self.has_exited();
        if how.grace.is_zero() {
            self.end_by(Signal::Kill);
        } else {
            self.stop.send_modify(|stop| stop.kill_at = Instant::now().checked_add(how.grace));
            self.deliver(Signal::Terminate);
        }
        Ok(running)
    }

    fn kill_now(&self) {
        self.record(Action::KillNow);
        self.end_by(Signal::Kill);
    }

    async fn detach(&self) -> Result<(), SignalError> {
        self.record(Action::Detach);
        self.detached.store(true, Ordering::Release);
        Ok(())
    }
}

/// Waits until the process is to end, and says by which signal.
async fn stopped(mut stop: watch::Receiver<Stop>) -> Signal {
    loop {
        let Stop { now, kill_at } = *stop.borrow_and_update();
        if let Some(signal) = now {
            return signal;
        }
        let grace = async {
            match kill_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = grace => return Signal::Kill,
            changed = stop.changed() => if changed.is_err() {
                return Signal::Kill;
            },
        }
    }
}
