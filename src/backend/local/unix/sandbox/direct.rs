//! System calls past the C library.
//!
//! The library leaves the number of an error in a place of the calling thread. Processes that share memory share that place
//! too, so that of two that run at the same time one would find the number of the other. What is called here touches nothing
//! that belongs to a thread. Elsewhere than on the processors for which sandboxes are made, it is called by the library.

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::AtomicU32;

use super::raw::Errno;

/// Makes a system call with these arguments.
///
/// # Safety
///
/// As the call has it: what the arguments point to must be valid, and what it changes must be the caller's to change.
pub(super) unsafe fn call<const COUNT: usize>(number: c_long, arguments: [usize; COUNT]) -> Result<c_int, Errno> {
    let mut six = [0; 6];
    for (to, from) in six.iter_mut().zip(arguments) {
        *to = from;
    }
    // SAFETY: see the caller.
    outcome(unsafe { enter(number, six) })
}

/// What the kernel returns: a number, or that of an error below zero.
fn outcome(value: isize) -> Result<c_int, Errno> {
    if (-4_095..0).contains(&value) { Err(-value as Errno) } else { Ok(value as c_int) }
}

/// What the kernel reads at a place.
pub(super) fn at<T: ?Sized>(place: *const T) -> usize {
    place.cast::<()>().expose_provenance()
}

/// Ends this process without running anything of anybody's.
pub(super) fn exit(status: c_int) -> ! {
    loop {
        // SAFETY: takes a number. It does not return.
        let _ = unsafe { call(libc::SYS_exit_group, [status as usize]) };
    }
}

/// Waits until the kernel or another process wakes whoever waits for this number, if it is `expected`; may return earlier.
pub(super) fn wait_while(number: &AtomicU32, expected: u32) {
    let place = at(number.as_ptr());
    // Whatever it returns: whoever waits looks at the number again.
    // SAFETY: the kernel reads the number; there is no structure of a time.
    let _ = unsafe { call(libc::SYS_futex, [place, libc::FUTEX_WAIT as usize, expected as usize, 0]) };
}

/// Wakes whoever waits for this number.
pub(super) fn wake_all(number: &AtomicU32) {
    let place = at(number.as_ptr());
    // It cannot fail: the place is one of this process.
    // SAFETY: the kernel looks for those who wait at the place, and reads nothing.
    let _ = unsafe { call(libc::SYS_futex, [place, libc::FUTEX_WAKE as usize, c_int::MAX as usize]) };
}

/// Makes a child that runs `entry` on the stack that ends at `stack`, with the meaning of `flags` that `clone` has. Its number
/// is written to `number`, and `memory` cleared, if the flags say so.
///
/// # Errors
///
/// `ENOSYS` on processors that this is not written for.
///
/// # Safety
///
/// With shared memory (`CLONE_VM`), all that `entry` needs must live until the child executes a program or ends. `entry` must
/// not return.
pub(super) unsafe fn clone(
    flags: c_int,
    stack: *mut c_void,
    number: *mut c_int,
    memory: &AtomicU32,
    entry: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> Result<c_int, Errno> {
    // SAFETY: see the caller.
    outcome(unsafe { born(flags as usize, stack, number, memory.as_ptr(), entry, argument) })
}

#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
unsafe fn enter(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the call is what the caller promises; the registers that the kernel changes are named.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
unsafe fn enter(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the call is what the caller promises; the kernel changes no register but that of the result.
    unsafe {
        core::arch::asm!(
            "svc #0",
            inlateout("x0") a => result,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            in("x5") f,
            in("x8") number,
            options(nostack),
        );
    }
    result
}

#[cfg(not(any(
    all(target_arch = "x86_64", target_pointer_width = "64"),
    all(target_arch = "aarch64", target_endian = "little")
)))]
unsafe fn enter(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the call is what the caller promises.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => -(super::super::child::errno() as isize),
        value => value as isize,
    }
}

#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
unsafe fn born(
    flags: usize,
    stack: *mut c_void,
    number: *mut c_int,
    memory: *mut u32,
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
            "mov rdi, r9",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") flags,
            in("rsi") stack,
            in("rdx") number,
            in("r10") memory,
            in("r8") std::ptr::null_mut::<c_void>(),
            in("r9") argument,
            in("r12") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
unsafe fn born(
    flags: usize,
    stack: *mut c_void,
    number: *mut c_int,
    memory: *mut u32,
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
            "mov x0, x5",
            "blr x6",
            "udf #0",
            "2:",
            inlateout("x0") flags => result,
            in("x1") stack,
            in("x2") number,
            in("x3") std::ptr::null_mut::<c_void>(),
            in("x4") memory,
            in("x5") argument,
            in("x6") entry,
            in("x8") libc::SYS_clone,
        );
    }
    result
}

#[cfg(not(any(
    all(target_arch = "x86_64", target_pointer_width = "64"),
    all(target_arch = "aarch64", target_endian = "little")
)))]
unsafe fn born(
    _flags: usize,
    _stack: *mut c_void,
    _number: *mut c_int,
    _memory: *mut u32,
    _entry: extern "C" fn(*mut c_void) -> c_int,
    _argument: *mut c_void,
) -> isize {
    -(libc::ENOSYS as isize)
}
