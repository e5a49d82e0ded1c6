//! The command's output to our own, unchanged; or events as lines of JSON.

use std::fs::File;
use std::io::{self, Write as _};

use bytes::Bytes;
use longarm::request::ProcessId;
use longarm::{Event, OutputStream};
use tokio::sync::{mpsc, oneshot};

use super::{Failure, json};
use crate::cli::os;

/// Pieces held for a slow reader; beyond it the command waits.
const PIECES: usize = 16;

pub(super) enum OutputError {
    /// Whoever read our standard output has gone.
    BrokenPipe,
    Io(io::Error),
}

impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Io(error),
        }
    }
}

/// Writes in a thread of its own, in the order of the events: a stuck reader must not keep signals from being handled.
pub(super) struct Output {
    pieces: Option<mpsc::Sender<(Target, Bytes)>>,
    finished: oneshot::Receiver<Result<(), OutputError>>,
    json: bool,
}

#[derive(Clone, Copy)]
enum Target {
    Stdout,
    Stderr,
}

impl Output {
    pub(super) fn start(json: bool) -> Self {
        let (pieces, receiver) = mpsc::channel(PIECES);
        let (finish, finished) = oneshot::channel();
        let thread = std::thread::Builder::new().name("output".into());
        let spawned = thread.spawn(move || {
            // Nobody waits for the result once the program gives up.
            let _ = finish.send(write_pieces(receiver).map_err(OutputError::from));
        });
        // Without the thread both channels are closed, which shows as an error on first use.
        drop(spawned);
        Self { pieces: Some(pieces), finished, json }
    }

    pub(super) async fn started(&mut self, id: &ProcessId) -> Result<(), OutputError> {
        if !self.json {
            return Ok(());
        }
        self.send(Target::Stdout, json::started(id)).await
    }

    pub(super) async fn event(&mut self, event: Event) -> Result<(), OutputError> {
        if self.json {
            return match json::line(&event) {
                Some(line) => self.send(Target::Stdout, line).await,
                None => Ok(()),
            };
        }
        match event {
            Event::Output(output) => match output.stream {
                OutputStream::Stdout | OutputStream::Pty => self.send(Target::Stdout, output.bytes).await,
                OutputStream::Stderr => self.send(Target::Stderr, output.bytes).await,
            },
            _ => Ok(()),
        }
    }

    async fn send(&mut self, target: Target, bytes: Bytes) -> Result<(), OutputError> {
        if let Some(pieces) = &self.pieces
            && pieces.send((target, bytes)).await.is_ok()
        {
            return Ok(());
        }
        self.result().await
    }

    /// Waits until everything is written, unless the user gives up.
    pub(super) async fn finish(&mut self, signals: &mut os::Signals) -> Result<(), Failure> {
        self.pieces = None;
        tokio::select! {
            result = self.result() => Ok(result?),
            () = signals.stop() => Err(Failure::Interrupted),
        }
    }

    async fn result(&mut self) -> Result<(), OutputError> {
        match (&mut self.finished).await {
            Ok(result) => result,
            Err(_) => Err(OutputError::Io(io::Error::other("the thread that writes is gone"))),
        }
    }
}

fn write_pieces(mut pieces: mpsc::Receiver<(Target, Bytes)>) -> io::Result<()> {
    let mut stdout = os::raw_stdout()?;
    let mut stderr = os::raw_stderr().ok();
    while let Some((target, bytes)) = pieces.blocking_recv() {
        match target {
            Target::Stdout => write_all(&mut stdout, &bytes)?,
            // Without a reader of standard error there is nobody to tell, and the command has a right to end.
            Target::Stderr => {
                if let Some(file) = &mut stderr
                    && write_all(file, &bytes).is_err()
                {
                    stderr = None;
                }
            }
        }
    }
    Ok(())
}

fn write_all(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Somebody who shares our output made it non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(os::RETRY_TIME),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
