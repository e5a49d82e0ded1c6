use proptest::prelude::*;

use super::*;

const LIMITS: OutputLimits =
    OutputLimits { retained_bytes: 40, retained_chunks: 6, chunk_bytes: 10, when_full: WhenFull::Pause };

fn log(reader: Reader) -> ProcessLog {
    ProcessLog::new(LIMITS, reader)
}

fn bytes(length: usize) -> Bytes {
    vec![b'x'; length].into()
}

fn send_all(log: &mut ProcessLog) -> Vec<u64> {
    let mut sent = Vec::new();
    while let Some(seq) = log.next_unsent().map(|unsent| unsent.seq()) {
        log.mark_sent(seq);
        sent.push(seq);
    }
    sent
}

fn seqs(reading: &Reading) -> Vec<u64> {
    reading.chunks.iter().map(|chunk| chunk.seq).collect()
}

#[test]
fn one_counter_numbers_output_exit_and_close() {
    let mut log = log(Reader::Plain);
    log.push_output(OutputStream::Stdout, bytes(3));
    log.push_exit(ExitStatus::exited(4), false);
    log.push_output(OutputStream::Stderr, bytes(2));
    log.push_close(None, false);
    log.push_output(OutputStream::Stdout, bytes(1));
    log.push_exit(ExitStatus::exited(5), false);
    log.push_close(None, true);
    assert_eq!(send_all(&mut log), [1, 2, 3, 4]);
    assert_eq!(log.exit().map(|exit| exit.status), Some(ExitStatus::exited(4)));
    assert_eq!(log.close().copied(), Some(Close { seq: 4, totals: Some(log.totals()), cut: false }));
    assert_eq!(log.totals(), Totals { stdout: 3, stderr: 2, pty: 0 });
}

#[test]
fn next_seq_covers_exit_and_close_only_in_a_read_without_bound() {
    let mut log = log(Reader::Plain);
    log.push_output(OutputStream::Stdout, bytes(4));
    log.push_output(OutputStream::Stdout, bytes(4));
    log.push_close(None, false);
    assert_eq!(log.read(0, None).next_seq, 5);
    assert_eq!(log.read(2, None).next_seq, 5);
    assert_eq!(log.read(0, Some(100)).next_seq, 3);
    assert_eq!(log.read(2, Some(100)).next_seq, 5);
    assert_eq!(log.read(u64::MAX, None).next_seq, 5);
}

#[test]
fn a_bounded_read_returns_whole_chunks_and_at_least_one() {
    let mut log = log(Reader::Plain);
    for length in [4, 4, 2] {
        log.push_output(OutputStream::Stdout, bytes(length));
    }
    assert_eq!(seqs(&log.read(0, Some(0))), [1]);
    assert_eq!(seqs(&log.read(0, Some(7))), [1]);
    assert_eq!(seqs(&log.read(0, Some(8))), [1, 2]);
    assert_eq!(seqs(&log.read(0, Some(9))), [1, 2]);
    assert_eq!(seqs(&log.read(1, Some(u64::MAX))), [2, 3]);
}

#[test]
fn a_long_poll_is_ready_by_the_rule_of_the_wire() {
    let mut log = log(Reader::Plain);
    assert!(!log.is_readable(0));
    log.push_output(OutputStream::Stdout, bytes(1));
    assert!(log.is_readable(0));
    assert!(!log.is_readable(1));
    log.push_exit(ExitStatus::exited(0), false);
    assert!(log.is_readable(1), "the exit is news to one who has seen 1");
    assert!(!log.is_readable(2));
    log.push_output(OutputStream::Stdout, bytes(1));
    assert!(log.is_readable(2));
    assert!(!log.is_readable(3));
    log.push_close(None, false);
    assert!(log.is_readable(3));
    assert!(log.is_readable(u64::MAX), "a closed process has nothing to wait for");
}

#[test]
fn a_client_that_acknowledges_holds_its_process_at_the_window() {
    let mut log = log(Reader::Credits);
    for _ in 0..4 {
        assert!(log.wants_output());
        log.push_output(OutputStream::Stdout, bytes(10));
        send_all(&mut log);
    }
    assert!(!log.wants_output(), "sent is not seen");
    log.acknowledge(1);
    assert!(log.wants_output());
    log.push_output(OutputStream::Stdout, bytes(10));
    assert_eq!(seqs(&log.read(0, None)), [2, 3, 4, 5], "only what was seen makes room");
}

