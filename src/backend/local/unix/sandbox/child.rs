//! The child's part: from a fresh process in new namespaces to a command behind all walls.
//!
//! Three processes share the parent's memory, which waits until none of them does any more:
//!
//! 1. the *builder* is born in new user, mount, network and IPC namespaces, or enters a user and a network namespace that were
//!    kept and makes the others there; it builds the tree, restricts itself, and makes the other two. It never enters the PID
//!    namespace that it makes, so that the others can be the parent's own children.
//! 2. the *init* is the first process of the PID namespace. It shows the namespace in `/proc` and executes the program of
//!    [`init_program`](super::super::init_program), confined at least as much as the command. Meanwhile the builder goes on
//!    with what does not take that.
//! 3. the *command* inherits what restricts the builder, makes its session, and executes its program, for which the builder
//!    waits.
//!
//! All of them run on stacks of their own: they allocate nothing, lock nothing, unwind nowhere, and call only what is safe
//! in a signal handler; and the init nothing that leaves anything in a place of the thread, which is the builder's too.
//! Whatever fails is left in [`Report`] for the parent.

mod ahead;
mod first;
mod memory;
mod passing;
mod places;
mod report;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

pub(super) use self::ahead::{Ahead, ahead_main};
pub(super) use self::first::EXECUTION;
use self::first::first_main;
use self::passing::{announce, enter, pass_namespaces, write_maps};
use self::places::{Host, add_rules, copy_sources, hold, make_ruleset, take_step};
pub(in crate::backend::local::unix) use self::report::Report;
use self::report::Sibling;
use super::direct;
use super::filter;
use super::raw::{self, Errno, result};
use super::shape::{Base, Kept, Namespaces, Proc, Shape};

/// What the builder gets. Lives in memory that parent and child share.
#[derive(Debug)]
pub(super) struct SetUp<'a> {
    pub(super) shape: &'a Shape,
    /// For each source, its copy.
    pub(super) copies: &'a [AtomicI32],
    /// For each device, its copy.
    pub(super) devices: &'a [AtomicI32],
    /// Namespaces to enter, which nobody is in.
    pub(super) spare: Option<Entered>,
    /// Whether the memory file system can be one that was kept, and be kept.
    pub(super) keeps_memory: bool,
    pub(super) init: Program<'a>,
    /// The end of a pipe that the init reads from, above the numbers that it gets.
    pub(super) orders: RawFd,
    /// Where descriptors go that the parent gets: see [`Passed`].
    pub(super) passing: RawFd,
    /// Whether there is somebody whom the filter may tell of what it refuses.
    pub(super) tells: bool,
    /// The stacks of the other two.
    pub(super) init_stack: *mut c_void,
    pub(super) command_stack: *mut c_void,
    /// The file that holds the program of the init, as soon as there is one.
    pub(super) program: AtomicI32,
    /// The command; none if everything is only tried.
    pub(super) command: Option<(extern "C" fn(*mut c_void) -> c_int, *mut c_void)>,
    pub(super) report: &'a Report,
}

/// Namespaces that nobody is in, and that are not made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entered {
    pub(super) user: Option<RawFd>,
    pub(super) network: Option<RawFd>,
    /// A mount namespace that has nothing but the memory file system.
    pub(super) memory: Option<RawFd>,
}

impl Entered {
    /// What makes the same kinds of them.
    fn flags(&self) -> c_int {
        let flag = |namespace: Option<RawFd>, flag| if namespace.is_some() { flag } else { 0 };
        flag(self.user, libc::CLONE_NEWUSER) | flag(self.network, libc::CLONE_NEWNET)
    }
}

