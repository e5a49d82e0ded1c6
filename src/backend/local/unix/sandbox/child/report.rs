//! What became of the processes, as they tell the parent.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::super::direct;
use super::{Failure, STAGES};

/// What became of it. Lives in memory that all of them share.
#[derive(Debug, Default)]
pub(in crate::backend::local::unix) struct Report {
    /// What failed in the builder or the command, one of which runs at a time.
    pub(super) fault: Fault,
    /// What failed in the init.
    pub(super) first_fault: Fault,
    /// The init has done its part, and is about to execute its program.
    pub(in super::super) is_ready: AtomicI32,
    /// The builder came to its end.
    pub(in super::super) done: AtomicI32,
    pub(in super::super) init: Sibling,
    pub(in super::super) command: Sibling,
    /// The error because of which the filter tells nobody.
    pub(in super::super) not_told: AtomicI32,
    /// The mask of file modes that the command gets back.
    pub(super) umask: AtomicU32,
}

impl Report {
    /// The mask of file modes that the command gets back.
    pub(in crate::backend::local::unix) fn umask(&self) -> &AtomicU32 {
        &self.umask
    }

    /// Forgets what failed, so that another one can begin.
    pub(in super::super) fn clear(&self) {
        [&self.fault, &self.first_fault].into_iter().for_each(Fault::clear);
        [&self.init, &self.command].into_iter().for_each(Sibling::clear);
        [&self.is_ready, &self.done, &self.not_told].into_iter().for_each(|number| number.store(0, Ordering::Relaxed));
    }

    /// What failed, if anything did. That of the init comes first: without it, nothing of the builder's is of use.
    pub(in super::super) fn failure(&self) -> Option<Failure> {
        self.first_fault.failure().or_else(|| self.fault.failure())
    }
}

/// What failed, as one process writes it, and others read it who wait for that one.
#[derive(Debug, Default)]
pub(super) struct Fault {
    /// A [`Stage`](super::Stage); zero if all went well.
    stage: AtomicI32,
    index: AtomicI32,
    errno: AtomicI32,
}

impl Fault {
    pub(super) fn store(&self, failure: Failure) {
        self.errno.store(failure.errno, Ordering::Relaxed);
        self.index.store(i32::try_from(failure.index).unwrap_or(i32::MAX), Ordering::Relaxed);
        self.stage.store(failure.stage as i32, Ordering::Relaxed);
    }

    fn clear(&self) {
        [&self.stage, &self.index, &self.errno].into_iter().for_each(|number| number.store(0, Ordering::Relaxed));
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        let stage = self.stage.load(Ordering::Relaxed);
        let stage = STAGES.into_iter().find(|known| *known as i32 == stage)?;
        let index = usize::try_from(self.index.load(Ordering::Relaxed)).unwrap_or_default();
        Some(Failure { stage, index, errno: self.errno.load(Ordering::Relaxed) })
    }
}

/// A process that the builder makes. The kernel writes both numbers.
#[derive(Debug)]
pub(in super::super) struct Sibling {
    /// Its number, as soon as it is born and before it runs; zero before.
    pub(in super::super) number: AtomicI32,
    /// Zero once it has left this memory, since it has executed its program or ended. It is not zero before the birth either: so
    /// nobody has to write it who might be killed before he does. While it is here, it says how far it is.
    pub(super) memory: AtomicU32,
}

impl Default for Sibling {
    fn default() -> Self {
        Self { number: AtomicI32::new(0), memory: AtomicU32::new(USED) }
    }
}

/// It is here, or not born.
const USED: u32 = 1;
/// It is here, and what others need of it is done.
const SERVED: u32 = 2;

impl Sibling {
    /// For itself: what others need of it is done.
    pub(super) fn serve(&self) {
        self.memory.store(SERVED, Ordering::Release);
        direct::wake_all(&self.memory);
    }

    /// Waits until what others need of it is done, or it has left this memory; for whoever has made it.
    pub(super) fn wait_served(&self) {
        while self.memory.load(Ordering::Acquire) == USED {
            direct::wait_while(&self.memory, USED);
        }
    }

    fn clear(&self) {
        self.number.store(0, Ordering::Relaxed);
        self.memory.store(USED, Ordering::Relaxed);
    }

    /// Waits until it has left this memory, if it was born; for whoever has made it, or has seen the end of who might have.
    pub(in super::super) fn wait(&self) {
        while self.number.load(Ordering::Relaxed) != 0 {
            match self.memory.load(Ordering::Acquire) {
                0 => break,
                here => direct::wait_while(&self.memory, here),
            }
        }
    }
}
