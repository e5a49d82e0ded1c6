//! Waiting for a path to appear.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::FsError;

/// A watch of [`FileSystem::watch_missing`](super::FileSystem::watch_missing): a future that ends, once, when looking
/// again may have another result. Dropping it ends the watch.
///
/// # Errors
///
/// An [`FsError`] if it can no longer be known, as when the connection ends.
#[must_use = "dropping a watch ends it"]
pub struct MissingWatch {
    changed: Pin<Box<dyn Future<Output = Result<(), FsError>> + Send>>,
}

impl MissingWatch {
    /// A watch that ends with this future.
    pub fn new(changed: impl Future<Output = Result<(), FsError>> + Send + 'static) -> Self {
        Self { changed: Box::pin(changed) }
    }
}

impl Future for MissingWatch {
    type Output = Result<(), FsError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.changed.as_mut().poll(cx)
    }
}

impl fmt::Debug for MissingWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MissingWatch").finish_non_exhaustive()
    }
}
