//! The parent's part: makes the builder, waits for it, and takes over what it made.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use super::child::{
    Ahead, EXECUTION, Entered, Failure, MEMORY, Passed, Program, Report, SetUp, Stage, ahead_main, builder_main,
};
use super::notice::{Notices, Place};
use super::probe::is_momentary;
use super::running::Gone;
use super::shape::{Kept, Shape};
use super::spare::{self, Lent, Spare, Spares};
use crate::backend::local::unix::namespace::{PidNamespace, above};
use crate::backend::local::unix::platform::{has_ended_within, send, wait_target};
use crate::backend::local::unix::process::wait;
use crate::backend::local::unix::{check, init_program, pipe, set_nonblocking};

/// What runs now.
#[derive(Debug)]
pub(in crate::backend::local::unix) struct Started {
    /// The number of the command.
    pub(in crate::backend::local::unix) pid: libc::pid_t,
    pub(in crate::backend::local::unix) pidfd: OwnedFd,
    /// What holds it and all that it starts.
    pub(in crate::backend::local::unix) namespace: Option<PidNamespace>,
    /// Sockets that listen inside, in the order of their ports.
    pub(in crate::backend::local::unix) listeners: Vec<OwnedFd>,
    /// What the filter refuses, or why that is not told; none if it was not to be.
    pub(in crate::backend::local::unix) notices: Option<io::Result<Notices>>,
    /// Namespaces that another sandbox can have afterwards.
    pub(in crate::backend::local::unix) lent: Option<Lent>,
    /// Who has built it, to be dropped when there is time.
    pub(in crate::backend::local::unix) builder: Option<Builder>,
    /// Whether that was reaped.
    pub(in crate::backend::local::unix) is_built: Arc<Gone>,
}

/// Why nothing runs.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The builder could not be made.
    Builder(io::Error),
    /// A step of its failed.
    Step(Failure),
    /// Something else.
    Other(&'static str, io::Error),
}

impl Refusal {
    /// The system's number for it, if there is one.
    pub(super) fn errno(&self) -> Option<i32> {
        match self {
            Self::Builder(error) | Self::Other(_, error) => error.raw_os_error(),
            Self::Step(failure) => Some(failure.errno),
        }
    }
}

/// A function that a process begins with, and its argument.
pub(super) type Entry = (extern "C" fn(*mut c_void) -> c_int, *mut c_void);

/// Builds a sandbox and starts a command in it; without a command, it only tries.
///
/// # Safety
///
/// This thread blocks all signals. The stacks are used by nobody else. The command's function is one that may run in a
/// child that shares our memory, and its argument is valid.
pub(super) unsafe fn run(
    shape: &Shape,
    stacks: [*mut c_void; 3],
    spares: &Arc<Spares>,
    command: Option<Entry>,
    report: &Report,
) -> Result<Option<Started>, Refusal> {
    let namespaces = shape.namespaces();
    let image = match namespaces {
        Some(_) => init_program::image().ok_or_else(|| {
            Refusal::Other("make a PID namespace on this kind of processor", io::ErrorKind::Unsupported.into())
        })?,
        None => Vec::new(),
    };
    let mut spare = namespaces.filter(|_| command.is_some()).and_then(|namespaces| spares.take(namespaces));
    loop {
        let file = namespaces.and_then(|_| spares.program(&image));
        let program = file.as_ref().map_or(Program::Image(&image), |file| Program::File(file.as_raw_fd()));
        // SAFETY: see the caller.
        match unsafe { attempt(shape, stacks, command, report, program, (spare.take(), spares.keeps_memory())) } {
            Err(refusal @ Refusal::Step(Failure { stage: Stage::Spare, .. })) if is_momentary(&refusal) => {
                return Err(refusal);
            }
            // Those that are kept count as well.
            Err(refusal) if refusal.errno() == Some(libc::ENOSPC) && spares.let_go() => {}
            // A security module may allow some of it only.
            Err(Refusal::Step(Failure { stage: Stage::Spare, index: MEMORY, .. })) => spares.keep_no_memory(),
            // Whatever it is that keeps us out: new ones may do.
            Err(Refusal::Step(Failure { stage: Stage::Spare, .. })) => spares.keep_none(),
            // A security module may allow programs in file systems only.
            Err(Refusal::Step(Failure {
                stage: Stage::Init,
                index: EXECUTION,
                errno: libc::EACCES | libc::EPERM | libc::ENOEXEC,
            })) if file.is_some() => {
                spares.set_program(spare::Program::Refused);
            }
            outcome => {
                return Ok(
                    outcome?.map(|(started, spare)| Started { lent: spare.map(|spare| spares.lend(spare)), ..started })
                );
            }
        }
        report.clear();
    }
}