#[test]
fn acknowledging_what_was_not_sent_evicts_nothing_of_it() {
    let mut log = log(Reader::Credits);
    for _ in 0..4 {
        log.push_output(OutputStream::Stdout, bytes(10));
    }
    log.acknowledge(u64::MAX);
    assert!(!log.wants_output());
    assert_eq!(send_all(&mut log), [1, 2, 3, 4]);
    assert!(log.wants_output(), "it was acknowledged before it was sent");
}

#[test]
fn a_client_that_does_not_acknowledge_has_seen_what_was_sent() {
    let mut log = log(Reader::Plain);
    for _ in 0..4 {
        log.push_output(OutputStream::Stdout, bytes(10));
    }
    assert!(!log.wants_output());
    send_all(&mut log);
    assert!(log.wants_output());
    log.acknowledge(0);
    log.push_output(OutputStream::Stdout, bytes(10));
    assert_eq!(log.retained_bytes(), 40);
    assert_eq!(log.read(0, None).offset, 10, "the size of what is gone is known");
}

#[test]
fn nothing_is_lost_while_nobody_is_there() {
    let mut log = log(Reader::Plain);
    log.push_output(OutputStream::Stdout, bytes(10));
    send_all(&mut log);
    log.detach();
    while log.wants_output() {
        log.push_output(OutputStream::Stdout, bytes(10));
    }
    assert_eq!(log.next_seq(), 6, "four chunks fill the bound");
    assert_eq!(log.next_unsent(), None);
    log.attach(Reader::Plain);
    assert_eq!(log.next_unsent(), None, "what came meanwhile is read, not sent");
    assert!(log.has_backlog() && !log.wants_output(), "and still retained");
    assert_eq!(seqs(&log.read(3, Some(10))), [4]);
    assert!(log.wants_output(), "what was read may go");
    assert_eq!(seqs(&log.read(4, None)), [5]);
    assert!(!log.has_backlog());
}

#[test]
fn a_backlog_that_is_never_read_does_not_hold_the_process_for_ever() {
    let mut log = log(Reader::Detached);
    while log.wants_output() {
        log.push_output(OutputStream::Stdout, bytes(10));
    }
    log.attach(Reader::Plain);
    assert!(!log.wants_output());
    log.release_backlog();
    assert!(log.wants_output());
}

#[test]
fn dropping_the_oldest_is_counted_and_only_while_nobody_is_there() {
    let limits = OutputLimits { when_full: WhenFull::DropOldest, ..LIMITS };
    let mut log = ProcessLog::new(limits, Reader::Detached);
    for _ in 0..6 {
        assert!(log.wants_output());
        log.push_output(OutputStream::Stdout, bytes(10));
    }
    assert_eq!((log.dropped_bytes(), log.retained_bytes()), (20, 40));
    let reading = log.read(0, None);
    assert_eq!((seqs(&reading), reading.offset), (vec![3, 4, 5, 6], 20));
    log.attach(Reader::Credits);
    assert!(!log.wants_output());
}

#[test]
fn large_pieces_are_cut_without_a_copy() {
    let mut log = log(Reader::Plain);
    let piece = bytes(25);
    log.push_output(OutputStream::Pty, piece.clone());
    let reading = log.read(0, None);
    assert_eq!(reading.chunks.iter().map(|chunk| chunk.bytes.len()).collect::<Vec<_>>(), [10, 10, 5]);
    assert_eq!(reading.chunks[1].bytes.as_ptr(), piece[10..].as_ptr());
    assert_eq!(reading.chunks[2].offset, 20);
}

#[test]
fn a_gap_of_the_backend_skips_numbers_and_makes_totals_unknown() {
    let mut log = log(Reader::Plain);
    log.push_output(OutputStream::Stdout, bytes(3));
    log.push_gap(4, Some(100));
    log.push_output(OutputStream::Stdout, bytes(2));
    log.push_close(None, false);
    assert_eq!(send_all(&mut log), [1, 6, 7, 8]);
    assert_eq!(log.read(1, None).offset, 103);
    assert_eq!(log.close().and_then(|close| close.totals), None);
}

