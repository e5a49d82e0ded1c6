use super::*;

fn faults(message: &[u8]) -> (Arc<str>, Ending) {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    let token = harness.submit(0, Op::Status);
    harness.sent();
    harness.receive_raw(message);
    let (_, result) = harness.answers.iter().find(|(known, _)| *known == token).expect("the call is answered");
    assert!(matches!(result, Err(Failure::Disconnected(_))), "{result:?}");
    assert!(matches!(harness.failures[..], [(RouteKey(1), WaitError::Peer(_))]), "{:?}", harness.failures);
    assert_eq!(harness.session.poll_timeout(), None);
    harness.receive_raw(message);
    assert!(harness.sent().is_empty());
    harness.end.expect("the connection ends")
}

#[test]
fn what_breaks_the_protocol_ends_the_connection_and_every_call_on_it() {
    let messages: &[&str] = &[
        "",
        "nonsense",
        "[]",
        "{}",
        r#"{"id":1}"#,
        r#"{"id":1,"id":2,"result":{}}"#,
        r#"{"id":1.5,"result":{}}"#,
        r#"{"id":-1,"error":{"code":-32600,"message":"what?"}}"#,
        r#"{"id":"text","method":"network/policyRequest","params":{}}"#,
        r#"{"id":-5,"method":"network/policyRequest","params":{}}"#,
        r#"{"method":"process/output","params":{"processId":"p1","seq":1,"stream":"stdout","chunk":"!"}}"#,
        r#"{"method":"process/output","params":{"processId":"p1","seq":-1,"stream":"stdout","chunk":""}}"#,
        r#"{"method":"process/output","params":{"processId":"p1","seq":1,"stream":"other","chunk":""}}"#,
        r#"{"method":"process/exited","params":{"processId":"p1"}}"#,
        r#"{"method":"process/closed","params":[]}"#,
    ];
    for message in messages {
        assert_eq!(faults(message.as_bytes()).1, Ending::ProtocolError, "{message}");
    }
    faults(b"\xff\xfe");
    let (reason, ending) = faults(&vec![b' '; (64 << 20) + 1]);
    assert_eq!(ending, Ending::TooLarge, "{reason}");
    faults("[".repeat(200).as_bytes());
}

#[test]
fn what_a_newer_peer_may_say_is_ignored() {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    let messages = [
        json!({"method": "network/policyDecision", "params": 7}),
        json!({"method": "process/weather", "params": {"processId": "p1"}}),
        json!({"method": "process/output", "params": {"processId": "unknown", "seq": 1, "stream": "stdout", "chunk": ""}}),
        json!({"method": "process/exited", "params": {"processId": "unknown", "seq": 1, "exitCode": 0, "more": 1}}),
        json!({"id": 77, "error": {"code": 1, "message": "late"}}),
    ];
    for message in messages {
        harness.receive(&message);
    }
    assert!(harness.end.is_none() && harness.failures.is_empty() && harness.events.is_empty());
}

#[test]
fn a_request_of_the_peer_is_answered_and_a_flood_of_them_is_a_fault() {
    let mut harness = Harness::open(&[]);
    harness.receive(&json!({"id": 0, "method": "network/policyRequest", "params": {}}));
    let answer = harness.sent_one();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(0), &json!(-32601)));
    let long = "é".repeat(1 << 20);
    for id in 0..=MAX_REPLIES {
        assert!(harness.end.is_none());
        harness.receive(&json!({"id": id, "method": if id == 0 { &long } else { "x" }}));
        assert!(harness.session.outbox.iter().all(|answer| answer.bytes.len() < 1_024), "what it said is cut");
    }
    assert_eq!(harness.end.as_ref().unwrap().1, Ending::ProtocolError);
    assert!(harness.session.outbox.is_empty());
}

#[test]
fn a_process_whose_events_make_no_sense_is_ended_and_the_others_go_on() {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    harness.started(2);
    for seq in 2..400 {
        harness.output(1, seq, 1);
    }
    assert!(matches!(harness.failures[..], [(RouteKey(1), WaitError::Peer(PeerMisbehaved::ReorderWindow { .. }))]));
    let stop = harness.sent_one();
    assert_eq!((&stop["method"], &stop["params"]["processId"]), (&json!("process/terminate"), &json!("p1")));
    harness.output(2, 1, 1);
    assert!(matches!(harness.events[..], [(RouteKey(2), Event::Output(_))]));
    assert!(harness.end.is_none());
}

#[test]
fn what_still_comes_of_a_failed_process_is_acknowledged_up_to_its_close() {
    let mut harness = Harness::open(ALL);
    harness.started(1);
    harness.output(1, 1, 10);
    harness.exited(1, 2, 0);
    harness.exited(1, 3, 0);
    assert!(matches!(harness.failures[..], [(RouteKey(1), WaitError::Peer(PeerMisbehaved::Protocol(_)))]));
    assert_eq!(harness.sent_one()["method"], "process/terminate");
    let before = harness.events.len();
    harness.session.discard(harness.now, RouteKey(1));
    harness.session.release(harness.now, RouteKey(1));
    // Or else the process would wait for room, and be kept by the peer for as long as the session lives.
    harness.output(1, 3, 10);
    harness.wait(ACK_DELAY);
    assert_eq!(harness.sent_one()["params"]["acks"], json!([["p1", 3]]));
    harness.closed(1, 4);
    assert!(harness.session.routes.is_empty());
    harness.wait(ACK_DELAY);
    assert_eq!(harness.sent_one()["params"]["acks"], json!([["p1", 4]]));
    assert_eq!((harness.events.len(), harness.failures.len()), (before, 1), "its reader hears no more");
}

#[test]
fn a_flood_towards_a_reader_that_does_not_read_stays_bounded() {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    for seq in 1..2_000 {
        harness.output(1, seq, 64 << 10);
    }
    let held: usize = harness
        .events
        .iter()
        .map(|(_, event)| match event {
            Event::Output(output) => output.bytes.len(),
            _ => 0,
        })
        .sum();
    assert!(held <= (1 << 20) + (64 << 10), "{held} bytes are held");
    assert!(harness.session.events.is_empty() && harness.session.outbox.is_empty());
    assert!(harness.sent().is_empty(), "no read before there is room");
    harness.consume(1);
    assert_eq!(harness.sent_methods(), ["process/read"]);
}