/// The same, once, with this program for the init, and in namespaces that were kept.
///
/// # Safety
///
/// As for [`run`].
unsafe fn attempt(
    shape: &Shape,
    stacks: [*mut c_void; 3],
    command: Option<Entry>,
    report: &Report,
    init: Program<'_>,
    (spare, keeps_memory): (Option<Spare>, bool),
) -> Result<Option<(Started, Option<Spare>)>, Refusal> {
    let other = |what| move |error| Refusal::Other(what, error);
    let namespaces = shape.namespaces();
    let (read, orders) = pipe().map_err(other("make a pipe"))?;
    let read = above(&read, FIRST_FREE).map_err(other("make a pipe"))?;
    // Before the process is there, since it might have to wait for the thread.
    let place = (command.is_some() && !shape.telling_filter.is_empty()).then(Place::take);
    let tells = matches!(place, Some(Ok(_)));
    let (ours, theirs) = socket_pair().map_err(other("make a pair of sockets"))?;
    let copies = none_yet(namespaces.map_or(0, |namespaces| namespaces.sources.len()));
    let devices = none_yet(namespaces.map_or(0, |namespaces| namespaces.devices.len()));
    let [builder_stack, init_stack, command_stack] = stacks;
    let set_up = SetUp {
        shape,
        copies: &copies,
        devices: &devices,
        spare: spare.as_ref().map(|spare| Entered {
            user: spare.user.as_ref().map(AsRawFd::as_raw_fd),
            network: spare.network.as_ref().map(AsRawFd::as_raw_fd),
            memory: spare.memory.as_ref().map(AsRawFd::as_raw_fd),
        }),
        keeps_memory,
        init,
        orders: read.as_raw_fd(),
        passing: theirs.as_raw_fd(),
        tells,
        init_stack,
        command_stack,
        program: AtomicI32::new(-1),
        command,
        report,
    };
    // Else it enters what is there, in which it makes the others.
    let made = namespaces.filter(|_| spare.is_none()).map_or(0, |namespaces| namespaces.flags);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD | made;
    let argument = ptr::from_ref(&set_up).cast_mut().cast::<c_void>();
    let mut pidfd: RawFd = -1;
    // SAFETY: the child gets a stack of its own, as do those that it makes. `set_up` and all that it points to outlive the
    // call, which suspends this thread until the child has ended, and the others, for which it waits below. `builder_main`
    // calls nothing but async-signal-safe functions. The kernel writes one descriptor to `pidfd`.
    let builder = check(unsafe { libc::clone(builder_main, builder_stack, flags, argument, &raw mut pidfd) });
    // It has waited for them, unless it was killed.
    report.init.wait();
    report.command.wait();
    let builder = Builder::new(builder.map_err(Refusal::Builder)?, pidfd);
    drop(read);
    drop(theirs);

    let mut passed = TakenOver::default();
    let taken = passed.take(&ours);
    let init = Newborn::new(&report.init.number, passed.init);
    let made = Newborn::new(&report.command.number, passed.command);
    match report.failure() {
        Some(failure) => return Err(blame(failure, || init.as_ref().is_some_and(Newborn::ends_soon))),
        None if report.done.load(Ordering::Relaxed) == 0 => {
            return Err(Refusal::Other("build a sandbox", io::Error::other("the process that builds it was killed")));
        }
        None => taken.map_err(other("take descriptors over"))?,
    }
    if init.is_some() {
        set_nonblocking(orders.as_fd()).map_err(other("set a pipe up"))?;
    }
    let notices = match (place, passed.filter) {
        (None, _) => None,
        // The command has that filter by now, so that nothing else will do.
        (Some(Ok(place)), Some(listener)) => Some(Ok(place.listen(listener).map_err(other("listen to a filter"))?)),
        (Some(Err(why)), _) => Some(Err(why)),
        (Some(Ok(_)), None) => Some(Err(io::Error::from_raw_os_error(report.not_told.load(Ordering::Relaxed)))),
    };
    let Some(made) = made else { return Ok(None) };
    // Before either is kept: the first process ends after the command was reaped.
    if init.as_ref().is_some_and(|init| init.pidfd.is_none()) {
        return Err(Refusal::Other("build a sandbox", io::Error::other("its first process was killed")));
    }
    let (pid, pidfd) = made.keep().map_err(other("watch a process"))?;
    let namespace = match init.map(Newborn::keep) {
        Some(kept) => {
            let (_, first) = kept.map_err(other("watch the first process of a sandbox"))?;
            Some(PidNamespace::new(first, orders))
        }
        None => None,
    };
    // One that was entered, or the one that was made.
    let mut spare = spare.unwrap_or(Spare { user: passed.user, network: passed.network, memory: None });
    spare.memory = spare.memory.or(passed.memory);
    let lent = namespaces.filter(|namespaces| {
        matches!(namespaces.kept, Kept::Again { .. }) && spare.is_for(namespaces) && namespace.is_some()
    });
    let spare = lent.is_some().then_some(spare);
    Ok(Some((
        Started {
            pid,
            pidfd,
            namespace,
            listeners: passed.ports,
            notices,
            lent: None,
            is_built: Arc::clone(&builder.is_gone),
            builder: Some(builder),
        },
        spare,
    )))
}

