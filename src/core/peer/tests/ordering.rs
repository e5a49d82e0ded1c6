//! What waits for what, and what does not.

use super::*;
use crate::error::{SpawnError, WriteError};
use crate::request::Signal;

#[test]
fn the_answer_to_a_start_precedes_its_events() {
    let mut rig = Rig::attached(false);
    let (first, a) = rig.starting("a");
    let (second, b) = rig.starting("b");
    rig.started(b);
    rig.output(b, "x");
    rig.exit(b, 0);
    rig.started(a);
    rig.output(a, "x");
    let sent = names(&rig.out());
    let second_then_first = [second.to_string(), first.to_string()];
    assert_eq!(sent[..2], second_then_first, "answers first, in the order in which they came up");
    assert_eq!(sent[2..], ["process/output b", "process/output a", "process/exited b"], "then in turns");
}

#[test]
fn requests_wait_for_the_start_and_then_take_effect_in_order() {
    let mut rig = Rig::attached(true);
    let (start, p) = rig.starting("p");
    let write = rig.ask("process/write", write_params("p", "w", "x"));
    let close = rig.ask("longarm/process/closeStdin", json!({"processId": "p"}));
    let signal = rig.ask("process/signal", json!({"processId": "p", "signal": "interrupt"}));
    let read = rig.ask("process/read", json!({"processId": "p"}));
    assert_eq!(rig.out(), [] as [Value; 0]);
    assert_eq!(rig.call("environment/status", json!({}))["result"]["status"], "ready", "others do not wait");
    rig.started(p);
    let sent = names(&rig.out());
    assert_eq!(sent, [start, write, close, read].map(|id| id.to_string()));
    let Some(Action::Write { data, .. }) = rig.actions.pop_front() else { panic!("the write first") };
    assert_eq!(data, "x");
    let Some(Action::Signal { signal: Signal::Interrupt, call, .. }) = rig.actions.pop_front() else {
        panic!("then the signal, which does not wait for the write")
    };
    rig.complete(Completion::Acted { call, result: Ok(()) });
    assert_eq!(rig.out(), [json!({"id": signal, "result": {}})]);
    rig.complete(Completion::StdinDone { process: p, result: Ok(()) });
    assert!(matches!(rig.actions.pop_front(), Some(Action::CloseStdin { .. })), "the close after the write");
}

#[test]
fn a_failed_start_frees_the_id_and_those_who_waited_go_on_without_it() {
    let mut rig = Rig::attached(false);
    let (start, p) = rig.starting("p");
    let write = rig.ask("process/write", write_params("p", "w", "x"));
    let again = rig.ask("process/start", start_params("p"));
    let held = rig.ask("process/write", write_params("p", "w", "x"));
    let error = SpawnError::CwdNotFound { path: "/gone".into() };
    rig.complete(Completion::Started { process: p, result: Err(error) });
    let answers = rig.out();
    assert_eq!(names(&answers), [start, write].map(|id| id.to_string()));
    assert_eq!(answers[0]["error"]["code"], -32603);
    assert_eq!(answers[0]["error"]["data"]["kind"], "spawnNotFound");
    assert_eq!(answers[1]["result"]["status"], "unknownProcess");
    let Some(Action::Start { process, .. }) = rig.actions.pop_front() else { panic!("the second start goes ahead") };
    rig.started(process);
    assert_eq!(names(&rig.out()), [again, held].map(|id| id.to_string()));
}

#[test]
fn a_second_start_of_a_started_process_is_refused_then() {
    let mut rig = Rig::attached(false);
    let (_, p) = rig.starting("p");
    let again = rig.ask("process/start", start_params("p"));
    rig.started(p);
    let answers = rig.out();
    assert_eq!(answers[1]["id"], again);
    assert_eq!(answers[1]["error"]["message"], "process p already exists");
}

#[test]
fn terminate_cancels_a_start() {
    let mut rig = Rig::attached(false);
    let (start, p) = rig.starting("p");
    let read = rig.ask("process/read", json!({"processId": "p", "waitMs": 1000}));
    let terminate = rig.ask("process/terminate", json!({"processId": "p"}));
    let answers = rig.out();
    assert_eq!(names(&answers), [start, read, terminate].map(|id| id.to_string()));
    assert_eq!(answers[0]["error"], json!({"code": -32600, "message": "process p start was cancelled"}));
    assert_eq!(answers[1]["error"]["message"], "unknown process id p");
    assert_eq!(answers[2]["result"], json!({"running": true}));
    assert!(matches!(rig.actions.pop_front(), Some(Action::CancelStart { process }) if process == p));
    // The backend was done already: what it says of the old process is not taken for the new one.
    let (_, fresh) = rig.starting("p");
    rig.started(p);
    rig.output(p, "stale");
    assert_eq!(rig.out(), [] as [Value; 0]);
    rig.started(fresh);
    assert_eq!(rig.out().len(), 1);
}

