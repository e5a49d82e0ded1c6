//! The task of one session: carries out what the session's [`Peer`] decides.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{mpsc, oneshot};

use super::ServeError;
use super::alarm::Alarm;
use super::calls::{Calls, Ended};
use super::files::Files;
use super::http::Http;
use super::link::Link;
use super::measure::Requests;
use super::registry::Registry;
use super::slots::Slots;
use crate::core::peer::{Completion, Peer, StartFacts};
use crate::error::TransportError;
use crate::event::Event;
use crate::info::EnvironmentInfo;
use crate::time::{self, Instant, after};
use crate::wire::RequestId;
use crate::wire::extension::Offer;

/// A connection for a session, and the request that is to be answered on it.
#[derive(Debug)]
pub(super) struct Attach {
    pub(super) link: Link,
    pub(super) id: RequestId,
    pub(super) offer: Option<Offer>,
    pub(super) info: EnvironmentInfo,
    /// Gives the connection back when it ends. Its closing means that nobody serves the connection any more.
    pub(super) end: oneshot::Sender<End>,
}

/// A connection that has ended, for closing.
#[derive(Debug)]
pub(super) struct End {
    pub(super) link: Link,
    pub(super) result: Result<(), ServeError>,
}

/// Everything that the task owns.
pub(super) struct Session {
    peer: Peer,
    registry: Arc<Registry>,
    mailbox: mpsc::Receiver<Attach>,
    /// Another connection has asked for the session.
    challenges: mpsc::Receiver<()>,
    attached: Option<Attached>,
    slots: Slots,
    calls: Calls,
    files: Files,
    http: Http,
    requests: Requests,
    alarm: Alarm,
    /// Ends when the server is to be shut down.
    shutdown: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Since the shutdown: when it has taken long enough.
    shutdown_deadline: Option<Instant>,
}

#[derive(Debug)]
struct Attached {
    link: Link,
    end: oneshot::Sender<End>,
}

impl Session {
    pub(super) fn new(
        peer: Peer,
        registry: Arc<Registry>,
        mailbox: mpsc::Receiver<Attach>,
        challenges: mpsc::Receiver<()>,
    ) -> Self {
        let calls = Calls::new(Arc::clone(registry.backend()));
        let files = Files::new(registry.backend().fs());
        let http = Http::new(registry.backend().http());
        let requests = Requests::new(registry.config());
        let shutdown = Box::pin(registry.shutdown_begun());
        Self {
            peer,
            registry,
            mailbox,
            challenges,
            attached: None,
            slots: Slots::default(),
            calls,
            files,
            http,
            requests,
            alarm: Alarm::default(),
            shutdown,
            shutdown_deadline: None,
        }
    }

    /// Runs until the session is over.
    pub(super) async fn run(mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
        // What is left is killed when the session is dropped.
        if let Some(Attached { link, end }) = self.attached.take() {
            let _serving_is_over = end.send(End { link, result: Ok(()) });
        }
    }

