//! One process as a peer sees it: all its events, how many have happened, and what is retained of them.

use bytes::Bytes;

use crate::event::{Closed, Event, Exited, Output, OutputStream};
use crate::status::ExitStatus;
use crate::wire::Base64;
use crate::wire::extension::{ReadExtension, TotalBytes};
use crate::wire::process::{ReadChunk, ReadResult};

/// The peer's process.
#[derive(Clone, Debug)]
pub(in crate::core::session) struct Model {
    /// All events of its life, in order.
    pub(in crate::core::session) events: Vec<Event>,
    /// How many of them have happened.
    pub(in crate::core::session) happened: usize,
    /// How many chunks are retained.
    pub(in crate::core::session) retained: usize,
    /// Whether the peer has the extension.
    pub(in crate::core::session) extended: bool,
}

impl Model {
    /// A process that writes chunks of these sizes, and exits after `exit_at` of them.
    pub(in crate::core::session) fn new(chunks: &[usize], exit_at: usize, retained: usize, extended: bool) -> Self {
        let mut events = Vec::new();
        let mut seq = 0;
        let mut next = || {
            seq += 1;
            seq
        };
        let status = ExitStatus::exited(7);
        for (index, size) in chunks.iter().enumerate() {
            if index == exit_at.min(chunks.len()) {
                events.push(Event::Exited(Exited { seq: next(), status, sandbox_denied: true }));
            }
            let seq = next();
            let byte = u8::try_from(seq % 251).unwrap();
            let bytes = Bytes::from(vec![byte; *size]);
            events.push(Event::Output(Output { seq, stream: OutputStream::Stdout, bytes }));
        }
        if exit_at >= chunks.len() {
            events.push(Event::Exited(Exited { seq: next(), status, sandbox_denied: true }));
        }
        events.push(Event::Closed(Closed { seq: next(), totals: None, cut: false }));
        Self { events, happened: 0, retained, extended }
    }

    /// The next event, which happens now.
    pub(in crate::core::session) fn happen(&mut self) -> Option<Event> {
        let event = self.events.get(self.happened)?.clone();
        self.happened += 1;
        Some(event)
    }

    /// What `process/read` says now.
    pub(in crate::core::session) fn read(&self, after_seq: u64, max_bytes: Option<u64>) -> ReadResult {
        let past = &self.events[..self.happened];
        let outputs: Vec<_> = past
            .iter()
            .filter_map(|event| match event {
                Event::Output(output) => Some(output),
                _ => None,
            })
            .collect();
        let retained = &outputs[outputs.len().saturating_sub(self.retained)..];
        let (mut chunks, mut sum, mut more) = (Vec::new(), 0, false);
        let mut offset = outputs.iter().map(|output| output.bytes.len() as u64).sum();
        for output in retained.iter().filter(|output| output.seq > after_seq) {
            let size = output.bytes.len() as u64;
            if !chunks.is_empty() && max_bytes.is_some_and(|max| sum >= max || sum + size > max) {
                more = true;
                break;
            }
            sum += size;
            if chunks.is_empty() {
                let before = outputs.iter().filter(|other| other.seq < output.seq);
                offset = before.map(|output| output.bytes.len() as u64).sum();
            }
            let chunk = Base64(output.bytes.clone());
            chunks.push(ReadChunk { seq: output.seq, stream: output.stream, chunk });
        }
        let process_next_seq = self.happened as u64 + 1;
        let next_seq = match (max_bytes, chunks.last()) {
            (Some(_), Some(last)) => last.seq + 1,
            _ => process_next_seq,
        };
        let exit = past.iter().find_map(|event| match event {
            Event::Exited(exited) => Some(*exited),
            _ => None,
        });
        let stdout = outputs.iter().map(|output| output.bytes.len() as u64).sum();
        ReadResult {
            chunks,
            next_seq,
            exited: exit.is_some(),
            exit_code: exit.map(|exit| exit.status.wire_code()),
            closed: matches!(past.last(), Some(Event::Closed(_))),
            failure: None,
            sandbox_denied: exit.is_some_and(|exit| exit.sandbox_denied),
            longarm: self.extended.then(|| ReadExtension {
                total_bytes: TotalBytes { stdout, stderr: 0, pty: 0 },
                offset,
                exit_seq: exit.map(|exit| exit.seq),
                more,
                next_seq: (!more && next_seq != process_next_seq).then_some(process_next_seq),
                ..Default::default()
            }),
        }
    }
}

/// Checks what a reader got against what happened: rising numbers, gaps in place of what is missing, one exit, one close
/// at the end. Returns how many events are in gaps.
pub(in crate::core::session) fn check(model: &Model, after_seq: u64, got: &[Event]) -> u64 {
    let mut next = after_seq + 1;
    let (mut missing, mut exits) = (0, 0);
    for event in got {
        match event {
            Event::Gap(gap) => {
                assert_eq!(gap.first_seq, next, "a gap begins where the last event ended");
                assert!(gap.last_seq >= gap.first_seq);
                missing += gap.last_seq - gap.first_seq + 1;
                if let Some(bytes) = gap.bytes {
                    let lost =
                        model.events.iter().filter(|event| (gap.first_seq..=gap.last_seq).contains(&event.seq()));
                    let lost: usize = lost
                        .map(|event| match event {
                            Event::Output(output) => output.bytes.len(),
                            _ => 0,
                        })
                        .sum();
                    assert_eq!(bytes, lost as u64, "the size of {gap:?}");
                }
            }
            other => {
                assert_eq!(other.seq(), next, "no hole before {other:?}");
                let exited = matches!(other, Event::Exited(_));
                exits += usize::from(exited);
                let truth = &model.events[usize::try_from(next).unwrap() - 1];
                let same = match (other, truth) {
                    // The totals are for the peer to tell.
                    (Event::Closed(_), Event::Closed(_)) => true,
                    // What stands at the number of a lost event may be the exit, whose own number is not known then.
                    _ => other == truth || (exited && missing > 0),
                };
                assert!(same, "{other:?} is not {truth:?}");
            }
        }
        next = event.seq() + 1;
    }
    if let Some(Event::Closed(closed)) = got.last() {
        assert_eq!(closed.seq, model.events.len() as u64);
        assert_eq!(exits, 1, "one exit");
    }
    missing
}
