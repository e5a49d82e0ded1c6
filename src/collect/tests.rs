use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::event::{Closed, Output};

fn kept(head: usize, tail: usize, bytes: &[u8]) -> Collected {
    let mut buffer = HeadTail::new(head, tail);
    buffer.push(bytes);
    buffer.finish()
}

#[test]
fn a_cut_text_has_whole_characters_and_says_how_much_is_left_out() {
    let collected = kept(4, 5, "a\u{e9}\u{e9}-----\u{e9}\u{20ac}z".as_bytes());
    assert_eq!((collected.dropped_bytes, collected.total_bytes), (7, 16));
    assert_eq!(collected.to_text(), "a\u{e9}\n[9 bytes left out]\n\u{20ac}z");
}

#[test]
fn a_character_across_the_two_halves_is_whole_when_nothing_was_dropped() {
    let collected = kept(2, 8, "a\u{20ac}z".as_bytes());
    assert_eq!(collected.to_text(), "a\u{20ac}z");
}

#[test]
fn debug_does_not_show_output() {
    assert!(!format!("{:?}", kept(8, 8, b"hunter2")).contains("hunter2"));
}

#[test]
fn gaps_are_counted_and_one_of_unknown_size_makes_the_sum_unknown() {
    let gap = |bytes| Event::Gap(Gap { first_seq: 1, last_seq: 1, bytes });
    let exited = Event::Exited(Exited { seq: 2, status: ExitStatus::exited(0), sandbox_denied: true });
    let mut collector = Collector::new(CollectLimits::default(), None);
    for event in [gap(Some(3)), gap(Some(4)), exited.clone()] {
        assert!(!collector.push(event));
    }
    let output = collector.finish().unwrap();
    assert_eq!(output.missing, Some(Missing { gaps: 2, bytes: Some(7) }));
    assert!(output.still_open && output.sandbox_denied);

    let mut collector = Collector::new(CollectLimits::default(), None);
    for event in [gap(Some(3)), gap(None), gap(Some(1)), exited] {
        collector.push(event);
    }
    assert!(collector.push(Event::Closed(Closed { seq: 3, totals: None, cut: true })));
    let output = collector.finish().unwrap();
    assert_eq!(output.missing, Some(Missing { gaps: 3, bytes: None }));
    assert!(output.cut && !output.still_open);
}

#[test]
fn streams_are_kept_apart() {
    let mut collector = Collector::new(CollectLimits::default(), None);
    for (stream, bytes) in [(OutputStream::Stdout, "1"), (OutputStream::Stderr, "2"), (OutputStream::Pty, "3")] {
        collector.push(Event::Output(Output { seq: 1, stream, bytes: Bytes::from_static(bytes.as_bytes()) }));
    }
    collector.push(Event::Exited(Exited { seq: 2, status: ExitStatus::exited(0), sandbox_denied: false }));
    let output = collector.finish().unwrap();
    assert_eq!([output.stdout, output.stderr, output.pty].map(|stream| stream.to_text()), ["1", "2", "3"]);
}

proptest! {
    #[test]
    fn head_and_tail_are_the_ends_of_the_stream_within_their_bounds(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
        head in 0_usize..64,
        tail in 0_usize..64,
    ) {
        let mut buffer = HeadTail::new(head, tail);
        for chunk in &chunks {
            buffer.push(chunk);
            prop_assert!(buffer.head.len() <= head && buffer.tail.len() <= tail);
        }
        let all = chunks.concat();
        let found = buffer.finish();
        prop_assert_eq!(&found.head, &all[..all.len().min(head)]);
        let rest = &all[all.len().min(head)..];
        prop_assert_eq!(&found.tail, &rest[rest.len().saturating_sub(tail)..]);
        prop_assert_eq!(found.total_bytes, all.len() as u64);
        prop_assert_eq!(found.dropped_bytes, (all.len() - found.head.len() - found.tail.len()) as u64);
    }
}
