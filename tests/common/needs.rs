//! What tests need of the machine beyond what every one has, and the probes that tell whether it is there.
//!
//! This is the list of all that may be skipped: a test that lacks something else fails. No probe uses the crate under test,
//! so that one which wrongly says of itself that it can do something here is found out.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that a kernel, or whoever runs the tests, may not have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// A cgroup of version 2 that is ours to make others in, and can be killed.
    Cgroup,
    /// The right to make PID namespaces that show their own processes.
    PidNamespace,
    /// The right to mount, where nobody else sees it.
    Mounts,
    /// Signals to a process group by the pidfd of its leader.
    GroupsByPidfd,
}

impl Need {
    /// Whether it is there. If not, says so.
    pub(crate) fn is_met(self) -> bool {
        match self.probe() {
            Ok(()) => true,
            Err(why) => {
                eprintln!("SKIPPED: {self:?} is not to be had here: {why}");
                false
            }
        }
    }

    fn probe(self) -> io::Result<()> {
        match self {
            Self::Cgroup => enter_cgroup(),
            Self::PidNamespace => in_a_thread(enter_pid_namespace),
            Self::Mounts => mount_in_private(),
            Self::GroupsByPidfd => signal_group_by_pidfd(),
        }
    }
}

/// Says that a part of a test cannot be had here. In CI, where it must be, it fails.
#[track_caller]
pub(crate) fn skipped(what: &str, why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{what}: {why}");
    eprintln!("SKIPPED {what}: {why}");
}

/// The directory of the cgroup that this process is in.
pub(crate) fn own_cgroup() -> io::Result<PathBuf> {
    let membership = std::fs::read_to_string("/proc/self/cgroup")?;
    let own = membership.lines().find_map(|line| line.strip_prefix("0::/")).ok_or(io::ErrorKind::NotFound)?;
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let mount = mount.and_then(|line| line.split(' ').nth(1)).ok_or(io::ErrorKind::NotFound)?;
    Ok(Path::new(mount).join(own))
}

fn enter_cgroup() -> io::Result<()> {
    let path = own_cgroup()?.join(format!("probe-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&path)?;
    let enter = || {
        std::fs::File::options().write(true).open(path.join("cgroup.kill"))?;
        let members = std::fs::File::options().write(true).open(path.join("cgroup.procs"))?;
        let members = members.as_raw_fd();
        let mut command = Command::new("true");
        // SAFETY: the closure makes one system call, on a descriptor that is open until the child has executed.
        unsafe { command.pre_exec(move || ok(libc::write(members, b"0".as_ptr().cast(), 1) as libc::c_long)) };
        command.status().map(drop)
    };
    let entered = enter();
    // The end of the process takes a moment to show.
    for _ in 0..1_000 {
        match std::fs::remove_dir(&path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            _ => break,
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!path.exists(), "the probe's cgroup is gone");
    entered
}

/// Runs in a thread what changes the thread that does it.
fn in_a_thread(probe: fn() -> io::Result<()>) -> io::Result<()> {
    std::thread::spawn(probe).join().expect("the probe does not panic")
}

fn enter_pid_namespace() -> io::Result<()> {
    // SAFETY: none of the calls touches memory; they concern this thread and its children only.
    unsafe {
        ok(libc::unshare(libc::CLONE_NEWPID).into())?;
        let own = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        ok(own)?;
        let own = OwnedFd::from_raw_fd(own as libc::c_int);
        // There and back.
        ok(libc::setns(own.as_raw_fd(), libc::CLONE_NEWPID).into())?;
        ok(libc::unshare(libc::CLONE_NEWPID).into())?;
    }
    let mut command = Command::new("true");
    // SAFETY: the closure makes system calls on constants.
    unsafe { command.pre_exec(|| mount_privately(c"/proc", c"proc")) };
    command.status().map(drop)
}

fn mount_in_private() -> io::Result<()> {
    let mut command = Command::new("true");
    // SAFETY: the closure makes system calls on constants.
    unsafe { command.pre_exec(|| mount_privately(c"/tmp", c"tmpfs")) };
    command.status().map(drop)
}

/// Mounts a file system of this kind for this process alone.
fn mount_privately(at: &std::ffi::CStr, kind: &std::ffi::CStr) -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: the strings are terminated; the null pointers are allowed.
    unsafe {
        ok(libc::unshare(libc::CLONE_NEWNS).into())?;
        ok(libc::mount(none, c"/".as_ptr(), none, libc::MS_PRIVATE | libc::MS_REC, none.cast()).into())?;
        ok(libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, none.cast()).into())
    }
}

fn signal_group_by_pidfd() -> io::Result<()> {
    const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;
    let mut leader = Command::new("sleep").arg("300").process_group(0).spawn()?;
    // SAFETY: neither call touches memory; nobody has waited for the process.
    let sent = unsafe {
        let pidfd = libc::syscall(libc::SYS_pidfd_open, leader.id(), 0);
        ok(pidfd).and_then(|()| {
            let pidfd = OwnedFd::from_raw_fd(pidfd as libc::c_int);
            let none = std::ptr::null::<libc::siginfo_t>();
            ok(libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), 0, none, PIDFD_SIGNAL_PROCESS_GROUP))
        })
    };
    leader.kill()?;
    leader.wait()?;
    sent
}

fn ok(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
