//! The peer alone, with a clock of the test's own and a backend that is played by the test.

mod cuts;
mod files;
mod handshake;
mod http;
mod ordering;
mod random;
mod retention;
mod sessions;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::error::PeerMisbehaved;
use crate::event::{Closed, Exited, Output, OutputStream};
use crate::info::Shell;
use crate::status::ExitStatus;

/// A peer, the time, and what it has asked for.
struct Rig {
    peer: Peer,
    now: Instant,
    next_id: i64,
    actions: VecDeque<Action>,
}

impl Rig {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig::default();
        change(&mut config);
        let now = crate::time::now();
        let peer =
            Peer::new("session".into(), Arc::new(config), Features::all(), Offers { files: true, http: true }, now);
        Self { peer, now, next_id: 100, actions: VecDeque::new() }
    }

    /// Attaches a client that has all features, or none, and takes the answer away.
    fn attach(&mut self, extended: bool) {
        let offer = extended.then(|| Offer::of(Features::all()));
        let mut info = EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() });
        info.platform_os = Some("linux".into());
        self.peer.attach(self.now, RequestId::Number(1), offer.as_ref(), info);
        self.tell(&json!({"method": "initialized"})).unwrap();
        let answer = self.out();
        assert_eq!(answer.len(), 1);
        assert_eq!(answer[0]["result"]["sessionId"], "session");
    }

    fn attached(extended: bool) -> Self {
        let mut rig = Self::new();
        rig.attach(extended);
        rig
    }

    fn tell(&mut self, message: &Value) -> Result<(), PeerMisbehaved> {
        let result = self.peer.handle_message(self.now, &Bytes::from(message.to_string()));
        self.collect();
        result
    }

    fn ask(&mut self, method: &str, params: Value) -> i64 {
        self.next_id += 1;
        self.tell(&json!({"id": self.next_id, "method": method, "params": params})).unwrap();
        self.next_id
    }

    /// Asks, and takes the answer, which must come at once.
    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        let answers = self.out();
        answers.into_iter().find(|answer| answer["id"] == id).expect("an answer at once")
    }

    fn refusal(&mut self, method: &str, params: Value) -> (i64, String) {
        let answer = self.call(method, params);
        let error = &answer["error"];
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().into())
    }

    /// Everything that is to be sent now.
    fn out(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.peer.poll_transmit(true))
            .map(|message| serde_json::from_slice(&message).unwrap())
            .collect()
    }

    fn collect(&mut self) {
        self.actions.extend(std::iter::from_fn(|| self.peer.poll_action()));
    }

    fn complete(&mut self, completion: Completion) {
        self.peer.handle_completion(self.now, completion);
        self.collect();
    }

    fn event(&mut self, key: ProcessKey, event: Event) {
        self.peer.handle_event(self.now, key, Some(Ok(event)));
        self.collect();
    }

    fn output(&mut self, key: ProcessKey, text: &str) {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        self.event(key, Event::Output(Output { seq: 0, stream: OutputStream::Stdout, bytes }));
    }

    fn exit(&mut self, key: ProcessKey, code: i32) {
        self.event(key, Event::Exited(Exited { seq: 0, status: ExitStatus::exited(code), sandbox_denied: false }));
    }

    fn close(&mut self, key: ProcessKey) {
        self.event(key, Event::Closed(Closed { seq: 0, totals: None, cut: false }));
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.peer.handle_timeout(self.now);
        self.collect();
    }

    /// Starts a process up to the point where the backend has been asked to.
    fn starting(&mut self, id: &str) -> (i64, ProcessKey) {
        self.starting_with(start_params(id))
    }

    fn starting_with(&mut self, params: Value) -> (i64, ProcessKey) {
        let call = self.ask("process/start", params);
        match self.actions.pop_back() {
            Some(Action::Start { process, .. }) => (call, process),
            other => panic!("{other:?} instead of a start; {:?}", self.out()),
        }
    }

    fn started(&mut self, key: ProcessKey) {
        self.complete(Completion::Started { process: key, result: Ok(StartFacts::default()) });
    }

    /// Starts a process and takes the answer.
    fn run(&mut self, id: &str) -> ProcessKey {
        self.run_with(start_params(id))
    }

    fn run_with(&mut self, params: Value) -> ProcessKey {
        let (call, key) = self.starting_with(params);
        self.started(key);
        let answer = self.out();
        assert_eq!(answer.len(), 1, "{answer:?}");
        assert_eq!(answer[0]["id"], call);
        key
    }
}

fn start_params(id: &str) -> Value {
    json!({"processId": id, "argv": ["sleep"], "cwd": "file:///tmp", "env": {}, "tty": false, "pipeStdin": true})
}

fn write_params(id: &str, write_id: &str, text: &str) -> Value {
    let chunk = base64_simd::STANDARD.encode_to_string(text.as_bytes());
    json!({"processId": id, "writeId": write_id, "chunk": chunk})
}

/// The methods, or the ids of answers, in the order in which they were sent.
fn names(messages: &[Value]) -> Vec<String> {
    messages
        .iter()
        .map(|message| match message["method"].as_str() {
            Some(method) => format!("{method} {}", message["params"]["processId"].as_str().unwrap_or_default()),
            None => message["id"].to_string(),
        })
        .collect()
}
