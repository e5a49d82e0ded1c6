//! Holding names that do not exist, so that a process in a sandbox cannot make them.
//!
//! A mount needs something to be mounted on. So an empty directory, which nobody may write to, stands there while processes
//! need it. The rules:
//!
//! - It is written down in a [journal] before it is there. It is made under a name that nobody else uses and then
//!   renamed, never over something that exists; so the journal knows which directory it is before it has its name.
//! - The processes of one executor share it by a count, those of several by a lock on it. The last one removes it, by
//!   `rmdir`, and only if it is still the same directory. Whatever somebody has put into it stays, and so does it.
//! - An empty directory that is in no journal which is read here may be of an executor with another one, or of another user:
//!   it is locked too, so that it stays, but it is not ours to remove. Then its owner tries again when he has the chance.
//! - To a process that may write there it is lent: it may put something into it, and then the directory is that process's.
//! - Some are made ahead, in the executor's own directory: the [stock].
//! - What could not be removed stays written down, and is tried again. A lock alone makes nobody an owner: anybody who can
//!   see the directory can lock it. An owner has it in a journal.
//! - What an executor that was killed has left is removed by the next one that finds its journal, in the same way.
//! - Where a name must not be held so, as `.git` in a larger repository, it is only watched.
//!
//! Between the look and the `rmdir` is a moment in which somebody could put an empty directory of his own into its place,
//! which then is removed. Linux has no call that would not have it.

mod directory;
mod held;
mod journal;
mod lent;
mod made;
mod others;
mod spot;
mod stock;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{Access, AtFlags, CWD, FlockOperation};
use rustix::io::Errno;

use self::directory::{
    Identity, Left, Thing, is_nothing, is_our_temporary, look, remove, remove_empty, remove_unshared, unlock,
};
pub(in crate::backend::local) use self::held::Held;
use self::held::HeldName;
use self::journal::{Journal, Record};
use self::lent::Writer;
use self::made::Stands;
use self::others::Locked;
use self::spot::{Is, Parent, Spot};
use self::stock::Stock;
use super::plan::is_own;
use crate::backend::local::names::Unheld;
use crate::sandbox::{Bound, Class, KeepsOwn, MissingOwn, MissingProtected, ProtectedName, SandboxError};

/// The placeholders of one executor. Clones share them. All calls may block.
#[derive(Clone, Debug)]
pub(in crate::backend::local) struct Placeholders {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Where the journal may be, best first.
    directories: Vec<PathBuf>,
    /// How many directories stand for names at a time: each takes a descriptor.
    most: usize,
    state: Mutex<State>,
}

/// Under its lock nobody waits for another process.
#[derive(Debug, Default)]
struct State {
    journal: Option<Journal>,
    placed: HashMap<Identity, Placed>,
    /// The directories that names are in, while somebody needs them: each takes a descriptor too.
    parents: HashMap<Is, Weak<Parent>>,
    /// Empty directories of others that have to stay, while somebody needs them.
    others: HashMap<Identity, Weak<Locked>>,
    /// Those that could not be removed: the next one who has the chance does it.
    left: HashMap<Identity, PathBuf>,
    /// What is being done without the lock, by the last that was written down of it.
    under_way: HashMap<u64, Record>,
    /// Processes that may write where directories stand for names.
    writers: HashMap<u64, Writer>,
    /// Directories that were made ahead.
    stock: Stock,
    begun: u64,
}

/// A directory that stands for a name.
#[derive(Debug)]
struct Placed {
    spot: Spot,
    users: usize,
    /// The directory, with a shared lock on it.
    lock: OwnedFd,
}

/// What is left of directories that stand for nothing any more.
#[derive(Debug, Default)]
#[must_use = "they are written down as long as they are not written off"]
struct Remains {
    /// Those that need no more attention.
    gone: Vec<Identity>,
    open: Vec<OwnedFd>,
}

impl Remains {
    fn add(&mut self, others: Self) {
        self.gone.extend(others.gone);
        self.open.extend(others.open);
    }
}

impl Placeholders {
    /// Those of an executor that keeps its journal in this directory, or in the usual ones of this user. Nothing is touched
    /// yet.
    pub(in crate::backend::local) fn new(directory: Option<PathBuf>) -> Self {
        let directories = directory.map_or_else(journal::default_directories, |directory| vec![directory]);
        Self::of(directories, most())
    }

    fn of(directories: Vec<PathBuf>, most: usize) -> Self {
        Self { shared: Arc::new(Shared { directories, most, state: Mutex::default() }) }
    }

