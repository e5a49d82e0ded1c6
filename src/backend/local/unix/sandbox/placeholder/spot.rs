//! A name in a directory that is open: it stays the same one, whatever is put into the place of that directory, or of one
//! above it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags};
use rustix::io::{Errno, retry_on_intr};

use super::directory::{Identity, Thing, is_empty};
use super::journal;

/// A directory that names are in. It is only a place to start from.
#[derive(Debug)]
pub(super) struct Parent {
    open: OwnedFd,
    pub(super) is: Is,
}

/// Which directory it is, and by which mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Is {
    id: Identity,
    mount: u64,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// None if the name is the whole path, as in a directory of our own, to which nobody else may write.
    parent: Option<Arc<Parent>>,
    /// What is written down.
    pub(super) path: PathBuf,
}

impl Parent {
    /// Opens the directory of a path if no link leads there: paths are canonical, so that a link was put there since.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let above = path.parent().ok_or(io::ErrorKind::NotFound)?;
        Self::new(open_without_links(above).map_err(|error| match error {
            Errno::LOOP => {
                let what = format!("{} has been exchanged for a symbolic link, or one above it", above.display());
                io::Error::other(what)
            }
            error => error.into(),
        })?)
    }

    /// Opens a directory of our own, wherever links lead.
    fn own(directory: &Path) -> io::Result<Self> {
        Self::new(rustix::fs::open(directory, PLACE, Mode::empty())?)
    }

    fn new(open: OwnedFd) -> io::Result<Self> {
        let flags = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MNT_ID;
        let is = match rustix::fs::statx(&open, c"", AtFlags::EMPTY_PATH, flags) {
            Ok(found) => Is { id: Identity::of_statx(&found), mount: found.stx_mnt_id },
            Err(Errno::NOSYS | Errno::PERM) => Is { id: Identity::of_open(&open)?, mount: 0 },
            Err(error) => return Err(error.into()),
        };
        Ok(Self { open, is })
    }
}

impl Spot {
    pub(super) const fn by_path(path: PathBuf) -> Self {
        Self { parent: None, path }
    }

    pub(super) const fn new(parent: Arc<Parent>, path: PathBuf) -> Self {
        Self { parent: Some(parent), path }
    }

