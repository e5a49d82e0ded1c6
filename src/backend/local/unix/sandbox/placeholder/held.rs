//! Names that are held or watched while processes run, and what became of them.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::Errno;

use super::directory::{Identity, Thing};
use super::others::Locked;
use super::spot::Spot;
use super::{Remains, Shared, journal};
use crate::backend::local::names::{ChangedName, Unheld};
use crate::sandbox::{Bound, Existing, NameChange};

/// What a name stands for at the end.
#[derive(Clone, Copy, Debug)]
enum Look {
    /// Nothing that has to be told.
    Fine,
    /// Our directory, to which somebody may write if it is lent. What is in it is not known yet.
    Ours {
        is_lent: bool,
    },
    Changed,
    Unknown,
}

/// Names that are held or watched. Dropping it lets them go, which takes a few system calls for each.
#[derive(Debug)]
#[must_use = "dropping it lets the names go"]
pub(in crate::backend::local) struct Held {
    pub(super) shared: Arc<Shared>,
    pub(super) names: Vec<HeldName>,
    /// The process, if it may write somewhere.
    pub(super) writer: Option<u64>,
    /// What is left of directories that were removed.
    pub(super) remains: Remains,
    /// The processes have ended, and nobody waits for what is done at the drop.
    pub(super) has_parted: bool,
}

#[derive(Debug)]
pub(super) struct HeldName {
    /// It is looked at, and what appeared there is moved, where it was at the start.
    pub(super) spot: Spot,
    /// What was there at the start, our directory included.
    pub(super) before: Option<Identity>,
    /// When that was made, since inodes are used again.
    pub(super) born: Option<SystemTime>,
    /// The directory that stands for it.
    pub(super) placed: Option<Identity>,
    /// The empty directory of somebody else's that is there, so that he does not remove it.
    pub(super) others: Option<Arc<Locked>>,
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
        self.names.iter().filter_map(|name| Some((name.spot.path.as_path(), name.unheld.as_ref()?)))
    }

    /// Lets the process write where directories stand for names that are none of its own to be held.
    ///
    /// # Errors
    ///
    /// If one of another executor cannot be shared.
    pub(in crate::backend::local) fn lend_to(&mut self, bound: &Arc<Bound>) -> io::Result<()> {
        self.writer = self.shared.admit(bound)?;
        Ok(())
    }

    /// The names for which a directory of ours stands.
    pub(in crate::backend::local) fn placeholders(&self) -> impl Iterator<Item = &Path> {
        self.names.iter().filter(|name| name.placed.is_some()).map(|name| name.spot.path.as_path())
    }

    /// A name at which there is something of somebody else's, though it was found missing.
    pub(in crate::backend::local) fn appeared(&self, bound: &Bound) -> Option<&Path> {
        let was_missing = |path: &Path| {
            let at = bound.protected.binary_search_by(|name| name.path.as_path().cmp(path));
            at.is_ok_and(|at| bound.protected[at].state == Existing::Missing)
        };
        let others = self.names.iter().filter(|name| name.before.is_some() && name.placed.is_none());
        others.into_iter().find(|name| was_missing(&name.spot.path)).map(|name| name.spot.path.as_path())
    }

    /// The processes have ended: lets the names go, and tells which of them appeared, or stand for something else than at the
    /// start. What a file system may take its time for is left to the drop: to give back what is removed, and to write that down.
    pub(in crate::backend::local) fn part(&mut self) -> Vec<ChangedName> {
        self.has_parted = true;
        let looks: Vec<Look> = self.names.iter().map(|name| name.look(&self.shared)).collect();
        let moved: HashMap<PathBuf, PathBuf> =
            self.set_aside().into_iter().map(|(path, to)| (path.to_path_buf(), to)).collect();
        let mut names = mem::take(&mut self.names);
        self.release(&mut names);
        let changed = names.into_iter().zip(looks).filter_map(|(name, look)| {
            // What was removed was empty, so that there is nothing to look into.
            let change = name.judge(look)?;
            let moved_to = moved.get(&name.spot.path).cloned();
            Some(ChangedName { path: name.spot.path, change, moved_to })
        });
        changed.collect()
    }

    /// The names that appeared, or stand for something else than at the start. To be asked when the processes have ended.
    #[cfg(test)]
    pub(in crate::backend::local) fn changed(&self) -> Vec<(&Path, NameChange)> {
        let change = |name: &HeldName| name.judge(name.look(&self.shared));
        let changed = self.names.iter().filter_map(|name| Some((name.spot.path.as_path(), change(name)?)));
        changed.collect()
    }

    /// If that is wanted, moves what appeared under a name that did not exist at the start, and for which no directory stood,
    /// out of the way: into the journal's directory, or else beside the name. Returns what was moved, and to where.
    pub(in crate::backend::local) fn set_aside(&self) -> Vec<(&Path, PathBuf)> {
        let is_to_be_moved = |name: &&HeldName| {
            let may_be = name.before.is_none() && name.moves && name.spot.is_open();
            may_be && name.judge(name.look_at(&name.spot, &self.shared)).is_some()
        };
        let appeared = self.names.iter().filter(is_to_be_moved);
        appeared
            .filter_map(|name| Some((name.spot.path.as_path(), set_aside(&self.shared.directories, &name.spot)?)))
            .collect()
    }

    fn release(&mut self, names: &mut [HeldName]) {
        names.iter_mut().for_each(|name| drop(name.others.take()));
        if let Some(writer) = self.writer.take() {
            self.remains.add(self.shared.dismiss(writer));
        }
        self.remains.add(self.shared.release(names.iter().filter_map(|name| name.placed)));
        self.shared.try_again();
    }
}

