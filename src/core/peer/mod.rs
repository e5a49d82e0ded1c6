//! The server side of a session and of the connection that is attached to it, without I/O.
//!
//! A [`Peer`] is told what happens (`handle_*`) and asked what to do (`poll_*`). Its driver gives it messages, events of
//! processes and the ends of what it asked for, carries out its [`Action`]s, and sends what it hands out. The part of a
//! connection before it has a session is in [`lobby`].
//!
//! ```text
//!                attach                       initialized
//!   detached ──────────────▶ attached, hello ─────────────▶ attached ──┐
//!      ▲  │                        │                           │       │ messages, events, completions
//!      │  │ time to live is over   │ disconnect                │  ◀────┘
//!      │  ▼                        │                           │
//!      │ expired                   │                           │
//!      └───────────────────────────┴───────────────────────────┘
//!
//!   process:  (free) ─ start ─▶ starting ─ started ─▶ running ─▶ exited ─▶ closed ─ retention is over ─▶ (free)
//!                                  └─ failed, cancelled ─▶ (free)
//! ```
//!
//! The time for which a closed process is kept does not run while its client could not have seen its end: see
//! [`retention`].
//!
//! Order of polling: [`Peer::poll_action`] until none, [`Peer::poll_transmit`] while the connection takes messages, then
//! [`Peer::poll_timeout`]. Any input may make work for all three.
//!
//! Rules beyond those of [`ProcessLog`](super::replay::ProcessLog) and [`StdinQueue`](super::stdin_queue::StdinQueue):
//!
//! - Requests that name one process take effect in the order in which they came. While it is being started they wait;
//!   a terminate does not wait but cancels the start. A waiting read delays nothing.
//! - Answers go out before output, save those with many bytes of files, which take turns with it. A process's first
//!   event goes out after the answer to its start. Processes with output and bodies of responses take turns, one event
//!   each.
//! - For files see [`files`], for HTTP [`http`].
//! - What was not answered when a connection ends has no answer (house invariant 4), and if it was waiting, no effect.
//! - All that is held is bounded (6): processes, closed ones apart, calls without an answer, and bytes of such calls by refusal; answers
//!   that the client does not take by not reading further ([`Peer::wants_input`]); output by pausing its process
//!   ([`Peer::wants_output`]).
//! - A spurious timeout, and the end of an action of a process that is no longer known, change nothing (7).
//! - Without work, [`Peer::poll_timeout`] is what retention and the time to live need (8).

mod action;
mod calls;
mod fault;
mod files;
mod fit;
mod http;
mod incoming;
pub(crate) mod lobby;
mod process;
mod record;
mod reply;
mod request;
mod retention;
mod start;
mod timers;
mod transmit;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) use self::action::{
    Action, Completion, FileJob, FileKey, FileResult, HttpHead, HttpKey, StartFacts, Ticket,
};
pub(crate) use self::fault::Fault;
use self::files::Files;
use self::http::Http;
pub(crate) use self::process::ProcessKey;
use self::process::{Phase, Process, Processes};
#[cfg(any(feature = "tracing", feature = "metrics"))]
pub(crate) use self::record::Fate;
pub(crate) use self::record::Number;
use self::record::Records;
use self::reply::Reply;
pub(crate) use self::request::Call;
pub(crate) use self::request::Offers;
use self::retention::ClosedOrder;
use self::timers::{Timer, Timers};
use super::replay::Reader;
use crate::config::ServerConfig;
use crate::error::WaitError;
use crate::event::Event;
use crate::info::{EnvironmentInfo, Features};
use crate::request::ProcessId;
use crate::sandbox::Denial;
use crate::time::{Instant, after};
use crate::wire;
use crate::wire::RequestId;
use crate::wire::extension::Offer;
use crate::wire::initialize::InitializeResult;

