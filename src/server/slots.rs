//! The backend's side of a session's processes, and which of them have events to pull.
//!
//! Every slot has its own waker, which marks the slot and wakes the task; so a wake-up costs the task the marked slots
//! only, however many processes there are, and an event costs no allocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::AbortHandle;
use futures_util::task::AtomicWaker;

use crate::backend::{EventSource, ProcessControl, Spawned};
use crate::core::peer::ProcessKey;
use crate::error::WaitError;
use crate::event::Event;

/// The processes of a session by the numbers of their slots.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<Slot>>,
    marks: Marks,
    /// Slots that were marked and have not been polled to the end since.
    ready: Vec<usize>,
}

#[derive(Debug)]
struct Slot {
    key: ProcessKey,
    process: Process,
    /// Whether it is among `ready`.
    is_ready: bool,
    waker: Waker,
}

#[derive(Debug)]
enum Process {
    Starting(AbortHandle),
    Started {
        control: Arc<dyn ProcessControl>,
        events: Option<Events>,
        /// Gives up a write that the backend is busy with.
        stdin: Option<AbortHandle>,
    },
}

/// A stream of events, which need not be printable.
struct Events(EventSource);

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

impl Slots {
    /// Notes a start, which `abort` gives up.
    pub(super) fn starting(&mut self, key: ProcessKey, abort: AbortHandle) {
        let slot = key.slot();
        while self.slots.len() <= slot {
            self.slots.push(None);
        }
        let waker = self.marks.waker(slot);
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(Slot { key, process: Process::Starting(abort), is_ready: false, waker });
        }
    }

    /// Notes that a start has succeeded. Gives the process back if nobody waits for it any more.
    pub(super) fn started(&mut self, key: ProcessKey, spawned: Spawned) -> Result<(), Spawned> {
        let Some(slot) = self.get_mut(key) else { return Err(spawned) };
        let Spawned { control, events, .. } = spawned;
        slot.process = Process::Started { control, events: Some(Events(events)), stdin: None };
        // Nothing has polled the events yet, so that nothing would wake the slot.
        if !std::mem::replace(&mut slot.is_ready, true) {
            self.ready.push(key.slot());
        }
        Ok(())
    }

    pub(super) fn control(&self, key: ProcessKey) -> Option<&Arc<dyn ProcessControl>> {
        match &self.slots.get(key.slot())?.as_ref().filter(|slot| slot.key == key)?.process {
            Process::Started { control, .. } => Some(control),
            Process::Starting(_) => None,
        }
    }

    /// Notes how to give up the write that the backend is busy with.
    pub(super) fn set_stdin_abort(&mut self, key: ProcessKey, abort: AbortHandle) {
        if let Some(Slot { process: Process::Started { stdin, .. }, .. }) = self.get_mut(key) {
            *stdin = Some(abort);
        }
    }

    /// Drops all that there is of a process; a start or a write that is going on is given up.
    pub(super) fn forget(&mut self, key: ProcessKey) {
        let Some(place) = self.slots.get_mut(key.slot()) else { return };
        if let Some(slot) = place.take_if(|slot| slot.key == key) {
            match slot.process {
                Process::Starting(abort) | Process::Started { stdin: Some(abort), .. } => abort.abort(),
                Process::Started { stdin: None, .. } => {}
            }
        }
    }

    /// Kills what runs, at once.
    pub(super) fn kill(&self, key: ProcessKey) {
        if let Some(control) = self.control(key) {
            control.kill_now();
        }
    }

    /// Wakes the task of `cx` when a slot is marked, and collects those that are.
    pub(super) fn collect_marks(&mut self, cx: &Context<'_>) {
        self.marks.register(cx.waker());
        let Self { slots, marks, ready } = self;
        marks.take(|index| {
            if let Some(Some(slot)) = slots.get_mut(index)
                && !std::mem::replace(&mut slot.is_ready, true)
            {
                ready.push(index);
            }
        });
    }

    /// Takes the slots that may have events. Each has to be given back with [`Self::put_back`] unless
    /// [`Self::poll_event`] said that it is pending.
    pub(super) fn take_ready(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.ready)
    }

    /// Gives an emptied list back, whose allocation is used again.
    pub(super) fn recycle(&mut self, mut list: Vec<usize>) {
        if self.ready.is_empty() {
            list.clear();
            self.ready = list;
        }
    }

    pub(super) fn put_back(&mut self, index: usize) {
        self.ready.push(index);
    }

    pub(super) fn key_at(&self, index: usize) -> Option<ProcessKey> {
        Some(self.slots.get(index)?.as_ref()?.key)
    }

    /// The next event of the process in this slot. Pending also if there is no process, or none that has events.
    pub(super) fn poll_event(&mut self, index: usize) -> Poll<Option<Result<Event, WaitError>>> {
        let Some(Some(slot)) = self.slots.get_mut(index) else { return Poll::Pending };
        let Process::Started { events, .. } = &mut slot.process else {
            slot.is_ready = false;
            return Poll::Pending;
        };
        let Some(Events(stream)) = events else {
            slot.is_ready = false;
            return Poll::Pending;
        };
        let next = stream.as_mut().poll_next(&mut Context::from_waker(&slot.waker));
        match &next {
            Poll::Pending => slot.is_ready = false,
            Poll::Ready(Some(Ok(Event::Closed(_)) | Err(_)) | None) => *events = None,
            Poll::Ready(Some(Ok(_))) => {}
        }
        next
    }

    /// Nothing more is to be pulled of the process in this slot, which was taken with [`Self::take_ready`]. Its stream is
    /// dropped, which tells the backend so.
    pub(super) fn end_events(&mut self, index: usize) {
        if let Some(Some(slot)) = self.slots.get_mut(index) {
            slot.is_ready = false;
            if let Process::Started { events, .. } = &mut slot.process {
                *events = None;
            }
        }
    }

    fn get_mut(&mut self, key: ProcessKey) -> Option<&mut Slot> {
        self.slots.get_mut(key.slot())?.as_mut().filter(|slot| slot.key == key)
    }
}