#[test]
fn terminate_cancels_the_starts_that_wait_behind_the_first_too() {
    let mut rig = Rig::attached(false);
    let (first, _) = rig.starting("p");
    let second = rig.ask("process/start", start_params("p"));
    let write = rig.ask("process/write", write_params("p", "w", "x"));
    let stop = rig.ask("process/terminate", json!({"processId": "p"}));
    let answers = rig.out();
    let of = |id: i64| answers.iter().find(|answer| answer["id"] == id).expect("an answer");
    assert_eq!(of(stop)["result"]["running"], true);
    assert_eq!(of(write)["result"]["status"], "unknownProcess");
    assert_eq!(of(first)["error"]["data"]["kind"], of(second)["error"]["data"]["kind"]);
    assert!(!rig.actions.iter().any(|action| matches!(action, Action::Start { .. })), "nothing is started after it");
    // One that comes later is.
    rig.run("p");
}

#[test]
fn terminate_and_signal_overtake_a_blocked_write() {
    let mut rig = Rig::attached(false);
    let p = rig.run("p");
    for number in 0..200 {
        rig.ask("process/write", write_params("p", &number.to_string(), "x"));
    }
    assert_eq!(rig.out().len(), 129, "one at the backend, 128 queued, the others wait");
    assert!(matches!(rig.actions.pop_front(), Some(Action::Write { .. })));
    let signal = rig.ask("process/signal", json!({"processId": "p", "signal": "interrupt"}));
    let Some(Action::Signal { call, .. }) = rig.actions.pop_front() else { panic!("the signal") };
    rig.complete(Completion::Acted { call, result: Ok(()) });
    assert_eq!(names(&rig.out()), [signal.to_string()]);
    let terminate = rig.ask("process/terminate", json!({"processId": "p"}));
    let Some(Action::Terminate { call, grace, descendants: false, .. }) = rig.actions.pop_front() else {
        panic!("the end")
    };
    assert_eq!(grace, Duration::ZERO, "the plain wire kills at once");
    rig.complete(Completion::Terminated { call, result: Ok(true) });
    assert_eq!(rig.out(), [json!({"id": terminate, "result": {"running": true}})]);
    rig.exit(p, 137);
    rig.close(p);
    let answers = rig.out();
    assert_eq!(answers.len(), 71 + 2, "those who waited are answered");
    rig.complete(Completion::StdinDone { process: p, result: Err(WriteError::StdinClosed) });
    assert!(rig.actions.is_empty());
    assert_eq!(rig.call("process/write", write_params("p", "late", "x"))["result"]["status"], "accepted");
}

#[test]
fn terminate_of_what_has_exited_does_nothing_unless_descendants_are_meant() {
    let mut rig = Rig::attached(true);
    let p = rig.run("p");
    rig.exit(p, 0);
    rig.out();
    assert_eq!(rig.call("process/terminate", json!({"processId": "p"}))["result"], json!({"running": false}));
    assert_eq!(rig.call("process/terminate", json!({"processId": "?"}))["result"], json!({"running": false}));
    assert!(rig.actions.is_empty());
    rig.ask("process/terminate", json!({"processId": "p", "longarm": {"graceMs": 5, "descendants": true}}));
    let Some(Action::Terminate { grace, descendants: true, .. }) = rig.actions.pop_front() else { panic!("a stop") };
    assert_eq!(grace, Duration::from_millis(5));
}

#[test]
fn a_waiting_read_delays_nothing_and_ends_with_news_or_its_time() {
    let mut rig = Rig::attached(false);
    let p = rig.run("p");
    let read = |after: u64, wait: u64| json!({"processId": "p", "afterSeq": after, "waitMs": wait});
    let first = rig.ask("process/read", read(0, u64::MAX));
    let second = rig.ask("process/read", read(1, 500));
    assert_eq!(rig.call("process/read", read(0, 0))["result"]["chunks"], json!([]));
    rig.output(p, "a");
    let answers = rig.out();
    assert_eq!(names(&answers), [first.to_string(), "process/output p".into()]);
    assert_eq!(answers[0]["result"]["nextSeq"], 2);
    rig.pass(Duration::from_millis(499));
    assert_eq!(rig.out().len(), 0);
    rig.pass(Duration::from_millis(1));
    let answers = rig.out();
    assert_eq!(names(&answers), [second.to_string()]);
    assert_eq!(answers[0]["result"]["chunks"], json!([]));
    assert_eq!(rig.peer.timers.len(), 0);
    let last = rig.ask("process/read", read(1, 1_000));
    rig.exit(p, 3);
    let answers = rig.out();
    assert_eq!(answers[0]["id"], last);
    assert_eq!(answers[0]["result"]["exitCode"], 3);
    let until_closed = rig.ask("process/read", read(2, 1_000));
    rig.close(p);
    let answers = rig.out();
    assert_eq!(answers[0]["id"], until_closed);
    assert_eq!(answers[0]["result"]["closed"], true);
    assert_eq!(rig.refusal("process/read", json!({"processId": "?"})), (-32600, "unknown process id ?".into()));
}

