//! A client's session and a server's, joined by byte streams with the framing of stdio, on a clock of the test's own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::*;
use crate::config::ServerConfig;
use crate::core::peer::lobby::{self, Step};
use crate::core::peer::{Action, Completion, Offers, Peer, ProcessKey, StartFacts};
use crate::event::{Closed, Exited, Output, OutputStream};
use crate::info::{EnvironmentInfo, Shell};
use crate::status::ExitStatus;

/// One process as the server's backend knows it.
#[derive(Debug, Default)]
pub(super) struct Child {
    pub(super) id: String,
    /// All that it wrote.
    pub(super) written: Vec<u8>,
    /// All that was written to it.
    pub(super) stdin: Vec<u8>,
    pub(super) stdin_closed: bool,
    pub(super) exited: bool,
    pub(super) closed: bool,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Stream {
    flying: Vec<u8>,
    line: Vec<u8>,
}

impl Stream {
    fn send(&mut self, message: &[u8]) {
        self.flying.extend(message);
        self.flying.push(b'\n');
    }

    /// So many bytes arrive; the lines that they complete.
    fn arrive(&mut self, bytes: usize) -> Vec<Vec<u8>> {
        let rest = self.flying.split_off(bytes.min(self.flying.len()));
        let arrived = std::mem::replace(&mut self.flying, rest);
        let mut lines = Vec::new();
        for piece in arrived.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.pop_if(|byte| *byte == b'\n').is_some() {
                lines.push(std::mem::take(&mut self.line));
            }
        }
        lines
    }
}

#[derive(Debug)]
struct Wire {
    link: LinkId,
    forth: Stream,
    back: Stream,
    /// The session at the server's end.
    session: Option<usize>,
    /// The client does not know yet that it is cut.
    cut: bool,
}

#[derive(Debug)]
pub(super) struct ServerSession {
    pub(super) peer: Peer,
    actions: VecDeque<Action>,
    pub(super) children: BTreeMap<ProcessKey, Child>,
    attached: bool,
}

pub(super) struct World {
    pub(super) client: Harness,
    pub(super) sessions: Vec<ServerSession>,
    server_config: Arc<ServerConfig>,
    wire: Option<Wire>,
    /// Sessions whose server has not noticed yet that the connection is gone.
    unnoticed: Vec<usize>,
    /// What came over earlier connections, to be told once more.
    said: Vec<(LinkId, Vec<u8>)>,
    extended: bool,
    counter: u8,
    /// Bytes that have crossed, for tests that cut by count.
    pub(super) crossed: usize,
    /// So many reads are refused next, but not more than three of one process in a row.
    pub(super) refuse: usize,
    refused: BTreeMap<String, usize>,
    /// Reads are not answered at all.
    pub(super) mute: bool,
}

impl World {
    pub(super) fn new(extended: bool, window: usize, deadline: Duration) -> Self {
        let mut config = ClientConfig { max_calls: 16, max_calls_extended: 32, ..ClientConfig::default() };
        config.recovery.deadline = deadline;
        config.initialize_timeout = Duration::from_secs(1_000_000);
        config.cleanup_patience = Duration::from_secs(1_000_000);
        config.output.retained_bytes = window;
        let mut server = ServerConfig::default();
        server.output.retained_bytes = window;
        server.output.chunk_bytes = 16;
        server.session_ttl = Duration::from_secs(2_000_000);
        server.closed_retention = Duration::from_secs(1_000_000);
        let now = Instant::now();
        let session = Session::dialling(config, "nonce", true, 1, 0, None);
        Self {
            client: Harness::with_session(session, now),
            sessions: Vec::new(),
            server_config: Arc::new(server),
            wire: None,
            unnoticed: Vec::new(),
            said: Vec::new(),
            extended,
            counter: 0,
            crossed: 0,
            refuse: 0,
            refused: BTreeMap::new(),
            mute: false,
        }
    }

    /// The client's attempt at a connection succeeds, or not.
    pub(super) fn dial(&mut self, well: bool) {
        let Some(link) = self.client.dials.pop() else { return };
        self.note_hang_ups();
        let error = ConnectError::TimedOut { what: "it", limit: Duration::ZERO };
        let result = if well { Ok(()) } else { Err(error) };
        if self.client.session.handle_dialled(self.client.now, link, result) {
            let (forth, back) = Default::default();
            self.wire = Some(Wire { link, forth, back, session: None, cut: false });
        }
        self.client.drain();
    }

    /// The client hands over messages while there are some.
    pub(super) fn transmit(&mut self, messages: usize) {
        for _ in 0..messages {
            let Some(message) = self.client.session.poll_transmit(self.client.now) else { break };
            if let Some(wire) = &mut self.wire {
                wire.forth.send(&message);
            }
        }
        self.client.drain();
    }

    /// Bytes arrive at the server.
    pub(super) fn forth(&mut self, bytes: usize) {
        let Some(wire) = self.wire.as_mut().filter(|wire| !wire.cut) else { return };
        self.crossed += bytes.min(wire.forth.flying.len());
        for line in wire.forth.arrive(bytes) {
            self.serve(line);
        }
    }

