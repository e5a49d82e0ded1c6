//! What the processes of a sandbox pass on to the parent: themselves, and namespaces; and namespaces of others that they enter.
//!
//! All of this is for a child that shares memory with its suspended parent.

use std::os::fd::RawFd;

use super::super::direct::call;
use super::super::raw::{self, Errno, result};
use super::super::shape::{Kept, Namespaces};
use super::{During, Entered, Failure, Passed, Stage, write_map};

/// Passes on the pidfd of this very process: its number may mean another one by the time that the parent looks, if the host
/// reaps all its children, or none.
pub(super) fn announce(what: Passed, to: RawFd) -> Result<(), Errno> {
    // SAFETY: calls that touch no memory, on a descriptor of our own.
    unsafe {
        let number = call(libc::SYS_getpid, [])?;
        let own = call(libc::SYS_pidfd_open, [number as usize, 0])?;
        let passed = raw::send_descriptor(own, what as u8, to);
        // It goes with this process anyway, or when it executes its program.
        let _ = call(libc::SYS_close, [own as usize]);
        passed
    }
}

/// Enters namespaces: the user namespace first, which the other one belongs to.
pub(super) unsafe fn enter(spare: &Entered) -> Result<(), Errno> {
    for (namespace, kind) in [(spare.user, libc::CLONE_NEWUSER), (spare.network, libc::CLONE_NEWNET)] {
        if let Some(namespace) = namespace {
            // SAFETY: the call touches no memory. This process shares neither its credentials nor its namespaces with anybody.
            result(unsafe { libc::setns(namespace, kind) }.into())?;
        }
    }
    Ok(())
}

/// Maps the user and the group in a new user namespace.
pub(super) unsafe fn write_maps(namespaces: &Namespaces) -> Result<(), Failure> {
    let Some((user, group)) = &namespaces.maps else { return Ok(()) };
    // SAFETY: see the caller.
    unsafe {
        write_map(c"/proc/self/setgroups", c"deny").during(Stage::Maps, 0)?;
        write_map(c"/proc/self/uid_map", user).during(Stage::Maps, 1)?;
        write_map(c"/proc/self/gid_map", group).during(Stage::Maps, 2)
    }
}

/// Passes the namespaces on that a later sandbox can have. What anybody in the user namespace could say once, and for all who
/// come after him, is said before.
pub(super) unsafe fn pass_namespaces(namespaces: &Namespaces, to: RawFd) -> Result<(), Errno> {
    let user = namespaces.maps.is_some().then_some((c"/proc/self/ns/user", Passed::User));
    let network = namespaces.kept != Kept::Again { network: false };
    let network = network.then_some((c"/proc/self/ns/net", Passed::Network));
    if user.is_some() {
        // SAFETY: see the caller.
        unsafe { write_map(c"/proc/self/projid_map", c"0 0 1")? };
    }
    for (path, what) in user.into_iter().chain(network) {
        // SAFETY: a terminated string, and a descriptor of our own.
        unsafe {
            let namespace = result(libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC).into())?;
            let passed = raw::send_descriptor(namespace, what as u8, to);
            libc::close(namespace);
            passed?;
        }
    }
    Ok(())
}
