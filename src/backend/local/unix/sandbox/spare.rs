//! What the launchers of a pool keep for the sandboxes that come next: user and network namespaces in which nobody is, the
//! memory file system that is their `/dev`, and the program of the first process.
//!
//! To make a network namespace is a third of what a sandbox costs, and to take it down keeps a core busy for as long. So one
//! that a sandbox has left as it was is kept, with the user namespace that it belongs to, and given to one sandbox at a time.
//! So is a user namespace alone, for a sandbox that has the network of the executor. What makes that sound is that nothing can
//! stay in it:
//!
//! - The network: its loopback interface is down, the filter lets nobody make a socket that has an address, and nobody has a
//!   capability in it. What `/proc` has of it is not this user's, or read-only: as its owner the system's root could change the
//!   modes of it, and its settings.
//! - The user namespace: what anybody in it may say once, without a capability (`projid_map`), was said when it was made. Its
//!   limits below `/proc/sys/user` are what `/proc` has of it, as above.
//! - The memory file system: it is read-only, as a whole, from the moment that it is filled. It is kept by a mount namespace of
//!   its own, so that nothing of the host is kept with it, and each sandbox gets a copy of its mounts.
//! - It is given back only when the first process of the sandbox has ended, which the kernel lets happen after all others, and
//!   whoever has built it was reaped.
//!
//! A sandbox that can change its network always has a new one. When it has ended, or goes on for a while, the next one is made
//! ahead.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::shape::{Kept, Namespaces};
use crate::backend::local::unix::check;
use crate::backend::local::unix::namespace::executable;

/// What launchers keep. It goes with the last of them and the last process that they have started.
#[derive(Debug, Default)]
pub(in crate::backend::local::unix) struct Spares {
    namespaces: Mutex<Vec<Spare>>,
    /// Both namespaces, in which nobody was yet.
    new: Mutex<Option<Spare>>,
    /// Those that were kept could not be entered.
    keeps_none: AtomicBool,
    /// New ones could not be made ahead.
    makes_none_ahead: AtomicBool,
    /// A memory file system that was kept could not be copied.
    keeps_no_memory: AtomicBool,
    program: Mutex<Program>,
}

/// Namespaces that nobody is in, or one sandbox is.
#[derive(Debug, Default)]
pub(super) struct Spare {
    /// The user namespace that the other one belongs to; none if that is the executor's.
    pub(super) user: Option<OwnedFd>,
    /// None if the sandboxes have the executor's, or one of their own.
    pub(super) network: Option<OwnedFd>,
    /// A mount namespace that has nothing but the memory file system, with what is common to sandboxes; none if nobody has made
    /// it yet.
    pub(super) memory: Option<OwnedFd>,
}

/// Those that a sandbox is in, and where they go afterwards.
#[derive(Debug)]
pub(in crate::backend::local::unix) struct Lent {
    spare: Spare,
    to: Arc<Spares>,
}

/// The file that holds the program of the first process.
#[derive(Debug, Default)]
pub(super) enum Program {
    #[default]
    Unmade,
    Made(Arc<OwnedFd>),
    /// One could not be executed, and no other one could be; or none is to be kept.
    Refused,
}

/// As many of one kind. Namespaces take memory of the kernel's, and up to three descriptors each.
const MOST: usize = 4;

impl Spare {
    /// Which of them there are.
    fn kind(&self) -> (bool, bool) {
        (self.user.is_some(), self.network.is_some())
    }

    /// Whether they are what a sandbox of this shape does not have to make.
    pub(super) fn is_for(&self, namespaces: &Namespaces) -> bool {
        let network = match namespaces.kept {
            Kept::Nothing => return false,
            Kept::Again { network } => network,
            Kept::New => true,
        };
        self.user.is_some() == namespaces.maps.is_some() && self.network.is_some() == network
    }
}

