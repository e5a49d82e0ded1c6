//! From a path to the directory that holds what it names, with every step of the way allowed.
//!
//! Links are read by hand, so that each directory that is passed, and what is found at the end, has a canonical path of which
//! the policy is asked. What is opened then is opened by its name in the directory that was found, and not through a link:
//! whoever exchanges something meanwhile makes the call fail or begin anew, and never reach what it was not asked about.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use super::super::os::{Dir, Kind, Look};
use super::super::path::split;
use super::super::rules::Rules as _;
use super::guard::Guard;
use crate::fs::{FsError, Symlinks};

/// Where a path leads: a name in a directory, behind all links that were to be followed.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) dir: Dir,
    /// `.` for the root directory.
    pub(super) name: OsString,
    /// The canonical path.
    pub(super) path: PathBuf,
    /// What is there.
    pub(super) look: Option<Look>,
    /// Names that are missing below the directory, before the last.
    pub(super) missing: Vec<OsString>,
    /// Whether the path itself names a link.
    pub(super) is_link: bool,
    /// Whether the first name that is missing comes from a link.
    pub(super) is_dangling: bool,
}

impl Place {
    /// What is there, or that there is nothing.
    pub(super) fn look(&self) -> io::Result<Look> {
        self.look.ok_or_else(|| Errno::NOENT.into())
    }

    /// Refuses a path some directory of which is missing.
    pub(super) fn in_directory(self) -> io::Result<Self> {
        if self.missing.is_empty() { Ok(self) } else { Err(Errno::NOENT.into()) }
    }
}

/// What to do about links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// Follow them.
    Follow,
    /// Follow all but one at the end.
    KeepLast,
    /// Refuse them.
    Refuse,
}

impl From<Symlinks> for Links {
    fn from(symlinks: Symlinks) -> Self {
        match symlinks {
            Symlinks::Follow => Self::Follow,
            Symlinks::Refuse => Self::Refuse,
        }
    }
}

/// Why a path leads nowhere.
#[derive(Debug)]
pub(super) enum Refusal {
    /// A link, which the call refuses.
    Link {
        last: bool,
    },
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl Refusal {
    pub(super) fn of(self, op: &'static str, path: &Path) -> FsError {
        match self {
            Self::Link { last } => FsError::SymbolicLink { path: path.into(), last },
            Self::Io(error) => FsError::from_io(op, path, error),
        }
    }
}

/// Resolves a path without dots.
pub(super) fn resolve(guard: &Guard, path: &Path, links: Links) -> Result<Place, Refusal> {
    if path.as_os_str().len() > MAX_PATH_BYTES {
        return Err(Errno::NAMETOOLONG.into());
    }
    let place = match at_once(guard, path) {
        Some(place) => place,
        None => Walk::new(guard, path, links)?.run()?,
    };
    guard.within(&place.dir, &place.path)?;
    Ok(place)
}

/// The place of a path without links, which most are: the system finds the directory in one step. The path then is the
/// canonical one; where it may be read, all that leads to it may be passed.
fn at_once(guard: &Guard, path: &Path) -> Option<Place> {
    if !guard.sight(path).is_readable() {
        return None;
    }
    let (parent, name) = split(path);
    let dir = Dir::open(parent, Symlinks::Refuse).ok()?;
    let look = match dir.look(name) {
        Ok(look) if look.kind == Kind::Symlink => return None,
        Ok(look) => Some(look),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(_) => return None,
    };
    let (missing, name) = (Vec::new(), name.to_owned());
    Some(Place { dir, name, path: path.into(), look, missing, is_link: false, is_dangling: false })
}

struct Walk<'a> {
    guard: &'a Guard,
    links: Links,
    /// Links that were followed, and names that were exchanged.
    detours: usize,
    /// Names that were looked at, some of them again.
    steps: usize,
    dir: Dir,
    path: PathBuf,
    rest: VecDeque<Step>,
    is_link: bool,
}

struct Step {
    name: OsString,
    /// Whether it comes from a link.
    linked: bool,
}

/// What is at the end of the way.
struct End {
    step: Step,
    look: Option<Look>,
}

impl<'a> Walk<'a> {
    fn new(guard: &'a Guard, path: &Path, links: Links) -> io::Result<Self> {
        let rest = steps(path, false).collect();
        Ok(Self { guard, links, detours: 0, steps: 0, dir: root()?, path: "/".into(), rest, is_link: false })
    }

    fn run(mut self) -> Result<Place, Refusal> {
        self.guard.pass(&self.path)?;
        while let Some(step) = self.rest.pop_front() {
            if let Some(end) = self.step(step)? {
                return self.end(end);
            }
        }
        // The root directory, or one that a link gives by dots.
        let look = Some(self.dir.look(OsStr::new("."))?);
        let (name, missing) = (".".into(), Vec::new());
        Ok(Place { dir: self.dir, name, path: self.path, look, missing, is_link: self.is_link, is_dangling: false })
    }

