//! How much output may be on its way to a peer.
//!
//! Without a bound of ours everything is sent that the transport takes, and a transport takes what the buffers of two
//! kernels hold, tens of MiB: an answer to a keystroke would wait behind all of that. So pings are put into the stream as
//! marks. A peer answers a ping when it has read up to it, whatever program it is (RFC 6455, section 5.5.3), and what is
//! not answered for yet is bounded by what the path holds: twice the rate of delivery times the round trip, plus what is
//! delivered in a moment that nobody notices.
//!
//! Rate and round trip are measured by the marks themselves. A round trip that grows with the queue of its own making would
//! widen the bound without end, so the shortest one counts; from time to time all marks are awaited, so that a path that
//! has become longer is found out.
//!
//! A peer that never answers a ping is paced by its transport alone.
//!
//! Invariants: what is not answered for exceeds the window by no more than one message; a spurious timeout changes
//! nothing; a peer that answers what it has not read harms only itself.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::{Instant, after};

/// The pace of one connection.
#[derive(Debug)]
pub(crate) struct Pacing {
    /// Bytes handed to the transport so far.
    sent: u64,
    /// Of them, those that the peer is known to have read.
    answered: u64,
    /// Marks on their way, oldest first.
    marks: VecDeque<Mark>,
    /// What may be unanswered.
    window: u64,
    shortest: Option<RoundTrip>,
    rate: Rate,
    /// All marks are awaited before more is sent.
    draining: bool,
    proof: Proof,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    sent: u64,
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    took: Duration,
    measured: Instant,
}

/// Whether the peer answers pings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// Not known. If the window is full: since when.
    Awaited {
        full_since: Option<Instant>,
    },
    Given,
    /// It does not, or the transport has none.
    Refused,
}

/// The rate of delivery over the last few answers: from one to the next it depends on how both ends were scheduled.
#[derive(Debug)]
struct Rate {
    /// What had been delivered at which time.
    points: VecDeque<(Instant, u64)>,
}

impl Pacing {
    /// For a connection made at `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            sent: 0,
            answered: 0,
            marks: VecDeque::new(),
            window: MIN_WINDOW_BYTES,
            shortest: None,
            rate: Rate::new(now),
            draining: false,
            proof: Proof::Awaited { full_since: None },
        }
    }

    /// Whether more output may be sent.
    pub(crate) fn has_room(&self) -> bool {
        self.proof == Proof::Refused || (!self.draining && self.unanswered() < self.window)
    }

    /// Counts a message that was handed to the transport.
    pub(crate) fn handle_sent(&mut self, now: Instant, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes as u64);
        if let Proof::Awaited { full_since: full_since @ None } = &mut self.proof
            && self.sent - self.answered >= self.window
        {
            *full_since = Some(now);
        }
    }

    /// Whether a ping should be put behind what was sent so far; see [`Self::mark`].
    pub(crate) fn wants_mark(&self) -> bool {
        let last = self.marks.back().map_or(self.answered, |mark| mark.sent);
        self.proof != Proof::Refused && self.sent - last >= self.window / MARKS_IN_A_WINDOW
    }

    /// What a ping that is sent now has to carry.
    pub(crate) fn mark(&self) -> u64 {
        self.sent
    }

    /// A ping with [`Self::mark`] is on its way.
    pub(crate) fn handle_marked(&mut self, now: Instant) {
        if self.marks.back().is_none_or(|last| last.sent < self.sent) && self.sent > self.answered {
            self.marks.push_back(Mark { sent: self.sent, at: now });
        }
    }

    /// The transport has no pings.
    pub(crate) fn disable(&mut self) {
        self.proof = Proof::Refused;
        self.marks.clear();
    }

    /// The latest mark that the peer has answered.
    pub(crate) fn handle_answer(&mut self, now: Instant, mark: u64) {
        if mark <= self.answered || mark > self.sent || self.proof == Proof::Refused {
            return;
        }
        self.proof = Proof::Given;
        let mut latest = None;
        // A peer may leave out the answers to pings that a later one followed.
        while self.marks.front().is_some_and(|first| first.sent <= mark) {
            latest = self.marks.pop_front();
        }
        let Some(latest) = latest else { return };
        self.answered = latest.sent;
        self.measure(now, latest);
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.proof {
            Proof::Awaited { full_since: Some(since) } => Some(after(since, FIRST_ANSWER_LIMIT)),
            _ => None,
        }
    }

    /// Gives up a peer that has not answered the first mark.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|deadline| now >= deadline) {
            self.disable();
        }
    }

    fn unanswered(&self) -> u64 {
        self.sent - self.answered
    }

    fn measure(&mut self, now: Instant, mark: Mark) {
        let took = now.saturating_duration_since(mark.at).max(SHORTEST_ROUND_TRIP);
        self.rate.add(now, self.answered);
        if self.draining {
            // This one went into the queue whose end is awaited.
            self.draining = !self.marks.is_empty();
            if !self.draining {
                self.shortest = None;
            }
            return;
        }
        match self.shortest {
            Some(shortest) if took >= shortest.took => {
                let old = now.saturating_duration_since(shortest.measured) >= ROUND_TRIP_VALID;
                self.draining = old && !self.marks.is_empty();
            }
            _ => self.shortest = Some(RoundTrip { took, measured: now }),
        }
        let span = self.shortest.map_or(took, |shortest| shortest.took) * 2 + UNNOTICED;
        self.window = self.rate.bytes_in(span).clamp(MIN_WINDOW_BYTES, MAX_WINDOW_BYTES);
    }
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self { points: VecDeque::from([(now, 0)]) }
    }

    fn add(&mut self, now: Instant, delivered: u64) {
        if self.points.len() > RATE_SAMPLES {
            self.points.pop_front();
        }
        self.points.push_back((now, delivered));
    }

    /// How much is delivered in a time.
    fn bytes_in(&self, span: Duration) -> u64 {
        let (Some((begin, before)), Some((end, after))) = (self.points.front(), self.points.back()) else { return 0 };
        let took = end.saturating_duration_since(*begin).max(SHORTEST_ROUND_TRIP);
        let bytes = u128::from(after.saturating_sub(*before)).saturating_mul(span.as_nanos()) / took.as_nanos();
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Enough for some of the largest chunks of output.
const MIN_WINDOW_BYTES: u64 = 256 << 10;
/// More than this fills any path, and every buffer of a kernel.
const MAX_WINDOW_BYTES: u64 = 64 << 20;
const MARKS_IN_A_WINDOW: u64 = 6;
/// Queueing for this long does not show in an answer to a keystroke, and keeps a fast peer busy.
const UNNOTICED: Duration = Duration::from_micros(200);
/// No clock or scheduler is better than this.
const SHORTEST_ROUND_TRIP: Duration = Duration::from_micros(10);
/// How long a measured round trip is believed.
const ROUND_TRIP_VALID: Duration = Duration::from_secs(10);
/// More than a window.
const RATE_SAMPLES: usize = 8;
/// How long the first answer may take once nothing more may be sent without it. Longer than any path takes.
const FIRST_ANSWER_LIMIT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests;