/// Makes namespaces in which nobody was yet for a sandbox of this shape, if it takes such, and there are none.
///
/// # Errors
///
/// Why there are none still: the sandbox will make its own.
///
/// # Safety
///
/// This thread blocks all signals. The stack is used by nobody else.
pub(super) unsafe fn make_ahead(shape: &Shape, stack: *mut c_void, spares: &Spares) -> io::Result<()> {
    let Some(namespaces) = shape.namespaces().filter(|namespaces| spares.lacks_new(namespaces)) else { return Ok(()) };
    let (ours, theirs) = socket_pair()?;
    let devices = none_yet(namespaces.devices.len());
    let ahead =
        Ahead { namespaces, devices: &devices, keeps_memory: spares.keeps_memory(), passing: theirs.as_raw_fd() };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child gets a stack of its own. `ahead` and all that it points to outlive the call, which suspends this
    // thread until the child has ended. `ahead_main` calls nothing but async-signal-safe functions.
    let pid = check(unsafe { libc::clone(ahead_main, stack, flags, ptr::from_ref(&ahead).cast_mut().cast()) })?;
    // Whoever else has reaped it: it is gone.
    drop(reap(pid));
    drop(theirs);
    let mut passed = TakenOver::default();
    passed.take(&ours)?;
    let spare = Spare { user: passed.user, network: passed.network, memory: passed.memory };
    match spare.is_for(namespaces) {
        true => spares.keep_new(spare),
        // It would be in vain each time.
        false => spares.make_none_ahead(),
    }
    Ok(())
}

/// The numbers that the init gives its descriptors are below this one.
const FIRST_FREE: RawFd = 5;

fn none_yet(count: usize) -> Vec<AtomicI32> {
    (0..count).map(|_| AtomicI32::new(-1)).collect()
}

/// What is to blame for a failure.
pub(super) fn blame(failure: Failure, first_has_ended: impl FnOnce() -> bool) -> Refusal {
    // So the kernel says that nobody can be born any more.
    if failure.stage == Stage::Command && failure.errno == libc::ENOMEM && first_has_ended() {
        return Refusal::Other("build a sandbox", io::Error::other("its first process was killed"));
    }
    Refusal::Step(failure)
}

/// A child that nothing owns yet. It is killed and reaped if that stays so.
struct Newborn {
    pid: libc::pid_t,
    /// None if it ended before it could pass that on, or if there was no room for it here.
    pidfd: Option<OwnedFd>,
}

impl Newborn {
    fn new(pid: &AtomicI32, pidfd: Option<OwnedFd>) -> Option<Self> {
        let pid = pid.load(Ordering::Relaxed);
        if pid > 0 { Some(Self { pid, pidfd }) } else { None }
    }

    /// Whether it has ended, or does so in an instant.
    fn ends_soon(&self) -> bool {
        const AN_INSTANT: Duration = Duration::from_millis(100);
        self.pidfd.as_ref().is_none_or(|pidfd| has_ended_within(pidfd, AN_INSTANT))
    }