impl HeldName {
    fn look(&self, shared: &Shared) -> Look {
        let look = self.look_at(&self.spot, shared);
        if !matches!(look, Look::Fine | Look::Ours { .. }) || !self.spot.is_elsewhere() {
            return look;
        }
        // Whoever uses the path finds what is there now.
        match self.look_at(&Spot::by_path(self.spot.path.clone()), shared) {
            Look::Fine | Look::Ours { .. } => look,
            other => other,
        }
    }

    fn look_at(&self, spot: &Spot, shared: &Shared) -> Look {
        match spot.thing() {
            // That it went is nothing that could harm.
            Ok(None) => Look::Fine,
            Ok(Some(now)) if self.is_unchanged(&now) => match self.placed {
                Some(_) => Look::Ours { is_lent: now.is_lent() },
                None => Look::Fine,
            },
            // It stands there for another process that still runs.
            Ok(Some(now)) if self.placed != Some(now.id) && shared.stands_for_a_name(spot, &now) => Look::Fine,
            Ok(Some(_)) => Look::Changed,
            Err(_) => Look::Unknown,
        }
    }

    fn is_unchanged(&self, now: &Thing) -> bool {
        Some(now.id) == self.before && now.born == self.born
    }

    /// What comes of a look; what is in our directory, if that is still there, is looked at now.
    fn judge(&self, look: Look) -> Option<NameChange> {
        let is_new = self.before.is_none() || self.placed.is_some();
        let change = if is_new { NameChange::Appeared } else { NameChange::Replaced };
        match look {
            Look::Fine => None,
            // Whoever may write there may fill it.
            Look::Ours { is_lent } => {
                let is_there =
                    || matches!(self.spot.thing(), Ok(Some(now)) if self.is_unchanged(&now) && !now.is_lent());
                (!is_lent && is_there() && !self.spot.is_empty() && is_there()).then_some(change)
            }
            Look::Changed => Some(change),
            Look::Unknown => self.before.map(|_| NameChange::Unknown),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut names = mem::take(&mut self.names);
        self.release(&mut names);
        let remains = mem::take(&mut self.remains);
        self.shared.write_off(&remains);
        if self.has_parted {
            self.shared.restock();
        }
        // A file system can take its time for it.
        drop(remains);
    }
}

fn has_moved(spot: &Spot, to: &Spot) -> bool {
    match spot.rename(to) {
        // A process may have taken the right from its directory.
        Err(Errno::ACCESS) => spot.as_owner(|| Ok(spot.rename(to)?)).is_ok(),
        moved => moved.is_ok(),
    }
}

fn set_aside(directories: &[PathBuf], spot: &Spot) -> Option<PathBuf> {
    let name = spot.path.file_name()?.to_string_lossy().into_owned();
    let unique = format!("{name}.{}.set-aside", uuid::Uuid::new_v4().simple());
    let directories = directories.iter().filter(|directory| journal::is_private(directory));
    let own = directories.map(|directory| Spot::by_path(directory.join(&unique)));
    own.chain([spot.beside(&unique)]).find(|to| has_moved(spot, to)).map(|to| to.now())
}
