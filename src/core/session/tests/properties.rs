use std::collections::{BTreeMap, HashMap, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::inbox::model::{Model, check};
use super::*;
use crate::wire::process::ReadResult;

#[derive(Clone, Copy, Debug)]
enum Step {
    Start(Shape),
    Write(u64, usize),
    Terminate(u64),
    Status,
    Abandon(u64),
    Discard(u64),
    Release(u64),
    /// The peer takes a message from us.
    Take,
    /// A process does something.
    Happen(u64),
    /// A message of the peer arrives.
    Deliver,
    Consume(u64),
    Wait(u64),
    Close,
    Cut,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    chunks: usize,
    exit_at: usize,
}

fn step() -> impl Strategy<Value = Step> {
    let route = || 1_u64..6;
    prop_oneof![
        4 => (0_usize..30, 0_usize..32).prop_map(|(chunks, exit_at)| Step::Start(Shape { chunks, exit_at })),
        3 => (route(), 0_usize..200_000).prop_map(|(route, size)| Step::Write(route, size)),
        1 => route().prop_map(Step::Terminate),
        1 => Just(Step::Status),
        1 => route().prop_map(Step::Abandon),
        1 => route().prop_map(Step::Discard),
        1 => route().prop_map(Step::Release),
        12 => Just(Step::Take),
        16 => route().prop_map(Step::Happen),
        16 => Just(Step::Deliver),
        8 => route().prop_map(Step::Consume),
        2 => (0_u64..2_000).prop_map(Step::Wait),
    ]
}

/// A peer that does what the protocol says, at the pace of the steps.
#[derive(Default)]
struct Peer {
    models: BTreeMap<String, Model>,
    shapes: HashMap<String, Shape>,
    link: VecDeque<Value>,
    extended: bool,
    written: HashMap<String, Vec<String>>,
}

impl Peer {
    fn take(&mut self, message: &Value) {
        let id = message["id"].clone();
        let params = &message["params"];
        let process = params["processId"].as_str().unwrap_or_default().to_owned();
        let result = match message["method"].as_str().unwrap() {
            "process/start" => {
                let shape = self.shapes[&process];
                let model = Model::new(&vec![SIZE; shape.chunks], shape.exit_at, usize::MAX >> 1, self.extended);
                self.models.insert(process.clone(), model);
                json!({"processId": process, "sandboxType": "none"})
            }
            "process/write" => {
                let write_id = params["writeId"].as_str().unwrap().to_owned();
                self.written.entry(process).or_default().push(write_id);
                json!({"status": "accepted"})
            }
            "process/terminate" => json!({"running": true}),
            "process/read" => {
                let after_seq = params["afterSeq"].as_u64().unwrap();
                let result: ReadResult = self.models[&process].read(after_seq, params["maxBytes"].as_u64());
                serde_json::to_value(result).unwrap()
            }
            "environment/status" => json!({"status": "ready"}),
            "longarm/process/ack" | "initialized" => return,
            other => panic!("{other}"),
        };
        self.link.push_back(json!({"id": id, "result": result}));
    }

    fn happen(&mut self, route: u64) {
        let id = process_id(route).as_str().to_owned();
        let Some(event) = self.models.get_mut(&id).and_then(Model::happen) else { return };
        let (method, params) = match event {
            Event::Output(output) => {
                let chunk = serde_json::to_value(crate::wire::Base64(output.bytes)).unwrap();
                ("process/output", json!({"processId": id, "seq": output.seq, "stream": "stdout", "chunk": chunk}))
            }
            Event::Exited(exited) => {
                let code = exited.status.wire_code();
                ("process/exited", json!({"processId": id, "seq": exited.seq, "exitCode": code, "sandboxDenied": true}))
            }
            Event::Closed(closed) => ("process/closed", json!({"processId": id, "seq": closed.seq})),
            Event::Gap(_) => return,
        };
        self.link.push_back(json!({"method": method, "params": params}));
    }
}

/// Bytes in each chunk; the window holds four.
const SIZE: usize = 10;

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Invariants 1 to 8 of the session, for any interleaving of calls, events, reads, readers and the end.
    #[test]
    fn every_call_ends_once_and_every_reader_gets_all_in_order(
        steps in vec(step(), 0..300),
        extended in any::<bool>(),
        end in prop_oneof![Just(None), Just(Some(Step::Close)), Just(Some(Step::Cut))],
    ) {
        let mut config = ClientConfig { max_calls: 8, max_calls_extended: 8, ..ClientConfig::default() };
        config.output.retained_bytes = 4 * SIZE;
        let mut harness = Harness::open_with(if extended { ALL } else { &[] }, config);
        let mut peer = Peer { extended, ..Peer::default() };
        let mut tokens = Vec::new();
        let (mut routes, mut unread) = (0, std::collections::HashSet::new());
        for step in steps.into_iter().chain(end) {
            let now = harness.now;
            match step {
                Step::Start(shape) if routes < 5 => {
                    routes += 1;
                    peer.shapes.insert(process_id(routes).as_str().to_owned(), shape);
                    tokens.push(harness.submit(routes, start(&request(routes))));
                }
                Step::Start(_) => {}
                Step::Write(route, size) if route <= routes => {
                    tokens.push(harness.submit(route, Op::Write { data: vec![0; size].into() }));
                }
                Step::Terminate(route) if route <= routes => tokens.push(harness.submit(route, terminate())),
                Step::Write(..) | Step::Terminate(_) => {}
                Step::Status => tokens.push(harness.submit(0, Op::Status)),
                Step::Abandon(route) => {
                    harness.session.abandon(now, RouteKey(route));
                    unread.insert(route);
                }
                Step::Discard(route) => {
                    harness.session.discard(now, RouteKey(route));
                    unread.insert(route);
                }
                Step::Release(route) => harness.session.release(now, RouteKey(route)),
                Step::Take => {
                    if let Some(message) = harness.session.poll_transmit(now) {
                        peer.take(&serde_json::from_slice(&message).unwrap());
                    }
                }
                Step::Happen(route) => peer.happen(route),
                Step::Deliver => {
                    if let Some(message) = peer.link.pop_front() {
                        harness.receive(&message);
                    }
                }
                Step::Consume(route) => harness.consume(route),
                Step::Wait(millis) => harness.wait(Duration::from_millis(millis)),
                Step::Close => {
                    harness.session.close(now);
                    while harness.end.is_none() {
                        harness.wait(CLOSE_PATIENCE);
                    }
                }
                Step::Cut => harness.cut(),
            }
            harness.drain();
            prop_assert!(harness.session.outbox.len() <= 8 + 2, "{}", harness.session.outbox.len());
            prop_assert!(harness.session.events.is_empty());
        }
        if end.is_none() {
            // Every process comes to its end, what is on its way arrives, and the last acknowledgements leave.
            for _ in 0..200 {
                for message in harness.sent() {
                    peer.take(&message);
                }
                (1..6).for_each(|route| peer.happen(route));
                while let Some(message) = peer.link.pop_front() {
                    harness.receive(&message);
                }
                (1..6).for_each(|route| harness.consume(route));
                harness.wait(Duration::from_millis(50));
            }
        }
        harness.wait(Duration::ZERO);
        for token in &tokens {
            prop_assert!(harness.answer(*token).is_some(), "{:?} is not answered", token);
        }
        prop_assert_eq!(harness.answers.len(), tokens.len());
        for ids in peer.written.values() {
            let unique: std::collections::HashSet<_> = ids.iter().collect();
            prop_assert_eq!(unique.len(), ids.len(), "a write id goes out once");
        }
        for (id, model) in &peer.models {
            let route: u64 = id[1..].parse().unwrap();
            let got: Vec<_> = harness.events.iter().filter(|(key, _)| key.0 == route).map(|(_, event)| event.clone()).collect();
            prop_assert_eq!(check(model, 0, &got), 0);
            if end.is_none() && !unread.contains(&route) {
                prop_assert!(matches!(got.last(), Some(Event::Closed(_))), "{} is not over: {:?}", id, got);
            }
        }
        if end.is_none() {
            prop_assert!(harness.failures.is_empty(), "{:?}", harness.failures);
            prop_assert!(harness.end.is_none());
        } else {
            prop_assert!(harness.end.is_some());
        }
        prop_assert_eq!(harness.session.poll_timeout(), None);
    }

    /// Invariant 6, and that nothing panics: whatever arrives, what is held stays bounded.
    #[test]
    fn any_messages_leave_it_sane(messages in vec(message(), 0..200)) {
        let mut config = ClientConfig::default();
        config.output.retained_bytes = 1_000;
        config.reorder_bytes = 1_000;
        let mut harness = Harness::open_with(ALL, config);
        harness.started(1);
        for message in messages {
            harness.receive_raw(message.as_bytes());
            harness.sent();
            harness.consume(1);
            harness.wait(Duration::from_millis(50));
        }
        harness.session.close(harness.now);
        harness.wait(ClientConfig::default().close_grace + CLOSE_PATIENCE);
        prop_assert!(harness.end.is_some());
        let got: Vec<_> = harness.events.iter().map(|(_, event)| event.seq()).collect();
        prop_assert!(got.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

fn message() -> impl Strategy<Value = String> {
    let seq = || prop_oneof![4 => 0_u64..12, 1 => any::<u64>()];
    let read = (seq(), seq(), any::<bool>(), any::<bool>(), 1_i64..40).prop_map(|(seq, next, exited, closed, id)| {
        let chunks = json!([{"seq": seq, "stream": "stdout", "chunk": "eHg="}]);
        let result = json!({
            "chunks": chunks, "nextSeq": next, "exited": exited, "exitCode": 1, "closed": closed, "failure": null,
        });
        json!({"id": id, "result": result}).to_string()
    });
    let output = seq().prop_map(|seq| {
        let params = json!({"processId": "p1", "seq": seq, "stream": "stdout", "chunk": "eHg="});
        json!({"method": "process/output", "params": params}).to_string()
    });
    let exited = (seq(), any::<i32>(), any::<bool>()).prop_map(|(seq, code, says)| {
        let mut params = json!({"processId": "p1", "seq": seq, "exitCode": code});
        if says {
            params["sandboxDenied"] = json!(true);
        }
        json!({"method": "process/exited", "params": params}).to_string()
    });
    let closed = seq()
        .prop_map(|seq| json!({"method": "process/closed", "params": {"processId": "p1", "seq": seq}}).to_string());
    let request = any::<i64>().prop_map(|id| json!({"id": id, "method": "x"}).to_string());
    prop_oneof![8 => output, 4 => read, 2 => exited, 2 => closed, 1 => request, 1 => ".{0,20}"]
}
