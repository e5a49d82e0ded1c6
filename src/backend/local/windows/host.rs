//! Facts about the user and the system.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::search::candidates;
use super::system::{os_string, system_directory, wide};
use crate::env_policy::EnvMap;
use crate::info::Shell;

/// The shell of this system: PowerShell, the newer one if it is on `PATH`, else `cmd` as `COMSPEC` names it.
pub(in crate::backend::local) fn host_shell(env: &EnvMap) -> Shell {
    let system = system_directory().unwrap_or_else(|_| PathBuf::from(r"C:\Windows\System32"));
    let newer = lookup(env, "PATH").and_then(|path| {
        let found = candidates(&wide(OsStr::new("pwsh.exe")), &wide(system.as_os_str()), Some(&wide(path)), None, &[]);
        found.paths.iter().map(|path| PathBuf::from(os_string(path))).find(|path| is_file(path))
    });
    let older = || Some(system.join(r"WindowsPowerShell\v1.0\powershell.exe")).filter(|path| is_file(path));
    if let Some(path) = newer.or_else(older) {
        return shell("powershell", &path);
    }
    let named = lookup(env, "COMSPEC").map(PathBuf::from).filter(|path| path.is_absolute() && is_file(path));
    shell("cmd", &named.unwrap_or_else(|| system.join("cmd.exe")))
}

/// Users have no login shell here.
pub(in crate::backend::local) fn login_shell() -> Option<OsString> {
    None
}

/// The user's home directory: `USERPROFILE`, else what the system says.
pub(in crate::backend::local) fn home_dir(env: &EnvMap) -> Option<PathBuf> {
    let named = lookup(env, "USERPROFILE").map(PathBuf::from).filter(|home| home.is_absolute());
    named.or_else(std::env::home_dir)
}

/// The temporary directories that variables name, and the system's own.
pub(in crate::backend::local) fn temporary_directories(env: &EnvMap) -> (Vec<PathBuf>, PathBuf) {
    let mut named: Vec<PathBuf> = Vec::new();
    for name in ["TMP", "TEMP"] {
        let directory = lookup(env, name).filter(|directory| !directory.is_empty()).map(PathBuf::from);
        if let Some(directory) = directory.filter(|directory| !named.contains(directory)) {
            named.push(directory);
        }
    }
    let native = named.first().cloned().unwrap_or_else(std::env::temp_dir);
    (named, native)
}

/// The name of this machine.
pub(in crate::backend::local) fn hostname(env: &EnvMap) -> Option<String> {
    let name = lookup(env, "COMPUTERNAME")?.to_string_lossy().into_owned();
    Some(name).filter(|name| !name.is_empty())
}

fn shell(name: &str, path: &Path) -> Shell {
    Shell { name: name.into(), path: path.to_string_lossy().into_owned() }
}

/// An alias of the store is a file that cannot be followed, and can be executed.
fn is_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_dir())
}

fn lookup<'a>(env: &'a EnvMap, name: &str) -> Option<&'a OsStr> {
    env.iter().rev().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_os_str())
}
