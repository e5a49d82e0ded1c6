//! What an outage may and may not lead to, against a peer that is slow, refuses, or says nothing.

use super::recovery::{RETRY, read_result};
use super::*;
use crate::error::{Disconnected, Sent};
use crate::wire::method::{self, Method as _};

fn refused(id: &Value) -> Value {
    json!({"id": id, "error": {"code": -32603, "message": "busy"}})
}

fn resume_refused(code: i64, message: &str) -> Harness {
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    harness.cut();
    let resume = harness.redial();
    harness.receive(&json!({"id": resume["id"], "error": {"code": code, "message": message}}));
    harness
}

#[test]
fn a_close_behind_a_refused_read_leaves_nothing_to_wait_for() {
    for features in [&[], ALL] {
        let mut harness = Harness::dialled(features);
        harness.started(1);
        harness.cut();
        let sent = harness.resumed(features);
        harness.receive(&refused(&sent[0]["id"]));
        harness.exited(1, 1, 0);
        harness.closed(1, 2);
        assert!(harness.is_connected());
        assert_eq!(harness.session.poll_timeout(), None);
        harness.wait(Duration::from_secs(1));
        assert_eq!(harness.session.poll_timeout(), None);
    }
}

#[test]
fn a_process_of_which_the_peer_refuses_to_tell_is_ended() {
    for features in [&[], ALL] {
        let mut harness = Harness::dialled(features);
        harness.started(1);
        harness.cut();
        let mut read = harness.resumed(features).remove(0);
        for _ in 0..3 {
            harness.receive(&refused(&read["id"]));
            assert!(harness.sent().is_empty() && harness.failures.is_empty());
            harness.wait(Duration::from_secs(1));
            read = harness.sent_one();
            assert_eq!(read["method"], "process/read");
        }
        harness.receive(&refused(&read["id"]));
        assert!(matches!(&harness.failures[..], [(RouteKey(1), WaitError::Remote(_))]), "{:?}", harness.failures);
        assert_eq!(harness.sent_one()["method"], "process/terminate", "it does not run on unseen");
        assert!(harness.is_connected());
    }
}

#[test]
fn a_process_that_nobody_follows_can_be_stopped_also_when_the_peer_would_not_tell_of_it() {
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    harness.session.discard(harness.now, RouteKey(1));
    harness.cut();
    let read = harness.resumed(ALL).remove(0);
    harness.receive(&refused(&read["id"]));
    let stop = harness.submit(1, terminate());
    let sent = harness.sent_one();
    assert_eq!(sent["method"], "process/terminate");
    harness.receive(&json!({"id": sent["id"], "result": {"running": true}}));
    assert!(matches!(harness.answer(stop), Some(Ok(Answer::Running(true)))));
}

#[test]
fn a_timer_that_is_due_again_at_once_has_one_turn() {
    let mut harness = Harness::dialled(&[]);
    harness.started(1);
    // Whatever leads to it: the turn of a process may leave it with a timer in the past.
    let due = harness.now;
    let route = harness.session.routes.get_mut(&RouteKey(1)).unwrap();
    (route.timer, route.read_queued) = (Some(due), true);
    harness.session.timers.insert((due, RouteKey(1)));
    harness.wait(Duration::ZERO);
    assert!(harness.session.timers.is_empty());
}

#[test]
fn a_process_of_which_nothing_is_told_in_time_fails_alone_and_is_ended() {
    let mut harness = Harness::dialled(&[]);
    harness.started(1);
    harness.started(2);
    harness.started(3);
    harness.session.discard(harness.now, RouteKey(3));
    let deadline = harness.now + ClientConfig::default().recovery.deadline;
    harness.cut();
    let sent = harness.resumed(&[]);
    assert_eq!(sent.len(), 3);
    let of_second = sent.iter().find(|message| message["params"]["processId"] == "p2").unwrap();
    harness.receive(&json!({"id": of_second["id"], "result": read_result(&[], 1, false, false)}));
    assert!(!harness.is_connected());
    assert_eq!(harness.session.poll_timeout(), Some(deadline));
    harness.wait(deadline.saturating_duration_since(harness.now));
    assert!(harness.is_connected(), "{:?}", harness.states);
    assert!(matches!(&harness.failures[..], [(RouteKey(1), WaitError::Peer(_))]), "{:?}", harness.failures);
    let stop = harness.sent_one();
    assert_eq!((&stop["method"], &stop["params"]["processId"]), (&json!("process/terminate"), &json!("p1")));
    // An answer that comes even later changes nothing, and what has no reads under way can be read.
    harness.receive(&json!({"id": sent[0]["id"], "result": read_result(&[(1, "eA==")], 2, false, false)}));
    assert!(harness.events.is_empty());
    assert_eq!(harness.session.reads, 0);
    harness.output(2, 1, 1);
    assert_eq!(harness.events.len(), 1);
}

