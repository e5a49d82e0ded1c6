//! The writes to one process's standard input, in order, each applied at most once.
//!
//! ```text
//!             ┌─ waiting (not answered) ─┐   ┌─ queued (answered `accepted`) ─┐   ┌─ at the backend ─┐
//!   write ──▶ │ what exceeds the bounds  │──▶│ at most 128, and 1 MiB         │──▶│ one              │──▶ done
//!             └──────────────────────────┘   └────────────────────────────────┘   └──────────────────┘
//! ```
//!
//! Closing takes its place among the writes. `accepted` means queued, not consumed: once nobody reads standard input any
//! more, writes are still accepted, and their bytes are dropped. Neither signals nor a stop pass through here, so that
//! they overtake a blocked write.
//!
//! Invariants (those of the house by their numbers):
//!
//! 3. A write id is handed to the backend at most once, while it is remembered or waits.
//! 4. Every call gets one answer, or is given up by [`StdinQueue::abandon_waiting`]; what was given up has no effect.
//! 6. At most `max_queued` writes are queued; those that are accepted and not done have at most `max_bytes` bytes, or are
//!    one; what waits is bounded by whoever admits calls, for which [`StdinQueue::excess_bytes`] counts.

use std::collections::VecDeque;

use bytes::Bytes;

use super::dedupe::AcceptedWrites;

/// Orders the writes of one process. `C` names a call that is to be answered.
#[derive(Debug)]
pub(crate) struct StdinQueue<C> {
    state: State,
    max_queued: usize,
    max_bytes: usize,
    accepted: AcceptedWrites,
    waiting: VecDeque<Waiting<C>>,
    queued: VecDeque<Job>,
    /// The size of what the backend is busy with.
    busy: Option<usize>,
    answers: VecDeque<(C, Answer)>,
    /// Bytes that wait, with the ids of their writes.
    waiting_bytes: usize,
    /// Bytes that are queued, or at the backend.
    accepted_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Bytes go to the process.
    Open,
    /// Standard input is no pipe.
    Null,
    /// The close was accepted.
    Closed,
    /// Nobody reads it any more.
    Gone,
    /// The backend can no longer write.
    Failed,
}

#[derive(Debug)]
struct Waiting<C> {
    call: C,
    what: Wanted,
}

#[derive(Debug)]
enum Wanted {
    Write { id: String, data: Bytes },
    Close,
}

impl Wanted {
    fn len(&self) -> usize {
        match self {
            Self::Write { data, .. } => data.len(),
            Self::Close => 0,
        }
    }

    /// What it holds while it waits.
    fn held_bytes(&self) -> usize {
        match self {
            Self::Write { id, data } => id.len() + data.len(),
            Self::Close => 0,
        }
    }
}

/// Something for the backend to do. Report its end by [`StdinQueue::handle_done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Write(Bytes),
    Close,
}

/// What a call is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Accepted,
    StdinClosed,
    /// The backend can no longer write.
    Failed,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Applied,
    /// Nobody reads standard input.
    Gone,
    /// The backend can no longer write.
    Failed,
}

impl<C> StdinQueue<C> {
    /// For a process whose standard input is a pipe or a terminal, or not (`open`).
    pub(crate) fn new(open: bool, max_queued: usize, max_bytes: usize, remembered_ids: usize) -> Self {
        Self {
            state: if open { State::Open } else { State::Null },
            max_queued: max_queued.max(1),
            max_bytes,
            accepted: AcceptedWrites::new(remembered_ids),
            waiting: VecDeque::new(),
            queued: VecDeque::new(),
            busy: None,
            answers: VecDeque::new(),
            waiting_bytes: 0,
            accepted_bytes: 0,
        }
    }

    /// A call to write `data`, named `id`.
    pub(crate) fn handle_write(&mut self, call: C, id: String, data: Bytes) {
        let what = Wanted::Write { id, data };
        self.waiting_bytes += what.held_bytes();
        self.waiting.push_back(Waiting { call, what });
        self.promote();
    }