/// The program of the init.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program<'a> {
    /// A file that nobody can read, in no file system that could be restricted, above the numbers that the init gets.
    File(RawFd),
    /// What to write into one.
    Image(&'a [u8]),
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Stage {
    Limits = 1,
    Spare,
    Maps,
    Device,
    Mounts,
    Memory,
    Make,
    InitImage,
    Source,
    SourceChanged,
    ReadOnly,
    Root,
    Dev,
    Held,
    HeldChanged,
    Step,
    StepChanged,
    PidNamespace,
    Init,
    Proc,
    Network,
    Port,
    Capabilities,
    Landlock,
    Filter,
    Command,
}

const STAGES: [Stage; 26] = [
    Stage::Limits,
    Stage::Spare,
    Stage::Maps,
    Stage::Device,
    Stage::Mounts,
    Stage::Memory,
    Stage::Make,
    Stage::InitImage,
    Stage::Source,
    Stage::SourceChanged,
    Stage::ReadOnly,
    Stage::Root,
    Stage::Dev,
    Stage::Held,
    Stage::HeldChanged,
    Stage::Step,
    Stage::StepChanged,
    Stage::PidNamespace,
    Stage::Init,
    Stage::Proc,
    Stage::Network,
    Stage::Port,
    Stage::Capabilities,
    Stage::Landlock,
    Stage::Filter,
    Stage::Command,
];

/// What a descriptor is that is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Passed {
    /// A socket that listens on one of the ports, in their order.
    Port = 1,
    /// The listener of the filter.
    Filter,
    /// The pidfd of the init, and that of the command.
    Init,
    Command,
    /// The user namespace and the network namespace, for later sandboxes.
    User,
    Network,
    /// The mount namespace that has nothing but the memory file system.
    Memory,
}

/// A failure: where, at which element of its list, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) stage: Stage,
    pub(super) index: usize,
    pub(super) errno: Errno,
}

/// Names the stage of an error.
trait During<T> {
    fn during(self, stage: Stage, index: usize) -> Result<T, Failure>;
}

impl<T> During<T> for Result<T, Errno> {
    fn during(self, stage: Stage, index: usize) -> Result<T, Failure> {
        self.map_err(|errno| Failure { stage, index, errno })
    }
}

/// Makes a process that shares memory, and is born a sibling of the caller, with more `flags`; the report has its number
/// before it runs.
///
/// # Safety
///
/// All that it needs must live until [it is done](Sibling::wait).
unsafe fn make_sibling(
    main: extern "C" fn(*mut c_void) -> c_int,
    stack: *mut c_void,
    argument: *mut c_void,
    sibling: &Sibling,
    flags: c_int,
) -> Result<(), Errno> {
    let told = libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_CLEARTID;
    let flags = flags | libc::CLONE_VM | libc::CLONE_PARENT | told | libc::SIGCHLD;
    // SAFETY: see the caller; the kernel writes the two numbers, which live as long.
    unsafe { direct::clone(flags, stack, sibling.number.as_ptr(), &sibling.memory, main, argument) }.map(drop)
}

/// The builder.
pub(super) extern "C" fn builder_main(set_up: *mut c_void) -> c_int {
    // SAFETY: the parent passes a valid value and is suspended as long as we run.
    let set_up = unsafe { &*set_up.cast::<SetUp<'_>>() };
    // SAFETY: this is the child that the functions ask for.
    let outcome = unsafe { build(set_up) };
    match outcome {
        Ok(()) => set_up.report.done.store(1, Ordering::Relaxed),
        Err(failure) => set_up.report.fault.store(failure),
    }
    // Also if something failed: it uses what is lent to it here.
    set_up.report.init.wait();
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

/// # Safety
///
/// Only in a child that shares memory with its suspended parent.
unsafe fn build(set_up: &SetUp<'_>) -> Result<(), Failure> {
    let report = set_up.report;
    // SAFETY: see the caller.
    unsafe {
        report.umask.store(libc::umask(0), Ordering::Relaxed);
        let limit = raise_descriptor_limit().during(Stage::Limits, 0)?;
        let namespaces = set_up.shape.namespaces();
        let root = match namespaces {
            Some(namespaces) => build_namespaces(set_up, namespaces)?,
            None => result(libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC).into()).during(Stage::Root, 0)?,
        };

        // From here on the init runs at the same time, if there is one.
        raw::bound_capabilities().during(Stage::Capabilities, 0)?;
        let landlock = set_up.shape.landlock.as_ref();
        let ruleset = landlock.map(|landlock| make_ruleset(landlock).map(|ruleset| (landlock, ruleset)));
        let ruleset = ruleset.transpose().during(Stage::Landlock, 0)?;
        let add_rules = |in_proc| match ruleset {
            Some((landlock, ruleset)) => add_rules(set_up.shape, landlock, ruleset, root, in_proc),
            None => Ok(()),
        };
        // The filter takes longest, and refuses only what is still to be done for an empty base.
        let is_early = namespaces.is_some_and(|namespaces| namespaces.base != Base::Empty);
        if is_early {
            add_rules(false).during(Stage::Landlock, 1)?;
            raw::forgo_privileges().during(Stage::Capabilities, 1)?;
            put_filter(set_up).during(Stage::Filter, 0)?;
            // For the `/proc` that it mounts.
            report.init.wait_served();
        } else {
            wait_for_first(set_up)?;
            if namespaces.is_some() {
                enter_root(root)?;
            }
            add_rules(false).during(Stage::Landlock, 1)?;
        }
        add_rules(true).during(Stage::Landlock, 2)?;
        // That of the command, unless it is told another one.
        result(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit).into()).during(Stage::Limits, 1)?;
        raw::drop_capabilities().during(Stage::Capabilities, 2)?;
        if let Some((_, ruleset)) = ruleset {
            raw::restrict_self(ruleset).during(Stage::Landlock, 3)?;
        }
        if is_early {
            // As long as it is in this memory, nobody may be there who could want to look into it.
            wait_for_first(set_up)?;
        } else {
            put_filter(set_up).during(Stage::Filter, 0)?;
        }
        if set_up.command.is_some() {
            let argument = ptr::from_ref(set_up).cast_mut().cast();
            let stack = set_up.command_stack;
            let made = make_sibling(command_main, stack, argument, &report.command, libc::CLONE_VFORK);
            made.during(Stage::Command, 0)?;
        }
    }
    Ok(())
}