/// One read whose last event is `seq`, of a peer with the extension.
fn told(seq: u64, more: bool) -> Value {
    let mut result = read_result(&[(seq, "eA==")], seq + 1, false, false);
    result["longarm"] = json!({"totalBytes": {"stdout": seq}, "offset": seq - 1, "more": more});
    result
}

#[test]
fn a_process_that_goes_on_writing_is_caught_up_by_one_read() {
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    harness.cut();
    let sent = harness.resumed(ALL);
    harness.receive(&json!({"id": sent[0]["id"], "result": told(1, false)}));
    assert!(harness.is_connected());
    harness.output(1, 2, 1);
    assert_eq!(harness.events.len(), 2);
    assert!(harness.sent().is_empty());
}

#[test]
fn a_peer_that_goes_on_telling_has_the_time_that_it_takes() {
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    harness.started(2);
    let attempts_end = harness.now + ClientConfig::default().recovery.deadline;
    harness.cut();
    let sent = harness.resumed(ALL);
    let of = |name: &str| sent.iter().find(|message| message["params"]["processId"] == name).unwrap().clone();
    let mut read = of("p1");
    let nearly = SIGN_OF_LIFE - Duration::from_millis(1);
    let mut seq = 0;
    while harness.now < attempts_end + nearly {
        seq += 1;
        harness.wait(nearly);
        harness.receive(&json!({"id": read["id"], "result": told(seq, true)}));
        harness.consume(1);
        assert!(!harness.is_connected() && harness.failures.is_empty(), "{:?}", harness.failures);
        let Some(ConnectionState::Recovering { deadline, .. }) = harness.states.last() else { panic!() };
        assert!(*deadline >= harness.now + SIGN_OF_LIFE, "whoever watches knows how long it may take");
        // An acknowledgement may go before it.
        read = harness.sent().pop().unwrap();
        assert_eq!((&read["method"], &read["params"]["afterSeq"]), (&json!("process/read"), &json!(seq)));
    }
    // Then it says nothing more.
    harness.wait(SIGN_OF_LIFE);
    let failed: Vec<_> = harness.failures.iter().map(|(route, _)| route.0).collect();
    assert_eq!(failed, [1, 2]);
    assert!(harness.is_connected());
}

#[test]
fn a_connection_that_comes_at_the_last_moment_has_time_to_tell() {
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    let attempts_end = harness.now + ClientConfig::default().recovery.deadline;
    harness.cut();
    harness.wait(attempts_end.saturating_duration_since(harness.now) - Duration::from_millis(1));
    harness.answer_dial();
    let resume = harness.sent_one();
    harness.receive(&json!({"id": resume["id"], "result": initialize_result(ALL)}));
    let read = harness.sent().remove(1);
    let Some(ConnectionState::Recovering { deadline, .. }) = harness.states.last() else { panic!() };
    assert_eq!(*deadline, harness.now + SIGN_OF_LIFE);
    harness.wait(Duration::from_secs(1));
    assert!(harness.failures.is_empty());
    harness.receive(&json!({"id": read["id"], "result": told(1, false)}));
    assert!(harness.is_connected() && harness.failures.is_empty());
}

#[test]
fn catching_up_asks_for_a_window_at_a_time_of_a_peer_that_says_where_it_cuts() {
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    harness.cut();
    let sent = harness.resumed(ALL);
    let window = ClientConfig::default().output.retained_bytes;
    assert_eq!(sent[0]["params"]["maxBytes"], window);
    let mut cut = read_result(&[(1, "eA==")], 2, true, true);
    cut["longarm"] = json!({"totalBytes": {"stdout": 2}, "offset": 0, "exitSeq": 3, "more": true});
    harness.receive(&json!({"id": sent[0]["id"], "result": cut}));
    assert!(!harness.is_connected(), "there is more");
    let read = harness.sent_one();
    assert_eq!(read["params"]["afterSeq"], 1);
    let mut rest = read_result(&[(2, "eA==")], 3, true, true);
    rest["longarm"] = json!({"totalBytes": {"stdout": 2}, "offset": 1, "exitSeq": 3, "nextSeq": 5});
    harness.receive(&json!({"id": read["id"], "result": rest}));
    assert!(harness.is_connected());
    let seqs: Vec<_> = harness.events.iter().map(|(_, event)| event.seq()).collect();
    assert_eq!(seqs, [1, 2, 3, 4], "with its end");
}

