//! How the files of this machine are served.

use std::path::PathBuf;

use crate::fs::DEFAULT_WHOLE_FILE_BYTES;

/// Settings of [`LocalFileSystem`](super::LocalFileSystem).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct LocalFileSystemConfig {
    /// The largest file that is read whole unless the call says otherwise, in bytes. 48 MiB.
    pub max_read_bytes: u64,
    /// Calls that wait for the file system at a time; more wait for their turn. 32. A quarter as many walks, copies and
    /// removals besides.
    pub blocking_calls: usize,
    /// The temporary directory. By default there is none, and calls that need it are refused.
    pub temp_dir: Option<PathBuf>,
    /// Names at the top of workspace roots that calls under a sandbox may not change, besides the usual ones.
    pub protected_names: Vec<String>,
}

impl Default for LocalFileSystemConfig {
    fn default() -> Self {
        Self {
            max_read_bytes: DEFAULT_WHOLE_FILE_BYTES,
            blocking_calls: 32,
            temp_dir: None,
            protected_names: Vec::new(),
        }
    }
}

impl LocalFileSystemConfig {
    /// Settings with the temporary directory that this process has now.
    pub fn from_host() -> Self {
        Self { temp_dir: Some(std::env::temp_dir()), ..Self::default() }
    }

    /// Sets the largest file that is read whole.
    pub fn max_read_bytes(mut self, max_read_bytes: u64) -> Self {
        self.max_read_bytes = max_read_bytes;
        self
    }

    /// Sets how many calls wait for the file system at a time. At least one does.
    pub fn blocking_calls(mut self, blocking_calls: usize) -> Self {
        self.blocking_calls = blocking_calls;
        self
    }

    /// Protects one more name at the top of each workspace root.
    pub fn protect_name(mut self, name: impl Into<String>) -> Self {
        self.protected_names.push(name.into());
        self
    }

    /// Sets the temporary directory. It must be absolute.
    pub fn temp_dir(mut self, temp_dir: impl Into<PathBuf>) -> Self {
        self.temp_dir = Some(temp_dir.into());
        self
    }
}
