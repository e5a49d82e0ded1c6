use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const ITEMS: usize = 8;
const BYTES: usize = 100;

fn window() -> Reorder<u64> {
    Reorder::new(1, ITEMS, BYTES)
}

fn drain(window: &mut Reorder<u64>) -> Vec<u64> {
    std::iter::from_fn(|| window.pop_next()).collect()
}

#[test]
fn items_come_out_in_order_and_once() {
    let mut window = window();
    for number in [3, 2, 3, 5] {
        window.insert(number, 1, number).unwrap();
    }
    assert!(window.has_hole());
    assert_eq!(drain(&mut window), [] as [u64; 0]);
    window.insert(1, 1, 1).unwrap();
    assert_eq!(drain(&mut window), [1, 2, 3]);
    assert_eq!(window.insert(2, 1, 2), Ok(Inserted::Duplicate));
    assert_eq!(window.insert(5, 1, 99), Ok(Inserted::Duplicate));
    window.insert(4, 1, 4).unwrap();
    assert_eq!(drain(&mut window), [4, 5]);
}

#[test]
fn the_window_is_bounded_by_items_and_the_gap_closer_is_admitted() {
    let mut window = window();
    for number in 2..2 + ITEMS as u64 {
        window.insert(number, 0, number).unwrap();
    }
    assert_eq!(window.insert(100, 0, 100), Err(Violation::Full));
    window.insert(1, 0, 1).unwrap();
    assert_eq!(drain(&mut window).len(), ITEMS + 1);
}

#[test]
fn the_window_is_bounded_by_bytes_and_the_gap_closer_is_admitted() {
    let mut window = window();
    window.insert(2, BYTES, 2).unwrap();
    assert_eq!(window.insert(3, 1, 3), Err(Violation::Full));
    window.insert(1, BYTES, 1).unwrap();
    assert_eq!(drain(&mut window), [1, 2]);
    assert_eq!(window.held_bytes(), 0);
}

#[test]
fn an_item_larger_than_the_window_is_never_admitted() {
    assert_eq!(window().insert(1, BYTES + 1, 1), Err(Violation::TooLarge));
    assert_eq!(window().insert(2, BYTES + 1, 2), Err(Violation::TooLarge));
}

#[test]
fn the_last_number_is_refused_and_others_may_be_far_away() {
    let mut window = window();
    assert_eq!(window.insert(u64::MAX, 0, 0), Err(Violation::LastNumber));
    window.insert(u64::MAX - 1, 0, 7).unwrap();
    window.skip_to(u64::MAX - 1);
    assert_eq!(drain(&mut window), [7]);
}

#[test]
fn skipping_releases_what_was_held_before() {
    let mut window = window();
    window.insert(3, 10, 3).unwrap();
    window.insert(6, 10, 6).unwrap();
    window.skip_to(6);
    assert_eq!((window.held_bytes(), window.next()), (10, 6));
    window.skip_to(2);
    assert_eq!(drain(&mut window), [6]);
}

proptest! {
    /// Invariants 1 to 4, for any order, duplicates and sizes.
    #[test]
    fn whatever_is_inserted_comes_out_rising_once_and_bounded(
        inserts in vec((1_u64..40, 0_usize..=BYTES + 5), 0..200),
    ) {
        let mut window = window();
        let mut out = Vec::new();
        for (number, bytes) in inserts {
            let closes = number == window.next();
            let known = number < window.next() || window.holds(number);
            let result = window.insert(number, bytes, number);
            match result {
                Ok(Inserted::Duplicate) => prop_assert!(known),
                Ok(Inserted::New) => prop_assert!(!known),
                Err(Violation::TooLarge) => prop_assert!(bytes > BYTES),
                Err(Violation::Full) => prop_assert!(!closes),
                Err(Violation::LastNumber) => prop_assert!(false),
            }
            out.extend(drain(&mut window));
            prop_assert!(window.held_items() <= ITEMS);
            prop_assert!(window.held_bytes() <= BYTES);
        }
        prop_assert!(out.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        prop_assert!(out.first().is_none_or(|first| *first == 1));
    }

    /// Any permutation within the window comes out complete.
    #[test]
    fn a_shuffled_window_comes_out_whole(order in Just((1..=ITEMS as u64 + 1).collect::<Vec<_>>()).prop_shuffle()) {
        let mut window = window();
        let mut out = Vec::new();
        for number in &order {
            window.insert(*number, 1, *number).unwrap();
            out.extend(drain(&mut window));
        }
        prop_assert_eq!(out, (1..=ITEMS as u64 + 1).collect::<Vec<_>>());
    }
}