#[test]
fn a_fault_while_catching_up_is_forgiven_as_any_other() {
    let mut harness = Harness::dialled(&[]);
    harness.started(1);
    harness.cut();
    harness.resumed(&[]);
    harness.receive_raw(b"no JSON");
    assert!(harness.end.is_none(), "{:?}", harness.states);
    let sent = harness.resumed(&[]);
    harness.receive(&json!({"id": sent[0]["id"], "result": read_result(&[], 1, false, false)}));
    assert!(harness.is_connected() && harness.failures.is_empty());
}

#[test]
fn what_is_too_large_ends_the_connection_and_only_again_and_again_the_session() {
    let mut harness = Harness::dialled(&[]);
    harness.started(1);
    for round in 0.. {
        let status = harness.submit(0, Op::Status);
        harness.sent();
        let (link, error) =
            (harness.session.link, TransportError::MessageTooLarge { size_bytes: None, limit_bytes: 9 });
        harness.session.handle_disconnect(harness.now, link, &error);
        harness.drain();
        assert!(harness.unknown(status), "it is not asked for again");
        if harness.end.is_some() {
            assert_eq!(round, 2);
            break;
        }
        let sent = harness.resumed(&[]);
        harness.receive(&json!({"id": sent[0]["id"], "result": read_result(&[], 1, false, false)}));
        assert!(harness.is_connected());
    }
    assert_eq!(harness.end.unwrap().1, Ending::TooLarge);
}

#[test]
fn closing_takes_back_starts_that_wait_for_a_connection() {
    for features in [&[], ALL] {
        let mut harness = Harness::dialled(features);
        harness.started(1);
        harness.cut();
        let waiting = harness.submit(2, start(&request(2)));
        harness.session.close(harness.now);
        harness.drain();
        assert!(matches!(harness.failure(waiting), Failure::Closed));
        let sent = harness.resumed(features);
        assert!(sent.iter().all(|message| message["params"]["processId"] == "p1"), "{sent:?}");
        assert_eq!(sent[0]["method"], "process/terminate");
        assert!(sent.iter().all(|message| message["method"] != "process/start"));
    }
}

#[test]
fn closing_ends_what_a_start_in_flight_has_started_also_behind_a_break() {
    for features in [&[], ALL] {
        let mut harness = Harness::dialled(features);
        let token = harness.submit(1, start(&request(1)));
        harness.sent();
        harness.session.close(harness.now);
        assert_eq!(harness.sent_methods(), ["process/terminate"]);
        harness.cut();
        assert!(harness.end.is_none(), "there may be a process");
        assert!(harness.unknown(token));
        let sent = harness.resumed(features);
        assert_eq!((&sent[0]["method"], &sent[0]["params"]["processId"]), (&json!("process/terminate"), &json!("p1")));
    }
}

#[test]
fn closing_waits_for_a_start_that_comes_about_behind_its_stop() {
    let mut harness = Harness::dialled(&[]);
    harness.submit(1, start(&request(1)));
    let started = harness.sent_one();
    harness.session.close(harness.now);
    let stop = harness.sent_one();
    harness.receive(&json!({"id": stop["id"], "result": {"running": false}}));
    assert!(harness.end.is_none(), "its start is not answered");
    harness.receive(&json!({"id": started["id"], "result": {"processId": "p1"}}));
    let stop = harness.sent_one();
    assert_eq!(stop["method"], "process/terminate");
    harness.receive(&json!({"id": stop["id"], "result": {"running": true}}));
    assert_eq!(harness.states.last(), Some(&ConnectionState::Closed));
}

#[test]
fn what_was_closed_is_closed_however_it_ends() {
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    harness.cut();
    harness.session.close(harness.now);
    let resume = harness.redial();
    harness.receive(&json!({"id": resume["id"], "error": {"code": -32600, "message": "unknown session id s"}}));
    assert!(harness.end.is_some());
    assert_eq!(harness.states.last(), Some(&ConnectionState::Closed));
}

