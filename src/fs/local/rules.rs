//! What may be done with the objects of a tree.

use std::io;
use std::path::Path;

use super::os::Dir;

/// Decides about objects by their canonical paths.
pub(super) trait Rules {
    /// Whether an object may be read.
    fn read(&self, path: &Path) -> io::Result<()>;

    /// Whether an object may be written to, made or removed.
    fn write(&self, path: &Path) -> io::Result<()>;

    /// Whether what is in a directory may be used at all; `path` is the path of something in it.
    fn within(&self, dir: &Dir, path: &Path) -> io::Result<()>;
}

/// Leaves everything to the system.
pub(super) struct Free;

impl Rules for Free {
    fn read(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn within(&self, _dir: &Dir, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}
