//! An intent bound to the paths of this executor, and what follows from it.

use std::path::{Path, PathBuf};

use super::error::SandboxError;
use super::glob::BoundGlob;
use super::intent::{Access, NetworkPolicy};

/// An intent on this executor: native, canonical paths, with one access for each.
///
/// Equal ones are enforced in the same way, so that whatever is prepared for one can be used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Bound {
    /// Which of the cheap ways will do.
    pub class: Class,
    /// What is allowed with all that no entry is about. None and denied are the same.
    pub root: Option<Access>,
    /// One for each canonical path but the root, ordered by path: a directory comes before what is in it.
    pub entries: Vec<BoundEntry>,
    /// Links on the way from the paths of the entries to their canonical ones.
    pub aliases: Vec<Alias>,
    /// What is allowed with the network.
    pub network: NetworkPolicy,
    /// The canonical workspace roots that exist.
    pub workspace_roots: Vec<PathBuf>,
    /// What relative things of the intent are relative to.
    pub cwd: Option<PathBuf>,
    /// Denied patterns. Each is tested against canonical paths.
    pub globs: Vec<BoundGlob>,
    /// How many levels below its base a glob is looked for.
    pub glob_scan_max_depth: Option<u32>,
    /// Names below writable directories that must neither change nor appear.
    pub protected: Vec<ProtectedName>,
    /// Whether the platform's base may be read, of which only a part are files: see the entries of [`Origin::Minimal`].
    pub minimal: bool,
}

impl Bound {
    /// What is allowed with a canonical path: what its own entry says, or that of the nearest directory above it. None if
    /// there is none.
    pub fn access(&self, path: &Path) -> Option<Access> {
        let entry = self.nearest(path);
        let depth = entry.map_or(0, |entry| entry.path.components().count());
        // An entry for the same path or a deeper one takes back what a pattern denies; on the same one, deny goes first.
        if self.globs.iter().filter_map(|glob| glob.matched(path)).any(|matched| matched >= depth) {
            return Some(Access::Deny);
        }
        entry.map_or(self.root, |entry| Some(entry.access))
    }

    /// Whether a canonical path may be read.
    pub fn can_read(&self, path: &Path) -> bool {
        self.access(path) >= Some(Access::Read)
    }

    /// Whether a canonical path may be written.
    pub fn can_write(&self, path: &Path) -> bool {
        self.access(path) == Some(Access::Write)
    }

    /// Whether a canonical path, or something below it, may be written.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "processes cannot be sandboxed there"))]
    pub(crate) fn may_write_at_or_below(&self, path: &Path) -> bool {
        self.can_write(path)
            || self.entries.iter().any(|entry| entry.access == Access::Write && entry.path.starts_with(path))
    }

    /// Denies a directory of the executor's own, whatever is allowed around it.
    ///
    /// # Errors
    ///
    /// If something there is asked for by an entry.
    pub(crate) fn keep_out(&mut self, path: &Path) -> Result<(), SandboxError> {
        let asked = |entry: &&BoundEntry| entry.access == Access::Write && entry.path.starts_with(path);
        if let Some(entry) = self.entries.iter().find(asked) {
            return Err(SandboxError::preparation(format!(
                "{} is to be writable, and the executor keeps its own state in {}; leave it out, or have that moved",
                entry.path.display(),
                path.display()
            )));
        }
        let own = BoundEntry {
            path: path.into(),
            lexical: path.into(),
            access: Access::Deny,
            kind: Existing::Directory,
            skip_missing: false,
            origin: Origin::Protected,
        };
        match self.entries.binary_search_by(|entry| entry.path.as_path().cmp(path)) {
            Ok(at) => self.entries[at] = own,
            Err(at) => self.entries.insert(at, own),
        }
        if self.class == Class::FullRead {
            self.class = Class::RestrictedRead;
        }
        Ok(())
    }

    /// An empty directory stands at a path now at which nothing was, and which is not writable: what the intent means is the
    /// same otherwise.
    pub(crate) fn come_to_exist(&mut self, path: &Path) {
        if let Ok(at) = self.entries.binary_search_by(|entry| entry.path.as_path().cmp(path))
            && self.entries[at].kind == Existing::Missing
        {
            self.entries[at].kind = Existing::Directory;
        }
        for name in self.protected.iter_mut().filter(|name| name.path == path && name.state == Existing::Missing) {
            name.state = Existing::Directory;
        }
    }

