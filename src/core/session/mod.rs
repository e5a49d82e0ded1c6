//! The client's side of a session, over one connection after another.
//!
//! ```text
//!          connect          dialled                answered
//!   Idle ──────────▶ Away ───────────▶ Handshaking ─────────▶ Open
//!                    ▲  │                │  │                 │  │
//!                    │  │                │  │ refused         │  │ leave, closed, no way back
//!                    │  └─ given up ─────│──┴────▶ Ended ◀────│──┘
//!                    └─ broken, retryable┴────────────────────┘
//! ```
//!
//! A session that cannot dial begins in Handshaking, and ends with its connection. One that can goes back to Away
//! ([`recovery`](super::recovery)), keeps its processes and what waits for them, and resumes: what a break means for each
//! thing is in [`lost`]. Closing is beside all that: while it lasts, stops are on their way.
//!
//! A fresh session sends `initialize`, `initialized` and first requests in one flight; what depends on the peer's
//! answer is held until it has come. A resumed session holds everything: the reference drops a connection that goes on
//! behind a refused resume.
//!
//! After any input, poll in this order until each has nothing more: [`Session::poll_transmit`],
//! [`Session::poll_event`], then [`Session::poll_timeout`]. A message that `poll_transmit` returned counts as sent.
//!
//! Invariants, with the numbers of the design rules:
//! 1. and 2. For events: see [`inbox`].
//! 3. A piece of a write has one id, and goes out once on each connection.
//! 4. Every call that was submitted is answered exactly once: value, error, or disconnected.
//! 5. What a reader gets does not depend on how events are split between notifications and reads.
//! 6. Calls, pieces, reads and answers in flight are bounded, and so is what is held of every process.
//! 7. A spurious timeout or an old duplicate changes nothing.
//! 8. With nothing outstanding there is no timeout.
//!
//! What is said of a connection that is not the present one changes nothing.

mod answer;
mod ending;
mod events;
mod handshake;
pub(crate) mod inbox;
mod input;
mod link;
mod lost;
mod op;
mod outbox;
mod route;
mod start;
mod submit;
mod take_back;
#[cfg(test)]
mod tests;
mod traces;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use self::handshake::Facts;
use self::input::PieceId;
use self::link::Settling;
use self::route::{Kind, Names, Outgoing, Route};
use self::traces::Traces;
use super::calls::{Calls, Class};
use super::recovery::Recovery;
use crate::config::ClientConfig;
use crate::error::{ConnectError, Disconnected, PeerMisbehaved, RpcError, Sent, WaitError};
use crate::event::Event;
use crate::info::Features;
use crate::request::ProcessId;
use crate::sandbox::Denial;
use crate::time::Instant;
use crate::wire::codec::{self, Message, Payload, hot};
use crate::wire::http::BodyDeltaParams;
use crate::wire::process::TerminateParams;
use crate::wire::trace::Trace;
use crate::wire::{ErrorCode, RequestId};

pub use self::link::ConnectionState;
pub(crate) use self::link::{LinkId, SIGN_OF_LIFE};
pub(crate) use self::op::{Answer, Ask, Consumption, Failure, Mode, Op, RouteKey, Started, Token};
pub use self::op::{ListedProcess, ProcessState};

