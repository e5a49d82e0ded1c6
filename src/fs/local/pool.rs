//! Where calls run that wait for the file system.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::fs::FsError;

/// At most so many calls at a time run on the runtime's blocking threads, which others need, too.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    slots: Arc<Semaphore>,
}

impl Pool {
    pub(super) fn new(calls: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(calls.clamp(1, Semaphore::MAX_PERMITS))) }
    }

    /// Runs a call. When the future is dropped after the call began, the call goes on, and counts until its end.
    pub(super) async fn run<T, F>(&self, call: F) -> Result<T, FsError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, FsError> + Send + 'static,
    {
        // It is never closed.
        let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(|_| FsError::Closed)?;
        let done = tokio::task::spawn_blocking(move || {
            let result = call();
            drop(slot);
            result
        });
        match done.await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends.
                Err(_) => Err(FsError::Closed),
            },
        }
    }
}