/// Waits until the init has left this memory, if there is one.
fn wait_for_first(set_up: &SetUp<'_>) -> Result<(), Failure> {
    let report = set_up.report;
    report.init.wait();
    match report.first_fault.failure() {
        Some(failure) => Err(failure),
        // It was killed, and nobody could be born in its namespace any more; this is how the kernel says so.
        None if set_up.shape.namespaces().is_some() && report.is_ready.load(Ordering::Acquire) == 0 => {
            Err(Failure { stage: Stage::Command, index: 0, errno: libc::ENOMEM })
        }
        None => Ok(()),
    }
}

/// The command, before it is one.
extern "C" fn command_main(set_up: *mut c_void) -> c_int {
    // SAFETY: the builder passes a valid value and is suspended as long as we run.
    let set_up = unsafe { &*set_up.cast::<SetUp<'_>>() };
    // SAFETY: this is a child, which is to be restricted.
    let restricted = unsafe { raw::install_filter(&filter::NO_SIBLINGS) }.during(Stage::Filter, 1);
    let announced = restricted.and_then(|()| announce(Passed::Command, set_up.passing).during(Stage::Command, 1));
    match (set_up.command, announced) {
        (Some((main, argument)), Ok(())) => main(argument),
        (_, announced) => {
            let none = Failure { stage: Stage::Command, index: 1, errno: libc::EINVAL };
            set_up.report.fault.store(announced.err().unwrap_or(none));
            // SAFETY: ends this process without running anything of the parent's.
            unsafe { libc::_exit(127) }
        }
    }
}

/// Lets this process have as many descriptors as it may: there is one for each place that is attached. Returns what the limit
/// was.
unsafe fn raise_descriptor_limit() -> Result<libc::rlimit, Errno> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls fill and read the structure. The limits of this process are its own.
    unsafe {
        result(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit).into())?;
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        result(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised).into())?;
    }
    Ok(limit)
}

/// Which step of [`Stage::Spare`] it is to copy the memory file system.
pub(super) const MEMORY: usize = 2;

