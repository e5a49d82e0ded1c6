//! The handle on a local process.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::input::Outcome;
use super::registry::Registry;
use super::shared::Shared;
use super::spawn::check_terminal_size;
use crate::backend::{ProcessControl, Terminate};
use crate::error::{OsError, SignalError, Unsupported, WriteError};
use crate::request::{Signal, TerminalSize};
use crate::sandbox::{Denial, Enforcement};

/// The means to act on a local process.
#[derive(Debug)]
pub(super) struct LocalControl {
    shared: Arc<Shared>,
    registry: Arc<Registry>,
}

impl LocalControl {
    pub(super) fn new(shared: Arc<Shared>, registry: Arc<Registry>) -> Self {
        Self { shared, registry }
    }

    async fn outcome(&self, outcome: Outcome) -> Result<(), WriteError> {
        match outcome {
            Outcome::Now(result) => result,
            Outcome::Later(answer) => {
                self.shared.wake_supervisor();
                // A supervisor that is gone has closed the input.
                answer.await.unwrap_or(Err(WriteError::StdinClosed))
            }
        }
    }
}

#[async_trait::async_trait]
impl ProcessControl for LocalControl {
    fn os_id(&self) -> Option<u32> {
        Some(self.shared.os_id)
    }

    fn enforcement(&self) -> Option<Enforcement> {
        Some(self.shared.enforcement.clone())
    }

    fn denial(&self) -> Option<Denial> {
        self.shared.denial()
    }

    async fn write(&self, data: Bytes) -> Result<(), WriteError> {
        let outcome = self.shared.control().input.write(data);
        self.shared.input_was_written();
        self.outcome(outcome).await
    }

    async fn close_stdin(&self) -> Result<(), WriteError> {
        if self.shared.has_terminal {
            return Err(Unsupported { feature: "closing the input", place: "a terminal".into() }.into());
        }
        let outcome = self.shared.control().input.close();
        self.outcome(outcome).await
    }

    async fn resize(&self, size: TerminalSize) -> Result<(), SignalError> {
        if !self.shared.has_terminal {
            return Err(SignalError::NoTerminal(self.shared.process_id.clone()));
        }
        check_terminal_size(size)?;
        match self.shared.control().input.terminal() {
            Some(terminal) => terminal.resize(size).map_err(|error| OsError::new("resize the terminal", error).into()),
            // The terminal is gone with the process.
            None => Ok(()),
        }
    }

    async fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        if signal.name().is_none() {
            return Err(Unsupported { feature: "a signal without a name", place: "this system".into() }.into());
        }
        let control = self.shared.control();
        let Some(child) = control.child.as_ref().filter(|_| control.is_running()) else {
            return Ok(());
        };
        let result = match signal {
            Signal::Interrupt => child.interrupt(control.input.terminal()),
            _ => child.signal_group(signal),
        };
        result.map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => Unsupported { feature: "this signal", place: "this process".into() }.into(),
            _ => OsError::new("signal the process group", error).into(),
        })
    }

    async fn terminate(&self, how: Terminate) -> Result<bool, SignalError> {
        self.shared.terminate(how).map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => {
                let feature = "ending what a closed process left behind";
                Unsupported { feature, place: "this system".into() }.into()
            }
            _ => OsError::new("signal the process group", error).into(),
        })
    }

    fn kill_now(&self) {
        self.shared.kill_running();
    }

    async fn detach(&self) -> Result<(), SignalError> {
        let mut control = self.shared.control();
        if !control.stop.withdraw() {
            return Err(SignalError::Ending);
        }
        control.detached = true;
        drop(control);
        // There is no deadline any more.
        self.shared.wake_supervisor();
        self.registry.note_change();
        Ok(())
    }
}

/// Nobody can ask any more for the end of what a closed process left behind.
impl Drop for LocalControl {
    fn drop(&mut self) {
        self.shared.control().handle_dropped = true;
        self.shared.wake_supervisor();
    }
}
