use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// A path with a constant rate and delay, and a sender that always has more to send.
struct Path {
    pacing: Pacing,
    now: Instant,
    rate: u64,
    delay: Duration,
    /// When the peer has read everything so far.
    read_until: Instant,
    /// Marks on their way back, with the time of arrival.
    answers: VecDeque<(Instant, u64)>,
    /// The longest time that a message sent now would take to be read, beyond the delay.
    queueing: Duration,
}

const MESSAGE: usize = 64 << 10;

impl Path {
    fn new(rate: u64, round_trip: Duration) -> Self {
        let now = crate::time::now();
        Self {
            pacing: Pacing::new(now),
            now,
            rate,
            delay: round_trip / 2,
            read_until: now,
            answers: VecDeque::new(),
            queueing: Duration::ZERO,
        }
    }

    fn mark(&mut self) {
        if self.pacing.wants_mark() {
            let mark = self.pacing.mark();
            self.pacing.handle_marked(self.now);
            // It arrives behind what was sent before, and not at once.
            let arrived = self.read_until.max(self.now + self.delay);
            self.answers.push_back((arrived + self.delay, mark));
        }
    }

    /// Sends as much as may be sent for a time, and returns how much that was.
    fn flood(&mut self, time: Duration) -> u64 {
        let end = self.now + time;
        let mut sent = 0;
        while self.now < end {
            self.mark();
            if self.pacing.has_room() {
                let reading = Duration::from_nanos(MESSAGE as u64 * 1_000_000_000 / self.rate);
                self.read_until = self.read_until.max(self.now + self.delay) + reading;
                self.queueing = self.queueing.max(self.read_until - self.now - self.delay);
                self.pacing.handle_sent(self.now, MESSAGE);
                self.mark();
                sent += MESSAGE as u64;
            } else {
                let (at, mark) = self.answers.pop_front().expect("a sender without room waits for an answer");
                self.now = self.now.max(at);
                self.pacing.handle_answer(self.now, mark);
            }
        }
        sent
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn any_path_is_filled_and_none_much_more() {
    for (rate, round_trip, queueing) in [
        // This machine; a network in a house; two continents; a telephone; a client that is slow itself.
        (1200 * MIB, Duration::from_micros(60), Duration::from_millis(2)),
        (100 * MIB, Duration::from_micros(500), Duration::from_millis(8)),
        (50 * MIB, Duration::from_millis(150), Duration::from_millis(300)),
        (MIB, Duration::from_millis(80), Duration::from_millis(700)),
        (5 * MIB, Duration::from_micros(60), Duration::from_millis(120)),
    ] {
        let mut path = Path::new(rate, round_trip);
        path.flood(Duration::from_secs(3));
        path.queueing = Duration::ZERO;
        let time = Duration::from_secs(30);
        let sent = path.flood(time);
        let full = rate * time.as_secs();
        assert!(sent >= full / 100 * 90, "{sent} of {full} bytes at {rate} a second, {round_trip:?}");
        assert!(path.queueing <= queueing, "{:?} of queue at {rate} a second, {round_trip:?}", path.queueing);
    }
}

#[test]
fn a_path_that_has_become_longer_is_filled_again() {
    let mut path = Path::new(50 * MIB, Duration::from_millis(2));
    path.flood(Duration::from_secs(5));
    path.delay = Duration::from_millis(50);
    path.flood(ROUND_TRIP_VALID + Duration::from_secs(3));
    let sent = path.flood(Duration::from_secs(5));
    assert!(sent >= 50 * MIB * 5 / 100 * 85, "{sent}");
}

#[test]
fn a_peer_that_answers_no_ping_is_paced_by_its_transport() {
    let begin = crate::time::now();
    let mut pacing = Pacing::new(begin);
    let mut sent = 0;
    while pacing.has_room() {
        assert_eq!(pacing.poll_timeout(), None);
        pacing.handle_sent(begin, MESSAGE);
        pacing.handle_marked(begin);
        sent += MESSAGE as u64;
    }
    assert!(sent < MIN_WINDOW_BYTES + MESSAGE as u64);
    let deadline = pacing.poll_timeout().unwrap();
    pacing.handle_timeout(deadline - Duration::from_nanos(1));
    assert!(!pacing.has_room(), "a timeout that comes early changes nothing");
    pacing.handle_timeout(deadline);
    assert!(pacing.has_room());
    assert!(!pacing.wants_mark());
    pacing.handle_answer(deadline, sent);
    pacing.handle_sent(deadline, usize::MAX);
    assert!(pacing.has_room());
    assert_eq!(pacing.poll_timeout(), None);
}

#[test]
fn a_peer_that_has_answered_once_may_be_as_slow_as_it_likes() {
    let begin = crate::time::now();
    let mut pacing = Pacing::new(begin);
    pacing.handle_sent(begin, MESSAGE);
    pacing.handle_marked(begin);
    pacing.handle_answer(begin, MESSAGE as u64);
    while pacing.has_room() {
        pacing.handle_sent(begin, MESSAGE);
        pacing.handle_marked(begin);
    }
    assert_eq!(pacing.poll_timeout(), None);
    pacing.handle_timeout(begin + Duration::from_secs(3600));
    assert!(!pacing.has_room());
}

#[derive(Clone, Debug)]
enum Op {
    Send(usize),
    Ping,
    Answer(u64),
    AnswerAll,
    Timeout,
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_usize..300_000).prop_map(Op::Send),
        2 => Just(Op::Ping),
        2 => (0_u64..10_000_000).prop_map(Op::Answer),
        2 => Just(Op::AnswerAll),
        1 => Just(Op::Timeout),
        2 => (0_u64..4_000_000_000).prop_map(Op::Pass),
    ]
}

proptest! {
    #[test]
    fn whoever_is_answered_goes_on(ops in proptest::collection::vec(op(), 0..200)) {
        let mut now = crate::time::now();
        let mut pacing = Pacing::new(now);
        for op in ops {
            match op {
                // As the driver does.
                Op::Send(bytes) if pacing.has_room() => {
                    pacing.handle_sent(now, bytes);
                }
                Op::Send(_) => {}
                Op::Ping => pacing.handle_marked(now),
                Op::Answer(mark) => pacing.handle_answer(now, mark),
                Op::AnswerAll => pacing.handle_answer(now, pacing.sent),
                Op::Timeout => pacing.handle_timeout(now),
                Op::Pass(nanos) => now += Duration::from_nanos(nanos),
            }
            if pacing.wants_mark() {
                pacing.handle_marked(now);
            }
            prop_assert!((MIN_WINDOW_BYTES..=MAX_WINDOW_BYTES).contains(&pacing.window));
            prop_assert!(pacing.marks.len() as u64 <= 2 * MARKS_IN_A_WINDOW + 200);
            prop_assert!(pacing.has_room() || !pacing.marks.is_empty(), "nothing would ever make room: {pacing:?}");
            if pacing.draining {
                prop_assert!(!pacing.marks.is_empty());
            }
        }
        // Everything is answered at last.
        pacing.handle_answer(now, pacing.sent);
        if pacing.wants_mark() {
            pacing.handle_marked(now);
            pacing.handle_answer(now, pacing.sent);
        }
        prop_assert!(pacing.has_room(), "{pacing:?}");
    }
}
