//! The place under test: this machine itself.

use longarm::fs::{LocalFileSystem, LocalFileSystemConfig};

pub(crate) fn files() -> LocalFileSystem {
    LocalFileSystem::new(LocalFileSystemConfig::from_host())
}
