//! The bodies of HTTP responses that are streamed over the connections of a place, each over one of them.
//!
//! The connection's task puts pieces in, and never waits; readers take them out. What is held has a bound: a window for
//! each body towards a peer that can be given credit, else one bound for all of them together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::config::ClientConfig;
use crate::core::body::BodyQueue;
use crate::core::session::LinkId;
use crate::error::{Disconnected, Sent};
use crate::http::HttpError;
use crate::wire::http::BodyDeltaParams;

/// The bodies of one place, by the ids of their requests.
#[derive(Debug)]
pub(crate) struct Bodies {
    window_bytes: usize,
    buffer_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    bodies: HashMap<String, Body>,
    /// Bytes of those that share a bound.
    shared_bytes: usize,
}

#[derive(Debug)]
struct Body {
    /// The connection over which it is asked for, and comes.
    on: LinkId,
    queue: BodyQueue,
    bound: Bound,
    reader: Option<Waker>,
}

/// What bounds the bytes that are held of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The credit that the peer has.
    Window,
    /// One bound for all of them.
    Shared,
    /// One of its own, since all of it will be held anyway.
    Own(u64),
}

/// What a reader finds.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) result: Result<Option<Bytes>, HttpError>,
    /// Credit that the peer is to be told of.
    pub(crate) credit_bytes: Option<u64>,
}

impl Bodies {
    pub(super) fn new(config: &ClientConfig) -> Self {
        Self { window_bytes: config.http_window_bytes, buffer_bytes: config.http_buffer_bytes, state: Mutex::default() }
    }

    /// A fresh id for a request, none of which is ever used again from this place.
    pub(crate) fn next_id(&self) -> String {
        let mut state = self.state();
        state.last_id += 1;
        format!("http-{}", state.last_id)
    }

    /// Makes a body known, before the peer can send anything of it over the connection `on`. Returns the credit that the peer
    /// has at first.
    pub(crate) fn add(&self, id: &str, origin: &str, bound: Bound, on: LinkId) -> Option<u64> {
        let window = (bound == Bound::Window).then_some(self.window_bytes);
        let queue = BodyQueue::new(origin.into(), window);
        let credit = queue.first_credit();
        self.state().bodies.insert(id.into(), Body { on, queue, bound, reader: None });
        credit
    }

    /// Forgets a body. Whether the peer may still send something of it.
    pub(crate) fn remove(&self, id: &str) -> bool {
        let mut state = self.state();
        let Some(body) = state.bodies.remove(id) else { return false };
        if body.bound == Bound::Shared {
            state.shared_bytes -= body.queue.held_bytes();
        }
        body.queue.peer_may_send()
    }

    /// A piece has come. One of a body that nobody reads any more has no meaning.
    pub(super) fn handle_delta(&self, delta: BodyDeltaParams) {
        let reader = {
            let mut state = self.state();
            let shared_bytes = state.shared_bytes;
            let Some(body) = state.bodies.get_mut(&delta.request_id) else { return };
            let before = body.queue.held_bytes();
            let buffer = self.buffer_bytes;
            match body.bound {
                Bound::Window => body.queue.handle_delta(delta, usize::MAX, || HttpError::Closed),
                Bound::Shared => {
                    let room = buffer.saturating_sub(shared_bytes - before);
                    body.queue.handle_delta(delta, room, || HttpError::Overflow { limit: buffer as u64 });
                }
                Bound::Own(limit) => {
                    let room = usize::try_from(limit).unwrap_or(usize::MAX);
                    body.queue.handle_delta(delta, room, || HttpError::BodyTooLarge { limit });
                }
            }
            let (bound, after) = (body.bound, body.queue.held_bytes());
            let reader = body.reader.take();
            if bound == Bound::Shared {
                state.shared_bytes = shared_bytes - before + after;
            }
            reader
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// The next piece of a body, or its end.
    pub(crate) fn poll(&self, id: &str, cx: &Context<'_>) -> Poll<Found> {
        let mut state = self.state();
        let Some(body) = state.bodies.get_mut(id) else {
            return Poll::Ready(Found { result: Ok(None), credit_bytes: None });
        };
        let before = body.queue.held_bytes();
        let Some(result) = body.queue.pop() else {
            body.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let credit_bytes = body.queue.credit_due();
        let taken = before - body.queue.held_bytes();
        if body.bound == Bound::Shared {
            state.shared_bytes -= taken;
        }
        Poll::Ready(Found { result, credit_bytes })
    }

    /// The connection `link` has ended, and every body that comes over it.
    pub(super) fn end_of(&self, link: LinkId, reason: &Arc<str>) {
        self.end_those(|body| body.on == link, reason);
    }

    /// The session has ended, and every body with it.
    pub(super) fn end(&self, reason: &Arc<str>) {
        self.end_those(|_| true, reason);
    }

    fn end_those(&self, ends: impl Fn(&Body) -> bool, reason: &Arc<str>) {
        let readers: Vec<_> = {
            let mut state = self.state();
            let ended = state.bodies.values_mut().filter(|body| ends(body)).filter_map(|body| {
                let disconnected = Disconnected { sent: Sent::Unknown, reason: Arc::clone(reason) };
                body.queue.handle_end(disconnected.into());
                body.reader.take()
            });
            ended.collect()
        };
        for reader in readers {
            reader.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(bodies: &Bodies, id: &str) -> Poll<Found> {
        bodies.poll(id, &Context::from_waker(Waker::noop()))
    }

    /// A request that waits for the next connection has nothing to do with the end of the former one.
    #[test]
    fn a_body_ends_with_its_own_connection_only() {
        let bodies = Bodies::new(&ClientConfig::default());
        for (id, link) in [("former", LinkId(1)), ("next", LinkId(2))] {
            bodies.add(id, "http://there", Bound::Shared, link);
        }
        bodies.end_of(LinkId(1), &"it broke".into());
        let Poll::Ready(Found { result: Err(HttpError::Disconnected(error)), .. }) = poll(&bodies, "former") else {
            panic!("it has ended")
        };
        assert_eq!(*error.reason, *"it broke");
        assert!(poll(&bodies, "next").is_pending());
        assert!(bodies.remove("next"), "the peer may send something of it");
        bodies.add("last", "http://there", Bound::Shared, LinkId(2));
        bodies.end(&"it is over".into());
        assert!(poll(&bodies, "last").is_ready());
    }
}
