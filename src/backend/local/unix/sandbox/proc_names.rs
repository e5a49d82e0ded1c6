//! What of `/proc` that is not a process's own could be written to without a capability.

use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, openat, statat};

/// The names at the top of `/proc` below which files can be opened for writing by whoever has the number of the system's
/// root, or by everybody. Modules that are loaded add some, and take them away with them: so they are listed for each sandbox.
pub(super) fn writable(by_root: bool) -> io::Result<Vec<String>> {
    writable_in(Path::new("/proc"), by_root)
}

fn writable_in(proc: &Path, by_root: bool) -> io::Result<Vec<String>> {
    let (directories, files) = if by_root { (DIRECTORIES, 0o222) } else { (DIRECTORIES_OF_ALL, 0o002) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, proc, flags, Mode::empty())?;
    // Small, since what follows the names that are wanted is not wanted: there are as many as processes.
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(&directory, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        // The names of processes come last.
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            break;
        }
        let wanted = match entry.file_type() {
            FileType::Directory => directories.contains(&name),
            // A writer needs no permission to read, and its mode does not show it.
            FileType::RegularFile => {
                by_root && name == "sysrq-trigger"
                    || statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                        .is_ok_and(|found| found.st_mode & files != 0)
            }
            _ => false,
        };
        if wanted {
            names.push(name.to_owned());
        }
    }
    Ok(names)
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
            let mut names = writable_in(proc.path(), by_root).unwrap();
            names.sort();
            names
        };
        assert_eq!(listed(true), ["irq", "sys", "sysrq-trigger"]);
        assert_eq!(listed(false), ["sys"]);
        file("of-a-module", 0o644);
        file("of-all", 0o666);
        assert_eq!(listed(true), ["irq", "of-a-module", "of-all", "sys", "sysrq-trigger"]);
        assert_eq!(listed(false), ["of-all", "sys"]);
        std::fs::remove_file(proc.path().join("of-a-module")).unwrap();
        assert_eq!(listed(true), ["irq", "of-all", "sys", "sysrq-trigger"]);
        assert!(writable_in(&proc.path().join("cpuinfo"), true).is_err());
    }

    #[test]
    fn the_settings_of_the_kernel_are_among_those_of_this_system() {
        for by_root in [true, false] {
            assert!(writable(by_root).unwrap().iter().any(|name| name == "sys"));
        }
    }
}