/// The state machine.
#[derive(Debug)]
pub(crate) struct Session {
    config: ClientConfig,
    state: State,
    /// Since it is being closed: when it has taken long enough. Within, none: the grace time is beyond what a clock can
    /// express.
    closing: Option<Option<Instant>>,
    /// Whether it comes back when a connection breaks.
    recovers: bool,
    /// Which of the place's sessions this is.
    epoch: u64,
    /// How many connections have stood.
    generation: u64,
    /// The present connection, or the last attempt at one.
    link: LinkId,
    last_dial: Option<Instant>,
    not_before: Option<Instant>,
    faults: u32,
    last_fault: Option<Instant>,
    /// The id by which it is resumed, once known.
    session_id: Option<String>,
    facts: Option<Facts>,
    /// The messages of the handshake.
    greeting: VecDeque<Outgoing>,
    calls: Calls<Call>,
    outbox: VecDeque<Outgoing>,
    /// What was asked for while there was no connection, and what has to stay behind it.
    parked: VecDeque<Outgoing>,
    /// Answers to requests of the peer in the outbox.
    replies: usize,
    /// Calls that wait for what the peer says of itself.
    held: VecDeque<Held>,
    routes: HashMap<RouteKey, Route>,
    by_id: HashMap<ProcessId, RouteKey>,
    /// Processes with input to send, in turn.
    input_ready: VecDeque<RouteKey>,
    /// Processes that want a read, in turn.
    read_ready: VecDeque<RouteKey>,
    reads: usize,
    /// Pieces of input on the wire.
    pieces: usize,
    /// Stops, and other calls that clean up, that wait for a place.
    cleanups: VecDeque<Cleanup>,
    cleanup_waits_since: Option<Instant>,
    /// Processes with something to acknowledge, and when that is due.
    acks: BTreeSet<RouteKey>,
    /// The last acknowledgements of processes that are forgotten here: the peer keeps what it has of them until then.
    last_acks: Vec<(ProcessId, u64)>,
    /// Those that were sent, with the last call before: the answer to a later one shows that they arrived.
    unconfirmed: VecDeque<(i64, Vec<(ProcessId, u64)>)>,
    ack_at: Option<Instant>,
    acks_due: bool,
    ack_queued: bool,
    timers: BTreeSet<(Instant, RouteKey)>,
    /// Processes of a plain peer whose readers are given until then to make room.
    pauses: BTreeMap<RouteKey, Instant>,
    no_pause_until: Option<Instant>,
    /// The traces of calls that have not ended.
    traces: Traces,
    events: VecDeque<SessionEvent>,
    scratch: Vec<Event>,
    /// Makes write ids unique among all clients that a session ever has.
    write_prefix: String,
    /// The number of the last piece of input.
    last_piece: u64,
}

#[derive(Debug)]
enum State {
    /// Nothing has needed a connection yet.
    Idle,
    /// There is none.
    Away(Box<Recovery>),
    Handshaking {
        /// The number of the request.
        call: i64,
        sent: bool,
        deadline: Instant,
        /// The peer still holds the session for an earlier connection, and is asked again then.
        again: Option<Instant>,
        recovery: Option<Box<Recovery>>,
    },
    Open {
        settling: Option<Box<Settling>>,
    },
    Ended {
        reason: Arc<str>,
    },
}

/// What becomes of an answer.
#[derive(Debug)]
enum Call {
    Start { route: RouteKey, token: Token, names: Box<Names> },
    Piece { route: RouteKey, piece: PieceId, close: bool, again: bool },
    Read { route: RouteKey },
    Stop { route: RouteKey, token: Option<Token>, params: TerminateParams },
    Act { token: Token, process_id: ProcessId, method: &'static str },
    List(Token),
    Status(Token),
    Info,
    Ask { token: Token, on: Option<LinkId>, cleanup: bool },
}

impl Call {
    /// Whether it comes before what waited for a connection.
    const fn is_urgent(&self) -> bool {
        matches!(self, Self::Stop { .. } | Self::Info)
    }
}

impl Call {
    /// Who waits for it, if that is one caller.
    const fn token(&self) -> Option<Token> {
        match self {
            Self::Start { token, .. } | Self::Act { token, .. } | Self::Ask { token, .. } => Some(*token),
            Self::Stop { token, .. } => *token,
            Self::List(token) | Self::Status(token) => Some(*token),
            Self::Piece { .. } | Self::Read { .. } | Self::Info => None,
        }
    }
}

#[derive(Debug)]
struct Held {
    token: Token,
    route: RouteKey,
    op: Op,
}

#[derive(Debug)]
enum Cleanup {
    Stop { route: RouteKey, token: Option<Token>, params: TerminateParams },
    Ask { token: Token, ask: Box<Ask> },
}

impl Cleanup {
    const fn token(&self) -> Option<Token> {
        match self {
            Self::Stop { token, .. } => *token,
            Self::Ask { token, .. } => Some(*token),
        }
    }
}

/// What the session tells its driver.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// A connection is to be made, and reported by [`Session::handle_dialled`].
    Dial { link: LinkId },
    /// This connection is to be closed.
    HangUp { link: LinkId, ending: Ending, reason: Arc<str> },
    /// How the connection is.
    State(ConnectionState),
    /// The handshake is done.
    Connected { link: LinkId, generation: u64, session_id: String, features: Features },
    /// No handshake was ever done; the end follows.
    Rejected(ConnectError),
    /// It is over, and this is its last state. What belongs to it ends before anybody is told; its calls and processes follow.
    Over { reason: Arc<str>, state: ConnectionState },
    /// The request of a call was handed to the transport. It is told only where somebody measures.
    Sent { token: Token },
    /// A call has ended.
    Answer { token: Token, result: Result<Answer, Failure> },
    /// An event for the reader of a process.
    Event { route: RouteKey, event: Event },
    /// The evidence of a denial, before the exit that it belongs to.
    Denial { route: RouteKey, denial: Denial },
    /// The last thing that the reader of a process hears.
    Failed { route: RouteKey, error: WaitError },
    /// The paths of a watch may exist now.
    MissingChanged { watch_id: u64 },
    /// A piece of the body of an HTTP response.
    BodyDelta(Box<BodyDeltaParams>),
    /// The connection is to be closed, or is gone. Nothing follows.
    End { reason: Arc<str>, ending: Ending },
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By this end, in good order.
    Normal,
    /// The peer broke the protocol.
    ProtocolError,
    /// The peer sent a message above the limit.
    TooLarge,
    /// It is gone already, or of no use any more.
    Lost,
}

