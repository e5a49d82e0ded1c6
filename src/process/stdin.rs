//! Standard input as a writer.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::AsyncWrite;

use super::ProcessHandle;
use crate::error::WriteError;

/// Writes to a process's standard input.
///
/// One write of up to 64 KiB is under way at a time; an error of it shows at the next call. `flush` waits for it, and
/// `shutdown` closes standard input. Dropping the writer does not close standard input, and does not take back a write.
pub struct ProcessStdin {
    handle: ProcessHandle,
    state: State,
}

enum State {
    Idle,
    Writing(Call),
    Closing(Call),
    Closed,
}

type Call = Pin<Box<dyn Future<Output = Result<(), WriteError>> + Send>>;

impl ProcessStdin {
    pub(super) fn new(handle: ProcessHandle) -> Self {
        Self { handle, state: State::Idle }
    }

    /// Drives the call that is under way, if there is one.
    fn poll_call(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WriteError>> {
        let (result, next) = match &mut self.state {
            State::Idle | State::Closed => return Poll::Ready(Ok(())),
            State::Writing(call) => (ready!(call.as_mut().poll(cx)), State::Idle),
            State::Closing(call) => (ready!(call.as_mut().poll(cx)), State::Closed),
        };
        self.state = next;
        Poll::Ready(result)
    }
}

impl fmt::Debug for ProcessStdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.shared.fmt_as("ProcessStdin", f)
    }
}

impl AsyncWrite for ProcessStdin {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_call(cx))?;
        if matches!(self.state, State::Closed) {
            return Poll::Ready(Err(WriteError::StdinClosed.into()));
        }
        let data = Bytes::copy_from_slice(buf.get(..MAX_WRITE_BYTES).unwrap_or(buf));
        let written = data.len();
        let handle = self.handle.clone();
        self.state = State::Writing(Box::pin(async move { handle.write(data).await }));
        // A write takes its place among the others when it is polled for the first time.
        match self.poll_call(cx) {
            Poll::Ready(result) => Poll::Ready(result.map(|()| written).map_err(Into::into)),
            Poll::Pending => Poll::Ready(Ok(written)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_call(cx).map_err(Into::into)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_call(cx))?;
        if matches!(self.state, State::Closed) {
            return Poll::Ready(Ok(()));
        }
        let handle = self.handle.clone();
        self.state = State::Closing(Box::pin(async move {
            match handle.close_stdin().await {
                // Someone else has closed it, which is what was asked for.
                Err(WriteError::StdinClosed) => Ok(()),
                other => other,
            }
        }));
        self.poll_call(cx).map_err(Into::into)
    }
}

const MAX_WRITE_BYTES: usize = 64 << 10;
