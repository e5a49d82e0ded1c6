//! System calls that the C library does not wrap, for a child that shares its parent's memory: none allocates or locks.
//!
//! An error is the number of the system's; the callers add what they were doing. What the first process of a PID namespace
//! calls goes [past the C library](super::direct), since the builder runs at the same time.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::RawFd;
use std::ptr;

use super::direct::{at, call};

/// The number of an error.
pub(super) type Errno = c_int;

/// Turns the result of a system call into a descriptor or number, or the error.
pub(super) fn result(value: c_long) -> Result<c_int, Errno> {
    if value < 0 { Err(super::super::child::errno()) } else { Ok(value as c_int) }
}

pub(super) const RDONLY: u64 = 0x1;
pub(super) const NOSUID: u64 = 0x2;
pub(super) const NODEV: u64 = 0x4;

const OPEN_TREE_CLONE: c_uint = 1;
const AT_RECURSIVE: c_uint = 0x8000;
const MOVE_MOUNT_F_EMPTY_PATH: c_uint = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: c_uint = 0x40;
const EMPTY: *const c_char = c"".as_ptr();

/// What the kernel reads, in its first version.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    namespace: u64,
}

/// Sets attributes of the mount that `directory` is on the root of, and of all below it. With `private`, mounts made later
/// elsewhere do not show here.
///
/// # Safety
///
/// Only in a child that has a mount namespace of its own.
pub(super) unsafe fn set_mount_attributes(tree: RawFd, set: u64, private: bool) -> Result<(), Errno> {
    let propagation = if private { libc::MS_PRIVATE } else { 0 };
    let attributes = MountAttributes { set, clear: 0, propagation, namespace: 0 };
    let flags = AT_RECURSIVE | libc::AT_EMPTY_PATH as c_uint;
    // SAFETY: the structure is the kernel's and its size is told; the path is a constant.
    result(unsafe {
        libc::syscall(libc::SYS_mount_setattr, tree, EMPTY, flags, &raw const attributes, size_of::<MountAttributes>())
    })
    .map(drop)
}

/// A copy of the mounts at and below `path`, or at `directory` itself with an empty one; attached nowhere yet.
///
/// # Safety
///
/// Only in a child that has a mount namespace of its own.
pub(super) unsafe fn clone_tree(directory: RawFd, path: &CStr, recursive: bool) -> Result<RawFd, Errno> {
    let recursive = if recursive { AT_RECURSIVE } else { 0 };
    let flags = OPEN_TREE_CLONE
        | recursive
        | libc::O_CLOEXEC as c_uint
        | libc::AT_EMPTY_PATH as c_uint
        | libc::AT_SYMLINK_NOFOLLOW as c_uint;
    // SAFETY: the path is a terminated string.
    result(unsafe { libc::syscall(libc::SYS_open_tree, directory, path.as_ptr(), flags) })
}

/// Attaches such a copy over what `target` is, or over `path` from there.
///
/// # Safety
///
/// Only in a child that has a mount namespace of its own.
pub(super) unsafe fn attach_tree(tree: RawFd, target: RawFd, path: &CStr) -> Result<(), Errno> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: both paths are terminated strings.
    result(unsafe { libc::syscall(libc::SYS_move_mount, tree, EMPTY, target, path.as_ptr(), flags) }).map(drop)
}

/// Opens a place, without access to its content, on a path without symbolic links.
pub(super) fn open_place(directory: RawFd, path: &CStr) -> Result<RawFd, Errno> {
    // SAFETY: all zeroes is a valid value of the C structure.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW) as u64;
    how.resolve = libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the path is a terminated string; the structure is the kernel's and its size is told.
    result(unsafe {
        libc::syscall(libc::SYS_openat2, directory, path.as_ptr(), &raw const how, size_of::<libc::open_how>())
    })
}

/// The device and the number of the file behind a descriptor.
pub(super) fn identity(fd: RawFd) -> Result<(u64, u64), Errno> {
    // SAFETY: all zeroes is a valid value of the C structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: fills the structure.
    result(unsafe { libc::fstat(fd, &raw mut stat) }.into())?;
    #[allow(clippy::useless_conversion, trivial_numeric_casts, reason = "their types differ between systems")]
    Ok((stat.st_dev as u64, stat.st_ino as u64))
}

/// Mounts a file system of the kernel's own.
///
/// # Safety
///
/// Only in a child that has a mount namespace of its own.
pub(super) unsafe fn mount_new(kind: &CStr, place: &CStr, flags: libc::c_ulong, options: &CStr) -> Result<(), Errno> {
    let (kind, place, options) = (at(kind.as_ptr()), at(place.as_ptr()), at(options.as_ptr()));
    // SAFETY: all are terminated strings.
    unsafe { call(libc::SYS_mount, [kind, place, kind, flags as usize, options]) }.map(drop)
}

/// Makes a place read-only by a mount of itself, which keeps these flags. Not for a path that somebody else could change.
///
/// # Safety
///
/// Only in a child that has a mount namespace of its own.
pub(super) unsafe fn bind_read_only(path: &CStr, flags: libc::c_ulong) -> Result<(), Errno> {
    const NONE: usize = 0;
    let place = at(path.as_ptr());
    // SAFETY: the path is a terminated string; the other pointers may be null.
    unsafe {
        call(libc::SYS_mount, [place, place, NONE, libc::MS_BIND as usize, NONE])?;
        let flags = flags | libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
        call(libc::SYS_mount, [NONE, place, NONE, flags as usize, NONE]).map(drop)
    }
}

