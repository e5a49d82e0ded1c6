//! What the kernel shows as files and is mounted elsewhere than where it is looked for by name: a second procfs in the tree of
//! another system, say. `/proc`, `/dev` and `/sys` are what a sandbox knows by itself.
//!
//! The kernel tells whoever has its list of mounts open that it has changed. So the list is read once and then only after that,
//! and asking costs a start one call. What was found in it is looked at each time: a directory above a mount can be renamed, of
//! which nobody is told.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::looks::Found;
use super::plan::is_own;
use crate::backend::local::unix::check;
use crate::sandbox::SandboxError;

/// What is left of such a file system in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Nothing: it shows the processes of the host, or is written to by whoever reads it.
    Hidden,
    /// It can be read, as `/sys` can.
    ReadOnly,
}

impl Limit {
    /// That of a type of file system; none if it is one for files.
    fn of(kind: &[u8]) -> Option<Self> {
        match kind {
            b"proc" | b"mqueue" => Some(Self::Hidden),
            b"sysfs" | b"cgroup" | b"cgroup2" | b"cpuset" | b"debugfs" | b"tracefs" | b"securityfs" | b"selinuxfs"
            | b"smackfs" | b"bpf" | b"configfs" | b"fusectl" | b"pstore" | b"efivarfs" | b"binfmt_misc"
            | b"resctrl" | b"nfsd" | b"rpc_pipefs" | b"xenfs" | b"devpts" | b"devtmpfs" => Some(Self::ReadOnly),
            _ => None,
        }
    }
}

/// All of them, in the order of their paths.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KernelMounts {
    all: Vec<Known>,
}

#[derive(Debug, PartialEq, Eq)]
struct Known {
    mount: Mount,
    cover: Option<Cover>,
}

/// A place that has a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cover {
    pub(super) path: PathBuf,
    pub(super) limit: Limit,
    pub(super) found: Found,
}

impl KernelMounts {
    /// What has limits, each directory before what is in it.
    pub(super) fn covers(&self) -> impl Iterator<Item = &Cover> {
        self.all.iter().filter_map(|known| known.cover.as_ref())
    }

    /// The limit of a path, if it is at or below one of them, or what is called so everywhere.
    pub(super) fn limit(&self, path: &Path) -> Option<Limit> {
        let usual = path.starts_with("/sys").then_some(Limit::ReadOnly);
        let covers = self.covers().filter(|cover| path.starts_with(&cover.path)).map(|cover| cover.limit);
        let mut limits = usual.into_iter().chain(covers);
        let first = limits.next()?;
        Some(if limits.any(|limit| limit == Limit::Hidden) { Limit::Hidden } else { first })
    }

    /// Whether each is where it was found.
    fn is_as_found(&self) -> bool {
        self.all.iter().all(|known| known.mount.cover().is_ok_and(|cover| cover == known.cover))
    }

    #[cfg(test)]
    pub(super) fn with(covers: impl IntoIterator<Item = Cover>) -> Self {
        let known = |cover: Cover| {
            let mount = Mount {
                path: cover.path.clone(),
                limit: cover.limit,
                device: cover.found.identity.0,
                is_covered: false,
            };
            Known { mount, cover: Some(cover) }
        };
        Self { all: covers.into_iter().map(known).collect() }
    }
}

/// Those that there are now.
///
/// What is mounted after this, and before the sandbox has mounts of its own, is not among them.
///
/// # Errors
///
/// If they cannot be told. A sandbox is not made then: nothing else knows of a second procfs, in which a command would find the
/// processes of the host, or with which it could change settings of the kernel.
pub(super) fn current() -> Result<Arc<KernelMounts>, SandboxError> {
    WATCH.current()
}

/// Closes the list, which the next one opens again.
pub(super) fn rest() {
    let last = WATCH.last().take();
    drop(last);
}

static WATCH: Watch = Watch::new();

/// The list of mounts, and what was found in it.
#[derive(Debug)]
struct Watch {
    last: Mutex<Option<(File, Arc<KernelMounts>)>>,
}

impl Watch {
    const fn new() -> Self {
        Self { last: Mutex::new(None) }
    }

    fn last(&self) -> MutexGuard<'_, Option<(File, Arc<KernelMounts>)>> {
        // One that has panicked has changed nothing.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was found last, if nothing was mounted or taken away since.
    fn unchanged(&self) -> io::Result<Option<Arc<KernelMounts>>> {
        let mut last = self.last();
        let Some((file, mounts)) = &*last else { return Ok(None) };
        if !has_changed(file)? {
            return Ok(Some(Arc::clone(mounts)));
        }
        // It is told once only that it has changed.
        *last = None;
        Ok(None)
    }

