//! Names that must not change while processes run, where only looking at them can tell: what they stand for at the end is
//! compared with what they stood for at the start. It has the names of the placeholders of Linux, and makes none.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::sandbox::{Bound, KeepsOwn, MissingOwn, MissingProtected, NameChange, ProtectedName, SandboxError};

/// The names of one executor.
#[derive(Clone, Debug)]
pub(super) struct Placeholders {
    /// Where what appeared is moved to.
    directory: Option<PathBuf>,
}

impl Placeholders {
    pub(super) fn new(directory: Option<PathBuf>) -> Self {
        Self { directory }
    }

    /// There is nothing to remove: nothing is made.
    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self, reason = "it has the names of the placeholders of Linux")]
    pub(super) fn recover(&self) {}

    /// Nothing is made ahead.
    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self, reason = "it has the names of the placeholders of Linux")]
    pub(super) fn close(&self) {}

    /// Nothing has to be made to hold them.
    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self, reason = "it has the names of the placeholders of Linux")]
    pub(super) fn foresee(
        &self,
        _names: &[ProtectedName],
        _missing: MissingProtected,
    ) -> Vec<(PathBuf, super::names::Unheld)> {
        Vec::new()
    }

    /// Watches names until what it returns is asked.
    pub(super) fn hold(&self, names: &[ProtectedName], missing: MissingProtected) -> Held {
        let watch =
            |name: &ProtectedName| Watched { path: name.path.clone(), before: Thing::at(&name.path).ok().flatten() };
        let moves = missing == MissingProtected::SetAside;
        if let Some(directory) = self.directory.as_ref().filter(|_| moves) {
            // Without it, what appears stays in the directory that it is in, under another name.
            drop(fs::create_dir_all(directory));
        }
        Held { directory: self.directory.clone(), moves, names: names.iter().map(watch).collect() }
    }
}

/// There is no state that a process could forge.
impl KeepsOwn for Placeholders {
    fn own(&self, _bound: &Bound, _missing: MissingOwn) -> Result<Vec<PathBuf>, SandboxError> {
        Ok(Vec::new())
    }
}

/// Names that are watched.
#[derive(Debug)]
#[must_use = "it tells what became of the names"]
pub(super) struct Held {
    directory: Option<PathBuf>,
    /// Whether what appears is moved.
    moves: bool,
    names: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    /// What was there at the start.
    before: Option<Thing>,
}

impl Held {
    /// Whether nothing has to be looked at at the end.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn is_idle(&self) -> bool {
        self.names.is_empty()
    }

    /// Nothing is made to hold them.
    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self, reason = "it has the names of the placeholders of Linux")]
    pub(super) fn placeholders(&self) -> impl Iterator<Item = &Path> {
        std::iter::empty()
    }

    /// A name at which there is something, though it was found missing.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn appeared(&self, bound: &Bound) -> Option<&Path> {
        let is_missing = |path: &Path| {
            let mut names = bound.protected.iter();
            names.any(|name| name.path == path && name.state == crate::sandbox::Existing::Missing)
        };
        let is_new = |name: &&Watched| name.before.is_some() && is_missing(&name.path);
        self.names.iter().find(is_new).map(|name| name.path.as_path())
    }

    /// The processes have ended: tells which names appeared, or stand for something else than at the start.
    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::needless_pass_by_ref_mut, reason = "it has the names of the placeholders of Linux")]
    pub(super) fn part(&mut self) -> Vec<super::names::ChangedName> {
        let changed = self.changed();
        let moved = self.set_aside();
        let changed = changed.into_iter().map(|(path, change)| {
            let moved_to = moved.iter().find(|(from, _)| *from == path).map(|(_, to)| to.clone());
            super::names::ChangedName { path: path.into(), change, moved_to }
        });
        changed.collect()
    }

    /// Nothing has to be made to hold them.
    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self, reason = "it has the names of the placeholders of Linux")]
    pub(super) fn unheld(&self) -> impl Iterator<Item = (&Path, &super::names::Unheld)> {
        std::iter::empty()
    }

    /// Nothing stands where a process may write.
    #[cfg(not(target_os = "linux"))]
    #[allow(
        clippy::unused_self,
        clippy::needless_pass_by_ref_mut,
        clippy::unnecessary_wraps,
        reason = "it has the names of the placeholders of Linux"
    )]
    pub(super) fn lend_to(&mut self, _bound: &std::sync::Arc<Bound>) -> io::Result<()> {
        Ok(())
    }

    /// The names that appeared, or stand for something else than at the start. To be asked when the processes have ended.
    pub(super) fn changed(&self) -> Vec<(&Path, NameChange)> {
        let changed = self.names.iter().filter_map(|name| {
            let change = match Thing::at(&name.path) {
                // That it went is nothing that could harm.
                Ok(None) => return None,
                Ok(now) if now == name.before => return None,
                Ok(_) if name.before.is_none() => NameChange::Appeared,
                Ok(_) => NameChange::Replaced,
                Err(_) if name.before.is_some() => NameChange::Unknown,
                Err(_) => return None,
            };
            Some((name.path.as_path(), change))
        });
        changed.collect()
    }

    /// If that is wanted, moves what appeared under one that did not exist at the start out of the way: into the
    /// executor's own directory, if it has one, or else beside the name. Returns what was moved, and to where.
    pub(super) fn set_aside(&self) -> Vec<(&Path, PathBuf)> {
        let appeared = self.names.iter().filter(|name| self.moves && name.before.is_none());
        appeared.filter_map(|name| Some((name.path.as_path(), self.move_away(&name.path)?))).collect()
    }

    fn move_away(&self, path: &Path) -> Option<PathBuf> {
        let name = path.file_name()?.to_string_lossy().into_owned();
        // Nothing else has such a name, so that nothing is replaced.
        let unique = format!("{name}.{}.set-aside", uuid::Uuid::new_v4().simple());
        let own = self.directory.as_ref().map(|directory| directory.join(&unique));
        own.into_iter().chain([path.with_file_name(&unique)]).find(|to| fs::rename(path, to).is_ok())
    }
}

/// What a name stands for, as far as a look tells it from something else.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thing {
    kind: fs::FileType,
    /// The device and the inode, where there are such. They are used again.
    number: Option<(u64, u64)>,
    born: Option<SystemTime>,
}

impl Thing {
    /// What is at a path itself, if there is something.
    fn at(path: &Path) -> io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok(Some(Self { kind: found.file_type(), number: number(&found), born: found.created().ok() })),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(unix)]
fn number(found: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn number(_: &Metadata) -> Option<(u64, u64)> {
    None
}

#[cfg(test)]
mod tests;
