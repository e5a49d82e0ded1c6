//! The task of one connection: it moves messages between the transport and the state machine, and hands out what the
//! machine says. It decides nothing, and it never waits for a reader of events.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::{mpsc, watch};
use tokio::time::Sleep;

use super::bodies::Bodies;
use super::command::{Command, Link};
use super::events::EventSink;
use super::watches::Watches;
use super::{Facts, Handshake, Reply};
use crate::config::ClientConfig;
use crate::core::keepalive::{Keepalive, Verdict};
use crate::core::session::{Ending, Mode, RouteKey, Session, SessionEvent, Token};
use crate::error::{Disconnected, Sent, TransportError};
use crate::time::{self, Instant};
use crate::transport::{CloseReason, Incoming, Outgoing, PingStart, Transport};

/// Starts the task. It ends by itself, within a bound, when the last [`Remote`](super::Remote) is gone, or with the
/// connection.
pub(super) fn start(
    transport: Box<dyn Transport>,
    config: ClientConfig,
    mode: Mode,
) -> (Arc<Link>, watch::Receiver<Handshake>) {
    let (command_sender, commands) = mpsc::unbounded_channel();
    let (handshake_sender, handshake) = watch::channel(Handshake::Pending);
    let (ended_sender, ended) = watch::channel(false);
    let reason = Arc::new(OnceLock::new());
    let watches = Arc::new(Watches::default());
    let bodies = Arc::new(Bodies::new(&config));
    let now = time::now();
    let (outgoing, incoming) = transport.split();
    let driver = Driver {
        outgoing,
        incoming,
        keepalive: Keepalive::new(config.keepalive, now),
        session: Session::new(config, mode, &uuid::Uuid::new_v4().simple().to_string(), now),
        commands,
        handshake: handshake_sender,
        ended: ended_sender,
        reason: Arc::clone(&reason),
        watches: Arc::clone(&watches),
        bodies: Arc::clone(&bodies),
        replies: HashMap::new(),
        sinks: HashMap::new(),
        last_token: 0,
        unflushed: false,
        sleep: None,
        end: None,
    };
    tokio::spawn(driver.run());
    (Link::new(command_sender, ended, reason, watches, bodies), handshake)
}

struct Driver {
    outgoing: Box<dyn Outgoing>,
    incoming: Box<dyn Incoming>,
    keepalive: Keepalive,
    session: Session,
    commands: mpsc::UnboundedReceiver<Command>,
    handshake: watch::Sender<Handshake>,
    ended: watch::Sender<bool>,
    reason: Arc<OnceLock<Arc<str>>>,
    watches: Arc<Watches>,
    bodies: Arc<Bodies>,
    replies: HashMap<Token, Reply>,
    sinks: HashMap<RouteKey, EventSink>,
    last_token: u64,
    unflushed: bool,
    sleep: Option<Pin<Box<Sleep>>>,
    end: Option<(Arc<str>, Ending)>,
}

impl Driver {
    async fn run(mut self) {
        let (reason, ending) = poll_fn(|cx| self.poll(cx)).await;
        self.finish(reason, ending).await;
    }

    /// Ready with the end of the session.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Arc<str>, Ending)> {
        for _ in 0..ROUNDS {
            let now = time::now();
            let mut busy = self.poll_commands(cx, now) | self.poll_incoming(cx, now);
            let paused = self.session.is_paused();
            self.handle_timeouts(now);
            // The transport was not asked, and so would not wake us.
            busy |= paused && !self.session.is_paused();
            self.poll_outgoing(cx, now);
            self.deliver();
            if let Some(end) = self.end.take() {
                return Poll::Ready(end);
            }
            if !busy && self.poll_sleep(cx, now).is_pending() {
                return Poll::Pending;
            }
        }
        // Other tasks have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes some commands; true if there may be more.
    fn poll_commands(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        for _ in 0..BATCH {
            match self.commands.poll_recv(cx) {
                Poll::Ready(Some(command)) => self.handle_command(now, command),
                // Nobody is left who could want anything.
                Poll::Ready(None) => {
                    self.session.abandon_all(now);
                    return false;
                }
                Poll::Pending => return false,
            }
        }
        true
    }

