//! Directories that are made ahead, so that a start has only to give them their names. To make one takes a file system far
//! longer.
//!
//! - They are made when a process has ended and nobody waits any more, if the last starts could have used some.
//! - They are beside the journal, where nobody in a sandbox can write, and written down like any that is about to be made.
//! - One that is not just as it was made is not used. None is where a directory inherits something from the one that it is
//!   made in, or where the journal is not on the same mount.
//! - An ordinary user can move a directory elsewhere only if he may write to it. So they are like those that are lent until they
//!   have their names.
//! - They stay open: whoever changes one, or puts another one in its place, changes what is known of it.
//! - They go when the executor closes.

use std::fs::{self, File};
use std::io;
use std::iter;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::directory::{Identity, LENT, MODE, Thing, open, remove_empty};
use super::journal::Record;
use super::made::temporary_name;
use super::spot::Spot;
use super::{Shared, State};

/// Those of one executor.
#[derive(Debug, Default)]
pub(super) struct Stock {
    pub(super) ready: Vec<Ready>,
    /// How many are being made.
    coming: usize,
    /// How many a start could have used.
    wanted: usize,
    /// Where they are to be.
    place: Option<Place>,
    /// None are to be made any more.
    is_closed: bool,
}

/// A directory that waits for its name.
#[derive(Debug)]
pub(super) struct Ready {
    path: PathBuf,
    pub(super) made: Made,
    pub(super) open: File,
}

/// All that tells whether somebody has changed a directory since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) id: Identity,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    size: u64,
    modified: (i64, i64),
    /// Whatever is done to it changes that one, also what none of the others tell of, such as attributes.
    changed: (i64, i64),
}

#[derive(Clone, Debug)]
struct Place {
    directory: PathBuf,
    mount: u64,
}

impl Made {
    /// The mode that it would have if it had been made under its name.
    pub(super) const fn usual_mode(&self) -> u32 {
        self.mode & MODE
    }