/// One bit for each slot, and the task to wake.
#[derive(Debug, Default)]
struct Marks {
    task: Arc<AtomicWaker>,
    words: Vec<Arc<Word>>,
}

#[derive(Debug)]
struct Word {
    task: Arc<AtomicWaker>,
    bits: AtomicU64,
}

impl Marks {
    fn waker(&mut self, slot: usize) -> Waker {
        let index = slot / WORD_BITS;
        while self.words.len() <= index {
            self.words.push(Arc::new(Word { task: Arc::clone(&self.task), bits: AtomicU64::new(0) }));
        }
        match self.words.get(index) {
            Some(word) => Arc::new(Mark { word: Arc::clone(word), bit: 1 << (slot % WORD_BITS) }).into(),
            None => Waker::noop().clone(),
        }
    }

    fn register(&self, waker: &Waker) {
        self.task.register(waker);
    }

    /// Calls `each` with every marked slot, and takes the marks away.
    fn take(&self, mut each: impl FnMut(usize)) {
        for (index, word) in self.words.iter().enumerate() {
            // The load spares the exchange, which is dearer, in the usual case.
            if word.bits.load(Ordering::Acquire) == 0 {
                continue;
            }
            let mut bits = word.bits.swap(0, Ordering::AcqRel);
            while bits != 0 {
                each(index * WORD_BITS + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}

/// The waker of one slot.
struct Mark {
    word: Arc<Word>,
    bit: u64,
}

impl Wake for Mark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Who set a bit that is still set has woken the task, or is about to; and the task registers before it looks.
        if self.word.bits.fetch_or(self.bit, Ordering::AcqRel) & self.bit == 0 {
            self.word.task.wake();
        }
    }
}

const WORD_BITS: usize = 64;

#[cfg(test)]
mod tests;
