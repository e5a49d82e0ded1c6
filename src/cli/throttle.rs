//! One command, one connection: while its output is not taken, the connection is not read.
//!
//! A library client must not do this, since other processes share the connection; towards a peer without credits it
//! reads on, and what a slow reader misses becomes a gap. Here the pipe of the system can do what it does for a local
//! command: make it wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use futures_core::Stream;
use longarm::error::TransportError;
use longarm::transport::{Incoming, Outgoing, Transport};
use tokio::task::yield_now;

/// Bytes that may come while the command's output is not taken.
const AHEAD_BYTES: usize = 512 << 10;

/// Says how far reading may go.
///
/// Whoever waits for the peer opens it: what he waits for may stand behind any amount of output. Events of a process may
/// come before the response to its start, and after later ones (`protocol.md` 3).
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// It may be closed at all.
    active: bool,
    /// Nobody waits: the output that came is being written.
    busy: bool,
    ahead_bytes: usize,
    reader: Option<Waker>,
    /// Grows while the gate is closed.
    excuses: u64,
}

impl Gate {
    /// From here on, the connection waits while it is closed.
    pub(super) fn activate(&self) {
        self.lock().active = true;
    }

    /// All that has come was taken, and more is waited for.
    pub(super) fn open(&self) {
        let mut state = self.lock();
        state.busy = false;
        state.ahead_bytes = 0;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// Nobody takes what comes, nor waits for it: it is read as fast as it comes from here on, for answers.
    pub(super) fn deactivate(&self) {
        self.lock().active = false;
        self.open();
    }

    /// Until it is opened again, the connection waits once it is too far ahead.
    pub(super) fn close(&self) {
        self.lock().busy = true;
    }

    /// Whether more may be read.
    fn look(&self, cx: &Context<'_>) -> Look {
        let mut state = self.lock();
        if !state.active || state.ahead_bytes < AHEAD_BYTES {
            return Look::Open;
        }
        if state.busy {
            // Under the same lock, so that nobody opens it unnoticed.
            state.reader = Some(cx.waker().clone());
            return Look::Closed;
        }
        state.ahead_bytes = 0;
        Look::Pause
    }

    /// A number that never falls, and grows when it is asked for while the gate is closed.
    fn excuses(&self) -> u64 {
        let mut state = self.lock();
        state.excuses += u64::from(state.is_closed());
        state.excuses
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Look {
    Open,
    Closed,
    /// What has come may be what is waited for, and not have been noticed yet: whoever waits is to have a turn first.
    Pause,
}

impl State {
    fn is_closed(&self) -> bool {
        self.active && self.busy && self.ahead_bytes >= AHEAD_BYTES
    }
}

/// A connection behind a gate.
#[derive(Debug)]
pub(super) struct Throttled<T> {
    pub(super) transport: T,
    pub(super) gate: Gate,
}

impl<T: Transport> Transport for Throttled<T> {
    fn split(self: Box<Self>) -> (Box<dyn Outgoing>, Box<dyn Incoming>) {
        let (outgoing, incoming) = Box::new(self.transport).split();
        (outgoing, Box::new(ThrottledIncoming { incoming, gate: self.gate, pause: None }))
    }

    fn peer(&self) -> String {
        self.transport.peer()
    }
}

struct ThrottledIncoming {
    incoming: Box<dyn Incoming>,
    gate: Gate,
    /// The turn of all others.
    pause: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl fmt::Debug for ThrottledIncoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { incoming, gate, .. } = self;
        f.debug_struct("ThrottledIncoming").field("incoming", incoming).field("gate", gate).finish_non_exhaustive()
    }
}

impl Stream for ThrottledIncoming {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match self.gate.look(cx) {
                Look::Open => break,
                Look::Closed => return Poll::Pending,
                Look::Pause => self.pause = Some(Box::pin(yield_now())),
            }
        }
        let next = ready!(Pin::new(&mut self.incoming).poll_next(cx));
        if let Some(Ok(message)) = &next {
            self.gate.lock().ahead_bytes += message.len();
        }
        Poll::Ready(next)
    }
}

impl Incoming for ThrottledIncoming {
    /// While the gate is closed the silence is our own doing, and says nothing about the peer.
    fn received_bytes(&self) -> u64 {
        self.incoming.received_bytes() + self.gate.excuses()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_is_closed_only_while_nobody_takes_what_came_nor_waits() {
        let (gate, woken) = (Gate::default(), Arc::<Woken>::default());
        let waker = Waker::from(Arc::clone(&woken));
        let look = || gate.look(&Context::from_waker(&waker));
        let much_comes = || gate.lock().ahead_bytes += AHEAD_BYTES;
        let woken = || woken.0.load(Ordering::Relaxed);
        gate.close();
        much_comes();
        assert_eq!((look(), gate.excuses()), (Look::Open, 0), "the peer has credits");
        gate.activate();
        assert_eq!((look(), look(), gate.excuses(), woken()), (Look::Closed, Look::Closed, 1, 0));
        gate.open();
        assert_eq!((look(), gate.excuses(), woken()), (Look::Open, 1, 1));
        much_comes();
        assert_eq!((look(), look()), (Look::Pause, Look::Open), "after a turn of whoever waits");
        gate.close();
        much_comes();
        assert_eq!(look(), Look::Closed);
        gate.deactivate();
        much_comes();
        assert_eq!((look(), woken()), (Look::Open, 2));
    }
}
