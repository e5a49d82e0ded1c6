//! A link that is cut at every byte, in either direction, while a process writes and is written to: the client that comes
//! back has every byte of output once, and the process every byte of input.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// What happens, in this order if nothing is cut.
#[derive(Clone, Copy)]
enum Step {
    /// The client sends a message.
    Ask(fn() -> Value),
    /// The client acknowledges what it has, if it can.
    Acknowledge,
    /// The backend has done its part of a start.
    Started,
    Output(&'static str),
    Exit,
    Close,
}

const SCRIPT: &[Step] = &[
    Step::Ask(|| json!({"id": 2, "method": "process/start", "params": start_params("p")})),
    Step::Started,
    Step::Output("one "),
    Step::Ask(|| json!({"id": 3, "method": "process/write", "params": write_params("p", "w1", "a")})),
    Step::Output("two "),
    Step::Acknowledge,
    Step::Ask(|| json!({"id": 4, "method": "process/write", "params": write_params("p", "w2", "b")})),
    Step::Output("three "),
    Step::Output("four "),
    Step::Acknowledge,
    Step::Output("five"),
    Step::Exit,
    Step::Close,
];

/// Both ends of a link, and what is on it.
struct World {
    rig: Rig,
    extended: bool,
    process: Option<ProcessKey>,
    /// What the process was given to read.
    applied: Vec<Bytes>,
    /// Bytes that may still pass in each direction.
    to_server: usize,
    to_client: usize,
    client: Client,
}

/// What the client knows.
#[derive(Default)]
struct Client {
    answered: BTreeSet<i64>,
    output: BTreeMap<u64, Vec<u8>>,
    exited: Option<u64>,
    closed: Option<u64>,
}

impl Client {
    fn receive(&mut self, message: &Value) {
        let params = &message["params"];
        let seq = || params["seq"].as_u64().unwrap();
        match message["method"].as_str() {
            Some("process/output") => self.take(params),
            Some("process/exited") => assert!(self.exited.replace(seq()).is_none_or(|known| known == seq())),
            Some("process/closed") => assert!(self.closed.replace(seq()).is_none_or(|known| known == seq())),
            Some(other) => panic!("{other}"),
            None => drop(self.answered.insert(message["id"].as_i64().unwrap())),
        }
    }

    fn take(&mut self, piece: &Value) {
        let bytes = base64_simd::STANDARD.decode_to_vec(piece["chunk"].as_str().unwrap()).unwrap();
        let known = self.output.insert(piece["seq"].as_u64().unwrap(), bytes.clone());
        assert!(known.is_none_or(|known| known == bytes), "one number, one piece");
    }

    /// The last event up to which there is no hole.
    fn has_all_to(&self) -> u64 {
        let holds = |seq: &u64| self.output.contains_key(seq) || self.exited == Some(*seq) || self.closed == Some(*seq);
        (1..).take_while(holds).last().unwrap_or(0)
    }
}

impl World {
    fn new(extended: bool, to_server: usize, to_client: usize) -> Self {
        let rig = Rig::attached(extended);
        let client = Client::default();
        Self { rig, extended, process: None, applied: Vec::new(), to_server, to_client, client }
    }