#[test]
fn write_statuses_are_those_of_the_wire() {
    let mut rig = Rig::attached(false);
    rig.run("pipe");
    let mut params = start_params("null");
    params["pipeStdin"] = json!(false);
    rig.run_with(params);
    let mut status =
        |id: &str, write: &str| rig.call("process/write", write_params(id, write, "x"))["result"]["status"].clone();
    assert_eq!(status("pipe", "1"), "accepted");
    assert_eq!(status("pipe", "1"), "accepted");
    assert_eq!(status("null", "1"), "stdinClosed");
    assert_eq!(status("?", "1"), "unknownProcess");
    assert_eq!(rig.actions.len(), 1, "applied once");
    assert_eq!(
        rig.refusal("process/write", write_params("pipe", "", "x")),
        (-32602, "writeId must not be empty".into())
    );
    let bad = json!({"processId": "pipe", "writeId": "2", "chunk": "!!"});
    assert_eq!(rig.refusal("process/write", bad), (-32602, "Invalid symbol 33, offset 0.".into()));
}

#[test]
fn limits_refuse_and_leave_a_way_to_end_things() {
    let mut rig = Rig::with(|config| {
        config.max_processes = 2;
        config.max_requests_in_flight = 3;
        config.max_request_bytes_in_flight = 2_000;
        config.stdin_queue_bytes = 400;
    });
    rig.attach(false);
    rig.run("a");
    rig.run("b");
    assert_eq!(rig.refusal("process/start", start_params("c")).0, -32600);
    for _ in 0..3 {
        rig.ask("process/read", json!({"processId": "a", "waitMs": 100}));
    }
    let (code, text) = rig.refusal("process/read", json!({"processId": "a", "waitMs": 100}));
    assert_eq!((code, &*text), (-32600, "more than 3 requests without an answer"));
    assert_eq!(rig.call("environment/status", json!({}))["result"]["status"], "ready");
    rig.ask("process/terminate", json!({"processId": "a"}));
    assert!(matches!(rig.actions.pop_back(), Some(Action::Terminate { .. })));
    rig.pass(Duration::from_millis(100));
    assert_eq!(rig.out().len(), 3);

    // The backend takes nothing, so that bytes pile up.
    let chunk = "x".repeat(400);
    for number in 0..2 {
        rig.ask("process/write", write_params("b", &number.to_string(), &chunk));
    }
    assert_eq!(rig.out().len(), 1, "the other one waits");
    let (code, text) = rig.refusal("process/write", write_params("b", "2", &"x".repeat(1_700)));
    assert_eq!((code, &*text), (-32600, "more than 2000 bytes of input wait for processes to read theirs"));
    assert_eq!(rig.call("process/read", json!({"processId": "b"}))["result"]["closed"], false);
    // Neither the others' writes nor starts pay for it.
    assert_eq!(rig.call("process/write", write_params("a", "0", &chunk))["result"]["status"], "accepted");
}

/// What one process does not read is no reason to refuse anything for another one.
#[test]
fn the_input_of_a_deaf_process_counts_against_no_other() {
    let mut rig = Rig::with(|config| {
        config.max_requests_in_flight = 1_000;
        config.max_request_bytes_in_flight = 5_000;
        config.stdin_queue_bytes = 1_000;
    });
    rig.attach(false);
    let chunk = "x".repeat(500);
    for process in 0..100 {
        let id = format!("deaf {process}");
        rig.run(&id);
        for write in 0..2 {
            let answer = rig.call("process/write", write_params(&id, &write.to_string(), &chunk));
            assert_eq!(answer["result"]["status"], "accepted");
        }
    }
    let mut waiting = 0;
    while rig.out().is_empty() {
        rig.ask("process/write", write_params("deaf 1", &format!("more {waiting}"), &chunk));
        waiting += 1;
        assert!(waiting <= 10);
    }
    assert_eq!(rig.refusal("process/write", write_params("deaf 2", "more", &chunk)).0, -32600);
    let p = rig.run("p");
    assert_eq!(rig.call("process/write", write_params("p", "0", &chunk))["result"]["status"], "accepted");
    rig.complete(Completion::StdinDone { process: p, result: Ok(()) });
}