    /// A name that no link leads to.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::new(Arc::new(Parent::of(path)?), path.into()))
    }

    /// A name that is written down in a journal. The directory of that may be named by links.
    pub(super) fn written_in(journal: &Path, path: &Path) -> io::Result<Self> {
        if let Some(directory) = journal.parent().filter(|_| path.is_absolute()) {
            let own = Parent::own(directory)?;
            if path.parent().is_some_and(|above| Identity::behind(above) == Some(own.is.id)) {
                return Ok(Self::new(Arc::new(own), path.into()));
            }
        }
        Self::of(path)
    }

    /// Another name beside it.
    pub(super) fn beside(&self, name: &str) -> Self {
        Self { parent: self.parent.clone(), path: self.path.with_file_name(name) }
    }

    /// Whether its directory is open.
    pub(super) const fn is_open(&self) -> bool {
        self.parent.is_some()
    }

    /// Whether its path leads into another directory by now.
    pub(super) fn is_elsewhere(&self) -> bool {
        let above = self.path.parent().and_then(Identity::behind);
        self.parent.as_ref().is_some_and(|parent| above != Some(parent.is.id))
    }

    /// Where it is now, as far as that can be told.
    pub(super) fn now(&self) -> PathBuf {
        let now = self.parent.as_ref().and_then(|parent| path_of(&parent.open).ok());
        now.map_or_else(|| self.path.clone(), |above| above.join(self.name()))
    }

    fn directory(&self) -> BorrowedFd<'_> {
        self.parent.as_ref().map_or(CWD, |parent| parent.open.as_fd())
    }

    fn name(&self) -> &Path {
        match self.parent {
            Some(_) => Path::new(self.path.file_name().unwrap_or_default()),
            None => &self.path,
        }
    }

    /// What it stands for itself, if there is something.
    pub(super) fn thing(&self) -> io::Result<Option<Thing>> {
        match Thing::by(self.directory(), self.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(thing) => Ok(Some(thing)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it can be told that this is not, or no longer, what it stands for.
    pub(super) fn is_another(&self, id: Identity) -> bool {
        matches!(self.identity(), Ok(found) if found != Some(id))
    }

    pub(super) fn identity(&self) -> io::Result<Option<Identity>> {
        Ok(self.thing()?.map(|thing| thing.id))
    }

    /// Opens a directory itself.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(retry_on_intr(|| rustix::fs::openat(self.directory(), self.name(), flags, Mode::empty()))?)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open().and_then(|open| is_empty(&open)).unwrap_or(false)
    }

    /// Whether it is, as far as a look tells, an empty directory of ours.
    pub(super) fn is_like_a_placeholder(&self) -> bool {
        matches!(self.thing(), Ok(Some(thing)) if thing.is_like_a_placeholder()) && self.is_empty()
    }

    /// Makes a directory, and opens it.
    pub(super) fn make_directory(&self, mode: u32) -> io::Result<File> {
        rustix::fs::mkdirat(self.directory(), self.name(), Mode::from_raw_mode(mode))?;
        Ok(self.open()?.into())
    }

    pub(super) fn remove_directory(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self.directory(), self.name(), AtFlags::REMOVEDIR)?)
    }

    /// Does something where the mode of the directory does not let its owner do it, if that is us, who may change that: it is
    /// as it was afterwards, unless somebody else has changed it meanwhile.
    pub(super) fn as_owner<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let parent = self.parent.as_ref().ok_or(Errno::ACCESS)?;
        let mode = || rustix::fs::fstat(&parent.open).map(|found| (found.st_mode & 0o7777, found.st_uid));
        let (before, owner) = mode()?;
        let during = before | 0o300;
        // Whoever is not of the group would lose the bit for it.
        if owner != journal::own_uid() || before == during || before & libc::S_ISGID != 0 {
            return Err(Errno::ACCESS.into());
        }
        // What is only a place to start from has no other way.
        let at = format!("/proc/self/fd/{}", parent.open.as_raw_fd());
        let set = |mode| rustix::fs::chmod(&at, Mode::from_raw_mode(mode));
        set(during)?;
        let done = act();
        if mode()?.0 == during {
            set(before)?;
        }
        done
    }

    /// Gives what has this name another one that nothing has.
    pub(super) fn rename(&self, to: &Self) -> Result<(), Errno> {
        let (from, at) = (self.directory(), to.directory());
        rustix::fs::renameat_with(from, self.name(), at, to.name(), RenameFlags::NOREPLACE)
    }

    /// The name that an open directory has now.
    pub(super) fn of_open(open: &OwnedFd) -> io::Result<Self> {
        let path = path_of(open)?;
        let above = rustix::fs::openat(open, c"..", PLACE, Mode::empty())?;
        Ok(Self::new(Arc::new(Parent::new(above)?), path))
    }

    /// A name that links lead to by now, as those of a user who has moved a workspace, if it still stands for this.
    pub(super) fn behind_links(path: &Path, id: Identity) -> Option<Self> {
        let above = path.parent()?.canonicalize().ok()?;
        let spot = Self::of(&above.join(path.file_name()?)).ok()?;
        matches!(spot.identity(), Ok(Some(found)) if found == id).then_some(spot)
    }
}

/// Where what is open is now, as the kernel knows.
fn path_of(open: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn open_without_links(path: &Path) -> Result<OwnedFd, Errno> {
    match retry_on_intr(|| rustix::fs::openat2(CWD, path, PLACE, Mode::empty(), ResolveFlags::NO_SYMLINKS)) {
        // A filter of system calls does not know it.
        Err(Errno::NOSYS | Errno::PERM) => open_by_steps(path),
        opened => opened,
    }
}

/// The same, name by name.
pub(super) fn open_by_steps(path: &Path) -> Result<OwnedFd, Errno> {
    let mut at = rustix::fs::open(c"/", PLACE, Mode::empty())?;
    for component in path.components() {
        at = match component {
            Component::RootDir => continue,
            Component::Normal(name) => match rustix::fs::openat(&at, name, PLACE | OFlags::NOFOLLOW, Mode::empty()) {
                Err(Errno::NOTDIR) if is_link(&at, name) => return Err(Errno::LOOP),
                opened => opened?,
            },
            _ => return Err(Errno::INVAL),
        };
    }
    Ok(at)
}

fn is_link(directory: &OwnedFd, name: &OsStr) -> bool {
    let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_symlink())
}
