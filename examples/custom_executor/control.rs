//! Acting on a process: a queue in front of its standard input, and signals to its group.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use longarm::Signal;
use longarm::backend::{ProcessControl, Terminate};
use longarm::error::{OsError, SignalError, Unsupported, WriteError};
use longarm::request::TerminalSize;
use tokio::io::AsyncWriteExt;
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot, watch};

#[derive(Debug)]
pub(crate) struct Control {
    group: Option<u32>,
    exited: watch::Receiver<bool>,
    input: Mutex<Option<mpsc::UnboundedSender<Write>>>,
}

/// Bytes, and how to say whether they were taken.
type Write = (Bytes, oneshot::Sender<bool>);

impl Control {
    pub(crate) fn new(child: &mut Child, exited: watch::Receiver<bool>) -> Self {
        // A task of its own applies the writes, so that one whose future is dropped is still applied, once and whole.
        // The queue is no longer than the callers that wait for their answer.
        let (input, mut writes) = mpsc::unbounded_channel::<Write>();
        let input = child.stdin.take().map(|mut stdin| {
            tokio::spawn(async move {
                while let Some((data, done)) = writes.recv().await {
                    let _ = done.send(stdin.write_all(&data).await.is_ok());
                }
            });
            input
        });
        Self { group: child.id(), exited, input: Mutex::new(input) }
    }

    pub(crate) async fn has_exited(&self) {
        // An error means that the task that waits for the exit is gone with its runtime.
        drop(self.exited.clone().wait_for(|exited| *exited).await);
    }

    /// Sends a signal to the group, unless its leader has exited: then its number may soon be another group's.
    fn send(&self, signal: Signal) -> Result<bool, SignalError> {
        let Some(group) = self.group.filter(|_| !*self.exited.borrow()) else {
            return Ok(false);
        };
        let group =
            i32::try_from(group).map_err(|error| OsError::new("name the group", std::io::Error::other(error)))?;
        // SAFETY: the call takes two numbers and touches no memory of this process.
        match unsafe { libc::killpg(group, signal.number()) } {
            0 => Ok(true),
            _ => Err(OsError::new("signal the process group", std::io::Error::last_os_error()).into()),
        }
    }
}

#[async_trait::async_trait]
impl ProcessControl for Control {
    fn os_id(&self) -> Option<u32> {
        self.group
    }

    async fn write(&self, data: Bytes) -> Result<(), WriteError> {
        let (done, is_done) = oneshot::channel();
        match &*self.input.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(input) => input.send((data, done)).map_err(|_| WriteError::StdinClosed)?,
            None => return Err(WriteError::StdinClosed),
        }
        match is_done.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(WriteError::StdinClosed),
        }
    }

    async fn close_stdin(&self) -> Result<(), WriteError> {
        // The task closes the pipe when it has written all that is queued.
        self.input.lock().unwrap_or_else(PoisonError::into_inner).take().map(drop).ok_or(WriteError::StdinClosed)
    }

    async fn resize(&self, _size: TerminalSize) -> Result<(), SignalError> {
        Err(unsupported("a terminal").into())
    }

    async fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        if signal.name().is_none() {
            return Err(unsupported("a signal without a name").into());
        }
        self.send(signal).map(drop)
    }

    async fn terminate(&self, how: Terminate) -> Result<bool, SignalError> {
        if how.descendants || how.grace > Duration::ZERO {
            return Err(unsupported("a polite stop").into());
        }
        self.send(Signal::Kill)
    }

    fn kill_now(&self) {
        // It fails only if the group has just ended by itself.
        drop(self.send(Signal::Kill));
    }

    async fn detach(&self) -> Result<(), SignalError> {
        Err(unsupported("detaching").into())
    }
}

pub(crate) fn unsupported(feature: &'static str) -> Unsupported {
    Unsupported { feature, place: "this executor".into() }
}
