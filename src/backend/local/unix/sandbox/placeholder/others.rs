//! Empty directories of others at names that are to be held.
//!
//! Another executor, whose journal is not read here, may have made one to stand for that name. It removes it when its own
//! processes have ended, and with it would go what is mounted on it here. So it is locked while processes need it, whoever
//! has made it. It is never removed here, nor written down: if it was somebody's placeholder, it stays until he tries again.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use super::Shared;
use super::directory::{Identity, is_empty, lock, unlock};
use super::spot::Spot;

/// An empty directory with a shared lock on it, which is nobody's record. Nobody who asks for the lock removes it.
#[derive(Debug)]
pub(super) struct Locked(OwnedFd);

impl Drop for Locked {
    fn drop(&mut self) {
        unlock(&self.0);
    }
}

impl Shared {
    /// Locks a directory of somebody else's if it is empty. None if it cannot be removed, or cannot be locked here: then
    /// nobody who asks can be kept from removing it.
    ///
    /// # Errors
    ///
    /// If it goes meanwhile ([`io::ErrorKind::NotFound`]), or somebody seems to be removing it, and does not get done.
    pub(super) fn lock_others(&self, spot: &Spot, id: Identity) -> io::Result<Option<Arc<Locked>>> {
        let known = |kept: Option<&Weak<Locked>>| kept.and_then(Weak::upgrade);
        // While it is open, its inode stands for nothing else.
        if let Some(locked) = known(self.state().others.get(&id)) {
            return Ok(Some(locked));
        }
        let open = match spot.open() {
            Ok(open) => open,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            // A file, or a directory that we may not look into.
            Err(_) => return Ok(None),
        };
        let is_there = || Ok::<_, io::Error>(spot.identity()? == Some(id) && Identity::of_open(&open)? == id);
        // One that is filled is removed by nobody.
        if !is_empty(&open).unwrap_or(false) || !self.has_room_for_others() {
            return if is_there()? { Ok(None) } else { Err(io::ErrorKind::NotFound.into()) };
        }
        match lock(&open) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::other("somebody seems to be removing it, and does not get done"));
            }
            // Its file system has no locks.
            Err(_) => return Ok(None),
        }
        let is_still_there = is_there();
        let locked = Arc::new(Locked(open));
        if !is_still_there? {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut state = self.state();
        if let Some(same) = known(state.others.get(&id)) {
            return Ok(Some(same));
        }
        state.others.insert(id, Arc::downgrade(&locked));
        Ok(Some(locked))
    }

    /// What exists is never refused for a want of descriptors: so it has a share of its own.
    fn has_room_for_others(&self) -> bool {
        let mut state = self.state();
        state.others.retain(|_, locked| locked.strong_count() > 0);
        state.others.len() < self.most / 2
    }
}
