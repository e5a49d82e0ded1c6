//! From paths as they are written to paths without links.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::bound::{Alias, Existing};
use super::error::SandboxError;
use super::facts::{Found, PathIdentity, Seen};
use super::limits;

/// Resolves paths, and looks at each place once.
pub(super) struct Resolver<'a> {
    identity: &'a dyn PathIdentity,
    seen: RefCell<HashMap<PathBuf, Look>>,
    /// The bytes of all paths so far.
    spent: Cell<usize>,
}

/// What came of a look.
#[derive(Clone)]
enum Look {
    Seen(Seen),
    /// The user may not look there.
    Blocked,
}

/// A path without links.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    pub(super) path: PathBuf,
    pub(super) kind: Existing,
    pub(super) owner: Option<u32>,
    /// The links on the way.
    pub(super) links: Vec<Alias>,
    /// Where the user could not look any further.
    pub(super) blocked: Option<PathBuf>,
    /// Whether a link leads above something that is no directory. The system says that nothing is there, and nothing could
    /// be; what the text comes to may be something else that is.
    pub(super) nowhere: bool,
}

impl Resolved {
    /// Whether it is the directory above all others.
    pub(super) fn is_root(&self) -> bool {
        self.path.parent().is_none()
    }

    pub(super) fn exists(&self) -> bool {
        self.kind != Existing::Missing
    }
}

impl<'a> Resolver<'a> {
    pub(super) fn new(identity: &'a dyn PathIdentity) -> Self {
        Self { identity, seen: RefCell::default(), spent: Cell::default() }
    }

    pub(super) fn identity(&self) -> &'a dyn PathIdentity {
        self.identity
    }

    /// Counts one more path, as long as there are not too many in all.
    fn spend(&self, path: &Path) -> Result<(), SandboxError> {
        let spent = self.spent.get().saturating_add(path.as_os_str().len());
        if spent > limits::ALL_PATHS_BYTES {
            return Err(limits::exceeded(limits::ALL_PATHS_BYTES, "bytes of paths to look up"));
        }
        self.spent.set(spent);
        Ok(())
    }

    /// Follows every link of an absolute path. What is missing is kept by its text.
    pub(super) fn resolve(&self, path: &Path) -> Result<Resolved, SandboxError> {
        if path.as_os_str().len() > limits::PATH_BYTES {
            return Err(limits::exceeded(limits::PATH_BYTES, "bytes in one path"));
        }
        self.spend(path)?;
        let mut at = root_of(path);
        let (mut kind, mut owner) = (Existing::Directory, None);
        let (mut links, mut blocked) = (Vec::new(), None);
        let mut nowhere = false;
        // The part that exists, where the rest is missing.
        let mut existing = None;
        let mut rest: Vec<OsString> = names(path);
        rest.reverse();
        while let Some(name) = rest.pop() {
            if name == ".." {
                nowhere |= existing.is_some() || kind != Existing::Directory;
                at.pop();
                owner = None;
                continue;
            }
            if kind != Existing::Directory && existing.is_none() {
                // Something else stands where a directory would have to be.
                existing = Some(at.clone());
                kind = Existing::Missing;
            }
            if existing.is_some() {
                at.push(name);
                continue;
            }
            let next = at.join(&name);
            match self.look(&next)? {
                Look::Seen(Seen { found: Found::Link(target), .. }) => {
                    if links.len() == MAX_LINKS {
                        let path = path.display();
                        return Err(SandboxError::preparation(format!("{path} leads through too many symbolic links")));
                    }
                    if target.has_root() {
                        at = root_of(&target);
                    }
                    let followed = names(&target);
                    rest.extend(followed.into_iter().rev());
                    self.spend(&next)?;
                    self.spend(&target)?;
                    links.push(Alias { link: next, target });
                    owner = None;
                    continue;
                }
                Look::Seen(Seen { found: Found::Directory, owner: of }) => (kind, owner) = (Existing::Directory, of),
                Look::Seen(Seen { found: Found::File, owner: of }) => (kind, owner) = (Existing::File, of),
                Look::Seen(Seen { found: Found::Other, owner: of }) => (kind, owner) = (Existing::Other, of),
                Look::Seen(Seen { found: Found::Missing, .. }) => {
                    existing = Some(at.clone());
                    kind = Existing::Missing;
                }
                Look::Blocked => {
                    blocked = Some(next.clone());
                    existing = Some(at.clone());
                    kind = Existing::Missing;
                }
            }
            at = next;
        }
        if nowhere {
            kind = Existing::Missing;
        }
        if kind == Existing::Missing {
            owner = None;
        }
        let path = self.in_true_spelling(at, existing.as_deref())?;
        Ok(Resolved { path, kind, owner, links, blocked, nowhere })
    }

    /// What is at a path whose directory has no links.
    pub(super) fn found(&self, path: &Path) -> Result<Found, SandboxError> {
        Ok(match self.look(path)? {
            Look::Seen(seen) => seen.found,
            Look::Blocked => Found::Missing,
        })
    }

    /// The user that owns what is there, where things have one and that can be told.
    pub(super) fn owner(&self, path: &Path) -> Result<Option<u32>, SandboxError> {
        Ok(match self.look(path)? {
            Look::Seen(seen) => seen.owner,
            Look::Blocked => None,
        })
    }

    fn look(&self, path: &Path) -> Result<Look, SandboxError> {
        if let Some(look) = self.seen.borrow().get(path) {
            return Ok(look.clone());
        }
        self.spend(path)?;
        let look = match self.identity.look(path) {
            Ok(seen) => Look::Seen(seen),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Look::Blocked,
            Err(error) => {
                return Err(SandboxError::preparation(format!("{} cannot be looked at: {error}", path.display())));
            }
        };
        self.seen.borrow_mut().insert(path.into(), look.clone());
        Ok(look)
    }

    fn in_true_spelling(&self, path: PathBuf, existing: Option<&Path>) -> Result<PathBuf, SandboxError> {
        let existing = existing.unwrap_or(&path);
        match (self.identity.true_name(existing), path.strip_prefix(existing)) {
            (Ok(name), Ok(rest)) if rest.as_os_str().is_empty() => Ok(name),
            (Ok(name), Ok(rest)) => Ok(name.join(rest)),
            // A `..` behind something missing led above what exists.
            (_, Err(_)) => Ok(path),
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => Ok(path),
            (Err(error), _) => {
                Err(SandboxError::preparation(format!("{} cannot be looked at: {error}", existing.display())))
            }
        }
    }
}

/// Removes `.` and `..` by their text.
pub(super) fn clean(path: &Path) -> PathBuf {
    let mut clean = root_of(path);
    for name in names(path) {
        if name == ".." {
            clean.pop();
        } else {
            clean.push(name);
        }
    }
    clean
}

/// The root, with the drive where there are drives.
fn root_of(path: &Path) -> PathBuf {
    path.components().take_while(|part| matches!(part, Component::Prefix(_) | Component::RootDir)).collect()
}

/// The names of a path and its `..`.
fn names(path: &Path) -> Vec<OsString> {
    let parts = path.components();
    parts
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().into())
        .collect()
}

/// As many as Linux follows.
const MAX_LINKS: usize = 40;