    /// Does a step; false if it was cut off.
    fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Ask(message) => return self.send(&message()),
            Step::Acknowledge if self.extended => {
                let acks = json!([["p", self.client.has_all_to()]]);
                return self.send(&json!({"method": "longarm/process/ack", "params": {"acks": acks}}));
            }
            Step::Acknowledge => {}
            _ => self.run(step),
        }
        self.receive()
    }

    /// What the backend does, which no cut keeps it from.
    fn run(&mut self, step: Step) {
        let Some(process) = self.process else { return };
        match step {
            Step::Started => self.rig.started(process),
            Step::Output(text) => self.rig.output(process, text),
            Step::Exit => self.rig.exit(process, 3),
            Step::Close => self.rig.close(process),
            Step::Ask(_) | Step::Acknowledge => {}
        }
        self.act();
    }

    /// The client's bytes, as far as they pass: a part of a message is none.
    fn send(&mut self, message: &Value) -> bool {
        let bytes = message.to_string().len() + 1;
        match self.to_server.checked_sub(bytes) {
            Some(left) => self.to_server = left,
            None => return false,
        }
        self.rig.tell(message).unwrap();
        self.act();
        self.receive()
    }

    /// The backend's answers.
    fn act(&mut self) {
        while let Some(action) = self.rig.actions.pop_front() {
            match action {
                Action::Start { process, .. } => self.process = Some(process),
                Action::Write { process, data } => {
                    self.applied.push(data);
                    self.rig.complete(Completion::StdinDone { process, result: Ok(()) });
                }
                // There are none.
                Action::ForgetFiles => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The server's bytes, as far as they pass.
    fn receive(&mut self) -> bool {
        while let Some(message) = self.rig.peer.poll_transmit(true) {
            match self.to_client.checked_sub(message.len() + 1) {
                Some(left) => self.to_client = left,
                None => return false,
            }
            self.client.receive(&serde_json::from_slice(&message).unwrap());
        }
        true
    }

    /// The client is gone, and what the process does meanwhile is done; then the client comes back, says again what was not
    /// answered, and catches up.
    fn cut_and_resume(&mut self, rest: &[Step]) {
        self.rig.peer.handle_disconnect(self.rig.now);
        self.rig.collect();
        self.act();
        let was_running = self.process.is_some();
        let (meanwhile, later) = rest.split_at(rest.len() / 2);
        for step in meanwhile {
            self.run(*step);
        }
        assert!(self.rig.out().is_empty(), "nobody is there");
        (self.to_server, self.to_client) = (usize::MAX, usize::MAX);
        self.rig.attach(self.extended);
        for step in SCRIPT {
            match step {
                Step::Ask(message) if !self.client.answered.contains(&message()["id"].as_i64().unwrap()) => {
                    assert!(self.step(*step));
                }
                Step::Started if !was_running => assert!(self.step(*step)),
                _ => {}
            }
        }
        // A process that had not come to be does all that it was to do.
        let done = if was_running { &[] } else { meanwhile };
        for step in done.iter().filter(|step| !matches!(step, Step::Started)).chain(later) {
            if !matches!(step, Step::Ask(_)) {
                assert!(self.step(*step));
            }
        }
        // What came before the client was back has to be asked for.
        let read = self.rig.call("process/read", json!({"processId": "p", "afterSeq": self.client.has_all_to()}));
        let read = &read["result"];
        read["chunks"].as_array().unwrap().iter().for_each(|chunk| self.client.take(chunk));
        assert_eq!((&read["exitCode"], &read["closed"]), (&json!(3), &json!(true)));
    }

    fn check(&self, place: &str) {
        let output: Vec<u8> = self.client.output.values().flatten().copied().collect();
        assert_eq!(String::from_utf8_lossy(&output), "one two three four five", "{place}");
        assert_eq!(self.applied, ["a", "b"], "{place}");
    }
}

/// A conversation in which so many bytes pass; returns whether all did.
fn converse(extended: bool, to_server: usize, to_client: usize) -> bool {
    let mut world = World::new(extended, to_server, to_client);
    let cut = SCRIPT.iter().position(|step| !world.step(*step));
    if let Some(cut) = cut {
        let rest = if matches!(SCRIPT[cut], Step::Ask(_) | Step::Acknowledge) { cut } else { cut + 1 };
        world.cut_and_resume(&SCRIPT[rest..]);
    }
    world.check(&format!("{to_server} bytes to the server, {to_client} to the client"));
    cut.is_none()
}

#[test]
fn nothing_is_lost_or_doubled_wherever_the_clients_bytes_are_cut() {
    for extended in [false, true] {
        let whole = (0..).find(|bytes| converse(extended, *bytes, usize::MAX)).unwrap();
        assert!(whole > 300, "the conversation has been cut at {whole} places");
    }
}

#[test]
fn nothing_is_lost_or_doubled_wherever_the_servers_bytes_are_cut() {
    for extended in [false, true] {
        let whole = (0..).find(|bytes| converse(extended, usize::MAX, *bytes)).unwrap();
        assert!(whole > 600, "the conversation has been cut at {whole} places");
    }
}