    /// Everything once and again until nothing moves. The order is that in which one thing leads to the next, so that a
    /// request is answered, and its process's output sent, by as few turns and flushes as can be.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..MAX_TURNS {
            let now = time::now();
            let mut moved = self.poll_shutdown(cx, now);
            moved |= self.poll_mailbox(cx, now);
            moved |= self.poll_incoming(cx, now);
            moved |= self.poll_calls(cx, now);
            self.requests.collect(&mut self.peer);
            moved |= self.poll_events(cx, now);
            moved |= self.run_actions(cx, now);
            moved |= self.poll_outgoing(cx, now);
            moved |= self.poll_timers(cx, now);
            self.requests.collect(&mut self.peer);
            if self.is_over(now) {
                return Poll::Ready(());
            }
            if !moved {
                return Poll::Pending;
            }
        }
        // Others want to run too.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        if self.shutdown_deadline.is_some() || self.shutdown.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.shutdown_deadline =
            Some(after(now, self.registry.config().shutdown_grace.saturating_add(SHUTDOWN_MARGIN)));
        self.peer.begin_shutdown(now);
        true
    }

    fn poll_mailbox(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        while let Poll::Ready(Some(())) = self.challenges.poll_recv(cx) {
            if let Some(Attached { link, .. }) = &mut self.attached {
                link.challenge(now, self.registry.config().takeover_patience);
            }
        }
        // The registry lets one connection in at a time.
        if self.attached.is_some() {
            return false;
        }
        let Poll::Ready(Some(attach)) = self.mailbox.poll_recv(cx) else { return false };
        self.peer.attach(now, attach.id, attach.offer.as_ref(), attach.info);
        self.attached = Some(Attached { link: attach.link, end: attach.end });
        true
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let Some(Attached { end, .. }) = &mut self.attached else { return false };
        if end.poll_closed(cx).is_ready() {
            self.disconnect(now, Ok(()));
            return true;
        }
        let mut moved = false;
        for _ in 0..MESSAGES_A_TURN {
            let Some(Attached { link, .. }) = &mut self.attached else { break };
            let wanted = self.peer.wants_input();
            link.set_listening(now, wanted);
            if !wanted {
                break;
            }
            let Poll::Ready(next) = link.poll_message(cx, now) else { break };
            moved = true;
            match next {
                Some(Ok(message)) => {
                    if let Err(error) = self.peer.handle_message(now, &message) {
                        self.disconnect(now, Err(error.into()));
                    }
                }
                None | Some(Err(TransportError::Closed(_))) => self.disconnect(now, Ok(())),
                Some(Err(error)) => self.disconnect(now, Err(error.into())),
            }
        }
        moved
    }

    fn poll_calls(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let mut moved = false;
        while let Poll::Ready(ended) = self.calls.poll_ended(cx) {
            moved = true;
            self.handle_ended(now, ended);
        }
        while let Poll::Ready(completion) = self.http.poll(cx) {
            moved = true;
            self.peer.handle_completion(now, completion);
        }
        while let Poll::Ready(completion) = self.files.poll(cx) {
            moved = true;
            self.peer.handle_completion(now, completion);
        }
        moved
    }

    fn handle_ended(&mut self, now: Instant, ended: Ended) {
        let completion = match ended {
            Ended::Completed(completion) => *completion,
            Ended::Started(process, Err(error)) => {
                self.slots.forget(process);
                Completion::Started { process, result: Err(error) }
            }
            Ended::Started(process, Ok(spawned)) => {
                let sandbox_type = spawned.sandbox_type.clone();
                let facts = StartFacts { sandbox_type, enforcement: spawned.control.enforcement() };
                if let Err(unwanted) = self.slots.started(process, spawned) {
                    unwanted.control.kill_now();
                    return;
                }
                Completion::Started { process, result: Ok(facts) }
            }
        };
        self.peer.handle_completion(now, completion);
    }

    fn poll_events(&mut self, cx: &Context<'_>, now: Instant) -> bool {
        self.slots.collect_marks(cx);
        let ready = self.slots.take_ready();
        let mut moved = false;
        for &slot in &ready {
            moved |= self.poll_events_of(slot, now);
        }
        self.slots.recycle(ready);
        moved
    }

    /// Pulls some events of the process in a slot, and leaves it among the ready ones unless it has no more.
    fn poll_events_of(&mut self, slot: usize, now: Instant) -> bool {
        let Some(key) = self.slots.key_at(slot) else { return false };
        for pulled in 0..EVENTS_A_TURN {
            if self.peer.is_closed(key) {
                self.slots.end_events(slot);
                return pulled > 0;
            }
            if !self.peer.wants_output(key) {
                // It stays ready, and is asked again on every turn: whatever makes room comes by this task.
                self.slots.put_back(slot);
                return pulled > 0;
            }
            match self.slots.poll_event(slot) {
                Poll::Pending => return pulled > 0,
                Poll::Ready(event) => {
                    if matches!(&event, Some(Ok(Event::Exited(_))))
                        && let Some(denial) = self.slots.control(key).and_then(|control| control.denial())
                    {
                        self.peer.handle_denial(key, &denial);
                    }
                    self.peer.handle_event(now, key, event);
                }
            }
        }
        self.slots.put_back(slot);
        true
    }

    fn run_actions(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let mut moved = false;
        while let Some(action) = self.peer.poll_action() {
            moved = true;
            let Self { requests, slots, files, http, .. } = self;
            if let Some(ended) = self.calls.begin(cx, action, requests, slots, files, http) {
                self.handle_ended(now, ended);
            }
        }
        moved
    }

    fn poll_outgoing(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let Some(Attached { link, .. }) = &mut self.attached else { return false };
        match send(&mut self.peer, link, cx, now) {
            Ok(moved) => moved,
            Err(error) => {
                self.disconnect(now, Err(error.into()));
                true
            }
        }
    }

    fn poll_timers(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let link = self.attached.as_ref().and_then(|attached| attached.link.poll_timeout());
        let deadline = [self.peer.poll_timeout(), link, self.shutdown_deadline].into_iter().flatten().min();
        if self.alarm.poll(cx, deadline).is_pending() {
            return false;
        }
        // The clock may have moved on since the turn began.
        let now = time::now().max(now);
        self.peer.handle_timeout(now);
        if let Some(Attached { link, .. }) = &mut self.attached
            && let Err(error) = link.handle_timeout(now)
        {
            self.disconnect(now, Err(error));
        }
        true
    }

    fn is_over(&self, now: Instant) -> bool {
        if let Some(deadline) = self.shutdown_deadline {
            return now >= deadline || self.peer.is_quiet();
        }
        // The registry decides: a client may be on its way in.
        self.peer.is_expired(now) && self.registry.expire(self.peer.session_id(), now)
    }

    fn disconnect(&mut self, now: Instant, result: Result<(), ServeError>) {
        let Some(Attached { link, end }) = self.attached.take() else { return };
        self.requests.disconnect(&mut self.peer);
        if let Some(expiry) = self.peer.handle_disconnect(now) {
            self.registry.detached(self.peer.session_id(), expiry);
        }
        // If nobody serves the connection any more, it is dropped here.
        let _serving_is_over = end.send(End { link, result });
    }
}

