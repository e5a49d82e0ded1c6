use proptest::prelude::*;

use super::*;

type Queue = StdinQueue<u32>;

const MAX_BYTES: usize = 5;

fn queue() -> Queue {
    StdinQueue::new(true, 2, MAX_BYTES, 4_096)
}

fn answers(queue: &mut Queue) -> Vec<(u32, Answer)> {
    std::iter::from_fn(|| queue.poll_answer()).collect()
}

fn write(queue: &mut Queue, call: u32, id: &str, data: &'static str) {
    queue.handle_write(call, id.into(), Bytes::from_static(data.as_bytes()));
}

fn data(text: &'static str) -> Option<Job> {
    Some(Job::Write(Bytes::from_static(text.as_bytes())))
}

#[test]
fn writes_are_accepted_while_there_is_room_and_done_one_by_one() {
    let mut queue = queue();
    write(&mut queue, 1, "1", "a");
    assert_eq!(queue.poll_job(), data("a"));
    assert_eq!(queue.poll_job(), None, "one at a time");
    for call in 2..6 {
        write(&mut queue, call, &call.to_string(), "b");
    }
    let accepted = |call| (call, Answer::Accepted);
    assert_eq!(answers(&mut queue), [accepted(1), accepted(2), accepted(3)], "two are queued, others wait");
    assert_eq!(queue.held_bytes(), 5 + 2, "with the ids of what waits");
    queue.handle_done(Done::Applied);
    assert_eq!(queue.poll_job(), data("b"));
    assert_eq!(answers(&mut queue), [accepted(4)]);
    assert_eq!(queue.held_bytes(), 4 + 1);
}

#[test]
fn a_repeated_write_is_answered_and_not_applied() {
    let mut queue = queue();
    write(&mut queue, 1, "w", "a");
    assert_eq!(queue.poll_job(), data("a"));
    write(&mut queue, 2, "w", "other bytes");
    queue.handle_done(Done::Applied);
    write(&mut queue, 3, "w", "a");
    assert_eq!(queue.poll_job(), None);
    assert_eq!(answers(&mut queue).len(), 3);
    assert_eq!(queue.held_bytes(), 0);
}

#[test]
fn a_repetition_of_a_waiting_write_is_accepted_with_it() {
    let mut queue = queue();
    for (call, id) in [(1, "1"), (2, "2"), (3, "3"), (4, "3")] {
        write(&mut queue, call, id, "x");
    }
    assert_eq!(answers(&mut queue).len(), 2);
    assert_eq!(queue.poll_job(), data("x"));
    assert_eq!(answers(&mut queue), [(3, Answer::Accepted), (4, Answer::Accepted)]);
    assert_eq!(queue.held_bytes(), 3);
}

#[test]
fn an_accepted_write_stays_so_after_the_close() {
    let mut queue = queue();
    write(&mut queue, 1, "w", "a");
    queue.handle_close(2);
    write(&mut queue, 3, "w", "a");
    write(&mut queue, 4, "new", "b");
    queue.handle_close(5);
    assert_eq!(
        answers(&mut queue).iter().map(|(_, answer)| *answer).collect::<Vec<_>>(),
        [Answer::Accepted, Answer::Accepted, Answer::Accepted, Answer::StdinClosed, Answer::StdinClosed]
    );
    assert_eq!(queue.poll_job(), data("a"));
    queue.handle_done(Done::Applied);
    assert_eq!(queue.poll_job(), Some(Job::Close), "after what was written before");
    queue.handle_done(Done::Applied);
    assert_eq!(queue.poll_job(), None);
}

#[test]
fn without_a_pipe_there_is_nothing_to_write_to() {
    let mut queue = StdinQueue::new(false, 2, MAX_BYTES, 4_096);
    write(&mut queue, 1, "w", "a");
    write(&mut queue, 2, "w", "a");
    queue.handle_close(3);
    queue.handle_process_closed();
    write(&mut queue, 4, "w", "a");
    assert!(answers(&mut queue).iter().all(|(_, answer)| *answer == Answer::StdinClosed));
    assert_eq!((queue.poll_job(), queue.held_bytes()), (None, 0));
}

