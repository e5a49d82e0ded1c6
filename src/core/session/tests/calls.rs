use super::*;
use crate::error::{Disconnected, Sent, SpawnError, TransportError};

fn small(max_calls: usize) -> ClientConfig {
    ClientConfig { max_calls, max_calls_extended: max_calls, ..ClientConfig::default() }
}

#[test]
fn one_call_too_many_is_busy_at_once_and_a_stop_has_a_place_of_its_own() {
    let mut harness = Harness::open_with(&[], small(2));
    harness.started(1);
    harness.submit(0, Op::Status);
    harness.submit(0, Op::Status);
    let refused = harness.submit(0, Op::Status);
    assert!(matches!(harness.failure(refused), Failure::Busy(_)));
    harness.submit(1, terminate());
    assert_eq!(harness.sent_methods(), ["environment/status", "environment/status", "process/terminate"]);
}

#[test]
fn a_burst_of_stops_waits_and_only_a_stuck_peer_loses_the_connection() {
    let mut harness = Harness::open_with(&[], small(1));
    for route in 1..=4 {
        harness.started(route);
    }
    harness.submit(0, Op::Status);
    let stops: Vec<_> = (1..=4).map(|route| harness.submit(route, terminate())).collect();
    let sent = harness.sent();
    assert_eq!(sent.len(), 2, "the call and the clean-up: {sent:?}");
    harness.wait(Duration::from_secs(9));
    harness.receive(&json!({"id": sent[1]["id"], "result": {"running": true}}));
    let sent = harness.sent_one();
    assert_eq!(sent["method"], "process/terminate");
    harness.wait(Duration::from_secs(9));
    assert!(harness.end.is_none());
    harness.wait(Duration::from_secs(1));
    assert_eq!(harness.end.as_ref().unwrap().1, Ending::Lost);
    assert!(stops.iter().all(|token| harness.answer(*token).is_some()));
}

#[test]
fn a_guessed_or_late_answer_changes_nothing() {
    let mut harness = Harness::open_with(&[], small(1));
    let token = harness.submit(0, Op::Status);
    for guess in [2, 3, 99, 0, -7] {
        harness.receive(&json!({"id": guess, "result": {"status": "ready"}}));
    }
    harness.receive(&json!({"id": "2", "result": {}}));
    assert!(harness.answer(token).is_none());
    let refused = harness.submit(0, Op::Status);
    assert!(matches!(harness.failure(refused), Failure::Busy(_)), "a guess frees no place");
    let sent = harness.sent_one();
    harness.receive(&json!({"id": sent["id"], "result": {"status": "ready"}}));
    harness.receive(&json!({"id": sent["id"], "result": {"status": "ready"}}));
    assert!(matches!(harness.answer(token), Some(Ok(Answer::Done))));
    assert!(harness.end.is_none());
}

#[test]
fn a_disconnect_says_what_may_have_run() {
    let mut harness = Harness::open(&[]);
    let sent = harness.submit(1, start(&request(1)));
    harness.sent();
    let unsent = harness.submit(2, start(&request(2)));
    let link = harness.session.link;
    let error = TransportError::Closed(Some("bye".into()));
    harness.session.handle_disconnect(harness.now, link, &error);
    harness.drain();
    let sent_of = |token| match harness.failure(token) {
        Failure::Disconnected(Disconnected { sent, reason }) => (*sent, reason.to_string()),
        other => panic!("{other:?}"),
    };
    assert_eq!(sent_of(sent), (Sent::Unknown, "the peer closed the connection: bye".into()));
    assert_eq!(sent_of(unsent).0, Sent::NotSent);
    assert_eq!(harness.failures.len(), 2);
    let late = harness.submit(3, Op::Status);
    assert!(matches!(harness.failure(late), Failure::Disconnected(Disconnected { sent: Sent::NotSent, .. })));
    assert_eq!(harness.session.poll_timeout(), None);
}

#[test]
fn errors_of_a_start_are_rebuilt() {
    let mut harness = Harness::open(&[]);
    let token = harness.submit(1, start(&request(1)));
    let sent = harness.sent_one();
    let error = json!({"code": -32603, "message": "No such file", "data": {"kind": "spawnNotFound"}});
    harness.receive(&json!({"id": sent["id"], "error": error}));
    let Failure::Spawn(error) = harness.failure(token) else { panic!() };
    assert!(matches!(&**error, SpawnError::ProgramOrCwdNotFound { program, cwd }
        if program.as_os_str() == "true" && cwd.as_os_str() == "/tmp"));
    // The id is free again.
    harness.started(1);
}

