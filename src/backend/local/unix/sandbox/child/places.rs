//! Places of the host: how they come into the sandbox, are masked and held there, and get their rights.
//!
//! All of this is for a child that shares memory with its suspended parent, and that was born in namespaces of its own.

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::super::raw::{self, Errno};
use super::super::shape::{At, Base, Hold, Identity, Landlock, Namespaces, Shape, Source, Step, Target};
use super::{During, Failure, SetUp, Stage};

/// What the host has, as long as it can be seen.
pub(super) struct Host {
    pub(super) root: RawFd,
    /// Its shared memory, if there is any.
    pub(super) shared: Result<RawFd, Errno>,
}

impl Host {
    /// Opens a place by its path relative to the root.
    fn open(&self, path: &CStr) -> Result<RawFd, Errno> {
        let below = path.to_bytes_with_nul().strip_prefix(b"dev/shm/");
        match below.and_then(|below| CStr::from_bytes_with_nul(below).ok()) {
            Some(below) => raw::open_place(self.shared?, below),
            None => raw::open_place(self.root, path),
        }
    }
}

/// Opens, checks and copies the sources that are `wanted`.
pub(super) unsafe fn copy_sources(
    set_up: &SetUp<'_>,
    namespaces: &Namespaces,
    host: &Host,
    wanted: impl Fn(&Source) -> bool,
) -> Result<(), Failure> {
    let sources = namespaces.sources.iter().zip(set_up.copies).enumerate();
    for (index, (source, copy)) in sources.filter(|(_, (source, _))| wanted(source)) {
        let place = host.open(&source.path).during(Stage::Source, index)?;
        expect(place, Some(source.identity), Stage::SourceChanged, index)?;
        // SAFETY: see the caller.
        unsafe {
            let tree = raw::clone_tree(place, c"", true).during(Stage::Source, index)?;
            copy.store(tree, Ordering::Relaxed);
            libc::close(place);
            if namespaces.base == Base::Writable && !source.writable {
                raw::set_mount_attributes(tree, raw::RDONLY, false).during(Stage::Source, index)?;
            }
        }
    }
    Ok(())
}

/// Lets nobody in this mount namespace move or remove these directories: one that something is mounted on stays where it is.
/// That is done in copies that come to lie below the new `/dev`, so that nothing of it is to be seen but this.
pub(super) unsafe fn hold(holds: &[Hold], host: &Host, root: RawFd, memory: RawFd) -> Result<(), Failure> {
    let mut top: Option<(&CStr, RawFd)> = None;
    // SAFETY: see the caller.
    unsafe {
        for (index, hold) in holds.iter().enumerate() {
            let copy = match top {
                Some((of, copy)) if of == hold.top.as_c_str() => copy,
                before => {
                    if let Some((_, copy)) = before {
                        libc::close(copy);
                    }
                    let place = host.open(&hold.top).during(Stage::Held, index)?;
                    let copy = raw::clone_tree(place, c"", true).during(Stage::Held, index)?;
                    libc::close(place);
                    raw::set_mount_attributes(copy, raw::RDONLY, false).during(Stage::Held, index)?;
                    raw::attach_tree(copy, root, c"dev").during(Stage::Held, index)?;
                    top = Some((&hold.top, copy));
                    copy
                }
            };
            let place = raw::open_place(copy, &hold.path).during(Stage::Held, index)?;
            expect(place, Some(hold.identity), Stage::HeldChanged, index)?;
            let closed = raw::clone_tree(memory, c"closed", false).during(Stage::Held, index)?;
            raw::attach_tree(closed, place, c"").during(Stage::Held, index)?;
            libc::close(place);
            libc::close(closed);
        }
        if let Some((_, copy)) = top {
            libc::close(copy);
        }
    }
    Ok(())
}

/// Checks that a place is what the plan was made for.
pub(super) fn expect(place: RawFd, expected: Option<Identity>, stage: Stage, index: usize) -> Result<(), Failure> {
    match expected {
        Some(expected) if raw::identity(place).during(stage, index)? != expected => {
            Err(Failure { stage, index, errno: libc::ESTALE })
        }
        _ => Ok(()),
    }
}

pub(super) unsafe fn take_step(
    set_up: &SetUp<'_>,
    namespaces: &Namespaces,
    step: &Step,
    (root, memory): (RawFd, RawFd),
    index: usize,
) -> Result<(), Failure> {
    let unknown = Failure { stage: Stage::Step, index, errno: libc::EINVAL };
    // SAFETY: see the caller.
    unsafe {
        let (tree, target) = match step {
            Step::Attach { source, target } => {
                let (Some(copy), Some(source)) = (set_up.copies.get(*source), namespaces.sources.get(*source)) else {
                    return Err(unknown);
                };
                let target = match target {
                    Target::Source => (&source.path, Some(source.identity)),
                    Target::Path(path, identity) => (path, *identity),
                };
                (copy.load(Ordering::Relaxed), target)
            }
            Step::Mask { with, target } => {
                let Target::Path(path, identity) = target else { return Err(unknown) };
                (raw::clone_tree(memory, with, false).during(Stage::Step, index)?, (path, *identity))
            }
        };
        let (path, identity) = target;
        let place = raw::open_place(root, path).during(Stage::Step, index)?;
        expect(place, identity, Stage::StepChanged, index)?;
        raw::attach_tree(tree, place, c"").during(Stage::Step, index)?;
        // There can be thousands.
        libc::close(place);
        libc::close(tree);
        Ok(())
    }
}

/// Makes a ruleset without a rule.
pub(super) fn make_ruleset(landlock: &Landlock) -> Result<RawFd, Errno> {
    raw::create_ruleset(&landlock.handled, landlock.bytes)
}

/// Adds the rules about what is in `/proc`, or all others, as long as nothing is out of reach for want of capabilities.
///
/// # Safety
///
/// Only in a child.
pub(super) unsafe fn add_rules(
    shape: &Shape,
    landlock: &Landlock,
    ruleset: RawFd,
    root: RawFd,
    in_proc: bool,
) -> Result<(), Errno> {
    for rule in &landlock.rules {
        let (path, identity) = match &rule.at {
            At::Source(index) => {
                let sources = shape.namespaces().map(|namespaces| &namespaces.sources);
                let source = sources.and_then(|sources| sources.get(*index)).ok_or(libc::EINVAL)?;
                (&source.path, Some(source.identity))
            }
            At::Path(path) => (path, None),
        };
        if is_in_proc(path) != in_proc {
            continue;
        }
        let place = raw::open_place(root, path)?;
        expect(place, identity, Stage::Landlock, 0).map_err(|failure| failure.errno)?;
        raw::allow_beneath(ruleset, rule.access, place)?;
        // SAFETY: a descriptor of our own.
        unsafe { libc::close(place) };
    }
    Ok(())
}

/// Whether a path relative to the root is `/proc`, or below it.
fn is_in_proc(path: &CStr) -> bool {
    path.to_bytes_with_nul().strip_prefix(b"proc").is_some_and(|rest| matches!(rest.first(), Some(0 | b'/')))
}
