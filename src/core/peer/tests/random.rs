//! Any interleaving of a client, a backend, cuts and time. The test plays the client and the backend, and keeps what must
//! hold whatever happens.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::error::SpawnError;

const PROCESSES: usize = 3;
const WINDOW: usize = 60;

#[derive(Clone, Debug)]
enum Op {
    Start(usize),
    Write {
        process: usize,
        id: u8,
        length: usize,
    },
    CloseStdin(usize),
    Read {
        process: usize,
        after: u64,
        max: Option<u64>,
        wait: u64,
    },
    Terminate(usize),
    Signal(usize),
    Info,
    /// The client consumes what it has of the process, and acknowledges.
    Acknowledge(usize),
    /// The backend ends what it was asked to do, well or not.
    Complete {
        which: usize,
        well: bool,
    },
    Output {
        process: usize,
        length: usize,
    },
    Exit(usize),
    Close(usize),
    Transmit(usize),
    Cut,
    Attach,
    Pass(u64),
    SpuriousTimeout,
}

fn op() -> impl Strategy<Value = Op> {
    let process = 0..PROCESSES;
    prop_oneof![
        4 => process.clone().prop_map(Op::Start),
        6 => (process.clone(), 0..30_u8, 0..4_usize)
            .prop_map(|(process, id, length)| Op::Write { process, id, length }),
        1 => process.clone().prop_map(Op::CloseStdin),
        4 => (process.clone(), 0..20_u64, prop::option::of(0..50_u64), 0..100_u64)
            .prop_map(|(process, after, max, wait)| Op::Read { process, after, max, wait }),
        1 => process.clone().prop_map(Op::Terminate),
        1 => process.clone().prop_map(Op::Signal),
        1 => Just(Op::Info),
        4 => process.clone().prop_map(Op::Acknowledge),
        10 => (0..8_usize, prop::bool::weighted(0.9)).prop_map(|(which, well)| Op::Complete { which, well }),
        12 => (process.clone(), 1..25_usize).prop_map(|(process, length)| Op::Output { process, length }),
        2 => process.clone().prop_map(Op::Exit),
        2 => process.prop_map(Op::Close),
        12 => (1..6_usize).prop_map(Op::Transmit),
        1 => Just(Op::Cut),
        3 => Just(Op::Attach),
        2 => (0..60_u64).prop_map(Op::Pass),
        2 => Just(Op::SpuriousTimeout),
    ]
}

/// One process as the backend and the client know it.
#[derive(Default)]
struct Known {
    /// All that the backend has said, event by event.
    said: Vec<Said>,
    exited: bool,
    closed: bool,
    /// What the client has of it, by number.
    got: BTreeMap<u64, Said>,
    /// The last event that was pushed to the present connection.
    pushed: u64,
    applied: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Output(Vec<u8>),
    Exit,
    Close,
}

struct World {
    rig: Rig,
    extended: bool,
    keys: BTreeMap<ProcessKey, Known>,
    /// Requests of the present connection that have no answer: what to do with it.
    open: BTreeMap<i64, Asked>,
    counter: u8,
    attached: bool,
}

#[derive(Clone, Debug)]
enum Asked {
    Read(usize),
    Other,
}

fn name(process: usize) -> String {
    format!("p{process}")
}

impl World {
    fn new(extended: bool) -> Self {
        let mut rig = Rig::with(|config| {
            config.output.retained_bytes = WINDOW;
            config.output.chunk_bytes = 10;
            config.stdin_queue_writes = 2;
            config.stdin_queue_bytes = 8;
            config.session_ttl = Duration::from_secs(1_000);
            config.closed_retention = Duration::from_secs(900);
        });
        rig.attach(extended);
        Self { rig, extended, keys: BTreeMap::new(), open: BTreeMap::new(), counter: 0, attached: true }
    }

    /// The process that has this name now and was started.
    fn key(&self, process: usize) -> Option<ProcessKey> {
        let key = self.rig.peer.processes.key(&ProcessId::new(name(process)))?;
        self.keys.contains_key(&key).then_some(key)
    }

