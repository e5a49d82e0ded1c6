//! A file system in memory, for tests.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::facts::{Found, PathIdentity, Seen};

/// Paths and what is there; every directory is owned by the user 1000 but those of [`FakePaths::owned`].
#[derive(Clone, Debug, Default)]
pub(crate) struct FakePaths {
    things: BTreeMap<PathBuf, Found>,
    texts: BTreeMap<PathBuf, String>,
    owners: BTreeMap<PathBuf, u32>,
    blocked: Vec<PathBuf>,
}

pub(crate) const UID: u32 = 1000;

impl FakePaths {
    /// `dir/`, `file` and `link -> target`.
    pub(crate) fn new(things: &[&str]) -> Self {
        things.iter().fold(Self::default(), |fake, thing| fake.with(thing))
    }

    pub(crate) fn with(mut self, thing: &str) -> Self {
        let (path, found) = match (thing.split_once(" -> "), thing.strip_suffix('/')) {
            (Some((link, target)), _) => (link, Found::Link(target.into())),
            (None, Some(directory)) => (directory, Found::Directory),
            (None, None) => (thing, Found::File),
        };
        for above in Path::new(path).ancestors().skip(1).filter(|above| above.parent().is_some()) {
            self.things.entry(above.into()).or_insert(Found::Directory);
        }
        self.things.insert(path.into(), found);
        self
    }

    pub(crate) fn text(self, path: &str, text: &str) -> Self {
        let mut fake = self.with(path);
        fake.texts.insert(path.into(), text.into());
        fake
    }

    pub(crate) fn owned(mut self, path: &str, owner: u32) -> Self {
        self.owners.insert(path.into(), owner);
        self
    }

    /// Nobody may look below this directory.
    pub(crate) fn blocked(mut self, path: &str) -> Self {
        self.blocked.push(path.into());
        self
    }

    fn check(&self, path: &Path) -> io::Result<()> {
        let blocked = self.blocked.iter().any(|blocked| path != blocked && path.starts_with(blocked));
        if blocked { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    }
}

impl PathIdentity for FakePaths {
    fn look(&self, path: &Path) -> io::Result<Seen> {
        self.check(path)?;
        let found = self.things.get(path).cloned().unwrap_or(Found::Missing);
        let owner = self.owners.get(path).copied().or(Some(UID));
        Ok(Seen { found, owner })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(OsString, Found)>> {
        self.check(&directory.join("x"))?;
        match self.things.get(directory) {
            Some(Found::Directory) => {}
            Some(_) => return Err(io::ErrorKind::NotADirectory.into()),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        let children = self.things.iter().filter(|(path, _)| path.parent() == Some(directory));
        Ok(children.map(|(path, found)| (path.file_name().unwrap().into(), found.clone())).collect())
    }

    fn read_start(&self, file: &Path, max: usize) -> io::Result<Vec<u8>> {
        let text = self.texts.get(file).ok_or(io::ErrorKind::NotFound)?;
        Ok(text.bytes().take(max).collect())
    }

    fn true_name(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.into())
    }
}
