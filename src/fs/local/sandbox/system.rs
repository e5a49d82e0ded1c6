//! What the system shows as files and is more than files: processes, the kernel's settings, devices. A sandboxed process has
//! a `/proc` of its own, and `/sys` and devices that it cannot change; calls about files run in the executor, and are not to
//! reach any further.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::PROC_SUPER_MAGIC;
use rustix::io::Errno;

use super::super::os::Dir;

/// The most that any intent allows with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// It is like any file.
    None,
    /// Every sandboxed process has it and may write to it, whatever else it may: what is written there is gone.
    Everybodys,
    Read,
    /// It is a process: its memory, its environment, what it has open. Or it is the memory of all of them, or what the kernel
    /// does for them, which the system shows to an executor with capabilities, and would not to a command that has none.
    Nothing,
}

impl Limit {
    /// The limit of a canonical path.
    pub(super) fn of(path: &Path) -> Self {
        let mut names = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.as_bytes()),
            _ => None,
        });
        match (names.next(), names.next(), names.next()) {
            (Some(b"proc"), Some(name), _) if is_number(name) => Self::Nothing,
            (Some(b"proc"), Some(name), None) if is_of_the_kernel(name) => Self::Nothing,
            (Some(b"sys"), Some(b"kernel"), Some(b"debug" | b"tracing")) => Self::Nothing,
            (Some(b"proc" | b"sys"), ..) => Self::Read,
            (Some(b"dev"), Some(b"null" | b"zero" | b"full" | b"random" | b"urandom"), None) => Self::Everybodys,
            (Some(b"dev"), Some(b"shm"), _) => Self::None,
            (Some(b"dev"), ..) => Self::Read,
            _ => Self::None,
        }
    }
}

/// The paths of what is [everybody's](Limit::Everybodys).
pub(super) const EVERYBODYS: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

fn is_number(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

/// Whether a file of `/proc` is only for those who look after the kernel: its memory and its messages, which are gone for
/// others once they are read.
fn is_of_the_kernel(name: &[u8]) -> bool {
    name.starts_with(b"kpage") || matches!(name, b"kcore" | b"kmsg" | b"kallsyms" | b"vmallocinfo")
}

/// Refuses a directory that shows processes elsewhere than where they are looked for by name.
pub(super) fn check_directory(dir: &Dir, path: &Path) -> io::Result<()> {
    if is_at_proc(path) || !is_of_procfs(dir)? { Ok(()) } else { Err(Errno::ACCESS.into()) }
}

/// Whether an open file shows processes elsewhere.
pub(super) fn is_elsewhere(file: &File, path: &Path) -> bool {
    !is_at_proc(path) && is_of_procfs(file).unwrap_or(true)
}

fn is_at_proc(path: &Path) -> bool {
    path.starts_with("/proc")
}

fn is_of_procfs(fd: impl AsFd) -> io::Result<bool> {
    Ok(rustix::fs::fstatfs(fd)?.f_type == PROC_SUPER_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_than_files_has_its_limit() {
        for (path, limit) in [
            ("/", Limit::None),
            ("/proc", Limit::Read),
            ("/proc/cpuinfo", Limit::Read),
            ("/proc/sys/kernel/hostname", Limit::Read),
            ("/proc/self", Limit::Read),
            ("/proc/1", Limit::Nothing),
            ("/proc/12/task/12/mem", Limit::Nothing),
            ("/proc/1a", Limit::Read),
            ("/proc/kcore", Limit::Nothing),
            ("/proc/kmsg", Limit::Nothing),
            ("/proc/kpageflags", Limit::Nothing),
            ("/sys/kernel/tracing/trace", Limit::Nothing),
            ("/process/1", Limit::None),
            ("/srv/proc/1", Limit::None),
            ("/sys/kernel", Limit::Read),
            ("/dev", Limit::Read),
            ("/dev/null", Limit::Everybodys),
            ("/dev/tty", Limit::Read),
            ("/dev/null/x", Limit::Read),
            ("/dev/sda", Limit::Read),
            ("/dev/pts/0", Limit::Read),
            ("/dev/shm/x/y", Limit::None),
        ] {
            assert_eq!(Limit::of(Path::new(path)), limit, "{path}");
        }
    }

    #[test]
    fn what_is_everybodys_is_listed() {
        assert!(EVERYBODYS.iter().all(|path| Limit::of(Path::new(path)) == Limit::Everybodys));
    }

    #[test]
    fn what_shows_processes_elsewhere_is_known_by_itself() {
        let open = |path: &str| File::open(path).unwrap();
        // The same object by the name of another mount.
        assert!(is_elsewhere(&open("/proc/version"), Path::new("/srv/proc/version")));
        assert!(!is_elsewhere(&open("/proc/version"), Path::new("/proc/version")));
        let proc = Dir::open(Path::new("/proc"), crate::fs::Symlinks::Refuse).unwrap();
        assert!(check_directory(&proc, Path::new("/srv/proc")).is_err());
        assert!(check_directory(&proc, Path::new("/proc")).is_ok());
    }
}
