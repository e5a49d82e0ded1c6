//! A place in a tree of directories, from which one goes down and up again without following a link, however deep the tree
//! is.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use super::os::{Dir, FileId};

/// A directory, and the way that led to it.
pub(super) struct Tree {
    /// The path of the directory, with the name behind it that is pointed at.
    path: PathBuf,
    pointing: bool,
    root_path: PathBuf,
    levels: Vec<Level>,
}

struct Level {
    name: OsString,
    id: FileId,
    /// None while it is far up: the number of open files is bounded, the depth of trees is not.
    dir: Option<Dir>,
}

impl Tree {
    /// Starts at a directory that has this path.
    pub(super) fn new(path: &Path, dir: Dir) -> io::Result<Self> {
        let root = Level { name: OsString::new(), id: dir.id()?, dir: Some(dir) };
        Ok(Self { path: path.into(), pointing: false, root_path: path.into(), levels: vec![root] })
    }

    /// The directory where one is.
    pub(super) fn dir(&self) -> io::Result<&Dir> {
        self.levels.last().and_then(|level| level.dir.as_ref()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// What the directory at which it started is.
    pub(super) fn root_id(&self) -> Option<FileId> {
        self.levels.first().map(|root| root.id)
    }

    /// The path of the directory at which it started.
    pub(super) fn root_path(&self) -> &Path {
        &self.root_path
    }

    /// What the directory where one is is.
    pub(super) fn id(&self) -> Option<FileId> {
        self.levels.last().map(|level| level.id)
    }

    /// Points at a name in it until one goes elsewhere. Paths in deep trees are long: none is made for each entry.
    pub(super) fn point_at(&mut self, name: &OsStr) {
        self.point_away();
        self.path.push(name);
        self.pointing = true;
    }

    fn point_away(&mut self) {
        if std::mem::take(&mut self.pointing) {
            self.path.pop();
        }
    }

    /// The path of the name that is pointed at, or of the directory.
    pub(super) fn pointed(&self) -> &Path {
        &self.path
    }

    /// The path of the directory.
    pub(super) fn path(&self) -> &Path {
        self.path.parent().filter(|_| self.pointing).unwrap_or(&self.path)
    }

    /// Goes down into a directory.
    pub(super) fn enter(&mut self, name: &OsStr) -> io::Result<()> {
        let dir = self.dir()?.open_directory(name)?;
        let id = dir.id()?;
        if let Some(far) = self.levels.len().checked_sub(OPEN_LEVELS).and_then(|far| self.levels.get_mut(far)) {
            far.dir = None;
        }
        self.levels.push(Level { name: name.into(), id, dir: Some(dir) });
        self.point_away();
        self.path.push(name);
        Ok(())
    }

    /// Goes up, and points at the directory that was left; returns its name. None at the root.
    pub(super) fn leave(&mut self) -> io::Result<Option<OsString>> {
        self.point_away();
        if self.levels.len() < 2 {
            return Ok(None);
        }
        let Some(left) = self.levels.pop() else { return Ok(None) };
        self.pointing = true;
        if let (Some(above), Some(dir)) = (self.levels.last_mut(), left.dir)
            && above.dir.is_none()
        {
            let parent = dir.parent()?;
            // A directory that was moved meanwhile lies in another one now.
            if parent.id()? != above.id {
                return Err(io::Error::other("a directory was moved meanwhile"));
            }
            above.dir = Some(parent);
        }
        Ok(Some(left.name))
    }
}

/// Levels that are held open.
const OPEN_LEVELS: usize = 64;
