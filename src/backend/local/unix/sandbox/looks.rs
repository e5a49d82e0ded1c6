//! What planning looks at, and what it finds there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::kernel_mounts::KernelMounts;
use super::proc_names;
use super::shape::Identity;
use crate::sandbox::SandboxError;

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) identity: Identity,
    pub(super) directory: bool,
}

/// Writes down what is looked at, as long as that is not much. By default nothing of the kernel's is mounted elsewhere.
#[derive(Debug, Default)]
pub(super) struct Looks {
    mounts: Arc<KernelMounts>,
    at: RefCell<Vec<(PathBuf, Option<Found>)>>,
    listed: RefCell<Option<Vec<String>>>,
}

/// All that was looked at, each path once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Looked {
    pub(super) at: Vec<(PathBuf, Option<Found>)>,
    /// What of `/proc` everybody could write to, if that was asked for.
    listed: Option<Vec<String>>,
    pub(super) mounts: Arc<KernelMounts>,
}

impl Looks {
    /// None yet, where the kernel's file systems are mounted as they are.
    pub(super) fn with(mounts: Arc<KernelMounts>) -> Self {
        Self { mounts, ..Self::default() }
    }

    /// What of the kernel's is mounted elsewhere.
    pub(super) fn mounts(&self) -> &KernelMounts {
        &self.mounts
    }

    /// Looks at a path that has no links. None if there is nothing, or nothing that can be reached.
    pub(super) fn look(&self, path: &Path) -> Result<Option<Found>, SandboxError> {
        let found = look(path)?;
        let mut at = self.at.borrow_mut();
        if at.len() <= MOST {
            at.push((path.into(), found));
        }
        Ok(found)
    }

    /// What of `/proc` everybody could write to.
    pub(super) fn writable_in_proc(&self) -> io::Result<Vec<String>> {
        let names = proc_names::writable()?;
        self.listed.replace(Some(names.clone()));
        Ok(names)
    }

    /// None if that is too much, or if there was something else at the second look.
    pub(super) fn each_once(self) -> Option<Looked> {
        let (at, listed, mounts) = (self.at.into_inner(), self.listed.into_inner(), self.mounts);
        if at.len() > MOST {
            return None;
        }
        let mut once = BTreeMap::new();
        for (path, found) in at {
            if once.insert(path, found).is_some_and(|before| before != found) {
                return None;
            }
        }
        Some(Looked { at: once.into_iter().collect(), listed, mounts })
    }
}

impl Looked {
    /// What is at those paths now, if nothing but which files they are has changed.
    pub(super) fn again(&self) -> Option<Vec<Option<Identity>>> {
        let now = self.at.iter().map(|(path, before)| {
            let now = look(path).ok()?;
            // Something of the kernel's is this very one: another one in its place would say that it is elsewhere by now.
            let is_alike = match self.mounts.covers().any(|cover| cover.path == *path) {
                true => now == *before,
                false => now.map(|found| found.directory) == before.map(|found| found.directory),
            };
            is_alike.then_some(now.map(|found| found.identity))
        });
        let now = now.collect::<Option<_>>()?;
        let lists_the_same = match &self.listed {
            Some(listed) => proc_names::writable().is_ok_and(|now| now == *listed),
            None => true,
        };
        lists_the_same.then_some(now)
    }
}

/// Looks at a path that has no links. None if there is nothing, or nothing that can be reached.
fn look(path: &Path) -> Result<Option<Found>, SandboxError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {
            Err(SandboxError::changed(format!("{} has become a link while the sandbox was prepared", path.display())))
        }
        Ok(found) => Ok(Some(Found { identity: (found.dev(), found.ino()), directory: found.is_dir() })),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied => Ok(None),
            _ => Err(SandboxError::preparation(format!("{} cannot be looked at: {error}", path.display()))),
        },
    }
}

/// Of more than that the planning is not what costs.
const MOST: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_of_proc_can_be_written_is_listed_again_too() {
        let looks = Looks::default();
        let names = looks.writable_in_proc().unwrap();
        let looked = looks.each_once().unwrap();
        assert_eq!((looked.again(), looked.listed), (Some(Vec::new()), Some(names.clone())));
        for listed in [vec![], [names, vec!["mine".into()]].concat()] {
            assert_eq!(Looked { at: Vec::new(), listed: Some(listed), mounts: Arc::default() }.again(), None);
        }
    }

    #[test]
    fn a_path_at_which_something_else_was_found_at_the_second_look_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("name");
        for is_there in [false, true] {
            let looks = Looks::default();
            assert_eq!(looks.look(&path).unwrap(), None);
            if is_there {
                std::fs::write(&path, "").unwrap();
            }
            assert_eq!(looks.look(&path).unwrap().is_some(), is_there);
            assert_eq!(looks.each_once().is_none(), is_there);
        }
    }
}
