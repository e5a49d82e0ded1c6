//! The memory file system that is the `/dev` of a sandbox, and holds what is put over places: made, or copied from one that is
//! kept.
//!
//! All of this is for a child that shares memory with its suspended parent, and that was born in namespaces of its own.

use std::ffi::c_ulong;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use super::super::raw::{self, Errno, result};
use super::super::shape::{Make, Namespaces};
use super::{During, Failure, MEMORY, Passed, Stage, open_directory};

pub(super) const FLAGS: c_ulong = libc::MS_NOSUID | libc::MS_NODEV;

/// Copies the mounts of the host's devices.
pub(super) unsafe fn copy_devices(namespaces: &Namespaces, devices: &[AtomicI32]) -> Result<(), Failure> {
    for (index, ((path, _), copy)) in namespaces.devices.iter().zip(devices).enumerate() {
        // SAFETY: see the caller.
        let tree = unsafe { raw::clone_tree(libc::AT_FDCWD, path, false) }.during(Stage::Device, index)?;
        copy.store(tree, Ordering::Relaxed);
    }
    Ok(())
}

/// Mounts a new one over `/dev`, with all that is to be in it, and the copies of the devices; returns it.
pub(super) unsafe fn mount(namespaces: &Namespaces, devices: &[AtomicI32]) -> Result<RawFd, Failure> {
    // SAFETY: see the caller.
    unsafe {
        raw::mount_new(c"tmpfs", c"/dev", FLAGS, c"mode=0755").during(Stage::Memory, 0)?;
        let memory = open_directory(c"/dev").during(Stage::Memory, 1)?;
        for (index, make) in namespaces.makes.iter().enumerate() {
            make_in(memory, make).during(Stage::Make, index)?;
        }
        for (index, ((_, at), copy)) in namespaces.devices.iter().zip(devices).enumerate() {
            let copy = copy.load(Ordering::Relaxed);
            raw::attach_tree(copy, memory, at).during(Stage::Device, index)?;
            libc::close(copy);
        }
        Ok(memory)
    }
}

unsafe fn make_in(memory: RawFd, make: &Make) -> Result<(), Errno> {
    // SAFETY: terminated strings.
    let made = unsafe {
        match make {
            Make::Directory(path, mode) => libc::mkdirat(memory, path.as_ptr(), *mode),
            Make::File(path, mode) => libc::mknodat(memory, path.as_ptr(), libc::S_IFREG | *mode, 0),
            Make::Link { at, to } => libc::symlinkat(to.as_ptr(), memory, at.as_ptr()),
        }
    };
    result(made.into()).map(drop)
}

/// Leaves nothing in this mount namespace but the memory file system at `/dev`, which is read-only from then on, and passes it
/// on for later sandboxes.
///
/// # Errors
///
/// `ESTALE` if this process has another root than the namespace: what lies above that would be kept, and be what the next one
/// finds. Nothing is passed on then.
pub(super) unsafe fn pass(to: RawFd) -> Result<(), Errno> {
    let here = c".".as_ptr();
    // SAFETY: terminated strings, and descriptors of our own.
    unsafe {
        let namespace = open_own()?;
        result(libc::chdir(c"/dev".as_ptr()).into())?;
        let memory = open_directory(c".")?;
        // The old root comes to lie over the new one, and is taken away with all that is mounted on it.
        result(libc::syscall(libc::SYS_pivot_root, here, here))?;
        result(libc::umount2(here, libc::MNT_DETACH).into())?;
        let flags = FLAGS | libc::MS_REMOUNT | libc::MS_RDONLY;
        result(libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null()).into())?;
        // The devices too: what is changed of them is changed on the host's.
        raw::set_mount_attributes(memory, raw::RDONLY, false)?;
        // To where the next one will be.
        result(libc::setns(namespace, libc::CLONE_NEWNS).into())?;
        let root = open_directory(c"/")?;
        if raw::identity(root)? != raw::identity(memory)? {
            return Err(libc::ESTALE);
        }
        libc::close(root);
        libc::close(memory);
        let passed = raw::send_descriptor(namespace, Passed::Memory as u8, to);
        libc::close(namespace);
        passed
    }
}

/// Passes a copy of the memory file system at `/dev` on, in a mount namespace of its own; it is read-only from then on.
/// Whatever is in the way of that is in the way of the next sandbox only; not to come back to `root` is a failure, after which
/// one that passes nothing on may do.
pub(super) unsafe fn pass_copy(root: RawFd, to: RawFd) -> Result<(), Failure> {
    // SAFETY: see the caller.
    unsafe {
        let Ok(own) = open_own() else { return Ok(()) };
        if libc::unshare(libc::CLONE_NEWNS) == 0 {
            // Without it the next one fills its own.
            let _ = pass(to);
            come_back(own, root).during(Stage::Spare, MEMORY)?;
        }
        libc::close(own);
        Ok(())
    }
}

/// Copies of a memory file system that is kept in this namespace, attached nowhere yet: of its own mount alone, and of its
/// `dev` with the devices, which so need not be copied twice.
pub(super) unsafe fn copy(namespace: RawFd, root: RawFd) -> Result<(RawFd, RawFd), Errno> {
    // SAFETY: see the caller.
    unsafe {
        let own = open_own()?;
        result(libc::setns(namespace, libc::CLONE_NEWNS).into())?;
        let memory = raw::clone_tree(libc::AT_FDCWD, c"/", false);
        let devices = raw::clone_tree(libc::AT_FDCWD, c"/dev", true);
        come_back(own, root)?;
        libc::close(own);
        Ok((memory?, devices?))
    }
}

/// The mount namespace that this process is in.
unsafe fn open_own() -> Result<RawFd, Errno> {
    // SAFETY: a terminated string.
    result(unsafe { libc::open(c"/proc/self/ns/mnt".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }.into())
}

/// Enters a mount namespace again, whose `root` is that of this process: it may not be that of the namespace, which is where
/// somebody is who enters it.
unsafe fn come_back(namespace: RawFd, root: RawFd) -> Result<(), Errno> {
    // SAFETY: a constant string.
    unsafe {
        result(libc::setns(namespace, libc::CLONE_NEWNS).into())?;
        result(libc::fchdir(root).into())?;
        result(libc::chroot(c".".as_ptr()).into()).map(drop)
    }
}
