//! An executor that has mounts of its own, among them more file systems of the kernel's than the usual ones: as where the tree
//! of another system is prepared. Nothing is mounted for anybody else.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::ptr::null;

use crate::executor;
use crate::network::USER;

/// The first argument that makes this program mount them, and become an executor.
pub(crate) const FLAG: &str = "--mounts";

/// The variable with the directory below which they are mounted.
pub(crate) const BASE: &str = "LONGARM_SANDBOX_TEST_MOUNTS";

/// Where, and what.
const MOUNTS: [(&str, &CStr); 6] = [
    ("w/proc", c"proc"),
    ("w/deep/proc", c"proc"),
    ("o/proc", c"proc"),
    ("w/sys", c"sysfs"),
    ("o/sys", c"sysfs"),
    ("closed/in/proc", c"proc"),
];

/// Somebody else's directory, which nobody else may enter: only root has a look at what is mounted in it.
const CLOSED: &str = "closed";
const SOMEBODY: u32 = 31_416;

/// Makes the directories that they are mounted on.
pub(crate) const SETUP: &str = "mkdir -p $W/proc $W/deep/proc $O/proc $W/sys $O/sys $BASE/closed/in/proc";

pub(crate) fn main() -> ! {
    // SAFETY: the call takes a number; this program has one thread.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) });
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: a terminated string, and nothing where that stands for nothing.
    check(unsafe { libc::mount(null(), c"/".as_ptr(), null(), private, null()) });
    let base = std::env::var_os(BASE).unwrap();
    for (path, kind) in MOUNTS {
        let path = CString::new(Path::new(&base).join(path).as_os_str().as_bytes()).unwrap();
        // SAFETY: terminated strings, and nothing where that stands for nothing.
        check(unsafe { libc::mount(kind.as_ptr(), path.as_ptr(), kind.as_ptr(), 0, null()) });
    }
    let closed = Path::new(&base).join(CLOSED);
    std::os::unix::fs::chown(&closed, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new("/proc/self/exe");
    command.arg(executor::FLAG).env_remove(USER).env_remove(BASE);
    if let Ok(user) = std::env::var(USER) {
        let user = user.parse().unwrap();
        command.uid(user).gid(user);
    }
    panic!("{}", command.exec())
}

fn check(result: libc::c_int) {
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
