//! A session that comes back, against a peer of which every message is written out.

use super::*;
use crate::error::{Disconnected, Sent};

pub(super) const RETRY: Duration = Duration::from_millis(100);

impl Harness {
    /// A session that dials, and whose first connection stands.
    pub(super) fn dialled(features: &[&str]) -> Self {
        let now = Instant::now();
        let session = Session::dialling(ClientConfig::default(), "nonce", true, 1, 0, None);
        let mut harness = Self::with_session(session, now);
        harness.session.connect(now);
        harness.wait(Duration::ZERO);
        harness.answer_dial();
        let initialize = harness.sent();
        harness.receive(&json!({"id": initialize[0]["id"], "result": initialize_result(features)}));
        assert!(harness.is_connected());
        harness
    }

    pub(super) fn is_connected(&self) -> bool {
        self.states.last().is_some_and(ConnectionState::is_connected)
    }

    pub(super) fn answer_dial(&mut self) {
        let link = self.dials.pop().expect("a dial");
        assert!(self.session.handle_dialled(self.now, link, Ok(())), "it is wanted");
        self.drain();
    }

    /// Passes time until the session dials, connects it, and takes the resume.
    pub(super) fn redial(&mut self) -> Value {
        self.wait(RETRY);
        self.answer_dial();
        let initialize = self.sent_one();
        assert_eq!(initialize["params"]["resumeSessionId"], "s");
        initialize
    }

    pub(super) fn resumed(&mut self, features: &[&str]) -> Vec<Value> {
        let initialize = self.redial();
        self.receive(&json!({"id": initialize["id"], "result": initialize_result(features)}));
        let sent = self.sent();
        assert_eq!(sent[0]["method"], "initialized");
        sent[1..].to_vec()
    }

    pub(super) fn unknown(&self, token: Token) -> bool {
        matches!(self.failure(token), Failure::Disconnected(Disconnected { sent: Sent::Unknown, .. }))
    }
}

pub(super) fn read_result(chunks: &[(u64, &str)], next_seq: u64, exited: bool, closed: bool) -> Value {
    let chunks: Vec<_> =
        chunks.iter().map(|(seq, chunk)| json!({"seq": seq, "stream": "stdout", "chunk": chunk})).collect();
    json!({
        "chunks": chunks, "nextSeq": next_seq, "exited": exited, "exitCode": if exited { json!(3) } else { json!(null) },
        "closed": closed, "failure": null, "sandboxDenied": false,
    })
}

#[test]
fn a_first_call_makes_the_connection_and_leaves_with_the_handshake() {
    let session = Session::dialling(ClientConfig::default(), "nonce", true, 1, 0, None);
    let mut harness = Harness::with_session(session, Instant::now());
    assert_eq!(harness.session.poll_timeout(), None);
    let token = harness.submit(1, start(&request(1)));
    harness.wait(Duration::ZERO);
    assert_eq!(harness.dials, [LinkId(1)]);
    assert!(harness.sent().is_empty());
    harness.answer_dial();
    assert_eq!(harness.sent_methods(), ["initialize", "initialized", "process/start"]);
    assert_eq!(harness.states, [ConnectionState::Connecting]);
    assert!(harness.answer(token).is_none());
}

#[test]
fn a_first_connection_that_fails_is_tried_again_and_calls_wait() {
    let session = Session::dialling(ClientConfig::default(), "nonce", true, 1, 0, None);
    let mut harness = Harness::with_session(session, Instant::now());
    let token = harness.submit(1, start(&request(1)));
    harness.wait(Duration::ZERO);
    let link = harness.dials.pop().unwrap();
    let error = ConnectError::TimedOut { what: "it", limit: RETRY };
    assert!(!harness.session.handle_dialled(harness.now, link, Err(error)));
    harness.wait(RETRY);
    harness.answer_dial();
    let sent = harness.sent();
    // The connection breaks within the handshake: what was sent is lost, and what comes later waits.
    let later = harness.submit(2, start(&request(2)));
    harness.cut();
    assert!(harness.unknown(token));
    assert!(harness.answer(later).is_none());
    harness.wait(RETRY);
    harness.answer_dial();
    let again = harness.sent();
    assert!(again[0]["id"].as_i64() > sent[2]["id"].as_i64(), "no number is used twice");
    assert_eq!(again[0]["params"]["resumeSessionId"], json!(null));
    assert_eq!(again[2]["params"]["processId"], "p2");
}