impl Session {
    /// A session over a connection made at `now`, the first and last one. `nonce` is to be another one for every client of a
    /// session.
    pub(crate) fn new(config: ClientConfig, mode: Mode, nonce: &str, now: Instant) -> Self {
        let mut session = Self::without_connection(config, nonce);
        session.session_id = match mode {
            Mode::Fresh => None,
            Mode::Resume(id) => Some(id),
        };
        session.link = LinkId::FIRST;
        session.publish(ConnectionState::Connecting);
        session.begin_handshake(now, None);
        session
    }

    /// A session that dials when a connection is needed, and again when it breaks, if it `recovers`. It is number `epoch` of
    /// its place, after `generations` connections, and does not dial before `not_before`.
    pub(crate) fn dialling(
        config: ClientConfig,
        nonce: &str,
        recovers: bool,
        epoch: u64,
        generations: u64,
        not_before: Option<Instant>,
    ) -> Self {
        let mut session = Self::without_connection(config, nonce);
        session.recovers = recovers;
        session.epoch = epoch;
        // No two connections of a place have the same number, whichever session they are of.
        session.link = LinkId(epoch.saturating_sub(1) << 32);
        session.generation = generations;
        session.not_before = not_before;
        session
    }

    fn without_connection(config: ClientConfig, nonce: &str) -> Self {
        Self {
            calls: Calls::new(config.max_calls.max(1)),
            config,
            state: State::Idle,
            closing: None,
            recovers: false,
            epoch: 1,
            generation: 0,
            link: LinkId(0),
            last_dial: None,
            not_before: None,
            faults: 0,
            last_fault: None,
            session_id: None,
            facts: None,
            greeting: VecDeque::new(),
            outbox: VecDeque::new(),
            parked: VecDeque::new(),
            replies: 0,
            held: VecDeque::new(),
            routes: HashMap::new(),
            by_id: HashMap::new(),
            input_ready: VecDeque::new(),
            read_ready: VecDeque::new(),
            reads: 0,
            pieces: 0,
            cleanups: VecDeque::new(),
            cleanup_waits_since: None,
            acks: BTreeSet::new(),
            last_acks: Vec::new(),
            unconfirmed: VecDeque::new(),
            ack_at: None,
            acks_due: false,
            ack_queued: false,
            timers: BTreeSet::new(),
            pauses: BTreeMap::new(),
            no_pause_until: None,
            traces: Traces::default(),
            events: VecDeque::new(),
            scratch: Vec::new(),
            write_prefix: format!("{nonce}-"),
            last_piece: 0,
        }
    }