    fn ask(&mut self, method: &str, params: Value, asked: Asked) {
        if self.attached {
            let id = self.rig.ask(method, params);
            self.open.insert(id, asked);
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Start(process) => self.ask("process/start", start_params(&name(process)), Asked::Other),
            Op::Write { process, id, length } => {
                let text = char::from(b'a' + id).to_string().repeat(length);
                let params = write_params(&name(process), &id.to_string(), &text);
                self.ask("process/write", params, Asked::Other);
            }
            Op::CloseStdin(process) if self.extended => {
                self.ask("longarm/process/closeStdin", json!({"processId": name(process)}), Asked::Other);
            }
            Op::Read { process, after, max, wait } => {
                let params = json!({"processId": name(process), "afterSeq": after, "maxBytes": max, "waitMs": wait});
                self.ask("process/read", params, Asked::Read(process));
            }
            Op::Terminate(process) => self.ask("process/terminate", json!({"processId": name(process)}), Asked::Other),
            Op::Signal(process) => {
                let params = json!({"processId": name(process), "signal": "interrupt"});
                self.ask("process/signal", params, Asked::Other);
            }
            Op::Info => self.ask("environment/info", json!(null), Asked::Other),
            Op::Acknowledge(process) if self.extended && self.attached => {
                let Some(key) = self.key(process) else { return };
                let contiguous = self.contiguous(key);
                let params = json!({"acks": [[name(process), contiguous]]});
                self.rig.tell(&json!({"method": "longarm/process/ack", "params": params})).unwrap();
            }
            Op::Complete { which, well } => {
                if !self.rig.actions.is_empty() {
                    let place = which % self.rig.actions.len();
                    self.complete(place, well);
                }
            }
            Op::Output { process, length } => {
                let Some(key) = self.key(process) else { return };
                if self.keys[&key].closed || !self.rig.peer.wants_output(key) {
                    return;
                }
                self.counter = self.counter.wrapping_add(1);
                let bytes = vec![b'a' + self.counter % 26; length];
                let said = bytes.chunks(10).map(|piece| Said::Output(piece.to_vec()));
                self.keys.get_mut(&key).unwrap().said.extend(said);
                let output = Output { seq: 0, stream: OutputStream::Stdout, bytes: bytes.into() };
                self.rig.event(key, Event::Output(output));
            }
            Op::Exit(process) => {
                let Some(key) = self.key(process) else { return };
                let known = self.keys.get_mut(&key).unwrap();
                if !std::mem::replace(&mut known.exited, true) {
                    known.said.push(Said::Exit);
                    self.rig.exit(key, 7);
                }
            }
            Op::Close(process) => {
                let Some(key) = self.key(process) else { return };
                let known = self.keys.get_mut(&key).unwrap();
                if known.exited && !std::mem::replace(&mut known.closed, true) {
                    known.said.push(Said::Close);
                    self.rig.close(key);
                }
            }
            Op::Transmit(messages) => self.transmit(messages),
            Op::Cut => self.cut(),
            Op::Attach if !self.attached => {
                self.rig.attach(self.extended);
                self.attached = true;
                for known in self.keys.values_mut() {
                    known.pushed = known.said.len() as u64;
                }
            }
            Op::Pass(milliseconds) => self.rig.pass(Duration::from_millis(milliseconds)),
            Op::SpuriousTimeout => {
                let before = (self.rig.peer.poll_timeout(), self.rig.peer.wants_transmit(true));
                if before.0.is_none_or(|at| at > self.rig.now) {
                    self.rig.pass(Duration::ZERO);
                    assert_eq!(before, (self.rig.peer.poll_timeout(), self.rig.peer.wants_transmit(true)));
                }
            }
            Op::CloseStdin(_) | Op::Acknowledge(_) | Op::Attach => {}
        }
    }