    /// A call to close standard input after everything written before.
    pub(crate) fn handle_close(&mut self, call: C) {
        self.waiting.push_back(Waiting { call, what: Wanted::Close });
        self.promote();
    }

    /// The backend is done with the job that it was given.
    pub(crate) fn handle_done(&mut self, done: Done) {
        self.accepted_bytes -= self.busy.take().unwrap_or(0);
        match done {
            Done::Applied => {}
            Done::Gone => self.drop_all(State::Gone),
            Done::Failed => self.drop_all(State::Failed),
        }
        self.promote();
    }

    /// The process is closed: nobody reads any more.
    pub(crate) fn handle_process_closed(&mut self) {
        self.drop_all(State::Gone);
        self.promote();
    }

    /// A write was refused before it came here: what would follow it would follow a hole. What waits fails, and so does
    /// whatever comes.
    pub(crate) fn handle_refusal(&mut self) {
        if self.state == State::Open {
            self.state = State::Failed;
        }
        self.promote();
    }

    /// The client is gone: what was not accepted has no effect.
    pub(crate) fn abandon_waiting(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.answers.clear();
    }

    /// The next answer.
    pub(crate) fn poll_answer(&mut self) -> Option<(C, Answer)> {
        self.answers.pop_front()
    }

    /// The next thing for the backend to do, if it is not busy.
    pub(crate) fn poll_job(&mut self) -> Option<Job> {
        if self.busy.is_some() {
            return None;
        }
        let job = self.queued.pop_front()?;
        self.busy = Some(match &job {
            Job::Write(data) => data.len(),
            Job::Close => 0,
        });
        self.promote();
        Some(job)
    }

    /// How many of the bytes that wait, are queued, or are at the backend, exceed what every process may have.
    pub(crate) const fn excess_bytes(&self) -> usize {
        self.excess_with(0)
    }

    /// The same, with `more` bytes.
    pub(crate) const fn excess_with(&self, more: usize) -> usize {
        let held = self.waiting_bytes.saturating_add(self.accepted_bytes).saturating_add(more);
        held.saturating_sub(self.max_bytes)
    }

    #[cfg(test)]
    pub(crate) const fn held_bytes(&self) -> usize {
        self.waiting_bytes + self.accepted_bytes
    }

    /// Moves what may be accepted from the waiting to the queue.
    fn promote(&mut self) {
        while let Some(first) = self.waiting.front() {
            let known = matches!(&first.what, Wanted::Write { id, .. } if self.accepted.contains(id));
            let size = first.what.len();
            let too_much = size > 0 && self.accepted_bytes > 0 && self.accepted_bytes + size > self.max_bytes;
            let full = self.queued.len() >= self.max_queued || too_much;
            if full && self.state == State::Open && !known {
                return;
            }
            let Some(Waiting { call, what }) = self.waiting.pop_front() else { return };
            let answer = self.accept(what, known);
            self.answers.push_back((call, answer));
        }
    }

    fn accept(&mut self, what: Wanted, known: bool) -> Answer {
        self.waiting_bytes -= what.held_bytes();
        let answer = match self.state {
            // An earlier acceptance stands, whatever has become of standard input since.
            _ if known => Answer::Accepted,
            State::Null | State::Closed => Answer::StdinClosed,
            State::Failed => Answer::Failed,
            State::Open | State::Gone => Answer::Accepted,
        };
        let open = self.state == State::Open;
        match what {
            Wanted::Write { id, data } => {
                if answer == Answer::Accepted && !known {
                    self.accepted.insert(&id);
                    if open && !data.is_empty() {
                        self.accepted_bytes += data.len();
                        self.queued.push_back(Job::Write(data));
                    }
                }
            }
            Wanted::Close => {
                if answer == Answer::Accepted {
                    self.state = State::Closed;
                    if open {
                        self.queued.push_back(Job::Close);
                    }
                }
            }
        }
        answer
    }

    fn drop_all(&mut self, state: State) {
        for job in self.queued.drain(..) {
            if let Job::Write(data) = job {
                self.accepted_bytes -= data.len();
            }
        }
        if self.state == State::Open {
            self.state = state;
        }
    }
}

#[cfg(test)]
mod tests;