/// The session is over, or the runtime is: what runs is killed. What an exited process left behind is ended by a shutdown
/// only; else it is spared, as by `process/terminate`, and the backend drains its output.
impl Drop for Session {
    fn drop(&mut self) {
        if self.shutdown_deadline.is_some() {
            self.peer.unfinished().for_each(|process| self.slots.kill(process));
        } else {
            self.peer.running().for_each(|process| self.slots.kill(process));
        }
        self.registry.remove(self.peer.session_id());
    }
}

/// Sends what there is while the connection takes it, then flushes once.
fn send(peer: &mut Peer, link: &mut Link, cx: &mut Context<'_>, now: Instant) -> Result<bool, TransportError> {
    let mut moved = false;
    link.mark(now);
    while peer.wants_transmit(link.has_room()) {
        match link.poll_ready(cx) {
            Poll::Pending => break,
            Poll::Ready(ready) => ready?,
        }
        let Some(message) = peer.poll_transmit(link.has_room()) else { break };
        link.start_send(now, message)?;
        moved = true;
    }
    // Pending: the transport wakes the task when it can go on, and the next turn comes by here.
    if let Poll::Ready(Err(error)) = link.poll_flush(cx) {
        return Err(error);
    }
    Ok(moved)
}

/// Messages read in one turn, and events pulled of one process, so that everything gets its turn.
const MESSAGES_A_TURN: usize = 64;
const EVENTS_A_TURN: usize = 8;

/// Turns before other tasks get theirs.
const MAX_TURNS: usize = 32;

/// How much longer than the grace time a shutdown may take: the kill at its end has to be seen, and told.
const SHUTDOWN_MARGIN: std::time::Duration = std::time::Duration::from_secs(1);
