//! The session against a peer of which every message is written out.

mod asks;
mod calls;
mod cuts;
mod deadlines;
mod handshake;
mod hostile;
mod outages;
mod pair;
mod processes;
mod properties;
mod recovery;

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::error::TransportError;
use crate::request::ExecRequest;
use crate::wire::method::Method as _;

/// A session with its clock, and all that it said.
struct Harness {
    session: Session,
    now: Instant,
    answers: Vec<(Token, Result<Answer, Failure>)>,
    events: Vec<(RouteKey, Event)>,
    failures: Vec<(RouteKey, WaitError)>,
    /// Watches that have ended.
    changed: Vec<u64>,
    deltas: Vec<BodyDeltaParams>,
    denials: Vec<Denial>,
    connected: Option<Features>,
    rejected: Option<ConnectError>,
    end: Option<(Arc<str>, Ending)>,
    last_token: u64,
    dials: Vec<LinkId>,
    hung_up: Vec<LinkId>,
    states: Vec<ConnectionState>,
}

impl Harness {
    fn with_config(mode: Mode, config: ClientConfig) -> Self {
        let now = Instant::now();
        Self::with_session(Session::new(config, mode, "nonce", now), now)
    }

    fn with_session(session: Session, now: Instant) -> Self {
        Self {
            session,
            now,
            answers: Vec::new(),
            events: Vec::new(),
            failures: Vec::new(),
            changed: Vec::new(),
            deltas: Vec::new(),
            denials: Vec::new(),
            connected: None,
            rejected: None,
            end: None,
            last_token: 0,
            dials: Vec::new(),
            hung_up: Vec::new(),
            states: Vec::new(),
        }
    }

    fn fresh() -> Self {
        Self::with_config(Mode::Fresh, ClientConfig::default())
    }

    /// A session whose handshake is done, with a peer of these features.
    fn open(features: &[&str]) -> Self {
        Self::open_with(features, ClientConfig::default())
    }

    fn open_with(features: &[&str], config: ClientConfig) -> Self {
        let mut harness = Self::with_config(Mode::Fresh, config);
        harness.sent();
        harness.receive(&json!({"id": 1, "result": initialize_result(features)}));
        assert!(harness.connected.is_some());
        harness
    }

    /// All that goes out now.
    fn sent(&mut self) -> Vec<Value> {
        let sent = std::iter::from_fn(|| self.session.poll_transmit(self.now))
            .map(|bytes| serde_json::from_slice(&bytes).unwrap())
            .collect();
        self.drain();
        sent
    }

    /// The methods of all that goes out now.
    fn sent_methods(&mut self) -> Vec<String> {
        self.sent().iter().map(|message| message["method"].as_str().unwrap_or("answer").to_owned()).collect()
    }

