//! A child that is in its cgroup from the first instant.
//!
//! Entering a cgroup later makes the kernel wait for all its processors, which takes up to some tens of milliseconds. The
//! call that spares this has no wrapper in the C library, and one in Rust could not return on two stacks.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::RawFd;

/// Makes a child in the cgroup of this directory, with the exit signal and the meaning of `flags` that `clone` has. It
/// runs `entry` on the stack of `stack_bytes` at `stack`. Returns its number, and its pidfd if `with_pidfd`.
///
/// # Errors
///
/// `ENOSYS` where there is no such call, which includes processors that this is not written for.
///
/// # Safety
///
/// With shared memory (`CLONE_VM`), all that `entry` needs must live until the child executes a program or ends, and
/// `flags` must suspend this thread until then (`CLONE_VFORK`). `entry` must not return.
pub(super) unsafe fn clone_into(
    cgroup: RawFd,
    flags: c_int,
    with_pidfd: bool,
    (stack, stack_bytes): (*mut c_void, usize),
    entry: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> io::Result<(libc::pid_t, RawFd)> {
    let mut pidfd: RawFd = -1;
    let exit_signal = flags & 0xff;
    let mut flags = (flags & !0xff) as u64 | CLONE_INTO_CGROUP;
    if with_pidfd {
        flags |= libc::CLONE_PIDFD as u64;
    }
    let arguments = Arguments {
        flags,
        pidfd: (&raw mut pidfd).expose_provenance() as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: exit_signal as u64,
        stack: stack.expose_provenance() as u64,
        stack_size: stack_bytes as u64,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup as u64,
    };
    // SAFETY: the structure is the kernel's; the rest is what the caller promises.
    let result = unsafe { clone3(&raw const arguments, entry, argument) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result as i32));
    }
    Ok((result as libc::pid_t, pidfd))
}

/// What the kernel reads, in its second version.
#[repr(C, align(8))]
struct Arguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// # Safety
///
/// As for [`clone_into`].
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
unsafe fn clone3(
    arguments: *const Arguments,
    entry: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> isize {
    let result: isize;
    // SAFETY: this thread goes on behind the block with its registers as they were, save those that the kernel changes. The
    // child begins on its own stack, which is aligned as a call needs it, and never leaves the block.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r8",
            "call r9",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 as isize => result,
            in("rdi") arguments,
            in("rsi") size_of::<Arguments>(),
            in("r8") argument,
            in("r9") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// # Safety
///
/// As for [`clone_into`].
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(
    arguments: *const Arguments,
    entry: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> isize {
    let result: isize;
    // SAFETY: this thread goes on behind the block with its registers as they were, save those that the kernel changes. The
    // child begins on its own stack, which is aligned as a call needs it, and never leaves the block.
    unsafe {
        core::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x4",
            "blr x5",
            "udf #0",
            "2:",
            inlateout("x0") arguments => result,
            in("x1") size_of::<Arguments>(),
            in("x4") argument,
            in("x5") entry,
            in("x8") libc::SYS_clone3,
        );
    }
    result
}

/// # Safety
///
/// None is needed.
#[cfg(not(any(all(target_arch = "x86_64", target_pointer_width = "64"), target_arch = "aarch64")))]
unsafe fn clone3(
    _arguments: *const Arguments,
    _entry: extern "C" fn(*mut c_void) -> c_int,
    _argument: *mut c_void,
) -> isize {
    -(libc::ENOSYS as isize)
}