    /// A message has come over the connection `link`.
    pub(crate) fn handle_message(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        if !self.is_on(link) {
            return;
        }
        if let Some(output) = hot::decode_output(message, &self.config.messages) {
            if let Some(route) = self.by_id.get(output.process_id).copied() {
                self.handle_output(now, route, output.seq, output.stream, output.chunk);
            }
            return;
        }
        let mut settled = None;
        if let Some(hot::FileBytes { id, bytes, eof }) = hot::decode_file_bytes(message, &self.config.messages) {
            match self.settle(&id) {
                Some(Call::Ask { token, .. }) => return self.answer(token, Ok(Answer::FileBytes { bytes, eof })),
                Some(other) => settled = Some(other),
                None => return,
            }
        }
        match codec::decode(message, &self.config.messages) {
            Ok(Message::Notification { method, params }) => self.handle_notification(now, &method, params),
            Ok(Message::Response { id, result }) => self.handle_response(now, &id, settled, Ok(result)),
            Ok(Message::Error { id: RequestId::MALFORMED, error }) => {
                self.fault(now, PeerMisbehaved::ReportedMalformed(error.message));
            }
            Ok(Message::Error { id, error }) => self.handle_response(now, &id, None, Err(error)),
            Ok(Message::Request { id, method, .. }) => self.handle_request(now, &id, &method),
            Err(error) => self.fault(now, error.into()),
        }
        self.note_settled();
        self.finish_closing();
    }

    /// An answer has come, to a call that was found already or is yet to be found.
    fn handle_response(
        &mut self,
        now: Instant,
        id: &RequestId,
        settled: Option<Call>,
        answer: Result<Payload<'_>, RpcError>,
    ) {
        if matches!(&answer, Err(error) if is_transport_loss(error)) && self.is_awaited(id) {
            let reason: Arc<str> = "the peer has lost the connection".into();
            let error = Disconnected { sent: Sent::Unknown, reason: Arc::clone(&reason) };
            return self.lose(now, reason, Ending::Lost, error.into());
        }
        if let State::Handshaking { call, sent: true, .. } = &self.state
            && RequestId::Number(*call) == *id
        {
            return self.handle_initialize(now, answer);
        }
        if let Some(call) = settled.or_else(|| self.settle(id)) {
            self.handle_answer(now, call, answer);
        }
    }

    /// Whether an answer of this number has a meaning.
    fn is_awaited(&self, id: &RequestId) -> bool {
        let RequestId::Number(id) = id else { return false };
        let shaking = matches!(&self.state, State::Handshaking { call, sent: true, .. } if call == id);
        shaking || self.calls.is_sent(*id)
    }

    fn settle(&mut self, id: &RequestId) -> Option<Call> {
        let RequestId::Number(id) = *id else { return None };
        let call = self.calls.settle(id)?;
        if matches!(call, Call::Piece { .. }) {
            self.pieces = self.pieces.saturating_sub(1);
        }
        // What went out before that call has arrived too.
        while self.unconfirmed.front().is_some_and(|(before, _)| *before < id) {
            self.unconfirmed.pop_front();
        }
        Some(call)
    }