#[test]
fn when_nobody_reads_writes_are_accepted_and_dropped() {
    let mut queue = queue();
    for (call, id) in [(1, "1"), (2, "2"), (3, "3"), (4, "4")] {
        write(&mut queue, call, id, "x");
    }
    queue.poll_job();
    queue.handle_done(Done::Gone);
    write(&mut queue, 5, "5", "y");
    let calls: Vec<_> = answers(&mut queue).into_iter().collect();
    assert_eq!(calls, [1, 2, 3, 4, 5].map(|call| (call, Answer::Accepted)));
    assert_eq!((queue.poll_job(), queue.held_bytes()), (None, 0));
}

#[test]
fn a_backend_that_cannot_write_is_an_error() {
    let mut queue = queue();
    write(&mut queue, 1, "1", "x");
    queue.poll_job();
    queue.handle_done(Done::Failed);
    write(&mut queue, 2, "2", "x");
    write(&mut queue, 3, "1", "x");
    assert_eq!(answers(&mut queue), [(1, Answer::Accepted), (2, Answer::Failed), (3, Answer::Accepted)]);
}

#[test]
fn the_end_of_the_process_frees_what_waits_behind_a_blocked_write() {
    let mut queue = queue();
    for (call, id) in [(1, "1"), (2, "2"), (3, "3"), (4, "4")] {
        write(&mut queue, call, id, "x");
    }
    assert_eq!(queue.poll_job(), data("x"));
    queue.handle_process_closed();
    assert_eq!(answers(&mut queue).len(), 4);
    assert_eq!(queue.held_bytes(), 1, "the backend still has one");
    queue.handle_done(Done::Gone);
    assert_eq!((queue.poll_job(), queue.held_bytes()), (None, 0));
}

#[test]
fn writes_wait_when_there_are_many_bytes_and_count_with_their_ids() {
    let mut queue = queue();
    write(&mut queue, 1, "1", "abcdefgh");
    assert_eq!(answers(&mut queue), [(1, Answer::Accepted)], "one write may be larger");
    assert_eq!(queue.poll_job(), data("abcdefgh"));
    assert_eq!(queue.excess_bytes(), 3);
    write(&mut queue, 2, "long id", "x");
    assert_eq!((answers(&mut queue), queue.excess_bytes()), (vec![], 3 + 7 + 1));
    assert_eq!(queue.excess_with(10), 21);
    queue.handle_done(Done::Applied);
    assert_eq!((answers(&mut queue), queue.excess_bytes()), (vec![(2, Answer::Accepted)], 0));
    write(&mut queue, 3, "3", "wxyz");
    write(&mut queue, 4, "4", "q");
    assert_eq!(answers(&mut queue), [(3, Answer::Accepted)]);
}

#[test]
fn after_a_refused_write_nothing_follows_the_hole() {
    let mut queue = queue();
    for (call, id) in [(1, "1"), (2, "2"), (3, "3")] {
        write(&mut queue, call, id, "x");
    }
    queue.handle_refusal();
    write(&mut queue, 4, "4", "x");
    write(&mut queue, 5, "1", "x");
    queue.handle_close(6);
    let (accepted, failed) = (|call| (call, Answer::Accepted), |call| (call, Answer::Failed));
    assert_eq!(
        answers(&mut queue),
        [accepted(1), accepted(2), failed(3), failed(4), accepted(5), failed(6)],
        "what was accepted stays so"
    );
    assert_eq!(queue.poll_job(), data("x"));
    queue.handle_done(Done::Applied);
    assert_eq!(queue.poll_job(), data("x"));
    queue.handle_done(Done::Applied);
    assert_eq!((queue.poll_job(), queue.held_bytes()), (None, 0));
}

#[test]
fn empty_writes_take_no_room_and_no_turn() {
    let mut queue = queue();
    for call in 0..9 {
        write(&mut queue, call, &call.to_string(), "");
    }
    assert_eq!((answers(&mut queue).len(), queue.poll_job()), (9, None));
}

