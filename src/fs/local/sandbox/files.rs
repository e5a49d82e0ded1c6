//! Files and directories one by one.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::io::Errno;

use super::super::directory::{self, Listed};
use super::super::os::{self, Access, Dir, Kind, Look, NEW_FILE_MODE};
use super::super::rules::Rules as _;
use super::super::write::{self, Site};
use super::super::{handle, read};
use super::guard::{Guard, Sight};
use super::resolve::{Links, Place, Refusal, resolve};
use super::system;
use crate::fs::{CreateDirectoryOptions, DirectoryEntry, FsError, Metadata, OpenMode, Symlinks, WriteOptions};
use crate::path_uri::PathUri;

/// What is exchanged whenever it is used is given up after so many times.
const ATTEMPTS: usize = 16;

/// Does something at the place that a path leads to, again when it was exchanged for a link meanwhile.
pub(super) fn at_place<T>(
    guard: &Guard,
    op: &'static str,
    path: &Path,
    links: Links,
    mut act: impl FnMut(Place) -> Result<T, FsError>,
) -> Result<T, FsError> {
    for _ in 0..ATTEMPTS {
        match act(resolve(guard, path, links).map_err(|refusal| refusal.of(op, path))?) {
            Err(FsError::Os { source, .. }) if source.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {}
            done => return done,
        }
    }
    Err(FsError::from_io(op, path, Errno::LOOP.into()))
}

pub(super) fn read(guard: &Guard, path: &Path, symlinks: Symlinks, limit: u64) -> Result<Bytes, FsError> {
    if let Some(file) = open_at_once(guard, path) {
        return read::read_opened(file, path, limit);
    }
    at_place(guard, "open", path, symlinks.into(), |place| {
        read::read_opened(open_to_read(guard, path, place)?, path, limit)
    })
}

/// A file whose path is canonical and readable: most are.
fn open_at_once(guard: &Guard, path: &Path) -> Option<File> {
    if !guard.sight(path).is_readable() {
        return None;
    }
    os::open_file_without_symlinks(path).ok().filter(|file| !system::is_elsewhere(file, path))
}

fn open_to_read(guard: &Guard, path: &Path, place: Place) -> Result<File, FsError> {
    let failed = |error| FsError::from_io("open", path, error);
    guard.read(&place.path).map_err(failed)?;
    let place = place.in_directory().map_err(failed)?;
    place.dir.open_file(&place.name, Access::Read).map_err(failed)
}

pub(super) fn write(guard: &Guard, path: &Path, data: &[u8], options: WriteOptions) -> Result<(), FsError> {
    at_place(guard, "open", path, options.symlinks.into(), |place| {
        let (place, beside) = to_write(guard, path, place)?;
        write::write_at(Site { dir: &place.dir, name: &place.name, beside }, path, data, options)
    })
}

/// Checks that a file may be written, or made. Also returns whether another one may be made beside it.
pub(super) fn to_write(guard: &Guard, path: &Path, place: Place) -> Result<(Place, bool), FsError> {
    let failed = |error| FsError::from_io("write to", path, error);
    guard.write(&place.path).map_err(failed)?;
    let place = place.in_directory().map_err(failed)?;
    let beside = guard.change_name(&place.path).is_ok() && may_hold_temporary(guard, &place.path);
    if place.look.is_none() {
        guard.change_name(&place.path).map_err(failed)?;
    }
    Ok((place, beside))
}

/// Whether a pattern or an entry would be against a temporary file beside it.
fn may_hold_temporary(guard: &Guard, path: &Path) -> bool {
    guard.sight(&path.with_file_name(super::super::path::temporary_name())) == Sight::Writable
}

pub(super) fn open(guard: &Guard, path: &Path, mode: OpenMode) -> Result<File, FsError> {
    match mode {
        OpenMode::Read => {
            let open = |place| read::checked(open_to_read(guard, path, place)?, path).map(|(file, _)| file);
            match open_at_once(guard, path) {
                Some(file) => read::checked(file, path).map(|(file, _)| file),
                None => at_place(guard, "open", path, Links::Follow, open),
            }
        }
        OpenMode::Replace | OpenMode::Update => at_place(guard, "open", path, Links::Follow, |place| {
            let (place, _) = to_write(guard, path, place)?;
            let file = place.dir.open_file(&place.name, Access::WriteOrCreate { mode: NEW_FILE_MODE });
            let file = file.map_err(|error| FsError::from_io("open", path, error))?;
            handle::checked_to_write(file, path, mode == OpenMode::Replace)
        }),
    }
}

pub(super) fn create_directory(guard: &Guard, path: &Path, options: CreateDirectoryOptions) -> Result<(), FsError> {
    let place = resolve(guard, path, options.symlinks.into()).map_err(|refusal| refusal.of("create", path))?;
    make(guard, place, options.recursive).map(drop).map_err(|error| FsError::from_io("create", path, error))
}

