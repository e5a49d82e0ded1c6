//! A body of an HTTP response on its way to its reader, at the client.
//!
//! Rules: pieces are numbered from 1 without gaps, and the last one says that it is. What is held has a bound: the window
//! that the peer was given, or what the caller says. The first fault ends the body for its reader, and nothing follows.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::error::PeerMisbehaved;
use crate::http::HttpError;
use crate::wire::http::BodyDeltaParams;
use crate::wire::http_error;

/// The pieces of one body that are not read yet.
#[derive(Debug)]
pub(crate) struct BodyQueue {
    /// Of the request, for errors.
    origin: String,
    pieces: VecDeque<Bytes>,
    held_bytes: usize,
    last_seq: u64,
    /// How the body ended, until the reader has heard of it.
    end: Option<Option<HttpError>>,
    state: State,
    window: Option<Window>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The peer has told the end, or can tell nothing any more.
    Ended,
    /// Ended here, while the peer may still send.
    GivenUp,
}

/// What a peer that waits for credit may send.
#[derive(Debug)]
struct Window {
    bytes: usize,
    /// Since the begin of the body.
    taken: u64,
    credited: u64,
}

impl BodyQueue {
    /// A body that has not begun. With a window, the peer sends no more than that ahead of the reader.
    pub(crate) fn new(origin: String, window: Option<usize>) -> Self {
        let window = window.map(|bytes| {
            let bytes = bytes.max(1);
            Window { bytes, taken: 0, credited: bytes as u64 }
        });
        Self { origin, pieces: VecDeque::new(), held_bytes: 0, last_seq: 0, end: None, state: State::Open, window }
    }

    /// Bytes that the peer may send at first.
    pub(crate) fn first_credit(&self) -> Option<u64> {
        self.window.as_ref().map(|window| window.credited)
    }

    /// About how much is held.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether the peer may still send something of it.
    pub(crate) fn peer_may_send(&self) -> bool {
        self.state != State::Ended
    }

    /// A piece has come. `room`: how many bytes may be held, and what it is if that is too little.
    pub(crate) fn handle_delta(&mut self, delta: BodyDeltaParams, room: usize, too_much: impl FnOnce() -> HttpError) {
        if self.state != State::Open {
            return;
        }
        let seq = self.last_seq.saturating_add(1);
        if delta.seq != seq {
            let reason = format!("piece {} of the body of a response came instead of {seq}", delta.seq);
            return self.give_up(PeerMisbehaved::Protocol(reason).into());
        }
        self.last_seq = seq;
        let bytes = delta.delta_base64.0;
        if !bytes.is_empty() {
            let room = match &self.window {
                Some(window) => usize::try_from(window.credited.saturating_sub(window.taken)).unwrap_or(usize::MAX),
                None => room,
            };
            if self.held_bytes.saturating_add(bytes.len()) > room {
                return self.give_up(match self.window {
                    Some(_) => PeerMisbehaved::Protocol("more of a body than it has credit for".into()).into(),
                    None => too_much(),
                });
            }
            self.push(bytes);
        }
        if let Some(text) = delta.error {
            self.state = State::Ended;
            self.end = Some(Some(http_error::from_delta(&text, delta.longarm.as_ref(), &self.origin)));
        } else if delta.done {
            self.state = State::Ended;
            self.end = Some(None);
        }
    }

    /// Nothing follows any more: the connection is gone. What has come is still read.
    pub(crate) fn handle_end(&mut self, error: HttpError) {
        if self.state == State::Open {
            self.end = Some(Some(error));
        }
        self.state = State::Ended;
    }

    /// The next piece, or the end; none if it has not come yet.
    pub(crate) fn pop(&mut self) -> Option<Result<Option<Bytes>, HttpError>> {
        if let Some(piece) = self.pieces.pop_front() {
            self.held_bytes -= piece.len();
            if let Some(window) = &mut self.window {
                window.taken = window.taken.saturating_add(piece.len() as u64);
            }
            return Some(Ok(Some(piece)));
        }
        match self.end.take() {
            Some(Some(error)) => Some(Err(error)),
            Some(None) => Some(Ok(None)),
            // The end was heard.
            None if self.state != State::Open => Some(Ok(None)),
            None => None,
        }
    }

    /// The credit that the peer is to be told of, when that is worth a message.
    pub(crate) fn credit_due(&mut self) -> Option<u64> {
        let window = self.window.as_mut().filter(|_| self.state == State::Open)?;
        let credit = window.taken.saturating_add(window.bytes as u64);
        if credit - window.credited < (window.bytes as u64).div_ceil(2) {
            return None;
        }
        window.credited = credit;
        Some(credit)
    }

    /// The first error counts, and what has come before it is not worth reading.
    fn give_up(&mut self, error: HttpError) {
        self.pieces.clear();
        self.held_bytes = 0;
        self.state = State::GivenUp;
        self.end = Some(Some(error));
    }

    /// Small pieces are put together, so that what each costs beside its bytes stays small.
    fn push(&mut self, bytes: Bytes) {
        self.held_bytes = self.held_bytes.saturating_add(bytes.len());
        match self.pieces.back_mut() {
            Some(last) if last.len().saturating_add(bytes.len()) <= SMALL_BYTES => {
                let mut whole = std::mem::take(last).try_into_mut().unwrap_or_else(|last| BytesMut::from(&*last));
                whole.extend_from_slice(&bytes);
                *last = whole.freeze();
            }
            _ => self.pieces.push_back(bytes),
        }
    }
}

/// Pieces up to this size together are worth a copy.
const SMALL_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests;