#[test]
fn what_was_not_accepted_has_no_effect_after_a_cut() {
    let mut queue = queue();
    for (call, id) in [(1, "1"), (2, "2"), (3, "3")] {
        write(&mut queue, call, id, "x");
    }
    queue.handle_close(4);
    queue.abandon_waiting();
    assert_eq!(queue.held_bytes(), 2);
    // The client comes back and sends again what was not answered, and one that was.
    for (call, id) in [(5, "2"), (6, "3")] {
        write(&mut queue, call, id, "x");
    }
    assert_eq!(answers(&mut queue), [(5, Answer::Accepted)], "there is no room for 3 yet");
    assert_eq!(queue.poll_job(), data("x"));
    assert_eq!(answers(&mut queue), [(6, Answer::Accepted)]);
    write(&mut queue, 7, "4", "x");
    assert_eq!(answers(&mut queue), [], "not closed by a close that was given up, but full");
}

#[derive(Clone, Debug)]
enum Op {
    Write(u8, usize),
    Close,
    Job,
    Done(Done),
    Ended,
    Cut,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..20_u8, 0..4_usize).prop_map(|(id, length)| Op::Write(id, length)),
        1 => Just(Op::Close),
        6 => Just(Op::Job),
        5 => Just(Op::Done(Done::Applied)),
        1 => prop_oneof![Just(Done::Gone), Just(Done::Failed)].prop_map(Op::Done),
        1 => Just(Op::Ended),
        1 => Just(Op::Cut),
    ]
}

proptest! {
    /// Invariants 3, 4 and 6.
    #[test]
    fn every_call_is_answered_once_and_every_id_applied_once(ops in prop::collection::vec(op(), 0..150)) {
        let mut queue = queue();
        let (mut call, mut busy) = (0, None);
        let mut open_calls = Vec::new();
        let mut accepted = std::collections::HashMap::new();
        let mut applied = Vec::new();
        let mut writes = std::collections::HashMap::new();
        for op in ops {
            match op {
                Op::Write(id, length) => {
                    call += 1;
                    open_calls.push(call);
                    writes.insert(call, id);
                    // The id is the first byte, so that what is applied tells which write it was.
                    queue.handle_write(call, id.to_string(), vec![id; length].into());
                }
                Op::Close => {
                    call += 1;
                    open_calls.push(call);
                    queue.handle_close(call);
                }
                Op::Job => {
                    let job = queue.poll_job();
                    prop_assert!(job.is_none() || busy.is_none(), "one job at a time");
                    if let Some(Job::Write(data)) = &job {
                        prop_assert!(!applied.contains(&data[0]), "{} twice", data[0]);
                        prop_assert!(accepted.contains_key(&data[0]), "applied only once accepted");
                        applied.push(data[0]);
                    }
                    busy = job.or(busy);
                }
                Op::Done(done) => {
                    if busy.take().is_some() {
                        queue.handle_done(done);
                    }
                }
                Op::Ended => queue.handle_process_closed(),
                Op::Cut => {
                    queue.abandon_waiting();
                    open_calls.clear();
                }
            }
            while let Some((call, answer)) = queue.poll_answer() {
                let place = open_calls.iter().position(|open| *open == call);
                prop_assert!(place.is_some(), "answered once, and not after a cut");
                open_calls.remove(place.unwrap());
                if let (Some(id), Answer::Accepted) = (writes.get(&call), answer) {
                    accepted.insert(*id, call);
                }
            }
            prop_assert!(queue.queued.len() <= 2);
            let jobs = queue.queued.len() + usize::from(queue.busy.is_some());
            prop_assert!(queue.accepted_bytes <= MAX_BYTES || jobs == 1);
            if open_calls.is_empty() && busy.is_none() && queue.queued.is_empty() {
                prop_assert_eq!(queue.held_bytes(), 0);
            }
        }
        // In the end, everybody has an answer.
        queue.handle_process_closed();
        while queue.poll_answer().map(|(call, _)| open_calls.retain(|open| *open != call)).is_some() {}
        prop_assert!(open_calls.is_empty());
    }
}
