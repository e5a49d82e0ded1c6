//! What of `/proc` that is not a process's own could be written to by everybody. For whoever has the number of the system's root,
//! all of it is read-only.

use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, openat, statat};

/// The names at the top of `/proc` below which files can be opened for writing by everybody. Modules that are loaded add some, and
/// take them away with them: so they are listed for each sandbox.
pub(super) fn writable() -> io::Result<Vec<String>> {
    writable_in(Path::new("/proc"))
}

fn writable_in(proc: &Path) -> io::Result<Vec<String>> {
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
            FileType::Directory => DIRECTORIES.contains(&name),
            FileType::RegularFile => statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|found| found.st_mode & 0o002 != 0),
            _ => false,
        };
        if wanted {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Where something is open to everybody: what starts to watch for a shortage, and some of the settings.
const DIRECTORIES: &[&str] = &["sys", "pressure"];

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
        file("cpuinfo", 0o444);
        let listed = || {
            let mut names = writable_in(proc.path()).unwrap();
            names.sort();
            names
        };
        assert_eq!(listed(), ["sys"]);
        file("of-a-module", 0o646);
        file("of-root", 0o644);
        assert_eq!(listed(), ["of-a-module", "sys"]);
        std::fs::remove_file(proc.path().join("of-a-module")).unwrap();
        assert_eq!(listed(), ["sys"]);
        assert!(writable_in(&proc.path().join("cpuinfo")).is_err());
    }

    #[test]
    fn the_settings_of_the_kernel_are_among_those_of_this_system() {
        assert!(writable().unwrap().iter().any(|name| name == "sys"));
    }
}