#[test]
fn a_result_of_the_wrong_form_fails_its_call_only() {
    let mut harness = Harness::open(&[]);
    let token = harness.submit(0, Op::Status);
    let sent = harness.sent_one();
    harness.receive(&json!({"id": sent["id"], "result": 7}));
    assert!(matches!(harness.failure(token), Failure::Peer(PeerMisbehaved::BadResult { .. })));
    assert!(harness.end.is_none());
}

#[test]
fn a_start_that_nobody_waits_for_is_taken_back_or_ended() {
    let mut harness = Harness::open(&[]);
    harness.submit(1, start(&request(1)));
    harness.session.abandon(harness.now, RouteKey(1));
    assert!(harness.sent().is_empty(), "taken back");

    harness.submit(2, start(&request(2)));
    let sent = harness.sent_one();
    harness.session.abandon(harness.now, RouteKey(2));
    harness.session.release(harness.now, RouteKey(2));
    let stop = harness.sent_one();
    assert_eq!((&stop["method"], &stop["params"]["processId"]), (&json!("process/terminate"), &json!("p2")));
    // It overtook the start: the process is ended once more.
    harness.receive(&json!({"id": stop["id"], "result": {"running": false}}));
    harness.receive(&json!({"id": sent["id"], "result": {"processId": "p2", "sandboxType": null}}));
    let stop = harness.sent_one();
    assert_eq!(stop["method"], "process/terminate");
    harness.receive(&json!({"id": stop["id"], "result": {"running": true}}));
    harness.exited(2, 1, 137);
    harness.closed(2, 2);
    assert!(harness.session.routes.is_empty());
}

#[test]
fn a_process_is_detached_while_its_place_closes_if_its_stop_has_not_left() {
    let mut harness = Harness::open(ALL);
    harness.started(1);
    harness.started(2);
    harness.session.close(harness.now);
    assert!(harness.session.detach(RouteKey(2)), "nothing was sent yet");
    let stop = harness.sent_one();
    assert_eq!(stop["params"]["processId"], "p1");
    assert!(!harness.session.detach(RouteKey(1)), "it is on its way");
    harness.receive(&json!({"id": stop["id"], "result": {"running": true}}));
    harness.exited(1, 1, 143);
    harness.closed(1, 2);
    assert!(harness.end.is_some(), "it waits for nobody else");
}

#[test]
fn closing_ends_what_is_not_detached_and_waits_for_the_answers() {
    let mut harness = Harness::open(&[]);
    for route in 1..=3 {
        harness.started(route);
    }
    harness.session.detach(RouteKey(2));
    harness.exited(3, 1, 0);
    harness.closed(3, 2);
    harness.session.close(harness.now);
    let late = harness.submit(9, start(&request(9)));
    assert!(matches!(harness.failure(late), Failure::Closed));
    let stop = harness.sent_one();
    assert_eq!(stop["params"]["processId"], "p1");
    assert!(harness.end.is_none());
    harness.receive(&json!({"id": stop["id"], "result": {"running": true}}));
    assert_eq!(harness.end.as_ref().unwrap().1, Ending::Normal);
}

/// A session with the extension and one process, which is being closed; and the stop.
fn closing(config: ClientConfig) -> (Harness, Value) {
    let mut harness = Harness::open_with(ALL, config);
    harness.started(1);
    harness.session.close(harness.now);
    harness.drain();
    let stop = harness.sent_one();
    (harness, stop)
}

#[test]
fn closing_is_polite_and_waits_for_the_end() {
    let config = ClientConfig { close_grace: Duration::from_millis(700), ..ClientConfig::default() };
    let (mut harness, stop) = closing(config);
    assert_eq!(stop["params"]["longarm"], json!({"graceMs": 700, "descendants": true}));
    harness.receive(&json!({"id": stop["id"], "result": {"running": true}}));
    harness.exited(1, 1, 0);
    assert!(harness.end.is_none(), "the streams are open");
    harness.closed(1, 2);
    assert_eq!(harness.end.as_ref().unwrap().1, Ending::Normal);
    assert_eq!(harness.events.len(), 2);
    assert!(harness.failures.is_empty(), "{:?}", harness.failures);
}