    /// The entry of a canonical path, or that of the nearest directory above it.
    pub fn nearest(&self, path: &Path) -> Option<&BoundEntry> {
        let (mut path, mut entries) = (path, self.entries.as_slice());
        loop {
            // In their order, whatever lies between a directory and something in it is in that directory as well. So the last
            // one up to the path tells how far up to look next.
            entries = entries.get(..entries.partition_point(|entry| entry.path.as_path() <= path))?;
            let last = entries.last()?;
            if path.starts_with(&last.path) {
                return Some(last);
            }
            path = common(path, &last.path);
        }
    }

    /// The entry of exactly this path.
    pub fn entry(&self, path: &Path) -> Option<&BoundEntry> {
        let at = self.entries.binary_search_by(|entry| entry.path.as_path().cmp(path)).ok()?;
        self.entries.get(at)
    }

    /// What would be allowed with the path of `entry` without it.
    pub fn above(&self, entry: &BoundEntry) -> Option<Access> {
        let above = entry.path.parent().and_then(|parent| self.nearest(parent));
        above.map_or(self.root, |above| Some(above.access))
    }

    /// The entries that change something, each directory before what is in it.
    pub fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        self.entries.iter().map(|entry| Change { entry, above: self.above(entry) }).filter(|change| {
            let none_is_deny = |access: Option<Access>| access.unwrap_or(Access::Deny);
            none_is_deny(change.above) != change.entry.access
        })
    }

    /// What is writable within something that is not.
    pub fn write_roots(&self) -> impl Iterator<Item = &BoundEntry> {
        self.changes()
            .filter(|change| change.entry.access == Access::Write && change.exists())
            .map(|change| change.entry)
    }

    /// What is read-only within something writable. It may be missing: then its name must not appear.
    pub fn carve_outs(&self) -> impl Iterator<Item = &BoundEntry> {
        let read = |change: &Change<'_>| change.entry.access == Access::Read && change.above == Some(Access::Write);
        self.changes().filter(read).map(|change| change.entry)
    }

    /// What is denied within something readable. It may be missing.
    pub fn masks(&self) -> impl Iterator<Item = &BoundEntry> {
        self.changes().filter(|change| change.entry.access == Access::Deny).map(|change| change.entry)
    }

    /// What is readable within something that is not: where the root is not readable, all that can be seen.
    pub fn visible(&self) -> impl Iterator<Item = &BoundEntry> {
        let hidden = |access: Option<Access>| access.is_none_or(|access| access == Access::Deny);
        self.changes().filter(move |change| hidden(change.above) && change.exists()).map(|change| change.entry)
    }

    /// Whether something below `path` is readable by an entry of its own.
    pub fn opens_below(&self, path: &Path) -> bool {
        let from = self.entries.partition_point(|entry| entry.path.as_path() <= path);
        let below =
            self.entries.get(from..).unwrap_or_default().iter().take_while(|entry| entry.path.starts_with(path));
        below.into_iter().any(|entry| entry.access >= Access::Read && entry.kind != Existing::Missing)
    }

    /// Checks that a process can run at all under this, in the canonical directory `cwd`.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Preparation`] if nothing is readable, or the directory is not.
    pub fn admits_process(&self, cwd: &Path) -> Result<(), SandboxError> {
        if self.root.is_none_or(|root| root < Access::Read) && self.visible().next().is_none() {
            return Err(SandboxError::preparation(
                "nothing is readable, so that nothing can be executed; a process needs an entry such as `minimal`",
            ));
        }
        // A directory above what is visible is there, if only to lead to it.
        let leads_on = self.access(cwd).is_none() && self.opens_below(cwd);
        if self.can_read(cwd) || leads_on {
            return Ok(());
        }
        Err(SandboxError::preparation(format!(
            "the working directory {} is not readable under it; allow that, or start the process elsewhere",
            cwd.display()
        )))
    }
}