#[test]
fn the_reason_of_an_end_is_told_before_the_end() {
    let mut session = Session::dialling(ClientConfig::default(), "nonce", true, 1, 0, None);
    let now = Instant::now();
    session.submit(now, Token(1), RouteKey(1), start(&request(1)));
    session.handle_timeout(now);
    let mut told = Vec::new();
    let error = ConnectError::Refused { address: "ws://x".into(), status: 401, reason: "no".into(), retry_after: None };
    while let Some(event) = session.poll_event() {
        if let SessionEvent::Dial { link } = event {
            session.handle_dialled(now, link, Err(error.clone()));
        }
        told.push(event);
    }
    let place = |wanted: fn(&SessionEvent) -> bool| told.iter().position(wanted).unwrap();
    let rejected = place(|event| matches!(event, SessionEvent::Rejected(_)));
    let over = place(|event| matches!(event, SessionEvent::Over { state: ConnectionState::Failed { .. }, .. }));
    let answer = place(|event| matches!(event, SessionEvent::Answer { .. }));
    assert!(rejected < over && over < answer, "{told:?}");
}

#[test]
fn a_start_that_needs_what_an_older_server_is_waits_until_that_is_known() {
    let without_facts = json!({"sessionId": "s"});
    let info = initialize_result(&[])["environmentInfo"].clone();
    let session = Session::dialling(ClientConfig::default(), "nonce", true, 1, 0, None);
    let mut harness = Harness::with_session(session, Instant::now());
    let needy = ExecRequest::new(["true"]).process_id(process_id(1));
    let token = harness.submit(1, start(&needy));
    harness.wait(Duration::ZERO);
    harness.answer_dial();
    let initialize = harness.sent();
    harness.receive(&json!({"id": initialize[0]["id"], "result": without_facts}));
    assert_eq!(harness.sent_methods(), ["environment/info"]);
    // The answer is lost with the connection; it is asked for again.
    harness.cut();
    assert!(harness.answer(token).is_none(), "{:?}", harness.answer(token));
    let resume = harness.redial();
    harness.receive(&json!({"id": resume["id"], "result": without_facts}));
    let sent = harness.sent();
    assert_eq!((&sent[0]["method"], &sent[1]["method"]), (&json!("initialized"), &json!("environment/info")));
    harness.receive(&json!({"id": sent[1]["id"], "result": info}));
    let sent = harness.sent_one();
    assert_eq!((&sent["method"], &sent["params"]["cwd"]), (&json!("process/start"), &json!("file:///home/remote")));
}

#[test]
fn calls_that_waited_leave_the_places_to_what_has_to_be_asked_before_them() {
    let mut harness = Harness::dialled(&[]);
    for route in 1..=100 {
        harness.started(route);
    }
    harness.cut();
    let limit = ClientConfig::default().max_calls;
    let waiting: Vec<_> = (0..limit).map(|_| harness.submit(0, Op::Status)).collect();
    let one_more = harness.submit(0, Op::Status);
    assert!(matches!(harness.failure(one_more), Failure::Busy(_)));
    harness.session.kill(RouteKey(100));
    let mut unread = 100;
    let mut sent = harness.resumed(&[]);
    assert_eq!(sent[0]["method"], "process/terminate");
    let mut on_their_way = 0;
    while unread > 0 {
        let reads: Vec<_> = sent.iter().filter(|message| message["method"] == "process/read").cloned().collect();
        on_their_way += sent.len();
        assert!(on_their_way <= limit + 1, "{on_their_way}");
        assert!(!reads.is_empty(), "{unread} processes are not caught up, and no call was answered");
        for read in reads {
            harness.receive(&json!({"id": read["id"], "result": read_result(&[], 1, false, false)}));
            unread -= 1;
            on_their_way -= 1;
        }
        sent = harness.sent();
    }
    assert!(harness.is_connected());
    on_their_way += sent.len();
    let stop_too = on_their_way;
    assert_eq!(stop_too, limit, "what waited has the places now");
    assert!(waiting.iter().all(|token| harness.answer(*token).is_none()));
}

