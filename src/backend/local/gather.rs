//! When to let small writes of a process add up before they are read: a pure state machine.
//!
//! A process that writes many small pieces in quick succession costs a wake-up, a read and a message for each, far more
//! than the bytes do. After enough of them its output is read by the clock instead, a fraction of a millisecond apart.
//! The first bytes after a pause, and an answer to input, are never held back, and a dialogue, however quick, never adds up.
//!
//! ```text
//!              many small reads in quick succession               cannot be gathered
//!  Immediate ───────────────────────────────────────► Gathering ────────────────────► Never
//!      ▲                                                  │
//!      └──────────────────────────────────────────────────┘
//!              a poor harvest, or input was written
//! ```
//!
//! Invariants:
//!
//! 1. While gathering, output is held back for [`PERIOD`] at most.
//! 2. After a harvest that brought little, the next byte is read at once, and it takes more small reads than before to
//!    gather again, until the writer pauses.

use std::time::Duration;

use crate::time::Instant;

/// How one stream is read.
#[derive(Debug)]
pub(super) struct Gather {
    state: State,
    /// So many small reads start the gathering.
    needed: u32,
}

#[derive(Debug)]
enum State {
    Immediate {
        /// Small reads in quick succession.
        run: u32,
        last: Option<Instant>,
    },
    Gathering,
    Never,
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
    /// For a stream that can be gathered or not.
    pub(super) fn new(possible: bool) -> Self {
        let state = if possible { State::Immediate { run: 0, last: None } } else { State::Never };
        Self { state, needed: RUN }
    }

    /// All that there was has been read: so many bytes.
    pub(super) fn handle_read(&mut self, now: Instant, bytes: usize) -> Change {
        match &mut self.state {
            State::Immediate { run, last } => {
                let pause = last.map_or(PAUSE, |last| now.saturating_duration_since(last));
                *last = Some(now);
                if pause >= PAUSE {
                    self.needed = RUN;
                }
                *run = if pause < QUICK && bytes < SMALL_BYTES { *run + 1 } else { 0 };
                if *run < self.needed {
                    return Change::None;
                }
                self.state = State::Gathering;
                Change::Started
            }
            State::Gathering if bytes < WORTHWHILE_BYTES => {
                self.needed = self.needed.saturating_mul(2);
                self.state = State::Immediate { run: 0, last: Some(now) };
                Change::Ended
            }
            State::Gathering | State::Never => Change::None,
        }
    }

    /// Input was written, or the process has exited: nothing is held back any more, and what was read so far does not count.
    pub(super) fn end(&mut self) -> Change {
        match &mut self.state {
            State::Immediate { run, .. } => {
                *run = 0;
                Change::None
            }
            State::Gathering => {
                self.state = State::Immediate { run: 0, last: None };
                Change::Ended
            }
            State::Never => Change::None,
        }
    }

    /// The stream holds too little for it.
    pub(super) fn give_up(&mut self) {
        self.state = State::Never;
    }
}

/// How long output is gathered: the fastest writer hardly fills an enlarged pipe meanwhile.
pub(super) const PERIOD: Duration = Duration::from_micros(300);
/// A stream that holds less would hold its writer up for most of a period.
pub(super) const LEAST_CAPACITY: usize = 256 << 10;
/// Reads that follow each other within this time are in quick succession. Longer than a period, since a busy machine
/// lets nobody read at once; the harvest shows whether it was worth it.
const QUICK: Duration = Duration::from_millis(1);
/// A writer that was silent for so long starts anew.
const PAUSE: Duration = Duration::from_millis(20);
/// A read below this is small.
const SMALL_BYTES: usize = 16 << 10;
/// So many small reads in a row start the gathering: a few milliseconds of a flood, more than a prompt ever is.
const RUN: u32 = 64;
/// Less than this in one period is not worth the wait.
const WORTHWHILE_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(50);

    /// Feeds small reads until gathering starts; returns how many it took, and the time.
    fn flood(gather: &mut Gather, mut now: Instant) -> (u32, Instant) {
        for count in 1..100_000 {
            now += STEP;
            if gather.handle_read(now, 64) == Change::Started {
                return (count, now);
            }
        }
        panic!("a flood is gathered");
    }

    #[test]
    fn a_flood_of_small_reads_is_gathered() {
        let mut gather = Gather::new(true);
        assert_eq!(flood(&mut gather, Instant::now()).0, RUN + 1, "the first read follows none");
    }

    #[test]
    fn slow_or_large_reads_are_never_gathered() {
        let start = Instant::now();
        let mut gather = Gather::new(true);
        for index in 0..RUN * 4 {
            assert_eq!(gather.handle_read(start + QUICK * index, 64), Change::None);
        }
        let start = start + QUICK * RUN * 4;
        for index in 0..RUN * 4 {
            assert_eq!(gather.handle_read(start + STEP * index, SMALL_BYTES), Change::None);
        }
    }

    #[test]
    fn a_poor_harvest_ends_it_and_makes_it_rarer_until_a_pause() {
        let mut gather = Gather::new(true);
        let (_, now) = flood(&mut gather, Instant::now());
        assert_eq!(gather.handle_read(now + PERIOD, WORTHWHILE_BYTES), Change::None);
        let now = now + PERIOD * 2;
        assert_eq!(gather.handle_read(now, WORTHWHILE_BYTES - 1), Change::Ended, "invariant 2");
        let (count, now) = flood(&mut gather, now);
        assert_eq!(count, RUN * 2);
        assert_eq!(gather.handle_read(now, 0), Change::Ended);
        assert_eq!(flood(&mut gather, now + PAUSE).0, RUN + 1);
    }

    #[test]
    fn input_ends_it_and_the_count() {
        let mut gather = Gather::new(true);
        let (_, now) = flood(&mut gather, Instant::now());
        assert_eq!(gather.end(), Change::Ended);
        assert_eq!(gather.end(), Change::None);
        assert_eq!(flood(&mut gather, now).0, RUN + 1);
    }

    #[test]
    fn a_dialogue_never_adds_up() {
        let mut now = Instant::now();
        let mut gather = Gather::new(true);
        for _ in 0..RUN * 4 {
            for _ in 0..RUN - 1 {
                now += STEP;
                assert_eq!(gather.handle_read(now, 64), Change::None);
            }
            assert_eq!(gather.end(), Change::None);
        }
    }

    #[test]
    fn what_cannot_be_gathered_never_is() {
        let mut gather = Gather::new(true);
        let (_, now) = flood(&mut gather, Instant::now());
        gather.give_up();
        for mut gather in [gather, Gather::new(false)] {
            for index in 0..RUN * 8 {
                assert_eq!(gather.handle_read(now + STEP * index, 64), Change::None);
            }
            assert_eq!(gather.end(), Change::None);
        }
    }
}
