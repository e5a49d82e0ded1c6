//! The events of one process on their way from the connection's task to their reader.
//!
//! The queue between them is not bounded by itself: the state machine hands out no more than the reader's window, which
//! it knows from the [`Meter`]. So nothing is locked and nobody waits on the path of a chunk.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::mpsc;

use super::command::{Command, Link};
use crate::core::session::{Consumption, RouteKey};
use crate::error::{Sent, WaitError};
use crate::event::Event;
use crate::sandbox::Denial;

/// The reader's end: the event stream of a process. Dropping it tells the peer that nobody wants the output.
#[derive(Debug)]
pub(super) struct Events {
    queue: mpsc::UnboundedReceiver<Result<Event, WaitError>>,
    sink: Option<EventSink>,
    meter: Arc<Meter>,
    link: Arc<Link>,
    route: RouteKey,
    /// What was taken since the last notice.
    unreported_bytes: u64,
    unreported_events: u64,
    finished: bool,
}

impl Events {
    /// `denial` is where the evidence of a denial is put.
    pub(super) fn new(link: Arc<Link>, route: RouteKey, denial: &Arc<OnceLock<Denial>>) -> Self {
        let (sender, queue) = mpsc::unbounded_channel();
        let meter = Arc::new(Meter::default());
        let sink = Some(EventSink { sender, meter: Arc::clone(&meter), denial: Arc::clone(denial) });
        Self { queue, sink, meter, link, route, unreported_bytes: 0, unreported_events: 0, finished: false }
    }

    /// The sender's end, once.
    pub(super) fn take_sink(&mut self) -> Option<EventSink> {
        self.sink.take()
    }

    /// Tells the connection's task what was taken, unless a notice is under way already, which will find it.
    fn report(&mut self) {
        self.unreported_bytes = 0;
        self.unreported_events = 0;
        if !self.meter.notice_queued.swap(true, Ordering::AcqRel) {
            self.link.send(Command::Consumed(self.route));
        }
    }
}

impl Stream for Events {
    type Item = Result<Event, WaitError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.finished {
            return Poll::Ready(None);
        }
        match self.queue.poll_recv(cx) {
            Poll::Ready(Some(item)) => {
                match &item {
                    Ok(event) => {
                        let bytes = self.meter.take(event);
                        self.unreported_bytes += bytes;
                        self.unreported_events += 1;
                        self.finished = matches!(event, Event::Closed(_));
                    }
                    Err(_) => self.finished = true,
                }
                if self.finished || self.unreported_bytes >= REPORT_BYTES || self.unreported_events >= REPORT_EVENTS {
                    self.report();
                }
                Poll::Ready(Some(item))
            }
            Poll::Ready(None) => {
                self.finished = true;
                let disconnected = self.link.disconnected(Sent::Unknown);
                Poll::Ready(Some(Err(disconnected.into())))
            }
            Poll::Pending => {
                // The reader has caught up: whoever waits for that must hear of it.
                if self.unreported_events > 0 {
                    self.report();
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.link.send(Command::Discard(self.route));
    }
}

/// The sender's end, kept by the connection's task.
#[derive(Debug)]
pub(super) struct EventSink {
    sender: mpsc::UnboundedSender<Result<Event, WaitError>>,
    meter: Arc<Meter>,
    denial: Arc<OnceLock<Denial>>,
}

impl EventSink {
    /// Hands over an event. A reader that is gone has said so by a command.
    pub(super) fn send(&self, event: Result<Event, WaitError>) {
        let _ = self.sender.send(event);
    }

    /// Keeps the evidence of a denial for whoever asks, once the exit has come. A process exits once.
    pub(super) fn note_denial(&self, denial: Denial) {
        self.denial.get_or_init(|| denial);
    }

    /// What the reader has taken since the start.
    pub(super) fn consumption(&self) -> Consumption {
        // Cleared first: what is taken after it queues a new notice.
        self.meter.notice_queued.store(false, Ordering::Release);
        Consumption {
            seq: self.meter.seq.load(Ordering::Acquire),
            bytes: self.meter.bytes.load(Ordering::Acquire),
            events: self.meter.events.load(Ordering::Acquire),
        }
    }
}

/// What the reader has taken, in all.
#[derive(Debug, Default)]
struct Meter {
    seq: AtomicU64,
    bytes: AtomicU64,
    events: AtomicU64,
    notice_queued: AtomicBool,
}

impl Meter {
    /// Counts an event as taken; returns its bytes. There is one reader, so each counter has one writer.
    fn take(&self, event: &Event) -> u64 {
        let bytes = match event {
            Event::Output(output) => output.bytes.len() as u64,
            Event::Gap(_) | Event::Exited(_) | Event::Closed(_) => 0,
        };
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        self.events.fetch_add(1, Ordering::AcqRel);
        self.seq.store(event.seq(), Ordering::Release);
        bytes
    }
}

/// The reader reports when it has taken this much, and when nothing is left.
const REPORT_BYTES: u64 = 64 << 10;
const REPORT_EVENTS: u64 = 1_024;
