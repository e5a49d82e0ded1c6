//! One directory that stands for a name: what it is known by, its lock, and its end.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use super::journal;
use super::spot::Spot;

/// What makes a directory that one and no other: the device and the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity(pub(super) u64, pub(super) u64);

impl Identity {
    pub(super) fn of(found: &fs::Metadata) -> Self {
        Self(found.dev(), found.ino())
    }

    pub(super) fn of_open(fd: &OwnedFd) -> io::Result<Self> {
        let found = rustix::fs::fstat(fd)?;
        Ok(Self(found.st_dev, found.st_ino))
    }

    pub(super) fn of_statx(found: &Statx) -> Self {
        Self(rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino)
    }

    /// What a name stands for itself, if there is something.
    pub(super) fn at(path: &Path) -> io::Result<Option<Self>> {
        Ok(metadata(path)?.map(|found| Self::of(&found)))
    }

    /// What a path leads to.
    pub(super) fn behind(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|found| Self::of(&found))
    }
}

/// What a name stands for, by one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thing {
    pub(super) id: Identity,
    /// When it was made, since inodes are used again.
    pub(super) born: Option<SystemTime>,
    /// Whether it is a directory of ours with a mode that we give one.
    is_like_ours: bool,
    is_lent: bool,
}

impl Thing {
    pub(super) fn of(found: &fs::Metadata) -> Self {
        Self::new(Identity::of(found), found.created().ok(), found.mode(), found.uid())
    }

    pub(super) fn of_statx(found: &Statx) -> Self {
        let knows_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let born = if knows_birth { time(&found.stx_btime) } else { None };
        Self::new(Identity::of_statx(found), born, found.stx_mode.into(), found.stx_uid)
    }

    pub(super) fn of_stat(found: &Stat) -> Self {
        Self::new(Identity(found.st_dev, found.st_ino), None, found.st_mode, found.st_uid)
    }

    /// What a name in a directory stands for: always by the same calls, of which not all libraries tell when it was made.
    pub(super) fn by(directory: BorrowedFd<'_>, name: &Path, flags: AtFlags) -> Result<Self, Errno> {
        match rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME) {
            Ok(found) => Ok(Self::of_statx(&found)),
            Err(Errno::NOSYS | Errno::PERM) => {
                rustix::fs::statat(directory, name, flags).map(|found| Self::of_stat(&found))
            }
            Err(error) => Err(error),
        }
    }

    /// What is open.
    pub(super) fn of_open(open: &fs::File) -> io::Result<Self> {
        Ok(Self::by(open.as_fd(), Path::new(""), AtFlags::EMPTY_PATH)?)
    }

    fn new(id: Identity, born: Option<SystemTime>, mode: u32, owner: u32) -> Self {
        let is_directory = FileType::from_raw_mode(mode).is_dir();
        let is_like_ours = is_directory && is_our_mode(mode) && owner == journal::own_uid();
        Self { id, born, is_like_ours, is_lent: is_lent(mode) }
    }

    /// What is at a path itself, if there is something.
    pub(super) fn at(path: &Path) -> io::Result<Option<Self>> {
        Ok(metadata(path)?.map(|found| Self::of(&found)))
    }

    /// Whether it may be a placeholder, if it is empty.
    pub(super) const fn is_like_a_placeholder(&self) -> bool {
        self.is_like_ours
    }

    /// Whether a process that may write there has been allowed to fill it.
    pub(super) const fn is_lent(&self) -> bool {
        self.is_lent
    }
}

/// The same as the standard library makes of it.
fn time(at: &StatxTimestamp) -> Option<SystemTime> {
    let seconds = Duration::from_secs(at.tv_sec.unsigned_abs());
    let whole = match at.tv_sec {
        0.. => SystemTime::UNIX_EPOCH.checked_add(seconds),
        _ => SystemTime::UNIX_EPOCH.checked_sub(seconds),
    };
    whole?.checked_add(Duration::from_nanos(at.tv_nsec.into()))
}

fn metadata(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a directory itself.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Puts a shared lock on a directory.
pub(super) fn lock(open: &OwnedFd) -> io::Result<()> {
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
pub(super) fn unlock(open: &OwnedFd) {
    // There is nothing to be done about a lock that cannot be given up.
    let _ = rustix::fs::flock(open, FlockOperation::NonBlockingUnlock);
}

/// Removes a directory if it is this one and empty. True unless it should be tried again some day.
pub(super) fn remove(spot: &Spot, id: Identity, open: &OwnedFd) -> bool {
    match try_to_remove(spot, id, open) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            spot.as_owner(|| try_to_remove(spot, id, open)).is_ok()
        }
        removed => removed.is_ok(),
    }
}