/// The longest beginning that two paths share.
fn common<'a>(path: &'a Path, other: &Path) -> &'a Path {
    let (mut rest, mut others) = (path.components(), other.components());
    let mut shared = 0;
    while rest.next().zip(others.next()).is_some_and(|(one, other)| one == other) {
        shared += 1;
    }
    let above = path.components().count().saturating_sub(shared);
    path.ancestors().nth(above).unwrap_or(path)
}

/// An executor's own directories, which nobody in a sandbox may write to, whatever lies around them.
pub(crate) trait KeepsOwn: std::fmt::Debug + Send + Sync {
    /// Those of them that have to be [kept out](Bound::keep_out) of what is allowed. May block.
    ///
    /// # Errors
    ///
    /// If they cannot be made where somebody else could make them.
    fn own(&self, bound: &Bound, missing: MissingOwn) -> Result<Vec<PathBuf>, SandboxError>;

    /// Takes them out of what is allowed. May block.
    ///
    /// # Errors
    ///
    /// Those of [`own`](Self::own), and if the intent asks for just that.
    fn keep_own(&self, bound: &mut Bound, missing: MissingOwn) -> Result<(), SandboxError> {
        self.own(bound, missing)?.iter().try_for_each(|path| bound.keep_out(path))
    }
}

/// What to do about own directories that do not exist, and that somebody in the sandbox could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingOwn {
    /// They are made: what exists can be kept out of reach, and nobody else can put something in its place.
    Make,
    /// Nothing: nobody is let in.
    Leave,
}

/// Which of the cheap ways will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Nothing is restricted, neither files nor the network: there is no sandbox.
    Nothing,
    /// Files are not restricted.
    FullWrite,
    /// Everything is readable, and some of it is not writable.
    FullRead,
    /// Not everything is readable: [`Bound::root`] tells whether the rest is seen but for some things, or nothing but some
    /// things.
    RestrictedRead,
}

/// What is allowed with one path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct BoundEntry {
    /// The path without links.
    pub path: PathBuf,
    /// The path as the intent gives it, absolute and without `..`.
    pub lexical: PathBuf,
    /// What is allowed with it and all below it.
    pub access: Access,
    /// What is there.
    pub kind: Existing,
    /// Whether the sender expects that it may be missing.
    pub skip_missing: bool,
    /// Where it comes from.
    pub origin: Origin,
}

/// What is found at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Existing {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A device, a socket or a pipe.
    Other,
    /// Nothing, or nothing that the executor's user can reach.
    Missing,
}

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An entry of the intent.
    Entry,
    /// The platform's base.
    Minimal,
    /// The directory for temporary files, or `/tmp`.
    TempDir,
    /// A protected name at the top of a workspace root.
    Protected,
    /// A match of a denied pattern.
    Glob,
}

/// An entry that changes what the directories above it say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The entry.
    pub entry: &'a BoundEntry,
    /// What would be allowed without it.
    pub above: Option<Access>,
}

impl Change<'_> {
    /// Whether it allows more than what is above it.
    pub fn opens(&self) -> bool {
        Some(self.entry.access) > self.above
    }

    /// Whether there is something at its path.
    pub fn exists(&self) -> bool {
        self.entry.kind != Existing::Missing
    }
}

/// A link on the way to an entry's path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Alias {
    /// Where the link is; the directory that holds it is canonical.
    pub link: PathBuf,
    /// What it says.
    pub target: PathBuf,
}

/// A name in a writable directory that must neither change nor appear.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ProtectedName {
    /// The writable directory that it is below.
    pub root: PathBuf,
    /// The canonical path.
    pub path: PathBuf,
    /// What is there.
    pub state: Existing,
    /// What is allowed with it, which is less than to write.
    pub access: Access,
    /// Of `.git` that is a file: the canonical directory that it names, if that is there.
    pub git_dir: Option<PathBuf>,
    /// Whether something may be put there to hold the name, where it is missing. Not for `.git` within a larger repository,
    /// where programs would take the placeholder for the repository, unless an entry asks for it. What is writable is not taken
    /// for a repository.
    pub placeholder: bool,
    /// Whether an entry of the intent asks for it. Then it is held in any case, or nothing is started.
    pub required: bool,
}

#[cfg(test)]
mod tests;
