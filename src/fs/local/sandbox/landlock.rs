//! The second wall: a thread that restricts itself, so that what it opens lies where the intent allows it even if the first
//! wall has a hole.
//!
//! Landlock adds rights on the way down a path and takes none away. So it knows the coarse shape only: what is readable or
//! writable at all, not what is denied within it.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};

use super::system::EVERYBODYS;
use crate::sandbox::{Access, Bound, BoundEntry, Existing};

/// What is opened, and with which rights: one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    path: PathBuf,
    access: Access,
}

/// What a plan allows, to be made into rules of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wall {
    restricts_reading: bool,
    rules: Vec<Rule>,
}

impl Wall {
    pub(super) fn of(bound: &Bound) -> Self {
        let root = bound.root.filter(|root| *root >= Access::Read);
        let rule = |entry: &BoundEntry| Rule { path: entry.path.clone(), access: entry.access };
        let matters = |entry: &&BoundEntry| match entry.access {
            Access::Write => entry.kind != Existing::Missing,
            Access::Read => entry.kind != Existing::Missing && root.is_none(),
            Access::Deny => false,
        };
        let opened = bound.entries.iter().filter(matters).map(rule);
        let root_rule = root.map(|access| Rule { path: "/".into(), access });
        let everybodys = EVERYBODYS.iter().map(|path| Rule { path: path.into(), access: Access::Write });
        let rules = root_rule.into_iter().chain(everybodys).chain(opened).collect();
        Self { restricts_reading: root.is_none(), rules }
    }

    /// The paths that rules are about.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.rules.iter().map(|rule| rule.path.as_path())
    }

    /// The rules, as the kernel has them. What does not exist has none. None where the kernel has no Landlock.
    pub(super) fn build(&self) -> io::Result<Option<Ruleset>> {
        match abi()? {
            Some(abi) => self.build_for(abi).map(Some),
            None => Ok(None),
        }
    }

    fn build_for(&self, abi: i32) -> io::Result<Ruleset> {
        let handled = write_rights(abi) | if self.restricts_reading { READ } else { 0 };
        let ruleset = Ruleset::new(handled)?;
        for rule in &self.rules {
            let allowed = match rule.access {
                Access::Write => write_rights(abi) | READ,
                Access::Read => READ,
                Access::Deny => continue,
            } & handled;
            if allowed != 0 {
                ruleset.allow(rule, allowed)?;
            }
        }
        Ok(ruleset)
    }
}

/// Rules that a thread can put on itself.
#[derive(Debug)]
pub(super) struct Ruleset(OwnedFd);

impl Ruleset {
    fn new(handled: u64) -> io::Result<Self> {
        let attributes = RulesetAttributes { handled_access_fs: handled };
        // SAFETY: the pointer is to a value of that size, which outlives the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const attributes,
                size_of::<RulesetAttributes>(),
                0_u32,
            )
        };
        let fd = check(fd)?;
        // SAFETY: the call returned a new descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn allow(&self, rule: &Rule, allowed: u64) -> io::Result<()> {
        let opened = rustix::fs::open(&rule.path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        // Nothing is allowed with what does not exist or cannot be reached.
        let Ok(object) = opened else { return Ok(()) };
        let is_directory = rustix::fs::fstat(&object)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
        let allowed_access = if is_directory { allowed } else { allowed & OF_FILES };
        if allowed_access == 0 {
            return Ok(());
        }
        let attributes = PathBeneathAttributes { allowed_access, parent_fd: object.as_raw_fd() };
        // SAFETY: both descriptors are open, and the pointer is to a value that outlives the call.
        let added = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.0.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const attributes,
                0_u32,
            )
        };
        check(added).map(drop)
    }

    /// Puts the rules on the calling thread, for ever. Others are as free as before.
    pub(super) fn restrict_this_thread(&self) -> io::Result<()> {
        // SAFETY: the call takes numbers only, and changes this thread alone.
        check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1_u64, 0_u64, 0_u64, 0_u64) }.into())?;
        // SAFETY: the descriptor is open; the call changes this thread alone.
        let restricted = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.0.as_raw_fd(), 0_u32) };
        check(restricted).map(drop)
    }
}

/// The kernel's version of the interface. None if there is none that works, which is found out once. That it cannot be found
/// out now, for want of memory or descriptors, decides nothing.
fn abi() -> io::Result<Option<i32>> {
    static ABI: OnceLock<Option<i32>> = OnceLock::new();
    if let Some(abi) = ABI.get() {
        return Ok(*abi);
    }
    let abi = decided(find_abi())?;
    Ok(*ABI.get_or_init(|| abi))
}

fn find_abi() -> io::Result<i32> {
    // SAFETY: with this flag, the call takes no pointer and no size.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    let version = check(version)?;
    // It may be known and yet not work: forbidden by a filter, or used up by the layers of those who started us.
    let works = move || Ruleset::new(write_rights(version))?.restrict_this_thread();
    let tried = std::thread::Builder::new().name("longarm-probe".into()).spawn(works)?;
    tried.join().map_err(|_| io::Error::other("the thread that tries Landlock panicked"))??;
    Ok(version)
}

/// What an attempt says for good.
fn decided(found: io::Result<i32>) -> io::Result<Option<i32>> {
    match found {
        Ok(version) => Ok((version >= 1).then_some(version)),
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM | libc::E2BIG)) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether there is a second wall on this machine.
#[cfg(test)]
pub(super) fn is_there() -> bool {
    abi().unwrap().is_some()
}

fn check(result: i64) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { i32::try_from(result).map_err(io::Error::other) }
}

/// All rights by which something is changed that an interface of this version knows.
const fn write_rights(abi: i32) -> u64 {
    WRITE_FILE | MAKE_AND_REMOVE | if abi >= 2 { REFER } else { 0 } | if abi >= 3 { TRUNCATE } else { 0 }
}

#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
}

#[repr(C, packed)]
struct PathBeneathAttributes {
    allowed_access: u64,
    parent_fd: i32,
}

const VERSION: u32 = 1;
const RULE_PATH_BENEATH: i32 = 1;

const WRITE_FILE: u64 = 1 << 1;
/// Reading files and directories.
const READ: u64 = 1 << 2 | 1 << 3;
/// Removing directories and files, and making everything but devices.
const MAKE_AND_REMOVE: u64 = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
/// Those that mean something for what is no directory.
const OF_FILES: u64 = WRITE_FILE | 1 << 2 | TRUNCATE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passing_shortage_decides_nothing() {
        let failed = |code| decided(Err(io::Error::from_raw_os_error(code)));
        for code in [libc::ENOSYS, libc::EOPNOTSUPP, libc::EPERM, libc::E2BIG] {
            assert_eq!(failed(code).unwrap(), None);
        }
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN] {
            assert_eq!(failed(code).unwrap_err().raw_os_error(), Some(code));
        }
        assert_eq!((decided(Ok(7)).unwrap(), decided(Ok(0)).unwrap()), (Some(7), None));
    }
}
