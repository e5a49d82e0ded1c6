//! Places that tests control.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_core::Stream;
use longarm::backend::{ExecBackend, Features, ProcessControl, Spawned, Terminate};
use longarm::error::{CallError, SignalError, SpawnError, WriteError};
use longarm::event::{Closed, Event, Exited, Output, OutputStream};
use longarm::http::HttpClient;
use longarm::info::{EnvironmentInfo, Shell};
use longarm::request::{ExecRequest, ProcessId, Signal, TerminalSize};
use longarm::{ExitStatus, Local, LocalConfig};
use tokio::sync::{Notify, watch};

/// Runs processes on this machine, but for the program `held`, whose start does not end until it is released.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) local: Local,
    pub(crate) release: Notify,
    pub(crate) holding: watch::Sender<usize>,
}

impl Holding {
    pub(crate) fn new() -> Arc<Self> {
        let local = Local::new(LocalConfig::from_host());
        Arc::new(Self { local, release: Notify::new(), holding: watch::Sender::new(0) })
    }
}

#[async_trait::async_trait]
impl ExecBackend for Holding {
    async fn spawn(&self, request: ExecRequest) -> Result<Spawned, SpawnError> {
        if request.argv()[0] == "held" {
            let _held = Held::new(&self.holding);
            self.release.notified().await;
            return Err(SpawnError::ProgramNotFound { program: "held".into(), searched: None });
        }
        self.local.spawn(request).await
    }

    async fn info(&self) -> Result<EnvironmentInfo, CallError> {
        self.local.info().await
    }

    fn features(&self) -> Features {
        self.local.features()
    }

    fn http(&self) -> Option<Arc<dyn HttpClient>> {
        self.local.http()
    }

    async fn close(&self) {
        self.local.close().await;
    }
}

/// Counts a start that is held.
struct Held<'a>(&'a watch::Sender<usize>);

impl<'a> Held<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Processes that do nothing but write for ever (`flood`) or wait (anything else), until they are ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripted {
    pub(crate) seen: Arc<Seen>,
}

/// What became of the processes of a [`Scripted`] place.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Bytes that were pulled of floods.
    pub(crate) pulled: AtomicU64,
    pub(crate) running: AtomicUsize,
    pub(crate) killed: AtomicUsize,
    /// Bytes that were written to standard inputs.
    pub(crate) written: AtomicU64,
}

#[async_trait::async_trait]
impl ExecBackend for Scripted {
    async fn spawn(&self, request: ExecRequest) -> Result<Spawned, SpawnError> {
        request.validate()?;
        self.seen.running.fetch_add(1, Ordering::SeqCst);
        let control = Arc::new(ScriptedControl {
            seen: Arc::clone(&self.seen),
            ended: AtomicBool::new(false),
            waker: WakerCell::default(),
        });
        let flood = request.argv()[0] == "flood";
        let events = ScriptedEvents { control: Arc::clone(&control), flood, next_seq: 1, exited: false };
        Ok(Spawned { process_id: ProcessId::random(), control, events: Box::pin(events), sandbox_type: None })
    }

    async fn info(&self) -> Result<EnvironmentInfo, CallError> {
        Ok(EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() }))
    }

    fn features(&self) -> Features {
        Features::all()
    }

    async fn close(&self) {}
}

#[derive(Debug)]
struct ScriptedControl {
    seen: Arc<Seen>,
    ended: AtomicBool,
    waker: WakerCell,
}

#[derive(Debug, Default)]
struct WakerCell(std::sync::Mutex<Option<Waker>>);

impl ScriptedControl {
    fn end(&self) -> bool {
        let running = !self.ended.swap(true, Ordering::SeqCst);
        if running {
            self.seen.running.fetch_sub(1, Ordering::SeqCst);
            if let Some(waker) = self.waker.0.lock().unwrap().take() {
                waker.wake();
            }
        }
        running
    }
}

#[async_trait::async_trait]
impl ProcessControl for ScriptedControl {
    async fn write(&self, data: Bytes) -> Result<(), WriteError> {
        self.seen.written.fetch_add(data.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    async fn close_stdin(&self) -> Result<(), WriteError> {
        Ok(())
    }

    async fn resize(&self, _: TerminalSize) -> Result<(), SignalError> {
        Ok(())
    }

    async fn signal(&self, _: Signal) -> Result<(), SignalError> {
        Ok(())
    }

    async fn terminate(&self, _: Terminate) -> Result<bool, SignalError> {
        Ok(self.end())
    }

    fn kill_now(&self) {
        if self.end() {
            self.seen.killed.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn detach(&self) -> Result<(), SignalError> {
        Ok(())
    }
}

struct ScriptedEvents {
    control: Arc<ScriptedControl>,
    flood: bool,
    next_seq: u64,
    exited: bool,
}

impl Stream for ScriptedEvents {
    type Item = Result<Event, longarm::error::WaitError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        *self.control.waker.0.lock().unwrap() = Some(cx.waker().clone());
        let seq = self.next_seq;
        self.next_seq += 1;
        if self.control.ended.load(Ordering::SeqCst) {
            if std::mem::replace(&mut self.exited, true) {
                return Poll::Ready(Some(Ok(Event::Closed(Closed { seq, totals: None, cut: false }))));
            }
            let status = ExitStatus::signaled(Signal::Kill);
            return Poll::Ready(Some(Ok(Event::Exited(Exited { seq, status, sandbox_denied: false }))));
        }
        if self.flood {
            self.control.seen.pulled.fetch_add(CHUNK.len() as u64, Ordering::SeqCst);
            let output = Output { seq, stream: OutputStream::Stdout, bytes: Bytes::from_static(CHUNK) };
            return Poll::Ready(Some(Ok(Event::Output(output))));
        }
        self.next_seq = seq;
        Poll::Pending
    }
}

const CHUNK: &[u8] = &[b'x'; 64 << 10];