    /// Takes some messages; true if there may be more.
    fn poll_incoming(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let mut more = false;
        for count in 1..=BATCH {
            // Whoever ends the pause does so by a command or a timeout.
            if self.session.is_ended() || self.session.is_paused() {
                break;
            }
            match self.incoming.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(message))) => self.session.handle_message(now, &message),
                Poll::Ready(Some(Err(error))) => self.session.handle_disconnect(&error),
                Poll::Ready(None) => self.session.handle_disconnect(&TransportError::Closed(None)),
                Poll::Pending => break,
            }
            self.deliver();
            more = count == BATCH;
        }
        self.keepalive.handle_received(now, self.incoming.received_bytes());
        self.keepalive.set_listening(now, !self.session.is_paused());
        more
    }

    fn handle_timeouts(&mut self, now: Instant) {
        match self.keepalive.handle_timeout(now) {
            Verdict::Alive => {}
            Verdict::Ping => match self.outgoing.start_ping(0) {
                PingStart::Queued => self.unflushed = true,
                // The silence of the peer counts all the same.
                PingStart::Busy => {}
                PingStart::Unsupported => self.keepalive.disable(),
            },
            Verdict::Dead { silence } => self.session.handle_silence(silence),
        }
        if self.session.poll_timeout().is_some_and(|due| due <= now) {
            self.session.handle_timeout(now);
        }
    }

    /// Hands messages to the transport for as long as it takes them.
    fn poll_outgoing(&mut self, cx: &mut Context<'_>, now: Instant) {
        if let Poll::Ready(Err(error)) = self.poll_send(cx, now) {
            self.session.handle_disconnect(&error);
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Result<(), TransportError>> {
        // Readiness comes first: a message that was polled counts as sent.
        while self.outgoing.poll_ready_unpin(cx)?.is_ready() {
            let Some(message) = self.session.poll_transmit(now) else { break };
            self.outgoing.start_send_unpin(message)?;
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(self.outgoing.poll_flush_unpin(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Pending until the next timeout. What is overdue waits for the transport, which wakes the task itself.
    fn poll_sleep(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<()> {
        let due = [self.session.poll_timeout(), self.keepalive.poll_timeout()];
        let Some(due) = due.into_iter().flatten().filter(|due| *due > now).min() else {
            self.sleep = None;
            return Poll::Pending;
        };
        let due = tokio::time::Instant::from_std(due);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if sleep.deadline() != due {
            sleep.as_mut().reset(due);
        }
        sleep.as_mut().poll(cx)
    }

    fn handle_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Call { route, op, reply } => {
                let token = self.token(reply);
                self.session.submit(now, token, route, op);
            }
            Command::Follow { route, op, sink, reply } => {
                let token = self.token(reply);
                self.sinks.extend(sink.map(|sink| (route, sink)));
                self.session.submit(now, token, route, op);
            }
            Command::Consumed(route) => {
                if let Some(sink) = self.sinks.get(&route) {
                    self.session.handle_consumed(now, route, sink.consumption());
                }
            }
            Command::Discard(route) => {
                self.sinks.remove(&route);
                self.session.discard(now, route);
            }
            Command::Abandon(route) => self.session.abandon(now, route),
            Command::Kill(route) => self.session.kill(route),
            // Whoever asked may be gone.
            Command::Detach(route, answer) => drop(answer.send(self.session.detach(route))),
            Command::Release(route) => self.session.release(now, route),
            Command::Notify(bytes) => self.session.notify(bytes),
            Command::Close => self.session.close(now),
            Command::AbandonAll => self.session.abandon_all(now),
            Command::Leave => self.session.leave(),
        }
        self.deliver();
    }

    fn token(&mut self, reply: Reply) -> Token {
        self.last_token += 1;
        let token = Token(self.last_token);
        self.replies.insert(token, reply);
        token
    }

    /// Hands out what the session says. Whoever does not wait any more misses nothing.
    fn deliver(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                SessionEvent::Connected { session_id, features } => {
                    self.handshake.send_replace(Handshake::Done(Facts { session_id, features }));
                }
                SessionEvent::Rejected(error) => {
                    self.handshake.send_replace(Handshake::Failed(error));
                }
                SessionEvent::Answer { token, result } => {
                    if let Some(reply) = self.replies.remove(&token) {
                        let _ = reply.send(result);
                    }
                }
                SessionEvent::Event { route, event } => {
                    if let Some(sink) = self.sinks.get(&route) {
                        sink.send(Ok(event));
                    }
                }
                SessionEvent::Failed { route, error } => {
                    if let Some(sink) = self.sinks.get(&route) {
                        sink.send(Err(error));
                    }
                }
                SessionEvent::MissingChanged { watch_id } => self.watches.changed(watch_id),
                SessionEvent::BodyDelta(delta) => self.bodies.handle_delta(*delta),
                SessionEvent::End { reason, ending } => self.end = Some((reason, ending)),
            }
        }
    }

    /// Refuses what is still asked for, and closes the connection.
    async fn finish(mut self, reason: Arc<str>, ending: Ending) {
        // Set once, and here only.
        let _ = self.reason.set(Arc::clone(&reason));
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Call { reply, .. } | Command::Follow { reply, .. } = command {
                let disconnected = Disconnected { sent: Sent::NotSent, reason: Arc::clone(&reason) };
                let _ = reply.send(Err(disconnected.into()));
            }
        }
        self.replies.clear();
        self.sinks.clear();
        self.watches.end();
        self.bodies.end(&reason);
        self.handshake.send_if_modified(|handshake| {
            let pending = matches!(handshake, Handshake::Pending);
            if pending {
                let disconnected = Disconnected { sent: Sent::Unknown, reason: Arc::clone(&reason) };
                *handshake = Handshake::Failed(disconnected.into());
            }
            pending
        });
        self.outgoing.set_close_reason(match ending {
            Ending::Normal | Ending::Lost => CloseReason::Normal,
            Ending::ProtocolError => CloseReason::ProtocolError,
            Ending::TooLarge => CloseReason::TooLarge,
        });
        // A peer that does not take the close loses the connection all the same.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.outgoing.close()).await;
        drop(self.outgoing);
        drop(self.incoming);
        self.ended.send_replace(true);
    }
}

/// Commands and messages taken before the others have their turn.
const BATCH: usize = 32;

/// Rounds before other tasks have their turn.
const ROUNDS: usize = 16;

/// How long the transport may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
