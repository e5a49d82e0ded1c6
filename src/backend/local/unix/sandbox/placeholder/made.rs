//! How a directory comes to stand for a name.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;

use super::Shared;
use super::directory::{Identity, MODE, Thing, lock, unlock};
use super::journal::Record;
use super::others::Locked;
use super::spot::{Parent, Spot};
use super::stock::{Made, Ready};
use crate::sandbox::{Existing, ProtectedName};

/// What a name stands for.
pub(super) enum Stands {
    /// A directory that stands for it, and is counted.
    Placeholder(Thing),
    /// Something else, locked if it is an empty directory.
    Other(Thing, Option<Arc<Locked>>),
    /// Nothing, and nothing may.
    Nothing,
    /// Nobody has looked.
    Unknown,
}

impl Shared {
    /// Has a directory stand for a name, and counts it once more, unless there is something else, or the name must not be held.
    pub(super) fn place(&self, spot: &Spot, may_be_held: bool) -> io::Result<Stands> {
        for _ in 0..ATTEMPTS {
            let placed = match spot.thing()? {
                Some(thing) => self.share(spot, &thing).and_then(|is_shared| match is_shared {
                    true => Ok(Stands::Placeholder(thing)),
                    false => Ok(Stands::Other(thing, self.lock_others(spot, thing.id)?)),
                }),
                None if !may_be_held => return Ok(Stands::Nothing),
                None => self.make_one(spot).map(Stands::Placeholder),
            };
            match placed {
                // It appeared or went meanwhile.
                Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {}
                placed => return placed,
            }
        }
        Err(io::Error::other("it appears and goes all the time"))
    }

    /// The same as [`Shared::share`], of a path that was looked at.
    pub(super) fn share_at(&self, path: &Path, thing: &Thing) -> io::Result<bool> {
        if self.state().count(path, thing.id) {
            return Ok(true);
        }
        if !thing.is_like_a_placeholder() {
            return Ok(false);
        }
        self.share(&Spot::new(self.parent(path)?, path.into()), thing)
    }

