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

use std::collections::VecDeque;

use bytes::Bytes;

use super::op::{Failure, Token};
use crate::error::{Busy, Sent};

/// The queue of one process.
#[derive(Debug)]
pub(crate) struct Input {
    jobs: VecDeque<Job>,
    last_job: u64,
    on_the_wire: usize,
    /// A write failed: what came after it would follow a hole.
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Job {
    id: JobId,
    token: Token,
    rest: Rest,
    on_the_wire: usize,
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
pub(crate) struct JobId(u64);

/// Something to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Write(Bytes),
    Close,
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) token: Token,
    pub(crate) result: Result<(), Failure>,
}

impl Input {
    pub(crate) const fn new() -> Self {
        Self { jobs: VecDeque::new(), last_job: 0, on_the_wire: 0, failure: None }
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
        self.jobs.push_back(Job { id, token, rest, on_the_wire: 0, started: false, failure: None });
        Ok(())
    }

    /// Whether [`Self::next_piece`] has something.
    pub(crate) fn wants_to_send(&self, width: usize) -> bool {
        self.on_the_wire < width && self.jobs.iter().any(Job::has_rest)
    }

    /// Takes the next piece to send.
    pub(crate) fn next_piece(&mut self, width: usize) -> Option<(JobId, Piece)> {
        if self.on_the_wire >= width {
            return None;
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
        job.on_the_wire += 1;
        job.started = true;
        self.on_the_wire += 1;
        Some((job.id, piece))
    }

    /// A piece was answered. Returns the job if that ended it.
    pub(crate) fn settle(&mut self, id: JobId, result: Result<(), Failure>) -> Option<Finished> {
        let index = self.jobs.binary_search_by_key(&id, |job| job.id).ok()?;
        let job = self.jobs.get_mut(index)?;
        job.on_the_wire = job.on_the_wire.saturating_sub(1);
        self.on_the_wire = self.on_the_wire.saturating_sub(1);
        if let Err(failure) = result {
            job.rest = Rest::Nothing;
            job.failure.get_or_insert(failure);
        }
        if job.on_the_wire > 0 || job.has_rest() {
            return None;
        }
        let job = self.jobs.remove(index)?;
        Some(Finished { token: job.token, result: job.failure.map_or(Ok(()), Err) })
    }

    /// A piece of a write has failed for good: whatever has not gone out would follow a hole. Returns the jobs that this
    /// ends; those with pieces on the wire end with the answers to them.
    pub(crate) fn fail(&mut self, failure: Failure) -> Vec<Finished> {
        let failure = self.failure.get_or_insert(failure);
        let mut finished = Vec::new();
        self.jobs.retain_mut(|job| {
            if !job.has_rest() {
                return true;
            }
            job.rest = Rest::Nothing;
            let failure = job.failure.get_or_insert_with(|| failure.clone());
            if job.on_the_wire == 0 {
                finished.push(Finished { token: job.token, result: Err(failure.clone()) });
            }
            job.on_the_wire > 0
        });
        finished
    }

    /// The failure after which nothing is taken any more.
    pub(crate) const fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Ends all jobs. Of a job that has begun, anything may have been written.
    pub(crate) fn end(&mut self, failure: impl Fn(Sent) -> Failure) -> Vec<Finished> {
        self.on_the_wire = 0;
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
