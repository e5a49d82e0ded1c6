use super::*;
use crate::request::{ExecRequest, Stdin};
use crate::status::ExitStatus;

fn read_result(next_seq: u64, chunks: &[(u64, usize)], state: (bool, Option<i32>, bool)) -> Value {
    let chunks: Vec<_> = chunks
        .iter()
        .map(|(seq, size)| {
            let bytes = crate::wire::Base64(vec![b'x'; *size].into());
            json!({"seq": seq, "stream": "stdout", "chunk": serde_json::to_value(bytes).unwrap()})
        })
        .collect();
    let (exited, exit_code, closed) = state;
    json!({
        "chunks": chunks, "nextSeq": next_seq, "exited": exited, "exitCode": exit_code, "closed": closed,
        "failure": null, "sandboxDenied": false,
    })
}

#[test]
fn events_may_come_before_the_answer_to_the_start() {
    let mut harness = Harness::open(&[]);
    let token = harness.submit(1, start(&request(1)));
    let sent = harness.sent_one();
    harness.output(1, 1, 5);
    harness.exited(1, 2, 3);
    harness.closed(1, 3);
    harness.receive(&json!({"id": sent["id"], "result": {"processId": "p1"}}));
    assert!(matches!(
        harness.answer(token),
        Some(Ok(Answer::Started(Started { sandbox_type: None, enforcement: None })))
    ));
    let kinds: Vec<_> = harness.events.iter().map(|(_, event)| event.seq()).collect();
    assert_eq!(kinds, [1, 2, 3]);
}

#[test]
fn a_complete_process_costs_no_read() {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    harness.output(1, 1, 5);
    harness.exited(1, 2, 0);
    harness.closed(1, 3);
    harness.consume(1);
    assert!(harness.sent().is_empty());
    assert_eq!(harness.session.poll_timeout(), None);
    harness.session.discard(harness.now, RouteKey(1));
    harness.session.release(harness.now, RouteKey(1));
    assert!(harness.session.routes.is_empty() && harness.session.by_id.is_empty());
}

#[test]
fn an_exit_without_the_denial_flag_costs_exactly_one_read() {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    harness.receive(&json!({"method": "process/exited", "params": {"processId": "p1", "seq": 1, "exitCode": 0}}));
    harness.closed(1, 2);
    let read = harness.sent_one();
    assert_eq!(read["method"], "process/read");
    assert_eq!(read["params"]["waitMs"], 0);
    let mut result = read_result(3, &[], (true, Some(0), true));
    result["sandboxDenied"] = json!(true);
    harness.receive(&json!({"id": read["id"], "result": result}));
    assert!(harness.sent().is_empty());
    assert!(matches!(harness.events[0].1, Event::Exited(crate::event::Exited { sandbox_denied: true, .. })));
    assert_eq!(harness.events.len(), 2);
}

#[test]
fn a_plain_peer_is_held_up_for_a_moment_only() {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    for seq in 1..=16 {
        harness.output(1, seq, 64 << 10);
    }
    assert!(harness.session.is_paused(), "the reader is full");
    harness.consume(1);
    assert!(!harness.session.is_paused());
    for seq in 17..=32 {
        harness.output(1, seq, 64 << 10);
    }
    assert!(harness.session.is_paused());
    harness.wait(PAUSE);
    assert!(!harness.session.is_paused(), "a reader that stops holds nobody up");
    harness.output(1, 33, 1);
    harness.consume(1);
    let read = harness.sent_one();
    assert_eq!((&read["method"], &read["params"]["afterSeq"]), (&json!("process/read"), &json!(32)));
    harness.receive(&json!({"id": read["id"], "result": read_result(34, &[(33, 1)], (false, None, false))}));
    assert_eq!(harness.events.last().unwrap().1.seq(), 33);
    assert!(!harness.session.is_paused());
    // With the extension the peer knows how far the reader is.
    let mut harness = Harness::open(ALL);
    harness.started(1);
    for seq in 1..=16 {
        harness.output(1, seq, 64 << 10);
    }
    assert!(!harness.session.is_paused());
}