#[test]
fn a_stop_that_has_not_left_comes_before_what_waited() {
    for features in [&[], ALL] {
        let mut harness = Harness::dialled(features);
        harness.started(1);
        harness.started(2);
        harness.session.kill(RouteKey(1));
        let stop = harness.submit(2, terminate());
        // They are put down, and the transport takes nothing more.
        harness.session.refill(harness.now);
        harness.cut();
        assert!(harness.answer(stop).is_none(), "it was not sent");
        let waiting: Vec<_> = (0..10).map(|_| harness.submit(0, Op::Status)).collect();
        let sent = harness.resumed(features);
        let methods: Vec<_> = sent.iter().map(|message| message["method"].as_str().unwrap()).collect();
        assert_eq!(methods[..2], ["process/terminate", "process/terminate"], "{methods:?}");
        assert_eq!(methods.iter().filter(|method| **method == "environment/status").count(), 10);
        assert_eq!((&sent[0]["params"]["processId"], &sent[1]["params"]["processId"]), (&json!("p1"), &json!("p2")));
        harness.receive(&json!({"id": sent[1]["id"], "result": {"running": true}}));
        assert!(matches!(harness.answer(stop), Some(Ok(Answer::Running(true)))));
        assert!(waiting.iter().all(|token| harness.answer(*token).is_none()));
    }
}

#[test]
fn calls_whose_callers_are_gone_leave_their_places_to_others() {
    for features in [&[], ALL] {
        let mut harness = Harness::dialled(features);
        harness.started(1);
        let limit = harness.session.calls.limit();
        harness.cut();
        let ask = |cleanup: bool| {
            let encode = |id: &RequestId| codec::encode_request::<method::Status>(id, &method::NoParams);
            Op::Ask(Box::new(Ask { method: method::Status::NAME, cleanup, on: None, encode: Box::new(encode) }))
        };
        let kept = [harness.submit(1, terminate()), harness.submit(0, ask(true))];
        let given_up: Vec<_> = (0..limit).map(|_| harness.submit(0, Op::Status)).collect();
        let refused = harness.submit(0, ask(false));
        assert!(matches!(harness.failure(refused), Failure::Busy(_)));
        harness.session.take_back(|_| false);
        harness.drain();
        assert!(harness.answer(given_up[0]).is_none());
        let gone = |token: Token| given_up.contains(&token) || kept.contains(&token);
        harness.session.take_back(gone);
        harness.drain();
        for token in &given_up {
            let unsent =
                |failure: &Failure| matches!(failure, Failure::Disconnected(Disconnected { sent: Sent::NotSent, .. }));
            assert!(unsent(harness.failure(*token)), "{token:?}");
        }
        let taken = harness.submit(0, ask(false));
        let resume = harness.redial();
        // Also while it waits for its turn.
        harness.session.take_back(gone);
        harness.receive(&json!({"id": resume["id"], "result": initialize_result(features)}));
        let sent = harness.sent();
        let count = |method: &str| sent.iter().filter(|message| message["method"] == method).count();
        assert_eq!((count("process/terminate"), count("environment/status")), (1, 2), "{sent:?}");
        assert!(harness.answer(taken).is_none());
    }
}

#[test]
fn what_waits_for_the_first_answer_can_be_taken_back_too() {
    let session = Session::dialling(ClientConfig::default(), "nonce", true, 1, 0, None);
    let mut harness = Harness::with_session(session, Instant::now());
    let given_up = harness.submit(0, Op::Info);
    let kept = harness.submit(0, Op::List);
    harness.session.take_back(|token| token == given_up);
    harness.drain();
    assert!(matches!(harness.failure(given_up), Failure::Disconnected(Disconnected { sent: Sent::NotSent, .. })));
    assert!(harness.answer(kept).is_none());
}

#[test]
fn a_refusal_that_comes_twice_is_one() {
    let mut harness = Harness::dialled(ALL);
    harness.started(1);
    harness.cut();
    let resume = harness.redial();
    let refusal = json!({"id": resume["id"], "error": {"code": -32010, "message": "session s is already attached"}});
    harness.receive(&refusal);
    let due = harness.session.poll_timeout();
    for _ in 0..9 {
        harness.receive(&refusal);
        assert_eq!(harness.session.poll_timeout(), due);
    }
    // Nor is a late consent to what was refused one to what is asked next.
    harness.receive(&json!({"id": resume["id"], "result": initialize_result(ALL)}));
    assert!(!harness.is_connected() && harness.end.is_none());
    harness.wait(due.unwrap().saturating_duration_since(harness.now));
    assert_eq!(harness.sent_one()["method"], "initialize");
}

