//! Where calls run that wait for the file system.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blocking::{self, NotRun};
use crate::fs::FsError;

/// More than any runtime has threads.
const MOST_CALLS: u32 = 1 << 16;

/// At most so many calls at a time run on the runtime's blocking threads, which others need, too.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    slots: Arc<Semaphore>,
    size: u32,
}

impl Pool {
    pub(super) fn new(calls: usize) -> Self {
        let size = u32::try_from(calls).unwrap_or(u32::MAX).clamp(1, MOST_CALLS);
        Self { slots: Arc::new(Semaphore::new(size as usize)), size }
    }

    /// Runs a call. When the future is dropped after the call began, the call goes on, and counts until its end.
    pub(super) async fn run<T, F>(&self, call: F) -> Result<T, FsError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, FsError> + Send + 'static,
    {
        let slot = self.slot().await?;
        let done = blocking::run(move || {
            let result = call();
            drop(slot);
            result
        });
        match done.await {
            Ok(result) => result,
            // One call is not to end whoever made others.
            Err(why @ (NotRun::NoThread | NotRun::Panicked)) => {
                Err(FsError::Os { op: "use", path: "".into(), source: Arc::new(why.into()) })
            }
            Err(NotRun::RuntimeEnds) => Err(FsError::Closed),
        }
    }

    /// Waits for the turn of one more call, which counts until what this returns is dropped.
    pub(super) async fn slot(&self) -> Result<OwnedSemaphorePermit, FsError> {
        // It is never closed.
        Arc::clone(&self.slots).acquire_owned().await.map_err(|_| FsError::Closed)
    }

    /// Runs a call that takes long, such as one on a tree. When the future is dropped, it is told.
    pub(super) async fn run_until_dropped<T, F>(&self, call: F) -> Result<T, FsError>
    where
        T: Send + 'static,
        F: FnOnce(&Wanted) -> Result<T, FsError> + Send + 'static,
    {
        let (wanted, _unwanted_when_dropped) = wanted();
        self.run(move || {
            wanted.check()?;
            call(&wanted)
        })
        .await
    }

    /// Waits until no call runs.
    pub(super) async fn idle(&self) {
        // It is never closed.
        drop(self.slots.acquire_many(self.size).await);
    }
}

/// That somebody waits for a call, until the second is dropped.
pub(super) fn wanted() -> (Wanted, UnwantedWhenDropped) {
    let wanted = Wanted(Arc::new(AtomicBool::new(true)));
    (wanted.clone(), UnwantedWhenDropped(wanted))
}

/// Whether somebody waits for a call.
#[derive(Clone, Debug)]
pub(super) struct Wanted(Arc<AtomicBool>);

impl Wanted {
    /// An error if nobody does any more; who made the call does not see it.
    pub(super) fn check(&self) -> Result<(), FsError> {
        if self.0.load(Ordering::Relaxed) { Ok(()) } else { Err(FsError::Closed) }
    }
}

pub(super) struct UnwantedWhenDropped(Wanted);

impl Drop for UnwantedWhenDropped {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn a_long_call_hears_that_nobody_waits_any_more() {
        let pool = Pool::new(1);
        let (began, begun) = mpsc::channel();
        let (tell, told) = tokio::sync::oneshot::channel();
        let mut call = Box::pin(pool.run_until_dropped(move |wanted| {
            began.send(()).unwrap();
            while wanted.check().is_ok() {
                std::thread::yield_now();
            }
            tell.send(()).unwrap();
            Ok(())
        }));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        begun.recv().unwrap();
        drop(call);
        told.await.unwrap();
        pool.idle().await;
        pool.run(|| Ok(())).await.unwrap();
    }

    #[tokio::test]
    async fn a_call_that_panics_fails_alone() {
        let pool = Pool::new(1);
        let panicked = pool.run(|| -> Result<(), FsError> { panic!("on purpose") }).await;
        assert!(matches!(panicked, Err(FsError::Os { .. })), "{panicked:?}");
        pool.run(|| Ok(())).await.unwrap();
    }
}
