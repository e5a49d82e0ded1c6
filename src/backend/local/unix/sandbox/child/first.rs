//! The init: from its birth in a new PID namespace until it executes its program.
//!
//! The builder goes on meanwhile, in the same memory and with the same places of the thread. So nothing here is called by the
//! C library, which writes there: all of it are [direct] calls.

use std::convert::Infallible;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::Ordering;

use super::super::direct::{self, at, call};
use super::super::raw::{self, Errno};
use super::super::shape::Proc;
use super::super::{landlock, raw::RulesetAttributes};
use super::passing::announce;
use super::{During, Failure, Passed, Program, SetUp, Stage};

/// Where the init reads its orders, and where its program is until it runs.
const ORDERS: RawFd = 3;
pub(super) const PROGRAM: RawFd = 4;

/// Which step of [`Stage::Init`] it is to execute the program.
pub(in super::super) const EXECUTION: usize = 5;

pub(super) extern "C" fn first_main(set_up: *mut c_void) -> c_int {
    // SAFETY: the builder passes a valid value, which the parent keeps until we are done.
    let set_up = unsafe { &*set_up.cast::<SetUp<'_>>() };
    // SAFETY: this is the child that the function asks for.
    let Err(failure) = unsafe { become_first(set_up) };
    set_up.report.first_fault.store(failure);
    direct::exit(127)
}

/// Returns only if something failed. All signals stay blocked: the program handles none.
///
/// # Safety
///
/// Only in a child that shares memory with a parent that waits for it, and is the first of its PID namespace.
unsafe fn become_first(set_up: &SetUp<'_>) -> Result<Infallible, Failure> {
    const NAME: &CStr = c"longarm-init";
    let shape = set_up.shape;
    let program = set_up.program.load(Ordering::Relaxed);
    // SAFETY: see the caller.
    unsafe {
        announce(Passed::Init, set_up.passing).during(Stage::Init, 6)?;
        if let Some(namespaces) = shape.namespaces()
            && let Proc::Fresh { read_only, all_read_only } = &namespaces.proc
        {
            let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            let whole = if *all_read_only { libc::MS_RDONLY } else { 0 };
            raw::mount_new(c"proc", namespaces.base.proc_path(), flags | whole, c"").during(Stage::Proc, 0)?;
            for path in read_only {
                match raw::bind_read_only(path, flags) {
                    // Its module was taken away since the plan was made.
                    Err(libc::ENOENT) => {}
                    bound => bound.during(Stage::Proc, 1)?,
                }
            }
        }
        set_up.report.init.serve();
        ignore_children().during(Stage::Init, 7)?;
        // Out of the reach of what the group of the executor is told. A session of its own would cost more, and nothing that a
        // terminal says to the executor's reaches one that blocks all signals.
        call(libc::SYS_setpgid, [0, 0]).during(Stage::Init, 1)?;
        call(libc::SYS_chdir, [at(c"/".as_ptr())]).during(Stage::Init, 2)?;
        raw::drop_capabilities().during(Stage::Capabilities, 3)?;
        if let Some(landlock) = &shape.landlock {
            let is_in_a_file_system = matches!(set_up.init, Program::Image(_));
            let runs = is_in_a_file_system.then_some(program);
            restrict(&landlock.first, landlock.bytes, runs).during(Stage::Landlock, 4)?;
        } else {
            // Nothing else keeps the command from putting its own words into the mouth of this one.
            raw::install_filter(&shape.filter).during(Stage::Filter, 1)?;
        }
        // Both are above the numbers that they get here.
        call(libc::SYS_dup3, [set_up.orders as usize, ORDERS as usize, 0]).during(Stage::Init, 3)?;
        call(libc::SYS_dup3, [program as usize, PROGRAM as usize, libc::O_CLOEXEC as usize]).during(Stage::Init, 4)?;
        close_all_from(PROGRAM + 1);
        for fd in 0..ORDERS {
            close(fd);
        }
        // The second argument has it end with whoever gives it orders.
        let argv: [*const c_char; 3] = [NAME.as_ptr(), c"-".as_ptr(), ptr::null()];
        let envp: [*const c_char; 1] = [ptr::null()];
        let (name, argv, envp) = (at(c"".as_ptr()), at(argv.as_ptr()), at(envp.as_ptr()));
        set_up.report.is_ready.store(1, Ordering::Release);
        let executed = call(libc::SYS_execveat, [PROGRAM as usize, name, argv, envp, libc::AT_EMPTY_PATH as usize]);
        Err(Failure { stage: Stage::Init, index: EXECUTION, errno: executed.err().unwrap_or(libc::EINVAL) })
    }
}

/// The kernel reaps what nobody asks for. This survives the execution.
///
/// # Safety
///
/// Only in a child: changes the dispositions of the calling process.
unsafe fn ignore_children() -> Result<(), Errno> {
    // The kernel's structure begins with the disposition in each machine's layout, and no flag and no mask follow.
    let mut ignored = [0_usize; 8];
    ignored[0] = libc::SIG_IGN;
    let bytes_of_mask = size_of::<u64>();
    // SAFETY: the kernel reads its structure, which is smaller than the array, and writes nothing.
    unsafe { call(libc::SYS_rt_sigaction, [libc::SIGCHLD as usize, at(ignored.as_ptr()), 0, bytes_of_mask]) }.map(drop)
}

/// Its own ruleset, with no rights at all but to become what it has to be: so nobody behind another one may look into it, or
/// change it. It has to be able to signal them.
///
/// # Safety
///
/// Only in a child.
unsafe fn restrict(handled: &RulesetAttributes, bytes: usize, runs: Option<RawFd>) -> Result<(), Errno> {
    let ruleset = raw::create_ruleset(handled, bytes)?;
    if let Some(program) = runs {
        raw::allow_beneath(ruleset, landlock::RUN, program)?;
    }
    // SAFETY: see the caller.
    unsafe { raw::restrict_self(ruleset) }
}

unsafe fn close(fd: RawFd) {
    // SAFETY: see the caller. One that is not open is not to be.
    let _ = unsafe { call(libc::SYS_close, [fd as usize]) };
}

/// Closes every descriptor from `first` on.
///
/// # Safety
///
/// Only in a child: closes descriptors whoever owns them.
unsafe fn close_all_from(first: RawFd) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the second call fills the structure.
    unsafe {
        if call(libc::SYS_close_range, [first as usize, u32::MAX as usize, 0]).is_ok() {
            return;
        }
        // Kernels before 5.9, and filters around the executor that do not know the call: every possible number, since the
        // directory that lists them is out of reach by now.
        let limits = [0, libc::RLIMIT_NOFILE as usize, 0, at(&raw const limit)];
        let known = call(libc::SYS_prlimit64, limits);
        limit.rlim_cur = if known.is_ok() { limit.rlim_cur } else { c_int::MAX as libc::rlim_t };
    }
    let mut fd = first;
    while (fd as libc::rlim_t) < limit.rlim_cur && fd < c_int::MAX {
        // SAFETY: see the caller.
        unsafe { close(fd) };
        fd += 1;
    }
}
