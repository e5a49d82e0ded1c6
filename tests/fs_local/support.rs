//! What the tests share.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use longarm::fs::{FsError, RequestPath};

pub(crate) use crate::place::files;

/// A directory that vanishes with the test.
pub(crate) struct Scratch {
    root: PathBuf,
    _dir: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { root: dir.path().canonicalize().unwrap(), _dir: dir }
    }

    /// The same in memory, if the system has a place for that: where there is much to do for a disk.
    pub(crate) fn in_memory() -> Self {
        match tempfile::tempdir_in("/dev/shm") {
            Ok(dir) => Self { root: dir.path().canonicalize().unwrap(), _dir: dir },
            Err(_) => Self::new(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// The path as a request takes it.
    pub(crate) fn at(&self, name: impl AsRef<Path>) -> RequestPath {
        self.path(name).into()
    }

    pub(crate) fn file(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn directory(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn link(&self, name: impl AsRef<Path>, target: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        symlink(target, &path).unwrap();
        path
    }

    pub(crate) fn fifo(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        path
    }

    /// The names in a directory, sorted: also what a test left behind without wanting to.
    pub(crate) fn names(&self, name: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

pub(crate) fn content(path: impl AsRef<Path>) -> Vec<u8> {
    fs::read(path).unwrap()
}

pub(crate) fn mode(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

pub(crate) fn inode(path: impl AsRef<Path>) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// Whether an error names this path.
pub(crate) fn names_path(error: &FsError, path: impl AsRef<Path>) -> bool {
    error.path() == Some(&path.as_ref().into())
}

#[track_caller]
pub(crate) fn assert_not_found<T: std::fmt::Debug>(result: Result<T, FsError>, path: impl AsRef<Path>) {
    let error = result.unwrap_err();
    assert!(matches!(error, FsError::NotFound { .. }) && names_path(&error, path), "{error:?}");
}

/// The number of a system error that has no variant of its own. Of another machine it is in the text.
pub(crate) fn os_code(error: &FsError) -> Option<i32> {
    let FsError::Os { source, .. } = error else { return None };
    source.raw_os_error().or_else(|| {
        let text = source.to_string();
        text.strip_suffix(')')?.rsplit_once("(os error ")?.1.parse().ok()
    })
}
