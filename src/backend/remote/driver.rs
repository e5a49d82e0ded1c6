//! The task of one session: it moves messages between its connections and the state machine, dials when the machine says
//! so, and hands out what the machine says. It decides nothing, and it never waits for a reader of events.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Sleep;

use super::bodies::Bodies;
use super::command::{Command, Link, Waiter};
use super::events::EventSink;
use super::watches::Watches;
use super::wire::Wire;
use super::{Facts, Handshake};
use crate::config::{self, ClientConfig};
use crate::core::session::{Ask, ConnectionState, Ending, LinkId, Mode, Op, RouteKey, Session, SessionEvent, Token};
use crate::error::{ConnectError, Disconnected, Sent};
use crate::telemetry::CallSpans;
use crate::time::{self, Instant};
use crate::transport::accepted::Handover;
use crate::transport::{Connector, Transport};
use crate::wire::RequestId;
use crate::wire::codec;
use crate::wire::method::{self, Method as _, NoParams};

/// What a task tells everybody.
#[derive(Clone, Debug)]
pub(super) struct Board {
    pub(super) state: watch::Sender<ConnectionState>,
    /// Who is at the other end, once there was a connection.
    pub(super) peer: Arc<OnceLock<String>>,
    /// Why the last connection ended that has.
    last_end: Arc<Mutex<Option<Arc<str>>>>,
    /// Who waits for missing paths.
    pub(super) watches: Arc<Watches>,
    /// The bodies of HTTP responses that are streamed.
    pub(super) bodies: Arc<Bodies>,
    /// Where the host hands connections over.
    pub(super) handover: Option<Handover>,
}

impl Board {
    pub(super) fn new(config: &ClientConfig, peer: Option<String>, handover: Option<Handover>) -> Self {
        let (state, _) = watch::channel(ConnectionState::Idle);
        Self {
            state,
            peer: Arc::new(peer.map_or_else(OnceLock::new, OnceLock::from)),
            last_end: Arc::default(),
            watches: Arc::default(),
            bodies: Arc::new(Bodies::new(config)),
            handover,
        }
    }

    /// Why the last connection ended that has.
    pub(super) fn last_end(&self) -> Option<Arc<str>> {
        self.lock_end().clone()
    }

    fn note_end(&self, reason: &Arc<str>) {
        *self.lock_end() = Some(Arc::clone(reason));
    }

