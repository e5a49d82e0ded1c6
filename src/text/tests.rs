use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::event::{Closed, Gap};

fn output(stream: OutputStream, bytes: &'static [u8]) -> Event {
    Event::Output(Output { seq: 1, stream, bytes: Bytes::from_static(bytes) })
}

fn texts(events: &[Event], stream: OutputStream) -> String {
    let mut decoder = EventText::new();
    let pieces: Vec<_> = events.iter().flat_map(|event| decoder.push(event)).collect();
    pieces.iter().filter(|(of, _)| *of == stream).map(|(_, text)| text.as_ref()).collect()
}

const CLOSED: Event = Event::Closed(Closed { seq: 9, totals: None, cut: false });

#[test]
fn a_character_cut_in_two_is_one_character_also_with_the_other_stream_in_between() {
    let events = [
        output(OutputStream::Stdout, b"\xe2"),
        output(OutputStream::Stderr, b"warning \xc3"),
        output(OutputStream::Stdout, b"\x82\xac\n"),
        output(OutputStream::Stderr, b"\xa9"),
        output(OutputStream::Stdout, b"\xffok\xf0\x9f"),
        CLOSED,
    ];
    assert_eq!(texts(&events, OutputStream::Stdout), "\u{20ac}\n\u{fffd}ok\u{fffd}");
    assert_eq!(texts(&events, OutputStream::Stderr), "warning \u{e9}");
}

#[test]
fn a_gap_ends_a_character_that_was_begun() {
    let gap = Event::Gap(Gap { first_seq: 2, last_seq: 2, bytes: None });
    let events = [output(OutputStream::Pty, b"a\xe2\x82"), gap, output(OutputStream::Pty, b"b"), CLOSED];
    assert_eq!(texts(&events, OutputStream::Pty), "a\u{fffd}b");
}

#[test]
fn borders_of_characters_are_found_at_both_ends() {
    for (bytes, suffix, prefix) in [
        (&b""[..], 0, 0),
        (b"abc", 0, 0),
        (b"a\xe2", 1, 0),
        (b"a\xe2\x82", 2, 0),
        (b"a\xe2\x82\xac", 0, 0),
        (b"a\xf0\x9f\x98", 3, 0),
        (b"a\xff", 0, 0),
        (b"a\xe2\xff", 0, 0),
        (b"\x82\xac!", 0, 2),
        (b"\x9f\x98\x80\x80", 0, 3),
    ] {
        assert_eq!((incomplete_suffix(bytes), continuation_prefix(bytes)), (suffix, prefix), "{bytes:x?}");
    }
}

proptest! {
    #[test]
    fn cutting_anywhere_changes_nothing(
        pieces in prop::collection::vec(
            prop_oneof!["[a\u{e9}\u{20ac}\u{1f600}]{1,3}".prop_map(String::into_bytes), prop::collection::vec(any::<u8>(), 1..4)],
            0..8,
        ),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let bytes = pieces.concat();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let mut decoder = TextDecoder::new();
        let (mut text, mut from) = (String::new(), 0);
        for to in cuts {
            text.push_str(&decoder.push(&bytes[from..to]));
            prop_assert!(decoder.incomplete.len() <= 3);
            from = to;
        }
        text.extend(decoder.finish());
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes).into_owned());
    }
}