    fn complete(&mut self, place: usize, well: bool) {
        let refused = || {
            crate::error::SignalError::Unsupported(crate::error::Unsupported {
                feature: "this",
                place: "the test".into(),
            })
        };
        match self.rig.actions.remove(place).unwrap() {
            Action::Start { process, .. } => {
                let known = self.rig.peer.processes.get(process).is_some();
                let result =
                    if well { Ok(StartFacts::default()) } else { Err(SpawnError::TextBusy { program: "x".into() }) };
                if known && well {
                    self.keys.insert(process, Known::default());
                }
                self.rig.complete(Completion::Started { process, result });
            }
            Action::Write { process, data } => {
                let known = self.keys.get_mut(&process).expect("writes go to what runs");
                let id = data[0] - b'a';
                assert!(!known.applied.contains(&id), "invariant 3: {id} twice");
                known.applied.push(id);
                self.rig.complete(Completion::StdinDone { process, result: Ok(()) });
            }
            Action::CloseStdin { process } => self.rig.complete(Completion::StdinDone { process, result: Ok(()) }),
            Action::Resize { call, .. } | Action::Signal { call, .. } => {
                let result = if well { Ok(()) } else { Err(refused()) };
                self.rig.complete(Completion::Acted { call, result });
            }
            Action::Terminate { call, .. } => {
                let result = if well { Ok(true) } else { Err(refused()) };
                self.rig.complete(Completion::Terminated { call, result });
            }
            Action::Info { call } => {
                let info = EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() });
                self.rig.complete(Completion::Info { call, result: Box::new(Ok(info)) });
            }
            Action::CancelStart { .. } | Action::Forget { .. } => {}
            other => panic!("nothing was asked of files: {other:?}"),
        }
    }

    /// Sends some messages, which the client takes at once.
    fn transmit(&mut self, messages: usize) {
        for _ in 0..messages {
            let Some(message) = self.rig.peer.poll_transmit(true) else { return };
            let message: Value = serde_json::from_slice(&message).unwrap();
            match message["id"].as_i64() {
                Some(id) => self.take_answer(id, &message),
                None => self.take_event(&message),
            }
        }
    }

    fn take_answer(&mut self, id: i64, message: &Value) {
        let asked = self.open.remove(&id).expect("invariant 4: one answer, to a request of this connection");
        match asked {
            Asked::Read(process) if message.get("result").is_some() => {
                let Some(key) = self.key(process) else { return };
                for chunk in message["result"]["chunks"].as_array().unwrap() {
                    self.got(key, chunk["seq"].as_u64().unwrap(), chunk["chunk"].as_str().unwrap());
                }
            }
            _ => {}
        }
    }

    fn take_event(&mut self, message: &Value) {
        let params = &message["params"];
        let id = ProcessId::new(params["processId"].as_str().unwrap());
        let key = self.rig.peer.processes.key(&id).expect("events of what is known");
        let seq = params["seq"].as_u64().unwrap();
        let known = self.keys.get_mut(&key).expect("an event after the answer to the start");
        known.pushed += 1;
        assert_eq!(seq, known.pushed, "invariant 1: every event once, in order, since the client attached");
        let said = &known.said[usize::try_from(seq).unwrap() - 1];
        match message["method"].as_str().unwrap() {
            "process/output" => self.got(key, seq, params["chunk"].as_str().unwrap()),
            "process/exited" => assert_eq!(*said, Said::Exit),
            "process/closed" => assert_eq!((said, seq), (&Said::Close, known.said.len() as u64)),
            other => panic!("{other}"),
        }
    }

    fn got(&mut self, key: ProcessKey, seq: u64, chunk: &str) {
        let bytes = base64_simd::STANDARD.decode_to_vec(chunk).unwrap();
        let known = self.keys.get_mut(&key).unwrap();
        let said = Said::Output(bytes);
        assert_eq!(
            known.said[usize::try_from(seq).unwrap() - 1],
            said,
            "invariant 5: the same bytes however they come"
        );
        known.got.insert(seq, said);
    }

    /// Up to where the client has everything, reading exit and close as no bytes.
    fn contiguous(&self, key: ProcessKey) -> u64 {
        let known = &self.keys[&key];
        let has = |(index, said): (usize, &Said)| {
            !matches!(said, Said::Output(_)) || known.got.contains_key(&(index as u64 + 1))
        };
        known.said.iter().enumerate().take_while(|entry| has(*entry)).count() as u64
    }

    fn cut(&mut self) {
        self.rig.peer.handle_disconnect(self.rig.now);
        self.rig.collect();
        self.attached = false;
        self.open.clear();
    }

    fn check(&self) {
        for process in self.rig.peer.processes.iter().map(|(_, process)| process) {
            // One event of the backend may be of 24 bytes.
            assert!(process.log.retained_bytes() <= WINDOW + 24, "invariant 6");
            assert_eq!(process.log.dropped_bytes(), 0);
        }
        let held: usize = self.rig.peer.processes.iter().map(|(_, process)| process.stdin.excess_bytes()).sum();
        assert_eq!(held, self.rig.peer.stdin_excess);
        match &self.rig.peer.connection {
            None => assert!(!self.rig.peer.wants_transmit(true)),
            Some(connection) => {
                let waiting = self.open.len() - connection.answers.len();
                assert_eq!(connection.calls, waiting, "every call is waiting or answered");
            }
        }
    }

    /// Lets everything come to its end, and sees that nothing is missing.
    fn finish(mut self) {
        self.apply(Op::Attach);
        while !self.rig.actions.is_empty() {
            self.complete(0, true);
        }
        self.rig.pass(Duration::from_millis(100));
        self.transmit(usize::MAX);
        assert!(self.open.is_empty(), "invariant 4: {:?}", self.open);
        if self.extended {
            for process in 0..PROCESSES {
                let Some(key) = self.key(process) else { continue };
                let after = self.contiguous(key);
                let params = json!({"processId": name(process), "afterSeq": after});
                self.ask("process/read", params, Asked::Read(process));
                self.transmit(usize::MAX);
                assert_eq!(self.contiguous(key), self.keys[&key].said.len() as u64, "no byte is lost with credits");
            }
        }
        assert_eq!(self.rig.peer.connection.as_ref().map(|connection| connection.call_bytes), Some(0));
        self.rig.pass(Duration::from_secs(900));
        assert_eq!(self.rig.peer.poll_timeout(), None, "invariant 8");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_happens_the_invariants_hold(ops in prop::collection::vec(op(), 1..250), extended in any::<bool>()) {
        let mut world = World::new(extended);
        for op in ops {
            world.apply(op);
            world.check();
        }
        world.finish();
    }
}