#[test]
fn a_failure_ends_the_log_and_is_kept() {
    let mut log = log(Reader::Plain);
    log.fail("gone".into());
    log.fail("again".into());
    assert_eq!(log.failure(), Some("gone"));
    assert_eq!(log.exit().map(|exit| exit.status), Some(ExitStatus::unknown()));
    assert_eq!(send_all(&mut log), [1, 2]);
}

#[derive(Clone, Debug)]
enum Op {
    Output(OutputStream, usize),
    Gap(u64, Option<u64>),
    Exit,
    Close,
    Attach(Reader),
    Detach,
    Send,
    Acknowledge(u64),
    Release,
    Read(u64, Option<u64>),
}

fn op() -> impl Strategy<Value = Op> {
    let stream = prop_oneof![Just(OutputStream::Stdout), Just(OutputStream::Stderr)];
    prop_oneof![
        8 => (stream, 0..25_usize).prop_map(|(stream, length)| Op::Output(stream, length)),
        1 => (1..3_u64, prop::option::of(0..9_u64)).prop_map(|(events, bytes)| Op::Gap(events, bytes)),
        1 => Just(Op::Exit),
        1 => Just(Op::Close),
        2 => prop_oneof![Just(Reader::Plain), Just(Reader::Credits)].prop_map(Op::Attach),
        1 => Just(Op::Detach),
        6 => Just(Op::Send),
        3 => (0..40_u64).prop_map(Op::Acknowledge),
        1 => Just(Op::Release),
        4 => (0..40_u64, prop::option::of(0..50_u64)).prop_map(|(after, max)| Op::Read(after, max)),
    ]
}

/// The log as its documentation tells it: everything that ever happened, and sums over it.
struct Oracle {
    limits: OutputLimits,
    reader: Reader,
    /// Number, length and offset of every chunk, and whether it is retained.
    chunks: Vec<(u64, usize, u64, bool)>,
    next: u64,
    offset: u64,
    exit: Option<u64>,
    close: Option<u64>,
    sent: u64,
    confirmed: u64,
    backlog: Option<u64>,
}

impl Oracle {
    fn new(limits: OutputLimits) -> Self {
        let (reader, chunks) = (Reader::Detached, Vec::new());
        let (exit, close, backlog) = (None, None, None);
        Self { limits, reader, chunks, next: 1, offset: 0, exit, close, sent: 0, confirmed: 0, backlog }
    }

    fn seen(&self) -> u64 {
        self.sent.min(self.confirmed)
    }

    fn event(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn retained(&self) -> impl Iterator<Item = &(u64, usize, u64, bool)> {
        self.chunks.iter().filter(|chunk| chunk.3)
    }

    fn unseen(&self) -> Vec<usize> {
        self.retained().filter(|chunk| chunk.0 > self.seen()).map(|chunk| chunk.1).collect()
    }

    fn wants_output(&self) -> bool {
        let unseen = self.unseen();
        // Bytes that the backend lost within what is unseen take room too: they are part of the distance.
        let first = self.retained().find(|chunk| chunk.0 > self.seen());
        let bytes = first.map_or(0, |first| self.offset - first.2);
        self.close.is_none()
            && (self.reader == Reader::Detached && self.limits.when_full == WhenFull::DropOldest
                || bytes == 0
                || bytes + self.limits.chunk_bytes as u64 <= self.limits.retained_bytes as u64
                    && unseen.len() < self.limits.retained_chunks)
    }

    fn settle(&mut self) {
        if self.reader == Reader::Plain {
            if self.backlog.is_some_and(|backlog| self.confirmed >= backlog) {
                self.backlog = None;
            }
            if self.backlog.is_none() {
                self.confirmed = self.sent;
            }
        }
        let may_drop = self.reader == Reader::Detached && self.limits.when_full == WhenFull::DropOldest;
        loop {
            let bytes: usize = self.retained().map(|chunk| chunk.1).sum();
            let seen = self.seen();
            let full = bytes > self.limits.retained_bytes || self.retained().count() > self.limits.retained_chunks;
            match self.chunks.iter_mut().find(|chunk| chunk.3) {
                Some(oldest) if full && (oldest.0 <= seen || may_drop) => oldest.3 = false,
                _ => return,
            }
        }
    }

    fn unsent(&self) -> Option<u64> {
        if self.reader == Reader::Detached {
            return None;
        }
        let events = self.chunks.iter().map(|chunk| chunk.0).chain(self.exit).chain(self.close);
        events.filter(|seq| *seq > self.sent).min()
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Output(_, mut length) if self.close.is_none() => {
                while length > 0 {
                    let part = length.min(self.limits.chunk_bytes);
                    let seq = self.event();
                    self.chunks.push((seq, part, self.offset, true));
                    self.offset += part as u64;
                    length -= part;
                }
            }
            Op::Gap(events, bytes) if self.close.is_none() => {
                self.next += events;
                // The oracle does without gaps of unknown size: see the strategy's use.
                self.offset += bytes.unwrap_or(0);
            }
            Op::Exit if self.exit.is_none() && self.close.is_none() => self.exit = Some(self.event()),
            Op::Close if self.close.is_none() => {
                if self.exit.is_none() {
                    self.exit = Some(self.event());
                }
                self.close = Some(self.event());
            }
            Op::Attach(reader) => {
                self.confirmed = self.seen();
                let unseen = !self.unseen().is_empty();
                self.reader = reader;
                self.sent = self.next - 1;
                self.backlog = (reader == Reader::Plain && unseen).then_some(self.sent);
            }
            Op::Detach => {
                self.confirmed = self.seen();
                self.reader = Reader::Detached;
                self.backlog = None;
            }
            Op::Send => self.sent = self.unsent().unwrap_or(self.sent),
            Op::Acknowledge(seq) if self.reader == Reader::Credits => {
                self.confirmed = self.confirmed.max(seq.min(self.next - 1));
            }
            Op::Release if self.backlog.is_some() => self.confirmed = self.sent,
            _ => {}
        }
        self.settle();
    }

