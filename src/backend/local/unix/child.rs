//! A child on Linux until it executes its program: what it is told, what it does, and where it says what failed.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::launch::{LaunchFailure, Prepared, Stage};
use super::namespace;

/// The arrays of a program's start.
pub(super) struct Arrays {
    candidates: Vec<*const c_char>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
}

impl Arrays {
    pub(super) fn new(prepared: &Prepared) -> Self {
        Self {
            candidates: pointers(prepared.candidates.iter()),
            argv: pointers(prepared.argv.iter()),
            envp: pointers(prepared.envp.iter()),
        }
    }
}

/// Null-terminated array of pointers.
fn pointers<'a>(strings: impl Iterator<Item = &'a std::ffi::CString>) -> Vec<*const c_char> {
    strings.map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// What a child has to do, and where it says what failed. Lives in memory that parent and child share.
pub(super) struct Order<'a> {
    candidates: *const *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    cwd: *const c_char,
    /// Where it is if that leads nowhere, or null.
    real_cwd: *const c_char,
    ends: [RawFd; 3],
    terminal: bool,
    /// It opens the null device by itself, behind its walls: ours is on a mount of the host's, where the system's root may
    /// change the mode of the file that it reads from.
    own_null: bool,
    descriptor_limit: Option<libc::rlimit>,
    /// Our process id, if the child has to die with us.
    pub(super) parent: Option<libc::pid_t>,
    /// Where it enters its cgroup, if it is not made there.
    pub(super) members: Option<RawFd>,
    /// It has mounts of its own, on which `/proc` has to be that of its PID namespace.
    pub(super) shows_processes: bool,
    /// Its mask of file modes, if that is not the one that it is born with.
    pub(super) umask: Option<&'a AtomicU32>,
    failed_stage: AtomicI32,
    errno: AtomicI32,
}

impl Order<'_> {
    pub(super) fn new(prepared: &Prepared, arrays: &Arrays) -> Self {
        Self {
            candidates: arrays.candidates.as_ptr(),
            argv: arrays.argv.as_ptr(),
            envp: arrays.envp.as_ptr(),
            cwd: prepared.cwd.as_ptr(),
            real_cwd: prepared.real_cwd.as_ref().map_or(ptr::null(), |cwd| cwd.as_ptr()),
            ends: [0, 1, 2].map(|index: usize| prepared.child_ends[index].as_raw_fd()),
            terminal: prepared.terminal,
            own_null: prepared.null_stdin && prepared.sandbox.is_some(),
            descriptor_limit: prepared
                .descriptor_limit
                .map(|(soft, hard)| libc::rlimit { rlim_cur: soft, rlim_max: hard }),
            parent: None,
            members: None,
            shows_processes: false,
            umask: None,
            failed_stage: AtomicI32::new(STAGE_NONE),
            errno: AtomicI32::new(0),
        }
    }

    /// What failed, if anything did, once the child is done with our memory.
    pub(super) fn failure(&self) -> Option<LaunchFailure> {
        let stage = match self.failed_stage.load(Ordering::Relaxed) {
            STAGE_NONE => return None,
            STAGE_CWD => Stage::Cwd,
            STAGE_EXEC => Stage::Exec,
            STAGE_CONTAIN => Stage::Contain,
            _ => Stage::Setup,
        };
        Some(LaunchFailure::new(stage, io::Error::from_raw_os_error(self.errno.load(Ordering::Relaxed))))
    }
}

const STAGE_NONE: i32 = 0;
const STAGE_SETUP: i32 = 1;
const STAGE_CWD: i32 = 2;
const STAGE_EXEC: i32 = 3;
const STAGE_CONTAIN: i32 = 4;

