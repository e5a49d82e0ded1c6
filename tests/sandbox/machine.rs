//! What the kernel has for sandboxes, asked without the library.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::dirs::own_uid;

/// The first argument that makes this program say what it may do.
pub(crate) const FLAG: &str = "--machine";

/// The user that an executor runs as which is not to be root.
pub(crate) const ORDINARY: u32 = 65_534;

/// What this machine can run.
pub(crate) struct Machine {
    /// What this user lacks for a full sandbox.
    own_lacks: Option<String>,
    /// What the ordinary user lacks.
    other_lacks: Option<String>,
    pub(crate) landlock: bool,
    /// Whether Landlock keeps signals within what it holds, without which there is no sandbox but by namespaces.
    pub(crate) landlock_for_signals: bool,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let abi = landlock_abi();
        let (own_lacks, other_lacks) = (lacks(own_uid()), lacks(ordinary()));
        Self { own_lacks, other_lacks, landlock: abi >= 1, landlock_for_signals: abi >= 6 }
    }

    /// Why an executor of this user cannot sandbox in full.
    pub(crate) fn lacks(&self, uid: u32) -> Option<&str> {
        if uid == own_uid() { self.own_lacks.as_deref() } else { self.other_lacks.as_deref() }
    }
}

/// The ordinary user: another one if this is root.
pub(crate) fn ordinary() -> u32 {
    if own_uid() == 0 { ORDINARY } else { own_uid() }
}

fn lacks(uid: u32) -> Option<String> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(FLAG).stdin(Stdio::null()).current_dir("/");
    if uid != own_uid() {
        command.uid(uid).gid(uid);
    }
    match command.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("no process of user {uid}: {error}")),
    }
}

/// Says on standard error what is missing, and ends with 1 if anything is.
pub(crate) fn main() -> ! {
    let abi = landlock_abi();
    if abi < 3 {
        fail(&format!("Landlock is of ABI {abi}, and 3 is needed"));
    }
    // SAFETY: the call takes numbers.
    if unsafe { libc::prctl(libc::PR_GET_SECCOMP) } < 0 {
        fail("no seccomp");
    }
    let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWIPC;
    // With the right to, none of its own is needed for the others. SAFETY: the calls take numbers; there is one thread.
    let made = unsafe { libc::unshare(spaces) == 0 || libc::unshare(libc::CLONE_NEWUSER | spaces) == 0 };
    if !made {
        fail(&format!("no namespaces: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: as above. The child makes system calls only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let nothing = std::ptr::null();
        let no_data = nothing;
        // SAFETY: all are C strings, or null where that stands for nothing.
        let mounted = unsafe {
            libc::mount(c"none".as_ptr(), c"/".as_ptr(), nothing, libc::MS_REC | libc::MS_SLAVE, no_data.cast()) == 0
                && libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), 0, no_data.cast()) == 0
        };
        // SAFETY: the call takes a number and ends the child.
        unsafe { libc::_exit(i32::from(!mounted)) };
    }
    let mut status = 0;
    // SAFETY: the call fills a number; the child is ours.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if status != 0 {
        fail("no /proc can be mounted");
    }
    std::process::exit(0)
}

fn fail(reason: &str) -> ! {
    eprintln!("{reason}");
    std::process::exit(1)
}

fn landlock_abi() -> i64 {
    let version = 1;
    // SAFETY: without attributes the call only asks for the version.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, version) }
}
