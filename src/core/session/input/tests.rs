use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn write(input: &mut Input, token: u64, data: Vec<u8>) {
    input.push_write(Token(token), data.into(), 100).unwrap();
}

#[test]
fn a_large_write_goes_out_in_pieces_and_ends_once() {
    let mut input = Input::new();
    write(&mut input, 1, vec![7; PIECE_BYTES * 2 + 1]);
    let pieces: Vec<_> = std::iter::from_fn(|| input.next_piece(8)).collect();
    let sizes: Vec<_> = pieces
        .iter()
        .map(|(_, piece)| match piece {
            Piece::Write(data) => data.len(),
            Piece::Close => 0,
        })
        .collect();
    assert_eq!(sizes, [PIECE_BYTES, PIECE_BYTES, 1]);
    let job = pieces[0].0;
    assert!(input.settle(job, Ok(())).is_none());
    assert!(input.settle(job, Ok(())).is_none());
    let finished = input.settle(job, Ok(())).unwrap();
    assert!(finished.result.is_ok() && finished.token == Token(1));
    assert!(input.settle(job, Ok(())).is_none());
}

#[test]
fn after_a_failed_close_the_next_job_is_tried() {
    let mut input = Input::new();
    input.push_close(Token(1), 100).unwrap();
    write(&mut input, 2, vec![2]);
    let (job, _) = input.next_piece(1).unwrap();
    let finished = input.settle(job, Err(Failure::StdinClosed)).unwrap();
    assert!(matches!(finished.result, Err(Failure::StdinClosed)));
    assert_eq!(input.next_piece(1).unwrap().1, Piece::Write(Bytes::from_static(&[2])));
}

/// Invariant 4.
#[test]
fn after_a_failed_piece_nothing_follows_the_hole() {
    let mut input = Input::new();
    write(&mut input, 1, vec![1; PIECE_BYTES * 3]);
    write(&mut input, 2, vec![2]);
    write(&mut input, 3, vec![3]);
    let pieces: Vec<_> = std::iter::from_fn(|| input.next_piece(4)).map(|(job, _)| job).collect();
    assert!(input.settle(pieces[0], Err(Failure::StdinClosed)).is_none(), "two more pieces of it are on the wire");
    let ended = input.fail(Failure::StdinClosed);
    assert!(matches!(&ended[..], [Finished { token: Token(3), result: Err(Failure::StdinClosed) }]), "{ended:?}");
    assert!(!input.wants_to_send(4) && input.next_piece(4).is_none());
    assert!(input.settle(pieces[1], Ok(())).is_none());
    assert!(matches!(input.settle(pieces[2], Ok(())).unwrap().result, Err(Failure::StdinClosed)));
    // What had gone out whole is told what the peer says of it.
    assert!(input.settle(pieces[3], Ok(())).unwrap().result.is_ok());
    assert!(matches!(input.failure(), Some(Failure::StdinClosed)));
}

#[test]
fn an_empty_write_goes_out_and_the_close_comes_last() {
    let mut input = Input::new();
    write(&mut input, 1, Vec::new());
    input.push_close(Token(2), 100).unwrap();
    assert_eq!(input.next_piece(8).unwrap().1, Piece::Write(Bytes::new()));
    assert_eq!(input.next_piece(8).unwrap().1, Piece::Close);
    assert!(input.next_piece(8).is_none());
}

#[test]
fn the_queue_is_bounded() {
    let mut input = Input::new();
    input.push_write(Token(1), Bytes::new(), 1).unwrap();
    assert_eq!(input.push_close(Token(2), 1), Err(Busy { limit: 1 }));
}

#[test]
fn a_disconnect_tells_what_may_have_been_written() {
    let mut input = Input::new();
    write(&mut input, 1, vec![1]);
    write(&mut input, 2, vec![2]);
    input.next_piece(1).unwrap();
    let ends = input.end(|sent| crate::error::Disconnected { sent, reason: "cut".into() }.into());
    let sent: Vec<_> = ends
        .into_iter()
        .map(|end| match end.result {
            Err(Failure::Disconnected(disconnected)) => disconnected.sent,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sent, [Sent::Unknown, Sent::NotSent]);
}

proptest! {
    /// Invariants 1 to 3, for any sizes, widths and order of answers.
    #[test]
    fn bytes_go_out_in_order_within_the_width_and_every_job_ends_once(
        sizes in vec(0_usize..PIECE_BYTES * 2, 0..8),
        width in 1_usize..4,
        answers in vec((any::<bool>(), 0_usize..4), 0..200),
    ) {
        let mut input = Input::new();
        let mut expected = Vec::new();
        for (index, size) in sizes.iter().enumerate() {
            let data = vec![u8::try_from(index).unwrap(); *size];
            expected.extend_from_slice(&data);
            write(&mut input, index as u64, data);
        }
        let (mut wire, mut sent, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        let mut answers = answers.into_iter().chain(std::iter::repeat((true, 0)));
        while ended.len() < sizes.len() {
            let (answer, which) = answers.next().unwrap();
            if !answer || wire.is_empty() {
                if let Some((job, Piece::Write(data))) = input.next_piece(width) {
                    sent.extend_from_slice(&data);
                    wire.push(job);
                }
                prop_assert!(wire.len() <= width);
            } else {
                let job = wire.remove(which % wire.len());
                ended.extend(input.settle(job, Ok(())).map(|finished| finished.token.0));
            }
        }
        ended.sort_unstable();
        prop_assert_eq!(ended, (0..sizes.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(sent, expected);
    }
}
