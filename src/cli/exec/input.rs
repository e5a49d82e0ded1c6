//! Standard input to the command.

use std::io::{self, Read as _};

use bytes::Bytes;
use longarm::error::WriteError;
use longarm::process::ProcessHandle;
use tokio::sync::mpsc;

use crate::cli::{complain, explain, os};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks read ahead.
const CHUNKS_AHEAD: usize = 4;
/// What ends the input of a terminal.
const END_OF_TRANSMISSION: &[u8] = b"\x04";

/// Forwards standard input and its end, until either side has closed. Its error is a reason for the user.
pub(super) async fn forward(handle: ProcessHandle, tty: bool) -> Result<(), String> {
    let mut chunks = start_reading().map_err(|error| format!("cannot read standard input: {error}"))?;
    let mut at_line_start = true;
    while let Some(chunk) = chunks.recv().await {
        let chunk = chunk.map_err(|error| format!("cannot read standard input: {error}"))?;
        at_line_start = chunk.last() == Some(&b'\n');
        if !write(&handle, chunk).await? {
            return Ok(());
        }
    }
    if tty {
        // In the middle of a line the first one only hands the line over.
        for _ in 0..if at_line_start { 1 } else { 2 } {
            if !write(&handle, Bytes::from_static(END_OF_TRANSMISSION)).await? {
                return Ok(());
            }
        }
        return Ok(());
    }
    match handle.close_stdin().await {
        // Only at a terminal: with other inputs such a place is refused before the start. The command has had all that was
        // typed, and the user can still end it.
        Err(error @ WriteError::Unsupported(_)) => {
            complain(&explain(&error));
            Ok(())
        }
        Err(error) if !is_over(&error) => Err(explain(&error)),
        _ => Ok(()),
    }
}

/// Returns false when the command takes no more input, which is its right.
async fn write(handle: &ProcessHandle, chunk: Bytes) -> Result<bool, String> {
    match handle.write(chunk).await {
        Ok(()) => Ok(true),
        Err(error) if is_over(&error) => Ok(false),
        Err(error) => Err(explain(&error)),
    }
}

fn is_over(error: &WriteError) -> bool {
    matches!(error, WriteError::StdinClosed | WriteError::UnknownProcess(_))
}

/// Reads in a thread of its own: a read of a terminal or a file can neither be polled everywhere nor be given up.
fn start_reading() -> io::Result<mpsc::Receiver<io::Result<Bytes>>> {
    let mut stdin = os::raw_stdin()?;
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    std::thread::Builder::new().name("stdin".into()).spawn(move || {
        loop {
            let mut buffer = vec![0; CHUNK_BYTES];
            let chunk = match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    buffer.truncate(count);
                    Ok(Bytes::from(buffer))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Somebody who shares our input made it non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(os::RETRY_TIME);
                    continue;
                }
                Err(error) => Err(error),
            };
            let failed = chunk.is_err();
            if sender.blocking_send(chunk).is_err() || failed {
                return;
            }
        }
    })?;
    Ok(receiver)
}