    pub(super) fn of(found: &fs::Metadata) -> Self {
        Self {
            id: Identity::of(found),
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            links: found.nlink(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

impl Ready {
    /// Makes one.
    fn make(path: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new().mode(LENT).create(&path)?;
        let made = || {
            let open = File::from(open(&path)?);
            let found = open.metadata()?;
            match Thing::of(&found) {
                thing if thing.is_like_a_placeholder() && thing.is_lent() => Ok((Made::of(&found), open)),
                _ => Err(io::Error::other("it is none of ours")),
            }
        };
        match made() {
            Ok((made, open)) => Ok(Self { path, made, open }),
            Err(error) => {
                drop(fs::remove_dir(&path));
                Err(error)
            }
        }
    }
}

impl Stock {
    /// They are to be in this directory, if that will do.
    pub(super) fn settle_in(&mut self, directory: &Path) {
        let mount = plain_mount(directory).filter(|_| directory.is_absolute());
        self.place = mount.map(|mount| Place { directory: directory.into(), mount });
    }

    /// Has names on another mount taken for ones that they can be given.
    #[cfg(test)]
    pub(super) fn pretend_to_be_in(&mut self, directory: &Path) {
        let mount = plain_mount(directory).unwrap();
        self.place.as_mut().unwrap().mount = mount;
    }

    /// What those are, and where, that the paths could have that one fits.
    pub(super) fn offer(&self, fit: &[bool]) -> Vec<Option<(PathBuf, Made)>> {
        let mut ready = self.ready.iter().rev().map(|ready| (ready.path.clone(), ready.made));
        fit.iter().map(|fits| if *fits { ready.next() } else { None }).collect()
    }

    /// That many of those that were offered, which are on their way now, in the order in which they were.
    pub(super) fn take(&mut self, many: usize) -> impl Iterator<Item = Ready> + use<> {
        self.ready.split_off(self.ready.len() - many).into_iter().rev()
    }

    /// They cannot be given names where they should be.
    pub(super) fn give_up(&mut self) {
        self.place = None;
    }

    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        self.ready.iter().map(|ready| Record::Making { temporary: ready.path.clone() })
    }

    fn is_open(&self) -> bool {
        self.place.is_some() && !self.is_closed
    }

    /// Paths for those that are lacking. Twice as many are kept as one start needs: the next one can come before they are
    /// made.
    fn lacking(&self) -> Vec<PathBuf> {
        let Some(place) = self.place.as_ref().filter(|_| self.is_open()) else { return Vec::new() };
        let lacking = (2 * self.wanted).saturating_sub(self.ready.len() + self.coming);
        iter::repeat_with(|| place.directory.join(temporary_name())).take(lacking).collect()
    }
}

impl Shared {
    /// For which of these paths a directory that was made ahead is as good as one that is made there.
    pub(super) fn fits(&self, paths: &[&Path]) -> Vec<bool> {
        let Some(mount) = self.state().stock.place.as_ref().map(|place| place.mount) else {
            return vec![false; paths.len()];
        };
        // Most of them are in one directory.
        let mut last: Option<(&Path, bool)> = None;
        let fits = paths.iter().map(|path| {
            let Some(above) = path.parent() else { return false };
            let fits = match last {
                Some((at, fits)) if at == above => fits,
                _ => plain_mount(above) == Some(mount),
            };
            last = Some((above, fits));
            fits
        });
        let fits: Vec<bool> = fits.collect();
        let stock = &mut self.state().stock;
        stock.wanted = stock.wanted.max(fits.iter().filter(|fits| **fits).count().min(MOST / 2));
        fits
    }

    /// Makes what is lacking, and removes what cannot be used. Blocks.
    pub(super) fn restock(&self) {
        let mut state = self.state();
        if !state.stock.is_open() {
            return state.clear_out();
        }
        let paths = state.stock.lacking();
        if paths.is_empty() {
            return;
        }
        let records = paths.iter().map(|path| Record::Making { temporary: path.clone() }).collect();
        // Without a journal none are made.
        let Ok(tokens) = state.begin(&self.directories, records) else { return state.settle() };
        state.stock.coming += paths.len();
        drop(state);
        for (path, token) in paths.into_iter().zip(tokens) {
            let made = Ready::make(path);
            let mut state = self.state();
            state.stock.coming -= 1;
            match made {
                Ok(ready) => {
                    state.stock.ready.push(ready);
                    state.under_way.remove(&token);
                    if !state.stock.is_open() {
                        state.clear_out();
                    }
                }
                Err(_) => {
                    state.stock.give_up();
                    state.end(token);
                }
            }
        }
    }

    /// Removes them all, and makes no more. Blocks.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.stock.is_closed = true;
        state.clear_out();
    }
}

impl State {
    /// What cannot be removed stays written down.
    fn clear_out(&mut self) {
        if !self.stock.ready.is_empty() {
            self.stock.ready.retain(|ready| !remove_empty(&Spot::by_path(ready.path.clone())));
            self.settle();
        }
    }
}

/// The mount that a directory is on, if what is made in it inherits nothing from it: no group, no list of who may do what,
/// no label, no encryption.
fn plain_mount(directory: &Path) -> Option<u64> {
    let flags = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::MNT_ID;
    let found = rustix::fs::statx(CWD, directory, AtFlags::SYMLINK_NOFOLLOW, flags).ok()?;
    let knows = StatxFlags::from_bits_retain(found.stx_mask).contains(flags);
    let inherits = u32::from(found.stx_mode) & libc::S_ISGID != 0 || found.stx_attributes.intersects(INHERITED);
    // Which attributes there are, in as much room as none need.
    let has_none = matches!(rustix::fs::llistxattr(directory, &mut [0_u8; 1]), Ok(0) | Err(Errno::NOTSUP));
    (knows && !inherits && has_none).then_some(found.stx_mnt_id)
}

const INHERITED: StatxAttributes = StatxAttributes::COMPRESSED
    .union(StatxAttributes::NODUMP)
    .union(StatxAttributes::ENCRYPTED)
    .union(StatxAttributes::DAX);

/// For two starts with the usual names.
const MOST: usize = 8;