#[test]
fn consumption_is_acknowledged_in_batches() {
    let mut harness = Harness::open(ALL);
    harness.started(1);
    harness.started(2);
    harness.output(1, 1, 100);
    harness.output(2, 1, 100);
    harness.consume(1);
    harness.consume(2);
    assert!(harness.sent().is_empty(), "a little waits for more");
    harness.wait(ACK_DELAY);
    let ack = harness.sent_one();
    assert_eq!(ack, json!({"method": "longarm/process/ack", "params": {"acks": [["p1", 1], ["p2", 1]]}}));
    assert_eq!(harness.session.poll_timeout(), None);
    for seq in 2..=6 {
        harness.output(1, seq, 64 << 10);
    }
    harness.consume(1);
    assert_eq!(harness.sent_one()["params"]["acks"], json!([["p1", 6]]), "much goes at once");
    harness.consume(1);
    assert!(harness.sent().is_empty(), "nothing twice");
    harness.session.discard(harness.now, RouteKey(1));
    harness.output(1, 7, 10);
    harness.wait(ACK_DELAY);
    assert_eq!(harness.sent_one()["params"]["acks"], json!([["p1", 7]]), "what nobody wants counts as seen");
}

#[test]
fn the_end_of_a_process_is_acknowledged_when_it_is_forgotten_here() {
    for (features, discarded) in [(ALL, false), (ALL, true), (&[] as &[&str], false)] {
        let mut harness = Harness::open(features);
        for route in 1..=2 {
            harness.started(route);
            harness.output(route, 1, 10);
            if discarded {
                harness.session.discard(harness.now, RouteKey(route));
            }
            harness.exited(route, 2, 0);
            harness.closed(route, 3);
            harness.session.release(harness.now, RouteKey(route));
            harness.drain();
        }
        assert!(harness.sent().is_empty(), "both at once");
        harness.wait(ACK_DELAY);
        if features.is_empty() {
            assert!(harness.sent().is_empty());
        } else {
            assert_eq!(harness.sent_one()["params"]["acks"], json!([["p1", 3], ["p2", 3]]));
        }
        assert_eq!(harness.session.poll_timeout(), None);
    }
}

#[test]
fn writes_go_one_by_one_to_a_plain_peer_and_several_at_a_time_to_ours() {
    for (features, width) in [(&[] as &[&str], 1), (ALL, 8)] {
        let mut harness = Harness::open(features);
        harness.started(1);
        let tokens: Vec<_> = (0..20).map(|_| harness.submit(1, Op::Write { data: Bytes::from_static(b"x") })).collect();
        let mut ids = std::collections::HashSet::new();
        for _ in 0..20_usize.div_ceil(width) {
            let sent = harness.sent();
            assert!(sent.len() <= width);
            for write in sent {
                assert!(ids.insert(write["params"]["writeId"].as_str().unwrap().to_owned()), "a fresh id");
                harness.receive(&json!({"id": write["id"], "result": {"status": "accepted"}}));
            }
        }
        assert_eq!(ids.len(), 20);
        assert!(tokens.iter().all(|token| matches!(harness.answer(*token), Some(Ok(Answer::Done)))));
    }
}

#[test]
fn a_process_that_does_not_read_its_input_holds_nothing_up() {
    let mut harness = Harness::open(ALL);
    harness.started(1);
    harness.started(2);
    for _ in 0..2_000 {
        harness.submit(1, Op::Write { data: Bytes::from_static(b"x") });
    }
    assert_eq!(harness.sent().len(), 8);
    harness.submit(2, Op::Write { data: Bytes::from_static(b"y") });
    harness.submit(0, Op::Status);
    harness.submit(1, terminate());
    let mut methods = harness.sent_methods();
    methods.sort();
    assert_eq!(methods, ["environment/status", "process/terminate", "process/write"]);
}

#[test]
fn statuses_of_writes_become_errors() {
    let mut harness = Harness::open(ALL);
    let cat = |route| ExecRequest::new(["cat"]).cwd("/tmp").process_id(process_id(route)).stdin(Stdin::Piped);
    for (route, status, expected) in
        [(1, "stdinClosed", "StdinClosed"), (2, "unknownProcess", "UnknownProcess"), (3, "starting", "Peer")]
    {
        harness.submit(route, start(&cat(route)));
        let sent = harness.sent_one();
        assert_eq!(sent["params"]["pipeStdin"], true);
        harness.receive(&json!({"id": sent["id"], "result": {"processId": sent["params"]["processId"]}}));
        let token = harness.submit(route, Op::Write { data: Bytes::from_static(b"x") });
        let write = harness.sent_one();
        harness.receive(&json!({"id": write["id"], "result": {"status": status}}));
        assert!(format!("{:?}", harness.failure(token)).starts_with(expected));
    }
    harness.started(4);
    let token = harness.submit(4, Op::CloseStdin);
    let close = harness.sent_one();
    assert_eq!(close["method"], "longarm/process/closeStdin");
    harness.receive(&json!({"id": close["id"], "result": {"status": "accepted"}}));
    assert!(matches!(harness.answer(token), Some(Ok(Answer::Done))));
}

