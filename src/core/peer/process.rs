//! The processes of a session: what the server knows of each, and where it is found.

use std::collections::{HashMap, VecDeque};

use super::calls::StdinCall;
use super::request::{Call, Request};
use crate::core::replay::ProcessLog;
use crate::core::stdin_queue::StdinQueue;
use crate::request::ProcessId;
use crate::time::Instant;
use crate::wire::codec::hot::OutputEncoder;
use crate::wire::extension::ProcessState;
use crate::wire::sandbox::DenialReport;

/// Names a process of a session for as long as the server knows it; never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ProcessKey {
    slot: usize,
    serial: u64,
}

impl ProcessKey {
    /// A small number that no other process has at the same time.
    pub(crate) const fn slot(self) -> usize {
        self.slot
    }

    /// Rises from process to process.
    pub(super) const fn serial(self) -> u64 {
        self.serial
    }
}

/// One process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: ProcessId,
    pub(super) tty: bool,
    pub(super) phase: Phase,
    pub(super) log: ProcessLog,
    pub(super) stdin: StdinQueue<StdinCall>,
    pub(super) reads: Vec<WaitingRead>,
    /// Its place among the closed ones, once it is closed.
    pub(super) closed_place: Option<u64>,
    /// When it is forgotten, while that time runs.
    pub(super) forget_at: Option<Instant>,
    /// Whether the process is in the round of those with something to send.
    pub(super) in_round: bool,
    /// Writes its output notifications.
    pub(super) encoder: OutputEncoder,
    /// On which evidence its sandbox denied something.
    pub(super) denial: Option<DenialReport>,
}

/// How far the start is. What comes later is in the log.
#[derive(Debug)]
pub(super) enum Phase {
    /// The backend is starting it.
    Starting {
        /// Who is to be answered.
        call: Call,
        /// Requests that name the process and wait for the start, in order.
        held: VecDeque<(Call, Request)>,
    },
    /// It was started.
    Started,
}

/// A `process/read` that waits.
#[derive(Debug)]
pub(super) struct WaitingRead {
    pub(super) call: Call,
    pub(super) after_seq: u64,
    pub(super) max_bytes: Option<u64>,
    pub(super) serial: u64,
    pub(super) deadline: Option<Instant>,
}

impl Process {
    pub(super) fn state(&self) -> ProcessState {
        match &self.phase {
            Phase::Starting { .. } => ProcessState::Starting,
            Phase::Started if self.log.close().is_some() => ProcessState::Closed,
            Phase::Started if self.log.exit().is_some() => ProcessState::Exited,
            Phase::Started => ProcessState::Running,
        }
    }

    pub(super) const fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Starting { .. })
    }
}

/// All processes of a session, by key and by id.
#[derive(Debug, Default)]
pub(super) struct Processes {
    slots: Vec<Option<(u64, Process)>>,
    free: Vec<usize>,
    by_id: HashMap<ProcessId, ProcessKey>,
    next_serial: u64,
}

impl Processes {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds a process. Its id must be free.
    pub(super) fn insert(&mut self, process: Process) -> ProcessKey {
        let serial = self.next_serial;
        self.next_serial += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let key = ProcessKey { slot, serial };
        let replaced = self.by_id.insert(process.id.clone(), key);
        debug_assert!(replaced.is_none(), "the id was free");
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some((serial, process));
        }
        key
    }

    pub(super) fn remove(&mut self, key: ProcessKey) -> Option<Process> {
        let place = self.slots.get_mut(key.slot)?;
        let (_, process) = place.take_if(|(serial, _)| *serial == key.serial)?;
        self.free.push(key.slot);
        self.by_id.remove(&process.id);
        Some(process)
    }

    pub(super) fn key(&self, id: &ProcessId) -> Option<ProcessKey> {
        self.by_id.get(id).copied()
    }

    pub(super) fn get(&self, key: ProcessKey) -> Option<&Process> {
        match self.slots.get(key.slot)? {
            Some((serial, process)) if *serial == key.serial => Some(process),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, key: ProcessKey) -> Option<&mut Process> {
        match self.slots.get_mut(key.slot)? {
            Some((serial, process)) if *serial == key.serial => Some(process),
            _ => None,
        }
    }

    #[cfg(test)]
    pub(super) const fn key_of(slot: usize) -> ProcessKey {
        ProcessKey { slot, serial: 0 }
    }

    /// All of them, in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ProcessKey, &Process)> {
        self.slots.iter().enumerate().filter_map(|(slot, place)| {
            let (serial, process) = place.as_ref()?;
            Some((ProcessKey { slot, serial: *serial }, process))
        })
    }

    pub(super) fn keys(&self) -> Vec<ProcessKey> {
        self.iter().map(|(key, _)| key).collect()
    }
}