impl Spares {
    /// Takes namespaces that nobody is in, for a sandbox of this shape.
    pub(super) fn take(&self, wanted: &Namespaces) -> Option<Spare> {
        if wanted.kept == Kept::New {
            return lock(&self.new).take_if(|spare| spare.is_for(wanted));
        }
        let mut namespaces = lock(&self.namespaces);
        let at = namespaces.iter().rposition(|spare| spare.is_for(wanted))?;
        Some(namespaces.swap_remove(at))
    }

    /// Whether a sandbox of this shape would find no new namespaces, and could use some.
    pub(super) fn lacks_new(&self, wanted: &Namespaces) -> bool {
        wanted.kept == Kept::New
            && !self.keeps_none.load(Ordering::Relaxed)
            && !self.makes_none_ahead.load(Ordering::Relaxed)
            && lock(&self.new).as_ref().is_none_or(|spare| !spare.is_for(wanted))
    }

    /// Keeps namespaces in which nobody was yet.
    pub(super) fn keep_new(&self, spare: Spare) {
        let mut new = lock(&self.new);
        // Nobody lets go of it any more.
        let before = if self.keeps_none.load(Ordering::Relaxed) { Some(spare) } else { new.replace(spare) };
        drop(new);
        drop(before);
    }

    /// Keeps no namespaces from now on: something lets them be made, and not be entered.
    pub(in crate::backend::local::unix) fn keep_none(&self) {
        self.keeps_none.store(true, Ordering::Relaxed);
        self.let_go();
    }

    /// Keeps nothing from now on: nobody comes next.
    pub(in crate::backend::local::unix) fn close(&self) {
        self.keep_none();
        self.set_program(Program::Refused);
    }

    /// Keeps those no longer that nobody is in; whether there were any.
    pub(super) fn let_go(&self) -> bool {
        let (again, new) = (std::mem::take(&mut *lock(&self.namespaces)), lock(&self.new).take());
        !again.is_empty() || new.is_some()
    }

    /// Makes no namespaces ahead from now on.
    pub(super) fn make_none_ahead(&self) {
        self.makes_none_ahead.store(true, Ordering::Relaxed);
    }

    /// Whether memory file systems are kept.
    pub(super) fn keeps_memory(&self) -> bool {
        !self.keeps_no_memory.load(Ordering::Relaxed)
    }

    /// Keeps no memory file systems from now on.
    pub(super) fn keep_no_memory(&self) {
        self.keeps_no_memory.store(true, Ordering::Relaxed);
    }

    /// Notes where these go when the sandbox has ended.
    pub(super) fn lend(self: &Arc<Self>, spare: Spare) -> Lent {
        Lent { spare, to: Arc::clone(self) }
    }

    /// A file without a name that holds this program, which is the same each time. None where such a file cannot be made, or
    /// not be executed.
    pub(super) fn program(&self, image: &[u8]) -> Option<Arc<OwnedFd>> {
        let mut program = lock(&self.program);
        match &*program {
            Program::Made(file) => Some(Arc::clone(file)),
            Program::Refused => None,
            // What happens to be missing may be there for the next one.
            Program::Unmade => {
                let file = Arc::new(sealed(image).ok()?);
                *program = Program::Made(Arc::clone(&file));
                Some(file)
            }
        }
    }

    /// Notes what became of the file.
    pub(super) fn set_program(&self, program: Program) {
        *lock(&self.program) = program;
    }
}

impl Lent {
    /// The sandbox has ended, and nobody is in them any more.
    pub(super) fn give_back(self) {
        let mut namespaces = lock(&self.to.namespaces);
        let alike = namespaces.iter().filter(|other| other.kind() == self.spare.kind()).count();
        if alike < MOST && !self.to.keeps_none.load(Ordering::Relaxed) {
            namespaces.push(self.spare);
        }
    }
}

/// Nobody can change it, nor read it, so that nobody may look into who runs it either.
fn sealed(image: &[u8]) -> io::Result<OwnedFd> {
    let file = executable(image)?;
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: the descriptor is open; the calls take numbers.
    check(unsafe { libc::fchmod(file.as_raw_fd(), 0o100) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(file)
}

/// Nothing that can panic runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