    fn serve(&mut self, line: Vec<u8>) {
        let now = self.client.now;
        let line = Bytes::from(line);
        let Some(wire) = &mut self.wire else { return };
        if let Some(session) = wire.session {
            let message: Value = serde_json::from_slice(&line).unwrap();
            if message["method"] == "process/read" {
                let refused = self.refused.entry(message["params"]["processId"].to_string()).or_default();
                if self.mute {
                    return;
                }
                if self.refuse > 0 && *refused < 3 {
                    (self.refuse, *refused) = (self.refuse - 1, *refused + 1);
                    let error = json!({"id": message["id"], "error": {"code": -32603, "message": "busy"}});
                    return wire.back.send(error.to_string().as_bytes());
                }
                *refused = 0;
            }
            let session = &mut self.sessions[session];
            session.peer.handle_message(now, &line).expect("the client keeps to the protocol");
            return session.collect();
        }
        match lobby::handle_message(&line, &self.server_config.messages, Offers::default()) {
            Step::Reply(reply) => wire.back.send(&reply),
            Step::Drop(error) => panic!("{error}"),
            Step::Initialize { id, params } => {
                let place = match &params.resume_session_id {
                    None => {
                        let id = format!("session-{}", self.sessions.len());
                        let peer =
                            Peer::new(id, Arc::clone(&self.server_config), Features::all(), Offers::default(), now);
                        let (actions, children) = Default::default();
                        self.sessions.push(ServerSession { peer, actions, children, attached: false });
                        self.sessions.len() - 1
                    }
                    Some(wanted) => self
                        .sessions
                        .iter()
                        .position(|session| session.peer.session_id() == wanted)
                        .expect("it is known"),
                };
                let session = &mut self.sessions[place];
                if session.attached {
                    let error = json!({"id": id, "error": {"code": -32010, "message": "attached"}});
                    return wire.back.send(error.to_string().as_bytes());
                }
                session.attached = true;
                wire.session = Some(place);
                let mut info = EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() });
                info.platform_os = Some("linux".into());
                let offer = params.longarm.filter(|_| self.extended);
                session.peer.attach(now, id, offer.as_ref(), info);
                session.collect();
                let answer = session.peer.poll_transmit(true).expect("an answer to the first request");
                let mut answer: Value = serde_json::from_slice(&answer).unwrap();
                if !self.extended {
                    // A plain peer announces nothing.
                    answer["result"]["environmentInfo"]["capabilities"].as_object_mut().unwrap().remove("longarm");
                }
                wire.back.send(answer.to_string().as_bytes());
            }
        }
    }

    /// The server hands over what it has to say, and some bytes of it arrive at the client.
    pub(super) fn back(&mut self, bytes: usize) {
        let Some(wire) = self.wire.as_mut().filter(|wire| !wire.cut) else { return };
        if let Some(session) = wire.session {
            while wire.back.flying.len() < bytes {
                let Some(message) = self.sessions[session].peer.poll_transmit(true) else { break };
                wire.back.send(&message);
            }
        }
        self.crossed += bytes.min(wire.back.flying.len());
        let link = wire.link;
        for line in wire.back.arrive(bytes) {
            self.client.session.handle_message(self.client.now, link, &line);
            self.client.drain();
            self.said.push((link, line));
        }
    }

    /// The connection breaks, with all that is flying. Either end learns of it later.
    pub(super) fn cut(&mut self) {
        if let Some(wire) = self.wire.as_mut().filter(|wire| !wire.cut) {
            wire.cut = true;
            self.unnoticed.extend(wire.session);
        }
    }

    pub(super) fn client_notices(&mut self) {
        let Some(wire) = self.wire.take_if(|wire| wire.cut) else { return };
        self.client.session.handle_disconnect(self.client.now, wire.link, &TransportError::Closed(None));
        self.client.drain();
    }

    pub(super) fn server_notices(&mut self) {
        self.note_hang_ups();
        for session in std::mem::take(&mut self.unnoticed) {
            let session = &mut self.sessions[session];
            session.peer.handle_disconnect(self.client.now);
            session.attached = false;
            session.collect();
        }
    }

    /// The client gave a connection up by itself.
    pub(super) fn note_hang_ups(&mut self) {
        let hung_up = std::mem::take(&mut self.client.hung_up);
        if self.wire.as_ref().is_some_and(|wire| hung_up.contains(&wire.link)) {
            self.cut();
            self.wire = None;
        }
    }

    /// Something that was said before is said again, by the connection on which it was said.
    pub(super) fn repeat(&mut self, which: usize) {
        if self.said.is_empty() {
            return;
        }
        let (link, line) = self.said[self.said.len() - 1 - which % self.said.len()].clone();
        self.client.session.handle_message(self.client.now, link, &line);
        self.client.drain();
    }

    pub(super) fn old_connection_ends(&mut self) {
        let LinkId(link) = self.client.session.link;
        let error = TransportError::Closed(None);
        self.client.session.handle_disconnect(self.client.now, LinkId(link.saturating_sub(1)), &error);
        self.client.drain();
    }

    pub(super) fn pass(&mut self, duration: Duration) {
        self.client.wait(duration);
        for session in &mut self.sessions {
            session.peer.handle_timeout(self.client.now);
            session.collect();
        }
    }

    /// The server's backend ends something that it was asked to do.
    pub(super) fn complete(&mut self, which: usize) {
        let now = self.client.now;
        let busy: Vec<_> = (0..self.sessions.len()).filter(|place| !self.sessions[*place].actions.is_empty()).collect();
        if !busy.is_empty() {
            self.sessions[busy[which % busy.len()]].complete(now);
        }
    }

    /// Some child of this name writes so many bytes.
    pub(super) fn emit(&mut self, id: &str, bytes: usize) {
        let now = self.client.now;
        for session in &mut self.sessions {
            let Some(key) = session.live(id) else { continue };
            if !session.peer.wants_output(key) {
                continue;
            }
            self.counter = self.counter.wrapping_add(1);
            let child = session.children.get_mut(&key).unwrap();
            child.written.extend(std::iter::repeat_n(self.counter, bytes));
            let bytes = Bytes::from(vec![self.counter; bytes]);
            let output = Output { seq: 0, stream: OutputStream::Stdout, bytes };
            session.peer.handle_event(now, key, Some(Ok(Event::Output(output))));
            session.collect();
        }
    }

    pub(super) fn exit(&mut self, id: &str) {
        let now = self.client.now;
        for session in &mut self.sessions {
            if let Some(key) = session.live(id) {
                session.exit(now, key);
            }
        }
    }

    pub(super) fn close(&mut self, id: &str) {
        let now = self.client.now;
        for session in &mut self.sessions {
            if let Some(key) = session.live(id) {
                session.close(now, key);
            }
        }
    }

    /// Everything that can go on without a fault does so, for a while.
    pub(super) fn settle(&mut self, rounds: usize, mut each: impl FnMut(&mut Self)) {
        for _ in 0..rounds {
            self.client_notices();
            self.server_notices();
            self.dial(true);
            self.transmit(usize::MAX);
            self.forth(usize::MAX);
            while self.sessions.iter().any(|session| !session.actions.is_empty()) {
                self.complete(0);
            }
            each(self);
            self.back(usize::MAX >> 1);
            self.pass(Duration::from_millis(50));
        }
    }
}

