//! Holding names that do not exist, so that a process in a sandbox cannot make them.
//!
//! A mount needs something to be mounted on. So an empty directory, which nobody may write to, stands there while processes
//! need it. The rules:
//!
//! - It is written down in a [journal] before it is there. It is made under a name that nobody else uses and then
//!   renamed, never over something that exists; so the journal knows which directory it is before it has its name.
//! - The processes of one executor share it by a count, those of several by a lock on it. The last one removes it, by
//!   `rmdir`, and only if it is still the same directory. Whatever somebody has put into it stays, and so does it.
//! - What an executor that was killed has left is removed by the next one that finds its journal, in the same way.
//! - Where a name must not be held so, as `.git` in a larger repository, it is only watched.
//!
//! Between the look and the `rmdir` is a moment in which somebody could put an empty directory of his own into its place,
//! which then is removed. Linux has no call that would not have it.

mod journal;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use self::journal::{Journal, Record};
use crate::sandbox::{MissingProtected, ProtectedName};

/// What makes a directory that one and no other: the device and the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity(u64, u64);

impl Identity {
    fn of(found: &fs::Metadata) -> Self {
        Self(found.dev(), found.ino())
    }

    fn of_open(fd: &OwnedFd) -> io::Result<Self> {
        let found = rustix::fs::fstat(fd)?;
        Ok(Self(found.st_dev, found.st_ino))
    }

    /// What a name stands for itself, if there is something.
    fn at(path: &Path) -> io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok(Some(Self::of(&found))),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The placeholders of one executor. Clones share them. All calls may block.
#[derive(Clone, Debug)]
pub(in crate::backend::local) struct Placeholders {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    journal: Option<Journal>,
    placed: HashMap<Identity, Placed>,
}

/// A directory that stands for a name.
#[derive(Debug)]
struct Placed {
    path: PathBuf,
    users: usize,
    /// The directory, with a shared lock on it.
    lock: OwnedFd,
}

impl Placeholders {
    /// Those of an executor that keeps its journal in this directory, or in the usual one of this user. Nothing is touched
    /// yet.
    pub(in crate::backend::local) fn new(directory: Option<PathBuf>) -> Self {
        let directory = directory.unwrap_or_else(journal::default_directory);
        Self { shared: Arc::new(Shared { directory, state: Mutex::default() }) }
    }

    /// Removes what executors that are gone have left.
    pub(in crate::backend::local) fn recover(&self) {
        let state = self.shared.state();
        for (path, file, records) in journal::all(&self.shared.directory) {
            let is_own = state.journal.as_ref().is_some_and(|journal| journal.is_at(&path));
            // Its executor holds the lock for as long as it lives.
            if is_own || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            if remove_left(&records) {
                // If it remains, the next start finds nothing that is written in it.
                drop(fs::remove_file(&path));
            }
            // Not only when it is closed: a child that is being made may have it open for a moment.
            let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingUnlock);
        }
    }

