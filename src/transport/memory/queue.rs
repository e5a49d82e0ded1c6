//! One direction of an in-memory connection.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::error::TransportError;

/// Messages held at most.
const MAX_MESSAGES: usize = 128;
/// Bytes held before a sender waits; one message may exceed it.
const MAX_BYTES: usize = 256 << 10;

pub(super) struct Queue {
    state: Mutex<State>,
    #[cfg(feature = "testing")]
    faults: super::faults::Injector,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Bytes>,
    bytes: usize,
    sender_closed: bool,
    receiver_closed: bool,
    broken: bool,
    sender: Option<Waker>,
    receiver: Option<Waker>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            #[cfg(feature = "testing")]
            faults: super::faults::Injector::default(),
        }
    }

    pub(super) fn poll_ready(&self, cx: &Context<'_>) -> Poll<Result<(), TransportError>> {
        let mut state = self.lock();
        state.check_open()?;
        if state.messages.len() < MAX_MESSAGES && state.bytes < MAX_BYTES {
            return Poll::Ready(Ok(()));
        }
        remember(&mut state.sender, cx);
        Poll::Pending
    }

    pub(super) fn push(&self, message: Bytes) -> Result<(), TransportError> {
        self.lock().check_open()?;
        #[cfg(feature = "testing")]
        let message = match self.faults.on_send(message) {
            super::faults::Fate::Deliver(messages) => {
                messages.into_iter().for_each(|message| self.enqueue(message));
                return Ok(());
            }
            // The sender of a cut connection learns of it with its next call, as with a real one.
            super::faults::Fate::Cut => {
                self.break_off();
                self.faults.break_partner();
                return Ok(());
            }
            super::faults::Fate::Plain(message) => message,
        };
        self.enqueue(message);
        Ok(())
    }

    fn enqueue(&self, message: Bytes) {
        let mut state = self.lock();
        state.bytes += message.len();
        state.messages.push_back(message);
        wake(&mut state.receiver);
    }

    pub(super) fn poll_pop(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, TransportError>>> {
        let mut state = self.lock();
        if !state.messages.is_empty() {
            #[cfg(feature = "testing")]
            if self.faults.poll_delay(cx).is_pending() {
                return Poll::Pending;
            }
            if let Some(message) = state.messages.pop_front() {
                #[cfg(feature = "testing")]
                self.faults.on_receive();
                state.bytes -= message.len();
                wake(&mut state.sender);
                return Poll::Ready(Some(Ok(message)));
            }
        }
        if state.broken {
            return Poll::Ready(Some(Err(broken())));
        }
        if state.sender_closed || state.receiver_closed {
            return Poll::Ready(None);
        }
        remember(&mut state.receiver, cx);
        Poll::Pending
    }

    pub(super) fn close_sender(&self) {
        let mut state = self.lock();
        state.sender_closed = true;
        wake(&mut state.receiver);
    }

    pub(super) fn close_receiver(&self) {
        let mut state = self.lock();
        state.receiver_closed = true;
        state.messages.clear();
        state.bytes = 0;
        wake(&mut state.sender);
    }

    #[cfg(feature = "testing")]
    fn break_off(&self) {
        let mut state = self.lock();
        state.broken = true;
        wake(&mut state.receiver);
        wake(&mut state.sender);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held; a poisoned state would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "testing")]
impl Queue {
    pub(super) fn with_faults(faults: super::faults::Faults) -> Self {
        Self { state: Mutex::default(), faults: super::faults::Injector::new(faults) }
    }

    /// When this direction is cut, the other one is too, and loses what is under way.
    pub(super) fn break_together(&self, other: &std::sync::Arc<Self>) {
        self.faults.set_partner(std::sync::Arc::downgrade(other));
    }

    pub(super) fn cut(&self) {
        let mut state = self.lock();
        state.messages.clear();
        state.bytes = 0;
        drop(state);
        self.break_off();
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Queue")
            .field("messages", &state.messages.len())
            .field("bytes", &state.bytes)
            .field("sender_closed", &state.sender_closed)
            .field("receiver_closed", &state.receiver_closed)
            .finish_non_exhaustive()
    }
}

impl State {
    fn check_open(&self) -> Result<(), TransportError> {
        if self.broken {
            return Err(broken());
        }
        if self.sender_closed || self.receiver_closed {
            return Err(TransportError::Closed(None));
        }
        Ok(())
    }
}

fn broken() -> TransportError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

fn remember(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}

fn wake(slot: &mut Option<Waker>) {
    if let Some(waker) = slot.take() {
        waker.wake();
    }
}
