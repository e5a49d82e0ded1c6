//! A cgroup (version 2) of its own for one process and all that it starts.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::platform::{pidfd_of, send};

/// A cgroup that we have made, below one that was left to us.
#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
    directory: File,
    members: File,
    events: File,
    kill: File,
}

impl Cgroup {
    /// Makes one in `parent`, or in the cgroup of this process. With `tidy` those go that executors which were killed have
    /// left there.
    ///
    /// # Errors
    ///
    /// Why that cannot be, for whoever can change it.
    pub(super) fn make(parent: Option<&Path>, tidy: bool) -> Result<Self, String> {
        let parent = match parent {
            Some(parent) => parent.to_path_buf(),
            None => own()?,
        };
        if tidy {
            remove_left_behind(&parent, LEFT_BEHIND_AFTER);
        }
        let path = parent.join(format!("{PREFIX}{}", uuid::Uuid::new_v4()));
        fs::create_dir(&path).map_err(|error| format!("no cgroup can be made in {}: {error}", parent.display()))?;
        Self::open(&path).map_err(|error| {
            // What was just made is empty.
            drop(fs::remove_dir(&path));
            let name = parent.display();
            if error.kind() == io::ErrorKind::NotFound {
                return format!("{name} is no cgroup that can be killed (version 2, Linux 5.14)");
            }
            format!("the cgroup made in {name} cannot be used: {error}")
        })
    }

    fn open(path: &Path) -> io::Result<Self> {
        let writable = |name: &str| File::options().write(true).open(path.join(name));
        Ok(Self {
            kill: writable("cgroup.kill")?,
            members: writable("cgroup.procs")?,
            events: File::open(path.join("cgroup.events"))?,
            directory: File::open(path)?,
            path: path.to_path_buf(),
        })
    }

    /// Its directory, for a call that makes a process in it.
    pub(super) fn directory(&self) -> RawFd {
        self.directory.as_raw_fd()
    }

    /// Where a process enters it by writing its number, or 0.
    pub(super) fn members(&self) -> RawFd {
        self.members.as_raw_fd()
    }

    pub(super) fn kill(&self) -> io::Result<()> {
        match (&self.kill).write_all(b"1") {
            // It was removed, so that nobody is left.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            result => result,
        }
    }

    /// Signals the members one by one, but for those of the process group `told`, who have it already. Whoever is started
    /// meanwhile may be missed.
    ///
    /// # Errors
    ///
    /// As with a process group: only if nobody could be told.
    pub(super) fn signal(&self, signal: libc::c_int, told: Option<libc::pid_t>) -> io::Result<()> {
        let mut reached = false;
        let mut refused = Ok(());
        for directory in self.directories() {
            let pids = match members_of(&directory) {
                Ok(pids) => pids,
                Err(error) => {
                    refused = refused.and(Err(error));
                    continue;
                }
            };
            // A number can be given to somebody else while we look: only who is a member still, after we have a hold on
            // him, is meant. Some at a time, since each takes a descriptor.
            for some in pids.chunks(SIGNALLED_AT_A_TIME) {
                let held: Vec<_> = some.iter().filter_map(|pid| Some((*pid, pidfd_of(*pid).ok()?))).collect();
                let still = members_of(&directory).unwrap_or_default();
                for (pid, pidfd) in held {
                    // SAFETY: the call touches no memory.
                    let group = unsafe { libc::getpgid(pid) };
                    let sent = match still.contains(&pid) {
                        false => continue,
                        true if told == Some(group) => Ok(()),
                        true => send(&pidfd, signal),
                    };
                    reached |= sent.is_ok();
                    refused = refused.and(sent);
                }
            }
        }
        if reached { Ok(()) } else { refused }
    }

    /// Whether anybody is in it. If not, it is removed.
    pub(super) fn has_members(&self) -> bool {
        self.is_populated() || !self.remove()
    }

    pub(super) fn end(&self) {
        for _ in 0..LOOKS_AT_THE_END {
            if !self.has_members() {
                break;
            }
            // Nobody but a process that never ran its program can be in it; the end of that one takes a moment to show.
            drop(self.kill());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_populated(&self) -> bool {
        is_populated(&self.events)
    }

    /// Removes it, with those that its members have made; returns whether nobody is left in it.
    fn remove(&self) -> bool {
        remove(&self.path)
    }

    fn directories(&self) -> Vec<PathBuf> {
        directories(&self.path)
    }
}

fn is_populated(events: &File) -> bool {
    let mut text = [0; 256];
    // What cannot be read was removed.
    let length = events.read_at(&mut text, 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..length]).lines().any(|line| line == "populated 1")
}

fn remove(path: &Path) -> bool {
    for directory in directories(path).iter().rev() {
        match fs::remove_dir(directory) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return false,
            // Gone already, or nobody's to remove: there is no member in any case.
            _ => {}
        }
    }
    true
}

/// This one and all below, each after that which it is in.
fn directories(path: &Path) -> Vec<PathBuf> {
    let mut directories = vec![path.to_path_buf()];
    let mut next = 0;
    while let Some(directory) = directories.get(next) {
        next += 1;
        // One that vanishes meanwhile has none below.
        let Ok(entries) = fs::read_dir(directory) else { continue };
        let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.extend(below.map(|entry| entry.path()).collect::<Vec<_>>());
    }
    directories
}

/// Removes cgroups of ours in which nobody is, and whose executor can be taken to be gone. One that is there has put
/// somebody in it within that time, and removes it itself once he has ended. What cannot be removed stays.
fn remove_left_behind(parent: &Path, after: Duration) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let is_ours = id.is_some_and(|id| uuid::Uuid::try_parse(id).is_ok());
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let is_old = modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age >= after));
        if is_ours
            && is_old
            && File::open(entry.path().join("cgroup.events")).is_ok_and(|events| !is_populated(&events))
        {
            remove(&entry.path());
        }
    }
}

