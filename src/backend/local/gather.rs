//! When to let small writes of a process add up before they are read: a pure state machine.
//!
//! A process that writes many small pieces in quick succession costs a wake-up, a read and a message for each, far more
//! than the bytes do. After enough of them its output is read by the clock instead. The first bytes after a pause,
//! and an answer to input, are never held back.
//!
//! ```text
//!              many small reads in quick succession
//!  Immediate ───────────────────────────────────────► Gathering
//!      ▲                                                  │
//!      └──────────────────────────────────────────────────┘
//!              a poor harvest, a full pipe, or input was written
//! ```
//!
//! A full pipe means that the writer had to wait for us: its pieces are small, but it is fast. Then gathering only
//! slows it down, and is not tried again before it has paused.
//!
//! Invariants:
//!
//! 1. Output is held back for [`PERIOD`] at most.
//! 2. After a read that brought little, the next byte is read at once.
//! 3. While immediate, `poll_timeout` is none.

use std::time::Duration;

use crate::time::Instant;

/// How one stream is read.
#[derive(Debug)]
pub(super) struct Gather {
    state: State,
}

#[derive(Debug)]
enum State {
    Immediate {
        /// Small reads in quick succession.
        run: u32,
        last: Option<Instant>,
        /// Gathering was tried, and held the writer up.
        fast: bool,
    },
    Gathering {
        read_at: Instant,
        /// A harvest from which on the writer must have waited.
        full_bytes: usize,
    },
}

/// What changes with a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Change {
    /// Nothing.
    None,
    /// From now on it is read by the clock.
    Started,
    /// From now on it is read as it comes.
    Ended,
}

impl Gather {
    pub(super) fn new() -> Self {
        Self { state: State::Immediate { run: 0, last: None, fast: false } }
    }

    /// Whether the stream may be read now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        match self.state {
            State::Immediate { .. } => true,
            State::Gathering { read_at, .. } => read_at <= now,
        }
    }

    /// When the stream has to be read, if that is by the clock.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Immediate { .. } => None,
            State::Gathering { read_at, .. } => Some(read_at),
        }
    }

    /// All that there was has been read: so many bytes.
    pub(super) fn handle_read(&mut self, now: Instant, bytes: usize) -> Change {
        match &mut self.state {
            State::Immediate { run, last, fast } => {
                let pause = last.map_or(PAUSE, |last| now.saturating_duration_since(last));
                *last = Some(now);
                *fast &= pause < PAUSE;
                *run = if pause < QUICK && bytes < SMALL_BYTES && !*fast { *run + 1 } else { 0 };
                if *run < RUN {
                    return Change::None;
                }
                self.state = State::Gathering { read_at: now + PERIOD, full_bytes: usize::MAX };
                Change::Started
            }
            State::Gathering { .. } if bytes < WORTHWHILE_BYTES => self.end(),
            State::Gathering { full_bytes, .. } if bytes >= *full_bytes => {
                self.state = State::Immediate { run: 0, last: Some(now), fast: true };
                Change::Ended
            }
            State::Gathering { read_at, .. } => {
                *read_at = now + PERIOD;
                Change::None
            }
        }
    }

    /// Gathering has started, and the pipe holds so much.
    pub(super) fn set_capacity(&mut self, bytes: usize) {
        if let State::Gathering { full_bytes, .. } = &mut self.state {
            // A piece that does not fit whole into the rest leaves a little of it.
            *full_bytes = bytes - bytes / 8;
        }
    }

    /// Input was written, or the process has exited: nothing is held back any more.
    pub(super) fn end(&mut self) -> Change {
        let was = std::mem::replace(self, Self::new());
        if matches!(was.state, State::Gathering { .. }) { Change::Ended } else { Change::None }
    }
}

/// How long output is gathered: at the rate of a fast writer of small pieces it stays within the enlarged pipe.
const PERIOD: Duration = Duration::from_millis(1);
/// Reads that follow each other within this time are in quick succession.
const QUICK: Duration = Duration::from_micros(500);
/// A read below this is small: who writes by the page is not meant.
const SMALL_BYTES: usize = 4 << 10;
/// A writer that was silent for so long starts anew.
const PAUSE: Duration = Duration::from_millis(10);
/// So many small reads in a row start the gathering: a few milliseconds of a flood, more than a prompt ever is.
const RUN: u32 = 64;
/// Less than this in one period is not worth the wait.
const WORTHWHILE_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(100);

    fn gathering(start: Instant) -> Gather {
        let mut gather = Gather::new();
        let mut now = start;
        while gather.handle_read(now, 64) != Change::Started {
            now += STEP;
        }
        gather
    }

    #[test]
    fn a_flood_of_small_reads_is_gathered() {
        let start = Instant::now();
        let mut gather = Gather::new();
        for index in 0..RUN {
            assert_eq!(gather.handle_read(start + STEP * index, 64), Change::None);
            assert_eq!(gather.poll_timeout(), None, "invariant 3");
        }
        let now = start + STEP * RUN;
        assert_eq!(gather.handle_read(now, 64), Change::Started);
        assert!(!gather.is_due(now));
        assert_eq!(gather.poll_timeout(), Some(now + PERIOD), "invariant 1");
        assert!(gather.is_due(now + PERIOD));
    }

    #[test]
    fn slow_or_large_reads_are_never_gathered() {
        let start = Instant::now();
        let mut gather = Gather::new();
        for index in 0..RUN * 4 {
            assert_eq!(gather.handle_read(start + QUICK * index, 64), Change::None);
        }
        for index in 0..RUN * 4 {
            assert_eq!(gather.handle_read(start + STEP * index, SMALL_BYTES), Change::None);
        }
    }

    #[test]
    fn a_poor_harvest_ends_it() {
        let start = Instant::now();
        let mut gather = gathering(start);
        let due = gather.poll_timeout().unwrap();
        assert_eq!(gather.handle_read(due, WORTHWHILE_BYTES), Change::None);
        assert_eq!(gather.poll_timeout(), Some(due + PERIOD));
        assert_eq!(gather.handle_read(due + PERIOD, WORTHWHILE_BYTES - 1), Change::Ended, "invariant 2");
        assert!(gather.is_due(due));
    }

    #[test]
    fn a_full_pipe_ends_it_until_the_writer_pauses() {
        let start = Instant::now();
        let mut gather = gathering(start);
        gather.set_capacity(1 << 20);
        let mut now = gather.poll_timeout().unwrap();
        assert_eq!(gather.handle_read(now, 900_000), Change::None);
        now += PERIOD;
        assert_eq!(gather.handle_read(now, 1 << 20), Change::Ended);
        for _ in 0..RUN * 4 {
            now += STEP;
            assert_eq!(gather.handle_read(now, 64), Change::None);
        }
        now += PAUSE;
        let started = (0..RUN * 2).any(|index| gather.handle_read(now + STEP * index, 64) == Change::Started);
        assert!(started);
    }

    #[test]
    fn input_ends_it_and_the_count() {
        let mut gather = gathering(Instant::now());
        assert_eq!(gather.end(), Change::Ended);
        assert_eq!(gather.end(), Change::None);
        assert_eq!(gather.handle_read(Instant::now(), 64), Change::None);
    }
}
