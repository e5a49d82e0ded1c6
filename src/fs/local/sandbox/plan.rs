//! Intents bound to this machine's paths, and whether that still holds.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::super::LocalFileSystem;
use super::crew::{Crew, Idle};
use super::guard::Guard;
use super::landlock::Wall;
use crate::sandbox::{
    Access, Bound, BoundEntry, Class, Facts, Found, HostPaths, PathIdentity, Platform, SandboxError, SandboxIntent,
    Seen,
};

/// An intent that was bound.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) guard: Guard,
    /// What binding was based on.
    looks: Vec<(PathBuf, Look)>,
    /// That part of it by which it is decided what can be read.
    reading: Vec<usize>,
    /// None where the class needs none.
    pub(super) crew: Option<Arc<Crew>>,
    /// How much it takes to keep it, about, in bytes.
    weight: usize,
}

/// For what a plan must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    Change,
}

impl Plan {
    pub(super) fn class(&self) -> Class {
        self.guard.bound().class
    }

    /// Whether the system may decide alone. Where all may be read it may not: what the system shows of processes is none of the
    /// caller's business.
    pub(super) fn leaves_to_system(&self) -> bool {
        matches!(self.class(), Class::Nothing | Class::FullWrite)
    }

    /// Whether nothing could have changed that it depends on.
    pub(super) fn is_settled(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Read => self.reading.is_empty(),
            Purpose::Change => self.looks.is_empty(),
        }
    }

    /// Whether binding now would come to the same.
    pub(super) fn holds(&self, purpose: Purpose) -> bool {
        let is_same = |(path, look): &(PathBuf, Look)| Look::at(path) == *look;
        match purpose {
            Purpose::Read => self.reading.iter().filter_map(|index| self.looks.get(*index)).all(is_same),
            Purpose::Change => self.looks.iter().all(is_same),
        }
    }
}

/// What is at a path, as far as bindings depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Look {
    /// Nothing, or nothing that can be looked at.
    Nothing,
    Something {
        device: u64,
        inode: u64,
        owner: u32,
        kind: u32,
        target: Option<PathBuf>,
        /// Inodes are used again.
        born: Option<SystemTime>,
        /// Of a file whose content matters.
        written: Option<(i64, i64)>,
    },
}

impl Look {
    fn at(path: &Path) -> Self {
        let Ok(found) = path.symlink_metadata() else { return Self::Nothing };
        let target = found.is_symlink().then(|| path.read_link().unwrap_or_default());
        let matters = found.is_file() && path.file_name() == Some(OsStr::new(".git"));
        Self::Something {
            device: found.dev(),
            inode: found.ino(),
            owner: found.uid(),
            kind: found.mode() & libc::S_IFMT,
            target,
            born: found.created().ok(),
            written: matters.then(|| (found.mtime(), found.mtime_nsec())),
        }
    }
}

/// This machine's paths, with a record of what was looked at.
#[derive(Default)]
struct Recording {
    looks: RefCell<BTreeMap<PathBuf, Look>>,
}

impl PathIdentity for Recording {
    fn look(&self, path: &Path) -> io::Result<Seen> {
        let look = Look::at(path);
        let seen = HostPaths.look(path);
        self.looks.borrow_mut().insert(path.into(), look);
        seen
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(OsString, Found)>> {
        HostPaths.list(directory)
    }

    fn read_start(&self, file: &Path, max: usize) -> io::Result<Vec<u8>> {
        HostPaths.read_start(file, max)
    }

    fn true_name(&self, path: &Path) -> io::Result<PathBuf> {
        HostPaths.true_name(path)
    }
}

/// The plans and crews of a place's files, as many as are likely to be used again.
#[derive(Debug, Default)]
pub(in crate::fs::local) struct Plans {
    state: Mutex<State>,
    /// Threads of all crews that wait for something to do.
    idle: Arc<Idle>,
}

#[derive(Debug, Default)]
struct State {
    plans: VecDeque<(SandboxIntent, Arc<Plan>)>,
    crews: VecDeque<(CrewKey, Arc<Crew>)>,
}

impl State {
    /// Puts a plan first, as long as there is room for it, and lets those go that were used longest ago.
    fn keep(&mut self, intent: &SandboxIntent, plan: &Arc<Plan>) {
        self.plans.retain(|(of, _)| of != intent);
        if plan.weight > MOST_BYTES {
            // It would take the place of all others.
            return;
        }
        self.plans.push_front((intent.clone(), Arc::clone(plan)));
        let mut weight = 0;
        let fitting = self.plans.iter().take_while(|(_, plan)| {
            weight += plan.weight;
            weight <= MOST_BYTES
        });
        let fitting = fitting.count().min(MOST_PLANS);
        self.plans.truncate(fitting);
    }
}

/// Rules name objects, not paths: a directory that was made anew needs new ones.
#[derive(Debug, PartialEq)]
struct CrewKey {
    wall: Wall,
    objects: Vec<Look>,
}

impl Plans {
    /// A plan that was made before, which may not hold any more.
    pub(super) fn known(&self, intent: &SandboxIntent) -> Option<Arc<Plan>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let at = state.plans.iter().position(|(of, _)| of == intent)?;
        let plan = state.plans.remove(at)?;
        let known = Arc::clone(&plan.1);
        state.plans.push_front(plan);
        Some(known)
    }