impl ServerSession {
    fn collect(&mut self) {
        self.actions.extend(std::iter::from_fn(|| self.peer.poll_action()));
    }

    /// The child of this name that has not closed.
    fn live(&self, id: &str) -> Option<ProcessKey> {
        self.children.iter().find(|(_, child)| child.id == id && !child.closed).map(|(key, _)| *key)
    }

    fn exit(&mut self, now: Instant, key: ProcessKey) {
        let Some(child) = self.children.get_mut(&key) else { return };
        if !std::mem::replace(&mut child.exited, true) {
            let exited = Exited { seq: 0, status: ExitStatus::exited(7), sandbox_denied: false };
            self.peer.handle_event(now, key, Some(Ok(Event::Exited(exited))));
            self.collect();
        }
    }

    fn close(&mut self, now: Instant, key: ProcessKey) {
        let Some(child) = self.children.get_mut(&key).filter(|child| child.exited) else { return };
        if !std::mem::replace(&mut child.closed, true) {
            let closed = Closed { seq: 0, totals: None, cut: false };
            self.peer.handle_event(now, key, Some(Ok(Event::Closed(closed))));
            self.collect();
        }
    }

    fn complete(&mut self, now: Instant) {
        let completion = match self.actions.pop_front().expect("something to do") {
            Action::Start { process, request, .. } => {
                let id = request.argv()[0].to_str().expect("its id").to_owned();
                self.children.insert(process, Child { id, ..Child::default() });
                Completion::Started { process, result: Ok(StartFacts::default()) }
            }
            Action::Write { process, data } => {
                let child = self.children.get_mut(&process).expect("it runs");
                assert!(!child.stdin_closed);
                child.stdin.extend_from_slice(&data);
                Completion::StdinDone { process, result: Ok(()) }
            }
            Action::CloseStdin { process } => {
                self.children.get_mut(&process).expect("it runs").stdin_closed = true;
                Completion::StdinDone { process, result: Ok(()) }
            }
            Action::Resize { call, .. } | Action::Signal { call, .. } => Completion::Acted { call, result: Ok(()) },
            Action::Terminate { process, call, .. } => {
                let running = self.children.get(&process).is_some_and(|child| !child.exited);
                self.exit(now, process);
                self.close(now, process);
                Completion::Terminated { call, result: Ok(running) }
            }
            Action::CancelStart { process } => {
                if let Some(child) = self.children.get_mut(&process) {
                    (child.exited, child.closed) = (true, true);
                }
                return;
            }
            Action::Info { call } => {
                let info = EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() });
                Completion::Info { call, result: Box::new(Ok(info)) }
            }
            _ => return,
        };
        self.peer.handle_completion(now, completion);
        self.collect();
    }
}