/// What the kernel reads; older ones a shorter part of it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RulesetAttributes {
    pub(super) files: u64,
    pub(super) network: u64,
    pub(super) scopes: u64,
}

/// The version of Landlock that this kernel has; none if there is none.
pub(super) fn landlock_version() -> Option<u32> {
    const VERSION: c_uint = 1;
    // SAFETY: with this flag the call reads nothing.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<c_void>(), 0_usize, VERSION) };
    u32::try_from(version).ok().filter(|version| *version > 0)
}

/// Makes a ruleset of which the kernel knows the first `bytes`.
pub(super) fn create_ruleset(attributes: &RulesetAttributes, bytes: usize) -> Result<RawFd, Errno> {
    let bytes = bytes.min(size_of::<RulesetAttributes>());
    // SAFETY: the structure is the kernel's and no more of it is told than there is.
    unsafe { call(libc::SYS_landlock_create_ruleset, [at(attributes), bytes, 0]) }
}

/// Allows something at and below a place.
pub(super) fn allow_beneath(ruleset: RawFd, access: u64, place: RawFd) -> Result<(), Errno> {
    #[repr(C, packed)]
    struct Beneath {
        access: u64,
        place: RawFd,
    }
    const PATH_BENEATH: usize = 1;
    let rule = Beneath { access, place };
    // SAFETY: the structure is the kernel's.
    unsafe { call(libc::SYS_landlock_add_rule, [ruleset as usize, PATH_BENEATH, at(&raw const rule), 0]) }.map(drop)
}

/// Puts a ruleset in force for this thread and all that it starts.
///
/// # Safety
///
/// Only in a child.
pub(super) unsafe fn restrict_self(ruleset: RawFd) -> Result<(), Errno> {
    // SAFETY: touches no memory.
    unsafe { call(libc::SYS_landlock_restrict_self, [ruleset as usize, 0]) }.map(drop)
}

/// Puts a filter in force for this thread and all that it starts.
///
/// # Safety
///
/// Only in a child.
pub(super) unsafe fn install_filter(filter: &[libc::sock_filter]) -> Result<(), Errno> {
    // SAFETY: see the caller.
    unsafe { set_filter(filter, 0) }.map(drop)
}

/// The same, of a filter that tells; returns the listener. Kernels before 5.0 have none, and nobody has two at a time.
///
/// # Safety
///
/// Only in a child, or a thread that ends.
pub(super) unsafe fn install_telling_filter(filter: &[libc::sock_filter]) -> Result<RawFd, Errno> {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // So that no signal but one that kills interrupts a call that is being answered.
    let undisturbed = libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: see the caller.
    unsafe {
        match set_filter(filter, flags | undisturbed) {
            // Kernels before 5.19.
            Err(libc::EINVAL) => set_filter(filter, flags),
            set => set,
        }
    }
}

unsafe fn set_filter(filter: &[libc::sock_filter], flags: libc::c_ulong) -> Result<c_int, Errno> {
    let program = libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel reads the program and writes nothing.
    unsafe { call(libc::SYS_seccomp, [libc::SECCOMP_SET_MODE_FILTER as usize, flags as usize, at(&raw const program)]) }
}

/// Passes a descriptor on by a socket, and what it is.
pub(super) fn send_descriptor(fd: RawFd, what: u8, to: RawFd) -> Result<(), Errno> {
    let mut byte = [what];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = [0_u64; 4];
    // SAFETY: all zeroes is a valid value of the C structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: structures of the kernel's, which it reads, in buffers that are large enough.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        call(libc::SYS_sendmsg, [to as usize, at(&raw const message), libc::MSG_NOSIGNAL as usize]).map(drop)
    }
}

/// Lets no program that is executed bring a capability.
///
/// # Safety
///
/// Only in a child.
pub(super) unsafe fn bound_capabilities() -> Result<(), Errno> {
    // SAFETY: the calls take numbers.
    unsafe {
        let mut capability: libc::c_ulong = 0;
        while libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) == 0 {
            capability += 1;
        }
        // Beyond the last capability the number is not one; without the right to drop there is nobody to drop from.
        match super::super::child::errno() {
            libc::EINVAL if capability > 0 => Ok(()),
            libc::EPERM => Ok(()),
            stopped => Err(stopped),
        }
    }
}

/// Gives every capability up, and the means to get new ones.
///
/// # Safety
///
/// Only in a child.
pub(super) unsafe fn drop_capabilities() -> Result<(), Errno> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    const VERSION: u32 = 0x2008_0522;
    let header = Header { version: VERSION, pid: 0 };
    let none = [0_u32; 6];
    // SAFETY: the calls take numbers, and the two structures of the last one have the kernel's size.
    unsafe {
        // Old kernels have no ambient set.
        let _ =
            call(libc::SYS_prctl, [libc::PR_CAP_AMBIENT as usize, libc::PR_CAP_AMBIENT_CLEAR_ALL as usize, 0, 0, 0]);
        call(libc::SYS_capset, [at(&raw const header), at(none.as_ptr())])?;
        forgo_privileges()
    }
}

/// Lets no program that this thread executes gain any privilege.
///
/// # Safety
///
/// Only in a child, or a thread that ends.
pub(super) unsafe fn forgo_privileges() -> Result<(), Errno> {
    // SAFETY: takes numbers.
    unsafe { call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0]) }.map(drop)
}