/// Makes the directory of a place, with those that are missing above it; returns it.
pub(super) fn make(guard: &Guard, place: Place, recursive: bool) -> io::Result<Dir> {
    let Place { mut dir, name, path, look, missing, is_dangling, .. } = place;
    if let Some(look) = look {
        // What is there need not be made. But it is not said to be there if it cannot be seen.
        guard.read(&path)?;
        let is_fine = recursive && look.kind == Kind::Directory;
        return if is_fine { dir.open_directory(&name) } else { Err(Errno::EXIST.into()) };
    }
    guard.write(&path)?;
    if is_dangling {
        // What has the name is the link.
        return Err(Errno::EXIST.into());
    }
    if !recursive && !missing.is_empty() {
        return Err(Errno::NOENT.into());
    }
    let mut at = path.as_path();
    let mut paths = vec![at];
    for _ in &missing {
        at = at.parent().unwrap_or(at);
        paths.push(at);
    }
    for (name, path) in missing.iter().chain([&name]).zip(paths.into_iter().rev()) {
        guard.change_name(path)?;
        match dir.create_directory(name) {
            // Somebody else made it meanwhile; if it is no directory, it does not open.
            Err(error) if recursive && error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        dir = dir.open_directory(name)?;
    }
    Ok(dir)
}

pub(super) fn metadata(guard: &Guard, path: &Path, symlinks: Symlinks) -> Result<Metadata, FsError> {
    let failed = |error| FsError::from_io("examine", path, error);
    let place = resolve(guard, path, symlinks.into()).map_err(|refusal| refusal.of("examine", path))?;
    if let Some(look) = masked(guard, &place).map_err(failed)? {
        let [is_directory, is_file] = [Kind::Directory, Kind::File].map(|kind| look.kind == kind);
        return Ok(Metadata { is_directory, is_file, is_symlink: place.is_link, ..Metadata::default() });
    }
    let place = place.in_directory().map_err(failed)?;
    let found = place.dir.metadata(&place.name, path).map_err(failed)?;
    Ok(Metadata { is_symlink: place.is_link, ..directory::metadata_of(&found) })
}

/// What is there of what may not be looked at: a mask that only tells whether it is a directory. None if it may be.
fn masked(guard: &Guard, place: &Place) -> io::Result<Option<Look>> {
    match guard.sight(&place.path) {
        Sight::Readable | Sight::Writable => Ok(None),
        Sight::Hidden => Err(Errno::NOENT.into()),
        Sight::Leads => place.look().map(Some),
        // In a directory that can be listed, its name and kind can be seen anyway.
        Sight::Shut | Sight::ShutButLeads if guard.is_listed(&place.path) => place.look().map(Some),
        Sight::Shut | Sight::ShutButLeads => Err(Errno::ACCESS.into()),
    }
}

pub(super) fn canonicalize(guard: &Guard, path: &Path) -> Result<PathUri, FsError> {
    let (found, _) = canonical(guard, path).map_err(|refusal| refusal.of("resolve", path))?;
    directory::uri(&found)
}

/// The canonical path, and what is there.
pub(super) fn canonical(guard: &Guard, path: &Path) -> Result<(PathBuf, Kind), Refusal> {
    let place = resolve(guard, path, Links::Follow)?;
    masked(guard, &place)?;
    let kind = place.look()?.kind;
    Ok((place.path, kind))
}

pub(super) fn read_directory(guard: &Guard, path: &Path) -> Result<Vec<DirectoryEntry>, FsError> {
    let listed = list(guard, path).map_err(|refusal| refusal.of("read", path))?;
    Ok(directory::shown(listed))
}

/// The entries of a directory; of one that only leads to something, those that do.
pub(super) fn list(guard: &Guard, path: &Path) -> Result<Vec<Listed>, Refusal> {
    let place = resolve(guard, path, Links::Follow)?;
    if guard.sight(&place.path) == Sight::Leads {
        return leading(guard, &place);
    }
    guard.read(&place.path)?;
    let place = place.in_directory()?;
    let dir = place.dir.open_directory(&place.name)?;
    let mut listed = Vec::new();
    for (name, kind) in dir.entries()? {
        let is_symlink = matches!(kind, Ok(Kind::Symlink));
        let target = if is_symlink { target_of(guard, &place.path, &name) } else { kind };
        listed.push(Listed { name, is_symlink, target });
    }
    Ok(listed)
}

/// What a link in a directory leads to, as far as it may be known.
fn target_of(guard: &Guard, directory: &Path, name: &OsStr) -> io::Result<Kind> {
    match canonical(guard, &directory.join(name)) {
        Ok((_, kind)) => Ok(kind),
        Err(Refusal::Io(error)) => Err(error),
        Err(Refusal::Link { .. }) => Err(Errno::LOOP.into()),
    }
}

fn leading(guard: &Guard, place: &Place) -> Result<Vec<Listed>, Refusal> {
    let dir = place.dir.open_directory(&place.name)?;
    let mut listed = Vec::new();
    for name in guard.names_that_lead(&place.path) {
        if let Ok(look) = dir.look(&name) {
            let is_symlink = look.kind == Kind::Symlink;
            let target = if is_symlink { target_of(guard, &place.path, &name) } else { Ok(look.kind) };
            listed.push(Listed { name, is_symlink, target });
        }
    }
    Ok(listed)
}

/// Makes a fresh directory in a directory that nobody but its owner may enter.
pub(super) fn create_private(guard: &Guard, parent: &Path) -> Result<PathUri, FsError> {
    let path = parent.join(format!("longarm-{}", uuid::Uuid::new_v4().simple()));
    let failed = |error| FsError::from_io("create", path.as_path(), error);
    let place = resolve(guard, &path, Links::Follow).map_err(|refusal| refusal.of("create", &path))?;
    guard.change_name(&place.path).map_err(failed)?;
    let place = place.in_directory().map_err(failed)?;
    place.dir.create_private_directory(&place.name).map_err(failed)?;
    directory::uri(&place.path)
}

/// Whether a missing path may be watched for: it may be read when it comes, and there is no link on the way.
pub(super) fn may_watch(guard: &Guard, path: &Path) -> bool {
    guard.sight(path).is_readable() && resolve(guard, path, Links::Refuse).is_ok()
}
