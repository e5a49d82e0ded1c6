//! The place under test: this machine itself.

use std::sync::Arc;

use longarm::fs::{FileSystem, LocalFileSystem, LocalFileSystemConfig};

pub(crate) fn files() -> LocalFileSystem {
    LocalFileSystem::new(LocalFileSystemConfig::from_host())
}

pub(crate) fn place() -> Arc<dyn FileSystem> {
    Arc::new(files())
}
