//! Copying files, links and trees.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::os::{self, Access, Dir, Kind, Look};
use super::path::split;
use super::read::failure;
use super::tree::Tree;
use crate::fs::{CopyOptions, FsError, InvalidFsRequest, Symlinks};

pub(super) fn copy(source: &Path, destination: &Path, options: CopyOptions) -> Result<(), FsError> {
    let failed = |error| FsError::from_io("copy", source, error);
    let (parent, name) = split(source);
    let dir = Dir::open(parent, Symlinks::Follow).map_err(failed)?;
    let look = dir.look(name).map_err(failed)?;
    match look.kind {
        // Opening it to write may not be allowed, and is not needed.
        Kind::File if os::id_of(destination).is_ok_and(|id| id == look.id) => Ok(()),
        Kind::File => {
            let to_failed = |error| FsError::from_io("write to", destination, error);
            let from = dir.open_file(name, Access::Read).map_err(failed)?;
            copy_file(
                &from,
                source,
                |mode| {
                    let to = os::open_file(destination, Access::WriteOrCreate { mode });
                    to.map_err(to_failed)
                },
                destination,
            )
        }
        Kind::Symlink => {
            let (to_parent, to_name) = split(destination);
            let to = Dir::open(to_parent, Symlinks::Follow);
            let to = to.map_err(|error| FsError::from_io("create", destination, error))?;
            copy_symlink(&dir, name, source, &to, to_name, destination)
        }
        Kind::Directory if options.recursive => copy_directory(&dir, name, source, destination),
        Kind::Directory => Err(InvalidFsRequest::CopyOfDirectory { path: source.into() }.into()),
        Kind::Device | Kind::Other => Err(InvalidFsRequest::CopyOfSpecial { path: source.into() }.into()),
    }
}

/// Copies content and permission bits to what `open` opens, given the bits for a new file.
fn copy_file(
    from: &File,
    source: &Path,
    open: impl FnOnce(u32) -> Result<File, FsError>,
    destination: &Path,
) -> Result<(), FsError> {
    let (look, facts) = os::look_at_file(from).map_err(|error| FsError::from_io("examine", source, error))?;
    if look.kind != Kind::File {
        return Err(FsError::NotAFile { path: source.into() });
    }
    let to = open(look.mode & PERMISSIONS)?;
    let failed = |error| FsError::from_io("write to", destination, error);
    let (to_look, _) = os::look_at_file(&to).map_err(failed)?;
    match to_look.kind {
        Kind::File if to_look.id == look.id => Ok(()),
        Kind::File => {
            os::copy_content(from, &to, facts.size, facts.stored).map_err(failed)?;
            // After the content: a write takes the bits away that lend the owner's rights.
            os::set_mode(&to, &look).map_err(failed)
        }
        Kind::Device => {
            let (mut from, mut to) = (from, &to);
            io::copy(&mut from, &mut to).map_err(failed).map(drop)
        }
        _ => Err(FsError::NotAFile { path: destination.into() }),
    }
}

/// The bits that a new file may have from the start; the rest follows when it has its content.
const PERMISSIONS: u32 = 0o777;

fn copy_symlink(
    from: &Dir,
    from_name: &OsStr,
    source: &Path,
    to: &Dir,
    to_name: &OsStr,
    destination: &Path,
) -> Result<(), FsError> {
    let target = from.read_link(from_name).map_err(|error| FsError::from_io("read", source, error))?;
    match to.create_symlink(to_name, &target, from.is_directory_link(from_name)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_same(from, from_name, to, to_name) => Ok(()),
        created => created.map_err(|error| FsError::from_io("create", destination, error)),
    }
}

fn is_same(one: &Dir, one_name: &OsStr, other: &Dir, other_name: &OsStr) -> bool {
    matches!((one.look(one_name), other.look(other_name)), (Ok(one), Ok(other)) if one.id == other.id)
}

