//! Reading whole files, and opening files to read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use bytes::Bytes;

use super::os::{self, Access, Dir, FileFacts, Kind};
use super::path::split;
use crate::fs::{FsError, Symlinks};

/// Reads a file of at most `limit` bytes.
pub(super) fn read(path: &Path, symlinks: Symlinks, limit: u64) -> Result<Bytes, FsError> {
    read_opened(open_with(path, symlinks, Access::Read)?, path, limit)
}

/// Reads what was opened, if it is a file of at most `limit` bytes.
pub(super) fn read_opened(file: File, path: &Path, limit: u64) -> Result<Bytes, FsError> {
    let (file, facts) = checked(file, path)?;
    let too_large = |size| FsError::TooLarge { path: path.into(), size, limit };
    if facts.size > limit {
        return Err(too_large(Some(facts.size)));
    }
    // Files of procfs say that they are empty; any file may grow meanwhile.
    let mut bytes = Vec::new();
    let expected = usize::try_from(facts.size).unwrap_or(usize::MAX).saturating_add(1);
    let failed = |error| FsError::from_io("read", path, error);
    bytes.try_reserve_exact(expected).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
    (&file).take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(None));
    }
    Ok(bytes.into())
}

/// Opens a regular file.
pub(super) fn open(path: &Path, symlinks: Symlinks) -> Result<(File, FileFacts), FsError> {
    checked(open_with(path, symlinks, Access::Read)?, path)
}

/// What was opened, if it is a regular file.
pub(super) fn checked(file: File, path: &Path) -> Result<(File, FileFacts), FsError> {
    let (look, facts) = os::look_at_file(&file).map_err(|error| FsError::from_io("examine", path, error))?;
    if look.kind != Kind::File {
        return Err(FsError::NotAFile { path: path.into() });
    }
    Ok((file, facts))
}

/// Opens whatever is there.
pub(super) fn open_with(path: &Path, symlinks: Symlinks, access: Access) -> Result<File, FsError> {
    let opened = match symlinks {
        Symlinks::Follow => os::open_file(path, access),
        Symlinks::Refuse => {
            let (parent, name) = split(path);
            Dir::open(parent, symlinks).and_then(|dir| dir.open_file(name, access))
        }
    };
    opened.map_err(|error| failure("open", path, symlinks, error))
}

/// The error of an operation in which a link may have been refused: the system says in many ways that there is one.
pub(super) fn failure(op: &'static str, path: &Path, symlinks: Symlinks, error: io::Error) -> FsError {
    if symlinks == Symlinks::Refuse
        && error.kind() != io::ErrorKind::NotFound
        && let Some(link) = first_link(path)
    {
        return FsError::SymbolicLink { path: path.into(), last: link == path };
    }
    FsError::from_io(op, path, error)
}

/// The same of a name within a tree, whose path is no matter of the call; there no link is followed.
pub(super) fn failure_inside(op: &'static str, path: &Path, error: io::Error) -> FsError {
    if error.kind() != io::ErrorKind::NotFound && path.is_symlink() {
        return FsError::SymbolicLink { path: path.into(), last: true };
    }
    FsError::from_io(op, path, error)
}

/// The path down to its first component that is a link.
fn first_link(path: &Path) -> Option<&Path> {
    let mut paths: Vec<&Path> = path.ancestors().collect();
    paths.reverse();
    paths.into_iter().find(|path| path.is_symlink())
}
