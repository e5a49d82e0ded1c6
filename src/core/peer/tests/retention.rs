//! How long closed processes are kept, and how many.

use super::*;
use crate::event::Gap;

const SECOND: Duration = Duration::from_secs(1);

fn cut(rig: &mut Rig) {
    rig.peer.handle_disconnect(rig.now);
    rig.collect();
}

fn end(rig: &mut Rig, key: ProcessKey) {
    rig.exit(key, 0);
    rig.close(key);
}

fn acknowledge(rig: &mut Rig, id: &str, seq: u64) {
    rig.tell(&json!({"method": "longarm/process/ack", "params": {"acks": [[id, seq]]}})).unwrap();
}

fn is_known(rig: &mut Rig, id: &str) -> bool {
    let answer = rig.call("process/read", json!({"processId": id, "afterSeq": 1_000}));
    answer.get("result").is_some()
}

#[test]
fn what_a_client_missed_is_there_when_it_comes_back_within_the_sessions_life() {
    for extended in [false, true] {
        let mut rig = Rig::with(|config| config.session_ttl = 3_600 * SECOND);
        rig.attach(extended);
        let p = rig.run("p");
        rig.output(p, "one");
        rig.out();
        cut(&mut rig);
        rig.output(p, "two");
        end(&mut rig, p);
        rig.pass(300 * SECOND);
        rig.attach(extended);
        let read = rig.call("process/read", json!({"processId": "p"}));
        let chunks = read["result"]["chunks"].as_array().unwrap();
        assert_eq!(chunks.len(), 2, "extended: {extended}");
        assert_eq!((&read["result"]["closed"], &read["result"]["nextSeq"]), (&json!(true), &json!(5)));
        // It has the whole time from when it came back, or from its acknowledgement.
        if extended {
            rig.pass(500 * SECOND);
            acknowledge(&mut rig, "p", 4);
        }
        rig.pass(79 * SECOND);
        assert!(is_known(&mut rig, "p"));
        rig.pass(SECOND);
        assert!(!is_known(&mut rig, "p"));
        assert!(matches!(rig.actions.pop_back(), Some(Action::Forget { process }) if process == p));
        assert_eq!(rig.peer.poll_timeout(), None);
    }
}

#[test]
fn a_client_that_acknowledges_has_its_time_from_the_acknowledgement_of_the_close() {
    let mut rig = Rig::attached(true);
    let p = rig.run("p");
    rig.output(p, "x");
    end(&mut rig, p);
    rig.out();
    rig.pass(500 * SECOND);
    acknowledge(&mut rig, "p", 2);
    rig.pass(500 * SECOND);
    assert!(is_known(&mut rig, "p"), "the close is not acknowledged");
    acknowledge(&mut rig, "p", 3);
    rig.pass(79 * SECOND);
    // A repeated acknowledgement, or a cut, does not begin the time again.
    acknowledge(&mut rig, "p", 3);
    cut(&mut rig);
    rig.attach(true);
    assert!(is_known(&mut rig, "p"));
    rig.pass(SECOND);
    assert!(!is_known(&mut rig, "p"));
}

#[test]
fn an_acknowledgement_of_a_close_that_was_read_before_it_was_sent_counts() {
    let mut rig = Rig::attached(true);
    let p = rig.run("p");
    end(&mut rig, p);
    acknowledge(&mut rig, "p", 2);
    assert_eq!(rig.out().len(), 2);
    rig.pass(80 * SECOND);
    assert!(!is_known(&mut rig, "p"));
}

#[test]
fn the_time_stops_when_a_plain_client_leaves_before_it_was_sent_the_end() {
    let mut rig = Rig::attached(false);
    let p = rig.run("p");
    end(&mut rig, p);
    rig.pass(79 * SECOND);
    cut(&mut rig);
    rig.pass(79 * SECOND);
    rig.attach(false);
    rig.pass(79 * SECOND);
    assert!(is_known(&mut rig, "p"));
    // Now it has what there is, and the time runs on without it.
    cut(&mut rig);
    rig.pass(SECOND);
    rig.attach(false);
    assert!(!is_known(&mut rig, "p"));
}

#[test]
fn closed_processes_do_not_count_among_those_that_run() {
    for extended in [false, true] {
        let mut rig = Rig::with(|config| {
            config.max_processes = 2;
            config.max_closed_processes = 3;
        });
        rig.attach(extended);
        for number in 0..20 {
            let id = number.to_string();
            let p = rig.run(&id);
            end(&mut rig, p);
            rig.out();
            acknowledge_if(&mut rig, extended, &id);
        }
        for (number, known) in [(16, false), (17, true), (18, true), (19, true)] {
            assert_eq!(is_known(&mut rig, &number.to_string()), known, "{number}, extended: {extended}");
        }
        assert_eq!(rig.actions.iter().filter(|action| matches!(action, Action::Forget { .. })).count(), 17);
        rig.run("a");
        rig.run("b");
        assert_eq!(rig.refusal("process/start", start_params("c")).1, "the session already has 2 processes");
        rig.pass(80 * SECOND);
        assert_eq!(rig.peer.timers.len(), 0, "nothing is left of what went early");
    }
}

fn acknowledge_if(rig: &mut Rig, extended: bool, id: &str) {
    if extended {
        acknowledge(rig, id, 2);
    }
}

#[test]
fn what_was_not_seen_is_not_forgotten_early_but_stops_new_starts() {
    let mut rig = Rig::with(|config| config.max_closed_processes = 3);
    rig.attach(true);
    let keys: Vec<_> = ["a", "b", "c", "d"].into_iter().map(|id| rig.run(id)).collect();
    for key in keys {
        end(&mut rig, key);
    }
    rig.out();
    for id in ["a", "b", "c", "d"] {
        assert!(is_known(&mut rig, id), "{id} was not seen");
    }
    assert_eq!(rig.refusal("process/start", start_params("e")).1, "the session already has 3 processes");
    // The oldest one that was seen goes, not the oldest.
    acknowledge(&mut rig, "c", 2);
    assert_eq!(rig.refusal("process/start", start_params("e")).1, "the session already has 3 processes");
    assert!(!is_known(&mut rig, "c"), "there were too many");
    acknowledge(&mut rig, "b", 2);
    let e = rig.run("e");
    assert!(is_known(&mut rig, "b"));
    end(&mut rig, e);
    assert!(!is_known(&mut rig, "b"));
    assert!(is_known(&mut rig, "a") && is_known(&mut rig, "d") && is_known(&mut rig, "e"));
}

#[test]
fn a_process_whose_events_cannot_be_counted_is_ended() {
    let mut rig = Rig::attached(false);
    let p = rig.run("p");
    rig.event(p, Event::Gap(Gap { first_seq: 1, last_seq: u64::MAX, bytes: None }));
    assert!(matches!(rig.actions.pop_back(), Some(Action::Terminate { process, call: None, .. }) if process == p));
    assert_eq!(names(&rig.out()), ["process/exited p", "process/closed p"]);
    let read = rig.call("process/read", json!({"processId": "p"}));
    assert_eq!(read["result"]["failure"], "the process has more events or bytes than can be counted");
}