    /// Removes what was made ahead. Later processes have to do without.
    pub(in crate::backend::local) fn close(&self) {
        self.shared.close();
    }

    /// Has everybody who needs the state wait.
    #[cfg(test)]
    pub(in crate::backend::local) fn stall(&self) -> impl Drop {
        self.shared.state()
    }

    /// Removes what executors that are gone have left.
    pub(in crate::backend::local) fn recover(&self) {
        for (path, file, records) in journal::all(&self.shared.directories) {
            self.recover_by(&path, &file, &records);
        }
    }

    /// The same by a journal that was read.
    fn recover_by(&self, path: &Path, file: &fs::File, records: &[Record]) {
        // Its executor holds the lock for as long as it lives.
        if rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        // It may have been written anew, under the same name, while it was read.
        let is_current = fs::symlink_metadata(path)
            .is_ok_and(|found| file.metadata().is_ok_and(|read| Identity::of(&found) == Identity::of(&read)));
        if is_current && self.remove_left(path, records) {
            // If it remains, the next start finds nothing that is written in it.
            drop(fs::remove_file(path));
        }
        // Not only when it is closed: a child that is being made may have it open for a moment.
        let _ = rustix::fs::flock(file, FlockOperation::NonBlockingUnlock);
    }

    /// Holds names until what it returns is dropped. A name that exists is only watched, as is one that cannot be held, or is
    /// not to be: [`Held::unheld`] tells of those that a process could make.
    pub(in crate::backend::local) fn hold(&self, names: &[ProtectedName], missing: MissingProtected) -> Held {
        self.shared.try_again();
        let names = of_the_host(names);
        let spots = self.shared.spots(&names);
        self.hold_at(&names, spots, missing)
    }

    /// The same, where these names are.
    fn hold_at(&self, names: &[ProtectedName], spots: Vec<io::Result<Spot>>, missing: MissingProtected) -> Held {
        let moves = missing == MissingProtected::SetAside;
        if moves {
            // For what is moved. Without one it stays in the directory that it is in, under another name.
            let _made = self.shared.directories.iter().any(|directory| journal::make_private(directory).is_ok());
        }
        // What an entry asks for is held in any case.
        let is_wanted = |name: &ProtectedName| missing == MissingProtected::Placeholder || name.required;
        let mut made = self.shared.make_together(names, &spots, is_wanted).into_iter().peekable();
        let names = names.iter().zip(spots).enumerate().map(|(number, (name, spot))| {
            let is_wanted = is_wanted(name);
            let (spot, cannot_be_held) = match spot {
                Ok(spot) => (spot, None),
                // What is there is none of ours, wherever the path leads.
                Err(error) => (Spot::by_path(name.path.clone()), Some(error)),
            };
            let stands = match (made.next_if(|(at, _)| *at == number), cannot_be_held) {
                (Some((_, made)), _) => Ok(Stands::Placeholder(made)),
                (None, _) if !is_wanted => Ok(Stands::Unknown),
                (None, None) => self.shared.place(&spot, name.placeholder),
                // Nobody can make it.
                (None, Some(error)) if !name.placeholder && is_nothing(&error) => Ok(Stands::Nothing),
                (None, Some(error)) => Err(error),
            };
            let (before, placed) = match &stands {
                Ok(Stands::Placeholder(thing)) => (Some(*thing), Some(thing.id)),
                Ok(Stands::Other(thing, _)) => (Some(*thing), None),
                Ok(Stands::Nothing) => (None, None),
                // What cannot be looked at cannot be told from what is there at the end, either.
                // A directory that stands there for another process goes with that one.
                Ok(Stands::Unknown) | Err(_) => {
                    let found = spot.thing().ok().flatten();
                    (found.filter(|thing| !self.shared.stands_for_a_name(&spot, thing)), None)
                }
            };
            let unheld = match &stands {
                Ok(_) if before.is_some() => None,
                Ok(_) if is_wanted => Some(Unheld::LargerRepository),
                Ok(_) => Some(Unheld::Chosen),
                Err(error) if is_refused(error) => Some(Unheld::Unwritable),
                Err(error) if is_unsupported(error) => Some(Unheld::Unsupported),
                Err(error) => Some(Unheld::Failed(error.to_string())),
            };
            HeldName {
                spot,
                before: before.map(|thing| thing.id),
                born: before.and_then(|thing| thing.born),
                placed,
                unheld: unheld.filter(|unheld| unheld.is_failure() || can_be_made(&name.path)),
                moves,
                others: match stands {
                    Ok(Stands::Other(_, locked)) => locked,
                    _ => None,
                },
            }
        });
        let names = names.collect();
        Held { shared: Arc::clone(&self.shared), names, writer: None, remains: Remains::default(), has_parted: false }
    }