    /// A file system that does not answer keeps only those starts waiting that look at it, not all: nothing is looked at under
    /// the lock.
    fn current(&self) -> Result<Arc<KernelMounts>, SandboxError> {
        if let Some(mounts) = self.unchanged().map_err(|error| unlisted(&error))?
            && mounts.is_as_found()
        {
            return Ok(mounts);
        }
        let mut moved = None;
        for _ in 0..TRIES {
            let (file, listed) = list().map_err(|error| unlisted(&error))?;
            match find(listed) {
                Ok(mounts) => {
                    let mounts = Arc::new(mounts);
                    // Also over a newer one: this file tells of what has changed since it was opened.
                    *self.last() = Some((file, Arc::clone(&mounts)));
                    return Ok(mounts);
                }
                Err(path) => moved = Some(path),
            }
        }
        let path = moved.unwrap_or_default();
        Err(SandboxError::changed(format!(
            "what is mounted at {} is not found there: it is moved while the sandbox is prepared",
            path.display()
        )))
    }
}

/// How often it is looked for what is not where the list says.
const TRIES: usize = 4;

/// Why there is no list.
fn unlisted(error: &io::Error) -> SandboxError {
    let what = format!("what is mounted cannot be listed: {error}");
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => SandboxError::preparation(format!("{what}; try again")),
        _ => SandboxError::unavailable(what, "mount /proc where the executor runs"),
    }
}

/// Opens the list and reads it: that of this thread, which is the one of the main thread unless that has ended.
fn list() -> io::Result<(File, Vec<Mount>)> {
    let mut file = File::open("/proc/thread-self/mountinfo")?;
    let mut text = Vec::with_capacity(8192);
    file.read_to_end(&mut text)?;
    let listed = parse(&text)?;
    Ok((file, listed))
}

/// Whether anything was mounted, or taken away, since that was last asked.
fn has_changed(file: &File) -> io::Result<bool> {
    // It can be read at any time, so that nothing interrupts this.
    let mut told = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLPRI | libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which the call fills.
    check(unsafe { libc::poll(&raw mut told, 1, 0) })?;
    Ok(told.revents & (libc::POLLPRI | libc::POLLERR) != 0)
}

/// Looks for each of them; else the path of one that is not there.
fn find(listed: Vec<Mount>) -> Result<KernelMounts, PathBuf> {
    let known = |mount: Mount| match mount.cover() {
        Ok(cover) => Ok(Known { mount, cover }),
        Err(Moved) => Err(mount.path),
    };
    let mut all: Vec<Known> = listed.into_iter().map(known).collect::<Result<_, _>>()?;
    all.sort_by(|one, other| {
        let path = |known: &Known| known.cover.as_ref().map(|cover| cover.path.clone());
        path(one).cmp(&path(other))
    });
    Ok(KernelMounts { all })
}

/// A file system of the kernel's, as the list has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    path: PathBuf,
    limit: Limit,
    device: u64,
    /// Whether another one lies over it, or over what it is in.
    is_covered: bool,
}

/// It is not where the list says.
#[derive(Debug)]
struct Moved;

impl Mount {
    /// What has to be covered for it, if that can be reached.
    fn cover(&self) -> Result<Option<Cover>, Moved> {
        let errno = match look(&self.path) {
            Ok((device, found)) if device == self.device => {
                // What is made in the sandbox has no right to enter directories of others, as this process may have.
                return Ok(Some(closed_to_us(&self.path).unwrap_or_else(|| Cover {
                    path: self.path.clone(),
                    limit: self.limit,
                    found,
                })));
            }
            Ok(_) => libc::ENOENT,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        };
        match errno {
            _ if self.is_covered => Ok(None),
            // It is in a file system that has ended, and does not come back by itself.
            libc::ENOTCONN => Ok(None),
            // Nobody finds it as long as that is so, but whoever owns a directory on the way can change that: so the way to it is
            // closed. If no directory is closed, it is a rule of the system that keeps this process from it, and what it starts.
            libc::EACCES => Ok(closed_to_us(&self.path)),
            libc::ENOENT | libc::ENOTDIR | libc::ELOOP => Err(Moved),
            // It has no path that can be used, or its file system does not answer now.
            _ => {
                let closed = self.path.ancestors().skip(1).find_map(|above| Some((above, look(above).ok()?.1)));
                let closed = closed.filter(|(above, _)| above.parent().is_some());
                Ok(closed.map(|(above, found)| Cover { path: above.into(), limit: Limit::Hidden, found }))
            }
        }
    }
}