    /// Holds names until what it returns is dropped. A name that exists is only watched, as is one that cannot be held: in a
    /// directory that is not ours to write to, say.
    pub(in crate::backend::local) fn hold(&self, names: &[ProtectedName], missing: MissingProtected) -> Held {
        let mut state = self.shared.state();
        let names = names.iter().map(|name| {
            let may_place = missing == MissingProtected::Placeholder;
            let placed = if may_place { state.place(&self.shared.directory, name) } else { None };
            let before = match placed {
                Some(id) => Some(id),
                // What cannot be looked at cannot be told from what is there at the end, either.
                None => Identity::at(&name.path).ok().flatten(),
            };
            HeldName { path: name.path.clone(), before, born: born(&name.path), placed }
        });
        let names = names.collect();
        Held { shared: Arc::clone(&self.shared), names }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No call leaves it half changed where it could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A directory that stands for a name, counted once more. None if there is something else, or none can be made.
    fn place(&mut self, directory: &Path, name: &ProtectedName) -> Option<Identity> {
        for _ in 0..ATTEMPTS {
            let placed = match Identity::at(&name.path).ok()? {
                Some(id) => self.share(directory, &name.path, id),
                None if !name.placeholder => return None,
                None => self.make(directory, name),
            };
            match placed {
                Ok(id) => return id,
                // It appeared or went meanwhile.
                Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Counts one of ours, or joins that of another executor. None if it is neither.
    fn share(&mut self, directory: &Path, path: &Path, id: Identity) -> io::Result<Option<Identity>> {
        if let Some(placed) = self.placed.get_mut(&id).filter(|placed| placed.path == path) {
            placed.users += 1;
            return Ok(Some(id));
        }
        // While it is open, its inode stands for nothing else.
        let open = open(path)?;
        let is_there = || Ok::<_, io::Error>(Identity::at(path)? == Some(id) && Identity::of_open(&open)? == id);
        if !is_like_a_placeholder(path) || !is_written_down(directory, path, id) {
            // It is somebody's own, unless it went while it was looked at.
            return if is_there()? { Ok(None) } else { Err(io::ErrorKind::NotFound.into()) };
        }
        // Before the lock, so that it is never without both a record and an owner who knows of it.
        self.write(directory, &[Record::Held { id, temporary: PathBuf::new(), path: path.into() }])?;
        let locked = lock(&open).and_then(|()| if is_there()? { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) });
        if let Err(error) = locked {
            unlock(&open);
            self.write(directory, &[Record::Gone { id }])?;
            return Err(error);
        }
        self.placed.insert(id, Placed { path: path.into(), users: 1, lock: open });
        Ok(Some(id))
    }

    fn make(&mut self, directory: &Path, name: &ProtectedName) -> io::Result<Option<Identity>> {
        let temporary = name.path.with_file_name(format!(".longarm-{}.placeholder", uuid::Uuid::new_v4().simple()));
        self.write(directory, &[Record::Making { temporary: temporary.clone() }])?;
        fs::DirBuilder::new().mode(MODE).create(&temporary)?;
        let placed = self.name_it(directory, name, &temporary);
        if placed.is_err() {
            // It is empty, and its name is nobody else's.
            drop(fs::remove_dir(&temporary));
        }
        placed.map(Some)
    }

    fn name_it(&mut self, directory: &Path, name: &ProtectedName, temporary: &Path) -> io::Result<Identity> {
        let open = open(temporary)?;
        let id = Identity::of_open(&open)?;
        lock(&open)?;
        let path = name.path.to_path_buf();
        self.write(directory, &[Record::Held { id, temporary: temporary.into(), path: path.clone() }])?;
        match rustix::fs::renameat_with(CWD, temporary, CWD, &path, RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.placed.insert(id, Placed { path, users: 1, lock: open });
                Ok(id)
            }
            Err(error) => {
                self.write(directory, &[Record::Gone { id }])?;
                Err(error.into())
            }
        }
    }

    /// Takes one user away; the last one removes the directory.
    fn release(&mut self, id: Identity) {
        let Some(placed) = self.placed.get_mut(&id) else { return };
        placed.users -= 1;
        if placed.users > 0 {
            return;
        }
        let Some(placed) = self.placed.remove(&id) else { return };
        // Of those who share it, the last to ask for this gets it: asking gives up one's own lock.
        let last = rustix::fs::flock(&placed.lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        let done = !last || remove(&placed.path, id, Some(&placed.lock));
        unlock(&placed.lock);
        let Some(journal) = &mut self.journal else { return };
        // What stays written down without need is looked for once more by the next start, which finds nothing.
        let written = match (done, self.placed.is_empty()) {
            (true, true) => journal.clear(),
            (true, false) => journal.write(&[Record::Gone { id }]),
            (false, _) => Ok(()),
        };
        drop(written);
    }

    fn write(&mut self, directory: &Path, records: &[Record]) -> io::Result<()> {
        let journal = match &mut self.journal {
            Some(journal) => journal,
            none => none.insert(Journal::begin(directory)?),
        };
        journal.write(records)
    }
}

/// Names that are held or watched. Dropping it lets them go, which takes a few system calls for each.
#[derive(Debug)]
#[must_use = "dropping it lets the names go"]
pub(in crate::backend::local) struct Held {
    shared: Arc<Shared>,
    names: Vec<HeldName>,
}

#[derive(Debug)]
struct HeldName {
    path: PathBuf,
    /// What was there at the start, our directory included.
    before: Option<Identity>,
    /// When that was made, since inodes are used again.
    born: Option<SystemTime>,
    /// The directory that stands for it.
    placed: Option<Identity>,
}

impl Held {
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
    /// into the journal's directory, or else beside the name. Returns what was moved, and to where.
    pub(in crate::backend::local) fn set_aside(&self) -> Vec<(&Path, PathBuf)> {
        let appeared = self.names.iter().filter(|name| name.before.is_none());
        appeared
            .filter_map(|name| Some((name.path.as_path(), set_aside(&self.shared.directory, &name.path)?)))
            .collect()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        for id in self.names.iter().filter_map(|name| name.placed) {
            state.release(id);
        }
    }
}

fn born(path: &Path) -> Option<SystemTime> {
    fs::symlink_metadata(path).ok()?.created().ok()
}

fn set_aside(directory: &Path, path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let unique = format!("{name}.{}.set-aside", uuid::Uuid::new_v4().simple());
    [directory.join(&unique), path.with_file_name(&unique)]
        .into_iter()
        .find(|to| rustix::fs::renameat_with(CWD, path, CWD, to, RenameFlags::NOREPLACE).is_ok())
}

/// Opens a directory itself.
fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Puts a shared lock on a directory.
fn lock(open: &OwnedFd) -> io::Result<()> {
    for _ in 0..LOCK_ATTEMPTS {
        match rustix::fs::flock(open, FlockOperation::NonBlockingLockShared) {
            // Whoever removes it needs but a moment, when he gets to it.
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            locked => return Ok(locked?),
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Gives a lock up. A child that is being made may have the descriptor for a moment, and with it the lock.
fn unlock(open: &OwnedFd) {
    // There is nothing to be done about a lock that cannot be given up.
    let _ = rustix::fs::flock(open, FlockOperation::NonBlockingUnlock);
}

/// Removes a directory if it is this one and empty. True unless it should be tried again some day.
fn remove(path: &Path, id: Identity, open: Option<&OwnedFd>) -> bool {
    // Its root may have been moved meanwhile. Where the directory is now, the kernel knows.
    let moved = open.and_then(|fd| fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok());
    let mut paths = std::iter::once(path).chain(moved.as_deref());
    let Some(path) = paths.find(|path| Identity::at(path).is_ok_and(|found| found == Some(id))) else { return true };
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            // It is somebody's now, who may expect that he can write to it.
            drop(fs::set_permissions(path, fs::Permissions::from_mode(0o755)));
            true
        }
        removed => removed.is_ok(),
    }
}

/// Removes what is written down and still there. False if some of it should be tried again.
fn remove_left(records: &[Record]) -> bool {
    let mut done = true;
    for (at, record) in records.iter().enumerate() {
        match record {
            Record::Making { temporary } => {
                // If it has an identity, that is in the next record. The name is nobody else's; it is empty, or stays.
                if is_our_temporary(temporary) && is_like_a_placeholder(temporary) {
                    drop(fs::remove_dir(temporary));
                }
            }
            Record::Held { id, temporary, path } => {
                let later = records.get(at..).unwrap_or_default();
                if later.contains(&Record::Gone { id: *id }) {
                    continue;
                }
                for path in [temporary, path].into_iter().filter(|path| is_like_a_placeholder(path)) {
                    done &= remove_unshared(path, *id);
                }
            }
            Record::Gone { .. } => {}
        }
    }
    done
}

/// Removes a directory that no other executor uses.
fn remove_unshared(path: &Path, id: Identity) -> bool {
    let Ok(open) = open(path) else { return true };
    if Identity::of_open(&open).ok() != Some(id) {
        return true;
    }
    // Others who use it have it in their journals.
    let unused = rustix::fs::flock(&open, FlockOperation::NonBlockingLockExclusive).is_ok();
    let done = !unused || remove(path, id, None);
    unlock(&open);
    done
}

fn is_our_temporary(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
    name.starts_with(b".longarm-") && name.ends_with(b".placeholder")
}

/// Whether it is, as far as a look tells, an empty directory of ours.
fn is_like_a_placeholder(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_dir() && found.mode() & 0o7777 & !MODE == 0 && found.uid() == journal::own_uid())
        && is_empty_directory(path)
}

fn is_empty_directory(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Whether any journal says that this directory stands for this name.
fn is_written_down(directory: &Path, path: &Path, id: Identity) -> bool {
    journal::all(directory).iter().any(|(_, _, records)| {
        let mut held = false;
        for record in records {
            match record {
                Record::Held { id: of, path: at, .. } if *of == id && at == path => held = true,
                Record::Gone { id: of } if *of == id => held = false,
                _ => {}
            }
        }
        held
    })
}

/// Nobody may write to it; everybody may see that it is empty. The mask of the process may take more away.
const MODE: u32 = 0o555;

/// A name that appears and goes whenever it is looked at is given up after so many times.
const ATTEMPTS: usize = 64;

/// 5 s in all: more than anybody needs who is not held up.
const LOCK_ATTEMPTS: u32 = 2_500;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests;