/// Builds what is in the namespaces, and makes the init; returns the new root.
///
/// # Safety
///
/// Only in a child that was born in them, or for which there are some to enter.
unsafe fn build_namespaces(set_up: &SetUp<'_>, namespaces: &Namespaces) -> Result<RawFd, Failure> {
    let base = namespaces.base;
    // SAFETY: see the caller.
    unsafe {
        if let Some(spare) = &set_up.spare {
            enter(spare).during(Stage::Spare, 0)?;
            // What is made in them belongs to them.
            result(libc::unshare(namespaces.flags & !spare.flags()).into()).during(Stage::Spare, 1)?;
        } else {
            write_maps(namespaces)?;
            if matches!(namespaces.kept, Kept::Again { .. }) {
                // Without them the next sandbox makes its own.
                let _ = pass_namespaces(namespaces, set_up.passing);
            }
        }
        let old_root = open_directory(c"/").during(Stage::Mounts, 0)?;
        // Before the new /dev lies over it.
        let host = Host { root: old_root, shared: raw::open_place(old_root, c"dev/shm") };
        // What else has to be in it cannot be put into one that others have too.
        let is_common = set_up.keeps_memory && namespaces.is_common && matches!(set_up.init, Program::File(_));
        let kept = set_up.spare.as_ref().and_then(|spare| spare.memory).filter(|_| is_common);
        let kept = kept.map(|kept| memory::copy(kept, old_root)).transpose().during(Stage::Spare, MEMORY)?;
        if kept.is_none() {
            // Before the file systems of the host are told to have no devices.
            memory::copy_devices(namespaces, set_up.devices)?;
        }
        // Private: what the host mounts from now on would not be subject to anything that follows.
        raw::set_mount_attributes(old_root, raw::NOSUID | raw::NODEV, true).during(Stage::Mounts, 1)?;
        let memory = match kept {
            Some((kept, _)) => {
                raw::attach_tree(kept, old_root, c"dev").during(Stage::Memory, 4)?;
                kept
            }
            None => memory::mount(namespaces, set_up.devices)?,
        };
        let init = match set_up.init {
            Program::File(file) => file,
            Program::Image(image) => write_init(memory, image).during(Stage::InitImage, 0)?,
        };
        let is_passed_on = kept.is_none() && is_common && matches!(namespaces.kept, Kept::Again { .. });
        let shared = if kept.is_some() || is_passed_on {
            None
        } else {
            // Copied while it is writable: of one file system each mount has rights of its own.
            Some(raw::clone_tree(memory, c"shm", false).during(Stage::Memory, 2)?)
        };
        if is_passed_on {
            memory::pass_copy(old_root, set_up.passing)?;
        }
        // Copied while they are as the host has them.
        copy_sources(set_up, namespaces, &host, |source| source.writable || base == Base::Writable)?;
        let read_only = if base == Base::Writable { memory } else { old_root };
        raw::set_mount_attributes(read_only, raw::RDONLY, false).during(Stage::ReadOnly, 0)?;
        // Copied with what has just been set.
        copy_sources(set_up, namespaces, &host, |source| !source.writable && base != Base::Writable)?;

        let root = if base == Base::Empty {
            let tree = raw::clone_tree(memory, c"root", false).during(Stage::Root, 1)?;
            raw::attach_tree(tree, memory, c"root").during(Stage::Root, 2)?;
            raw::open_place(memory, c"root").during(Stage::Root, 3)?
        } else {
            old_root
        };
        hold(&namespaces.held, &host, root, memory)?;
        // It has to find a place for its /proc, which is no concern of what follows.
        let is_early = base != Base::Empty;
        if is_early {
            make_init(set_up, init)?;
        }
        let devices = match kept {
            Some((_, devices)) => devices,
            None => raw::clone_tree(memory, c"dev", true).during(Stage::Dev, 0)?,
        };
        raw::attach_tree(devices, root, c"dev").during(Stage::Dev, 1)?;
        let no_programs = libc::MS_NOSUID | libc::MS_NOEXEC;
        let options = c"newinstance,ptmxmode=0666,mode=0620";
        raw::mount_new(c"devpts", base.pts_path(), no_programs, options).during(Stage::Dev, 2)?;
        match shared {
            Some(shared) => raw::attach_tree(shared, root, c"dev/shm").during(Stage::Dev, 3)?,
            None => raw::mount_new(c"tmpfs", c"/dev/shm", memory::FLAGS, c"mode=1777").during(Stage::Dev, 4)?,
        }

        for (index, step) in namespaces.steps.iter().enumerate() {
            take_step(set_up, namespaces, step, (root, memory), index)?;
        }
        if matches!(namespaces.proc, Proc::Masked) {
            let mask = raw::clone_tree(memory, c"proc", false).during(Stage::Proc, 0)?;
            raw::attach_tree(mask, root, c"proc").during(Stage::Proc, 1)?;
        }
        if namespaces.loopback {
            raise_loopback().during(Stage::Network, 0)?;
        }
        for (index, port) in namespaces.ports.iter().enumerate() {
            listen(*port, set_up.passing).during(Stage::Port, index)?;
        }

        if !is_early {
            make_init(set_up, init)?;
        }
        Ok(root)
    }
}

/// Makes the init, which runs at the same time from here on, in a new PID namespace.
///
/// # Safety
///
/// Only in a child that has a mount namespace of its own, which waits for it.
unsafe fn make_init(set_up: &SetUp<'_>, program: RawFd) -> Result<(), Failure> {
    set_up.program.store(program, Ordering::Relaxed);
    let argument = ptr::from_ref(set_up).cast_mut().cast();
    // SAFETY: see the caller. It does not suspend this process: the parent's memory outlives both.
    unsafe {
        result(libc::unshare(libc::CLONE_NEWPID).into()).during(Stage::PidNamespace, 0)?;
        make_sibling(first_main, set_up.init_stack, argument, &set_up.report.init, 0).during(Stage::Init, 0)
    }
}

