//! Standard input for a backend of one's own: writes that are applied once and in order, whoever goes away meanwhile.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

use crate::error::WriteError;

/// A queue in front of the standard input of one process, for
/// [`ProcessControl::write`](crate::backend::ProcessControl::write) and
/// [`close_stdin`](crate::backend::ProcessControl::close_stdin).
///
/// A task of its own applies the writes, so that one whose future is dropped is still applied, once and whole. The queue is
/// no longer than the callers that have begun to write. Dropping it closes the input after everything written before.
pub struct InputQueue {
    queue: Mutex<Option<mpsc::UnboundedSender<Job>>>,
}

/// Bytes, and how to say what became of them.
type Job = (Bytes, oneshot::Sender<Result<(), WriteError>>);

impl InputQueue {
    /// A queue in front of `input`; without one, the input is closed. Must be called within a tokio runtime.
    pub fn new(input: Option<impl AsyncWrite + Send + Unpin + 'static>) -> Self {
        let Some(mut input) = input else { return Self { queue: Mutex::new(None) } };
        let (queue, mut jobs) = mpsc::unbounded_channel::<Job>();
        // It ends with the queue, or with the process, which then reads no more.
        drop(tokio::spawn(async move {
            while let Some((data, done)) = jobs.recv().await {
                let written = async {
                    input.write_all(&data).await?;
                    input.flush().await
                };
                let result = written.await.map_err(|_| WriteError::StdinClosed);
                // Whoever wrote may be gone.
                drop(done.send(result));
            }
        }));
        Self { queue: Mutex::new(Some(queue)) }
    }

    /// Writes all of `data` after everything written before.
    ///
    /// # Errors
    ///
    /// [`WriteError::StdinClosed`] if the input was closed, or nobody reads it any more.
    ///
    /// # Cancel safety
    ///
    /// Once it was polled, the bytes are written whether or not the future is dropped.
    pub async fn write(&self, data: Bytes) -> Result<(), WriteError> {
        let (done, is_done) = oneshot::channel();
        match &*self.lock() {
            Some(queue) => queue.send((data, done)).map_err(|_| WriteError::StdinClosed)?,
            None => return Err(WriteError::StdinClosed),
        }
        is_done.await.unwrap_or(Err(WriteError::StdinClosed))
    }

    /// Closes the input after everything written before.
    ///
    /// # Errors
    ///
    /// [`WriteError::StdinClosed`] if it was closed already.
    pub fn close(&self) -> Result<(), WriteError> {
        self.lock().take().map(drop).ok_or(WriteError::StdinClosed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<mpsc::UnboundedSender<Job>>> {
        // Nothing that can panic runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for InputQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputQueue").field("is_closed", &self.lock().is_none()).finish()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_write_whose_future_is_dropped_is_applied_once_and_in_order() {
        let (input, mut process) = tokio::io::duplex(1);
        let queue = InputQueue::new(Some(input));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        for text in ["one ", "two ", "three"] {
            let mut write = Box::pin(queue.write(Bytes::from(text)));
            assert!(write.as_mut().poll(&mut cx).is_pending(), "nobody reads yet");
        }
        queue.close().unwrap();
        assert!(matches!(queue.close(), Err(WriteError::StdinClosed)));
        assert!(matches!(queue.write(Bytes::from("late")).await, Err(WriteError::StdinClosed)));
        let mut read = String::new();
        process.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "one two three");
    }

    #[tokio::test]
    async fn a_write_to_nobody_fails() {
        let (input, process) = tokio::io::duplex(64);
        let queue = InputQueue::new(Some(input));
        queue.write(Bytes::from("read")).await.unwrap();
        drop(process);
        assert!(matches!(queue.write(Bytes::from("unread")).await, Err(WriteError::StdinClosed)));
        assert!(matches!(
            InputQueue::new(None::<tokio::io::Sink>).write(Bytes::new()).await,
            Err(WriteError::StdinClosed)
        ));
    }
}
