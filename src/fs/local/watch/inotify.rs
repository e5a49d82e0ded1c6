//! Watching as Linux does it.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::super::pool::Pool;
use super::{Watched, poll, steps};
use crate::fs::{FsError, MissingWatch};

/// Starts a watch. None if that is not possible.
pub(super) async fn watch(pool: &Pool, watched: Watched) -> Result<Option<MissingWatch>, FsError> {
    let (watched, placed) = pool
        .run(move || {
            let placed = Placed::new(&watched);
            Ok((watched, placed))
        })
        .await?;
    match placed {
        Ok(placed) => {
            let path = watched.missing.into_iter().next().unwrap_or_default();
            let failed = |path, error| FsError::Os { op: "watch", path, source: Arc::new(error) };
            let source = register(placed.source).map_err(|error| failed(path.as_path().into(), error))?;
            let rules = placed.rules;
            let changed = async move { changed(&source, &rules).await.map_err(|error| failed(path.into(), error)) };
            Ok(Some(MissingWatch::new(changed)))
        }
        Err(Refusal::Impossible) => Ok(None),
        Err(Refusal::Exhausted) => poll::watch(pool, watched).await,
    }
}

/// Has the runtime watch the descriptor.
#[allow(deprecated, reason = "the call that replaces it is newer than the oldest tokio that we accept")]
fn register(source: OwnedFd) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // What the deprecated call cannot promise holds here: the registration owns the descriptor, which so stays open.
    AsyncFd::with_interest(Arc::new(source), Interest::READABLE)
}

/// Waits for an event that matters.
async fn changed(source: &AsyncFd<Arc<OwnedFd>>, rules: &Rules) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 4 << 10];
    loop {
        let mut ready = source.readable().await?;
        match ready.try_io(|source| read(source.get_ref(), rules, &mut buffer)) {
            Ok(Ok(true)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(false)) | Err(_) => {}
        }
    }
}

/// Reads what there is. An error of the kind `WouldBlock` when nothing of it matters.
fn read(source: &OwnedFd, rules: &Rules, buffer: &mut [MaybeUninit<u8>]) -> io::Result<bool> {
    let mut events = Reader::new(source, buffer);
    loop {
        match events.next() {
            Ok(event) => {
                let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                if rules.matter(event.wd(), event.events(), name) {
                    return Ok(true);
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Why a watch is not placed.
enum Refusal {
    /// There is nothing to watch, or nothing would be told.
    Impossible,
    /// There are as many watches as the system allows.
    Exhausted,
}

/// A watch that is in place.
struct Placed {
    source: OwnedFd,
    rules: Rules,
}

/// By watch descriptor, the names in a directory that matter.
#[derive(Default)]
struct Rules(HashMap<i32, HashSet<OsString>>);

impl Rules {
    fn matter(&self, watch: i32, events: ReadFlags, name: Option<&OsStr>) -> bool {
        match name {
            Some(name) => self.0.get(&watch).is_some_and(|names| names.contains(name)),
            // Something about the directory or the file itself, or events that were lost.
            None => !events.is_empty(),
        }
    }
}

impl Placed {
    /// Every directory is watched before it is looked into, so that nothing is missed.
    fn new(watched: &Watched) -> Result<Self, Refusal> {
        let source = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|_| Refusal::Exhausted)?;
        let mut placed = Self { source, rules: Rules::default() };
        for path in &watched.missing {
            placed.watch_missing(path)?;
        }
        if let Some(path) = &watched.present {
            placed.watch_present(path)?;
        }
        Ok(placed)
    }

    fn watch_missing(&mut self, path: &Path) -> Result<(), Refusal> {
        for (directory, next) in steps(path) {
            self.watch_above(directory)?;
            let name = next.file_name().ok_or(Refusal::Impossible)?;
            match fs::symlink_metadata(next) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ATTRIB;
                    self.add(directory, OF_ITSELF | flags | WatchFlags::ONLYDIR, Some(name))?;
                    check_file_system(directory)?;
                    // It may have come before it was watched for.
                    return match fs::symlink_metadata(next) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                        _ => Err(Refusal::Impossible),
                    };
                }
                Err(_) => return Err(Refusal::Impossible),
            }
        }
        Err(Refusal::Impossible)
    }

    fn watch_present(&mut self, path: &Path) -> Result<(), Refusal> {
        for (directory, next) in steps(path) {
            self.watch_above(directory)?;
            if next == path {
                let name = next.file_name().ok_or(Refusal::Impossible)?;
                let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::DELETE;
                self.add(directory, OF_ITSELF | flags | WatchFlags::ONLYDIR, Some(name))?;
                check_file_system(directory)?;
            }
        }
        let found = fs::symlink_metadata(path).map_err(|_| Refusal::Impossible)?;
        if found.is_symlink() {
            return Err(Refusal::Impossible);
        }
        let content = if found.is_dir() { WatchFlags::empty() } else { WatchFlags::MODIFY };
        self.add(path, OF_ITSELF | content, None)
    }

    /// A directory above what is watched: only that it stays where it is matters.
    fn watch_above(&mut self, directory: &Path) -> Result<(), Refusal> {
        let found = fs::symlink_metadata(directory).ok();
        if !found.as_ref().is_some_and(Metadata::is_dir) {
            return Err(Refusal::Impossible);
        }
        match self.add(directory, OF_ITSELF | WatchFlags::ONLYDIR, None) {
            // It may be entered but not read. That it is moved then goes unnoticed.
            Err(Refusal::Impossible) => Ok(()),
            added => added,
        }
    }

    fn add(&mut self, path: &Path, flags: WatchFlags, name: Option<&OsStr>) -> Result<(), Refusal> {
        let flags = flags | WatchFlags::DONT_FOLLOW | WatchFlags::MASK_ADD;
        match inotify::add_watch(&self.source, path, flags) {
            Ok(watch) => {
                self.rules.0.entry(watch).or_default().extend(name.map(OsStr::to_owned));
                Ok(())
            }
            Err(Errno::NOSPC | Errno::NOMEM) => Err(Refusal::Exhausted),
            Err(_) => Err(Refusal::Impossible),
        }
    }
}

/// That something is removed or renamed.
const OF_ITSELF: WatchFlags = WatchFlags::DELETE_SELF.union(WatchFlags::MOVE_SELF);

/// Refuses a directory whose file system does not tell of all changes: those the kernel makes up, and those that others
/// change as well.
fn check_file_system(directory: &Path) -> Result<(), Refusal> {
    let found = rustix::fs::statfs(directory).map_err(|_| Refusal::Impossible)?;
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, reason = "the type differs between systems")]
    let magic = found.f_type as u64 & 0xffff_ffff;
    if SILENT.contains(&magic) { Err(Refusal::Impossible) } else { Ok(()) }
}

/// Magic numbers of such file systems.
const SILENT: &[u64] = &[
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6969,      // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x0102_1997, // 9p
    0x6573_5546, // FUSE
    0x5346_414f, // AFS
    0x00c3_6400, // Ceph
];
