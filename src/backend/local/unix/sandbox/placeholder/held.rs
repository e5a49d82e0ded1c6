//! Names that are held or watched while processes run, and what became of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::{CWD, RenameFlags};

use super::{Identity, Shared, is_empty_directory, journal};

/// Names that are held or watched. Dropping it lets them go, which takes a few system calls for each.
#[derive(Debug)]
#[must_use = "dropping it lets the names go"]
pub(in crate::backend::local) struct Held {
    pub(super) shared: Arc<Shared>,
    pub(super) names: Vec<HeldName>,
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
    /// Why there is none, though there should be.
    pub(super) failure: Option<String>,
    /// Whether what appears there is moved out of the way.
    pub(super) moves: bool,
}

impl Held {
    /// Whether a directory of ours stands for any of them.
    pub(in crate::backend::local) fn has_placed(&self) -> bool {
        self.names.iter().any(|name| name.placed.is_some())
    }

    /// The names that could be made, since no directory could be made to stand for them, and why.
    pub(in crate::backend::local) fn unheld(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.names.iter().filter_map(|name| Some((name.path.as_path(), name.failure.as_deref()?)))
    }

    /// The names for which a directory of ours stands.
    #[cfg(test)]
    pub(in crate::backend::local) fn placeholders(&self) -> impl Iterator<Item = &Path> {
        self.names.iter().filter(|name| name.placed.is_some()).map(|name| name.path.as_path())
    }

    /// The names that appeared, or stand for something else than at the start. To be asked when the processes have ended.
    pub(in crate::backend::local) fn changed(&self) -> Vec<&Path> {
        let changed = self.names.iter().filter(|name| match Identity::at(&name.path) {
            // That it went is nothing that could harm.
            Ok(None) => false,
            Ok(Some(now)) if Some(now) == name.before && born(&name.path) == name.born => {
                name.placed.is_some() && !is_empty_directory(&name.path)
            }
            Ok(Some(_)) => true,
            Err(_) => name.before.is_some(),
        });
        changed.map(|name| name.path.as_path()).collect()
    }

    /// Moves what appeared under a name that did not exist at the start, and for which no directory stood, out of the way:
    /// into the journal's directory, or else beside the name. Returns what was moved, and to where. Where a directory stood
    /// it is left, as what is in a place of its: a user may have made it meanwhile.
    pub(in crate::backend::local) fn set_aside(&self) -> Vec<(&Path, PathBuf)> {
        let appeared = self.names.iter().filter(|name| name.before.is_none() && name.moves);
        appeared
            .filter_map(|name| Some((name.path.as_path(), set_aside(&self.shared.directories, &name.path)?)))
            .collect()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for id in self.names.iter().filter_map(|name| name.placed) {
            self.shared.release(id);
        }
        self.shared.try_again();
    }
}

pub(super) fn born(path: &Path) -> Option<SystemTime> {
    fs::symlink_metadata(path).ok()?.created().ok()
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
