use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

#[test]
fn only_the_last_ids_are_remembered() {
    let mut writes = AcceptedWrites::new(3);
    for id in ["a", "b", "c", "d"] {
        assert!(writes.insert(id));
    }
    assert!(!writes.contains("a"));
    assert!(!writes.insert("b"));
    assert!(writes.insert("a"), "forgotten, so new");
    assert!(!writes.contains("b"), "a repetition does not make an id younger");
}

#[test]
fn ids_of_any_length_stay_within_the_bound() {
    let mut writes = AcceptedWrites::new(4_096);
    for number in 0..20 {
        assert!(writes.insert(&format!("{number}{}", "x".repeat(200_000))));
        assert!(writes.text_bytes() <= MAX_TEXT_BYTES);
    }
    writes.insert(&"y".repeat(2 << 20));
    assert_eq!(writes.text_bytes(), 0);
}

proptest! {
    #[test]
    fn it_agrees_with_a_list_of_the_last_ids(ids in prop::collection::vec(0..12_u8, 0..200), bound in 1..8_usize) {
        let mut writes = AcceptedWrites::new(bound);
        let mut last = VecDeque::new();
        for id in ids {
            let new = !last.contains(&id);
            prop_assert_eq!(writes.insert(&id.to_string()), new);
            if new {
                last.push_back(id);
                if last.len() > bound {
                    last.pop_front();
                }
            }
        }
    }
}