#[test]
fn what_waited_keeps_its_order_and_is_followed_by_what_came_later() {
    let mut harness = Harness::dialled(&[]);
    harness.session.config.max_calls = 2;
    harness.session.calls.set_limit(2);
    harness.cut();
    let first = harness.submit(0, Op::Status);
    harness.submit(0, Op::Status);
    let resume = harness.redial();
    harness.receive(&json!({"id": resume["id"], "result": initialize_result(&[])}));
    let notice = codec::encode_notification::<method::HttpCancel>(&crate::wire::http::CancelParams {
        request_id: "http-1".into(),
    });
    harness.session.notify(notice);
    let sent = harness.sent();
    let methods: Vec<_> = sent.iter().map(|message| message["method"].as_str().unwrap()).collect();
    assert_eq!(
        methods,
        ["initialized", "environment/status", "environment/status", "longarm/http/cancel"],
        "a request is not overtaken by what takes it back"
    );
    harness.receive(&json!({"id": sent[1]["id"], "result": {"status": "ready"}}));
    assert!(matches!(harness.answer(first), Some(Ok(Answer::Done))));
}

#[test]
fn a_session_that_is_still_attached_is_asked_for_again_over_the_same_connection() {
    let mut harness = resume_refused(-32010, "session s is already attached");
    assert!(harness.end.is_none() && harness.dials.is_empty());
    assert!(harness.hung_up.len() == 1, "only the former one: {:?}", harness.hung_up);
    harness.wait(RETRY);
    let again = harness.sent_one();
    assert_eq!((&again["method"], &again["params"]["resumeSessionId"]), (&json!("initialize"), &json!("s")));
    harness.receive(&json!({"id": again["id"], "result": initialize_result(ALL)}));
    let sent = harness.sent();
    harness.receive(&json!({"id": sent[1]["id"], "result": read_result(&[], 1, false, false)}));
    assert!(harness.is_connected());
    // Until there is no time left.
    let mut harness = resume_refused(-32010, "session s is already attached");
    let mut asked = 0;
    while harness.end.is_none() {
        let due = harness.session.poll_timeout().expect("it does not wait for ever");
        harness.wait(due.saturating_duration_since(harness.now));
        for message in harness.sent() {
            asked += 1;
            let error = json!({"code": -32010, "message": "session s is already attached"});
            harness.receive(&json!({"id": message["id"], "error": error}));
        }
    }
    assert!((440..=451).contains(&asked), "{asked}");
    assert!(matches!(harness.states.last(), Some(ConnectionState::Failed { .. })));
}

#[test]
fn a_refusal_of_another_kind_is_not_a_lost_session() {
    let harness = resume_refused(-32600, "initialize may only be sent once per connection");
    let Some(ConnectionState::Failed { reason }) = harness.states.last() else { panic!("{:?}", harness.states) };
    assert!(reason.contains("may only be sent once"), "{reason}");
}

#[test]
fn an_older_peers_word_for_a_lost_connection_is_one() {
    let lost = json!({"code": -32000, "message": "JSON-RPC transport closed"});
    let harness = resume_refused(-32000, "JSON-RPC transport closed");
    assert!(harness.end.is_none());
    let mut harness = Harness::dialled(&[]);
    let status = harness.submit(0, Op::Status);
    let sent = harness.sent_one();
    harness.receive(&json!({"id": 999, "error": lost}));
    assert!(harness.is_connected(), "nobody asked");
    harness.receive(&json!({"id": sent["id"], "error": lost}));
    assert!(matches!(harness.failure(status), Failure::Disconnected(Disconnected { sent: Sent::Unknown, .. })));
    assert!(matches!(harness.states.last(), Some(ConnectionState::Recovering { .. })));
}

#[test]
fn times_without_end_are_no_times() {
    let config = ClientConfig {
        cleanup_patience: Duration::MAX,
        close_grace: Duration::MAX,
        initialize_timeout: Duration::MAX,
        max_calls_extended: 1,
        ..ClientConfig::default()
    };
    let mut harness = Harness::open_with(ALL, config);
    harness.started(1);
    harness.submit(0, Op::Status);
    harness.submit(1, terminate());
    harness.submit(1, terminate());
    harness.sent();
    harness.wait(Duration::from_secs(1_000_000));
    harness.session.close(harness.now);
    harness.wait(Duration::from_secs(1_000_000));
    assert!(harness.end.is_none());
}