fn copy_directory(dir: &Dir, name: &OsStr, source: &Path, destination: &Path) -> Result<(), FsError> {
    let failed = |error| FsError::from_io("copy", source, error);
    let from = Tree::new(source, dir.open_directory(name).map_err(failed)?).map_err(failed)?;
    let id = from.dir().and_then(Dir::id).map_err(failed)?;
    // By identity, not by name: another name of the source is the source as well.
    let existing = nearest_directory(destination).map_err(|error| FsError::from_io("create", destination, error))?;
    for ancestor in existing.ancestors() {
        if os::id_of(ancestor).map_err(|error| FsError::from_io("examine", ancestor, error))? == id {
            let (source_path, destination) = (source.into(), destination.into());
            return Err(InvalidFsRequest::CopyIntoItself { source_path, destination }.into());
        }
    }
    let failed = |error| FsError::from_io("create", destination, error);
    fs::create_dir_all(destination).map_err(failed)?;
    let to = Dir::open(destination, Symlinks::Follow).map_err(failed)?;
    copy_tree(from, Tree::new(destination, to).map_err(failed)?)
}

/// The canonical path of the lowest directory above a path, or at it, that exists.
fn nearest_directory(path: &Path) -> io::Result<PathBuf> {
    let mut missing = io::Error::from(io::ErrorKind::NotFound);
    for ancestor in path.ancestors() {
        match fs::canonicalize(ancestor) {
            Ok(found) => return Ok(found),
            Err(error) => missing = error,
        }
    }
    Err(missing)
}

fn copy_tree(mut from: Tree, mut to: Tree) -> Result<(), FsError> {
    let mut pending = vec![names(&from)?];
    while let Some(names_here) = pending.last_mut() {
        let Some(name) = names_here.pop() else {
            pending.pop();
            for tree in [&mut from, &mut to] {
                let here = tree.path().to_path_buf();
                tree.leave().map_err(|error| FsError::from_io("leave", here, error))?;
            }
            continue;
        };
        if copy_entry(&mut from, &mut to, &name)? {
            pending.push(names(&from)?);
        }
    }
    Ok(())
}

/// Copies what is not a directory; enters, on both sides, what is, and returns whether it did.
fn copy_entry(from: &mut Tree, to: &mut Tree, name: &OsStr) -> Result<bool, FsError> {
    let (source, destination) = (from.path_of(name), to.path_of(name));
    let failed = |error| FsError::from_io("copy", source.as_path(), error);
    let (from_dir, to_dir) = (from.dir().map_err(failed)?, to.dir().map_err(failed)?);
    let look = match from_dir.look(name) {
        // It was removed meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        look => look.map_err(failed)?,
    };
    match look.kind {
        Kind::Directory => {
            enter_both(from, to, name, &source, &destination)?;
            Ok(true)
        }
        Kind::File => {
            let file = from_dir.open_file(name, Access::Read).map_err(failed)?;
            copy_file(&file, &source, |mode| open_inside(to_dir, name, mode, &destination), &destination)?;
            Ok(false)
        }
        Kind::Symlink => copy_symlink(from_dir, name, &source, to_dir, name, &destination).map(|()| false),
        Kind::Device | Kind::Other => Ok(false),
    }
}

/// A file within a tree is never written through a link, which could lead out of it.
fn open_inside(dir: &Dir, name: &OsStr, mode: u32, path: &Path) -> Result<File, FsError> {
    dir.open_file(name, Access::WriteOrCreate { mode }).map_err(|error| inside_failure(path, error))
}

fn enter_both(from: &mut Tree, to: &mut Tree, name: &OsStr, source: &Path, destination: &Path) -> Result<(), FsError> {
    let to_dir = to.dir().map_err(|error| inside_failure(destination, error))?;
    match to_dir.create_directory(name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match to_dir.look(name) {
            Ok(Look { kind: Kind::Directory, .. }) => {}
            Ok(Look { kind: Kind::Symlink, .. }) => {
                return Err(FsError::SymbolicLink { path: destination.into(), last: true });
            }
            _ => return Err(FsError::from_io("create", destination, error)),
        },
        created => created.map_err(|error| FsError::from_io("create", destination, error))?,
    }
    to.enter(name).map_err(|error| inside_failure(destination, error))?;
    from.enter(name).map_err(|error| FsError::from_io("copy", source, error))
}

fn inside_failure(path: &Path, error: io::Error) -> FsError {
    if path.is_symlink() {
        return FsError::SymbolicLink { path: path.into(), last: true };
    }
    failure("write to", path, Symlinks::Follow, error)
}

fn names(tree: &Tree) -> Result<Vec<OsString>, FsError> {
    let names = tree.dir().and_then(Dir::names);
    names.map_err(|error| FsError::from_io("read", tree.path(), error))
}
