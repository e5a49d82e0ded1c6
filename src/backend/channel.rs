//! Events for a backend of one's own: numbered, counted, bounded, and closed when nobody can write any more.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use crate::backend::EventSource;
use crate::error::{PeerMisbehaved, WaitError};
use crate::event::{Closed, Event, Exited, Gap, Output, OutputStream, Totals};
use crate::status::ExitStatus;

/// A sender for the events of one process, and the source that [`Spawned`](crate::backend::Spawned) wants.
///
/// At most `events` of them are held; then senders wait, and so does the process whose pipes they read. Give a clone of
/// the sender to each reader of a stream and to whoever waits for the exit: [`Event::Closed`] follows when the last clone
/// is dropped.
///
/// # Panics
///
/// If `events` is zero.
pub fn channel(events: usize) -> (EventSender, EventSource) {
    let (sender, items) = mpsc::channel(events);
    let numbered = Numbered { items, last_seq: 0, totals: Totals::default(), ended: false };
    (EventSender { items: sender }, Box::pin(numbered))
}

/// Sends the events of one process. See [`channel`].
///
/// When nobody wants the events any more, what is sent is discarded: a reader goes on reading, so that its process does
/// not wait for ever.
#[derive(Clone)]
pub struct EventSender {
    items: mpsc::Sender<Item>,
}

impl EventSender {
    /// Sends output; waits while too much is held. Empty output is left out.
    pub async fn output(&self, stream: OutputStream, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        if !bytes.is_empty() {
            self.send(Item::Output(stream, bytes)).await;
        }
    }

    /// Sends what comes from a reader as output, to its end.
    ///
    /// # Errors
    ///
    /// What the reader says. What came before was sent.
    pub async fn forward(self, stream: OutputStream, mut reader: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(CHUNK_BYTES);
            if reader.read_buf(&mut (&mut buffer).limit(CHUNK_BYTES)).await? == 0 {
                return Ok(());
            }
            self.output(stream, buffer.split().freeze()).await;
        }
    }

    /// Sends a gap in the place of so many events, at least one, which held so many bytes.
    ///
    /// The events end in an error if their numbers would exceed `i64::MAX`.
    pub async fn gap(&self, events: u64, bytes: Option<u64>) {
        self.send(Item::Gap { events, bytes }).await;
    }

    /// Sends the exit. To be called once.
    pub async fn exited(&self, status: ExitStatus) {
        self.send(Item::Exited(status)).await;
    }

    /// Ends the events with an error: nothing follows it.
    pub async fn fail(&self, error: WaitError) {
        self.send(Item::Failed(error)).await;
    }

    async fn send(&self, item: Item) {
        // An error means that nobody wants the events.
        let _ = self.items.send(item).await;
    }
}

impl fmt::Debug for EventSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSender").finish_non_exhaustive()
    }
}

enum Item {
    Output(OutputStream, Bytes),
    Gap { events: u64, bytes: Option<u64> },
    Exited(ExitStatus),
    Failed(WaitError),
}

struct Numbered {
    items: mpsc::Receiver<Item>,
    last_seq: u64,
    totals: Totals,
    ended: bool,
}

impl Numbered {
    fn number(&mut self, item: Option<Item>) -> Result<Event, WaitError> {
        let seq = self.last_seq + 1;
        let events = match &item {
            Some(Item::Gap { events, .. }) => (*events).max(1),
            _ => 1,
        };
        // Below the limit there is always a number for the next event.
        let last_seq = self.last_seq.checked_add(events).filter(|last| *last <= MAX_SEQ);
        let Some(last_seq) = last_seq else {
            self.ended = true;
            return Err(PeerMisbehaved::Protocol("more events than can be counted".into()).into());
        };
        self.last_seq = last_seq;
        Ok(match item {
            Some(Item::Output(stream, bytes)) => {
                self.totals.add(stream, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                Event::Output(Output { seq, stream, bytes })
            }
            Some(Item::Gap { bytes, .. }) => Event::Gap(Gap { first_seq: seq, last_seq, bytes }),
            Some(Item::Exited(status)) => Event::Exited(Exited { seq, status, sandbox_denied: false }),
            Some(Item::Failed(error)) => {
                self.ended = true;
                return Err(error);
            }
            None => {
                self.ended = true;
                Event::Closed(Closed { seq, totals: Some(self.totals), cut: false })
            }
        })
    }
}

const CHUNK_BYTES: usize = 64 << 10;

/// The largest number of an event, as many peers count them in signed numbers.
const MAX_SEQ: u64 = i64::MAX as u64;

impl Stream for Numbered {
    type Item = Result<Event, WaitError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.items.poll_recv(cx).map(|item| Some(self.number(item)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[tokio::test]
    async fn events_are_numbered_counted_and_closed_with_the_last_sender() {
        let (sender, events) = channel(8);
        sender.output(OutputStream::Stdout, "ab").await;
        sender.output(OutputStream::Stdout, "").await;
        sender.gap(3, None).await;
        let reader = sender.clone();
        sender.exited(ExitStatus::exited(1)).await;
        drop(sender);
        reader.output(OutputStream::Stderr, "c").await;
        drop(reader);
        let seqs: Vec<_> = events.map(Result::unwrap).collect().await;
        assert_eq!(seqs.iter().map(Event::seq).collect::<Vec<_>>(), [1, 4, 5, 6, 7]);
        let totals = Totals { stdout: 2, stderr: 1, pty: 0 };
        assert_eq!(seqs.last(), Some(&Event::Closed(Closed { seq: 7, totals: Some(totals), cut: false })));
    }

    #[tokio::test]
    async fn what_a_reader_has_is_forwarded_to_its_end() {
        let (sender, events) = channel(1);
        let written: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let reader = io::Cursor::new(written.clone());
        let forwarding = tokio::spawn(async move { sender.forward(OutputStream::Stdout, reader).await });
        let mut read = Vec::new();
        for event in events.map(Result::unwrap).collect::<Vec<_>>().await {
            match event {
                Event::Output(output) => read.extend_from_slice(&output.bytes),
                other => assert!(matches!(other, Event::Closed(_)), "{other:?}"),
            }
        }
        assert!(read == written, "it is the same");
        forwarding.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn nothing_waits_for_events_that_nobody_wants() {
        let (sender, events) = channel(1);
        drop(events);
        for _ in 0..3 {
            sender.output(OutputStream::Pty, "x").await;
        }
    }

    #[tokio::test]
    async fn more_events_than_can_be_counted_are_an_error() {
        for (events, fits) in [(MAX_SEQ - 2, true), (MAX_SEQ - 1, false), (MAX_SEQ, false), (u64::MAX, false)] {
            let (sender, source) = channel(8);
            sender.output(OutputStream::Stdout, "ab").await;
            sender.gap(events, Some(u64::MAX)).await;
            drop(sender);
            let items: Vec<_> = source.collect().await;
            match items.last() {
                Some(Ok(Event::Closed(closed))) => assert!(fits && closed.seq == MAX_SEQ, "{events}: {items:?}"),
                Some(Err(WaitError::Peer(PeerMisbehaved::Protocol(_)))) => assert!(!fits, "{events}: {items:?}"),
                other => panic!("{events}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn nothing_follows_an_error() {
        let (sender, events) = channel(8);
        sender.fail(WaitError::Closed).await;
        sender.exited(ExitStatus::exited(0)).await;
        drop(sender);
        let items: Vec<_> = events.collect().await;
        assert!(matches!(items.as_slice(), [Err(WaitError::Closed)]), "{items:?}");
    }
}
