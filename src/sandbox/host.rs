//! This host's file system, and its user.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::facts::{Facts, Found, PathIdentity, Platform, Seen};
use super::settings::SandboxSettings;

/// The file system of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostPaths;

impl<'a> Facts<'a> {
    /// The facts of this host, of which `temp_dir` is the directory for temporary files.
    pub fn host(settings: &'a SandboxSettings, temp_dir: &'a Path) -> Self {
        Self::new(Platform::HOST, &HostPaths).uid(uid()).temp_dir(temp_dir).settings(settings)
    }
}

impl PathIdentity for HostPaths {
    fn look(&self, path: &Path) -> io::Result<Seen> {
        let metadata = match path.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) if is_absence(&error) => return Ok(Seen { found: Found::Missing, owner: None }),
            Err(error) => return Err(error),
        };
        let found = match kind(metadata.file_type()) {
            // It may be gone by now.
            Found::Link(_) => match path.read_link() {
                Ok(target) => Found::Link(target),
                Err(error) if is_absence(&error) => Found::Missing,
                Err(error) => return Err(error),
            },
            found => found,
        };
        Ok(Seen { found, owner: owner(&metadata) })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(OsString, Found)>> {
        let named = |entry: io::Result<std::fs::DirEntry>| {
            let entry = entry?;
            match entry.file_type() {
                Ok(file_type) => Ok(Some((entry.file_name(), kind(file_type)))),
                Err(error) if is_absence(&error) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let mut names = Vec::new();
        for entry in directory.read_dir()? {
            names.extend(named(entry)?);
            if names.len() > MAX_NAMES {
                return Err(io::Error::other(format!("it holds more than {MAX_NAMES} names")));
            }
        }
        Ok(names)
    }

    fn read_start(&self, file: &Path, max: usize) -> io::Result<Vec<u8>> {
        let mut options = std::fs::File::options();
        options.read(true);
        // What is another thing by now is neither waited for nor followed.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(
            &mut options,
            libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY,
        );
        let gone = || io::Error::new(io::ErrorKind::NotFound, "it is no file any more");
        let file = match options.open(file) {
            #[cfg(unix)]
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Err(gone()),
            opened => opened?,
        };
        if !file.metadata()?.is_file() {
            return Err(gone());
        }
        let mut start = Vec::new();
        file.take(u64::try_from(max).unwrap_or(u64::MAX)).read_to_end(&mut start)?;
        Ok(start)
    }

    fn true_name(&self, path: &Path) -> io::Result<PathBuf> {
        // Elsewhere a path without links has one spelling.
        if cfg!(any(target_os = "macos", windows)) { path.canonicalize() } else { Ok(path.into()) }
    }
}

/// As many as are looked at in all.
const MAX_NAMES: usize = 1_000_000;

/// Whether an error means that nothing is there, and nothing could be.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename)
}

fn kind(file_type: std::fs::FileType) -> Found {
    if file_type.is_symlink() {
        Found::Link(PathBuf::new())
    } else if file_type.is_dir() {
        Found::Directory
    } else if file_type.is_file() {
        Found::File
    } else {
        Found::Other
    }
}

#[cfg(unix)]
fn owner(metadata: &std::fs::Metadata) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    Some(metadata.uid())
}

#[cfg(not(unix))]
fn owner(_: &std::fs::Metadata) -> Option<u32> {
    None
}

#[cfg(unix)]
fn uid() -> Option<u32> {
    Some(rustix::process::geteuid().as_raw())
}

#[cfg(not(unix))]
fn uid() -> Option<u32> {
    None
}