    /// A moment that [`Self::poll_timeout`] named has come, or not.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.closing.flatten().is_some_and(|deadline| deadline <= now) && !self.is_ended() {
            return self.close_now();
        }
        // Whatever becomes of the connection, what else is due now is done now as well.
        match &self.state {
            State::Handshaking { again: Some(at), .. } if *at <= now => self.shake_again(now),
            State::Handshaking { again: None, deadline, .. } if *deadline <= now => self.handshake_timed_out(now),
            State::Handshaking { .. } | State::Idle | State::Away(_) | State::Open { .. } | State::Ended { .. } => {}
        }
        if self.cleanup_deadline().is_some_and(|deadline| deadline <= now) {
            let stuck: Arc<str> = STUCK.into();
            let error = Disconnected { sent: Sent::Unknown, reason: Arc::clone(&stuck) };
            self.lose(now, stuck, Ending::Lost, error.into());
        }
        // Another connection may be due as soon as one is lost.
        self.handle_away_timeout(now);
        if self.is_ended() {
            return;
        }
        if self.ack_at.is_some_and(|due| due <= now) {
            self.ack_at = None;
            self.acks_due = true;
        }
        let pauses = self.pauses.len();
        self.pauses.retain(|_, until| *until > now);
        if self.pauses.len() < pauses {
            self.no_pause_until = Some(now + PAUSE_RECOVERY);
        }
        if self.settling().is_some_and(|settling| settling.deadline() <= now) {
            self.settling_timed_out(now);
        }
        // Each has one turn, whatever its own turn or that of another leads to.
        let due: Vec<_> = self.timers.iter().take_while(|(due, _)| *due <= now).copied().collect();
        for timer in due {
            if self.timers.remove(&timer) {
                self.handle_route_timeout(now, timer.1);
            }
        }
    }

    /// The next thing that the driver is to do.
    pub(crate) fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] is to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let state = match &self.state {
            State::Handshaking { again, deadline, .. } => Some(again.unwrap_or(*deadline)),
            State::Away(recovery) => Some(recovery.poll_timeout()),
            State::Open { settling } => settling.as_ref().map(|settling| settling.deadline()),
            State::Idle => None,
            State::Ended { .. } => return None,
        };
        let closing = self.closing.flatten();
        let timer = self.timers.first().map(|(due, _)| *due);
        let pause = self.pauses.values().min().copied();
        [state, closing, timer, self.ack_at, self.cleanup_deadline(), pause].into_iter().flatten().min()
    }

    /// Whether messages should rather stay with the peer for a moment. A plain peer does not know how far a reader is, and
    /// what a reader has no room for is let go. One that is only a little slower than its process is given a short while
    /// instead, in which the peer's own queue fills and the process waits. A reader that takes longer holds nobody up.
    pub(crate) fn is_paused(&self) -> bool {
        !self.pauses.is_empty()
    }

    /// Whether nothing follows any more.
    pub(crate) const fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended { .. })
    }

    fn features(&self) -> Features {
        self.facts.as_ref().map_or_else(Features::default, |facts| facts.features)
    }

    /// Whether requests may leave.
    const fn may_send(&self) -> bool {
        match &self.state {
            State::Handshaking { .. } => self.session_id.is_none(),
            State::Open { .. } => true,
            State::Idle | State::Away(_) | State::Ended { .. } => false,
        }
    }

    /// Whether what is said of this connection counts.
    fn is_on(&self, link: LinkId) -> bool {
        link == self.link && matches!(self.state, State::Handshaking { .. } | State::Open { .. })
    }

    fn handle_request(&mut self, now: Instant, id: &RequestId, method: &str) {
        if !matches!(id, RequestId::Number(0..)) {
            return self.fault(now, PeerMisbehaved::Protocol(format!("a request with the id {id}")));
        }
        if self.replies >= MAX_REPLIES {
            return self.fault(now, PeerMisbehaved::Protocol("more requests than answers are taken".into()));
        }
        self.replies += 1;
        // The answer waits here, so that its size must not be the peer's to choose.
        let method: String = method.chars().take(MAX_ECHOED_CHARS).collect();
        let error = RpcError {
            code: ErrorCode::METHOD_NOT_FOUND.0,
            message: format!("method `{method}` is not supported"),
            data: None,
        };
        let bytes = codec::encode_error(id, &error);
        self.outbox.push_back(Outgoing { kind: Kind::Reply, bytes });
    }

    fn answer(&mut self, token: Token, result: Result<Answer, Failure>) {
        self.traces.end(token);
        self.events.push_back(SessionEvent::Answer { token, result });
    }

    /// The call `token`, which is about to be made, belongs to this trace. What is sent piece by piece belongs to none.
    pub(crate) fn set_trace(&mut self, token: Token, trace: Trace) {
        self.traces.begin(token, trace);
    }
}

/// How older peers say that a connection is gone.
fn is_transport_loss(error: &RpcError) -> bool {
    error.code == -32_000 && error.message == "JSON-RPC transport closed"
}

/// Whether it is told when calls leave.
const TELLS_SENT: bool = cfg!(feature = "metrics");

/// Answers to requests of the peer that it has not taken yet.
const MAX_REPLIES: usize = 256;

/// So much of what the peer said goes back in an error.
const MAX_ECHOED_CHARS: usize = 256;

/// Acknowledgements wait this long for more of them.
const ACK_DELAY: Duration = Duration::from_millis(25);

/// How long a reader may hold up a plain peer's messages, and how long nobody may after one has used that up.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_RECOVERY: Duration = Duration::from_secs(1);

/// How long a close may take beyond the grace time of its processes.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

const STUCK: &str = "the peer answers no call any more, not even one that cleans up";
