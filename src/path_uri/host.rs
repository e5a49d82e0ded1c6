//! This host's native paths. The only place of the module that depends on the operating system.

use std::path::{Path, PathBuf};

use super::{NativePath, PathConvention};

/// The name of this host's operating system.
pub(super) const OS: &str = std::env::consts::OS;

#[cfg(not(windows))]
pub(super) const CONVENTION: PathConvention = PathConvention::Posix;
#[cfg(windows)]
pub(super) const CONVENTION: PathConvention = PathConvention::Windows;

#[cfg(not(windows))]
pub(super) fn from_path(path: &Path) -> NativePath {
    use std::os::unix::ffi::OsStrExt;
    NativePath::Posix(path.as_os_str().as_bytes().to_vec())
}

#[cfg(windows)]
pub(super) fn from_path(path: &Path) -> NativePath {
    use std::os::windows::ffi::OsStrExt;
    NativePath::Windows(path.as_os_str().encode_wide().collect())
}

#[cfg(not(windows))]
pub(super) fn to_path(path: &NativePath) -> Option<PathBuf> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    match path {
        NativePath::Posix(bytes) => Some(OsStr::from_bytes(bytes).into()),
        NativePath::Windows(_) => None,
    }
}

#[cfg(windows)]
pub(super) fn to_path(path: &NativePath) -> Option<PathBuf> {
    use std::ffi::OsString;
    use std::os::windows::ffi::OsStringExt;
    match path {
        NativePath::Windows(units) => Some(OsString::from_wide(units).into()),
        NativePath::Posix(_) => None,
    }
}