    /// Counts one of ours, or joins that of another executor. False if it is neither.
    pub(super) fn share(&self, spot: &Spot, thing: &Thing) -> io::Result<bool> {
        let (path, id) = (spot.path.as_path(), thing.id);
        if self.state().count(path, id) {
            return Ok(true);
        }
        if !thing.is_like_a_placeholder() {
            return Ok(false);
        }
        // While it is open, its inode stands for nothing else.
        let open = match spot.open() {
            Ok(open) => open,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            // A file, or a directory of somebody else's.
            Err(_) => return Ok(false),
        };
        let is_there = || Ok::<_, io::Error>(spot.identity()? == Some(id) && Identity::of_open(&open)? == id);
        if !self.is_a_placeholder(spot, id) {
            // It is somebody's own, unless it went while it was looked at.
            return if is_there()? { Ok(false) } else { Err(io::ErrorKind::NotFound.into()) };
        }
        self.has_room_for(1)?;
        // Before the lock, so that it is never without both a record and an owner who knows of it.
        let record = Record::Held { id, temporary: PathBuf::new(), path: path.into() };
        let token = *self.state().begin(&self.directories, vec![record])?.start();
        // Whoever has it may keep it for long: nobody else waits for that.
        let locked = lock(&open).and_then(|()| if is_there()? { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) });
        let mut state = self.state();
        match locked {
            Ok(()) => {
                state.add(token, id, spot, open);
                Ok(true)
            }
            Err(error) => {
                unlock(&open);
                state.end(token);
                Err(error)
            }
        }
    }

    /// Whether it is one of some executor. Journals are read one after the other: an owner who has taken it over after his was
    /// read, from one who gave it up before his was, is missed. So a look that finds no owner is repeated.
    pub(super) fn is_a_placeholder(&self, spot: &Spot, id: Identity) -> bool {
        for look in 0..LOOKS {
            if !spot.is_like_a_placeholder() {
                return false;
            }
            if self.is_written_down(&spot.path, id, None) {
                return true;
            }
            if look + 1 < LOOKS {
                std::thread::sleep(LOOK_PAUSE);
            }
        }
        false
    }

    /// Makes directories for those of these names that were missing and may have one: in their order, each with its number among
    /// them. Of those that come to nothing, [`Shared::place`] finds out why.
    pub(super) fn make_together(
        &self,
        names: &[ProtectedName],
        spots: &[io::Result<Spot>],
        is_wanted: impl Fn(&ProtectedName) -> bool,
    ) -> Vec<(usize, Thing)> {
        let is_missing = |name: &ProtectedName| is_wanted(name) && name.placeholder && name.state == Existing::Missing;
        let missing = names.iter().zip(spots).enumerate().filter(|(_, (name, _))| is_missing(name));
        let missing = missing.filter_map(|(at, (_, spot))| Some((at, spot.as_ref().ok()?)));
        let (numbers, missing): (Vec<usize>, Vec<&Spot>) = missing.unzip();
        if missing.is_empty() {
            return Vec::new();
        }
        let paths: Vec<&Path> = missing.iter().map(|spot| spot.path.as_path()).collect();
        let made = self.make(&missing, &self.fits(&paths)).unwrap_or_default();
        numbers.into_iter().zip(made).filter_map(|(at, made)| Some((at, made.ok()?))).collect()
    }

    fn make_one(&self, spot: &Spot) -> io::Result<Thing> {
        self.make(&[spot], &[false])?.pop().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
    }

    /// Makes directories that stand for names, but for those that one fits which was made ahead. Each step is written down for
    /// all of them at once. An error is one of them all.
    fn make(&self, spots: &[&Spot], fits: &[bool]) -> io::Result<Vec<io::Result<Thing>>> {
        self.has_room_for(spots.len())?;
        let mut state = self.state();
        let sources = state.stock.offer(fits).into_iter().zip(spots);
        let sources: Vec<(Spot, Option<Made>)> = sources
            .map(|(ready, spot)| match ready {
                Some((temporary, made)) => (Spot::by_path(temporary), Some(made)),
                None => (spot.beside(&temporary_name()), None),
            })
            .collect();
        let records = sources.iter().zip(spots).map(|((from, ready), spot)| match ready {
            Some(made) => Record::Held { id: made.id, temporary: from.path.clone(), path: spot.path.clone() },
            None => Record::Making { temporary: from.path.clone() },
        });
        let tokens = state.begin(&self.directories, records.collect())?;
        let mut taken = state.stock.take(sources.iter().filter(|(_, ready)| ready.is_some()).count());
        drop(state);
        let making = spots.iter().zip(sources).zip(tokens);
        let making = making
            .map(|((spot, (from, ready)), token)| Making::begin(token, spot, from, ready.and_then(|_| taken.next())));
        let making: Vec<Making<'_>> = making.collect();
        // From its name on, others of this executor find it: not before it is counted.
        let mut state = self.state();
        let written = state.go_on(making.iter().filter_map(Making::next).collect()).map_err(|error| error.to_string());
        let placed = making.into_iter().map(|Making { token, spot, from, ready, made }| {
            let placed = made.and_then(|(thing, open)| {
                written.clone().map_err(io::Error::other)?;
                let renamed = from.rename(spot);
                // These are of the one path; whatever else is in the way is in the way of others too.
                let is_its_own = |error: Errno| {
                    matches!(error, Errno::EXIST | Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::ROFS)
                };
                if ready.is_some() && renamed.is_err_and(|error| !is_its_own(error)) {
                    state.stock.give_up();
                }
                renamed?;
                if let Some(made) = ready
                    && let Err(error) = rustix::fs::fchmod(&open, Mode::from_raw_mode(made.usual_mode()))
                {
                    drop(spot.remove_directory());
                    return Err(error.into());
                }
                state.add(token, thing.id, spot, open);
                Ok(thing)
            });
            if placed.is_err() {
                // It is empty, and its name is nobody else's.
                drop(from.remove_directory().or_else(|_| from.as_owner(|| from.remove_directory())));
                state.end(token);
            }
            placed
        });
        Ok(placed.collect())
    }

    /// Opens the directory that a name is in. Those of one directory share it, whoever needs them.
    pub(super) fn parent(&self, path: &Path) -> io::Result<Arc<Parent>> {
        let parent = Parent::of(path)?;
        let mut state = self.state();
        if let Some(same) = state.parents.get(&parent.is).and_then(Weak::upgrade) {
            return Ok(same);
        }
        state.parents.retain(|_, other| other.strong_count() > 0);
        if state.parents.len() >= self.most {
            return Err(io::Error::other(format!("the executor has {} directories open already", self.most)));
        }
        let parent = Arc::new(parent);
        state.parents.insert(parent.is, Arc::downgrade(&parent));
        Ok(parent)
    }

    /// Opens the directories that names are in, each once.
    pub(super) fn spots(&self, names: &[ProtectedName]) -> Vec<io::Result<Spot>> {
        let mut open: HashMap<&Path, Arc<Parent>> = HashMap::new();
        let spots = names.iter().map(|name| {
            let known = name.path.parent().and_then(|above| open.get(above)).map(Arc::clone);
            let parent = known.map_or_else(|| self.parent(&name.path), Ok)?;
            if let Some(above) = name.path.parent() {
                open.insert(above, Arc::clone(&parent));
            }
            Ok(Spot::new(parent, name.path.clone()))
        });
        spots.collect()
    }

    /// Refuses more directories where there are so many that other things would be short of descriptors.
    fn has_room_for(&self, more: usize) -> io::Result<()> {
        let state = self.state();
        if state.placed.len() + state.under_way.len() + more <= self.most {
            return Ok(());
        }
        let reason =
            format!("the executor holds {} names already, as many as its limit of open files allows", self.most);
        Err(io::Error::other(reason))
    }
}