fn try_to_remove(spot: &Spot, id: Identity, open: &OwnedFd) -> io::Result<()> {
    let spot = match spot.identity()? {
        Some(found) if found == id => Cow::Borrowed(spot),
        // It may have been moved meanwhile. Where the directory is now, the kernel knows.
        _ => match Spot::of_open(open) {
            Ok(moved) if moved.identity()? == Some(id) => Cow::Owned(moved),
            Err(error) if !is_nothing(&error) => return Err(error),
            _ => return Ok(()),
        },
    };
    match spot.remove_directory() {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            hand_over(open);
            Ok(())
        }
        removed => removed,
    }
}

/// Removes a directory that no other executor uses; true unless it should be tried again. `is_shared` is whether another
/// one has it in its journal.
pub(super) fn remove_unshared(spot: &Spot, id: Identity, is_shared: impl FnOnce() -> bool) -> bool {
    let open = match spot.open() {
        Ok(open) => open,
        // What is there now is something else.
        Err(error) => return is_nothing(&error),
    };
    match Identity::of_open(&open) {
        Ok(found) if found == id => {}
        other => return other.is_ok(),
    }
    // Anybody can have a lock on it, so that this alone says nothing.
    let done = match rustix::fs::flock(&open, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => remove(spot, id, &open),
        Err(_) => is_shared() || spot.is_another(id),
    };
    unlock(&open);
    done
}

pub(super) fn is_our_temporary(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
    name.starts_with(b".longarm-") && name.ends_with(b".placeholder")
}

/// Whether an error says that something is not there, or that something else is.
pub(super) fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Removes a directory that has a name which is nobody else's, if it is empty. True unless it should be tried again.
pub(super) fn remove_empty(temporary: &Spot) -> bool {
    match temporary.remove_directory() {
        Ok(()) => true,
        // It is gone, or somebody's now.
        Err(error) => is_nothing(&error) || error.kind() == io::ErrorKind::DirectoryNotEmpty,
    }
}

/// What is left of a directory that was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing of ours: it is gone, or there is something else, or somebody has put something into it.
    Nothing,
    /// The directory, by all that a look tells.
    Placeholder,
    /// It cannot be told now.
    Unclear,
}

/// Looks for a directory that was written down.
pub(super) fn look(spot: &Spot, id: Identity) -> Left {
    match spot.identity() {
        Ok(Some(found)) if found == id => {}
        Ok(_) => return Left::Nothing,
        Err(_) => return Left::Unclear,
    }
    if spot.is_like_a_placeholder() {
        return Left::Placeholder;
    }
    let Some(open) = spot.open().ok().filter(|open| Identity::of_open(open).is_ok_and(|found| found == id)) else {
        return Left::Unclear;
    };
    match is_empty(&open) {
        // Somebody else's, of the same number, or ours with another mode.
        Ok(true) | Err(_) => Left::Unclear,
        Ok(false) => {
            if rustix::fs::fstat(&open).is_ok_and(|found| is_our_mode(found.st_mode)) {
                hand_over(&open);
            }
            Left::Nothing
        }
    }
}

/// It is somebody's now, who may expect that he can write to it. He can have put something else into its place.
pub(super) fn hand_over(open: &OwnedFd) {
    // If it is not even ours to change, he can.
    let _ = rustix::fs::fchmod(open, Mode::from_raw_mode(0o755));
}

/// Whether nothing is in an open directory.
pub(super) fn is_empty(open: &OwnedFd) -> io::Result<bool> {
    for entry in rustix::fs::Dir::read_from(open)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a mode is one that we give a directory. A bit that it inherits from the one above it says nothing.
fn is_our_mode(mode: u32) -> bool {
    let bits = mode & 0o1777;
    bits & !MODE == 0 || is_lent(bits) && bits & !LENT == 0
}

/// Whether it is lent to a process that may write there.
const fn is_lent(mode: u32) -> bool {
    mode & 0o1000 != 0
}

/// Nobody may write to it; everybody may see that it is empty. The mask of the process may take more away.
pub(super) const MODE: u32 = 0o555;

/// Its owner may write to it; the bit that has no meaning in it tells it from what the owner himself makes.
pub(super) const LENT: u32 = 0o1755;

/// 5 s in all: more than anybody needs who is not held up.
const LOCK_ATTEMPTS: u32 = 2_500;
const LOCK_PAUSE: Duration = Duration::from_millis(2);
