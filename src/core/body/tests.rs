use super::*;
use crate::wire::Base64;

fn piece(seq: u64, bytes: &[u8]) -> BodyDeltaParams {
    BodyDeltaParams {
        request_id: "1".into(),
        seq,
        delta_base64: Base64(Bytes::copy_from_slice(bytes)),
        done: false,
        error: None,
        longarm: None,
    }
}

fn last(seq: u64, bytes: &[u8], error: Option<&str>) -> BodyDeltaParams {
    BodyDeltaParams { done: true, error: error.map(Into::into), ..piece(seq, bytes) }
}

fn queue(window: Option<usize>) -> BodyQueue {
    BodyQueue::new("http://x".into(), window)
}

fn overflow() -> HttpError {
    HttpError::Overflow { limit: 10 }
}

impl BodyQueue {
    fn handle(&mut self, delta: BodyDeltaParams) {
        self.handle_delta(delta, 10, overflow);
    }
}

#[test]
fn pieces_come_in_order_up_to_the_end() {
    let mut queue = queue(None);
    assert!(queue.pop().is_none());
    queue.handle(piece(1, b"ab"));
    assert_eq!(queue.pop().unwrap().unwrap().unwrap(), "ab");
    assert!(queue.pop().is_none());
    // A last piece may carry bytes, though the reference's never does.
    queue.handle(last(2, b"cd", None));
    assert!(!queue.peer_may_send());
    assert_eq!(queue.pop().unwrap().unwrap().unwrap(), "cd");
    assert_eq!(queue.pop().unwrap().unwrap(), None);
    assert_eq!(queue.pop().unwrap().unwrap(), None);
}

#[test]
fn an_error_comes_behind_the_bytes_before_it() {
    let mut queue = queue(None);
    queue.handle(piece(1, b"ab"));
    queue.handle(last(2, b"", Some("error decoding response body")));
    assert_eq!(queue.pop().unwrap().unwrap().unwrap(), "ab");
    let error = queue.pop().unwrap().unwrap_err();
    let reason = String::from("error decoding response body");
    assert_eq!(error, HttpError::BodyCut { origin: "http://x".into(), reason });
    assert_eq!(queue.pop().unwrap().unwrap(), None);
}

#[test]
fn a_wrong_number_ends_the_body_once() {
    for wrong in [0, 2, 3] {
        let mut queue = queue(None);
        queue.handle(piece(wrong, b"ab"));
        assert!(queue.peer_may_send());
        queue.handle(piece(1, b"ab"));
        assert!(matches!(queue.pop(), Some(Err(HttpError::Peer(PeerMisbehaved::Protocol(_))))));
        assert_eq!(queue.pop().unwrap().unwrap(), None);
    }
}

#[test]
fn what_a_plain_peer_sends_beyond_the_room_ends_the_body() {
    let mut queue = queue(None);
    queue.handle(piece(1, b"0123456789"));
    assert_eq!(queue.held_bytes(), 10);
    queue.handle(piece(2, b"x"));
    assert_eq!(queue.held_bytes(), 0);
    assert_eq!(queue.pop().unwrap().unwrap_err(), overflow());
    assert!(queue.peer_may_send());
    assert_eq!(queue.first_credit(), None);
    assert_eq!(queue.credit_due(), None);
}

#[test]
fn credit_follows_the_reader() {
    let mut queue = queue(Some(10));
    assert_eq!(queue.first_credit(), Some(10));
    queue.handle(piece(1, b"0123"));
    assert_eq!(queue.credit_due(), None, "nothing was read");
    queue.pop();
    assert_eq!(queue.credit_due(), None, "too little for a message");
    queue.handle(piece(2, b"456789"));
    queue.pop();
    assert_eq!(queue.credit_due(), Some(20));
    assert_eq!(queue.credit_due(), None);
    queue.handle(piece(3, b"0123456789"));
    assert_eq!(queue.held_bytes(), 10);
    queue.handle(piece(4, b"x"));
    assert!(matches!(queue.pop(), Some(Err(HttpError::Peer(PeerMisbehaved::Protocol(_))))));
}

#[test]
fn the_end_of_the_connection_is_heard_once_and_only_if_the_body_had_none() {
    let mut open = queue(Some(10));
    open.handle(piece(1, b"ab"));
    open.handle_end(HttpError::Closed);
    assert_eq!(open.pop().unwrap().unwrap().unwrap(), "ab");
    assert_eq!(open.pop().unwrap().unwrap_err(), HttpError::Closed);
    assert!(!open.peer_may_send());
    assert_eq!(open.credit_due(), None);
    let mut ended = queue(None);
    ended.handle(last(1, b"", None));
    ended.handle_end(HttpError::Closed);
    assert_eq!(ended.pop().unwrap().unwrap(), None);
}

#[test]
fn many_small_pieces_are_put_together() {
    let mut queue = queue(Some(1 << 20));
    for seq in 1..=100_000 {
        queue.handle(piece(seq, b"x"));
    }
    assert_eq!(queue.held_bytes(), 100_000);
    assert!(queue.pieces.len() <= 100_000 / SMALL_BYTES + 1);
    let mut read = 0;
    while let Some(Ok(Some(piece))) = queue.pop() {
        read += piece.len();
    }
    assert_eq!(read, 100_000);
}