/// One session. See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct Peer {
    session_id: String,
    config: Arc<ServerConfig>,
    /// What this server could do for a client that asks for it.
    offered: Features,
    /// What the place offers besides processes.
    offers: Offers,
    /// What the place said of itself when the client was attached.
    info: Option<EnvironmentInfo>,
    connection: Option<Connection>,
    /// How many connections there have been.
    connections: u64,
    /// When the session is over, if nobody comes back.
    expires_at: Option<Instant>,
    processes: Processes,
    /// The closed ones, in the order in which they closed.
    closed: ClosedOrder,
    /// Those with something to send, in turn.
    round: VecDeque<Turn>,
    timers: Timers,
    actions: VecDeque<Action>,
    /// Bytes of writes that were accepted and are not yet done, or wait, beyond what every process may have of them.
    stdin_excess: usize,
    next_read: u64,
    last_ticket: u64,
    records: Records,
    shutting_down: bool,
}

/// Whose turn it is to send something.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Process(ProcessKey),
    Body(HttpKey),
}

/// The attached connection.
#[derive(Debug)]
struct Connection {
    number: u64,
    initialized: bool,
    /// What both sides have.
    features: Features,
    answers: VecDeque<(RequestId, Reply)>,
    answer_bytes: usize,
    /// Calls without an answer, and the bytes of their messages.
    calls: usize,
    call_bytes: usize,
    files: Files,
    http: Http,
}

/// Stop reading from a client that leaves so many of its answers unread.
const MAX_ANSWERS: usize = 1_024;
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Calls and bytes beyond the limits, for requests that do not wait for a process.
const RESERVED_CALLS: usize = 64;
const RESERVED_BYTES: usize = 1 << 20;

/// Longest id of a request, and of the body of a response. The reference has no limit; ids go wherever their requests wait, and clients count.
const MAX_REQUEST_ID_BYTES: usize = 1 << 10;

impl Peer {
    /// A session that nobody is attached to yet, in a place with these features and offers.
    pub(crate) fn new(
        session_id: String,
        config: Arc<ServerConfig>,
        backend: Features,
        offers: Offers,
        now: Instant,
    ) -> Self {
        let expires_at = Some(after(now, config.session_ttl));
        Self {
            session_id,
            config,
            // Acknowledgements, the list and the pace of bodies need nothing of the backend.
            offered: Features {
                credits: true,
                list: true,
                fs: backend.fs && offers.files,
                http: offers.http,
                ..backend
            },
            offers,
            info: None,
            connection: None,
            connections: 0,
            expires_at,
            processes: Processes::default(),
            closed: ClosedOrder::default(),
            round: VecDeque::new(),
            timers: Timers::default(),
            actions: VecDeque::new(),
            stdin_excess: 0,
            next_read: 0,
            last_ticket: 0,
            records: Records::default(),
            shutting_down: false,
        }
    }

    pub(crate) fn session_id(&self) -> &str {
        &self.session_id
    }

    /// A client is attached by the request `id`, which is answered. `offer` is what it has beyond the plain wire.
    pub(crate) fn attach(&mut self, now: Instant, id: RequestId, offer: Option<&Offer>, info: EnvironmentInfo) {
        debug_assert!(self.connection.is_none(), "one connection at a time");
        let asked = offer.map_or_else(Features::default, Offer::known);
        let features = self.offered.intersection(asked);
        let reader = if features.credits { Reader::Credits } else { Reader::Plain };
        self.connections += 1;
        self.expires_at = None;
        self.info = Some(info.clone());
        let mut has_backlog = false;
        for key in self.processes.keys() {
            let Some(process) = self.processes.get_mut(key) else { continue };
            process.log.attach(reader);
            has_backlog |= process.log.has_backlog();
            self.update_retention(now, key);
        }
        if has_backlog {
            self.timers.insert(after(now, BACKLOG_PATIENCE), Timer::Backlog { connection: self.connections });
        }
        self.connection = Some(Connection {
            number: self.connections,
            initialized: false,
            features,
            answers: VecDeque::new(),
            answer_bytes: 0,
            calls: 0,
            call_bytes: 0,
            files: Files::default(),
            http: Http::default(),
        });
        let result = InitializeResult {
            session_id: self.session_id.clone(),
            environment_info: Some(self.environment_info(info)),
        };
        self.push_answer(id, Reply::Initialize(Box::new(result)));
    }