/// A process that outlives its supervisor is its own: what cannot be removed while it runs stays behind.
impl Drop for Cgroup {
    fn drop(&mut self) {
        if !self.is_populated() {
            self.remove();
        }
    }
}

fn members_of(directory: &Path) -> io::Result<Vec<libc::pid_t>> {
    match fs::read_to_string(directory.join("cgroup.procs")) {
        Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        // Removed, or one of threads, whose processes are listed by the one that it is in.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The directory of the cgroup that this process is in.
fn own() -> Result<PathBuf, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}"));
    let membership = read("/proc/self/cgroup")?;
    let mounts = read("/proc/self/mountinfo")?;
    locate(&membership, &mounts)
}

/// Finds a directory by what the kernel says of a process's cgroups and mounts.
fn locate(membership: &str, mounts: &str) -> Result<PathBuf, String> {
    let own = membership.lines().find_map(|line| line.strip_prefix("0::"));
    let own = own.ok_or("this process is in no cgroup of version 2")?;
    if own.ends_with(" (deleted)") || own.split('/').any(|part| part == "..") {
        return Err(format!("the cgroup of this process, {own}, is out of sight"));
    }
    for line in mounts.lines() {
        let Some((place, kind)) = line.split_once(" - ") else { continue };
        let mut place = place.split(' ').skip(3);
        let (Some(root), Some(point)) = (place.next(), place.next()) else { continue };
        let below = Path::new(own).strip_prefix(unescape(root));
        if let (Some("cgroup2"), Ok(below)) = (kind.split(' ').next(), below) {
            return Ok(unescape(point).join(below));
        }
    }
    Err("no cgroups of version 2 are mounted".into())
}

/// A path as `mountinfo` has it: white space and backslashes as octal numbers.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;

    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// What the names of all begin with.
const PREFIX: &str = "longarm-";
/// Longer than a start takes from the cgroup to the process in it.
const LEFT_BEHIND_AFTER: Duration = Duration::from_secs(60);
const SIGNALLED_AT_A_TIME: usize = 32;
/// A millisecond each.
const LOOKS_AT_THE_END: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
24 1 0:22 / /proc rw,nosuid shared:5 - proc proc rw
31 24 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
41 31 0:38 /user.slice /mnt/a\\040b rw,relatime shared:7 - cgroup2 cgroup2 rw
42 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn the_cgroup_of_a_process_is_found_where_it_is_mounted() {
        let locate = |own: &str, mounts| locate(&format!("4:memory:/x\n0::{own}\n"), mounts);
        assert_eq!(locate("/user.slice/app", MOUNTS), Ok("/mnt/a b/app".into()));
        assert_eq!(locate("/user.slice", MOUNTS), Ok("/mnt/a b".into()));
        assert_eq!(
            locate("/system.slice/x.service", MOUNTS),
            Ok("/sys/fs/cgroup/unified/system.slice/x.service".into())
        );
        assert_eq!(locate("/", MOUNTS), Ok("/sys/fs/cgroup/unified/".into()));
    }

    #[test]
    fn a_cgroup_that_cannot_be_found_is_told_why() {
        let error = |own: &str, mounts| locate(own, mounts).expect_err("it is out of reach");
        assert_eq!(error("4:memory:/x\n", MOUNTS), "this process is in no cgroup of version 2");
        assert_eq!(error("0::/../other\n", MOUNTS), "the cgroup of this process, /../other, is out of sight");
        assert!(error("0::/gone (deleted)\n", MOUNTS).ends_with("is out of sight"));
        assert_eq!(error("0::/a\n", "24 1 0:22 / /proc rw - proc proc rw\nx\n"), "no cgroups of version 2 are mounted");
    }

    #[test]
    fn what_killed_executors_have_left_is_removed_and_nothing_else() {
        use crate::backend::local::tests::needs::{Need, own_cgroup};

        if !Need::Cgroup.is_met() {
            return;
        }
        let parent = own_cgroup().unwrap().join(format!("test-{}", uuid::Uuid::new_v4()));
        let at = |name: &str| parent.join(name);
        let [left, used] = [(); 2].map(|()| format!("{PREFIX}{}", uuid::Uuid::new_v4()));
        for name in [&format!("{left}/made/by-a-member"), &used, "longarm-other", "other"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let mut sleep = std::process::Command::new("sleep").arg("300").spawn().unwrap();
        fs::write(at(&used).join("cgroup.procs"), sleep.id().to_string()).unwrap();
        remove_left_behind(&parent, Duration::from_secs(60));
        assert!(at(&left).exists(), "it is new, and its executor may be about to use it");
        remove_left_behind(&parent, Duration::ZERO);
        assert!(!at(&left).exists());
        assert!(at(&used).exists() && at("longarm-other").exists() && at("other").exists());
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        while directories(&parent).len() > 1 {
            remove_left_behind(&parent, Duration::ZERO);
            let _ = [fs::remove_dir(at("longarm-other")), fs::remove_dir(at("other"))];
        }
        fs::remove_dir(&parent).unwrap();
    }

    #[test]
    fn a_directory_that_is_no_cgroup_is_refused_and_left_as_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = Cgroup::make(Some(dir.path()), true).expect_err("it is none");
        assert!(error.contains("is no cgroup that can be killed"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0);
        let error = Cgroup::make(Some(&dir.path().join("missing")), true).expect_err("it is missing");
        assert!(error.contains("no cgroup can be made in"), "{error}");
    }
}
