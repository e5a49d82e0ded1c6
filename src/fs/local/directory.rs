//! What a path is, and directories one by one.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::os::{self, Dir, Kind};
use super::path::split;
use super::read::failure;
use crate::fs::{CreateDirectoryOptions, DirectoryEntry, FsError, Metadata, Symlinks};
use crate::path_uri::PathUri;

pub(super) fn metadata(path: &Path, symlinks: Symlinks) -> Result<Metadata, FsError> {
    let failed = |error| failure("examine", path, symlinks, error);
    let (found, is_symlink) = match symlinks {
        Symlinks::Follow => {
            let itself = fs::symlink_metadata(path).map_err(failed)?;
            let is_symlink = itself.is_symlink();
            (if is_symlink { fs::metadata(path).map_err(failed)? } else { itself }, is_symlink)
        }
        Symlinks::Refuse => {
            let (parent, name) = split(path);
            let found = Dir::open(parent, symlinks).and_then(|dir| dir.metadata(name, path));
            (found.map_err(failed)?, false)
        }
    };
    Ok(Metadata { is_symlink, ..metadata_of(&found) })
}

/// What the system says of something that is no link.
pub(super) fn metadata_of(found: &fs::Metadata) -> Metadata {
    Metadata {
        is_directory: found.is_dir(),
        is_file: found.is_file(),
        is_symlink: false,
        size: found.len(),
        created: found.created().ok(),
        modified: found.modified().ok(),
    }
}

pub(super) fn canonicalize(path: &Path) -> Result<PathUri, FsError> {
    let found = fs::canonicalize(path).map_err(|error| FsError::from_io("resolve", path, error))?;
    uri(&found)
}

/// The URI of a native path that the system gave.
pub(super) fn uri(path: &Path) -> Result<PathUri, FsError> {
    PathUri::from_host_native_path(path).map_err(|error| FsError::InvalidRequest(error.into()))
}

pub(super) fn create(path: &Path, options: CreateDirectoryOptions) -> Result<(), FsError> {
    let failed = |error| failure("create", path, options.symlinks, error);
    match (options.symlinks, options.recursive) {
        (Symlinks::Follow, false) => fs::create_dir(path).map_err(failed),
        (Symlinks::Follow, true) => fs::create_dir_all(path).map_err(failed),
        (Symlinks::Refuse, false) => {
            let (parent, name) = split(path);
            Dir::open(parent, options.symlinks).and_then(|dir| dir.create_directory(name)).map_err(failed)
        }
        (Symlinks::Refuse, true) => create_all_without_symlinks(path).map_err(failed),
    }
}

/// Creates what is missing, from the root on, and never enters a link.
fn create_all_without_symlinks(path: &Path) -> io::Result<()> {
    let mut paths: Vec<&Path> = path.ancestors().collect();
    let root = paths.pop().unwrap_or(path);
    let mut dir = Dir::open(root, Symlinks::Refuse)?;
    for path in paths.into_iter().rev() {
        let (_, name) = split(path);
        match dir.create_directory(name) {
            // What exists may be something else, which does not open. A directory that may not be written to may hold it.
            Ok(()) => {}
            Err(error) => match dir.open_directory(name) {
                Ok(_) => {}
                Err(unopened) if unopened.kind() == io::ErrorKind::NotFound => return Err(error),
                Err(unopened) => return Err(unopened),
            },
        }
        dir = dir.open_directory(name)?;
    }
    Ok(())
}

pub(super) fn read(path: &Path) -> Result<Vec<DirectoryEntry>, FsError> {
    let listed = list(path).map_err(|error| FsError::from_io("read", path, error))?;
    Ok(shown(listed))
}

/// What a caller sees of the entries of a directory.
pub(super) fn shown(listed: Vec<Listed>) -> Vec<DirectoryEntry> {
    let shown = listed.into_iter().filter_map(|entry| {
        let target = entry.target.ok()?;
        let file_name = entry.name.to_string_lossy().into_owned();
        let raw_name = os::raw_name(&entry.name, &file_name);
        let [is_directory, is_file] = [Kind::Directory, Kind::File].map(|kind| target == kind);
        Some(DirectoryEntry { file_name, raw_name, is_directory, is_file })
    });
    shown.collect()
}

/// An entry of a directory.
pub(super) struct Listed {
    pub(super) name: std::ffi::OsString,
    pub(super) is_symlink: bool,
    /// What it is or leads to, if that can be examined.
    pub(super) target: io::Result<Kind>,
}

/// The entries of a directory, in the order of the system.
pub(super) fn list(path: &Path) -> io::Result<Vec<Listed>> {
    let mut listed = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // Most file systems say what an entry is with its name; only links have to be examined.
        let kind = entry.file_type();
        let is_symlink = kind.as_ref().is_ok_and(fs::FileType::is_symlink);
        let target = if is_symlink {
            fs::metadata(entry.path()).map(|found| os::kind_of(found.file_type()))
        } else {
            kind.map(os::kind_of)
        };
        listed.push(Listed { name: entry.file_name(), is_symlink, target });
    }
    Ok(listed)
}

/// Creates a directory in another one that only its owner may enter.
pub(super) fn create_private(parent: &Path) -> Result<PathUri, FsError> {
    let path: PathBuf = parent.join(OsStr::new(&format!("longarm-{}", uuid::Uuid::new_v4().simple())));
    os::create_private_directory(&path).map_err(|error| FsError::from_io("create", path.as_path(), error))?;
    uri(&path)
}