#[test]
fn a_session_without_a_way_back_ends_with_its_connection() {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    harness.cut();
    assert!(harness.end.is_some());
    assert!(matches!(harness.states.last(), Some(ConnectionState::Failed { .. })));
}

#[test]
fn calls_in_flight_are_not_repeated_and_later_ones_wait() {
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    let flying = [
        harness.submit(0, Op::Status),
        harness.submit(0, Op::List),
        harness.submit(1, Op::Signal { signal: crate::request::Signal::Interrupt }),
        harness.submit(1, terminate()),
    ];
    harness.sent();
    let unsent = harness.submit(0, Op::Status);
    harness.cut();
    assert!(matches!(harness.states.last(), Some(ConnectionState::Recovering { .. })));
    let waiting = harness.submit(1, Op::Resize { size: crate::request::TerminalSize { rows: 1, cols: 2 } });
    assert!(flying.iter().all(|token| harness.unknown(*token)));
    let sent = harness.resumed(ALL);
    let methods: Vec<_> = sent.iter().map(|message| message["method"].as_str().unwrap()).collect();
    // The process was started without a terminal, and the peer is not asked.
    assert_eq!(methods, ["process/read", "environment/status"]);
    assert!(matches!(harness.failure(waiting), Failure::NoTerminal(_)));
    assert!(!harness.is_connected(), "not before the outage is known");
    harness.receive(&json!({"id": sent[0]["id"], "result": read_result(&[], 1, false, false)}));
    let connected = ConnectionState::Connected { generation: 2, session: 1 };
    assert_eq!(harness.states.last(), Some(&connected));
    harness.receive(&json!({"id": sent[1]["id"], "result": {"status": "ready"}}));
    assert!(matches!(harness.answer(unsent), Some(Ok(Answer::Done))));
    assert_eq!(harness.hung_up, [LinkId(1)]);
}

#[test]
fn writes_go_out_again_under_the_same_ids_and_in_the_same_order() {
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    let token = harness.submit(1, Op::Write { data: vec![1; 3 * input::PIECE_BYTES].into() });
    let close = harness.submit(1, Op::CloseStdin);
    let names = |sent: &[Value]| -> Vec<String> {
        let pieces = sent.iter().filter(|message| message["method"] != "process/read");
        pieces.map(|message| message["params"]["writeId"].as_str().unwrap_or("close").to_owned()).collect()
    };
    let first = harness.sent();
    assert_eq!(names(&first), ["nonce-1", "nonce-2", "nonce-3", "close"]);
    harness.receive(&json!({"id": first[0]["id"], "result": {"status": "accepted"}}));
    harness.cut();
    let again = harness.resumed(ALL);
    assert_eq!(names(&again), ["nonce-2", "nonce-3", "close"]);
    let pieces: Vec<_> = again.iter().filter(|message| message["method"] != "process/read").cloned().collect();
    for piece in &pieces[..2] {
        assert!(harness.answer(token).is_none());
        harness.receive(&json!({"id": piece["id"], "result": {"status": "accepted"}}));
    }
    assert!(matches!(harness.answer(token), Some(Ok(Answer::Done))));
    // It had arrived the first time.
    harness.receive(&json!({"id": pieces[2]["id"], "result": {"status": "stdinClosed"}}));
    assert!(matches!(harness.answer(close), Some(Ok(Answer::Done))));
}