#[test]
fn closing_waits_for_the_grace_time_and_a_little_more() {
    let (mut harness, stop) = closing(ClientConfig::default());
    harness.receive(&json!({"id": stop["id"], "result": {"running": true}}));
    harness.wait(ClientConfig::default().close_grace);
    assert!(harness.end.is_none());
    harness.wait(CLOSE_PATIENCE);
    assert_eq!(harness.end.as_ref().unwrap().1, Ending::Normal);
}

#[test]
fn a_reader_that_does_not_read_does_not_hold_up_the_close() {
    let mut config = ClientConfig::default();
    config.output.retained_bytes = 100;
    let (mut harness, stop) = closing(config);
    harness.receive(&json!({"id": stop["id"], "result": {"running": true}}));
    harness.output(1, 1, 100);
    assert!(matches!(harness.failures[..], [(RouteKey(1), WaitError::Disconnected(_))]), "{:?}", harness.failures);
    harness.wait(Duration::from_millis(25));
    assert_eq!(harness.sent_one()["params"], json!({"acks": [["p1", 1]]}), "so that the rest can come");
    harness.output(1, 2, 100);
    harness.exited(1, 3, 143);
    harness.closed(1, 4);
    assert_eq!(harness.end.as_ref().unwrap().1, Ending::Normal);
    assert_eq!(harness.failures.len(), 1);
}

#[test]
fn dropping_everything_kills_at_once() {
    let mut harness = Harness::open(ALL);
    harness.started(1);
    harness.session.abandon_all(harness.now);
    assert_eq!(harness.sent_one()["params"]["longarm"], json!({"graceMs": 0, "descendants": true}));
}

#[test]
fn closing_takes_a_bounded_time() {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    harness.session.close(harness.now);
    harness.sent();
    let due = harness.session.poll_timeout().unwrap();
    harness.wait(due - harness.now);
    assert_eq!(harness.end.as_ref().unwrap().1, Ending::Normal);
}

#[test]
fn leaving_ends_nothing() {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    harness.session.leave();
    assert!(harness.sent().is_empty());
    assert!(matches!(harness.failures[..], [(RouteKey(1), WaitError::Disconnected(_))]));
}

#[test]
fn processes_that_do_not_read_leave_places_for_everything_else() {
    let mut harness = Harness::open(ALL);
    let stuck = 128;
    for route in 1..=stuck {
        let request = request(route).stdin(crate::request::Stdin::Piped);
        harness.submit(route, start(&request));
        let sent = harness.sent_one();
        harness.receive(&json!({"id": sent["id"], "result": {"processId": sent["params"]["processId"]}}));
    }
    let other = stuck + 1;
    harness.submit(other, start(&request(other).stdin(crate::request::Stdin::Piped)));
    let sent = harness.sent_one();
    harness.receive(&json!({"id": sent["id"], "result": {"processId": sent["params"]["processId"]}}));
    for route in 1..=stuck {
        harness.submit(route, Op::Write { data: vec![b'x'; 32 * input::PIECE_BYTES].into() });
    }
    let pieces = harness.sent();
    assert!(pieces.iter().all(|piece| piece["method"] == "process/write"));
    assert!((512..=768).contains(&pieces.len()), "much, and not all: {}", pieces.len());
    // None of them is ever answered, and what comes now goes out all the same.
    let write = harness.submit(other, Op::Write { data: vec![b'y'; 8 * input::PIECE_BYTES].into() });
    harness.submit(0, Op::Status);
    let sent = harness.sent();
    let count = |method: &str| sent.iter().filter(|message| message["method"] == method).count();
    assert!(count("process/write") >= 1, "{sent:?}");
    assert_eq!(count("environment/status"), 1);
    // And gets on, piece by piece.
    let mut answered: Vec<_> = sent.into_iter().filter(|message| message["method"] == "process/write").collect();
    for _ in 0..8 {
        for piece in std::mem::take(&mut answered) {
            harness.receive(&json!({"id": piece["id"], "result": {"status": "accepted"}}));
        }
        answered = harness.sent();
    }
    assert!(matches!(harness.answer(write), Some(Ok(Answer::Done))));
    let rest: Vec<_> = (0..200).map(|_| harness.submit(0, Op::Status)).collect();
    assert!(rest.iter().all(|token| harness.answer(*token).is_none()), "there is a place for each");
}