    /// Makes a plan. May block.
    pub(super) fn make(&self, intent: &SandboxIntent, files: &LocalFileSystem) -> Result<Arc<Plan>, SandboxError> {
        let config = &files.config;
        let recording = Recording::default();
        let mut facts = Facts::new(Platform::HOST, &recording).uid(Some(rustix::process::geteuid().as_raw()));
        facts.extra_protected_names = &config.protected_names;
        if let Some(temp_dir) = &config.temp_dir {
            facts = facts.temp_dir(temp_dir);
        }
        let mut bound = intent.bind(&facts)?;
        files.keep_own(&mut bound)?;
        let bound = Arc::new(bound);
        let looks: Vec<_> = recording.looks.into_inner().into_iter().collect();
        let reading = reading(&bound, &looks);
        let crew = match bound.class {
            Class::Nothing | Class::FullWrite => None,
            Class::FullRead | Class::RestrictedRead => Some(self.crew(&bound, config.blocking_calls)?),
        };
        let weight = weight(intent, &bound, &looks);
        let plan = Arc::new(Plan { guard: Guard::new(bound), looks, reading, crew, weight });
        self.state.lock().unwrap_or_else(PoisonError::into_inner).keep(intent, &plan);
        Ok(plan)
    }

    /// How many plans and crews are kept, and what the plans take.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.plans.len(), state.crews.len(), state.plans.iter().map(|(_, plan)| plan.weight).sum())
    }

    fn crew(&self, bound: &Bound, most: usize) -> Result<Arc<Crew>, SandboxError> {
        let wall = Wall::of(bound);
        let objects = wall.paths().map(Look::at).collect();
        let key = CrewKey { wall, objects };
        let take = |state: &mut State| {
            let at = state.crews.iter().position(|(of, _)| *of == key)?;
            state.crews.remove(at).map(|(_, crew)| crew)
        };
        let known = take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        let crew = match known {
            Some(crew) => crew,
            // Without the lock: a path may be on a file system that does not answer.
            None => Arc::new(Crew::new(&key.wall, most, &self.idle).map_err(|error| {
                SandboxError::preparation(format!("the rules for its paths cannot be made: {error}"))
            })?),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have made one meanwhile.
        let crew = take(&mut state).unwrap_or(crew);
        state.crews.push_front((key, Arc::clone(&crew)));
        state.crews.truncate(MOST_CREWS);
        Ok(crew)
    }
}

/// Which of the looks decide what can be read: those on the way to entries that open or close something to readers. What was
/// missing may come to do so.
fn reading(bound: &Bound, looks: &[(PathBuf, Look)]) -> Vec<usize> {
    let readable = |access: Option<Access>| access >= Some(Access::Read);
    let differs = bound.changes().filter(|change| readable(change.above) != readable(Some(change.entry.access)));
    let ways: HashSet<&Path> = differs
        .flat_map(|change| [change.entry.path.as_path(), change.entry.lexical.as_path()])
        .chain(bound.globs.iter().map(|glob| glob.base.as_path()))
        .chain(bound.aliases.iter().map(|alias| alias.link.as_path()))
        .flat_map(Path::ancestors)
        .collect();
    // A protected name is as readable as what is around it.
    let protected: HashSet<_> = bound.protected.iter().filter_map(|name| name.path.file_name()).collect();
    let may_come = |path: &Path, look: &Look| {
        bound.class == Class::RestrictedRead
            && *look == Look::Nothing
            && path.file_name().is_some_and(|name| !protected.contains(name))
    };
    let matters = |path: &Path, look: &Look| ways.contains(path) || may_come(path, look);
    looks.iter().enumerate().filter(|(_, (path, look))| matters(path, look)).map(|(index, _)| index).collect()
}

/// About what a plan takes.
fn weight(intent: &SandboxIntent, bound: &Bound, looks: &[(PathBuf, Look)]) -> usize {
    let looks: usize = looks.iter().map(|(path, _)| path.as_os_str().len() + size_of::<(PathBuf, Look)>()).sum();
    let entry = |entry: &BoundEntry| {
        // A rule of the second wall names it once more.
        2 * entry.path.as_os_str().len() + entry.lexical.as_os_str().len() + 2 * size_of::<BoundEntry>()
    };
    let globs: usize = bound.globs.iter().map(|glob| glob.base.as_os_str().len() + glob.text.len()).sum();
    intent.to_json().len() + looks + bound.entries.iter().map(entry).sum::<usize>() + globs
}

/// Most are some kilobytes.
const MOST_PLANS: usize = 64;
/// All of them together. One that is larger is made anew for each call.
const MOST_BYTES: usize = 16 << 20;
/// Each may have threads that wait for a while.
const MOST_CREWS: usize = 16;