    /// The one message that goes out now.
    fn sent_one(&mut self) -> Value {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    fn receive(&mut self, message: &Value) {
        self.receive_raw(message.to_string().as_bytes());
    }

    fn receive_raw(&mut self, message: &[u8]) {
        let link = self.session.link;
        self.session.handle_message(self.now, link, message);
        self.drain();
    }

    fn wait(&mut self, duration: Duration) {
        self.now += duration;
        self.session.handle_timeout(self.now);
        self.drain();
    }

    /// The present connection breaks.
    fn cut(&mut self) {
        let link = self.session.link;
        self.session.handle_disconnect(self.now, link, &TransportError::Closed(None));
        self.drain();
    }

    fn submit(&mut self, route: u64, op: Op) -> Token {
        self.last_token += 1;
        let token = Token(self.last_token);
        self.session.submit(self.now, token, RouteKey(route), op);
        self.drain();
        token
    }

    fn drain(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                SessionEvent::Dial { link } => self.dials.push(link),
                SessionEvent::HangUp { link, .. } => self.hung_up.push(link),
                SessionEvent::State(state) | SessionEvent::Over { state, .. } => self.states.push(state),
                SessionEvent::Connected { features, .. } => self.connected = Some(features),
                SessionEvent::Sent { .. } => {}
                SessionEvent::Rejected(error) => self.rejected = Some(error),
                SessionEvent::Answer { token, result } => {
                    assert!(!self.answers.iter().any(|(known, _)| *known == token), "{token:?} is answered twice");
                    self.answers.push((token, result));
                }
                SessionEvent::Event { route, event } => self.events.push((route, event)),
                SessionEvent::Denial { denial, .. } => self.denials.push(denial),
                SessionEvent::Failed { route, error } => self.failures.push((route, error)),
                SessionEvent::MissingChanged { watch_id } => self.changed.push(watch_id),
                SessionEvent::BodyDelta(delta) => self.deltas.push(*delta),
                SessionEvent::End { reason, ending } => {
                    assert!(self.end.is_none());
                    self.end = Some((reason, ending));
                }
            }
        }
    }

    fn answer(&self, token: Token) -> Option<&Result<Answer, Failure>> {
        self.answers.iter().find(|(known, _)| *known == token).map(|(_, result)| result)
    }

    fn failure(&self, token: Token) -> &Failure {
        match self.answer(token) {
            Some(Err(failure)) => failure,
            other => panic!("{token:?} is {other:?}"),
        }
    }

    /// Starts a process on a plain request and has it answered; the route is its number.
    fn started(&mut self, route: u64) -> Value {
        let token = self.submit(route, start(&request(route)));
        let sent = self.sent_one();
        assert_eq!(sent["method"], "process/start");
        let id = &sent["params"]["processId"];
        self.receive(&json!({"id": sent["id"], "result": {"processId": id, "sandboxType": "none"}}));
        assert!(matches!(self.answer(token), Some(Ok(Answer::Started(_)))));
        sent["params"].clone()
    }

    fn output(&mut self, route: u64, seq: u64, size: usize) {
        let bytes = Bytes::from(vec![b'x'; size]);
        let encoder = hot::OutputEncoder::new(&process_id(route));
        let message = encoder.message(seq, crate::event::OutputStream::Stdout, &bytes);
        self.receive_raw(&message);
    }

    fn exited(&mut self, route: u64, seq: u64, code: i32) {
        let id = process_id(route);
        let params = json!({"processId": id.as_str(), "seq": seq, "exitCode": code, "sandboxDenied": false});
        self.receive(&json!({"method": "process/exited", "params": params}));
    }

    fn closed(&mut self, route: u64, seq: u64) {
        let id = process_id(route);
        self.receive(&json!({"method": "process/closed", "params": {"processId": id.as_str(), "seq": seq}}));
    }

    /// The reader of a process takes all that it has.
    fn consume(&mut self, route: u64) {
        let events = self.events.iter().filter(|(known, _)| *known == RouteKey(route)).map(|(_, event)| event);
        let mut consumption = Consumption::default();
        for event in events {
            consumption.seq = event.seq();
            consumption.events += 1;
            if let Event::Output(output) = event {
                consumption.bytes += output.bytes.len() as u64;
            }
        }
        self.session.handle_consumed(self.now, RouteKey(route), consumption);
        self.drain();
    }
}

fn process_id(route: u64) -> ProcessId {
    ProcessId::new(format!("p{route}"))
}

/// A request that depends on nothing that the peer says.
fn request(route: u64) -> ExecRequest {
    ExecRequest::new(["true"]).cwd("/tmp").process_id(process_id(route))
}

fn start(request: &ExecRequest) -> Op {
    Op::Start { request: Box::new(request.clone()) }
}

const fn terminate() -> Op {
    Op::Terminate { grace: Duration::ZERO, descendants: false }
}

fn initialize_result(features: &[&str]) -> Value {
    let mut capabilities = json!({"fsWatchMissing": true});
    if !features.is_empty() {
        capabilities["longarm"] = json!({"version": 1, "features": features});
    }
    json!({
        "sessionId": "s",
        "environmentInfo": {
            "shell": {"name": "bash", "path": "/bin/bash"},
            "cwd": "file:///home/remote",
            "platformOs": "linux",
            "capabilities": capabilities,
        },
    })
}

const ALL: &[&str] =
    &["credits", "closeStdin", "resize", "signal", "terminate", "exit", "limits", "list", "containment"];
