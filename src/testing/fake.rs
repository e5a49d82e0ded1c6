//! A place whose programs are async functions.
//!
//! ```
//! use std::sync::Arc;
//! use longarm::testing::fake::FakeBackend;
//! use longarm::{CollectLimits, Environment, ExecRequest, ExitStatus};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! let backend = FakeBackend::new(|request, child| async move {
//!     child.stdout(format!("{} ran", request.argv()[0].display())).await;
//!     ExitStatus::exited(3)
//! });
//! let environment = Environment::with_backend(Arc::new(backend));
//! let process = environment.spawn(ExecRequest::new(["make"])).await.unwrap();
//! let output = process.output(CollectLimits::default()).await.unwrap();
//! assert_eq!(output.stdout.to_text(), "make ran");
//! assert_eq!(output.status.code(), Some(3));
//! # });
//! ```

mod process;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use self::process::{ChildEnds, FakeControl};
use crate::backend::{EventSender, ExecBackend, Features, Spawned, Terminate, channel};
use crate::error::{CallError, SpawnError};
use crate::event::OutputStream;
use crate::info::{EnvironmentInfo, Shell};
use crate::request::{ExecRequest, ProcessId, Signal, TerminalSize};
use crate::status::ExitStatus;

/// A place whose programs are async functions, for tests of a host's own code. Clones share everything.
///
/// Each spawn starts the function as a task; `close`, and the drop of a handle, end it. What was asked of its processes is
/// recorded: see [`calls`](Self::calls). Of the request only its id, its standard input and its terminal take effect; all
/// else is for the function.
#[derive(Clone)]
pub struct FakeBackend {
    shared: Arc<Shared>,
}

struct Shared {
    program: Box<Program>,
    calls: Arc<Mutex<Vec<Call>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    refusals: VecDeque<SpawnError>,
    running: Vec<Arc<FakeControl>>,
    closed: bool,
}

type Program = dyn Fn(ExecRequest, FakeChild) -> Running + Send + Sync;
type Running = Pin<Box<dyn Future<Output = ExitStatus> + Send>>;

impl FakeBackend {
    /// A place where every request runs `program`. It gets the request, and the child's side of the process.
    pub fn new<F, R>(program: F) -> Self
    where
        F: Fn(ExecRequest, FakeChild) -> R + Send + Sync + 'static,
        R: Future<Output = ExitStatus> + Send + 'static,
    {
        let program: Box<Program> = Box::new(move |request, child| Box::pin(program(request, child)));
        let shared = Shared { program, calls: Arc::default(), state: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Makes the next spawn fail. Several are used up in their order.
    pub fn refuse_next(&self, error: SpawnError) {
        self.state().refusals.push_back(error);
    }

    /// All that was asked so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.shared.calls).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }
}

impl fmt::Debug for FakeBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeBackend").finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl ExecBackend for FakeBackend {
    async fn spawn(&self, request: ExecRequest) -> Result<Spawned, SpawnError> {
        request.validate()?;
        let process_id = request.requested_id().cloned().unwrap_or_else(ProcessId::random);
        lock(&self.shared.calls).push(Call { process_id: process_id.clone(), action: Action::Spawn });
        {
            let mut state = self.state();
            if state.closed {
                return Err(SpawnError::Closed);
            }
            if let Some(error) = state.refusals.pop_front() {
                return Err(error);
            }
        }
        let (output, events) = channel(QUEUED_EVENTS);
        let (start, ends) = FakeControl::prepare(process_id.clone(), &request, Arc::clone(&self.shared.calls));
        let child = FakeChild { output: output.clone(), ends };
        let control = Arc::new(start.run((self.shared.program)(request, child), output));
        let mut state = self.state();
        if state.closed {
            return Err(SpawnError::Closed);
        }
        state.running.retain(|control| !control.has_exited());
        state.running.push(Arc::clone(&control));
        Ok(Spawned { process_id, control, events, sandbox_type: Some("none".into()) })
    }

    async fn info(&self) -> Result<EnvironmentInfo, CallError> {
        Ok(EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() }))
    }

    fn features(&self) -> Features {
        Features::all()
    }

    async fn close(&self) {
        let running = {
            let mut state = self.state();
            state.closed = true;
            let (detached, running): (Vec<_>, Vec<_>) =
                state.running.drain(..).partition(|control| control.is_detached());
            state.running = detached;
            running
        };
        for control in running {
            control.close().await;
        }
    }
}

/// Something that was asked of a [`FakeBackend`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The process it was about.
    pub process_id: ProcessId,
    /// What was asked.
    pub action: Action,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// To start it.
    Spawn,
    /// To write to its standard input.
    Write(Bytes),
    /// To close its standard input.
    CloseStdin,
    /// To resize its terminal.
    Resize(TerminalSize),
    /// To send it a signal.
    Signal(Signal),
    /// To end it.
    Terminate(Terminate),
    /// To end it, since its handle was dropped.
    KillNow,
    /// To let it live on.
    Detach,
}

/// The child's side of a fake process.
#[derive(Debug)]
pub struct FakeChild {
    output: EventSender,
    ends: ChildEnds,
}

impl FakeChild {
    /// Writes to standard output; waits while too much is unread.
    pub async fn stdout(&self, bytes: impl Into<Bytes>) {
        self.output.output(OutputStream::Stdout, bytes).await;
    }

    /// Writes to standard error; waits while too much is unread.
    pub async fn stderr(&self, bytes: impl Into<Bytes>) {
        self.output.output(OutputStream::Stderr, bytes).await;
    }

    /// The events themselves, for gaps, failures, and output that outlives the process: the streams stay open until the last
    /// clone is dropped.
    pub fn events(&self) -> EventSender {
        self.output.clone()
    }

    /// What was written to standard input next; none when it is closed, or was never open.
    pub async fn read_stdin(&mut self) -> Option<Bytes> {
        self.ends.stdin.as_mut()?.recv().await
    }

    /// The signals that come from now on. A process that asks for them handles them; another one ends by them.
    pub fn signals(&self) -> Signals {
        let (sender, receiver) = mpsc::unbounded_channel();
        *lock(&self.ends.signals) = Some(sender);
        Signals(receiver)
    }

    /// The size of the terminal as it changes; none without one.
    pub fn terminal_size(&self) -> TerminalSizes {
        TerminalSizes(self.ends.size.clone())
    }
}

/// The signals that a process is sent.
#[derive(Debug)]
pub struct Signals(mpsc::UnboundedReceiver<Signal>);

impl Signals {
    /// The next one; none when nobody can send any more.
    ///
    /// # Cancel safety
    ///
    /// No signal is lost when the future is dropped.
    pub async fn recv(&mut self) -> Option<Signal> {
        self.0.recv().await
    }
}

/// The size of a process's terminal.
#[derive(Clone, Debug)]
pub struct TerminalSizes(watch::Receiver<Option<TerminalSize>>);

impl TerminalSizes {
    /// What it is now.
    pub fn current(&self) -> Option<TerminalSize> {
        *self.0.borrow()
    }

    /// Waits until it is another one than was waited for before; false when it can change no more.
    ///
    /// # Cancel safety
    ///
    /// No change is lost when the future is dropped.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const QUEUED_EVENTS: usize = 64;
