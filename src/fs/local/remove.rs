//! Removing files, links and trees.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::os::{Dir, Kind};
use super::path::split;
use super::pool::Wanted;
use super::read::failure;
use super::rules::{Free, Rules};
use super::tree::Tree;
use crate::fs::{FsError, InvalidFsRequest, RemoveOptions, Symlinks};

pub(super) fn remove(path: &Path, options: RemoveOptions, wanted: &Wanted) -> Result<(), FsError> {
    if path.file_name().is_none() {
        return Err(InvalidFsRequest::Other(format!("the root directory {path:?} cannot be removed")).into());
    }
    match remove_present(path, options, wanted) {
        Err(FsError::NotFound { .. }) if options.force => Ok(()),
        removed => removed,
    }
}

fn remove_present(path: &Path, options: RemoveOptions, wanted: &Wanted) -> Result<(), FsError> {
    let failed = |error| failure("remove", path, options.symlinks, error);
    let (parent, name) = split(path);
    let dir = Dir::open(parent, options.symlinks).map_err(failed)?;
    match dir.look(name).map_err(failed)?.kind {
        Kind::Directory if options.recursive => {
            let inside = dir.open_directory(name).map_err(failed)?;
            empty(Tree::new(path, inside).map_err(failed)?, &Free, wanted)?;
            match dir.remove_directory(name) {
                // Somebody else was faster, when we had begun already.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed.map_err(failed),
            }
        }
        Kind::Directory => dir.remove_directory(name).map_err(failed),
        Kind::Symlink if options.symlinks == Symlinks::Refuse => {
            Err(FsError::SymbolicLink { path: path.into(), last: true })
        }
        _ => dir.remove_file(name).map_err(failed),
    }
}

/// Removes all that is in a directory, the deepest first, as far as the rules allow.
pub(super) fn empty(mut tree: Tree, rules: &dyn Rules, wanted: &Wanted) -> Result<(), FsError> {
    let failed = |tree: &Tree, error| FsError::from_io("remove", tree.pointed(), error);
    let mut pending = vec![names(&tree)?];
    while let Some(names_here) = pending.last_mut() {
        wanted.check()?;
        let Some(name) = names_here.pop() else {
            pending.pop();
            let left = tree.leave();
            if let Some(name) = left.map_err(|error| failed(&tree, error))? {
                let removed = tree.dir().and_then(|dir| dir.remove_directory(&name));
                ignore_absence(removed).map_err(|error| failed(&tree, error))?;
            }
            continue;
        };
        tree.point_at(&name);
        rules.write(tree.pointed()).map_err(|error| failed(&tree, error))?;
        let dir = tree.dir().map_err(|error| failed(&tree, error))?;
        let removed = match dir.look(&name) {
            Ok(look) if look.kind == Kind::Directory => match tree.enter(&name) {
                Ok(()) => {
                    pending.push(names(&tree)?);
                    continue;
                }
                Err(error) => Err(error),
            },
            Ok(_) => dir.remove_file(&name),
            Err(error) => Err(error),
        };
        ignore_absence(removed).map_err(|error| failed(&tree, error))?;
    }
    Ok(())
}

pub(super) fn names(tree: &Tree) -> Result<Vec<OsString>, FsError> {
    let names = tree.dir().and_then(Dir::names);
    names.map_err(|error| FsError::from_io("read", tree.path(), error))
}

/// What is gone already need not be removed.
fn ignore_absence(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