/// The child, until it executes its program. It runs in the parent's memory on a stack of its own: it allocates
/// nothing, locks nothing, unwinds nowhere, and calls only what is safe in a signal handler.
pub(super) extern "C" fn child_main(order: *mut c_void) -> c_int {
    // SAFETY: the parent passes a valid `Order` and is suspended as long as we run.
    let order = unsafe { &*order.cast::<Order<'_>>() };
    // SAFETY: `order` holds valid pointers and descriptors, as `set_up` and `execute` ask for.
    let stage = unsafe {
        match set_up(order) {
            STAGE_NONE => execute(order),
            stage => stage,
        }
    };
    order.failed_stage.store(stage, Ordering::Relaxed);
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

/// Everything before the program: returns the stage that failed, with the error stored.
///
/// # Safety
///
/// Only in a child that shares memory with its suspended parent; `order` must be valid.
unsafe fn set_up(order: &Order<'_>) -> i32 {
    // SAFETY: system calls on descriptors and memory of `order`, all safe in a signal handler.
    unsafe {
        if let Some(parent) = order.parent {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) == -1 {
                return failed(order, STAGE_SETUP);
            }
            // The parent may have died before the call, which then never fires.
            if libc::getppid() != parent {
                libc::_exit(127);
            }
        }
        if let Some(members) = order.members
            && libc::write(members, b"0".as_ptr().cast(), 1) == -1
        {
            return failed(order, STAGE_CONTAIN);
        }
        if order.shows_processes && !namespace::show_processes() {
            return failed(order, STAGE_CONTAIN);
        }
        reset_dispositions();
        if let Some(umask) = order.umask {
            libc::umask(umask.load(Ordering::Relaxed));
        }
        if libc::setsid() == -1 {
            return failed(order, STAGE_SETUP);
        }
        if order.terminal && libc::ioctl(order.ends[0], libc::TIOCSCTTY, 0) == -1 {
            return failed(order, STAGE_SETUP);
        }
        // The ends are all above 2, so that none is overwritten before its turn, and `dup2` clears close-on-exec.
        let mut target = 0;
        while target < 3 {
            if libc::dup2(order.ends[target as usize], target) == -1 {
                return failed(order, STAGE_SETUP);
            }
            target += 1;
        }
        close_all_from(3);
        if order.own_null && !open_own_null() {
            return failed(order, STAGE_SETUP);
        }
        if let Some(limit) = &order.descriptor_limit
            && libc::setrlimit(libc::RLIMIT_NOFILE, limit) == -1
        {
            return failed(order, STAGE_SETUP);
        }
        // The links on the way to it may be hidden, and it may not.
        let hidden = |errno| errno == libc::ENOENT && !order.real_cwd.is_null();
        if libc::chdir(order.cwd) == -1 && !(hidden(errno()) && libc::chdir(order.real_cwd) == 0) {
            return failed(order, STAGE_CWD);
        }
        // Last, since a signal that is pending for this process takes effect now.
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        STAGE_NONE
    }
}

/// Puts the null device, as this process may open it, at 0; where it may not, something that is at its end.
///
/// # Safety
///
/// Only in a child that has nothing open from 3 on.
unsafe fn open_own_null() -> bool {
    // SAFETY: a terminated string, and descriptors of our own.
    unsafe {
        let mut pipe = [-1; 2];
        let mut file = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        if file == -1 {
            if libc::pipe(pipe.as_mut_ptr()) == -1 {
                return false;
            }
            libc::close(pipe[1]);
            file = pipe[0];
        }
        let put = libc::dup2(file, 0) != -1;
        libc::close(file);
        put
    }
}

/// Sets every signal to its default, also those that the C library hides and those that are ignored.
///
/// # Safety
///
/// Only in a child: changes the dispositions of the calling process.
pub(super) unsafe fn reset_dispositions() {
    // All zeroes is the default action without flags and mask, in each machine's layout of the kernel's structure.
    let default = [0_u64; 8];
    let mut signal: c_int = 1;
    while signal <= 64 {
        // Two of them cannot be changed and refuse; they are at their default anyway.
        // SAFETY: the kernel reads its structure, which is smaller than the array, and writes nothing.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null_mut::<c_void>(), 8_usize) };
        signal += 1;
    }
}

/// Closes every descriptor from `first` on.
///
/// # Safety
///
/// Only in a child: closes descriptors whoever owns them.
pub(super) unsafe fn close_all_from(first: c_int) {
    // SAFETY: system calls on descriptors and on a buffer of our own stack.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first as libc::c_uint, libc::c_uint::MAX, 0) == 0 {
            return;
        }
        // Kernels before 5.9: those that the directory lists. Its entries are read before each pass closes them, so
        // passes are repeated until one finds nothing.
        let directory = libc::open(c"/proc/self/fd".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        if directory == -1 {
            // Without it, every possible number.
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            let mut fd = first;
            while (fd as libc::rlim_t) < limit.rlim_cur {
                libc::close(fd);
                fd += 1;
            }
            return;
        }
        let mut closed = true;
        while closed {
            closed = false;
            libc::lseek(directory, 0, libc::SEEK_SET);
            let mut buffer = [0_u64; 256];
            loop {
                let bytes = size_of_val(&buffer);
                let count = libc::syscall(libc::SYS_getdents64, directory, buffer.as_mut_ptr(), bytes);
                if count <= 0 {
                    break;
                }
                let mut offset = 0_usize;
                while offset < count as usize {
                    let entry = buffer.as_ptr().byte_add(offset).cast::<libc::dirent64>();
                    let fd = number((&raw const (*entry).d_name).cast());
                    if fd >= first && fd != directory {
                        libc::close(fd);
                        closed = true;
                    }
                    offset += usize::from((*entry).d_reclen);
                }
            }
        }
        libc::close(directory);
    }
}

/// The decimal number that a directory entry's name is, or −1.
///
/// # Safety
///
/// `name` must be a terminated string.
unsafe fn number(mut name: *const c_char) -> c_int {
    let mut value: c_int = 0;
    // SAFETY: reads up to the terminator.
    unsafe {
        if *name == 0 {
            return -1;
        }
        while *name != 0 {
            let digit = c_int::from(*name) - c_int::from(b'0');
            if !(0..=9).contains(&digit) {
                return -1;
            }
            value = value.wrapping_mul(10).wrapping_add(digit);
            name = name.add(1);
        }
    }
    value
}

/// Tries the candidates in order, as `execvp` does but for its shell: a file without permission is passed over and
/// remembered; a path that leads nowhere is passed over; anything else ends the search.
///
/// # Safety
///
/// Only in a child; the arrays of `order` must be valid.
unsafe fn execute(order: &Order<'_>) -> i32 {
    // SAFETY: reads null-terminated arrays of terminated strings.
    unsafe {
        let mut refused = false;
        let mut candidate = order.candidates;
        while !(*candidate).is_null() {
            libc::execve(*candidate, order.argv, order.envp);
            match errno() {
                libc::EACCES => refused = true,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                _ => return failed(order, STAGE_EXEC),
            }
            candidate = candidate.add(1);
        }
        if refused {
            order.errno.store(libc::EACCES, Ordering::Relaxed);
            return STAGE_EXEC;
        }
        failed(order, STAGE_EXEC)
    }
}

fn failed(order: &Order<'_>, stage: i32) -> i32 {
    order.errno.store(errno(), Ordering::Relaxed);
    stage
}

pub(super) fn errno() -> c_int {
    // SAFETY: the C library keeps a valid place for it. In the child it is that of the suspended parent thread.
    unsafe { *libc::__errno_location() }
}