    /// The connection is gone. Its calls end without an answer. Returns when the session is over if nobody comes back.
    pub(crate) fn handle_disconnect(&mut self, now: Instant) -> Option<Instant> {
        let connection = self.connection.take()?;
        self.expires_at = Some(after(now, self.config.session_ttl));
        if connection.files.is_used() {
            self.actions.push_back(Action::ForgetFiles);
        }
        if connection.http.is_used() {
            self.actions.push_back(Action::ForgetAllHttp);
        }
        self.round.clear();
        for key in self.processes.keys() {
            let Some(process) = self.processes.get_mut(key) else { continue };
            process.in_round = false;
            process.log.detach();
            for read in process.reads.drain(..) {
                self.timers.remove(read.deadline, Timer::Read { process: key, read: read.serial });
            }
            if let Phase::Starting { held, .. } = &mut process.phase {
                held.clear();
            }
            self.with_stdin(key, |stdin| stdin.abandon_waiting());
            self.update_retention(now, key);
        }
        self.expires_at
    }

    /// Whether the session's time is over.
    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        self.expires_at.is_some_and(|at| now >= at)
    }

    /// The next thing for the driver to do.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Self::handle_timeout`] has something to do, or the session is over.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match (self.timers.first(), self.expires_at) {
            (Some(timer), Some(expiry)) => Some(timer.min(expiry)),
            (timer, expiry) => timer.or(expiry),
        }
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Read { process, read } => self.end_waiting_read(process, read),
                Timer::Retention { process } => self.forget(process),
                Timer::Backlog { connection } => {
                    if self.connections == connection {
                        for key in self.processes.keys() {
                            if let Some(process) = self.processes.get_mut(key) {
                                process.log.release_backlog();
                            }
                        }
                    }
                }
            }
        }
    }

    /// Whether more messages may be read: not while the client leaves its answers unread.
    pub(crate) fn wants_input(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| {
            connection.answers.len() < MAX_ANSWERS && connection.answer_bytes < MAX_ANSWER_BYTES
        })
    }

    /// Whether there is nothing more to be known of `process`: its log is closed, or it is forgotten.
    pub(crate) fn is_closed(&self, process: ProcessKey) -> bool {
        self.processes.get(process).is_none_or(|process| process.log.close().is_some())
    }

    /// Whether the events of `process` may be pulled.
    pub(crate) fn wants_output(&self, process: ProcessKey) -> bool {
        self.processes.get(process).is_some_and(|process| process.log.wants_output())
    }

    /// The evidence of a denial, before the exit that it belongs to.
    pub(crate) fn handle_denial(&mut self, key: ProcessKey, denial: &Denial) {
        if let Some(process) = self.processes.get_mut(key) {
            process.denial = Some(denial.into());
        }
    }

    /// An event of a process, the failure of its backend, or the end of its events without a close.
    pub(crate) fn handle_event(&mut self, now: Instant, key: ProcessKey, event: Option<Result<Event, WaitError>>) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let log = &mut process.log;
        if log.close().is_some() {
            return;
        }
        // An event that the log takes for the end is one that cannot be counted.
        let may_fail = !matches!(&event, Some(Ok(Event::Closed(_)) | Err(_)) | None);
        match event {
            Some(Ok(Event::Output(output))) => log.push_output(output.stream, output.bytes),
            Some(Ok(Event::Gap(gap))) => {
                log.push_gap(gap.last_seq.saturating_sub(gap.first_seq).saturating_add(1), gap.bytes);
            }
            Some(Ok(Event::Exited(exited))) => log.push_exit(exited.status, exited.sandbox_denied),
            Some(Ok(Event::Closed(closed))) => log.push_close(closed.totals, closed.cut),
            Some(Err(error)) => log.fail(error.to_string()),
            None => log.fail("the backend ended its events before their end".into()),
        }
        if may_fail && log.close().is_some() {
            // Nobody follows it any more, so it must not run on unseen.
            let grace = std::time::Duration::ZERO;
            self.actions.push_back(Action::Terminate { process: key, grace, descendants: true, call: None });
        }
        self.after_event(now, key);
    }

    /// Ends everything: every process is asked to stop, starts are cancelled, nothing new is started.
    pub(crate) fn begin_shutdown(&mut self, now: Instant) {
        self.shutting_down = true;
        for key in self.processes.keys() {
            let Some(process) = self.processes.get(key) else { continue };
            if process.is_starting() {
                self.cancel_start(now, key);
            } else if process.log.close().is_none() {
                let grace = self.config.shutdown_grace;
                self.actions.push_back(Action::Terminate { process: key, grace, descendants: true, call: None });
            }
        }
    }

    /// Whether all processes are closed, no file is being changed, and the client was handed all that there was to say.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_changing = self.connection.as_ref().is_some_and(|connection| connection.files.is_changing());
        self.unfinished().next().is_none() && !is_changing && !self.wants_transmit(true)
    }

    /// The processes that have not ended themselves. What an exited one left behind is no longer the session's, though
    /// it may still hold the streams.
    pub(crate) fn running(&self) -> impl Iterator<Item = ProcessKey> {
        self.processes.iter().filter(|(_, process)| process.log.exit().is_none()).map(|(key, _)| key)
    }

    /// The processes whose tree may still live, as far as can be known: those that are not closed.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = ProcessKey> {
        self.processes.iter().filter(|(_, process)| process.log.close().is_none()).map(|(key, _)| key)
    }

    fn after_event(&mut self, now: Instant, key: ProcessKey) {
        self.enter_round(key);
        self.wake_reads(key);
        if self.processes.get(key).is_some_and(|process| process.log.close().is_some()) {
            self.with_stdin(key, |stdin| stdin.handle_process_closed());
            self.retain(now, key);
        }
    }

    /// The bytes of the call's message are held, and counted, elsewhere from now on.
    fn release_bytes(&mut self, call: &mut Call) {
        let bytes = std::mem::take(&mut call.bytes);
        if let Some(connection) = &mut self.connection
            && connection.number == call.connection
        {
            connection.call_bytes -= bytes;
        }
    }

    fn answer(&mut self, call: Call, reply: Reply) {
        let Some(connection) = &mut self.connection else { return };
        if connection.number != call.connection {
            return;
        }
        connection.calls -= 1;
        connection.call_bytes -= call.bytes;
        self.records.answered(call.number, !matches!(reply, Reply::Fault(_)));
        self.push_answer(call.id, reply);
    }

    fn push_answer(&mut self, id: RequestId, reply: Reply) {
        if let Some(connection) = &mut self.connection {
            connection.answer_bytes += reply::held_bytes(&id, &reply);
            connection.answers.push_back((id, reply));
        }
    }

    fn environment_info(&self, info: EnvironmentInfo) -> wire::environment::EnvironmentInfo {
        reply::environment_info(info, self.offers, self.offered.any().then(|| Offer::of(self.offered)))
    }

    /// The operating system of the place, by which paths are checked.
    fn os(&self) -> Option<&str> {
        self.info.as_ref()?.platform_os.as_deref()
    }

    const fn next_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    fn features(&self) -> Features {
        self.connection.as_ref().map_or_else(Features::default, |connection| connection.features)
    }

    fn reader(&self) -> Reader {
        match &self.connection {
            None => Reader::Detached,
            Some(connection) if connection.features.credits => Reader::Credits,
            Some(_) => Reader::Plain,
        }
    }

    fn process_of(&mut self, id: &ProcessId) -> Option<(ProcessKey, &mut Process)> {
        let key = self.processes.key(id)?;
        Some((key, self.processes.get_mut(key)?))
    }
}

/// Keys of so many processes, for tests of what is kept by them.
#[cfg(test)]
pub(crate) fn keys(count: usize) -> Vec<ProcessKey> {
    (0..count).map(Processes::key_of).collect()
}

/// The method of a request that cannot be read, or is not known: what is counted by method must not be the client's to choose.
const UNREADABLE: &str = "other";

/// How long what came while a plain client was away waits to be read, before its processes go on regardless.
const BACKLOG_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