#[test]
fn a_start_in_doubt_is_ended_and_its_id_is_free_again_afterwards() {
    for (running, state) in [(true, read_result(&[], 1, false, false)), (false, json!(null))] {
        let mut harness = Harness::dialled(&[]);
        let token = harness.submit(1, start(&request(1)));
        harness.sent();
        harness.cut();
        assert!(harness.unknown(token));
        let taken = harness.submit(2, start(&request(1)));
        assert!(matches!(harness.failure(taken), Failure::Spawn(_)), "taken until it is cleaned up");
        let sent = harness.resumed(&[]);
        assert_eq!(sent[0]["method"], "process/terminate");
        assert_eq!(sent[1]["method"], "process/read");
        harness.receive(&json!({"id": sent[0]["id"], "result": {"running": running}}));
        if running {
            harness.receive(&json!({"id": sent[1]["id"], "result": state}));
            harness.exited(1, 1, 137);
            harness.closed(1, 2);
        } else {
            let error = json!({"code": -32600, "message": "unknown process id p1"});
            harness.receive(&json!({"id": sent[1]["id"], "error": error}));
        }
        assert!(harness.is_connected());
        assert!(harness.events.is_empty(), "never adopted");
        harness.started(3);
        harness.submit(4, start(&request(1)));
        assert_eq!(harness.sent_methods(), ["process/start"], "the id is free");
    }
}

#[test]
fn a_kill_that_nobody_waits_for_goes_out_again() {
    let mut harness = Harness::dialled(&[]);
    harness.started(1);
    harness.session.kill(RouteKey(1));
    assert_eq!(harness.sent_methods(), ["process/terminate"]);
    harness.cut();
    let sent = harness.resumed(&[]);
    assert_eq!(sent[0]["method"], "process/terminate");
}

#[test]
fn all_processes_are_caught_up_at_once_from_what_was_handed_out() {
    let mut harness = Harness::dialled(&[]);
    for route in 1..=20 {
        harness.started(route);
        harness.output(route, 1, 5);
        harness.consume(route);
    }
    harness.cut();
    let sent = harness.resumed(&[]);
    assert_eq!(sent.len(), 20);
    for read in &sent {
        assert_eq!((&read["params"]["afterSeq"], &read["params"]["maxBytes"]), (&json!(1), &json!(null)));
        assert_eq!(read["params"]["waitMs"], 0);
    }
    // Live events come before the read's answer; each is handed out once.
    harness.output(1, 3, 7);
    harness.receive(
        &json!({"id": sent[0]["id"], "result": read_result(&[(2, "eA=="), (3, "eHh4eHh4eA==")], 5, true, false)}),
    );
    harness.closed(1, 5);
    let key = sent[0]["params"]["processId"].clone();
    assert_eq!(key, "p1", "reads go in order of the processes");
    let seqs: Vec<_> = harness.events.iter().filter(|(key, _)| key.0 == 1).map(|(_, event)| event.seq()).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5]);
}

#[test]
fn a_gap_of_the_outage_fails_and_ends_only_its_process() {
    let mut harness = Harness::dialled(&[]);
    harness.started(1);
    harness.started(2);
    harness.output(1, 1, 5);
    harness.output(2, 1, 5);
    harness.consume(1);
    harness.consume(2);
    harness.cut();
    let sent = harness.resumed(&[]);
    let read = |id: &str| sent.iter().find(|message| message["params"]["processId"] == id).unwrap()["id"].clone();
    harness.receive(&json!({"id": read("p1"), "result": read_result(&[(4, "eA==")], 5, false, false)}));
    harness.receive(&json!({"id": read("p2"), "result": read_result(&[(2, "eA==")], 3, false, false)}));
    let last: Vec<_> = harness.events.iter().filter(|(key, _)| key.0 == 1).collect();
    assert!(matches!(last.last(), Some((_, Event::Gap(gap))) if (gap.first_seq, gap.last_seq) == (2, 3)), "{last:?}");
    assert!(matches!(&harness.failures[..], [(RouteKey(1), WaitError::OutputLost { bytes: None, .. })]));
    assert_eq!(harness.sent_one()["params"]["processId"], "p1", "it is ended");
    assert!(harness.is_connected());
    harness.output(2, 3, 1);
    assert_eq!(harness.events.last().unwrap().1.seq(), 3);
}