/// What the peer did not take must not be missing from the middle of what the process reads.
#[test]
fn after_a_refused_write_nothing_more_goes_to_the_process() {
    let mut harness = Harness::open(ALL);
    harness.started(1);
    harness.started(2);
    let long = harness.submit(1, Op::Write { data: Bytes::from(vec![b'x'; 20 * (64 << 10)]) });
    let waiting = harness.submit(1, Op::Write { data: Bytes::from_static(b"y") });
    let pieces = harness.sent();
    assert_eq!(pieces.len(), 8);
    harness.receive(&json!({"id": pieces[0]["id"], "error": {"code": -32600, "message": "too much"}}));
    assert!(matches!(harness.failure(waiting), Failure::Remote(_)));
    for piece in &pieces[1..] {
        assert!(harness.answer(long).is_none());
        assert!(harness.sent().is_empty());
        harness.receive(&json!({"id": piece["id"], "result": {"status": "accepted"}}));
    }
    assert!(matches!(harness.failure(long), Failure::Remote(_)));
    let later = harness.submit(1, Op::Write { data: Bytes::from_static(b"z") });
    assert!(matches!(harness.failure(later), Failure::Remote(_)));
    harness.submit(2, Op::Write { data: Bytes::from_static(b"z") });
    assert_eq!(harness.sent_one()["params"]["processId"], "p2");
}

#[test]
fn a_refusal_is_taken_for_an_unknown_process_only_if_it_says_so() {
    let mut harness = Harness::open(ALL);
    harness.started(1);
    for op in [
        || Op::Signal { signal: crate::request::Signal::Kill },
        || Op::Resize { size: crate::request::TerminalSize { rows: 1, cols: 1 } },
    ] {
        harness.session.routes.get_mut(&RouteKey(1)).unwrap().tty = None;
        for (message, unknown) in [("unknown process id p1", true), ("more than 7 requests without an answer", false)] {
            let token = harness.submit(1, op());
            let sent = harness.sent_one();
            harness.receive(&json!({"id": sent["id"], "error": {"code": -32600, "message": message}}));
            assert_eq!(matches!(harness.failure(token), Failure::UnknownProcess(_)), unknown);
            assert_eq!(matches!(harness.failure(token), Failure::Remote(_)), !unknown);
        }
    }
}