    fn lock_end(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        // Nothing panics while it is held.
        self.last_end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the task for one connection. It ends by itself, within a bound, when the last [`Remote`](super::Remote) is gone,
/// or with the connection.
pub(super) fn start(
    transport: Box<dyn Transport>,
    config: ClientConfig,
    mode: Mode,
    board: Board,
) -> (Arc<Link>, watch::Receiver<Handshake>) {
    let now = time::now();
    let keepalive = config.keepalive;
    let spans = CallSpans::client(&config);
    let wire = Wire::new(LinkId::FIRST, transport, keepalive, now);
    let session = Session::new(config, mode, &nonce(), now);
    spawn(session, keepalive, Some(wire), None, board, spans)
}

/// Which of a place's sessions is begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    pub(super) epoch: u64,
    pub(super) generations: u64,
    pub(super) not_before: Option<Instant>,
}

/// Starts the task for a session that dials when it is first needed.
pub(super) fn start_dialling(
    connector: Arc<dyn Connector>,
    config: ClientConfig,
    beginning: Beginning,
    board: Board,
) -> (Arc<Link>, watch::Receiver<Handshake>) {
    let keepalive = config.keepalive;
    let Beginning { epoch, generations, not_before } = beginning;
    let spans = CallSpans::client(&config);
    let recovers = connector.can_reconnect();
    let session = Session::dialling(config, &nonce(), recovers, epoch, generations, not_before);
    spawn(session, keepalive, None, Some(connector), board, spans)
}

fn nonce() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn spawn(
    session: Session,
    keepalive: config::Keepalive,
    wire: Option<Wire>,
    connector: Option<Arc<dyn Connector>>,
    board: Board,
    spans: CallSpans,
) -> (Arc<Link>, watch::Receiver<Handshake>) {
    let (command_sender, commands) = mpsc::unbounded_channel();
    let (handshake_sender, handshake) = watch::channel(Handshake::Pending);
    let (ended_sender, ended) = watch::channel(false);
    let reason = Arc::new(OnceLock::new());
    let driver = Driver {
        session,
        keepalive,
        wire,
        connector,
        dialling: None,
        hanging_up: None,
        commands,
        handshake: handshake_sender,
        board,
        ended: ended_sender,
        reason: Arc::clone(&reason),
        waiters: HashMap::new(),
        probe: None,
        sinks: HashMap::new(),
        last_token: 0,
        sleep: None,
        stirred: false,
        end: None,
    };
    tokio::spawn(driver.run());
    (Link::new(command_sender, ended, reason, spans), handshake)
}

type Dialling = Pin<Box<dyn Future<Output = Result<Box<dyn Transport>, ConnectError>> + Send>>;

struct Driver {
    session: Session,
    keepalive: config::Keepalive,
    wire: Option<Wire>,
    connector: Option<Arc<dyn Connector>>,
    dialling: Option<(LinkId, Dialling)>,
    /// The former connection, which is told why.
    hanging_up: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    commands: mpsc::UnboundedReceiver<Command>,
    handshake: watch::Sender<Handshake>,
    board: Board,
    ended: watch::Sender<bool>,
    reason: Arc<OnceLock<Arc<str>>>,
    waiters: HashMap<Token, Waiter>,
    /// A call for a sign of life, and who waits for its answer.
    probe: Option<(Token, Vec<oneshot::Sender<()>>)>,
    sinks: HashMap<RouteKey, EventSink>,
    last_token: u64,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The connection has changed, so that there is more to do at once.
    stirred: bool,
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
            self.poll_dialling(cx, now);
            self.poll_outgoing(cx, now);
            self.deliver();
            if let Some(end) = self.end.take() {
                return Poll::Ready(end);
            }
            busy |= std::mem::take(&mut self.stirred);
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
            let Some(wire) = &mut self.wire else { break };
            let link = wire.link;
            match wire.poll_message(cx) {
                Poll::Ready(Ok(message)) => self.session.handle_message(now, link, &message),
                Poll::Ready(Err(error)) => self.session.handle_disconnect(now, link, &error),
                Poll::Pending => break,
            }
            self.deliver();
            more = count == BATCH;
        }
        if let Some(wire) = &mut self.wire {
            wire.note_life(now, !self.session.is_paused());
        }
        more
    }

    fn handle_timeouts(&mut self, now: Instant) {
        if let Some(wire) = &mut self.wire
            && let Some(silence) = wire.handle_timeout(now)
        {
            self.session.handle_silence(now, wire.link, silence);
        }
        if self.session.poll_timeout().is_some_and(|due| due <= now) {
            self.session.handle_timeout(now);
        }
        self.deliver();
    }

    /// Goes on with the connection that is being made, and with the one that is being closed.
    fn poll_dialling(&mut self, cx: &mut Context<'_>, now: Instant) {
        if let Some(hanging_up) = &mut self.hanging_up
            && hanging_up.as_mut().poll(cx).is_ready()
        {
            self.hanging_up = None;
        }
        let Some((link, dialling)) = &mut self.dialling else { return };
        let Poll::Ready(result) = dialling.as_mut().poll(cx) else { return };
        let link = *link;
        self.dialling = None;
        self.stirred = true;
        match result {
            Ok(transport) => {
                if self.session.handle_dialled(now, link, Ok(())) {
                    // The first one's name stands for all.
                    self.board.peer.get_or_init(|| transport.peer());
                    self.wire = Some(Wire::new(link, transport, self.keepalive, now));
                }
            }
            Err(error) => {
                self.session.handle_dialled(now, link, Err(error));
            }
        }
    }

    fn poll_outgoing(&mut self, cx: &mut Context<'_>, now: Instant) {
        self.take_back();
        let Some(wire) = &mut self.wire else { return };
        let link = wire.link;
        if let Poll::Ready(Err(error)) = wire.poll_send(cx, now, &mut self.session) {
            self.session.handle_disconnect(now, link, &error);
        }
    }

    /// Pending until the next timeout. What is overdue waits for the transport, which wakes the task itself.
    fn poll_sleep(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<()> {
        let due = [self.session.poll_timeout(), self.wire.as_ref().and_then(Wire::poll_timeout)];
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
            Command::Call { route, op, waiter } => {
                self.take_back();
                // Over a connection that stands it would leave at once, however long ago it was given up.
                if op.is_lone() && waiter.is_gone() {
                    let gone = Disconnected { sent: Sent::NotSent, reason: "its caller is gone".into() };
                    return waiter.answer(Err(gone.into()));
                }
                let token = self.token(waiter);
                self.session.submit(now, token, route, op);
            }
            Command::Follow { route, op, sink, waiter } => {
                self.take_back();
                let token = self.token(waiter);
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
            Command::Connect => self.session.connect(now),
            Command::Probe { done } => self.probe(now, done),
            Command::Suspect { generation, done } => {
                self.session.suspect(now, generation);
                self.deliver();
                // Whoever asked may be gone.
                let _ = done.send(());
            }
            Command::Replace { number } => {
                // It may have been taken already.
                let taken = self.board.handover.as_ref().is_some_and(|handover| handover.has_taken(number));
                if !taken {
                    self.session.replace(now);
                }
            }
            Command::Close => self.session.close(now),
            Command::AbandonAll => self.session.abandon_all(now),
            Command::Leave => self.session.leave(),
        }
        self.deliver();
    }

    fn token(&mut self, mut waiter: Waiter) -> Token {
        let token = self.next_token();
        self.session.set_trace(token, waiter.take_trace());
        self.waiters.insert(token, waiter);
        token
    }

    const fn next_token(&mut self) -> Token {
        self.last_token += 1;
        Token(self.last_token)
    }

    /// Asks for a sign of life, unless one is asked for already.
    fn probe(&mut self, now: Instant, done: oneshot::Sender<()>) {
        if let Some((_, waiting)) = &mut self.probe {
            waiting.retain(|done| !done.is_closed());
            return waiting.push(done);
        }
        let token = self.next_token();
        self.probe = Some((token, vec![done]));
        self.session.submit(now, token, RouteKey::NONE, sign_of_life());
    }

    /// What waits for a connection, or for a place on it, leaves with whoever waited for it.
    fn take_back(&mut self) {
        if self.session.holds_back() {
            let waiters = &self.waiters;
            self.session.take_back(|token| waiters.get(&token).is_some_and(Waiter::is_gone));
            self.deliver();
        }
    }

    /// Hands out what the session says. Whoever does not wait any more misses nothing.
    fn deliver(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                SessionEvent::Dial { link } => self.dial(link),
                SessionEvent::HangUp { link, ending, reason } => self.hang_up(link, ending, &reason),
                SessionEvent::State(state) => {
                    if let (true, Some(handover)) = (state.is_connected(), &self.board.handover) {
                        handover.note_installed();
                    }
                    self.board.state.send_replace(state);
                }
                SessionEvent::Connected { link, generation, session_id, features } => {
                    self.handshake.send_replace(Handshake::Done(Facts { link, generation, session_id, features }));
                }
                SessionEvent::Rejected(error) => {
                    self.handshake.send_replace(Handshake::Failed(error));
                }
                SessionEvent::Over { reason, state } => self.conclude(&reason, state),
                SessionEvent::Sent { token } => {
                    if let Some(waiter) = self.waiters.get_mut(&token) {
                        waiter.span.left_queue();
                    }
                }
                SessionEvent::Answer { token, result } => {
                    if let Some(waiter) = self.waiters.remove(&token) {
                        waiter.answer(result);
                    } else if let Some((_, waiting)) = self.probe.take_if(|(probe, _)| *probe == token) {
                        for done in waiting {
                            // Whoever asked may be gone.
                            let _ = done.send(());
                        }
                    }
                }
                SessionEvent::Event { route, event } => {
                    if let Some(sink) = self.sinks.get(&route) {
                        sink.send(Ok(event));
                    }
                }
                SessionEvent::Denial { route, denial } => {
                    if let Some(sink) = self.sinks.get(&route) {
                        sink.note_denial(denial);
                    }
                }
                SessionEvent::Failed { route, error } => {
                    if let Some(sink) = self.sinks.get(&route) {
                        sink.send(Err(error));
                    }
                }
                SessionEvent::MissingChanged { watch_id } => self.board.watches.changed(watch_id),
                SessionEvent::BodyDelta(delta) => self.board.bodies.handle_delta(*delta),
                SessionEvent::End { reason, ending } => self.end = Some((reason, ending)),
            }
        }
    }

    fn dial(&mut self, link: LinkId) {
        self.stirred = true;
        // A session that dials has a connector.
        let Some(connector) = self.connector.clone() else { return };
        self.dialling = Some((link, Box::pin(async move { connector.connect().await })));
    }

    fn hang_up(&mut self, link: LinkId, ending: Ending, reason: &Arc<str>) {
        self.stirred = true;
        self.board.note_end(reason);
        self.board.watches.interrupt();
        self.board.bodies.end_of(link, reason);
        if let Some(wire) = self.wire.take_if(|wire| wire.link == link) {
            // An earlier one had its time.
            self.hanging_up = wire.hang_up(ending);
        }
    }

    /// Ends what belongs to the session, and then says that it is over. From that moment on there may be another one, to which
    /// nothing is to be done from here.
    fn conclude(&self, reason: &Arc<str>, state: ConnectionState) {
        self.board.note_end(reason);
        self.board.bodies.end(reason);
        if self.connector.is_some() {
            self.board.watches.interrupt();
        } else {
            self.board.watches.end();
        }
        self.handshake.send_if_modified(|handshake| {
            let pending = matches!(handshake, Handshake::Pending);
            if pending {
                let disconnected = Disconnected { sent: Sent::Unknown, reason: Arc::clone(reason) };
                *handshake = Handshake::Failed(disconnected.into());
            }
            pending
        });
        // Set once, and here only.
        let _ = self.reason.set(Arc::clone(reason));
        self.board.state.send_replace(state);
    }

    /// Refuses what is still asked for, and closes the connection.
    async fn finish(mut self, reason: Arc<str>, ending: Ending) {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Call { waiter, .. } | Command::Follow { waiter, .. } = command {
                let disconnected = Disconnected { sent: Sent::NotSent, reason: Arc::clone(&reason) };
                waiter.answer(Err(disconnected.into()));
            }
        }
        self.waiters.clear();
        self.sinks.clear();
        drop(self.dialling);
        if let Some(wire) = self.wire {
            wire.close(ending).await;
        }
        if let Some(hanging_up) = self.hanging_up {
            hanging_up.await;
        }
        self.ended.send_replace(true);
    }
}

/// A call that any peer answers that lives, and for which there is a place also when all others are taken.
fn sign_of_life() -> Op {
    let encode = |id: &RequestId| codec::encode_request::<method::Status>(id, &NoParams);
    Op::Ask(Box::new(Ask { method: method::Status::NAME, cleanup: true, on: None, encode: Box::new(encode) }))
}

/// Commands and messages taken before the others have their turn.
const BATCH: usize = 32;

/// Rounds before other tasks have their turn.
const ROUNDS: usize = 16;
