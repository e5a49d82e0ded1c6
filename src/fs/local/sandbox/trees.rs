//! Trees: what is in them is asked about one by one.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::super::copy::{copy_file, copy_symlink, copy_tree};
use super::super::directory::Listed;
use super::super::os::{Access, Dir, Kind};
use super::super::pool::Wanted;
use super::super::remove::{empty, names};
use super::super::rules::Rules as _;
use super::super::tree::Tree;
use super::super::walk::{View, walk_with};
use super::super::write::{At, Site};
use super::files::{at_place, canonical, list, make, to_write};
use super::guard::Guard;
use super::resolve::{Links, Place, Refusal, resolve};
use crate::fs::{CopyOptions, FsError, InvalidFsRequest, RemoveOptions, Symlinks, Walk, WalkOptions};

pub(super) fn walk(guard: &Guard, path: &Path, options: WalkOptions, wanted: &Wanted) -> Result<Walk, FsError> {
    walk_with(guard, path, options, wanted)
}

impl View for Guard {
    fn look(&self, path: &Path) -> io::Result<(bool, bool)> {
        let place = resolve(self, path, Links::Follow).map_err(followed)?;
        let (_, kind) = canonical(self, path).map_err(followed)?;
        Ok((kind == Kind::Directory, place.is_link))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Listed>> {
        list(self, directory).map_err(followed)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        canonical(self, path).map(|(path, _)| path).map_err(followed)
    }
}

/// The error where links are followed, so that none is refused.
fn followed(refusal: Refusal) -> io::Error {
    match refusal {
        Refusal::Io(error) => error,
        Refusal::Link { .. } => Errno::LOOP.into(),
    }
}

pub(super) fn remove(guard: &Guard, path: &Path, options: RemoveOptions, wanted: &Wanted) -> Result<(), FsError> {
    if path.file_name().is_none() {
        return Err(InvalidFsRequest::Other(format!("the root directory {path:?} cannot be removed")).into());
    }
    let links = match options.symlinks {
        Symlinks::Follow => Links::KeepLast,
        Symlinks::Refuse => Links::Refuse,
    };
    let removed = at_place(guard, "remove", path, links, |place| remove_at(guard, path, place, options, wanted));
    match removed {
        Err(FsError::NotFound { .. }) if options.force => Ok(()),
        removed => removed,
    }
}

fn remove_at(guard: &Guard, path: &Path, place: Place, options: RemoveOptions, wanted: &Wanted) -> Result<(), FsError> {
    let failed = |error| FsError::from_io("remove", path, error);
    guard.change_name(&place.path).map_err(failed)?;
    let place = place.in_directory().map_err(failed)?;
    let look = place.look().map_err(failed)?;
    if look.kind != Kind::Directory {
        return place.dir.remove_file(&place.name).map_err(failed);
    }
    guard.change_all_below(&place.path).map_err(failed)?;
    if options.recursive {
        let tree = || Tree::new(&place.path, place.dir.open_directory(&place.name)?);
        if guard.has_patterns() {
            check_all_below(guard, tree().map_err(failed)?, wanted)?;
        }
        empty(tree().map_err(failed)?, guard, wanted)?;
    }
    match place.dir.remove_directory(&place.name) {
        // Somebody else was faster, when we had begun already.
        Err(error) if options.recursive && error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(failed),
    }
}

/// Refuses a tree of which some part must stay, before any of it goes.
fn check_all_below(guard: &Guard, mut tree: Tree, wanted: &Wanted) -> Result<(), FsError> {
    let failed = |tree: &Tree, error| FsError::from_io("remove", tree.pointed(), error);
    let mut pending = vec![names(&tree)?];
    while let Some(names_here) = pending.last_mut() {
        wanted.check()?;
        let Some(name) = names_here.pop() else {
            pending.pop();
            let left = tree.leave();
            left.map_err(|error| failed(&tree, error))?;
            continue;
        };
        tree.point_at(&name);
        guard.write(tree.pointed()).map_err(|error| failed(&tree, error))?;
        let looked = tree.dir().and_then(|dir| dir.look(&name));
        let entered = match looked {
            Ok(look) if look.kind == Kind::Directory => tree.enter(&name).map(|()| true),
            looked => looked.map(|_| false),
        };
        match entered {
            Ok(true) => pending.push(names(&tree)?),
            Ok(false) => {}
            // It went meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&tree, error)),
        }
    }
    Ok(())
}

pub(super) fn copy(
    guard: &Guard,
    source: &Path,
    destination: &Path,
    options: CopyOptions,
    wanted: &Wanted,
) -> Result<(), FsError> {
    let trees = at_place(guard, "copy", source, Links::KeepLast, |place| {
        copy_from(guard, source, place, destination, options)
    })?;
    match trees {
        // Once: what is exchanged within a tree is no reason to begin all of it again.
        Some((from, to)) => copy_tree(from, to, guard, wanted),
        None => Ok(()),
    }
}

/// Copies what is one thing; of a directory, the two trees of which one is yet to be copied into the other.
fn copy_from(
    guard: &Guard,
    source: &Path,
    place: Place,
    destination: &Path,
    options: CopyOptions,
) -> Result<Option<(Tree, Tree)>, FsError> {
    let failed = |error| FsError::from_io("copy", source, error);
    guard.read(&place.path).map_err(failed)?;
    let place = place.in_directory().map_err(failed)?;
    match place.look().map_err(failed)?.kind {
        Kind::File => {
            let to = resolve(guard, destination, Links::Follow);
            let to = to.map_err(|refusal| refusal.of("create", destination))?;
            let (to, beside) = to_write(guard, destination, to)?;
            // Opening it to write may not be allowed by the system, and is not needed.
            if to.look.is_some_and(|to| place.look.is_some_and(|from| from.id == to.id)) {
                return Ok(None);
            }
            let from = place.dir.open_file(&place.name, Access::Read).map_err(failed)?;
            let site = Site { dir: &to.dir, name: &to.name, beside };
            copy_file(&from, source, destination, At::Site(site)).map(|()| None)
        }
        Kind::Symlink => {
            let to = resolve(guard, destination, Links::KeepLast);
            let to = to.map_err(|refusal| refusal.of("create", destination))?;
            let refused = |error| FsError::from_io("create", destination, error);
            guard.change_name(&to.path).map_err(refused)?;
            let to = to.in_directory().map_err(refused)?;
            copy_symlink(&place.dir, &place.name, source, &to.dir, &to.name, destination).map(|()| None)
        }
        Kind::Directory if options.recursive => trees(guard, &place, source, destination).map(Some),
        Kind::Directory => Err(InvalidFsRequest::CopyOfDirectory { path: source.into() }.into()),
        Kind::Device | Kind::Other => Err(InvalidFsRequest::CopyOfSpecial { path: source.into() }.into()),
    }
}

/// A directory, and the one that it is to be copied into, which is made.
fn trees(guard: &Guard, place: &Place, source: &Path, destination: &Path) -> Result<(Tree, Tree), FsError> {
    let failed = |error| FsError::from_io("copy", source, error);
    let from = place.dir.open_directory(&place.name).map_err(failed)?;
    let to = resolve(guard, destination, Links::Follow).map_err(|refusal| refusal.of("create", destination))?;
    let into_itself = || {
        let (source_path, destination) = (source.into(), destination.into());
        InvalidFsRequest::CopyIntoItself { source_path, destination }.into()
    };
    if to.path.starts_with(&place.path) {
        return Err(into_itself());
    }
    let refused = |error| FsError::from_io("create", destination, error);
    guard.write(&to.path).map_err(refused)?;
    let to_path = to.path.clone();
    let to = make(guard, to, true).map_err(refused)?;
    if is_same(&from, &to).map_err(failed)? {
        return Err(into_itself());
    }
    let from = Tree::new(&place.path, from).map_err(failed)?;
    Ok((from, Tree::new(&to_path, to).map_err(refused)?))
}

fn is_same(one: &Dir, other: &Dir) -> io::Result<bool> {
    Ok(one.id()? == other.id()?)
}
