//! Whatever comes in whatever order.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::model::{Model, check};
use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Happen,
    Deliver,
    /// The second message overtakes the first.
    Overtake,
    Repeat(usize),
    Consume(usize),
    AskRead,
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Happen),
        4 => Just(Step::Deliver),
        1 => Just(Step::Overtake),
        1 => (0_usize..64).prop_map(Step::Repeat),
        3 => (1_usize..5).prop_map(Step::Consume),
        2 => Just(Step::AskRead),
        1 => Just(Step::Wait),
    ]
}

#[derive(Debug)]
enum Message {
    Event(Event),
    Read(ReadResult),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Invariants 1, 2, 3, 5 and 7: however notifications, reads, repetitions and the reader's pace interleave, the reader
    /// gets every event in order; what the peer evicted stands as a gap; unread output stays bounded.
    #[test]
    fn the_reader_gets_all_in_order_whatever_the_interleaving(
        chunks in vec(1_usize..40, 0..40),
        exit_at in 0_usize..45,
        retained in prop_oneof![Just(64_usize), 1_usize..6],
        extended in any::<bool>(),
        steps in vec(step(), 0..300),
    ) {
        let window = 120;
        let config = config(window);
        let mut now = start();
        let mut model = Model::new(&chunks, exit_at, retained, extended);
        let mut inbox = inbox(&config);
        let (mut link, mut out, mut taken) = (VecDeque::new(), Vec::new(), 0_usize);
        let mut reading = false;
        let everything = std::iter::repeat_n([Step::Happen, Step::Deliver, Step::Consume(99), Step::AskRead], 150);
        for step in steps.into_iter().chain(everything.flatten()) {
            match step {
                Step::Happen => link.extend(model.happen().map(Message::Event)),
                Step::Deliver | Step::Overtake => {
                    if matches!(step, Step::Overtake) && matches!(link.get(1), Some(Message::Event(_))) {
                        link.swap(0, 1);
                    }
                    match link.pop_front() {
                        Some(Message::Event(event)) => feed(&mut inbox, now, event, &mut out).unwrap(),
                        Some(Message::Read(result)) => {
                            reading = false;
                            inbox.handle_read(now, &result, &mut out).unwrap();
                        }
                        None => {}
                    }
                }
                Step::Repeat(index) => {
                    // An old duplicate: of something that came already.
                    if let Some(event) = out.get(index).filter(|event| !matches!(event, Event::Gap(_) | Event::Exited(_))) {
                        feed(&mut inbox, now, event.clone(), &mut out).unwrap();
                    }
                }
                Step::Consume(count) => {
                    taken = (taken + count).min(out.len());
                    inbox.handle_consumed(now, consumption(&out[..taken]), &mut out).unwrap();
                }
                Step::AskRead => {
                    if let Some(spec) = inbox.wants_read(now, false).filter(|_| !reading) {
                        reading = true;
                        inbox.handle_read_started(spec);
                        link.push_back(Message::Read(model.read(spec.after_seq(), spec.max_bytes())));
                    }
                }
                Step::Wait => now += HOLE_PATIENCE,
            }
            let unread = consumption(&out).bytes - consumption(&out[..taken]).bytes;
            // What was held back while a read was under way comes with it.
            let bound = 2 * window + config.reorder_bytes + 40;
            prop_assert!(unread <= bound as u64, "{} bytes unread", unread);
            prop_assert!(inbox.order.held_items() <= config.reorder_events + 3);
        }
        prop_assert!(inbox.is_over(), "not over: {:?}", inbox);
        let missing = check(&model, 0, &out);
        if retained == 64 {
            prop_assert_eq!(missing, 0);
        }
        prop_assert_eq!(inbox.poll_timeout(), None);
    }
}
