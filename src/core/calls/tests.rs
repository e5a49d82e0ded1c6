use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[test]
fn ids_count_from_one_and_the_limit_holds() {
    let mut calls = Calls::new(2);
    assert_eq!(calls.admit(Class::Regular, 'a'), Ok(1));
    assert_eq!(calls.admit(Class::Regular, 'b'), Ok(2));
    assert_eq!(calls.admit(Class::Regular, 'c'), Err(Busy { limit: 2 }));
    assert_eq!(calls.admit(Class::Cleanup, 'd'), Ok(3));
    assert!(calls.cleanup_taken());
    assert_eq!(calls.admit(Class::Cleanup, 'e'), Err(Busy { limit: 2 }));
}

#[test]
fn a_guessed_answer_frees_nothing() {
    let mut calls = Calls::new(1);
    let id = calls.admit(Class::Regular, 'a').unwrap();
    assert_eq!(calls.settle(id), None);
    assert!(!calls.has_room());
    calls.mark_sent(id);
    assert_eq!(calls.settle(id + 1), None);
    assert_eq!(calls.settle(id), Some('a'));
    assert_eq!(calls.settle(id), None);
    assert!(calls.has_room());
}

#[test]
fn only_what_was_not_sent_can_be_taken_back() {
    let mut calls = Calls::new(2);
    let (first, second) = (calls.admit(Class::Regular, 'a').unwrap(), calls.admit(Class::Regular, 'b').unwrap());
    calls.mark_sent(first);
    assert_eq!(calls.cancel_unsent(first), None);
    assert_eq!(calls.cancel_unsent(second), Some('b'));
    assert!(!calls.contains(second));
}

#[test]
fn draining_says_what_may_have_run() {
    let mut calls = Calls::new(3);
    for what in ['a', 'b'] {
        calls.admit(Class::Regular, what).unwrap();
    }
    calls.mark_sent(1);
    assert_eq!(calls.drain().collect::<Vec<_>>(), [('a', Sent::Unknown), ('b', Sent::NotSent)]);
    assert_eq!(calls.drain().count(), 0);
    assert_eq!(calls.admit(Class::Regular, 'c'), Ok(3));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Admit(bool),
    Send(i64),
    Settle(i64),
    Cancel(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(Step::Admit),
        (0_i64..30).prop_map(Step::Send),
        (0_i64..30).prop_map(Step::Settle),
        (0_i64..30).prop_map(Step::Cancel),
    ]
}

proptest! {
    /// Invariants 1 to 4.
    #[test]
    fn every_call_ends_once_and_the_limit_holds(steps in vec(step(), 0..200), limit in 1_usize..6) {
        let mut calls = Calls::new(limit);
        let (mut made, mut ended) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Admit(cleanup) => {
                    let number = made.len();
                    let class = if cleanup { Class::Cleanup } else { Class::Regular };
                    if let Ok(id) = calls.admit(class, number) {
                        prop_assert_eq!(usize::try_from(id).unwrap(), number + 1);
                        made.push(number);
                    }
                }
                Step::Send(id) => calls.mark_sent(id),
                Step::Settle(id) => ended.extend(calls.settle(id)),
                Step::Cancel(id) => ended.extend(calls.cancel_unsent(id)),
            }
            prop_assert!(calls.table.len() <= limit + 1);
        }
        ended.extend(calls.drain().map(|(number, _)| number));
        ended.sort_unstable();
        prop_assert_eq!(made, ended);
    }
}
