//! Facts about the user and the system.

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::search::candidates;
use crate::env_policy::EnvMap;
use crate::info::Shell;

/// The user's shell: the login shell if it is a usable one of the known kinds, else the first known one on `PATH`.
/// May block on the user database.
pub(in crate::backend::local) fn host_shell(env: &EnvMap) -> Shell {
    let login = login_shell().map(PathBuf::from).filter(|path| is_executable(path));
    if let Some(shell) = login.and_then(|path| known_shell(&path)) {
        return shell;
    }
    let path = env.get(OsStr::new("PATH")).map(OsString::as_os_str);
    for name in KNOWN_SHELLS {
        for candidate in candidates(OsStr::new(name), path).paths {
            let candidate = Path::new(OsStr::from_bytes(candidate.as_bytes())).to_path_buf();
            if candidate.is_absolute() && is_executable(&candidate) {
                return Shell { name: (*name).into(), path: candidate.to_string_lossy().into_owned() };
            }
        }
    }
    Shell { name: "sh".into(), path: "/bin/sh".into() }
}

/// The shell that the user database names. May block on it.
pub(in crate::backend::local) fn login_shell() -> Option<OsString> {
    user_entry(|entry| entry.pw_shell)
}

/// The user's home directory: `HOME`, else what the user database says. May block on it.
pub(in crate::backend::local) fn home_dir(env: &EnvMap) -> Option<PathBuf> {
    let home = env.get(OsStr::new("HOME")).filter(|home| Path::new(home).is_absolute()).cloned();
    home.or_else(|| user_entry(|entry| entry.pw_dir)).map(PathBuf::from)
}

/// The temporary directories that variables name, and the system's own.
pub(in crate::backend::local) fn temporary_directories(env: &EnvMap) -> (Vec<PathBuf>, PathBuf) {
    let named: Vec<PathBuf> =
        env.get(OsStr::new("TMPDIR")).filter(|dir| !dir.is_empty()).map(PathBuf::from).into_iter().collect();
    let native = named.first().cloned().unwrap_or_else(|| PathBuf::from("/tmp"));
    (named, native)
}

/// The name of this machine.
pub(in crate::backend::local) fn hostname(_env: &EnvMap) -> Option<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Some(name).filter(|name| !name.is_empty())
}

const KNOWN_SHELLS: &[&str] = &["bash", "zsh", "sh"];

fn known_shell(path: &Path) -> Option<Shell> {
    let name = path.file_name()?.to_str()?;
    KNOWN_SHELLS.contains(&name).then(|| Shell { name: name.into(), path: path.to_string_lossy().into_owned() })
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// One text of the user's entry in the user database.
fn user_entry(field: impl Fn(&libc::passwd) -> *mut libc::c_char) -> Option<OsString> {
    let mut buffer = vec![0; 1 << 10];
    loop {
        // SAFETY: all zeroes is a valid value of the C structure.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: the buffer and its length match; the entry and the result outlive the call.
        let result = unsafe {
            libc::getpwuid_r(libc::getuid(), &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found)
        };
        if result == libc::ERANGE && buffer.len() < 1 << 20 {
            buffer.resize(buffer.len() * 2, 0);
            continue;
        }
        let text = field(&entry);
        if result != 0 || found.is_null() || text.is_null() {
            return None;
        }
        // SAFETY: the call succeeded, so that the field is a terminated string within the buffer.
        let text = unsafe { CStr::from_ptr(text) };
        return (!text.is_empty()).then(|| OsString::from_vec(text.to_bytes().to_vec()));
    }
}
