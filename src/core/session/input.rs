//! What goes to one process's standard input: writes, cut into pieces, and the closing at the end.
//!
//! ```text
//!  push ─▶ jobs, in order ─▶ next_piece ─▶ on the wire, at most `width` pieces ─▶ settle ─▶ job done
//! ```
//!
//! Invariants:
//! 1. Pieces go out in the order of the bytes; a job's pieces come before those of a later job.
//! 2. At most `width` pieces are on the wire.
//! 3. Every job ends exactly once: done, or with the first failure of a piece, after which no further piece of it goes
//!    out.
//! 4. After the failure of a piece of a write, no further piece goes out at all: what has not gone out fails with it.
//! 5. What was on the wire when a connection broke goes out again, in the same order, before anything else, and under the
//!    names that it had.

use std::collections::VecDeque;

use bytes::Bytes;

use super::op::{Failure, Token};
use crate::error::{Busy, Sent};

/// The queue of one process.
#[derive(Debug)]
pub(crate) struct Input {
    jobs: VecDeque<Job>,
    last_job: u64,
    /// In the order in which they went out.
    wire: VecDeque<Placed>,
    /// What goes out again, in order.
    again: VecDeque<Placed>,
    /// A write failed: what came after it would follow a hole.
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Job {
    id: JobId,
    token: Token,
    rest: Rest,
    /// Pieces on the wire, or to go out again.
    pieces: usize,
    started: bool,
    failure: Option<Failure>,
}

/// What of a job has not gone out.
#[derive(Debug)]
enum Rest {
    Write(Bytes),
    Close,
    Nothing,
}

/// Names a job within its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct JobId(u64);

/// Names a piece among all of a session, for as long as the session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PieceId(pub(crate) u64);

/// Something to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Write(Bytes),
    Close,
}

#[derive(Clone, Debug)]
struct Placed {
    id: PieceId,
    job: JobId,
    piece: Piece,
}

/// A piece that goes out now.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) id: PieceId,
    pub(crate) piece: Piece,
    /// It may have arrived before.
    pub(crate) again: bool,
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) token: Token,
    pub(crate) result: Result<(), Failure>,
}

impl Input {
    pub(crate) const fn new() -> Self {
        Self { jobs: VecDeque::new(), last_job: 0, wire: VecDeque::new(), again: VecDeque::new(), failure: None }
    }

    /// Adds a write, unless `max_jobs` are waiting already.
    pub(crate) fn push_write(&mut self, token: Token, data: Bytes, max_jobs: usize) -> Result<(), Busy> {
        self.push(token, Rest::Write(data), max_jobs)
    }

    /// Adds the closing.
    pub(crate) fn push_close(&mut self, token: Token, max_jobs: usize) -> Result<(), Busy> {
        self.push(token, Rest::Close, max_jobs)
    }

    fn push(&mut self, token: Token, rest: Rest, max_jobs: usize) -> Result<(), Busy> {
        if self.jobs.len() >= max_jobs {
            return Err(Busy { limit: max_jobs });
        }
        self.last_job += 1;
        let id = JobId(self.last_job);
        self.jobs.push_back(Job { id, token, rest, pieces: 0, started: false, failure: None });
        Ok(())
    }

    /// Whether [`Self::next_piece`] has something.
    pub(crate) fn wants_to_send(&self, width: usize) -> bool {
        self.wire.len() < width && (!self.again.is_empty() || self.jobs.iter().any(Job::has_rest))
    }

    /// Takes the next piece to send. A new one gets the number after `last_piece`.
    pub(crate) fn next_piece(&mut self, width: usize, last_piece: &mut u64) -> Option<Departure> {
        if self.wire.len() >= width {
            return None;
        }
        if let Some(placed) = self.again.pop_front() {
            let departure = Departure { id: placed.id, piece: placed.piece.clone(), again: true };
            self.wire.push_back(placed);
            return Some(departure);
        }
        let job = self.jobs.iter_mut().find(|job| job.has_rest())?;
        let piece = match std::mem::replace(&mut job.rest, Rest::Nothing) {
            Rest::Write(mut data) => {
                let piece = data.split_to(data.len().min(PIECE_BYTES));
                if !data.is_empty() {
                    job.rest = Rest::Write(data);
                }
                Piece::Write(piece)
            }
            Rest::Close => Piece::Close,
            Rest::Nothing => return None,
        };
        job.pieces += 1;
        job.started = true;
        *last_piece += 1;
        let id = PieceId(*last_piece);
        self.wire.push_back(Placed { id, job: job.id, piece: piece.clone() });
        Some(Departure { id, piece, again: false })
    }

    /// A piece was answered. Returns the job if that ended it.
    pub(crate) fn settle(&mut self, id: PieceId, result: Result<(), Failure>) -> Option<Finished> {
        let place = self.wire.iter().position(|placed| placed.id == id)?;
        let placed = self.wire.remove(place)?;
        let index = self.jobs.binary_search_by_key(&placed.job, |job| job.id).ok()?;
        let job = self.jobs.get_mut(index)?;
        job.pieces = job.pieces.saturating_sub(1);
        if let Err(failure) = result {
            job.rest = Rest::Nothing;
            job.failure.get_or_insert(failure);
            let before = self.again.len();
            self.again.retain(|placed| placed.job != job.id);
            job.pieces = job.pieces.saturating_sub(before - self.again.len());
        }
        if job.pieces > 0 || job.has_rest() {
            return None;
        }
        let job = self.jobs.remove(index)?;
        Some(Finished { token: job.token, result: job.failure.map_or(Ok(()), Err) })
    }

    /// The connection broke: what is on the wire goes out again.
    pub(crate) fn rewind(&mut self) {
        std::mem::swap(&mut self.wire, &mut self.again);
        self.again.append(&mut self.wire);
    }

    /// A piece of a write has failed for good: whatever has not gone out would follow a hole. Returns the jobs that this
    /// ends; those with pieces on the wire end with the answers to them.
    pub(crate) fn fail(&mut self, failure: Failure) -> Vec<Finished> {
        let failure = self.failure.get_or_insert(failure);
        let again = std::mem::take(&mut self.again);
        let mut finished = Vec::new();
        self.jobs.retain_mut(|job| {
            let taken_back = again.iter().filter(|placed| placed.job == job.id).count();
            if !job.has_rest() && taken_back == 0 {
                return true;
            }
            job.rest = Rest::Nothing;
            job.pieces = job.pieces.saturating_sub(taken_back);
            let failure = job.failure.get_or_insert_with(|| failure.clone());
            if job.pieces == 0 {
                finished.push(Finished { token: job.token, result: Err(failure.clone()) });
            }
            job.pieces > 0
        });
        finished
    }

    /// The failure after which nothing is taken any more.
    pub(crate) const fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Ends all jobs. Of a job that has begun, anything may have been written.
    pub(crate) fn end(&mut self, failure: impl Fn(Sent) -> Failure) -> Vec<Finished> {
        self.wire.clear();
        self.again.clear();
        let end = |job: Job| {
            let sent = if job.started { Sent::Unknown } else { Sent::NotSent };
            Finished { token: job.token, result: Err(job.failure.unwrap_or_else(|| failure(sent))) }
        };
        self.jobs.drain(..).map(end).collect()
    }
}

impl Job {
    const fn has_rest(&self) -> bool {
        !matches!(self.rest, Rest::Nothing)
    }
}

/// A write goes out in pieces of this size: small enough that other messages get in between, large enough that headers do
/// not count.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests;
