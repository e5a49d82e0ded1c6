//! Our ends of a child's streams, never blocking.

use std::io;
use std::os::windows::io::{AsRawHandle, IntoRawHandle, OwnedHandle};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::windows::named_pipe::NamedPipeServer;
use windows::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_IO_PENDING, ERROR_OPERATION_ABORTED, ERROR_PIPE_NOT_CONNECTED, HANDLE, WAIT_OBJECT_0,
};
use windows::Win32::Storage::FileSystem::WriteFile;
use windows::Win32::System::IO::{CancelIoEx, GetOverlappedResult, OVERLAPPED};
use windows::Win32::System::Pipes::PeekNamedPipe;
use windows::Win32::System::Threading::{INFINITE, WaitForSingleObject};

use super::job::Job;
use super::system::{check, raw};
use super::terminal::Console;
use super::wait::{Wait, event};
use crate::request::TerminalSize;

/// Our end of a pipe: first as a handle, then, for good, as a source of the runtime that watches it.
#[derive(Debug)]
enum End {
    Unwatched(OwnedHandle),
    Watched(NamedPipeServer),
    /// The runtime refused it, and so it was closed.
    Lost,
}

impl End {
    /// Must be called within a runtime.
    fn watch(&mut self) -> io::Result<()> {
        match std::mem::replace(self, Self::Lost) {
            Self::Unwatched(handle) => {
                // SAFETY: the handle is our end of a named pipe with overlapped I/O, connected, of no completion port
                // yet; its ownership is passed on.
                *self = Self::Watched(unsafe { NamedPipeServer::from_raw_handle(handle.into_raw_handle()) }?);
                Ok(())
            }
            Self::Watched(pipe) => {
                *self = Self::Watched(pipe);
                Ok(())
            }
            Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn watched(&self) -> Option<&NamedPipeServer> {
        match self {
            Self::Watched(pipe) => Some(pipe),
            Self::Unwatched(_) | Self::Lost => None,
        }
    }

    /// The handle, for a call during which `self` is borrowed.
    fn handle(&self) -> io::Result<HANDLE> {
        match self {
            Self::Unwatched(handle) => Ok(raw(handle)),
            Self::Watched(pipe) => Ok(HANDLE(pipe.as_raw_handle())),
            Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// The reading end of an output pipe, or of a terminal's output.
#[derive(Debug)]
pub(in crate::backend::local) struct OutputReader {
    end: End,
    terminal: Option<TerminalEnd>,
}

/// What ends the output of a terminal.
#[derive(Debug)]
struct TerminalEnd {
    console: Arc<Console>,
    job: Arc<Job>,
    /// Looks whether the last process has ended.
    look: Option<Wait>,
}

impl OutputReader {
    pub(super) fn pipe(end: OwnedHandle) -> Self {
        Self { end: End::Unwatched(end), terminal: None }
    }

    pub(super) fn terminal(end: OwnedHandle, console: Arc<Console>, job: Arc<Job>) -> Self {
        Self { end: End::Unwatched(end), terminal: Some(TerminalEnd { console, job, look: None }) }
    }

    /// Lets the stream come to its end once the process has exited and nothing more is there.
    ///
    /// A console goes on until it is closed; that happens when no process of the job is left that could write to it.
    pub(in crate::backend::local) fn let_end(&mut self) {
        let Some(terminal) = &mut self.terminal else { return };
        if terminal.look.is_some() {
            return;
        }
        let (console, job) = (Arc::clone(&terminal.console), Arc::clone(&terminal.job));
        let close_if_last = move || {
            // A job that cannot be asked would keep the stream open for ever.
            if !job.has_members().unwrap_or(false) {
                console.close();
            }
        };
        close_if_last();
        match Wait::every(LOOK_MILLISECONDS, close_if_last) {
            Ok(wait) => terminal.look = Some(wait),
            // Nobody would look again.
            Err(_) => terminal.console.close(),
        }
    }

    /// Has the runtime watch the stream, so that [`OutputReader::poll_read`] wakes. Must be called within a runtime.
    pub(in crate::backend::local) fn watch(&mut self) -> io::Result<()> {
        self.end.watch()
    }

    /// Without effect: a read is under way all the time, and its outcome is seen at once.
    pub(in crate::backend::local) fn look_again(&mut self) {}

    /// Without effect: a stream that was watched once cannot be read without it. Only one that can be enlarged is paced.
    pub(in crate::backend::local) fn pace(&mut self, _period: Duration) -> io::Result<()> {
        Ok(())
    }

    /// Whether the stream can hold more than it does by default: it cannot.
    pub(in crate::backend::local) fn can_be_enlarged(&self) -> bool {
        false
    }

    /// Without effect: how much a pipe holds is fixed.
    pub(in crate::backend::local) fn enlarge(&self) -> usize {
        0
    }

    /// Appends what there is to `buffer`, up to its capacity; zero bytes are the end of the stream.
    ///
    /// Without a watch it never wakes.
    pub(in crate::backend::local) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let Some(pipe) = self.end.watched() else { return Poll::Pending };
        loop {
            ready!(pipe.poll_read_ready(cx))?;
            match pipe.try_read_buf(buffer) {
                // The writer wrote nothing, which is possible here and is not the end.
                Ok(0) if !is_broken(pipe) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if is_end(&error) => return Poll::Ready(Ok(0)),
                result => return Poll::Ready(result),
            }
        }
    }
}

/// Whether the last writer is gone and nothing is left to read.
fn is_broken(pipe: &NamedPipeServer) -> bool {
    // SAFETY: the handle is open, as the pipe is borrowed; no memory is passed.
    let peeked = unsafe { PeekNamedPipe(HANDLE(pipe.as_raw_handle()), None, 0, None, None, None) };
    peeked.is_err()
}

/// The other end of a pipe is closed; the second code is said to one that was never used.
fn is_end(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(i32::cast_unsigned);
    error.kind() == io::ErrorKind::BrokenPipe
        || code == Some(ERROR_BROKEN_PIPE.0)
        || code == Some(ERROR_PIPE_NOT_CONNECTED.0)
}

/// The writing end of the input pipe, or of a terminal's input.
#[derive(Debug)]
pub(in crate::backend::local) struct InputWriter {
    end: End,
    console: Option<Arc<Console>>,
}

impl InputWriter {
    pub(super) fn pipe(end: OwnedHandle) -> Self {
        Self { end: End::Unwatched(end), console: None }
    }

    pub(super) fn terminal(end: OwnedHandle, console: Arc<Console>) -> Self {
        Self { end: End::Unwatched(end), console: Some(console) }
    }

    /// Whether it is a terminal.
    pub(in crate::backend::local) fn is_terminal(&self) -> bool {
        self.console.is_some()
    }

    /// Writes what fits now; none if nothing does, or if the stream is not watched yet. A reader that is gone is
    /// [`io::ErrorKind::BrokenPipe`].
    ///
    /// What was taken is written in the background, and before the stream is closed.
    pub(in crate::backend::local) fn write_now(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let Some(pipe) = self.end.watched() else { return Ok(None) };
        // One write is under way at a time and has its own copy of the bytes: this bounds it.
        let piece = &bytes[..bytes.len().min(MAX_WRITE_BYTES)];
        match pipe.try_write(piece) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if is_end(&error) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(error) => Err(error),
        }
    }

    /// The same, waking when more fits. Must be called within a runtime.
    pub(in crate::backend::local) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.end.watch()?;
        loop {
            let Some(pipe) = self.end.watched() else { return Poll::Pending };
            ready!(pipe.poll_write_ready(cx))?;
            if let Some(count) = self.write_now(bytes)? {
                return Poll::Ready(Ok(count));
            }
        }
    }

    /// Sets the size of the terminal.
    pub(in crate::backend::local) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        self.console.as_ref().map_or(Ok(()), |console| console.resize(size))
    }

    /// Writes one byte behind what the system has already, and ahead of what waits here. Does not wait: where the system
    /// does not take it at once, it is [`io::ErrorKind::WouldBlock`].
    pub(super) fn write_urgent(&self, byte: u8) -> io::Result<()> {
        let handle = self.end.handle()?;
        // A handle's lowest bits are free. Set, the first of them keeps the completion from the port of the runtime,
        // which knows nothing of this write.
        let event = event()?;
        let tagged = HANDLE(raw(&event).0.map_addr(|address| address | 1));
        let write =
            Box::new(Urgent { overlapped: OVERLAPPED { hEvent: tagged, ..OVERLAPPED::default() }, bytes: [byte] });
        let write = Box::into_raw(write);
        // SAFETY: the box was just leaked, and lives until it is taken back below.
        let (overlapped, bytes) = unsafe { (&raw mut (*write).overlapped, &(*write).bytes) };
        // SAFETY: the handle is open, as `self` is borrowed. The bytes and the structure are on the heap, where they stay
        // until the write has ended.
        let result = match check(unsafe { WriteFile(handle, Some(bytes), None, Some(overlapped)) }) {
            Err(error) if error.raw_os_error() == Some(ERROR_IO_PENDING.0.cast_signed()) => {
                // SAFETY: the handle is open, and the structure that of a write which was started and may be under way.
                // If it has ended meanwhile the call fails, and its outcome is asked for below.
                let _ = unsafe { CancelIoEx(handle, Some(overlapped)) };
                // SAFETY: the event is open. It is set when the write has ended, which after the cancellation it does.
                if unsafe { WaitForSingleObject(raw(&event), INFINITE) } != WAIT_OBJECT_0 {
                    // The system may still use the box, which so stays where it is.
                    return Err(io::Error::last_os_error());
                }
                let mut written = 0;
                // SAFETY: the handle is open; the write has ended, so that nobody else uses the structure.
                check(unsafe { GetOverlappedResult(handle, overlapped, &raw mut written, false) })
            }
            result => result,
        };
        // SAFETY: the write has ended or was never started, so that nobody else uses the box.
        drop(unsafe { Box::from_raw(write) });
        match result {
            Err(error) if error.raw_os_error() == Some(ERROR_OPERATION_ABORTED.0.cast_signed()) => {
                Err(io::Error::new(io::ErrorKind::WouldBlock, "the terminal takes no input"))
            }
            Err(error) if is_end(&error) => Err(io::ErrorKind::BrokenPipe.into()),
            result => result,
        }
    }
}

/// A write of one byte and what the system keeps of it.
struct Urgent {
    overlapped: OVERLAPPED,
    bytes: [u8; 1],
}

/// The largest piece that is given to the system at a time.
const MAX_WRITE_BYTES: usize = 64 << 10;
/// How often to look whether the last process on a terminal has ended, after the first one has.
const LOOK_MILLISECONDS: u32 = 25;
