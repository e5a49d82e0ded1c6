//! What of `/proc` that is not a process's own could be written to by everybody. For whoever has the number of the system's root,
//! all of it is read-only.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, openat, statat};

use crate::time::{Instant, now};

/// The names at the top of `/proc` below which files can be opened for writing by everybody. Modules that are loaded add some, and
/// take them away with them: so they are listed for each sandbox.
pub(super) fn writable() -> io::Result<Vec<String>> {
    static LAST: Mutex<Option<Seen>> = Mutex::new(None);
    // One that has panicked has changed nothing.
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    writable_in(Path::new("/proc"), &mut last, now())
}

/// What was found there, and what of it can be written to. As long as the same is listed, it need not be looked at one by one, which
/// takes four times as long as the list. But only for a while, since a mode can be changed: a sandbox that was started a little
/// earlier does not know either.
#[derive(Debug)]
struct Seen {
    at: Instant,
    /// Their kinds, numbers and names, as they come.
    entries: Vec<u8>,
    writable: Vec<String>,
}

/// For so long.
const A_WHILE: Duration = Duration::from_secs(1);

fn writable_in(proc: &Path, last: &mut Option<Seen>, now: Instant) -> io::Result<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, proc, flags, Mode::empty())?;
    // Small, since what follows the names that are wanted is not wanted: there are as many as processes.
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut listed = RawDir::new(&directory, &mut buffer);
    let (mut entries, mut files, mut writable) = (Vec::with_capacity(2048), Vec::new(), Vec::new());
    while let Some(entry) = listed.next() {
        let entry = entry?;
        let name = entry.file_name();
        // The names of processes come last.
        if name.to_bytes().iter().all(u8::is_ascii_digit) {
            break;
        }
        let kind = entry.file_type();
        let start = entries.len() + 1 + size_of::<u64>();
        entries.push(if kind == FileType::RegularFile { FILE } else { OTHER });
        entries.extend_from_slice(&entry.ino().to_ne_bytes());
        entries.extend_from_slice(name.to_bytes_with_nul());
        match kind {
            FileType::RegularFile => files.push(start),
            FileType::Directory => {
                writable.extend(name.to_str().ok().filter(|name| DIRECTORIES.contains(name)).map(str::to_owned));
            }
            _ => {}
        }
    }
    if let Some(last) = last
        && last.entries == entries
        && now < last.at + A_WHILE
    {
        return Ok(last.writable.clone());
    }
    let names = files.iter().filter_map(|start| CStr::from_bytes_until_nul(&entries[*start..]).ok());
    for name in names {
        let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| found.st_mode & 0o002 != 0) {
            writable.extend(name.to_str().ok().map(str::to_owned));
        }
    }
    *last = Some(Seen { at: now, entries, writable: writable.clone() });
    Ok(writable)
}

const FILE: u8 = b'f';
const OTHER: u8 = b'o';

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
        let (mut last, begun) = (None, now());
        let mut listed_after = |time| {
            let mut names = writable_in(proc.path(), &mut last, begun + time).unwrap();
            names.sort();
            names
        };
        assert_eq!(listed_after(Duration::ZERO), ["sys"]);
        file("of-a-module", 0o646);
        file("of-root", 0o644);
        assert_eq!(listed_after(Duration::ZERO), ["of-a-module", "sys"]);
        assert_eq!(listed_after(Duration::ZERO), ["of-a-module", "sys"], "as it was");
        file("of-a-module", 0o644);
        assert_eq!(listed_after(A_WHILE), ["sys"], "a mode that was changed");
        file("of-a-module", 0o646);
        assert_eq!(listed_after(A_WHILE * 2), ["of-a-module", "sys"]);
        let mut listed = || listed_after(A_WHILE * 2);
        // Another one by the same name, which is there before the first one is gone, so that it has another number.
        file("another", 0o644);
        std::fs::rename(proc.path().join("another"), proc.path().join("of-a-module")).unwrap();
        assert_eq!(listed(), ["sys"]);
        file("of-a-module", 0o646);
        file("more", 0o646);
        assert_eq!(listed(), ["more", "of-a-module", "sys"]);
        std::fs::remove_file(proc.path().join("more")).unwrap();
        std::fs::remove_file(proc.path().join("of-a-module")).unwrap();
        assert_eq!(listed(), ["sys"]);
        assert!(writable_in(&proc.path().join("cpuinfo"), &mut None, begun).is_err());
    }

    #[test]
    fn the_settings_of_the_kernel_are_among_those_of_this_system() {
        assert!(writable().unwrap().iter().any(|name| name == "sys"));
    }
}
