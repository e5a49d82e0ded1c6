use std::collections::{HashSet, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// An input that numbers its own pieces.
#[derive(Default)]
struct Rig {
    input: Option<Input>,
    last_piece: u64,
}

impl Rig {
    fn input(&mut self) -> &mut Input {
        self.input.get_or_insert_with(Input::new)
    }

    fn write(&mut self, token: u64, data: Vec<u8>) {
        self.input().push_write(Token(token), data.into(), 100).unwrap();
    }

    fn next(&mut self, width: usize) -> Option<Departure> {
        let mut last_piece = self.last_piece;
        let next = self.input().next_piece(width, &mut last_piece);
        self.last_piece = last_piece;
        next
    }

    fn settle(&mut self, id: PieceId, result: Result<(), Failure>) -> Option<Finished> {
        self.input().settle(id, result)
    }
}

#[test]
fn a_large_write_goes_out_in_pieces_and_ends_once() {
    let mut rig = Rig::default();
    rig.write(1, vec![7; PIECE_BYTES * 2 + 1]);
    let pieces: Vec<_> = std::iter::from_fn(|| rig.next(8)).collect();
    let sizes: Vec<_> = pieces
        .iter()
        .map(|departure| match &departure.piece {
            Piece::Write(data) => data.len(),
            Piece::Close => 0,
        })
        .collect();
    assert_eq!(sizes, [PIECE_BYTES, PIECE_BYTES, 1]);
    assert!(rig.settle(pieces[1].id, Ok(())).is_none());
    assert!(rig.settle(pieces[0].id, Ok(())).is_none());
    assert!(rig.settle(pieces[0].id, Ok(())).is_none(), "an answer twice");
    let finished = rig.settle(pieces[2].id, Ok(())).unwrap();
    assert!(finished.result.is_ok() && finished.token == Token(1));
    assert!(rig.settle(pieces[2].id, Ok(())).is_none());
}

#[test]
fn after_a_failed_close_the_next_job_is_tried() {
    let mut rig = Rig::default();
    rig.input().push_close(Token(1), 100).unwrap();
    rig.write(2, vec![2]);
    let first = rig.next(1).unwrap();
    let finished = rig.settle(first.id, Err(Failure::StdinClosed)).unwrap();
    assert!(matches!(finished.result, Err(Failure::StdinClosed)));
    assert_eq!(rig.next(1).unwrap().piece, Piece::Write(Bytes::from_static(&[2])));
}

#[test]
fn a_failure_takes_back_what_was_to_go_out_again() {
    let mut rig = Rig::default();
    rig.write(1, vec![1; PIECE_BYTES * 3]);
    rig.write(2, vec![2]);
    while rig.next(4).is_some() {}
    rig.input().rewind();
    let first = rig.next(1).unwrap();
    assert!(first.again);
    assert!(rig.settle(first.id, Err(Failure::StdinClosed)).is_some());
    let other = rig.next(1).unwrap();
    assert_eq!((other.id, other.again), (PieceId(4), true));
    assert!(rig.settle(other.id, Ok(())).unwrap().result.is_ok());
    assert!(!rig.input().wants_to_send(1));
}

/// Invariant 4.
#[test]
fn after_a_failed_piece_nothing_follows_the_hole() {
    let mut rig = Rig::default();
    rig.write(1, vec![1; PIECE_BYTES * 3]);
    rig.write(2, vec![2]);
    rig.write(3, vec![3]);
    let pieces: Vec<_> = std::iter::from_fn(|| rig.next(4)).map(|departure| departure.id).collect();
    assert!(rig.settle(pieces[0], Err(Failure::StdinClosed)).is_none(), "two more pieces of it are on the wire");
    let ended = rig.input().fail(Failure::StdinClosed);
    assert!(matches!(&ended[..], [Finished { token: Token(3), result: Err(Failure::StdinClosed) }]), "{ended:?}");
    assert!(!rig.input().wants_to_send(4) && rig.next(4).is_none());
    assert!(rig.settle(pieces[1], Ok(())).is_none());
    assert!(matches!(rig.settle(pieces[2], Ok(())).unwrap().result, Err(Failure::StdinClosed)));
    // What had gone out whole is told what the peer says of it.
    assert!(rig.settle(pieces[3], Ok(())).unwrap().result.is_ok());
    assert!(matches!(rig.input().failure(), Some(Failure::StdinClosed)));
}

/// Invariants 4 and 5 together.
#[test]
fn what_would_go_out_again_behind_a_hole_fails_with_it() {
    let mut rig = Rig::default();
    rig.write(1, vec![1]);
    rig.write(2, vec![2]);
    while rig.next(4).is_some() {}
    rig.input().rewind();
    let first = rig.next(1).unwrap();
    assert!(rig.settle(first.id, Err(Failure::StdinClosed)).is_some());
    let ended = rig.input().fail(Failure::StdinClosed);
    assert!(matches!(&ended[..], [Finished { token: Token(2), result: Err(Failure::StdinClosed) }]), "{ended:?}");
    assert!(!rig.input().wants_to_send(4));
}

#[test]
fn an_empty_write_goes_out_and_the_close_comes_last() {
    let mut rig = Rig::default();
    rig.write(1, Vec::new());
    rig.input().push_close(Token(2), 100).unwrap();
    assert_eq!(rig.next(8).unwrap().piece, Piece::Write(Bytes::new()));
    assert_eq!(rig.next(8).unwrap().piece, Piece::Close);
    assert!(rig.next(8).is_none());
}

#[test]
fn the_queue_is_bounded() {
    let mut input = Input::new();
    input.push_write(Token(1), Bytes::new(), 1).unwrap();
    assert_eq!(input.push_close(Token(2), 1), Err(Busy { limit: 1 }));
}

#[test]
fn a_disconnect_tells_what_may_have_been_written() {
    let mut rig = Rig::default();
    rig.write(1, vec![1]);
    rig.write(2, vec![2]);
    rig.next(1).unwrap();
    rig.input().rewind();
    let ends = rig.input().end(|sent| crate::error::Disconnected { sent, reason: "cut".into() }.into());
    let sent: Vec<_> = ends
        .into_iter()
        .map(|end| match end.result {
            Err(Failure::Disconnected(disconnected)) => disconnected.sent,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sent, [Sent::Unknown, Sent::NotSent]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    /// The peer takes one of the pieces, in order.
    Take,
    /// An answer arrives.
    Answer(usize),
    Cut,
}

proptest! {
    /// Invariants 1 to 3 and 5, for any sizes, widths, order of answers and cuts, with a peer that takes each piece once.
    #[test]
    fn bytes_go_out_in_order_within_the_width_and_every_job_ends_once(
        sizes in vec(0_usize..PIECE_BYTES * 2, 0..8),
        width in 1_usize..4,
        steps in vec(prop_oneof![
            4 => Just(Step::Send), 4 => Just(Step::Take), 4 => (0_usize..4).prop_map(Step::Answer), 1 => Just(Step::Cut),
        ], 0..200),
    ) {
        let mut rig = Rig::default();
        let mut expected = Vec::new();
        for (index, size) in sizes.iter().enumerate() {
            let data = vec![u8::try_from(index).unwrap(); *size];
            expected.extend_from_slice(&data);
            rig.write(index as u64, data);
        }
        let (mut wire, mut answers) = (VecDeque::new(), Vec::new());
        let (mut taken, mut known, mut ended) = (Vec::new(), HashSet::new(), Vec::new());
        let rest = [Step::Send, Step::Take, Step::Answer(0)].into_iter().cycle();
        for step in steps.into_iter().chain(rest.take(3_000)) {
            match step {
                Step::Send => {
                    if let Some(departure) = rig.next(width) {
                        wire.push_back(departure);
                    }
                    prop_assert!(wire.len() + answers.len() <= width);
                }
                Step::Take => {
                    let Some(departure) = wire.pop_front() else { continue };
                    prop_assert!(departure.again || !known.contains(&departure.id));
                    if let (true, Piece::Write(data)) = (known.insert(departure.id), &departure.piece) {
                        taken.extend_from_slice(data);
                    }
                    answers.push(departure.id);
                }
                Step::Answer(which) => {
                    if !answers.is_empty() {
                        let id = answers.remove(which % answers.len());
                        ended.extend(rig.settle(id, Ok(())).map(|finished| finished.token.0));
                    }
                }
                Step::Cut => {
                    wire.clear();
                    answers.clear();
                    rig.input().rewind();
                }
            }
        }
        ended.sort_unstable();
        prop_assert_eq!(ended, (0..sizes.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(taken, expected);
    }
}
