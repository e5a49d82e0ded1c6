//! Processes that may write where a directory stands for a name: what is held for one process must not keep another one from
//! what it may do.

use std::io;
use std::sync::Arc;

use rustix::fs::Mode;

use super::directory::{Identity, LENT, MODE, Thing, is_empty};
use super::{Remains, Shared, State};
use crate::sandbox::{Access, Bound, Existing};

/// A process that may write somewhere.
#[derive(Debug)]
pub(super) struct Writer {
    bound: Arc<Bound>,
    /// Directories that it may put something into, each of which counts it among its users: it may be about to.
    lent: Vec<Identity>,
}

impl Shared {
    /// A process that may do so much is to run: directories that stand where it may write are lent to it until it is
    /// dismissed, also those that come to stand there while it runs. Of other executors they are found by the entries.
    pub(super) fn admit(&self, bound: &Arc<Bound>) -> io::Result<Option<u64>> {
        let writable = |access| access == Some(Access::Write);
        if !writable(bound.root) && !bound.entries.iter().any(|entry| writable(Some(entry.access))) {
            return Ok(None);
        }
        let mut writer = Writer { bound: Arc::clone(bound), lent: Vec::new() };
        let entries = bound.entries.iter();
        for entry in entries.filter(|entry| entry.access == Access::Write && entry.kind == Existing::Directory) {
            let shared = match Thing::at(&entry.path) {
                Ok(Some(thing)) => self.share_at(&entry.path, &thing).map(|is_shared| is_shared.then_some(thing.id)),
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            match shared {
                Ok(Some(id)) if !writer.lent.contains(&id) => writer.lent.push(id),
                Ok(Some(id)) => self.write_off(&self.release([id])),
                Ok(None) => {}
                // It has gone meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    self.write_off(&self.release(writer.lent));
                    let what = format!("{} is held for another process: {error}", entry.path.display());
                    return Err(io::Error::new(error.kind(), what));
                }
            }
        }
        let mut state = self.state();
        state.begun += 1;
        let token = state.begun;
        writer.lent.iter().for_each(|id| state.set_mode(*id, LENT));
        state.writers.insert(token, writer);
        let placed: Vec<Identity> = state.placed.keys().copied().collect();
        placed.into_iter().for_each(|id| state.lend(id));
        Ok(Some(token))
    }

    /// The process has ended. Returns what is left of directories that are removed, as [`Shared::release`] does.
    pub(super) fn dismiss(&self, token: u64) -> Remains {
        let mut state = self.state();
        let Some(writer) = state.writers.remove(&token) else { return Remains::default() };
        for id in &writer.lent {
            let is_lent = state.writers.values().any(|other| other.lent.contains(id));
            let is_empty = state.placed.get(id).is_some_and(|placed| is_empty(&placed.lock).unwrap_or(false));
            if !is_lent && is_empty {
                state.set_mode(*id, MODE);
            }
        }
        drop(state);
        self.release(writer.lent)
    }
}

impl State {
    /// Lends a directory to all who may write where it stands.
    pub(super) fn lend(&mut self, id: Identity) {
        let Some(placed) = self.placed.get_mut(&id) else { return };
        let mut is_lent = false;
        for writer in self.writers.values_mut() {
            if !writer.lent.contains(&id) && writer.bound.can_write(&placed.spot.path) {
                writer.lent.push(id);
                placed.users += 1;
                is_lent = true;
            }
        }
        if is_lent {
            self.set_mode(id, LENT);
        }
    }

    fn set_mode(&self, id: Identity, mode: u32) {
        if let Some(placed) = self.placed.get(&id) {
            // It stays as it is on a file system that has no modes.
            let _ = rustix::fs::fchmod(&placed.lock, Mode::from_raw_mode(mode));
        }
    }
}