/// The first directory on the way to a path that a process of this user without further rights may not enter.
fn closed_to_us(path: &Path) -> Option<Cover> {
    let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|above| above.parent().is_some()).collect();
    above.reverse();
    let own = (rustix::process::geteuid(), rustix::process::getegid());
    above.into_iter().find_map(|directory| {
        let found = std::fs::symlink_metadata(directory).ok()?;
        let may_enter = if own.0.is_root() {
            // It could by its rights. Of its other groups, the sandbox does not know any.
            let bit = match (found.uid() == own.0.as_raw(), found.gid() == own.1.as_raw()) {
                (true, _) => 0o100,
                (false, true) => 0o010,
                (false, false) => 0o001,
            };
            found.mode() & bit != 0
        } else {
            use rustix::fs::{Access, AtFlags, CWD};
            rustix::fs::accessat(CWD, directory, Access::EXEC_OK, AtFlags::EACCESS) != Err(rustix::io::Errno::ACCESS)
        };
        let found = Found { identity: (found.dev(), found.ino()), directory: found.is_dir() };
        (!may_enter).then(|| Cover { path: directory.into(), limit: Limit::Hidden, found })
    })
}

fn look(path: &Path) -> io::Result<(u64, Found)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), Found { identity: (found.dev(), found.ino()), directory: found.is_dir() }))
}

/// One line of the list.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    id: u64,
    parent: u64,
    device: u64,
    path: PathBuf,
    limit: Option<Limit>,
}

/// Those of the kernel's file systems that the list has, where a sandbox does not know of them anyway.
fn parse(text: &[u8]) -> io::Result<Vec<Mount>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| {
        parse_line(line).ok_or_else(|| {
            let line = String::from_utf8_lossy(line);
            io::Error::new(io::ErrorKind::InvalidData, format!("a line of the list is not understood: {line}"))
        })
    });
    let lines: Vec<Line> = lines.collect::<io::Result<_>>()?;
    let by_id: HashMap<u64, &Line> = lines.iter().map(|line| (line.id, line)).collect();
    let mount = |line: &Line| {
        let limit = line.limit.filter(|limit| is_elsewhere(&line.path, *limit))?;
        let is_covered = is_covered(line, &lines, &by_id);
        Some(Mount { path: line.path.clone(), limit, device: line.device, is_covered })
    };
    Ok(lines.iter().filter_map(mount).collect())
}

/// Whether what is mounted there is no concern of what every sandbox has.
fn is_elsewhere(path: &Path, limit: Limit) -> bool {
    let is_guarded = limit == Limit::ReadOnly && path.starts_with("/sys");
    !is_own(path) && !is_guarded && path.parent().is_some()
}

/// Whether another mount lies over this one, or over a directory that it is in.
fn is_covered(line: &Line, lines: &[Line], by_id: &HashMap<u64, &Line>) -> bool {
    let mut next = Some(line);
    // No way up is longer.
    for _ in 0..lines.len() {
        let Some(at) = next else { return false };
        let covers = |other: &Line| {
            let over = other.parent == at.id && other.path == at.path;
            let over_a_directory =
                other.parent == at.parent && at.path.starts_with(&other.path) && at.path != other.path;
            other.id != at.id && (over || over_a_directory)
        };
        if lines.iter().any(covers) {
            return true;
        }
        next = by_id.get(&at.parent).copied();
    }
    false
}

/// Of `36 35 98:0 /root /path options optional… - type source options`.
fn parse_line(line: &[u8]) -> Option<Line> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let mut device = fields.next()?.split(|byte| *byte == b':').map(number);
    let (Some(Some(major)), Some(Some(minor)), None) = (device.next(), device.next(), device.next()) else {
        return None;
    };
    let device = libc::makedev(u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
    let path = path(fields.nth(1)?)?;
    let _options = fields.next()?;
    // As many as there are.
    fields.find(|field| *field == b"-")?;
    let kind = fields.next().filter(|kind| !kind.is_empty())?;
    Some(Line { id, parent, device, path, limit: Limit::of(kind) })
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// An absolute path, in which some bytes are written as three octal digits each.
fn path(text: &[u8]) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(3)?;
        let value = digits.iter().try_fold(0_u16, |value, digit| {
            matches!(digit, b'0'..=b'7').then(|| value * 8 + u16::from(digit - b'0'))
        })?;
        bytes.push(u8::try_from(value).ok()?);
        rest = after;
    }
    bytes.starts_with(b"/").then(|| OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests;
