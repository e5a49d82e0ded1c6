//! What a bound intent says of a path, and the error in which a call ends that it does not allow: the one that the
//! equivalent mounts would give.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::super::os::Dir;
use super::super::rules::Rules;
use super::system::{self, Limit};
use crate::sandbox::{Access, Bound};

/// Decides by canonical paths.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    bound: Arc<Bound>,
}

/// How a path looks under an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// As if it did not exist.
    Hidden,
    /// Nothing of it can be seen but that it leads to something.
    Leads,
    /// It is there, and cannot be opened.
    Shut,
    /// The same, and something below it is open.
    ShutButLeads,
    Readable,
    Writable,
}

impl Sight {
    pub(super) const fn is_readable(self) -> bool {
        matches!(self, Self::Readable | Self::Writable)
    }

    pub(super) const fn is_shut(self) -> bool {
        matches!(self, Self::Shut | Self::ShutButLeads)
    }
}

impl Guard {
    pub(super) const fn new(bound: Arc<Bound>) -> Self {
        Self { bound }
    }

    pub(super) fn bound(&self) -> &Arc<Bound> {
        &self.bound
    }

    pub(super) fn sight(&self, path: &Path) -> Sight {
        let sight = self.sight_of_file(path);
        match (Limit::of(path), sight) {
            (Limit::Everybodys, _) => Sight::Writable,
            (Limit::Read | Limit::Nothing, Sight::Hidden) | (Limit::None, _) => sight,
            (Limit::Read, Sight::Writable) => Sight::Readable,
            (Limit::Read, _) => sight,
            (Limit::Nothing, Sight::Leads) => Sight::Hidden,
            (Limit::Nothing, _) => Sight::Shut,
        }
    }

    fn sight_of_file(&self, path: &Path) -> Sight {
        match self.bound.access(path) {
            Some(Access::Write) => Sight::Writable,
            Some(Access::Read) => Sight::Readable,
            _ => match (self.is_in_sight(path), self.bound.opens_below(path)) {
                (true, false) => Sight::Shut,
                (true, true) => Sight::ShutButLeads,
                (false, true) => Sight::Leads,
                (false, false) => Sight::Hidden,
            },
        }
    }

    /// Of what cannot be read, whether it lies within something that can: then it is seen.
    fn is_in_sight(&self, path: &Path) -> bool {
        let readable = |access: Option<Access>| access >= Some(Access::Read);
        let nearest = |path| self.bound.nearest(path);
        let mut above = std::iter::successors(nearest(path), |entry| entry.path.parent().and_then(nearest));
        readable(self.bound.root) || above.any(|entry| readable(Some(entry.access)))
    }

    /// Whether the directory of a path may be read.
    pub(super) fn is_listed(&self, path: &Path) -> bool {
        path.parent().is_some_and(|parent| self.sight(parent).is_readable())
    }

    /// Whether a directory may be passed through.
    pub(super) fn pass(&self, path: &Path) -> io::Result<()> {
        match self.sight(path) {
            Sight::Hidden => Err(Errno::NOENT.into()),
            Sight::Shut => Err(Errno::ACCESS.into()),
            _ => Ok(()),
        }
    }

    /// Whether a link may be followed: it can be read, or is on the way to what an entry names.
    pub(super) fn follow(&self, link: &Path) -> io::Result<()> {
        match self.sight(link) {
            sight if sight.is_readable() => Ok(()),
            _ if self.is_alias(link) => Ok(()),
            sight if sight.is_shut() => Err(Errno::ACCESS.into()),
            _ => Err(Errno::NOENT.into()),
        }
    }

    /// Whether a link is on the way to what an entry names.
    pub(super) fn is_alias(&self, link: &Path) -> bool {
        self.bound.aliases.iter().any(|alias| alias.link == link)
    }

    /// Whether a name may be made in a directory, or taken away. What is mounted itself cannot.
    pub(super) fn change_name(&self, path: &Path) -> io::Result<()> {
        self.write(path)?;
        let Some(parent) = path.parent() else { return Err(Errno::BUSY.into()) };
        if self.sight(parent) == Sight::Writable { Ok(()) } else { Err(Errno::ROFS.into()) }
    }

    /// Whether all below a directory may be changed, as far as entries say. Patterns are another matter.
    pub(super) fn change_all_below(&self, path: &Path) -> io::Result<()> {
        let narrower = |entry: &&crate::sandbox::BoundEntry| {
            entry.access < Access::Write && entry.path.starts_with(path) && entry.path != path
        };
        if self.bound.entries.iter().any(|entry| narrower(&entry)) { Err(Errno::BUSY.into()) } else { Ok(()) }
    }

    /// The names in a directory that lead to what can be read.
    pub(super) fn names_that_lead(&self, directory: &Path) -> BTreeSet<OsString> {
        let entries = self.bound.entries.iter().filter(|entry| entry.access >= Access::Read).map(|entry| &entry.path);
        let links = self.bound.aliases.iter().map(|alias| &alias.link);
        let below = entries.chain(links).filter_map(|path| path.strip_prefix(directory).ok()?.components().next());
        below.map(|name| name.as_os_str().to_owned()).collect()
    }

    /// Whether something below a path may be another matter because of a pattern.
    pub(super) fn has_patterns(&self) -> bool {
        !self.bound.globs.is_empty()
    }
}

impl Rules for Guard {
    fn read(&self, path: &Path) -> io::Result<()> {
        match self.sight(path) {
            Sight::Readable | Sight::Writable => Ok(()),
            Sight::Shut | Sight::ShutButLeads | Sight::Leads => Err(Errno::ACCESS.into()),
            Sight::Hidden => Err(Errno::NOENT.into()),
        }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        match self.sight(path) {
            Sight::Writable => Ok(()),
            Sight::Readable | Sight::Leads => Err(Errno::ROFS.into()),
            Sight::Shut | Sight::ShutButLeads => Err(Errno::ACCESS.into()),
            Sight::Hidden => Err(Errno::NOENT.into()),
        }
    }

    fn within(&self, dir: &Dir, path: &Path) -> io::Result<()> {
        system::check_directory(dir, path)
    }
}
