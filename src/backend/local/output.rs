//! The bounded queue between a supervisor and the reader of its events.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_core::Stream;

use super::shared::Shared;
use crate::config::OutputLimits;
use crate::error::WaitError;
use crate::event::{Closed, Event, Exited, Output, OutputStream, Totals};
use crate::status::ExitStatus;

#[cfg(test)]
mod tests;

/// Events on their way to the reader, numbered, and the totals.
///
/// Invariants: output is only pushed while there is [room](EventQueue::has_room), so that at most one chunk more than
/// the bound is held; nothing follows the end; when the reader is gone, output is counted and not held; a supervisor that
/// was ever told that there is no room is woken before the reader has taken all output, whatever it asked since.
#[derive(Debug)]
pub(super) struct EventQueue {
    limits: OutputLimits,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    events: VecDeque<Result<Event, WaitError>>,
    held_bytes: usize,
    held_chunks: usize,
    next_seq: u64,
    totals: Totals,
    reader: Option<Waker>,
    reader_is_gone: bool,
    /// The supervisor was told that there is no room, and has not been woken since. It may go to sleep on that answer at any
    /// later time, so that another answer does not take it back.
    paused: bool,
    ended: bool,
}

impl EventQueue {
    pub(super) fn new(limits: OutputLimits) -> Self {
        Self {
            limits,
            state: Mutex::new(State {
                events: VecDeque::new(),
                held_bytes: 0,
                held_chunks: 0,
                next_seq: 1,
                totals: Totals::default(),
                reader: None,
                reader_is_gone: false,
                paused: false,
                ended: false,
            }),
        }
    }

    /// Whether another chunk may be pushed. If not, the supervisor is woken when it may, also if it has heard otherwise
    /// meanwhile.
    pub(super) fn has_room(&self) -> bool {
        let mut state = self.lock();
        let room = state.reader_is_gone
            || (state.held_bytes < self.limits.retained_bytes.max(1)
                && state.held_chunks < self.limits.retained_chunks.max(1));
        state.paused |= !room;
        room
    }

    /// Adds a chunk, and returns the sum of all that was ever added.
    pub(super) fn push_output(&self, stream: OutputStream, bytes: Bytes) -> u64 {
        let mut state = self.lock();
        let len = bytes.len();
        state.totals.add(stream, len as u64);
        if !state.reader_is_gone {
            state.held_bytes += len;
            state.held_chunks += 1;
            state.push(|seq| Event::Output(Output { seq, stream, bytes }));
        }
        let sum = state.totals.sum();
        let reader = state.reader.take();
        drop(state);
        wake(reader);
        sum
    }

    /// Adds the exit.
    pub(super) fn push_exited(&self, status: ExitStatus, sandbox_denied: bool) {
        let mut state = self.lock();
        state.push(|seq| Event::Exited(Exited { seq, status, sandbox_denied }));
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    /// Adds the close, and ends.
    pub(super) fn push_closed(&self, cut: bool) {
        let mut state = self.lock();
        let totals = Some(state.totals);
        state.push(|seq| Event::Closed(Closed { seq, totals, cut }));
        state.ended = true;
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    /// Ends without a close, if it has not ended: the error comes last.
    pub(super) fn fail(&self, error: WaitError) {
        let mut state = self.lock();
        if !state.ended {
            state.ended = true;
            if !state.reader_is_gone {
                state.events.push_back(Err(error));
            }
        }
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next event, and whether the supervisor has to be told that there is room again.
    fn poll_next(&self, cx: &Context<'_>) -> (Poll<Option<Result<Event, WaitError>>>, bool) {
        let mut state = self.lock();
        let Some(event) = state.events.pop_front() else {
            if state.ended {
                return (Poll::Ready(None), false);
            }
            if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
                state.reader = Some(cx.waker().clone());
            }
            return (Poll::Pending, false);
        };
        if let Ok(Event::Output(output)) = &event {
            state.held_bytes -= output.bytes.len();
            state.held_chunks -= 1;
        }
        // Half empty, so that a reader at the bound does not wake the supervisor for every chunk.
        let resume = state.paused
            && state.held_bytes <= self.limits.retained_bytes / 2
            && state.held_chunks <= self.limits.retained_chunks / 2;
        if resume {
            state.paused = false;
        }
        (Poll::Ready(Some(event)), resume)
    }

    fn reader_is_gone(&self) {
        let mut state = self.lock();
        state.reader_is_gone = true;
        state.reader = None;
        state.paused = false;
        let events = std::mem::take(&mut state.events);
        state.held_bytes = 0;
        state.held_chunks = 0;
        drop(state);
        drop(events);
    }
}

impl State {
    fn push(&mut self, event: impl FnOnce(u64) -> Event) {
        let seq = self.next_seq;
        self.next_seq += 1;
        if !self.reader_is_gone {
            self.events.push_back(Ok(event(seq)));
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The reader's end. Dropping it means that nobody wants the output.
#[derive(Debug)]
pub(super) struct EventReader {
    shared: Arc<Shared>,
}

impl EventReader {
    /// There must be only one for each process.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Stream for EventReader {
    type Item = Result<Event, WaitError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let (event, resume) = self.shared.events.poll_next(cx);
        if resume {
            self.shared.wake_supervisor();
        }
        event
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.shared.events.reader_is_gone();
        self.shared.wake_supervisor();
    }
}
