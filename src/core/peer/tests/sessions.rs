//! Detaching, resuming, and what is kept for how long.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn cut(rig: &mut Rig) {
    rig.peer.handle_disconnect(rig.now);
    rig.collect();
    assert_eq!(rig.out().len(), 0);
}

#[test]
fn a_resumed_client_is_sent_what_happens_from_then_on_and_reads_the_rest() {
    for extended in [false, true] {
        let mut rig = Rig::attached(extended);
        let p = rig.run("p");
        rig.output(p, "one");
        rig.out();
        rig.output(p, "two");
        cut(&mut rig);
        rig.output(p, "three");
        rig.attach(extended);
        assert_eq!(rig.out().len(), 0);
        rig.output(p, "four");
        let sent = rig.out();
        assert_eq!(names(&sent), ["process/output p"]);
        assert_eq!(sent[0]["params"]["seq"], 4);
        let answer = rig.call("process/read", json!({"processId": "p", "afterSeq": 1}));
        let chunks = answer["result"]["chunks"].as_array().unwrap();
        assert_eq!(chunks.iter().map(|chunk| chunk["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(answer["result"]["longarm"]["offset"], if extended { json!(3) } else { json!(null) });
    }
}

#[test]
fn calls_of_a_lost_connection_have_no_answer_on_the_next() {
    let mut rig = Rig::attached(false);
    let p = rig.run("p");
    rig.ask("process/read", json!({"processId": "p", "waitMs": 1_000}));
    rig.ask("environment/info", json!({}));
    rig.ask("process/terminate", json!({"processId": "p"}));
    rig.ask("environment/status", json!({}));
    let (_, q) = rig.starting("q");
    rig.ask("process/write", write_params("q", "w", "x"));
    cut(&mut rig);
    assert_eq!(rig.peer.timers.len(), 0, "nobody waits any more");
    rig.attach(false);
    while let Some(action) = rig.actions.pop_front() {
        match action {
            Action::Info { call } => {
                let info = EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() });
                rig.complete(Completion::Info { call, result: Box::new(Ok(info)) });
            }
            Action::Terminate { call, .. } => rig.complete(Completion::Terminated { call, result: Ok(true) }),
            other => panic!("{other:?}"),
        }
    }
    rig.started(q);
    rig.output(p, "news");
    assert_eq!(names(&rig.out()), ["process/output p"]);
    assert!(rig.actions.is_empty(), "a write that waited for the start had no effect");
    // The process is there, for the client to find or to end.
    assert_eq!(rig.refusal("process/start", start_params("q")).1, "process q already exists");
    assert_eq!(rig.call("process/write", write_params("q", "w", "x"))["result"]["status"], "accepted");
}

#[test]
fn a_repeated_write_after_a_cut_is_applied_once() {
    for answered in [false, true] {
        let mut rig = Rig::attached(false);
        let p = rig.run("p");
        rig.ask("process/write", write_params("p", "w1", "a"));
        if answered {
            rig.out();
        }
        cut(&mut rig);
        rig.attach(false);
        assert_eq!(rig.call("process/write", write_params("p", "w1", "a"))["result"]["status"], "accepted");
        assert_eq!(rig.call("process/write", write_params("p", "w2", "b"))["result"]["status"], "accepted");
        let mut applied = Vec::new();
        while let Some(action) = rig.actions.pop_front() {
            let Action::Write { data, .. } = action else { panic!("{action:?}") };
            applied.push(data);
            rig.complete(Completion::StdinDone { process: p, result: Ok(()) });
        }
        assert_eq!(applied, ["a", "b"]);
    }
}

#[test]
fn a_detached_session_has_its_time() {
    let mut rig = Rig::attached(false);
    let start = rig.now;
    assert_eq!(rig.peer.poll_timeout(), None, "nothing to do while attached and idle");
    cut(&mut rig);
    assert_eq!(rig.peer.poll_timeout(), Some(start + 80 * SECOND));
    rig.now = start + 79 * SECOND;
    assert!(!rig.peer.is_expired(rig.now));
    rig.attach(false);
    rig.now = start + 500 * SECOND;
    assert!(!rig.peer.is_expired(rig.now));
    cut(&mut rig);
    assert!(!rig.peer.is_expired(rig.now + 79 * SECOND));
    assert!(rig.peer.is_expired(rig.now + 80 * SECOND), "the deadline counts");
}

#[test]
fn a_closed_process_is_kept_for_its_time_attached_or_not() {
    let mut rig = Rig::attached(false);
    let p = rig.run("p");
    let exited_only = rig.run("e");
    rig.exit(exited_only, 0);
    rig.output(p, "x");
    rig.exit(p, 0);
    rig.pass(500 * SECOND);
    assert_eq!(rig.call("process/read", json!({"processId": "p"}))["result"]["exited"], true);
    rig.close(p);
    rig.out();
    cut(&mut rig);
    rig.pass(79 * SECOND);
    rig.attach(false);
    assert_eq!(rig.call("process/read", json!({"processId": "p"}))["result"]["closed"], true);
    assert_eq!(rig.refusal("process/start", start_params("p")).1, "process p already exists");
    rig.pass(SECOND);
    assert_eq!(rig.refusal("process/read", json!({"processId": "p"})).1, "unknown process id p");
    assert!(matches!(rig.actions.pop_back(), Some(Action::Forget { process }) if process == p));
    rig.run("p");
    assert_eq!(rig.call("process/read", json!({"processId": "e"}))["result"]["exited"], true, "kept without limit");
}

#[test]
fn what_an_absent_client_has_not_seen_holds_the_process() {
    let mut rig = Rig::attached(false);
    let p = rig.run("p");
    cut(&mut rig);
    while rig.peer.wants_output(p) {
        rig.output(p, &"x".repeat(64 << 10));
    }
    rig.attach(false);
    assert!(!rig.peer.wants_output(p), "it has not read it yet");
    let answer = rig.call("process/read", json!({"processId": "p", "afterSeq": 0}));
    assert_eq!(answer["result"]["chunks"].as_array().unwrap().len(), 16);
    assert!(rig.peer.wants_output(p));

    // A client that does not care to read does not stop its process for ever.
    cut(&mut rig);
    while rig.peer.wants_output(p) {
        rig.output(p, &"x".repeat(64 << 10));
    }
    rig.attach(false);
    rig.pass(9 * SECOND);
    assert!(!rig.peer.wants_output(p));
    rig.pass(SECOND);
    assert!(rig.peer.wants_output(p));
}

#[test]
fn exit_facts_and_totals_go_to_those_who_agreed() {
    for extended in [false, true] {
        let mut rig = Rig::attached(extended);
        let p = rig.run("p");
        rig.output(p, "four");
        let status = ExitStatus::signaled(crate::Signal::Kill).with_limit(Some(crate::status::LimitExceeded::Time));
        rig.event(p, Event::Exited(Exited { seq: 0, status, sandbox_denied: false }));
        rig.close(p);
        let sent = rig.out();
        let read = rig.call("process/read", json!({"processId": "p"}));
        let totals = json!({"stdout": 4, "stderr": 0, "pty": 0});
        let facts = |value: Value| if extended { value } else { Value::Null };
        assert_eq!(sent[1]["params"]["exitCode"], 137);
        assert_eq!(sent[1]["params"]["longarm"], facts(json!({"signal": "KILL", "timedOut": true, "limit": "time"})));
        assert_eq!(sent[2]["params"]["longarm"], facts(json!({"totalBytes": totals})));
        let expected = json!({
            "totalBytes": totals, "offset": 0, "exitSeq": 2, "signal": "KILL", "timedOut": true, "limit": "time",
        });
        assert_eq!(read["result"]["longarm"], facts(expected));
        assert_eq!(sent[1]["params"].as_object().unwrap().contains_key("longarm"), extended);
    }
}

#[test]
fn the_list_names_every_process_and_its_state() {
    let mut rig = Rig::attached(true);
    rig.starting("starting");
    rig.run("running");
    let exited = rig.run("exited");
    rig.exit(exited, 3);
    rig.out();
    let closed = rig.run("closed");
    rig.output(closed, "x");
    rig.exit(closed, 0);
    rig.close(closed);
    rig.out();
    let list = rig.call("longarm/process/list", json!({}));
    let entry = |id: &str, state: &str, next: u64, code: Value| json!({"processId": id, "state": state, "nextSeq": next, "tty": false, "exitCode": code});
    assert_eq!(
        list["result"]["processes"],
        json!([
            entry("starting", "starting", 1, json!(null)),
            entry("running", "running", 1, json!(null)),
            entry("exited", "exited", 2, json!(3)),
            entry("closed", "closed", 4, json!(0)),
        ])
    );
}

#[test]
fn a_backend_that_loses_a_process_ends_it() {
    let mut rig = Rig::attached(false);
    let (p, q) = (rig.run("p"), rig.run("q"));
    rig.peer.handle_event(rig.now, p, Some(Err(WaitError::Closed)));
    rig.peer.handle_event(rig.now, q, None);
    assert_eq!(names(&rig.out()), ["process/exited p", "process/exited q", "process/closed p", "process/closed q"]);
    let read = rig.call("process/read", json!({"processId": "p"}));
    assert_eq!(read["result"]["failure"], "the environment is closed");
    assert_eq!(read["result"]["exitCode"], -1);
}

#[test]
fn a_shutdown_ends_everything_and_starts_nothing() {
    let mut rig = Rig::attached(false);
    let p = rig.run("p");
    let closed = rig.run("closed");
    rig.exit(closed, 0);
    rig.close(closed);
    let (start, q) = rig.starting("q");
    rig.out();
    rig.peer.begin_shutdown(rig.now);
    rig.collect();
    assert!(matches!(rig.actions.pop_front(), Some(Action::Terminate { process, grace, .. })
        if process == p && grace == 2 * SECOND));
    assert!(matches!(rig.actions.pop_front(), Some(Action::CancelStart { process }) if process == q));
    assert!(rig.actions.is_empty());
    let answers = rig.out();
    assert_eq!(answers[0]["id"], start);
    assert!(!rig.peer.is_quiet());
    assert!(rig.call("process/start", start_params("r"))["error"]["code"].is_i64());
    rig.exit(p, 143);
    rig.close(p);
    assert!(!rig.peer.is_quiet(), "there is something left to say");
    rig.out();
    assert!(rig.peer.is_quiet());
}
