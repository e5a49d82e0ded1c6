mod interleaving;

use bytes::Bytes;

use super::model::{Model, check};
use super::*;
use crate::event::OutputStream;
use crate::wire::Base64;
use crate::wire::process::{ReadChunk, ReadResult};

fn config(window_bytes: usize) -> ClientConfig {
    let mut config = ClientConfig::default();
    config.output.retained_bytes = window_bytes;
    config.reorder_events = 16;
    config.reorder_bytes = 1_000;
    config
}

fn inbox(config: &ClientConfig) -> Inbox {
    Inbox::new(ProcessId::new("p"), config)
}

fn output(seq: u64, size: usize) -> Output {
    Output { seq, stream: OutputStream::Stdout, bytes: Bytes::from(vec![b'x'; size]) }
}

fn exit(seq: u64, sandbox_denied: Option<bool>) -> ExitFact {
    ExitFact { seq, status: ExitStatus::exited(0), sandbox_denied }
}

const fn close(seq: u64) -> Closed {
    Closed { seq, totals: None, cut: false }
}

fn start() -> Instant {
    Instant::now()
}

#[test]
fn events_in_order_pass_through() {
    let (now, mut out) = (start(), Vec::new());
    let mut inbox = inbox(&config(1_000));
    inbox.output(now, output(1, 5), &mut out).unwrap();
    inbox.exited(now, exit(2, Some(true)), &mut out).unwrap();
    inbox.output(now, output(3, 5), &mut out).unwrap();
    inbox.closed(now, close(4), &mut out).unwrap();
    assert_eq!(out.iter().map(Event::seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(matches!(out[1], Event::Exited(Exited { sandbox_denied: true, .. })));
    assert!(inbox.is_over());
    assert_eq!((inbox.poll_timeout(), inbox.wants_read(now, false)), (None, None));
}

#[test]
fn an_exit_that_does_not_say_whether_a_sandbox_denied_costs_one_read() {
    let (now, mut out) = (start(), Vec::new());
    let mut inbox = inbox(&config(1_000));
    inbox.exited(now, exit(1, None), &mut out).unwrap();
    inbox.closed(now, close(2), &mut out).unwrap();
    assert!(out.is_empty());
    let spec = inbox.wants_read(now, false).unwrap();
    assert_eq!((spec, spec.max_bytes()), (ReadSpec::Denial, Some(0)));
    inbox.handle_read_started(spec);
    assert_eq!(inbox.wants_read(now, false), None);
    let mut model = Model::new(&[], 0, 9, false);
    model.happen();
    inbox.handle_read(now, &model.read(spec.after_seq(), spec.max_bytes()), &mut out).unwrap();
    assert!(matches!(out[0], Event::Exited(Exited { sandbox_denied: true, .. })));
    assert!(inbox.is_over());
}

#[test]
fn an_exit_is_told_even_if_the_read_of_its_denial_fails() {
    let (now, mut out) = (start(), Vec::new());
    let mut inbox = inbox(&config(1_000));
    inbox.exited(now, exit(1, None), &mut out).unwrap();
    inbox.handle_read_started(inbox.wants_read(now, false).unwrap());
    inbox.handle_read_error(now, WaitError::UnknownProcess(ProcessId::new("p")), &mut out).unwrap();
    assert!(matches!(out[..], [Event::Exited(Exited { sandbox_denied: false, .. })]));
}

#[test]
fn events_beyond_the_reorder_window_are_a_violation() {
    let (now, mut out) = (start(), Vec::new());
    let config = config(100_000);
    let mut inbox = inbox(&config);
    for seq in 2..2 + config.reorder_events as u64 {
        inbox.output(now, output(seq, 1), &mut out).unwrap();
    }
    let error = inbox.output(now, output(100, 1), &mut out).unwrap_err();
    assert!(matches!(error, WaitError::Peer(PeerMisbehaved::ReorderWindow { .. })), "{error}");
}

#[test]
fn an_event_larger_than_the_window_is_a_violation_wherever_it_comes() {
    let (now, mut out) = (start(), Vec::new());
    let config = config(100_000);
    for seq in [1, 5] {
        let error = inbox(&config).output(now, output(seq, config.reorder_bytes + 1), &mut out).unwrap_err();
        assert!(matches!(error, WaitError::Peer(PeerMisbehaved::ReorderWindow { .. })), "{error}");
    }
}

type Work<'a> = &'a dyn Fn(&mut Inbox, &mut Vec<Event>) -> Result<(), WaitError>;

#[test]
fn contradictions_are_violations() {
    let now = start();
    let step = |work: Work<'_>| {
        let mut inbox = inbox(&config(1_000));
        let mut out = Vec::new();
        work(&mut inbox, &mut out).unwrap_err().to_string()
    };
    let text = step(&|inbox, out| {
        inbox.exited(now, exit(1, Some(false)), out)?;
        inbox.exited(now, exit(2, Some(false)), out)
    });
    assert!(text.contains("second exit"), "{text}");
    let text = step(&|inbox, out| inbox.closed(now, close(1), out));
    assert!(text.contains("without an exit"), "{text}");
    let text = step(&|inbox, out| {
        inbox.closed(now, close(5), out)?;
        inbox.output(now, output(6, 1), out)
    });
    assert!(text.contains("after the close"), "{text}");
    let text = step(&|inbox, out| {
        inbox.output(now, output(6, 1), out)?;
        inbox.closed(now, close(5), out)
    });
    assert!(text.contains("after the close"), "{text}");
    let text = step(&|inbox, out| {
        inbox.output(now, output(1, 1), out)?;
        inbox.exited(now, exit(1, Some(false)), out)
    });
    assert!(text.contains("number is taken"), "{text}");
}

#[test]
fn a_reader_that_lags_is_bounded_and_catches_up() {
    let (now, mut out) = (start(), Vec::new());
    let mut model = Model::new(&[100; 50], 50, 50, false);
    let mut inbox = inbox(&config(1_000));
    while let Some(event) = model.happen() {
        feed(&mut inbox, now, event, &mut out).unwrap();
    }
    assert_eq!(out.len(), 10, "the window");
    assert_eq!(inbox.wants_read(now, false), None, "no read before the reader has caught up");
    let mut reads = 0;
    while !inbox.is_over() {
        consume_all(&mut inbox, now, &mut out);
        while let Some(spec) = inbox.wants_read(now, false) {
            reads += 1;
            inbox.handle_read_started(spec);
            let result = model.read(spec.after_seq(), spec.max_bytes());
            inbox.handle_read(now, &result, &mut out).unwrap();
        }
    }
    assert_eq!(check(&model, 0, &out), 0);
    assert!(reads <= 6, "{reads} reads");
}

#[test]
fn what_was_evicted_meanwhile_is_a_gap_of_known_size_if_the_peer_says() {
    for extended in [false, true] {
        let (now, mut out) = (start(), Vec::new());
        let mut model = Model::new(&[100; 50], 50, 5, extended);
        let mut inbox = inbox(&config(1_000));
        while let Some(event) = model.happen() {
            feed(&mut inbox, now, event, &mut out).unwrap();
        }
        settle(&mut inbox, &model, now, &mut out);
        assert_eq!(check(&model, 0, &out), 35);
        let bytes = out.iter().find_map(|event| match event {
            Event::Gap(gap) => Some(gap.bytes),
            _ => None,
        });
        assert_eq!(bytes, Some(extended.then_some(3_500)));
    }
}

#[test]
fn a_hole_in_live_events_is_read_after_a_while_and_else_is_a_gap() {
    for retained in [0, 9] {
        let (now, mut out) = (start(), Vec::new());
        let mut model = Model::new(&[5; 4], 4, retained, false);
        let mut inbox = inbox(&config(1_000));
        for seq in 1..=4 {
            let event = model.happen().unwrap();
            if seq != 2 {
                feed(&mut inbox, now, event, &mut out).unwrap();
            }
        }
        assert_eq!((out.len(), inbox.wants_read(now, false)), (1, None));
        let due = inbox.poll_timeout().unwrap();
        assert_eq!(due, now + HOLE_PATIENCE);
        let spec = inbox.wants_read(due, false).unwrap();
        inbox.handle_read_started(spec);
        inbox.handle_read(due, &model.read(spec.after_seq(), spec.max_bytes()), &mut out).unwrap();
        while let Some(event) = model.happen() {
            feed(&mut inbox, due, event, &mut out).unwrap();
        }
        assert_eq!(check(&model, 0, &out), u64::from(retained == 0));
        assert!(inbox.is_over(), "the process goes on");
    }
}

#[test]
fn attaching_rebuilds_what_happened_meanwhile() {
    for (exit_at, happened) in [(3, 0_u64), (3, 3), (3, 4), (3, 5), (1, 3), (1, 5), (0, 5), (2, 5)] {
        // Behind the last event there is nothing to follow.
        for after_seq in 0..=happened.min(4) {
            for extended in [false, true] {
                let (now, mut out) = (start(), Vec::new());
                let mut model = Model::new(&[10; 3], exit_at, 9, extended);
                for _ in 0..happened {
                    model.happen();
                }
                let mut inbox = Inbox::attached(ProcessId::new("p"), after_seq, &config(1_000));
                settle(&mut inbox, &model, now, &mut out);
                while let Some(event) = model.happen() {
                    feed(&mut inbox, now, event, &mut out).unwrap();
                }
                assert!(inbox.is_over(), "exit at {exit_at}, {happened} happened, after {after_seq}");
                // An exit that was seen before is not told again.
                let mut seen = model.events[..usize::try_from(after_seq).unwrap()].iter();
                if seen.any(|event| matches!(event, Event::Exited(_))) {
                    assert!(!out.iter().any(|event| matches!(event, Event::Exited(_) | Event::Gap(_))));
                    continue;
                }
                assert_eq!(check(&model, after_seq, &out), 0, "exit at {exit_at}, {happened}, after {after_seq}");
            }
        }
    }
}

/// A peer that retains more than fits into one message cuts its answer to a read without a limit.
#[test]
fn attaching_to_more_than_fits_into_one_message_brings_everything_and_the_end() {
    for exit_at in 0..=9 {
        for retained in [9, 5] {
            let (now, mut out) = (start(), Vec::new());
            let mut model = Model::new(&[100; 9], exit_at, retained, true);
            while model.happen().is_some() {}
            let mut inbox = Inbox::attached(ProcessId::new("p"), 0, &config(1_000));
            let mut reads = 0;
            while let Some(spec) = inbox.wants_read(now, false) {
                inbox.handle_read_started(spec);
                let (cut, whole) = (model.read(spec.after_seq(), Some(300)), model.read(spec.after_seq(), None));
                let result = if cut.longarm.as_ref().unwrap().more { cut } else { whole };
                inbox.handle_read(now, &result, &mut out).unwrap();
                consume_all(&mut inbox, now, &mut out);
                reads += 1;
            }
            assert!(inbox.is_over() && reads > 1, "exit at {exit_at}");
            check(&model, 0, &out);
        }
    }
}

#[test]
fn a_read_that_is_refused_is_tried_again_a_few_times() {
    let (mut now, mut out) = (start(), Vec::new());
    let refused = || WaitError::Remote(crate::error::RpcError { code: -32600, message: "too much".into(), data: None });
    let mut model = Model::new(&[100; 3], 3, 9, false);
    while model.happen().is_some() {}
    let mut inbox = Inbox::attached(ProcessId::new("p"), 0, &config(1_000));
    for _ in 0..READ_RETRIES {
        inbox.handle_read_started(inbox.wants_read(now, false).unwrap());
        inbox.handle_read_error(now, refused(), &mut out).unwrap();
        assert_eq!(inbox.wants_read(now, false), None);
        assert_eq!(inbox.poll_timeout(), Some(now + RETRY_DELAY));
        now += RETRY_DELAY;
    }
    let mut other = inbox;
    let spec = other.wants_read(now, false).unwrap();
    other.handle_read_started(spec);
    assert_eq!(other.poll_timeout(), None);
    other.handle_read(now, &model.read(0, None), &mut out).unwrap();
    assert!(other.is_over());

    let mut inbox = Inbox::attached(ProcessId::new("p"), 0, &config(1_000));
    for _ in 0..READ_RETRIES {
        inbox.handle_read_started(inbox.wants_read(now, false).unwrap());
        inbox.handle_read_error(now, refused(), &mut out).unwrap();
        now += RETRY_DELAY;
    }
    inbox.handle_read_started(inbox.wants_read(now, false).unwrap());
    assert!(matches!(inbox.handle_read_error(now, refused(), &mut out), Err(WaitError::Remote(_))));
}

/// The close may come while a read that was refused waits to be made again. Nothing is waited for any more.
#[test]
fn a_read_that_was_refused_is_not_made_again_behind_the_close() {
    let (now, mut out) = (start(), Vec::new());
    let refused = || WaitError::Remote(crate::error::RpcError { code: -32603, message: "busy".into(), data: None });
    let after_refusal = |discards: bool, out: &mut Vec<Event>| {
        let mut inbox = inbox(&config(1_000));
        if discards {
            inbox.discard();
        }
        inbox.interrupt();
        inbox.handle_read_started(inbox.wants_read(now, false).unwrap());
        inbox.handle_read_error(now, refused(), out).unwrap();
        assert_eq!((inbox.poll_timeout(), inbox.wants_read(now, false)), (Some(now + RETRY_DELAY), None));
        assert!(!inbox.is_over(), "it may run");
        inbox
    };
    for discards in [false, true] {
        let mut inbox = after_refusal(discards, &mut out);
        inbox.exited(now, exit(1, Some(true)), &mut out).unwrap();
        inbox.closed(now, close(2), &mut out).unwrap();
        assert!(inbox.is_over());
        assert_eq!((inbox.poll_timeout(), inbox.wants_read(now + RETRY_DELAY, false)), (None, None));
    }
    let mut inbox = after_refusal(false, &mut out);
    inbox.discard();
    assert_eq!(inbox.wants_read(now, false), Some(ReadSpec::State), "it is another question");
}

/// Whoever refuses to say what became of a process that nobody follows has not said that it is gone.
#[test]
fn a_process_that_nobody_follows_is_gone_only_when_the_peer_says_so() {
    let (mut now, mut out) = (start(), Vec::new());
    let mut inbox = inbox(&config(1_000));
    inbox.discard();
    inbox.interrupt();
    for _ in 0..=READ_RETRIES {
        inbox.handle_read_started(inbox.wants_read(now, false).unwrap());
        let error = crate::error::RpcError { code: -32603, message: "busy".into(), data: None };
        inbox.handle_read_error(now, error.into(), &mut out).unwrap();
        assert!(!inbox.is_over());
        now += RETRY_DELAY;
    }
    assert_eq!((inbox.poll_timeout(), inbox.wants_read(now, false), inbox.is_resyncing()), (None, None, false));
    inbox.interrupt();
    inbox.handle_read_started(inbox.wants_read(now, false).unwrap());
    inbox.handle_read_error(now, WaitError::UnknownProcess(ProcessId::new("p")), &mut out).unwrap();
    assert!(inbox.is_over());
}

/// What happened in an outage comes in pieces of at most the window, however much the peer retains.
#[test]
fn catching_up_goes_on_until_it_is_whole() {
    for (chunks, closes) in [(30, true), (30, false), (3, true), (0, true)] {
        let (now, mut out) = (start(), Vec::new());
        let mut model = Model::new(&vec![100; chunks], chunks, 64, true);
        let mut inbox = inbox(&config(1_000));
        feed(&mut inbox, now, model.happen().unwrap(), &mut out).unwrap();
        while model.happened < model.events.len() - usize::from(!closes) {
            model.happen();
        }
        inbox.interrupt();
        let mut reads = 0;
        while inbox.is_resyncing() {
            let spec = inbox.wants_read(now, true).unwrap();
            assert_eq!(spec.max_bytes(), Some(1_000));
            inbox.handle_read_started(spec);
            inbox.handle_read(now, &model.read(spec.after_seq(), spec.max_bytes()), &mut out).unwrap();
            consume_all(&mut inbox, now, &mut out);
            reads += 1;
        }
        assert_eq!(check(&model, 0, &out), 0, "{chunks} chunks");
        assert_eq!(inbox.is_over(), closes);
        assert_eq!(reads, chunks.div_ceil(10).max(1));
    }
}

/// What a process that goes on writes last is output, which says nothing of an end.
#[test]
fn one_read_catches_up_with_a_process_that_goes_on() {
    let (now, mut out) = (start(), Vec::new());
    let mut model = Model::new(&[100; 20], 20, 64, true);
    let mut inbox = inbox(&config(1_000));
    inbox.interrupt();
    for _ in 0..3 {
        model.happen();
    }
    let spec = inbox.wants_read(now, true).unwrap();
    inbox.handle_read_started(spec);
    inbox.handle_read(now, &model.read(spec.after_seq(), spec.max_bytes()), &mut out).unwrap();
    assert!(!inbox.is_resyncing());
    consume_all(&mut inbox, now, &mut out);
    assert_eq!(inbox.wants_read(now, true), None);
    while let Some(event) = model.happen() {
        feed(&mut inbox, now, event, &mut out).unwrap();
        consume_all(&mut inbox, now, &mut out);
    }
    assert_eq!(check(&model, 0, &out), 0);
    assert!(inbox.is_over());
}

/// A plain peer does not say where it cuts: of it, a careful read is whole only by chance, and what is small is asked for
/// without a limit.
#[test]
fn a_break_under_a_read_does_not_keep_a_plain_peer_from_catching_up() {
    for large in [0, 3] {
        let (now, mut out) = (start(), Vec::new());
        let sizes: Vec<_> = (0..40).map(|index| if index < large { 100_000 } else { 100 }).collect();
        let mut model = Model::new(&sizes, 40, 64, false);
        let config = ClientConfig::default();
        let mut inbox = inbox(&config);
        inbox.interrupt();
        inbox.handle_read_started(inbox.wants_read(now, false).unwrap());
        inbox.interrupt();
        for _ in 0..5 {
            model.happen();
        }
        let mut limits = Vec::new();
        while inbox.is_resyncing() {
            assert!(limits.len() < 9, "{limits:?}");
            let spec = inbox.wants_read(now, false).unwrap();
            limits.push(spec.max_bytes());
            inbox.handle_read_started(spec);
            // It writes on while each answer is on its way.
            let event = model.happen().unwrap();
            feed(&mut inbox, now, event, &mut out).unwrap();
            inbox.handle_read(now, &model.read(spec.after_seq(), spec.max_bytes()), &mut out).unwrap();
            consume_all(&mut inbox, now, &mut out);
        }
        assert_eq!(limits.first(), Some(&Some(CAREFUL_BYTES)));
        assert_eq!(limits.len(), 2 + large, "{limits:?}");
        assert_eq!(limits.last(), Some(&None));
        while let Some(event) = model.happen() {
            feed(&mut inbox, now, event, &mut out).unwrap();
            consume_all(&mut inbox, now, &mut out);
        }
        assert_eq!(check(&model, 0, &out), 0);
        assert!(inbox.is_over());
    }
}

/// What comes live behind a part that is not read yet is let go, and read in its turn: it is not the peer's fault, however
/// much it is.
#[test]
fn a_process_that_goes_on_while_it_is_caught_up_is_not_failed() {
    let (now, mut out) = (start(), Vec::new());
    let mut model = Model::new(&[100; 80], 80, 99, true);
    let mut inbox = inbox(&config(1_000));
    for _ in 0..30 {
        model.happen();
    }
    inbox.interrupt();
    let spec = inbox.wants_read(now, true).unwrap();
    inbox.handle_read_started(spec);
    let first = model.read(spec.after_seq(), spec.max_bytes());
    inbox.handle_read(now, &first, &mut out).unwrap();
    while let Some(event) = model.happen() {
        feed(&mut inbox, now, event, &mut out).unwrap();
    }
    settle(&mut inbox, &model, now, &mut out);
    assert_eq!(check(&model, 0, &out), 0);
    assert!(inbox.is_over());
}

#[test]
fn attaching_behind_the_close_says_so() {
    let (now, mut model) = (start(), Model::new(&[10], 1, 9, false));
    while model.happen().is_some() {}
    let mut inbox = Inbox::attached(ProcessId::new("p"), 3, &config(1_000));
    inbox.handle_read_started(inbox.wants_read(now, false).unwrap());
    let error = inbox.handle_read(now, &model.read(3, None), &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "process p failed: it has closed, and no event follows number 3");
}

#[test]
fn reads_that_contradict_themselves_are_refused() {
    let now = start();
    let chunk = |seq, size| ReadChunk { seq, stream: OutputStream::Stdout, chunk: Base64(vec![0; size].into()) };
    let good = Model::new(&[], 0, 0, false).read(0, None);
    let bad = [
        ReadResult { chunks: vec![chunk(2, 1), chunk(1, 1)], next_seq: 3, ..good.clone() },
        ReadResult { chunks: vec![chunk(5, 1)], next_seq: 3, ..good.clone() },
        ReadResult { chunks: vec![chunk(1, 1)], closed: true, next_seq: 2, ..good.clone() },
        ReadResult { closed: true, next_seq: 1, ..good.clone() },
        ReadResult { failure: Some("gone".into()), ..good.clone() },
        ReadResult { next_seq: 0, chunks: vec![chunk(u64::MAX, 1)], ..good },
    ];
    for result in bad {
        let mut inbox = Inbox::attached(ProcessId::new("p"), 0, &config(1_000));
        inbox.handle_read_started(inbox.wants_read(now, false).unwrap());
        inbox.handle_read(now, &result, &mut Vec::new()).unwrap_err();
    }
}

#[test]
fn numbers_and_offsets_that_cannot_be_counted_are_refused() {
    let now = start();
    let beyond = i64::MAX as u64 + 1;
    let is_refused = |result: Result<(), WaitError>| {
        assert!(matches!(result, Err(WaitError::Peer(PeerMisbehaved::Protocol(_)))), "{result:?}");
    };
    for number in [beyond, u64::MAX - 1, u64::MAX] {
        let out = &mut Vec::new();
        is_refused(inbox(&config(1_000)).output(now, output(number, 1), out));
        is_refused(inbox(&config(1_000)).exited(now, exit(number, Some(true)), out));
        is_refused(inbox(&config(1_000)).closed(now, close(number), out));
        let totals = Some(Totals { stdout: number, stderr: 1, pty: 0 });
        is_refused(inbox(&config(1_000)).closed(now, Closed { totals, ..close(2) }, out));
        let mut good = Model::new(&[], 0, 0, false).read(0, None);
        good.longarm = Some(crate::wire::extension::ReadExtension::default());
        let chunk = ReadChunk { seq: number, stream: OutputStream::Stdout, chunk: Base64(vec![0].into()) };
        let mut bad = vec![good.clone(), good.clone(), good.clone(), good];
        bad[0].next_seq = number;
        bad[1].chunks.push(chunk);
        bad[2].longarm.as_mut().unwrap().offset = number;
        bad[3].longarm.as_mut().unwrap().total_bytes.pty = number;
        for result in bad {
            let mut inbox = Inbox::attached(ProcessId::new("p"), 0, &config(1_000));
            inbox.handle_read_started(inbox.wants_read(now, false).unwrap());
            is_refused(inbox.handle_read(now, &result, out));
        }
        assert!(out.is_empty());
    }
}

#[test]
fn a_read_that_knows_fewer_events_than_were_announced_is_refused() {
    let (now, mut out) = (start(), Vec::new());
    let mut inbox = inbox(&config(10));
    inbox.output(now, output(1, 10), &mut out).unwrap();
    inbox.output(now, output(2, 10), &mut out).unwrap();
    consume_all(&mut inbox, now, &mut out);
    inbox.handle_read_started(inbox.wants_read(now, false).unwrap());
    let liar = Model::new(&[], 0, 0, false).read(0, None);
    inbox.handle_read(now, &liar, &mut out).unwrap_err();
}

#[test]
fn a_discarded_process_is_acknowledged_as_it_comes() {
    let (now, mut out) = (start(), Vec::new());
    let mut inbox = inbox(&config(10));
    inbox.discard();
    for seq in 1..100 {
        inbox.output(now, output(seq, 100), &mut out).unwrap();
    }
    assert_eq!((out.len(), inbox.consumed_seq(), inbox.output_bytes()), (0, 99, 9_900));
    inbox.exited(now, exit(100, None), &mut out).unwrap();
    inbox.closed(now, close(101), &mut out).unwrap();
    assert!(inbox.is_over() && out.is_empty());
}

fn feed(inbox: &mut Inbox, now: Instant, event: Event, out: &mut Vec<Event>) -> Result<(), WaitError> {
    match event {
        Event::Output(output) => inbox.output(now, output, out),
        Event::Exited(exited) => {
            let fact = ExitFact { seq: exited.seq, status: exited.status, sandbox_denied: Some(exited.sandbox_denied) };
            inbox.exited(now, fact, out)
        }
        Event::Closed(closed) => inbox.closed(now, closed, out),
        Event::Gap(_) => Ok(()),
    }
}

fn consumption(out: &[Event]) -> Consumption {
    let bytes = |event: &Event| match event {
        Event::Output(output) => output.bytes.len() as u64,
        _ => 0,
    };
    Consumption { seq: out.last().map_or(0, Event::seq), bytes: out.iter().map(bytes).sum(), events: out.len() as u64 }
}

fn consume_all(inbox: &mut Inbox, now: Instant, out: &mut Vec<Event>) {
    loop {
        let before = out.len();
        let consumed = consumption(out);
        inbox.handle_consumed(now, consumed, out).unwrap();
        if out.len() == before {
            return;
        }
    }
}

/// Reads and consumes until nothing is wanted any more.
fn settle(inbox: &mut Inbox, model: &Model, now: Instant, out: &mut Vec<Event>) {
    loop {
        consume_all(inbox, now, out);
        let Some(spec) = inbox.wants_read(now, false) else { return };
        inbox.handle_read_started(spec);
        inbox.handle_read(now, &model.read(spec.after_seq(), spec.max_bytes()), out).unwrap();
    }
}
