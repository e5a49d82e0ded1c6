//! Writes to standard input: in order, each exactly once.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::sync::oneshot;

use super::os::InputWriter;
use crate::error::{OsError, WriteError};

/// The input of one process, and the writes that it has not taken yet.
///
/// What can be written at once is written by the caller; the rest waits here and is written by the supervisor. A write
/// is here from its first poll on, whatever becomes of its future, so the queue is as long as the host makes it.
#[derive(Debug)]
pub(super) struct Input {
    /// None once it is closed, or if it never was open.
    writer: Option<InputWriter>,
    queue: VecDeque<Queued>,
    /// The host closed it: what is queued is still written.
    closing: bool,
}

#[derive(Debug)]
struct Queued {
    what: What,
    done: oneshot::Sender<Result<(), WriteError>>,
}

#[derive(Debug)]
enum What {
    Write(Bytes),
    Close,
}

/// The answer to a write.
pub(super) enum Outcome {
    /// It is known already.
    Now(Result<(), WriteError>),
    /// It comes when the supervisor has got that far.
    Later(oneshot::Receiver<Result<(), WriteError>>),
}

impl Input {
    pub(super) fn new(writer: Option<InputWriter>) -> Self {
        Self { writer, queue: VecDeque::new(), closing: false }
    }

    /// The terminal that the process runs on, if it has one and it is still open.
    pub(super) fn terminal(&self) -> Option<&InputWriter> {
        self.writer.as_ref().filter(|writer| writer.is_terminal())
    }

    /// Whether something is queued, so that [`Input::poll_flush`] has work.
    pub(super) fn is_pending(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes a write: what fits at once of it, up to a bound, the rest into the queue.
    pub(super) fn write(&mut self, mut bytes: Bytes) -> Outcome {
        let Some(writer) = self.writer.as_ref().filter(|_| !self.closing) else {
            return Outcome::Now(Err(WriteError::StdinClosed));
        };
        if self.queue.is_empty() {
            let mut budget = WRITTEN_AT_A_TIME;
            while bytes.has_remaining() && budget > 0 {
                match writer.write_now(&bytes[..bytes.len().min(budget)]) {
                    Ok(Some(count)) => {
                        bytes.advance(count);
                        budget -= count;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        let error = self.fail(&Arc::new(error));
                        return Outcome::Now(Err(error));
                    }
                }
            }
            if bytes.is_empty() {
                return Outcome::Now(Ok(()));
            }
        }
        self.push(What::Write(bytes))
    }

    /// Closes it after all that is queued.
    pub(super) fn close(&mut self) -> Outcome {
        if self.writer.is_none() || self.closing {
            return Outcome::Now(Err(WriteError::StdinClosed));
        }
        self.closing = true;
        if self.queue.is_empty() {
            self.writer = None;
            return Outcome::Now(Ok(()));
        }
        self.push(What::Close)
    }

    fn push(&mut self, what: What) -> Outcome {
        let (done, answer) = oneshot::channel();
        self.queue.push_back(Queued { what, done });
        Outcome::Later(answer)
    }

    /// Writes what fits of the queue, up to a bound, and wakes when more does.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) {
        let mut budget = WRITTEN_AT_A_TIME;
        while let Some(front) = self.queue.front_mut() {
            if let (What::Write(bytes), Some(writer)) = (&mut front.what, &mut self.writer)
                && bytes.has_remaining()
            {
                if budget == 0 {
                    cx.waker().wake_by_ref();
                    return;
                }
                match writer.poll_write(cx, &bytes[..bytes.len().min(budget)]) {
                    Poll::Pending => return,
                    Poll::Ready(Ok(count)) => {
                        bytes.advance(count);
                        budget -= count;
                    }
                    Poll::Ready(Err(error)) => {
                        self.fail(&Arc::new(error));
                        return;
                    }
                }
                continue;
            }
            if let Some(Queued { what, done }) = self.queue.pop_front() {
                if matches!(what, What::Close) {
                    self.writer = None;
                }
                // The caller may have gone.
                drop(done.send(Ok(())));
            }
        }
    }

    /// Ends it: everything queued fails.
    pub(super) fn shut(&mut self) {
        self.writer = None;
        for queued in self.queue.drain(..) {
            // The caller may have gone.
            drop(queued.done.send(Err(WriteError::StdinClosed)));
        }
    }

    /// A write failed: nobody reads any more, or the system refused. Either ends the input.
    fn fail(&mut self, error: &Arc<io::Error>) -> WriteError {
        let of = |error: &Arc<io::Error>| match error.kind() {
            io::ErrorKind::BrokenPipe => WriteError::StdinClosed,
            _ => WriteError::Os(OsError { op: "write to standard input", source: Arc::clone(error) }),
        };
        self.writer = None;
        for queued in self.queue.drain(..) {
            // The caller may have gone.
            drop(queued.done.send(Err(of(error))));
        }
        of(error)
    }
}

/// Bytes that are written before others have their turn: a reader may be so fast that there is always room, and who
/// wants to signal the process waits meanwhile.
const WRITTEN_AT_A_TIME: usize = 256 << 10;