/// Leaves nothing to be seen but an empty base and what is attached to it: the old root comes to lie over the new one, and is
/// taken away with all that is mounted on it.
///
/// # Safety
///
/// Only in a child that has a mount namespace of its own.
unsafe fn enter_root(root: RawFd) -> Result<(), Failure> {
    let here = c".".as_ptr();
    // SAFETY: terminated strings, and a descriptor of our own.
    unsafe {
        result(libc::fchdir(root).into()).during(Stage::Root, 4)?;
        result(libc::syscall(libc::SYS_pivot_root, here, here)).during(Stage::Root, 5)?;
        result(libc::umount2(here, libc::MNT_DETACH).into()).during(Stage::Root, 6)?;
        result(libc::chdir(c"/".as_ptr()).into()).during(Stage::Root, 7)
    }
    .map(drop)
}

unsafe fn open_directory(path: &CStr) -> Result<RawFd, Errno> {
    // SAFETY: the path is a terminated string.
    result(unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) }.into())
}

unsafe fn write_map(path: &CStr, text: &CStr) -> Result<(), Errno> {
    // SAFETY: terminated strings, and a descriptor of our own.
    unsafe {
        let file = result(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC).into())?;
        let written = result(libc::write(file, text.as_ptr().cast(), text.count_bytes()) as _);
        libc::close(file);
        written.map(drop)
    }
}

/// Puts the program of the init where only the builder can reach it; returns what executes it. Nobody may read it, so that
/// nobody may look into who runs it either.
unsafe fn write_init(memory: RawFd, image: &[u8]) -> Result<RawFd, Errno> {
    const NAME: *const c_char = c"init".as_ptr();
    // SAFETY: constant strings, the image, and descriptors of our own.
    unsafe {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let file = result(libc::openat(memory, NAME, flags, 0o100).into())?;
        let mut rest = image;
        let mut outcome = Ok(0);
        while !rest.is_empty() && outcome.is_ok() {
            outcome = result(libc::write(file, rest.as_ptr().cast(), rest.len()) as _);
            let written = outcome.map_or(rest.len(), |written| written.unsigned_abs() as usize);
            rest = rest.get(written..).unwrap_or_default();
        }
        libc::close(file);
        outcome?;
        let program = result(libc::openat(memory, NAME, libc::O_PATH | libc::O_CLOEXEC).into())?;
        // Out of the way of the numbers that the init gets.
        result(libc::fcntl(program, libc::F_DUPFD_CLOEXEC, first::PROGRAM + 1).into())
    }
}

unsafe fn raise_loopback() -> Result<(), Errno> {
    // SAFETY: a structure of the kernel's, which it reads, and a descriptor of our own.
    unsafe {
        let socket = result(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into())?;
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
        let raised = result(libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request).into());
        libc::close(socket);
        raised.map(drop)
    }
}

/// Listens on a port of the new loopback interface, and passes the socket to the parent.
unsafe fn listen(port: u16, to: RawFd) -> Result<(), Errno> {
    // SAFETY: structures of the kernel's, which it reads, and a descriptor of our own.
    unsafe {
        let socket = result(libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).into())?;
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as _;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let bytes = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        result(libc::bind(socket, (&raw const address).cast(), bytes).into())?;
        result(libc::listen(socket, 128).into())?;
        raw::send_descriptor(socket, Passed::Port as u8, to)?;
        libc::close(socket);
        Ok(())
    }
}

/// Puts the filter in force: the one that tells, if somebody is there to be told, and it can have a listener. The command
/// runs without that as well.
unsafe fn put_filter(set_up: &SetUp<'_>) -> Result<(), Errno> {
    let report = set_up.report;
    // SAFETY: see the caller, and a descriptor of our own.
    unsafe {
        if set_up.tells {
            let passed = raw::install_telling_filter(&set_up.shape.telling_filter).and_then(|listener| {
                let passed = raw::send_descriptor(listener, Passed::Filter as u8, set_up.passing);
                libc::close(listener);
                passed
            });
            match passed {
                Ok(()) => return Ok(()),
                Err(errno) => report.not_told.store(errno, Ordering::Relaxed),
            }
        }
        // Its verdicts come before those of the other one, should that be in force and its listener gone.
        raw::install_filter(&set_up.shape.filter)
    }
}