    fn step(&mut self, step: Step) -> Result<Option<End>, Refusal> {
        if step.name == ".." {
            self.go_up()?;
            return Ok(None);
        }
        let is_last = self.rest.is_empty();
        let path = self.path.join(&step.name);
        self.steps += 1;
        if path.as_os_str().len() > MAX_PATH_BYTES {
            return Err(Errno::NAMETOOLONG.into());
        }
        if self.steps > MAX_STEPS {
            return Err(Errno::LOOP.into());
        }
        let sight = self.guard.sight(&path);
        // Nothing is looked at of which not even the existence is to be known.
        if !is_last && !self.guard.is_alias(&path) {
            self.guard.pass(&path)?;
        }
        let look = match self.dir.look(&step.name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            look => Some(look?),
        };
        match look.map(|look| look.kind) {
            Some(Kind::Symlink) if is_last && (self.links == Links::KeepLast || sight.is_shut()) => {}
            Some(Kind::Symlink) => {
                self.is_link |= is_last && !step.linked;
                self.follow(&step, &path, is_last)?;
                return Ok(None);
            }
            Some(Kind::Directory) if !is_last => {
                self.enter(step, path)?;
                return Ok(None);
            }
            Some(_) if !is_last => return Err(Errno::NOTDIR.into()),
            _ => {}
        }
        Ok(Some(End { step, look }))
    }

    fn enter(&mut self, step: Step, path: PathBuf) -> Result<(), Refusal> {
        match self.dir.open_directory(&step.name) {
            Ok(dir) => {
                self.dir = dir;
                self.path = path;
            }
            // It was exchanged since it was looked at: look again.
            Err(error) if was_exchanged(&error) => {
                self.detour()?;
                self.rest.push_front(step);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn follow(&mut self, step: &Step, path: &Path, is_last: bool) -> Result<(), Refusal> {
        // First, since what is hidden is no link either.
        self.guard.follow(path)?;
        if self.links == Links::Refuse {
            return Err(Refusal::Link { last: is_last && !step.linked });
        }
        self.detour()?;
        let target = match self.dir.read_link(&step.name) {
            // It was exchanged for something that is no link.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => step.name.clone().into(),
            target => target?,
        };
        if target.as_os_str().is_empty() {
            return Err(Errno::NOENT.into());
        }
        if target.is_absolute() {
            self.dir = root()?;
            self.path = "/".into();
        }
        self.push(&target);
        Ok(())
    }

    /// Begins anew, down to the directory above: what now lies above by its name may be another one.
    fn go_up(&mut self) -> io::Result<()> {
        let mut levels = 1;
        while self.rest.front().is_some_and(|step| step.name == "..") {
            self.rest.pop_front();
            levels += 1;
        }
        self.dir = root()?;
        let path = std::mem::replace(&mut self.path, "/".into());
        self.push(path.ancestors().nth(levels).unwrap_or_else(|| Path::new("/")));
        Ok(())
    }

    fn push(&mut self, path: &Path) {
        for step in steps(path, true).collect::<Vec<_>>().into_iter().rev() {
            self.rest.push_front(step);
        }
    }

    fn detour(&mut self) -> Result<(), Refusal> {
        self.detours += 1;
        if self.detours > DETOURS { Err(Errno::LOOP.into()) } else { Ok(()) }
    }

    fn end(self, End { step, look }: End) -> Result<Place, Refusal> {
        let kind = look.map(|look| look.kind);
        let is_link = self.is_link || (kind == Some(Kind::Symlink) && !step.linked);
        let is_dangling = kind.is_none() && step.linked;
        let mut names: Vec<OsString> = std::iter::once(step).chain(self.rest).map(|step| step.name).collect();
        if names.iter().any(|name| name == "..") {
            // There is nothing above what does not exist.
            return Err(Errno::NOENT.into());
        }
        let mut path = self.path;
        path.extend(&names);
        let name = names.pop().unwrap_or_default();
        Ok(Place { dir: self.dir, name, path, look, missing: names, is_link, is_dangling })
    }
}

/// Whether an error means that something is a link, or no directory, that was a directory when it was looked at.
pub(super) fn was_exchanged(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::NOTDIR))
}

fn root() -> io::Result<Dir> {
    Dir::open(Path::new("/"), Symlinks::Follow)
}

fn steps(path: &Path, linked: bool) -> impl Iterator<Item = Step> {
    path.components().filter_map(move |component| match component {
        Component::Normal(name) => Some(Step { name: name.into(), linked }),
        Component::ParentDir => Some(Step { name: "..".into(), linked }),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    })
}

/// As many links as Linux follows, and as many exchanges besides.
const DETOURS: usize = 40;

/// Of the longest path, as the system has it. What is asked of the policy costs more the deeper a path is.
const MAX_PATH_BYTES: usize = 4095;
/// Four times as many names as fit in the longest path: each `..` of a link begins anew at the root directory.
const MAX_STEPS: usize = 8192;
