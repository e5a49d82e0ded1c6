//! Namespaces for a sandbox that comes later.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::AtomicI32;

use super::super::raw::{self, result};
use super::super::shape::Namespaces;
use super::passing::{pass_namespaces, write_maps};
use super::{During, Failure, Stage, memory, open_directory};

/// What the one gets who makes namespaces for a later sandbox. Lives in memory that parent and child share.
#[derive(Debug)]
pub(in super::super) struct Ahead<'a> {
    pub(in super::super) namespaces: &'a Namespaces,
    /// For each device, its copy.
    pub(in super::super) devices: &'a [AtomicI32],
    /// Whether the memory file system can be kept.
    pub(in super::super) keeps_memory: bool,
    pub(in super::super) passing: RawFd,
}

/// Makes namespaces, passes them on, and ends. If it cannot, nothing is passed on, or not all.
pub(in super::super) extern "C" fn ahead_main(ahead: *mut c_void) -> c_int {
    // SAFETY: the parent passes a valid value and is suspended as long as we run.
    let ahead = unsafe { &*ahead.cast::<Ahead<'_>>() };
    // SAFETY: this is the child that the functions ask for, and it ends without running anything of the parent's.
    unsafe {
        // Whoever waits for them sees what has come.
        let _ = make_ahead(ahead);
        libc::_exit(0)
    }
}

unsafe fn make_ahead(ahead: &Ahead<'_>) -> Result<(), Failure> {
    let Ahead { namespaces, devices, keeps_memory, passing } = *ahead;
    // SAFETY: see the caller. The descriptors are this process's copies.
    unsafe {
        libc::umask(0);
        // What others wait for the end of, or want to execute, is not to be held meanwhile. Kernels before 5.9 have no such call.
        let (below, above) = ((passing - 1) as c_uint, (passing + 1) as c_uint);
        libc::syscall(libc::SYS_close_range, 0, below, 0);
        libc::syscall(libc::SYS_close_range, above, c_uint::MAX, 0);
        let made = namespaces.flags & (libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWNS);
        result(libc::unshare(made).into()).during(Stage::Spare, 3)?;
        write_maps(namespaces)?;
        pass_namespaces(namespaces, passing).during(Stage::Spare, 0)?;
        if keeps_memory && namespaces.is_common {
            memory::copy_devices(namespaces, devices)?;
            let root = open_directory(c"/").during(Stage::Mounts, 0)?;
            raw::set_mount_attributes(root, raw::NOSUID | raw::NODEV, true).during(Stage::Mounts, 1)?;
            memory::mount(namespaces, devices)?;
            memory::pass(passing).during(Stage::Memory, 3)?;
        }
        Ok(())
    }
}