#[test]
fn what_the_reader_was_too_slow_for_is_a_gap_and_no_failure() {
    let mut config = ClientConfig::default();
    config.output.retained_bytes = 100;
    let mut harness = Harness::dialled(&[]);
    harness.session.config = config;
    harness.started(1);
    // Two fill the window, the third is let go.
    for seq in 1..=3 {
        harness.output(1, seq, 60);
    }
    harness.cut();
    let sent = harness.resumed(&[]);
    assert!(sent.is_empty(), "the reader has no room yet");
    assert!(harness.is_connected(), "nobody waits for a reader");
    harness.consume(1);
    let read = harness.sent_one();
    harness.receive(&json!({"id": read["id"], "result": read_result(&[(4, "eA==")], 5, false, false)}));
    assert!(harness.failures.is_empty());
    let seqs: Vec<_> = harness.events.iter().map(|(_, event)| event.seq()).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
}

#[test]
fn a_process_that_the_peer_forgot_fails_alone() {
    let mut harness = Harness::dialled(&[]);
    harness.started(1);
    harness.cut();
    let sent = harness.resumed(&[]);
    let error = json!({"code": -32600, "message": "unknown process id p1"});
    harness.receive(&json!({"id": sent[0]["id"], "error": error}));
    assert!(matches!(&harness.failures[..], [(RouteKey(1), WaitError::UnknownProcess(_))]));
    assert!(harness.is_connected() && harness.end.is_none());
}

#[test]
fn permanent_errors_end_it_at_once_and_an_attached_session_is_tried_again() {
    let mut harness = Harness::dialled(&[]);
    harness.started(1);
    harness.cut();
    let waiting = harness.submit(0, Op::Status);
    let resume = harness.redial();
    let attached = json!({"code": -32010, "message": "session s is already attached"});
    harness.receive(&json!({"id": resume["id"], "error": attached}));
    assert!(harness.end.is_none());
    assert!(harness.sent().is_empty());
    harness.wait(RETRY);
    let resume = harness.sent_one();
    harness.receive(&json!({"id": resume["id"], "error": {"code": -32600, "message": "unknown session id s"}}));
    assert!(matches!(harness.states.last(), Some(ConnectionState::SessionLost { .. })), "{:?}", harness.states);
    assert!(matches!(harness.failure(waiting), Failure::Disconnected(Disconnected { sent: Sent::NotSent, .. })));
    let Some((_, WaitError::Disconnected(error))) = harness.failures.first() else { panic!("{:?}", harness.failures) };
    assert_eq!(*error.reason, *"the peer closed the connection; the handshake failed: unknown session s");
    assert_eq!(harness.session.poll_timeout(), None);
}

#[test]
fn it_is_given_up_at_the_deadline() {
    let mut harness = Harness::dialled(&[]);
    let deadline = harness.now + ClientConfig::default().recovery.deadline;
    harness.cut();
    let waiting = harness.submit(0, Op::Status);
    while harness.end.is_none() {
        let due = harness.session.poll_timeout().expect("it does not wait for ever");
        harness.wait(due.saturating_duration_since(harness.now));
        for link in std::mem::take(&mut harness.dials) {
            let error = ConnectError::TimedOut { what: "it", limit: RETRY };
            harness.session.handle_dialled(harness.now, link, Err(error));
            harness.drain();
        }
    }
    assert_eq!(harness.now, deadline);
    assert!(harness.answer(waiting).is_some());
    assert!(matches!(harness.states.last(), Some(ConnectionState::Failed { .. })));
}

#[test]
fn what_an_older_connection_says_changes_nothing() {
    let mut harness = Harness::dialled(&[]);
    harness.started(1);
    let old = harness.session.link;
    let status = harness.submit(0, Op::Status);
    let id = harness.sent_one()["id"].clone();
    harness.cut();
    harness.session.handle_disconnect(harness.now, old, &TransportError::Closed(None));
    let answer = json!({"id": id, "result": {"status": "ready"}}).to_string();
    let output = json!({"method": "process/output", "params": {"processId": "p1", "seq": 1, "stream": "stdout", "chunk": "eA=="}});
    let before = harness.session.poll_timeout();
    for message in [answer.as_str(), &output.to_string(), "no JSON"] {
        harness.session.handle_message(harness.now, old, message.as_bytes());
        harness.drain();
    }
    assert_eq!(harness.session.poll_timeout(), before);
    let sent = harness.resumed(&[]);
    for message in [answer.as_str(), &output.to_string(), "no JSON"] {
        harness.session.handle_message(harness.now, old, message.as_bytes());
        harness.drain();
    }
    harness.session.handle_silence(harness.now, old, Duration::from_secs(60));
    harness.session.handle_disconnect(harness.now, old, &TransportError::Closed(None));
    assert!(harness.events.is_empty() && harness.unknown(status));
    assert!(!harness.session.handle_dialled(harness.now, old, Ok(())), "a late success is not wanted");
    harness.receive(&json!({"id": sent[0]["id"], "result": read_result(&[], 1, false, false)}));
    assert!(harness.is_connected());
}

