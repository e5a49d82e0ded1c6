//! Names that are held or watched while processes run, and what became of them.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::{CWD, RenameFlags};

use super::directory::{Identity, Thing, is_empty_directory};
use super::{Shared, journal};
use crate::backend::local::names::Unheld;
use crate::sandbox::{Bound, NameChange};

/// Names that are held or watched. Dropping it lets them go, which takes a few system calls for each.
#[derive(Debug)]
#[must_use = "dropping it lets the names go"]
pub(in crate::backend::local) struct Held {
    pub(super) shared: Arc<Shared>,
    pub(super) names: Vec<HeldName>,
    /// The process, if it may write somewhere.
    pub(super) writer: Option<u64>,
    /// Directories that were removed and are still open.
    pub(super) removed: Vec<OwnedFd>,
}

#[derive(Debug)]
pub(super) struct HeldName {
    pub(super) path: PathBuf,
    /// What was there at the start, our directory included.
    pub(super) before: Option<Identity>,
    /// When that was made, since inodes are used again.
    pub(super) born: Option<SystemTime>,
    /// The directory that stands for it.
    pub(super) placed: Option<Identity>,
    /// Why there is none, though a process could make the name.
    pub(super) unheld: Option<Unheld>,
    /// Whether what appears there is moved out of the way.
    pub(super) moves: bool,
}

impl Held {
    /// Whether nothing has to be done at the end.
    pub(in crate::backend::local) fn is_idle(&self) -> bool {
        self.names.is_empty() && self.writer.is_none()
    }

    /// The names that could be made, since no directory stands for them, and why.
    pub(in crate::backend::local) fn unheld(&self) -> impl Iterator<Item = (&Path, &Unheld)> {
        self.names.iter().filter_map(|name| Some((name.path.as_path(), name.unheld.as_ref()?)))
    }

    /// Lets the process write where directories stand for names that are none of its own to be held.
    ///
    /// # Errors
    ///
    /// If one of another executor cannot be shared.
    pub(in crate::backend::local) fn lend_to(&mut self, bound: &Bound) -> io::Result<()> {
        self.writer = self.shared.admit(bound)?;
        Ok(())
    }

    /// The names for which a directory of ours stands.
    pub(in crate::backend::local) fn placeholders(&self) -> impl Iterator<Item = &Path> {
        self.names.iter().filter(|name| name.placed.is_some()).map(|name| name.path.as_path())
    }

    /// The names that appeared, or stand for something else than at the start. To be asked when the processes have ended.
    pub(in crate::backend::local) fn changed(&self) -> Vec<(&Path, NameChange)> {
        let changed = self.names.iter().filter_map(|name| Some((name.path.as_path(), name.change(&self.shared)?)));
        changed.collect()
    }

    /// If that is wanted, moves what appeared under a name that did not exist at the start, and for which no directory stood,
    /// out of the way: into the journal's directory, or else beside the name. Returns what was moved, and to where.
    pub(in crate::backend::local) fn set_aside(&self) -> Vec<(&Path, PathBuf)> {
        let is_to_be_moved =
            |name: &&HeldName| name.before.is_none() && name.moves && name.change(&self.shared).is_some();
        let appeared = self.names.iter().filter(is_to_be_moved);
        appeared
            .filter_map(|name| Some((name.path.as_path(), set_aside(&self.shared.directories, &name.path)?)))
            .collect()
    }

    /// Lets the names go. What a file system may take its time for is left to the drop: to give back what is removed.
    pub(in crate::backend::local) fn let_go(&mut self) {
        if let Some(writer) = self.writer.take() {
            self.removed.extend(self.shared.dismiss(writer));
        }
        self.removed.extend(self.shared.release(self.names.drain(..).filter_map(|name| name.placed)));
        self.shared.try_again();
    }
}

impl HeldName {
    fn change(&self, shared: &Shared) -> Option<NameChange> {
        let is_new = self.before.is_none() || self.placed.is_some();
        let change = if is_new { NameChange::Appeared } else { NameChange::Replaced };
        match Thing::at(&self.path) {
            // That it went is nothing that could harm.
            Ok(None) => None,
            Ok(Some(now)) if Some(now.id) == self.before && now.born == self.born => {
                let is_lent = || matches!(Thing::at(&self.path), Ok(Some(thing)) if thing.is_lent());
                let is_filled = self.placed.is_some() && !is_empty_directory(&self.path) && !is_lent();
                is_filled.then_some(change)
            }
            // It stands there for another process that still runs.
            Ok(Some(now)) if self.placed != Some(now.id) && shared.stands_for_a_name(&self.path, &now) => None,
            Ok(Some(_)) => Some(change),
            Err(_) => self.before.map(|_| NameChange::Unknown),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn set_aside(directories: &[PathBuf], path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let unique = format!("{name}.{}.set-aside", uuid::Uuid::new_v4().simple());
    let directories = directories.iter().filter(|directory| journal::is_private(directory));
    directories
        .map(|directory| directory.join(&unique))
        .chain([path.with_file_name(&unique)])
        .find(|to| rustix::fs::renameat_with(CWD, path, CWD, to, RenameFlags::NOREPLACE).is_ok())
}