/// A client with extensions sends on before it is answered.
#[test]
fn after_a_refused_write_a_client_with_extensions_can_write_nothing_more_to_that_process() {
    for extended in [false, true] {
        let mut rig = Rig::with(|config| {
            config.max_request_bytes_in_flight = 2_000;
            config.stdin_queue_bytes = 1_000;
        });
        rig.attach(extended);
        let p = rig.run("p");
        rig.run("q");
        let write = |rig: &mut Rig, id: &str, size| rig.ask("process/write", write_params("p", id, &"x".repeat(size)));
        let first = write(&mut rig, "1", 900);
        let second = write(&mut rig, "2", 900);
        let refused = write(&mut rig, "3", 5_000);
        let fourth = write(&mut rig, "4", 1);
        let answers = rig.out();
        let of = |id: i64| answers.iter().find(|answer| answer["id"] == id);
        assert_eq!(of(first).unwrap()["result"]["status"], "accepted");
        assert_eq!(of(refused).unwrap()["error"]["code"], -32600);
        if extended {
            for id in [second, fourth] {
                assert_eq!(of(id).unwrap()["error"]["code"], -32603, "nothing follows the hole");
            }
        } else {
            assert!(of(second).is_none() && of(fourth).is_none());
            rig.complete(Completion::StdinDone { process: p, result: Ok(()) });
            assert!(rig.out().iter().all(|answer| answer["result"]["status"] == "accepted"));
        }
        assert_eq!(rig.call("process/write", write_params("q", "1", "x"))["result"]["status"], "accepted");
    }
}

/// All that a client can make the server keep is counted, whatever it is.
#[test]
fn what_waits_is_bounded_in_bytes_with_all_that_it_names() {
    let long = "i".repeat(1_025);
    let mut rig = Rig::with(|config| config.max_request_bytes_in_flight = 19_000);
    rig.attach(true);
    rig.run("p");
    let status = |id: &str| json!({"id": id, "method": "environment/status", "params": {}});
    rig.tell(&status(&long)).unwrap();
    let refused = rig.out();
    assert_eq!((&refused[0]["id"], &refused[0]["error"]["code"]), (&json!(long), &json!(-32600)));
    rig.tell(&status(&long[1..])).unwrap();
    assert_eq!(rig.out()[0]["result"]["status"], "ready");

    // Waiting reads, though they have few bytes each.
    let poll = |id: String| json!({"id": id, "method": "process/read", "params": {"processId": "p", "waitMs": 1_000}, "more": "x".repeat(900)});
    let mut waiting = 0;
    while rig.out().is_empty() {
        rig.tell(&poll(format!("{waiting}"))).unwrap();
        waiting += 1;
        assert!(waiting <= 20);
    }
    assert_eq!(rig.call("process/terminate", json!({"processId": "q"}))["result"]["running"], false);

    // Ids of unread answers.
    let mut unread = 0;
    while rig.peer.wants_input() {
        rig.tell(&status(&"i".repeat(1 << 20))).unwrap();
        unread += 1;
        assert!(unread <= 4);
    }
    rig.out();
    assert!(rig.peer.wants_input());

    rig.pass(Duration::from_secs(1));
    rig.out();
    assert_eq!(rig.refusal("process/start", start_params(&long)).0, -32602);
    rig.starting(&long[1..]);
}

#[test]
fn a_client_that_does_not_take_its_answers_is_not_read() {
    let mut rig = Rig::attached(false);
    let mut asked = 0;
    while rig.peer.wants_input() {
        rig.ask("environment/status", json!({}));
        asked += 1;
        assert!(asked <= 2_000);
    }
    rig.peer.poll_transmit(true);
    assert!(rig.peer.wants_input());
    rig.out();
    let p = rig.run("p");
    for _ in 0..16 {
        rig.output(p, &"x".repeat(64 << 10));
    }
    rig.out();
    asked = 0;
    while rig.peer.wants_input() {
        rig.ask("process/read", json!({"processId": "p"}));
        asked += 1;
        assert!(asked <= 20, "answers of 1 MiB each");
    }
}

#[test]
fn a_slow_reader_pauses_its_own_processes_only_when_their_window_is_full() {
    for extended in [false, true] {
        let mut rig = Rig::attached(extended);
        let (flood, quiet) = (rig.run("flood"), rig.run("quiet"));
        let mut pushed = 0;
        while rig.peer.wants_output(flood) {
            rig.output(flood, &"x".repeat(64 << 10));
            pushed += 64 << 10;
        }
        assert_eq!(pushed, 1 << 20);
        assert!(rig.peer.wants_output(quiet));
        rig.output(quiet, "hello");
        let sent = names(&rig.out());
        assert_eq!(sent[..3], ["process/output flood", "process/output quiet", "process/output flood"]);
        assert_eq!(rig.peer.wants_output(flood), !extended, "sent is seen, or not yet");
        rig.peer.poll_transmit(true);
        if extended {
            rig.tell(&json!({"method": "longarm/process/ack", "params": {"acks": [["flood", 4], ["?", 1]]}})).unwrap();
            assert!(rig.peer.wants_output(flood));
        }
    }
}