    /// What [`Held::unheld`] would tell, as far as that can be said before anything is made.
    #[allow(clippy::unused_self, reason = "they are asked by it")]
    pub(in crate::backend::local) fn foresee(
        &self,
        names: &[ProtectedName],
        missing: MissingProtected,
    ) -> Vec<(PathBuf, Unheld)> {
        let names = of_the_host(names);
        let names = names.iter().filter(|name| matches!(Identity::at(&name.path), Ok(None)) && can_be_made(&name.path));
        let unheld = names.filter_map(|name| {
            let is_wanted = missing == MissingProtected::Placeholder || name.required;
            let unheld = match is_wanted {
                true if name.placeholder => return None,
                true => Unheld::LargerRepository,
                false => Unheld::Chosen,
            };
            Some((name.path.clone(), unheld))
        });
        unheld.collect()
    }

    /// Removes what is written down in a journal, and still there. False if some of it should be tried again.
    fn remove_left(&self, journal: &Path, records: &[Record]) -> bool {
        let mut done = true;
        // What was exchanged for a link may be as it was some day.
        let at_spot = |path: &Path, act: &dyn Fn(&Spot) -> bool| match Spot::written_in(journal, path) {
            Ok(spot) => act(&spot),
            Err(error) => is_nothing(&error),
        };
        for (at, record) in records.iter().enumerate() {
            match record {
                // If it has an identity, that is in the next record. The name is nobody else's; it is empty, or stays.
                Record::Making { temporary } => {
                    done &= !is_our_temporary(temporary) || at_spot(temporary, &remove_empty);
                }
                Record::Held { id, temporary, path } => {
                    let later = records.get(at..).unwrap_or_default();
                    if later.contains(&Record::Gone { id: *id }) {
                        continue;
                    }
                    let is_shared = || self.shared.is_written_down(path, *id, Some(journal));
                    for at in [temporary, path] {
                        let is_over = |spot: &Spot| match look(spot, *id) {
                            Left::Nothing => true,
                            Left::Placeholder => remove_unshared(spot, *id, is_shared),
                            Left::Unclear => false,
                        };
                        done &= at_spot(at, &is_over) || Spot::behind_links(at, *id).is_some_and(|spot| is_over(&spot));
                    }
                }
                Record::Gone { .. } => {}
            }
        }
        done
    }
}

/// Whoever could write to the executor's own directories could forge a journal, which the next executor believes. Whoever may
/// not read everything may not read there either.
impl KeepsOwn for Placeholders {
    fn own(&self, bound: &Bound, missing: MissingOwn) -> Result<Vec<PathBuf>, SandboxError> {
        let mut own = Vec::new();
        if matches!(bound.class, Class::Nothing | Class::FullWrite) {
            return Ok(own);
        }
        // Most of them are in one directory.
        let mut last: Option<(&Path, Option<PathBuf>)> = None;
        for directory in &self.shared.directories {
            let Some(above) = directory.parent() else { continue };
            let parent = match last.take() {
                Some((at, parent)) if at == above => parent,
                _ => real(above),
            };
            last = Some((above, parent.clone()));
            let path = match directory.file_name() {
                Some(name) => parent.map(|parent| parent.join(name)),
                // It ends with `..`.
                None => real(directory),
            };
            let Some(path) = path else { continue };
            // Whoever has opened what is made ahead can look into it when it is in a workspace that is denied to him.
            // That is in the first one that will do.
            let may_look = own.is_empty() && bound.class == Class::RestrictedRead && bound.can_read(&path);
            if !may_look && !bound.may_write_at_or_below(&path) {
                continue;
            }
            if !journal::is_private(&path) {
                let made = match missing {
                    MissingOwn::Make => journal::make_private(&path),
                    MissingOwn::Leave => Ok(()),
                };
                match made {
                    _ if journal::is_private(&path) => {}
                    // Where we are refused, nobody in the sandbox can make it, either. One that is somebody else's, or anybody's, is
                    // never read.
                    Err(error) if !is_refused(&error) && fs::symlink_metadata(&path).is_err() => {
                        let reason = format!("the executor's directory {} cannot be made: {error}", path.display());
                        return Err(SandboxError::preparation(format!("{reason}; name another one for its state")));
                    }
                    _ => continue,
                }
            }
            own.push(path);
        }
        Ok(own)
    }
}

