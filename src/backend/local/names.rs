//! Names that are held for a process in a sandbox, and who lets them go.
//!
//! To let them go takes the file system, which can take long: it is nothing for a task. They are held by whatever could
//! still run the process: a start that is under way, its supervisor, the reaper of a child that nobody owns any more.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::os::sandbox::Held;
use super::spawner::Queue;

/// Shares in the names of one process. The last one has the reaper let them go.
#[derive(Clone, Debug)]
pub(super) struct Names(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    held: Mutex<Option<Held>>,
    reaper: Arc<Queue>,
}

impl Names {
    pub(super) fn new(held: Held, reaper: Arc<Queue>) -> Self {
        Self(Arc::new(Kept { held: Mutex::new(Some(held)), reaper }))
    }

    /// The process has ended. Says which of them appeared or changed, moves what should not be there out of the way, and lets
    /// all of them go. Blocks.
    pub(super) fn finish(&self) -> Vec<PathBuf> {
        let held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(held) = held else { return Vec::new() };
        let changed = held.changed().into_iter().map(PathBuf::from).collect();
        // Of what stays where it is, the event tells too.
        let _moved = held.set_aside();
        changed
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(held) = self.held.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            self.reaper.let_go(held);
        }
    }
}
