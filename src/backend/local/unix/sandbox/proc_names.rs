//! What of `/proc` that is not a process's own could be written to without a capability.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, openat, statat};

/// The names at the top of `/proc` below which files can be opened for writing by whoever has the number of the system's
/// root, or by everybody. Modules that are loaded add some, and take them away with them: so they are listed for each sandbox.
/// What is there is looked at when anything was added or taken away: the kernel itself gives none of them another mode.
pub(super) fn writable(by_root: bool) -> io::Result<Vec<String>> {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let proc = Proc::open(Path::new("/proc"))?;
    let listed = proc.list()?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some(known) if known.by_root == by_root && known.listed == listed => Ok(known.writable.clone()),
        _ => {
            let writable = proc.writable(&listed, by_root);
            *known = Some(Known { by_root, listed, writable: writable.clone() });
            Ok(writable)
        }
    }
}

/// What was found before.
#[derive(Debug)]
struct Known {
    by_root: bool,
    listed: Vec<Listed>,
    writable: Vec<String>,
}

/// What is at the top, but for what is a process's.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    name: String,
    number: u64,
    kind: FileType,
}

struct Proc {
    directory: OwnedFd,
}

impl Proc {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { directory: openat(CWD, path, flags, Mode::empty())? })
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        // Small, since what follows the names that are wanted is not wanted: there are as many as processes.
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut entries = RawDir::new(&self.directory, &mut buffer);
        let mut listed = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            // The names of processes come last.
            if name.bytes().all(|byte| byte.is_ascii_digit()) {
                break;
            }
            listed.push(Listed { name: name.to_owned(), number: entry.ino(), kind: entry.file_type() });
        }
        Ok(listed)
    }

    fn writable(&self, listed: &[Listed], by_root: bool) -> Vec<String> {
        let (directories, files) = if by_root { (DIRECTORIES, 0o222) } else { (DIRECTORIES_OF_ALL, 0o002) };
        let is_writable = |Listed { name, kind, .. }: &&Listed| match kind {
            FileType::Directory => directories.contains(&name.as_str()),
            // A writer needs no permission to read, and its mode does not show it.
            FileType::RegularFile => {
                by_root && name == "sysrq-trigger"
                    || statat(&self.directory, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)
                        .is_ok_and(|found| found.st_mode & files != 0)
            }
            _ => false,
        };
        listed.iter().filter(is_writable).map(|listed| listed.name.clone()).collect()
    }
}

const DIRECTORIES: &[&str] =
    &["sys", "pressure", "irq", "bus", "fs", "acpi", "scsi", "driver", "asound", "dynamic_debug"];

/// Where something is open to everybody: what starts to watch for a shortage, and some of the settings.
const DIRECTORIES_OF_ALL: &[&str] = &["sys", "pressure"];

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_can_be_written_is_listed_as_it_is_now() {
        let proc = tempfile::tempdir().unwrap();
        let file = |name: &str, mode| {
            std::fs::write(proc.path().join(name), "").unwrap();
            std::fs::set_permissions(proc.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
        };
        std::fs::create_dir(proc.path().join("sys")).unwrap();
        std::fs::create_dir(proc.path().join("irq")).unwrap();
        std::fs::create_dir(proc.path().join("other")).unwrap();
        file("sysrq-trigger", 0o400);
        file("cpuinfo", 0o444);
        let listed = |by_root| {
            let proc = Proc::open(proc.path()).unwrap();
            let mut names = proc.writable(&proc.list().unwrap(), by_root);
            names.sort();
            names
        };
        let before = Proc::open(proc.path()).unwrap().list().unwrap();
        assert_eq!(listed(true), ["irq", "sys", "sysrq-trigger"]);
        assert_eq!(listed(false), ["sys"]);
        file("of-a-module", 0o644);
        file("of-all", 0o666);
        assert_eq!(listed(true), ["irq", "of-a-module", "of-all", "sys", "sysrq-trigger"]);
        assert_eq!(listed(false), ["of-all", "sys"]);
        std::fs::remove_file(proc.path().join("of-a-module")).unwrap();
        assert_eq!(listed(true), ["irq", "of-all", "sys", "sysrq-trigger"]);
        assert!(Proc::open(&proc.path().join("cpuinfo")).is_err());
        // What is there is looked at anew if there is another file of a name.
        let now = || Proc::open(proc.path()).unwrap().list().unwrap();
        let same = |one: &[Listed], other: &[Listed]| {
            one.iter().all(|listed| other.contains(listed)) && one.len() == other.len()
        };
        assert!(!same(&before, &now()), "there is one more");
        std::fs::remove_file(proc.path().join("of-all")).unwrap();
        assert!(same(&before, &now()));
        let (kept, cpuinfo) = (proc.path().join("kept"), proc.path().join("cpuinfo"));
        std::fs::rename(&cpuinfo, &kept).unwrap();
        file("cpuinfo", 0o666);
        std::fs::remove_file(&kept).unwrap();
        assert!(!same(&before, &now()), "it is another one");
    }

    #[test]
    fn the_settings_of_the_kernel_are_among_those_of_this_system() {
        for by_root in [true, false] {
            let names = writable(by_root).unwrap();
            assert!(names.iter().any(|name| name == "sys"));
            assert_eq!(writable(by_root).unwrap(), names, "the second time it is known");
        }
    }
}
