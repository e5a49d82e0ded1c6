use futures_util::stream;

use super::*;
use crate::backend::{ProcessControl, Terminate};
use crate::core::peer::keys;
use crate::error::{SignalError, WriteError};
use crate::event::{Closed, Output, OutputStream};
use crate::request::{ProcessId, Signal, TerminalSize};

#[derive(Debug)]
struct NoControl;

#[async_trait::async_trait]
impl ProcessControl for NoControl {
    async fn write(&self, _: bytes::Bytes) -> Result<(), WriteError> {
        Ok(())
    }

    async fn close_stdin(&self) -> Result<(), WriteError> {
        Ok(())
    }

    async fn resize(&self, _: TerminalSize) -> Result<(), SignalError> {
        Ok(())
    }

    async fn signal(&self, _: Signal) -> Result<(), SignalError> {
        Ok(())
    }

    async fn terminate(&self, _: Terminate) -> Result<bool, SignalError> {
        Ok(false)
    }

    fn kill_now(&self) {}

    async fn detach(&self) -> Result<(), SignalError> {
        Ok(())
    }
}

/// Slots with one started process for each list of events.
fn started(events: Vec<Vec<Event>>) -> Slots {
    let mut slots = Slots::default();
    for (key, events) in keys(events.len()).into_iter().zip(events) {
        slots.starting(key, AbortHandle::new_pair().0);
        let events: EventSource = Box::pin(stream::iter(events.into_iter().map(Ok)));
        let spawned =
            Spawned { process_id: ProcessId::new("p"), control: Arc::new(NoControl), events, sandbox_type: None };
        assert!(slots.started(key, spawned).is_ok());
    }
    slots
}

fn output(seq: u64) -> Event {
    Event::Output(Output { seq, stream: OutputStream::Stdout, bytes: bytes::Bytes::from_static(b"x") })
}

const fn closed(seq: u64) -> Event {
    Event::Closed(Closed { seq, totals: None, cut: false })
}

#[test]
fn a_process_that_has_told_everything_costs_no_turn() {
    let mut slots = started(vec![vec![output(1), closed(2)], vec![output(1)]]);
    assert_eq!(slots.take_ready(), [0, 1]);
    assert!(matches!(slots.poll_event(0), Poll::Ready(Some(Ok(Event::Output(_))))));
    assert!(matches!(slots.poll_event(0), Poll::Ready(Some(Ok(Event::Closed(_))))));
    slots.end_events(0);
    slots.put_back(1);
    slots.collect_marks(&Context::from_waker(Waker::noop()));
    assert_eq!(slots.take_ready(), [1]);
    assert!(slots.poll_event(0).is_pending());
}

#[test]
fn the_stream_of_a_process_that_nobody_follows_any_more_is_dropped() {
    let (sender, receiver) = channel();
    let mut slots = Slots::default();
    let key = keys(1).remove(0);
    slots.starting(key, AbortHandle::new_pair().0);
    let spawned =
        Spawned { process_id: ProcessId::new("p"), control: Arc::new(NoControl), events: receiver, sandbox_type: None };
    assert!(slots.started(key, spawned).is_ok());
    slots.take_ready();
    assert!(slots.poll_event(0).is_pending());
    assert!(!sender.is_closed());
    slots.end_events(0);
    assert!(sender.is_closed());
}

fn channel() -> (tokio::sync::mpsc::Sender<Event>, EventSource) {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let events = stream::poll_fn(move |cx| receiver.poll_recv(cx).map(|event| event.map(Ok)));
    (sender, Box::pin(events))
}