/// A path without links, of which the end may be missing.
fn real(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|above| {
        let missing = path.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(missing))
    })
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No call leaves it half changed where it could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one user of each away; the last one removes the directory. What is left of them is to be [written
    /// off](Self::write_off) before it is dropped.
    fn release(&self, ids: impl IntoIterator<Item = Identity>) -> Remains {
        let mut state = self.state();
        let mut remains = Remains::default();
        for id in ids {
            let Some(placed) = state.placed.get_mut(&id) else { continue };
            placed.users -= 1;
            if placed.users > 0 {
                continue;
            }
            let Some(placed) = state.placed.remove(&id) else { continue };
            // Of those who share it, the last to ask for this gets it: asking gives up one's own lock.
            let done = match rustix::fs::flock(&placed.lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => remove(&placed.spot, id, &placed.lock),
                // Anybody can have a lock on it. Only another executor has a record of it, until it is gone.
                Err(_) => {
                    let own = state.journal.as_ref().map(|journal| journal.path().to_path_buf());
                    self.is_written_down(&placed.spot.path, id, own.as_deref()) || placed.spot.is_another(id)
                }
            };
            unlock(&placed.lock);
            if done {
                remains.gone.push(id);
            } else {
                state.left.insert(id, placed.spot.path);
            }
            remains.open.push(placed.lock);
        }
        remains
    }

    /// Writes down that directories are gone. They are still open, since what is open is no other directory yet.
    fn write_off(&self, remains: &Remains) {
        if !remains.gone.is_empty() {
            self.state().forget(&remains.gone);
        }
    }

    /// Removes what could not be removed before.
    fn try_again(&self) {
        let mut state = self.state();
        if state.left.is_empty() {
            return;
        }
        let own = state.journal.as_ref().map(|journal| journal.path().to_path_buf());
        let gone = |id: Identity, path: &Path| {
            let is_shared = || self.is_written_down(path, id, own.as_deref());
            let is_over = match Spot::of(path) {
                Ok(spot) => remove_unshared(&spot, id, is_shared),
                Err(error) => is_nothing(&error),
            };
            is_over || Spot::behind_links(path, id).is_some_and(|spot| remove_unshared(&spot, id, is_shared))
        };
        let gone: Vec<Identity> = state.left.iter().filter(|(id, path)| gone(**id, path)).map(|(id, _)| *id).collect();
        gone.iter().for_each(|id| drop(state.left.remove(id)));
        state.forget(&gone);
    }

    /// Whether a directory stands for a name, of this executor or of another one.
    fn stands_for_a_name(&self, spot: &Spot, thing: &Thing) -> bool {
        let is_ours = self.state().placed.get(&thing.id).is_some_and(|placed| placed.spot.path == spot.path);
        is_ours || thing.is_like_a_placeholder() && self.is_a_placeholder(spot, thing.id)
    }

    /// Whether any journal but this one says that this directory stands for this name.
    fn is_written_down(&self, path: &Path, id: Identity, but: Option<&Path>) -> bool {
        journal::all(&self.directories).iter().any(|(journal, _, records)| {
            let mut held = false;
            for record in records.iter().filter(|_| Some(journal.as_path()) != but) {
                match record {
                    Record::Held { id: of, path: at, .. } if *of == id && at == path => held = true,
                    Record::Gone { id: of } if *of == id => held = false,
                    _ => {}
                }
            }
            held
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    /// Counts one of ours once more.
    fn count(&mut self, path: &Path, id: Identity) -> bool {
        let placed = self.placed.get_mut(&id).filter(|placed| placed.spot.path == path);
        placed.map(|placed| placed.users += 1).is_some()
    }

    /// Writes down what is about to be done, each under a number of its own. An error is not one of the place where it is to
    /// be done.
    fn begin(&mut self, directories: &[PathBuf], records: Vec<Record>) -> io::Result<RangeInclusive<u64>> {
        if self.journal.is_none() {
            let journal = Journal::begin(directories).map_err(|error| unwritten(&error))?;
            if let Some(directory) = journal.path().parent() {
                self.stock.settle_in(directory);
            }
            self.journal = Some(journal);
        }
        let first = self.begun + 1;
        self.begun += records.len() as u64;
        let tokens = first..=self.begun;
        match self.go_on(tokens.clone().zip(records).collect()) {
            Ok(()) => Ok(tokens),
            Err(error) => {
                tokens.for_each(|token| self.end(token));
                Err(error)
            }
        }
    }

    /// Writes down the next steps of what is under way.
    fn go_on(&mut self, steps: Vec<(u64, Record)>) -> io::Result<()> {
        let journal = self.journal.as_mut().ok_or_else(|| unwritten(&io::ErrorKind::NotFound.into()))?;
        let records: Vec<Record> = steps.iter().map(|(_, record)| record.clone()).collect();
        let written = journal.write(&records);
        self.under_way.extend(steps);
        self.settle();
        written.map_err(|error| unwritten(&error))
    }

    /// What was under way has come to a directory that is locked.
    fn add(&mut self, token: u64, id: Identity, spot: &Spot, lock: OwnedFd) {
        self.under_way.remove(&token);
        self.left.remove(&id);
        if !self.count(&spot.path, id) {
            self.placed.insert(id, Placed { spot: spot.clone(), users: 1, lock });
            self.lend(id);
        }
    }

    /// What was under way has come to nothing.
    fn end(&mut self, token: u64) {
        match self.under_way.remove(&token) {
            Some(Record::Held { id, .. }) => self.forget(&[id]),
            _ => self.settle(),
        }
    }

    /// Directories need no more attention, unless somebody else here gives them some.
    fn forget(&mut self, ids: &[Identity]) {
        let is_needed = |id: &Identity| {
            let others = |record: &Record| matches!(record, Record::Held { id: of, .. } if of == id);
            self.placed.contains_key(id) || self.left.contains_key(id) || self.under_way.values().any(others)
        };
        let gone: Vec<Record> = ids.iter().filter(|id| !is_needed(id)).map(|id| Record::Gone { id: *id }).collect();
        let idle = self.is_idle();
        if !gone.is_empty()
            && let Some(journal) = &mut self.journal
        {
            // What stays written down without need is looked for once more by the next start, which finds nothing.
            let written = if idle { journal.write_off(&gone) } else { journal.write(&gone) };
            if idle && written.is_ok() {
                return;
            }
        }
        self.settle();
    }

    /// Keeps the journal short.
    fn settle(&mut self) {
        let idle = self.is_idle();
        let Some(journal) = &mut self.journal else { return };
        let shortened = if idle {
            journal.clear()
        } else if journal.is_long() {
            let held =
                |id: &Identity, path: &PathBuf| Record::Held { id: *id, temporary: PathBuf::new(), path: path.clone() };
            let placed = self.placed.iter().map(|(id, placed)| held(id, &placed.spot.path));
            let left = self.left.iter().map(|(id, path)| held(id, path));
            // Of those that are ready, some may be about to get their names.
            let made = self.stock.records().chain(placed).chain(left);
            journal.rewrite(&made.chain(self.under_way.values().cloned()).collect::<Vec<_>>())
        } else {
            Ok(())
        };
        // It is only longer than it has to be.
        drop(shortened);
    }

    fn is_idle(&self) -> bool {
        self.placed.is_empty() && self.left.is_empty() && self.under_way.is_empty() && self.stock.ready.is_empty()
    }
}

/// The names but those in what every process has of its own: it does not have what the host has there.
fn of_the_host(names: &[ProtectedName]) -> Cow<'_, [ProtectedName]> {
    match names.iter().any(|name| is_own(&name.path)) {
        true => names.iter().filter(|name| !is_own(&name.path)).cloned().collect(),
        false => names.into(),
    }
}

/// Nothing may be made that is not written down.
fn unwritten(error: &io::Error) -> io::Error {
    io::Error::other(format!("the journal of placeholders cannot be written: {error}"))
}

/// Whether an error means that we have no right to make a name.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EROFS | libc::EACCES | libc::EPERM))
}

/// Whether an error means that the file system does not rename without replacing: those over a network often do not.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
}

/// Whether a process with our rights could make a name: not on a file system that is read-only, nor in a directory that is
/// somebody else's and not ours to write to. Of our own one, a process may change the mode.
fn can_be_made(path: &Path) -> bool {
    let Some(parent) = path.parent() else { return false };
    match rustix::fs::accessat(CWD, parent, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) => true,
        Err(Errno::ACCESS | Errno::PERM) => {
            fs::symlink_metadata(parent).is_ok_and(|parent| parent.uid() == journal::own_uid())
        }
        Err(Errno::ROFS | Errno::NOENT | Errno::NOTDIR) => false,
        Err(_) => true,
    }
}

/// A quarter of the descriptors that this process may have.
fn most() -> usize {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    descriptors.map_or(usize::MAX, |most| usize::try_from(most / 4).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests;