#[test]
fn a_peer_that_breaks_the_protocol_again_and_again_is_given_up() {
    let mut harness = Harness::dialled(&[]);
    for round in 0.. {
        harness.receive_raw(b"no JSON");
        if harness.end.is_some() {
            assert_eq!(round, 2);
            break;
        }
        harness.resumed(&[]);
    }
    assert_eq!(harness.end.unwrap().1, Ending::ProtocolError);
}

#[test]
fn another_session_than_the_one_to_resume_is_a_permanent_error() {
    let mut harness = Harness::dialled(&[]);
    harness.cut();
    let resume = harness.redial();
    let mut result = initialize_result(&[]);
    result["sessionId"] = json!("other");
    harness.receive(&json!({"id": resume["id"], "result": result}));
    assert!(harness.end.is_some());
}

#[test]
fn a_link_that_breaks_at_once_is_dialled_with_pauses_and_within_one_deadline() {
    let mut harness = Harness::dialled(&[]);
    harness.started(1);
    let deadline = harness.now + ClientConfig::default().recovery.deadline;
    harness.cut();
    let mut connections = 0;
    while harness.end.is_none() {
        let due = harness.session.poll_timeout().expect("a timeout");
        harness.wait(due.saturating_duration_since(harness.now));
        if harness.dials.is_empty() {
            continue;
        }
        connections += 1;
        harness.answer_dial();
        let initialize = harness.sent_one();
        harness.receive(&json!({"id": initialize["id"], "result": initialize_result(&[])}));
        // It breaks before it has told what happened.
        harness.cut();
    }
    assert!((400..=451).contains(&connections), "{connections}");
    assert_eq!(harness.now, deadline);
}

#[test]
fn the_last_acknowledgement_of_a_process_goes_out_again_until_it_arrived() {
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    harness.exited(1, 1, 0);
    harness.closed(1, 2);
    harness.consume(1);
    harness.session.release(harness.now, RouteKey(1));
    harness.wait(ACK_DELAY);
    let ack = harness.sent_one();
    assert_eq!(ack["params"], json!({"acks": [["p1", 2]]}));
    harness.cut();
    let sent = harness.resumed(ALL);
    assert_eq!(sent[0]["params"], json!({"acks": [["p1", 2]]}));
    harness.submit(0, Op::Status);
    let status = harness.sent_one();
    harness.receive(&json!({"id": status["id"], "result": {"status": "ready"}}));
    harness.cut();
    assert!(harness.resumed(ALL).is_empty(), "it has arrived");
}

#[test]
fn closing_without_a_connection_ends_what_runs_when_there_is_one_again_within_its_time() {
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    harness.cut();
    harness.session.close(harness.now);
    harness.drain();
    assert!(harness.end.is_none());
    let sent = harness.resumed(ALL);
    assert_eq!(sent[0]["method"], "process/terminate");
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    harness.cut();
    harness.session.close(harness.now);
    harness.wait(ClientConfig::default().close_grace + CLOSE_PATIENCE);
    assert_eq!(harness.end.as_ref().unwrap().1, Ending::Normal);
    assert_eq!(harness.states.last(), Some(&ConnectionState::Closed));
    let mut idle = Harness::dialled(ALL);
    idle.cut();
    idle.session.close(idle.now);
    idle.drain();
    assert!(idle.end.is_some(), "nothing runs");
}
