//! Copying files, links and trees.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::os::{self, Access, Dir, Kind, Look};
use super::path::split;
use super::pool::Wanted;
use super::read::failure_inside;
use super::rules::{Free, Rules};
use super::tree::Tree;
use super::write::{self, At};
use crate::fs::{CopyOptions, FsError, InvalidFsRequest, Symlinks};

pub(super) fn copy(source: &Path, destination: &Path, options: CopyOptions, wanted: &Wanted) -> Result<(), FsError> {
    let failed = |error| FsError::from_io("copy", source, error);
    let (parent, name) = split(source);
    let dir = Dir::open(parent, Symlinks::Follow).map_err(failed)?;
    let look = dir.look(name).map_err(failed)?;
    match look.kind {
        // Opening it to write may not be allowed, and is not needed.
        Kind::File if os::id_of(destination).is_ok_and(|id| id == look.id) => Ok(()),
        Kind::File => {
            let from = dir.open_file(name, Access::Read).map_err(failed)?;
            copy_file(&from, source, destination, At::Path)
        }
        Kind::Symlink => {
            let (to_parent, to_name) = split(destination);
            let to = Dir::open(to_parent, Symlinks::Follow);
            let to = to.map_err(|error| FsError::from_io("create", destination, error))?;
            copy_symlink(&dir, name, source, &to, to_name, destination)
        }
        Kind::Directory if options.recursive => copy_directory(&dir, name, source, destination, wanted),
        Kind::Directory => Err(InvalidFsRequest::CopyOfDirectory { path: source.into() }.into()),
        Kind::Device | Kind::Other => Err(InvalidFsRequest::CopyOfSpecial { path: source.into() }.into()),
    }
}

/// Copies content and permission bits of a regular file.
pub(super) fn copy_file(from: &File, source: &Path, destination: &Path, at: At<'_>) -> Result<(), FsError> {
    let (look, facts) = os::look_at_file(from).map_err(|error| FsError::from_io("examine", source, error))?;
    if look.kind != Kind::File {
        return Err(FsError::NotAFile { path: source.into() });
    }
    write::copy(from, look, facts, destination, at)
}

pub(super) fn copy_symlink(
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

fn copy_directory(dir: &Dir, name: &OsStr, source: &Path, destination: &Path, wanted: &Wanted) -> Result<(), FsError> {
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
    copy_tree(from, Tree::new(destination, to).map_err(failed)?, &Free, wanted)
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

/// Copies all that is in a directory into another one, as far as the rules allow.
pub(super) fn copy_tree(mut from: Tree, mut to: Tree, rules: &dyn Rules, wanted: &Wanted) -> Result<(), FsError> {
    let mut pending = vec![names(&from)?];
    while let Some(names_here) = pending.last_mut() {
        wanted.check()?;
        let Some(name) = names_here.pop() else {
            pending.pop();
            for tree in [&mut from, &mut to] {
                let left = tree.leave();
                left.map_err(|error| FsError::from_io("leave", tree.pointed(), error))?;
            }
            continue;
        };
        if copy_entry(&mut from, &mut to, &name, rules)? {
            pending.push(names(&from)?);
        }
    }
    Ok(())
}

/// Copies what is not a directory; enters, on both sides, what is, and returns whether it did.
fn copy_entry(from: &mut Tree, to: &mut Tree, name: &OsStr, rules: &dyn Rules) -> Result<bool, FsError> {
    from.point_at(name);
    to.point_at(name);
    let failed = |error| FsError::from_io("copy", from.pointed(), error);
    let (from_dir, to_dir) = (from.dir().map_err(failed)?, to.dir().map_err(failed)?);
    let look = match from_dir.look(name) {
        // It was removed meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        look => look.map_err(failed)?,
    };
    if !matches!(look.kind, Kind::Device | Kind::Other) {
        rules.read(from.pointed()).map_err(failed)?;
        rules.write(to.pointed()).map_err(|error| FsError::from_io("create", to.pointed(), error))?;
    }
    match look.kind {
        // Another name of the destination lies in the source: what is copied would be copied again, for ever.
        Kind::Directory if Some(look.id) == to.root_id() => Err(into_itself(from, to)),
        Kind::Directory => {
            enter_both(from, to, name)?;
            Ok(true)
        }
        Kind::File => {
            rules.within(from_dir, from.pointed()).map_err(failed)?;
            rules.within(to_dir, to.pointed()).map_err(|error| FsError::from_io("create", to.pointed(), error))?;
            let file = from_dir.open_file(name, Access::Read).map_err(failed)?;
            copy_file(&file, from.pointed(), to.pointed(), At::Tree(to_dir, name))?;
            Ok(false)
        }
        Kind::Symlink => copy_symlink(from_dir, name, from.pointed(), to_dir, name, to.pointed()).map(|()| false),
        Kind::Device | Kind::Other => Ok(false),
    }
}

/// Enters the directory that both point at, and makes it where it is copied to.
fn enter_both(from: &mut Tree, to: &mut Tree, name: &OsStr) -> Result<(), FsError> {
    let unwritten = |to: &Tree, error| failure_inside("write to", to.pointed(), error);
    let to_dir = to.dir().map_err(|error| unwritten(to, error))?;
    match to_dir.create_directory(name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match to_dir.look(name) {
            Ok(Look { kind: Kind::Directory, .. }) => {}
            Ok(Look { kind: Kind::Symlink, .. }) => {
                return Err(FsError::SymbolicLink { path: to.pointed().into(), last: true });
            }
            _ => return Err(FsError::from_io("create", to.pointed(), error)),
        },
        created => created.map_err(|error| FsError::from_io("create", to.pointed(), error))?,
    }
    let entered = to.enter(name);
    entered.map_err(|error| unwritten(to, error))?;
    let entered = from.enter(name);
    entered.map_err(|error| FsError::from_io("copy", from.pointed(), error))?;
    // It may have been exchanged since it was looked at.
    if from.id() == to.root_id() { Err(into_itself(from, to)) } else { Ok(()) }
}

fn into_itself(from: &Tree, to: &Tree) -> FsError {
    let (source_path, destination) = (from.root_path().into(), to.root_path().into());
    InvalidFsRequest::CopyIntoItself { source_path, destination }.into()
}

fn names(tree: &Tree) -> Result<Vec<OsString>, FsError> {
    let names = tree.dir().and_then(Dir::names);
    names.map_err(|error| FsError::from_io("read", tree.path(), error))
}
