//! What handles tell the connection's task.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use super::Reply;
use super::events::{EventSink, Events};
use super::process::RemoteProcess;
use crate::core::session::{Answer, Failure, Op, RouteKey};
use crate::error::{Disconnected, Sent};
use crate::telemetry::{self, CallSpan, CallSpans, Outcome};
use crate::wire::trace::Trace;

/// One thing to do, in the order in which they are sent.
#[derive(Debug)]
pub(super) enum Command {
    /// Makes a call about `route`; calls about the place have one that names nothing.
    Call { route: RouteKey, op: Op, waiter: Waiter },
    /// Makes a call that brings a process into being here, whose events go to `sink`.
    Follow { route: RouteKey, op: Op, sink: Option<EventSink>, waiter: Waiter },
    /// The reader of a process has taken events.
    Consumed(RouteKey),
    /// Nobody will read the events of this process.
    Discard(RouteKey),
    /// Nobody waits any more for this start, or to be attached to this process.
    Abandon(RouteKey),
    /// Kills the process, with nobody waiting for the answer.
    Kill(RouteKey),
    /// The process outlives the environment; says whether it still can.
    Detach(RouteKey, oneshot::Sender<bool>),
    /// The last handle of the process is gone.
    Release(RouteKey),
    /// Sends a notification.
    Notify(Bytes),
    /// A connection is wanted, if there is none yet.
    Connect,
    /// The peer is to show that it lives; all who ask at one time share one answer.
    Probe { done: oneshot::Sender<()> },
    /// Nothing comes back over the connection of this number. `done` is told when the state is one behind the suspicion.
    Suspect { generation: u64, done: oneshot::Sender<()> },
    /// The host hands over a connection of this number for the session.
    Replace { number: u64 },
    /// Ends the processes and the connection.
    Close,
    /// The same, with nobody waiting for the processes.
    AbandonAll,
    /// Ends the connection only.
    Leave,
}

/// Who waits for a call.
#[derive(Debug)]
pub(super) struct Waiter {
    reply: Reply,
    pub(super) span: CallSpan,
    trace: Trace,
}

impl Waiter {
    fn new(spans: &CallSpans, op: &Op, reply: Reply) -> Self {
        let trace = match op {
            Op::Start { request } if request.trace != Trace::default() => request.trace.clone(),
            _ => telemetry::current(),
        };
        let (span, trace) = spans.begin(op.method(), trace);
        Self { reply, span, trace }
    }

    /// The trace of the call, once.
    pub(super) fn take_trace(&mut self) -> Trace {
        std::mem::take(&mut self.trace)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }

    /// Whoever waited may be gone.
    pub(super) fn answer(self, result: Result<Answer, Failure>) {
        self.span.end(match &result {
            Ok(_) => Outcome::Ok,
            Err(Failure::Busy(_)) => Outcome::Busy,
            Err(Failure::Disconnected(_) | Failure::Closed) => Outcome::Disconnected,
            Err(_) => Outcome::Error,
        });
        let _ = self.reply.send(result);
    }
}

/// The way to the connection's task, and what is known of its end.
#[derive(Debug)]
pub(super) struct Link {
    /// Unbounded, since `Drop` must be able to send. What can be in it is bounded by what exists elsewhere: one call for
    /// each future that was polled, and a fixed number of notices for each process
    /// and each window of a body that was read.
    commands: mpsc::UnboundedSender<Command>,
    ended: watch::Receiver<bool>,
    /// Why the connection ended; set before the task stops taking commands.
    reason: Arc<OnceLock<Arc<str>>>,
    next_route: AtomicU64,
    spans: CallSpans,
}

impl Link {
    pub(super) fn new(
        commands: mpsc::UnboundedSender<Command>,
        ended: watch::Receiver<bool>,
        reason: Arc<OnceLock<Arc<str>>>,
        spans: CallSpans,
    ) -> Arc<Self> {
        Arc::new(Self { commands, ended, reason, next_route: AtomicU64::new(1), spans })
    }

    /// Who waits for a call, which begins here, in the task of the caller.
    pub(super) fn waiter(&self, op: &Op, reply: Reply) -> Waiter {
        Waiter::new(&self.spans, op, reply)
    }

    /// A fresh name for a process, the receiving end of its events, and the means to act on it.
    pub(super) fn route(self: &Arc<Self>) -> (RouteKey, Events, RemoteProcess) {
        let route = RouteKey(self.next_route.fetch_add(1, Ordering::Relaxed));
        let denial = Arc::default();
        let events = Events::new(Arc::clone(self), route, &denial);
        (route, events, RemoteProcess::new(Arc::clone(self), route, denial))
    }

    /// Sends a command; false if the task has ended, and then it has no meaning any more.
    pub(super) fn send(&self, command: Command) -> bool {
        self.commands.send(command).is_ok()
    }

    /// Makes a call about the place.
    pub(super) async fn call(&self, op: Op) -> Result<Answer, Failure> {
        self.call_on(RouteKey::NONE, op).await
    }

    /// Makes a call about a process.
    pub(super) async fn call_on(&self, route: RouteKey, op: Op) -> Result<Answer, Failure> {
        let (reply, answer) = oneshot::channel();
        let waiter = self.waiter(&op, reply);
        self.answer(Command::Call { route, op, waiter }, answer).await
    }

    /// Makes a call that brings a process into being here.
    pub(super) async fn call_with_events(
        &self,
        route: RouteKey,
        op: Op,
        events: &mut Events,
    ) -> Result<Answer, Failure> {
        let (reply, answer) = oneshot::channel();
        let sink = events.take_sink();
        let waiter = self.waiter(&op, reply);
        self.answer(Command::Follow { route, op, sink, waiter }, answer).await
    }

    /// Waits until the peer has answered something, or the connection over which it was asked has ended.
    pub(super) async fn probe(&self) {
        let (done, answered) = oneshot::channel();
        self.send(Command::Probe { done });
        // An error means that the session has ended.
        let _ = answered.await;
    }

    async fn answer(
        &self,
        command: Command,
        answer: oneshot::Receiver<Result<Answer, Failure>>,
    ) -> Result<Answer, Failure> {
        if !self.send(command) {
            return Err(self.disconnected(Sent::NotSent).into());
        }
        match answer.await {
            Ok(result) => result,
            Err(_) => Err(self.disconnected(Sent::Unknown).into()),
        }
    }

    /// Whether the session has ended: nothing that is sent has a meaning any more.
    pub(super) fn is_over(&self) -> bool {
        self.reason.get().is_some() || self.commands.is_closed()
    }

    /// Whether the session's task takes nothing any more.
    pub(super) fn is_gone(&self) -> bool {
        self.commands.is_closed()
    }

    /// Waits for the end of the connection's task.
    pub(super) async fn ended(&self) {
        let mut ended = self.ended.clone();
        // An error means that the sender is gone, and so the task with it.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    pub(super) fn disconnected(&self, sent: Sent) -> Disconnected {
        let reason = self.reason.get().cloned();
        Disconnected { sent, reason: reason.unwrap_or_else(|| "the runtime of the connection is gone".into()) }
    }
}