    fn read(&mut self, after: u64, max: Option<u64>) -> (Vec<u64>, u64, u64) {
        let mut taken: Vec<(u64, usize, u64, bool)> = Vec::new();
        for chunk in self.retained().filter(|chunk| chunk.0 > after) {
            let sum: u64 = taken.iter().map(|chunk| chunk.1 as u64).sum();
            let over = max.is_some_and(|max| sum + chunk.1 as u64 > max || sum >= max);
            if over && !taken.is_empty() {
                break;
            }
            taken.push(*chunk);
        }
        let next = match taken.last() {
            Some(last) if max.is_some() => last.0 + 1,
            _ => self.next,
        };
        let offset = taken.first().map_or(self.offset, |first| first.2);
        if let Some(backlog) = self.backlog {
            self.confirmed = self.confirmed.max(taken.last().map_or(after, |last| last.0).min(backlog));
        }
        self.settle();
        (taken.iter().map(|chunk| chunk.0).collect(), next, offset)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Invariants 1, 2, 5, 6 and 7 of the house, against the naive log.
    #[test]
    fn the_log_agrees_with_the_naive_one(
        ops in prop::collection::vec(op(), 1..120),
        drop_oldest in any::<bool>(),
        obey in any::<bool>(),
    ) {
        let when_full = if drop_oldest { WhenFull::DropOldest } else { WhenFull::Pause };
        let limits = OutputLimits { when_full, ..LIMITS };
        let mut log = ProcessLog::new(limits, Reader::Detached);
        let mut oracle = Oracle::new(limits);
        let mut sent_in_order = 0;
        for op in ops {
            if obey && matches!(op, Op::Output(..)) && !log.wants_output() {
                continue;
            }
            match op.clone() {
                Op::Output(stream, length) => log.push_output(stream, bytes(length)),
                Op::Gap(events, lost) => log.push_gap(events, lost.or(Some(0))),
                Op::Exit => log.push_exit(ExitStatus::exited(0), false),
                Op::Close => log.push_close(None, false),
                Op::Attach(reader) => {
                    log.attach(reader);
                    sent_in_order = log.next_seq() - 1;
                }
                Op::Detach => log.detach(),
                Op::Send => {
                    let unsent = log.next_unsent().map(|unsent| unsent.seq());
                    prop_assert_eq!(unsent, oracle.unsent());
                    if let Some(seq) = unsent {
                        prop_assert!(seq > sent_in_order);
                        sent_in_order = seq;
                        log.mark_sent(seq);
                    }
                }
                Op::Acknowledge(seq) => log.acknowledge(seq),
                Op::Release => log.release_backlog(),
                Op::Read(after, max) => {
                    let reading = log.read(after, max);
                    let (expected, next, offset) = oracle.read(after, max);
                    prop_assert_eq!(seqs(&reading), expected);
                    prop_assert_eq!((reading.next_seq, reading.offset), (next, offset));
                }
            }
            oracle.apply(&op);
            prop_assert_eq!(log.wants_output(), oracle.wants_output(), "after {:?}", op);
            prop_assert_eq!(log.next_seq(), oracle.next);
            prop_assert_eq!(log.close().map(|close| close.seq), oracle.close);
            prop_assert_eq!(log.retained_bytes(), oracle.retained().map(|chunk| chunk.1).sum::<usize>());
            for after in [0, log.next_seq() / 2, log.next_seq()] {
                let readable = oracle.close.is_some()
                    || oracle.retained().any(|chunk| chunk.0 > after)
                    || oracle.exit.is_some() && after + 1 < oracle.next;
                prop_assert_eq!(log.is_readable(after), readable);
            }
            if obey {
                // One event of the backend may be larger than a chunk; what is retained then is that event at most.
                prop_assert!(log.retained_bytes() <= LIMITS.retained_bytes + 24);
                if !drop_oldest {
                    prop_assert_eq!(log.dropped_bytes(), 0);
                }
            }
        }
    }
}

proptest! {
    /// What a hostile place says it has lost never leads beyond what can be counted.
    #[test]
    fn numbers_and_offsets_never_exceed_their_limit(
        start in prop_oneof![Just(0), LIMIT - 6..=LIMIT, any::<u64>()],
        lost in prop::option::of(prop_oneof![Just(0), LIMIT - 60..=LIMIT, any::<u64>()]),
        steps in prop::collection::vec((0..4_u8, 0..4_u64), 0..12),
        plain in any::<bool>(),
    ) {
        let mut log = log(if plain { Reader::Plain } else { Reader::Credits });
        log.push_gap(start, lost);
        for (what, size) in steps {
            match what {
                0 => log.push_output(OutputStream::Stdout, bytes(usize::try_from(size).unwrap() * 8)),
                1 => log.push_gap(size, Some(size * 8)),
                2 => log.push_exit(ExitStatus::exited(0), false),
                _ => log.acknowledge(u64::MAX),
            }
            send_all(&mut log);
            prop_assert!(log.next_seq() <= LIMIT + 1);
            let reading = log.read(0, None);
            prop_assert!(reading.offset <= LIMIT);
            prop_assert!(log.failure().is_none() || log.close().is_some());
        }
        log.push_close(None, false);
        send_all(&mut log);
        let close = log.close().copied();
        prop_assert!(close.is_some_and(|close| close.seq <= LIMIT && close.seq + 1 == log.next_seq()), "{close:?}");
        prop_assert!(log.exit().is_some() && log.next_unsent().is_none());
        if start > LIMIT - 3 {
            prop_assert!(log.failure().is_some());
        }
    }
}

/// Invariant 6, and positions that only rise, after the backend stops knowing what it loses.
#[test]
fn a_gap_of_unknown_size_moves_no_offset_back() {
    let mut log = ProcessLog::new(OutputLimits::default(), Reader::Credits);
    log.push_gap(1, Some(1_000));
    log.push_output(OutputStream::Stdout, Bytes::from_static(b"abc"));
    log.push_gap(1, None);
    assert!(log.wants_output());
    assert_eq!(log.unseen_bytes(), 3);
    log.push_output(OutputStream::Stdout, Bytes::from_static(b"de"));
    let reading = log.read(0, None);
    assert_eq!(reading.chunks.iter().map(|chunk| chunk.offset).collect::<Vec<_>>(), [1_000, 1_003]);
    assert_eq!(log.read(log.next_seq(), None).offset, 1_005);
}

#[test]
fn a_read_says_whether_more_follows() {
    let mut log = ProcessLog::new(OutputLimits::default(), Reader::Credits);
    for _ in 0..3 {
        log.push_output(OutputStream::Stdout, Bytes::from_static(b"abc"));
    }
    for (max_bytes, more) in [(None, false), (Some(9), false), (Some(8), true), (Some(0), true)] {
        assert_eq!(log.read(0, max_bytes).more, more, "{max_bytes:?}");
    }
}