#[test]
fn a_read_that_is_refused_for_now_does_not_end_the_events() {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    harness.output(1, 2, 5);
    harness.wait(Duration::from_secs(1));
    let read = harness.sent_one();
    harness.receive(&json!({"id": read["id"], "error": {"code": -32600, "message": "too much at a time"}}));
    assert!(harness.sent().is_empty() && harness.failures.is_empty());
    harness.wait(Duration::from_secs(1));
    let read = harness.sent_one();
    harness.receive(&json!({"id": read["id"], "result": read_result(3, &[(1, 5), (2, 5)], (false, None, false))}));
    assert_eq!(harness.events.iter().map(|(_, event)| event.seq()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(harness.session.poll_timeout(), None);
}

/// The peer keeps what it has of a process until it hears that it is not needed.
#[test]
fn a_process_whose_events_failed_is_acknowledged_to_its_end() {
    let mut harness = Harness::open(ALL);
    harness.started(1);
    harness.exited(1, 1, 0);
    harness.exited(1, 2, 0);
    assert!(matches!(harness.failures[..], [(RouteKey(1), WaitError::Peer(_))]));
    let stop = harness.sent_one();
    harness.receive(&json!({"id": stop["id"], "result": {"running": true}}));
    harness.session.discard(harness.now, RouteKey(1));
    harness.session.release(harness.now, RouteKey(1));
    harness.output(1, 3, 7);
    harness.closed(1, 4);
    harness.wait(ACK_DELAY);
    assert_eq!(harness.sent_one()["params"]["acks"], json!([["p1", 4]]));
    assert_eq!(harness.failures.len(), 1);
    assert!(harness.session.routes.is_empty() && harness.session.by_id.is_empty());
    // The id is free.
    harness.started(1);

    let mut harness = Harness::open(ALL);
    harness.started(1);
    harness.output(1, 2, 5);
    harness.wait(Duration::from_secs(1));
    let read = harness.sent_one();
    let mut result = read_result(9, &[], (true, None, true));
    result["failure"] = json!("lost its place");
    harness.receive(&json!({"id": read["id"], "result": result}));
    assert!(matches!(harness.failures[..], [(RouteKey(1), WaitError::Failed { .. })]));
    harness.session.discard(harness.now, RouteKey(1));
    harness.session.release(harness.now, RouteKey(1));
    harness.wait(ACK_DELAY);
    assert_eq!(harness.sent_one()["params"]["acks"], json!([["p1", 8]]));
    assert!(harness.session.routes.is_empty() && harness.session.by_id.is_empty());
}

#[test]
fn limits_that_a_plain_peer_lacks_are_kept_here() {
    let mut harness = Harness::open(&[]);
    let limited = request(1).time_limit(Duration::from_secs(5));
    harness.submit(1, start(&limited));
    let sent = harness.sent_one();
    assert_eq!(sent["params"].get("longarm"), None);
    harness.receive(&json!({"id": sent["id"], "result": {"processId": "p1"}}));
    harness.wait(Duration::from_secs(4));
    assert!(harness.sent().is_empty());
    harness.wait(Duration::from_secs(1));
    let stop = harness.sent_one();
    assert_eq!(stop["method"], "process/terminate");
    assert_eq!(harness.session.poll_timeout(), None);
    harness.exited(1, 1, 137);
    let Event::Exited(exited) = &harness.events[0].1 else { panic!() };
    assert!(exited.status.timed_out());

    harness.submit(2, start(&request(2).output_limit_bytes(10)));
    let sent = harness.sent_one();
    harness.receive(&json!({"id": sent["id"], "result": {"processId": "p2"}}));
    harness.output(2, 1, 10);
    assert!(harness.sent().is_empty());
    harness.output(2, 2, 1);
    assert_eq!(harness.sent_one()["method"], "process/terminate");
    harness.exited(2, 3, 137);
    let Event::Exited(exited) = &harness.events.last().unwrap().1 else { panic!() };
    assert_eq!(exited.status, ExitStatus::exited(137).with_limit(Some(crate::status::LimitExceeded::Output)));
}

#[test]
fn a_process_that_ends_in_time_leaves_no_timer() {
    let mut harness = Harness::open(&[]);
    harness.submit(1, start(&request(1).time_limit(Duration::from_secs(5))));
    let sent = harness.sent_one();
    harness.receive(&json!({"id": sent["id"], "result": {"processId": "p1"}}));
    harness.exited(1, 1, 0);
    assert_eq!(harness.session.poll_timeout(), None);
    harness.wait(Duration::from_secs(9));
    assert!(harness.sent().is_empty());
    let Event::Exited(exited) = &harness.events[0].1 else { panic!() };
    assert!(exited.status.success());
}

#[test]
fn attaching_reads_first_and_follows_then() {
    let mut harness = Harness::open(&[]);
    let token = harness.submit(1, Op::Attach { process_id: process_id(1), after_seq: 1 });
    let read = harness.sent_one();
    assert_eq!(read["params"], json!({"processId": "p1", "afterSeq": 1, "maxBytes": null, "waitMs": 0}));
    harness.output(1, 4, 5);
    harness.receive(&json!({"id": read["id"], "result": read_result(4, &[(2, 5), (3, 5)], (false, None, false))}));
    assert!(matches!(harness.answer(token), Some(Ok(Answer::Started(_)))));
    assert_eq!(harness.events.iter().map(|(_, event)| event.seq()).collect::<Vec<_>>(), [2, 3, 4]);

    let token = harness.submit(2, Op::Attach { process_id: process_id(2), after_seq: 0 });
    let read = harness.sent_one();
    harness.receive(&json!({"id": read["id"], "error": {"code": -32600, "message": "unknown process id p2"}}));
    assert!(matches!(harness.failure(token), Failure::UnknownProcess(_)));
    assert!(harness.failures.is_empty());
}

#[test]
fn attaching_that_nobody_waits_for_counts_nothing_as_read_and_ends_nothing() {
    for (answered, mode) in [(false, None), (true, None), (false, Some(Mode::Resume("s".into())))] {
        let mut harness = match mode {
            None => Harness::open(ALL),
            Some(mode) => Harness::with_config(mode, ClientConfig::default()),
        };
        let attach = || Op::Attach { process_id: process_id(1), after_seq: 0 };
        let token = harness.submit(1, attach());
        let read = harness.sent().into_iter().find(|sent| sent["method"] == "process/read");
        let result = read_result(3, &[(1, 5), (2, 5)], (false, None, false));
        let answer = read.map(|read| json!({"id": read["id"], "result": result}));
        let answer = answer.as_ref();
        if answered {
            harness.receive(answer.unwrap());
        }
        // As the parts of the dropped future say it.
        harness.session.abandon(harness.now, RouteKey(1));
        harness.session.discard(harness.now, RouteKey(1));
        harness.session.release(harness.now, RouteKey(1));
        if !answered {
            answer.into_iter().for_each(|answer| harness.receive(answer));
        }
        harness.drain();
        assert!(harness.answer(token).is_some());
        harness.wait(ACK_DELAY * 2);
        assert!(!harness.sent_methods().iter().any(|method| method != "initialize"), "no acknowledgement, no stop");
        assert!(harness.session.routes.is_empty() && harness.session.held.is_empty() && harness.session.reads == 0);
        if harness.connected.is_some() {
            harness.submit(2, attach());
            assert_eq!(harness.sent_methods(), ["process/read"]);
        }
    }
}

#[test]
fn what_is_meant_for_an_ended_process_never_reaches_a_later_one_of_its_id() {
    let mut harness = Harness::open(ALL);
    harness.started(1);
    harness.exited(1, 1, 0);
    harness.closed(1, 2);
    let token = harness.submit(2, start(&request(1)));
    let sent = harness.sent_one();
    harness.receive(&json!({"id": sent["id"], "result": {"processId": "p1"}}));
    assert!(matches!(harness.answer(token), Some(Ok(_))));
    let stop = harness.submit(1, Op::Terminate { grace: Duration::ZERO, descendants: true });
    assert!(matches!(harness.answer(stop), Some(Ok(Answer::Running(false)))));
    let signal = harness.submit(1, Op::Signal { signal: crate::request::Signal::Interrupt });
    assert!(matches!(harness.answer(signal), Some(Ok(Answer::Done))));
    let write = harness.submit(1, Op::Write { data: Bytes::new() });
    assert!(matches!(harness.failure(write), Failure::StdinClosed));
    assert!(harness.sent().is_empty());
    harness.output(1, 1, 3);
    assert_eq!(harness.events.last().unwrap().0, RouteKey(2));
}

#[test]
fn the_list_of_processes_is_told() {
    let mut harness = Harness::open(ALL);
    let token = harness.submit(0, Op::List);
    let sent = harness.sent_one();
    let listed = json!({"processId": "a", "state": "exited", "nextSeq": 4, "tty": true, "exitCode": 130});
    harness.receive(&json!({"id": sent["id"], "result": {"processes": [listed]}}));
    let Some(Ok(Answer::List(list))) = harness.answer(token) else { panic!() };
    assert_eq!((list[0].state, list[0].next_seq, list[0].exit_code), (ProcessState::Exited, 4, Some(130)));
}

#[test]
fn a_sandbox_is_asked_for_and_what_is_said_of_it_is_told() {
    use crate::sandbox::{Evidence, Level, ManagedNetworkFacts, SandboxIntent};

    let mut harness = Harness::open(ALL);
    let intent = SandboxIntent::read_only();
    let asked = request(1).sandbox(intent.clone()).managed_network(ManagedNetworkFacts::ports([8080]));
    let token = harness.submit(1, start(&asked.enforce_managed_network(true)));
    let sent = harness.sent_one();
    assert_eq!(sent["params"]["sandbox"], serde_json::from_str::<Value>(&intent.to_json()).unwrap());
    assert_eq!(sent["params"]["managedNetwork"]["loopbackPorts"], json!([8080]));
    assert_eq!(sent["params"]["enforceManagedNetwork"], true);
    let enforcement = json!({"level": "partial", "reasons": ["x"], "mechanisms": ["seccomp"], "later": 1});
    let result = json!({"processId": "p1", "sandboxType": "linuxSeccomp", "longarm": {"enforcement": enforcement}});
    harness.receive(&json!({"id": sent["id"], "result": result}));
    let Some(Ok(Answer::Started(started))) = harness.answer(token) else { panic!("it is started") };
    assert_eq!(started.sandbox_type.as_deref(), Some("linuxSeccomp"));
    let level = started.enforcement.as_ref().map(|enforcement| &enforcement.level);
    assert_eq!(level, Some(&Level::Partial(vec!["x".into()])));
    let evidence = json!([{"kind": "ofTheFuture", "x": 1}, {"kind": "signal", "number": 31}]);
    harness.receive(&json!({"method": "process/exited", "params": {
        "processId": "p1", "seq": 1, "exitCode": 159, "sandboxDenied": true, "longarm": {"denial": {"evidence": evidence}},
    }}));
    let [denial] = harness.denials.as_slice() else { panic!("{:?}", harness.denials) };
    assert!(denial.denied && matches!(denial.evidence.as_slice(), [Evidence::Signal { number: 31 }]), "{denial:?}");
}