    fn keep(mut self) -> io::Result<(libc::pid_t, OwnedFd)> {
        let pidfd = self.pidfd.take().ok_or_else(|| io::Error::other("it was killed before it could be watched"))?;
        let pid = self.pid;
        std::mem::forget(self);
        Ok((pid, pidfd))
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        let by_number = (libc::P_PID, self.pid.unsigned_abs());
        let target = self.pidfd.as_ref().and_then(|pidfd| wait_target(pidfd.as_raw_fd())).unwrap_or(by_number);
        // Whoever is no child of ours, or not any more, is a stranger.
        if matches!(wait(target, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT), Ok(None)) {
            match &self.pidfd {
                // It fails only if the child has ended meanwhile.
                Some(pidfd) => drop(send(pidfd, libc::SIGKILL)),
                // SAFETY: touches no memory.
                None => drop(check(unsafe { libc::kill(self.pid, libc::SIGKILL) })),
            }
        }
        // How it ended is not asked for.
        drop(wait(target, libc::WEXITED));
    }
}

/// What the processes of a sandbox have passed on.
#[derive(Default)]
struct TakenOver {
    ports: Vec<OwnedFd>,
    filter: Option<OwnedFd>,
    init: Option<OwnedFd>,
    command: Option<OwnedFd>,
    user: Option<OwnedFd>,
    network: Option<OwnedFd>,
    memory: Option<OwnedFd>,
}

impl TakenOver {
    /// Takes all that there is.
    fn take(&mut self, from: &OwnedFd) -> io::Result<()> {
        while let Some((what, fd)) = receive(from)? {
            let is_for_others =
                [Passed::User, Passed::Network, Passed::Memory].into_iter().any(|kind| what == kind as u8);
            let Some(fd) = fd else {
                if is_for_others {
                    continue;
                }
                // The kernel had no number for it.
                return Err(io::Error::from_raw_os_error(libc::EMFILE));
            };
            match what {
                what if what == Passed::Port as u8 => self.ports.push(fd),
                what if what == Passed::Filter as u8 => self.filter = Some(fd),
                what if what == Passed::Init as u8 => self.init = Some(fd),
                what if what == Passed::Command as u8 => self.command = Some(fd),
                what if what == Passed::User as u8 => self.user = Some(fd),
                what if what == Passed::Network as u8 => self.network = Some(fd),
                what if what == Passed::Memory as u8 => self.memory = Some(fd),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(())
    }
}

/// A builder, which has ended or is about to. It is reaped with this, which waits for it: a moment, but one that nobody who
/// waits for the command has to wait.
#[derive(Debug)]
pub(in crate::backend::local::unix) struct Builder {
    pid: libc::pid_t,
    /// The number may be another child's once somebody else has reaped this one.
    pidfd: Option<OwnedFd>,
    /// For whoever has to know that it holds no namespace any more.
    is_gone: Arc<Gone>,
}

impl Builder {
    fn new(pid: libc::pid_t, pidfd: RawFd) -> Self {
        // Kernels before 5.2 leave the place as it was.
        // SAFETY: the kernel put a new descriptor there, which nobody else owns.
        let pidfd = (pidfd != -1).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
        Self { pid, pidfd, is_gone: Arc::default() }
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        let target = self.pidfd.as_ref().and_then(|pidfd| wait_target(pidfd.as_raw_fd()));
        let waited = target.map(|target| wait(target, libc::WEXITED));
        // Kernels before 5.4 cannot wait for it otherwise.
        if waited.is_none_or(|waited| waited.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))) {
            // Whoever else has reaped it: it is gone.
            drop(reap(self.pid));
        }
        self.is_gone.tell();
    }
}

/// Waits for the end of our own child; how it ended is not asked for.
fn reap(pid: libc::pid_t) -> io::Result<()> {
    wait((libc::P_PID, pid.unsigned_abs()), libc::WEXITED).map(drop)
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the array has room for the two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    // SAFETY: the call returned two new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Takes one descriptor from a message, if the kernel had a number for it, and what it is. None if there is no message.
fn receive(from: &OwnedFd) -> io::Result<Option<(u8, Option<OwnedFd>)>> {
    let mut byte = [0_u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = [0_u64; 4];
    // SAFETY: all zeroes is a valid value of the C structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: only computes a size.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the message points to buffers of ours, whose sizes it tells.
    let received = unsafe { libc::recvmsg(from.as_raw_fd(), &raw mut message, flags) };
    match check(c_int::try_from(received).unwrap_or(-1)) {
        // Whoever would send has closed its end.
        Ok(0) => return Ok(None),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Ok(Some((byte[0], None)));
    }
    // SAFETY: the kernel has filled the structure and what it points to.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: as above; if there is a header, it is whole.
    if header.is_null() || unsafe { (*header).cmsg_type } != libc::SCM_RIGHTS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: the kernel put a new descriptor there, which nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()) };
    Ok(Some((byte[0], Some(fd))))
}
