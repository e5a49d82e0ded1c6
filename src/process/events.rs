//! The events of a process, and who holds them.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::sync::oneshot;

use super::handle::Shared;
use crate::backend::EventSource;
use crate::error::WaitError;
use crate::event::Event;

/// The events of one process, apart from its handle.
///
/// The last item is [`Event::Closed`] or an error. Dropping it gives the events back to the [`Process`](super::Process)
/// they were taken from; if that is gone, the output is discarded from then on.
#[must_use = "dropping it gives the events back to the process"]
pub struct Events {
    taken: Taken,
}

impl Events {
    pub(super) fn new(taken: Taken) -> Self {
        Self { taken }
    }

    /// The next event, or none after the last.
    ///
    /// # Errors
    ///
    /// A [`WaitError`] if the events cannot be followed any further, again on every later call.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Event>, WaitError> {
        match &mut self.taken.source {
            Some(source) => source.next().await,
            None => Ok(None),
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.taken.source {
            Some(source) => source.shared.fmt_as("Events", f),
            None => f.write_str("Events"),
        }
    }
}

impl Stream for Events {
    type Item = Result<Event, WaitError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut self.taken.source {
            Some(source) => source.poll_next(cx),
            None => Poll::Ready(None),
        }
    }
}

/// A source on loan: goes back when it is dropped. Present until then.
pub(super) struct Taken {
    source: Option<Source>,
    back: Option<oneshot::Sender<Source>>,
}

impl Taken {
    pub(super) fn new(source: Source, back: oneshot::Sender<Source>) -> Self {
        Self { source: Some(source), back: Some(back) }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let (Some(source), Some(back)) = (self.source.take(), self.back.take()) {
            // It comes back as the error when the handle is gone, and is dropped: nobody wants the output.
            drop(back.send(source));
        }
    }
}

/// The backend's stream, watched for the outcome.
pub(super) struct Source {
    stream: EventSource,
    shared: Arc<Shared>,
    end: End,
}

enum End {
    NotYet,
    Closed,
    Failed(WaitError),
}

impl Source {
    pub(super) fn new(stream: EventSource, shared: Arc<Shared>) -> Self {
        Self { stream, shared, end: End::NotYet }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Event>, WaitError> {
        match poll_fn(|cx| self.poll_next(cx)).await {
            Some(item) => item.map(Some),
            None => match &self.end {
                End::Failed(error) => Err(error.clone()),
                End::NotYet | End::Closed => Ok(None),
            },
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event, WaitError>>> {
        if !matches!(self.end, End::NotYet) {
            return Poll::Ready(None);
        }
        // A stream that just ends breaks the contract of its backend.
        let item = ready!(self.stream.as_mut().poll_next(cx)).unwrap_or(Err(WaitError::Closed));
        match &item {
            Ok(Event::Exited(exited)) => self.shared.settle(Ok(*exited)),
            Ok(Event::Closed(_)) => {
                self.end = End::Closed;
                self.shared.settle(Err(WaitError::Closed));
            }
            Ok(_) => {}
            Err(error) => {
                self.end = End::Failed(error.clone());
                self.shared.settle(Err(error.clone()));
            }
        }
        Poll::Ready(Some(item))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // Without events nobody can meet the exit any more.
        self.shared.settle(Err(WaitError::Closed));
    }
}