/// A directory on the way to its name.
struct Making<'a> {
    token: u64,
    spot: &'a Spot,
    /// Under which name it is until then.
    from: Spot,
    /// What it was made ahead as: what is known of it is written down already.
    ready: Option<Made>,
    /// The directory, locked.
    made: io::Result<(Thing, OwnedFd)>,
}

impl<'a> Making<'a> {
    /// Makes it under a name that is nobody else's, unless it is ready.
    fn begin(token: u64, spot: &'a Spot, from: Spot, ready: Option<Ready>) -> Self {
        let (ready, open_already) = ready.map(|ready| (ready.made, ready.open)).unzip();
        let make = || {
            let open = match open_already {
                Some(open) => open,
                None => from.make_directory(MODE)?,
            };
            if let Some(made) = ready
                && made != Made::of(&open.metadata()?)
            {
                return Err(io::Error::other("what was made ahead has been changed"));
            }
            let thing = Thing::of_open(&open)?;
            let open = OwnedFd::from(open);
            match ready {
                // Everybody can have seen it: nobody waits for one who has a lock on it.
                Some(_) => rustix::fs::flock(&open, FlockOperation::NonBlockingLockShared)?,
                None => lock(&open)?,
            }
            Ok((thing, open))
        };
        let made = make();
        Self { token, spot, from, ready, made }
    }

    /// What is still to be written down before it gets its name.
    fn next(&self) -> Option<(u64, Record)> {
        let (thing, _) = self.made.as_ref().ok().filter(|_| self.ready.is_none())?;
        let (temporary, path) = (self.from.path.clone(), self.spot.path.clone());
        Some((self.token, Record::Held { id: thing.id, temporary, path }))
    }
}

/// A name that is nobody else's.
pub(super) fn temporary_name() -> String {
    format!(".longarm-{}.placeholder", uuid::Uuid::new_v4().simple())
}

/// A name that appears and goes whenever it is looked at is given up after so many times.
const ATTEMPTS: usize = 64;

/// How often journals are read for an owner, where there is something that may be a placeholder.
const LOOKS: u32 = 5;
const LOOK_PAUSE: Duration = Duration::from_millis(1);
