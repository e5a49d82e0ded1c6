//! Linux: children by `clone` with shared memory, exits by pidfd.

use std::convert::Infallible;
use std::ffi::{OsStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::cgroup::Cgroup;
use super::child::{Arrays, Order, child_main};
use super::clone_into::clone_into;
pub(super) use super::container::Container;
use super::container::ContainerPlan;
use super::launch::{LaunchFailure, Prepared, Stage};
use super::namespace::Namespaces;
use super::process::Child;
use super::sandbox::{Builder, Report, SandboxPlan, Spares};
use super::{check, watch};
use crate::backend::local::config::Containment;

/// Where programs are looked for when the child has no `PATH`.
pub(super) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Unread terminal output outlives the last close of the slave.
pub(super) const HOLDS_SLAVE: bool = false;

/// A pipe, closed on exec from the start.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the call returned two new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Pipes can be made larger than they are by default.
pub(super) const ENLARGES_PIPES: bool = true;

/// Makes the pipe of this end as large as the system allows, up to 1 MiB; returns how much it holds then.
pub(super) fn enlarge_pipe(fd: RawFd) -> usize {
    // The second size is for users who are near their share of pipe memory; a refusal leaves the pipe as it is.
    for size in [1 << 20, 1 << 18] {
        // SAFETY: the call touches no memory of ours.
        if let Ok(bytes) = usize::try_from(unsafe { libc::fcntl(fd, libc::F_SETPIPE_SZ, size) }) {
            return bytes;
        }
    }
    // SAFETY: the call touches no memory of ours.
    let bytes = unsafe { libc::fcntl(fd, libc::F_GETPIPE_SZ) };
    usize::try_from(bytes).unwrap_or(DEFAULT_PIPE_BYTES)
}

const DEFAULT_PIPE_BYTES: usize = 64 << 10;

/// A timer that is finer than the runtime's, which counts in milliseconds.
#[derive(Debug)]
pub(super) struct Pacer {
    timer: AsyncFd<Arc<OwnedFd>>,
}

impl Pacer {
    /// Must be called within a runtime.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: the call touches no memory.
        let timer =
            check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) })?;
        // SAFETY: the call returned a new descriptor that nobody else owns.
        let timer = unsafe { OwnedFd::from_raw_fd(timer) };
        Ok(Self { timer: watch(&Arc::new(timer), Interest::READABLE)? })
    }

    /// Starts anew; whatever elapsed before is forgotten.
    pub(super) fn start(&self, period: Duration) -> io::Result<()> {
        let once = libc::timespec { tv_sec: 0, tv_nsec: period.subsec_nanos().max(1).into() };
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = libc::itimerspec { it_interval: never, it_value: once };
        // SAFETY: the descriptor is open and the structure valid; the old setting is not asked for.
        check(unsafe { libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const setting, ptr::null_mut()) })?;
        Ok(())
    }

    /// Ready once the period has passed; then it has to be started again.
    pub(super) fn poll_elapsed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The selector tells of each start once, so that the count of the timer need not be read.
        ready!(self.timer.poll_read_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
    }
}

/// Interrupts the foreground process group of the terminal with this master.
pub(super) fn interrupt_foreground(master: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open; the request takes the signal by value and touches no memory.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSIG, libc::SIGINT) }).map(drop)
}

/// Opens the other side of a terminal. By the master, not by name: the name may mean something else, or nothing, where
/// `/dev/pts` is another one.
pub(super) fn open_slave(master: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the request takes flags by value and touches no memory.
    let mut slave = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    if slave == -1 {
        // Kernels before 4.13.
        let mut name: [c_char; 64] = [0; 64];
        // SAFETY: the buffer and its length match.
        let result = unsafe { libc::ptsname_r(master.as_raw_fd(), name.as_mut_ptr(), name.len()) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        // SAFETY: the call above wrote a terminated string.
        slave = check(unsafe { libc::open(name.as_ptr(), flags) })?;
    }
    // SAFETY: either call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(slave) })
}

/// The stack that children run on until they execute their program, and the promise that this thread blocks all
/// signals: a handler of the host that ran in the child would run in the host's memory.
#[derive(Debug)]
pub(super) struct Launcher {
    stack: Stack,
    /// Those of who is made by a child that is still on the first.
    other_stacks: [Stack; 2],
    namespaces: Namespaces,
    /// What is kept for sandboxes that come next, whoever starts them.
    spares: Arc<Spares>,
    /// What the last start has left to be done.
    rest: Option<Rest>,
    /// A thread that makes namespaces for the next sandbox, if it has nothing else to do.
    ahead: Option<(mpsc::SyncSender<Ahead>, JoinHandle<()>)>,
    /// It has looked for cgroups that were left behind.
    has_tidied: bool,
}

/// What is left to be done of a start in a sandbox.
#[derive(Debug)]
struct Rest {
    plan: SandboxPlan,
    builder: Option<Builder>,
    over: mpsc::Receiver<Infallible>,
}

/// A sandbox that is started, after which another one may come that could use what was made ahead.
type Ahead = (SandboxPlan, mpsc::Receiver<Infallible>);

impl Launcher {
    /// By itself.
    pub(super) fn new() -> io::Result<Self> {
        Self::sharing(Arc::default())
    }

    /// One of several who keep these.
    pub(super) fn sharing(spares: Arc<Spares>) -> io::Result<Self> {
        let (stack, other_stacks) = (Stack::new()?, [Stack::new()?, Stack::new()?]);
        // SAFETY: an initialised set, used to change the mask of this thread, which only launches.
        let result = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut())
        };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        Ok(Self {
            stack,
            other_stacks,
            namespaces: Namespaces::default(),
            spares,
            rest: None,
            ahead: None,
            has_tidied: false,
        })
    }

    /// Starts a child; see the steps at [`child_main`].
    pub(super) fn start(&mut self, prepared: &Prepared) -> Result<Child, LaunchFailure> {
        if prepared.candidates.is_empty() {
            // Before anything is made that would have to be removed again.
            return Err(LaunchFailure::new(Stage::Exec, io::Error::from_raw_os_error(libc::ENOENT)));
        }
        self.namespaces.return_home().map_err(|error| LaunchFailure::new(Stage::Fork, error))?;
        if let Some(sandbox) = &prepared.sandbox {
            // Its namespace holds everybody, however the process is to be contained.
            if prepared.container.is_some() && !sandbox.holds_everybody() {
                return Err(LaunchFailure::containment(NO_NAMESPACES.into()));
            }
            return self.start_in_sandbox(prepared, sandbox);
        }
        let Some(plan) = &prepared.container else {
            return self.start_in(prepared, None);
        };
        let mut reasons = Vec::new();
        for by in plan.ways() {
            let started = match self.contain(plan, by, prepared.end_with_executor) {
                Ok(container) => self.start_in(prepared, Some(container)),
                Err(reason) => Err(LaunchFailure::containment(reason)),
            };
            match started {
                // Another way may work.
                Err(LaunchFailure { stage: Stage::Contain, error }) => reasons.push(error.to_string()),
                outcome => return outcome,
            }
        }
        Err(LaunchFailure::containment(reasons.join("; ")))
    }

    fn contain(&mut self, plan: &ContainerPlan, by: Containment, end_with_executor: bool) -> Result<Container, String> {
        if by == Containment::Cgroup {
            let tidy = !std::mem::replace(&mut self.has_tidied, true);
            return Cgroup::make(plan.parent_cgroup.as_deref(), tidy).map(Container::Cgroup);
        }
        #[cfg(test)]
        if plan.no_namespaces {
            return Err("no PID namespace can be made: Operation not permitted (os error 1)".into());
        }
        Namespaces::make(self.stack.top(), end_with_executor).map(Container::PidNamespace)
    }

    /// Lends the stacks to children, one to each of three that exist at a time, and what is kept for sandboxes.
    pub(super) fn with_stacks<T>(&mut self, children: impl FnOnce([*mut c_void; 3], &Arc<Spares>) -> T) -> T {
        let [second, third] = &mut self.other_stacks;
        children([self.stack.top(), second.top(), third.top()], &self.spares)
    }

    /// Does what the last start has left to be done, once whoever waited for it goes on.
    pub(super) fn settle(&mut self) {
        let Some(Rest { plan, builder, over }) = self.rest.take() else { return };
        drop(builder);
        if !plan.lacks_new(&self.spares) {
            return;
        }
        let ahead = (plan, over);
        let ahead = match &self.ahead {
            Some((thread, _)) => match thread.try_send(ahead) {
                // If it is busy, that is for one like this, or another one will come.
                Ok(()) | Err(mpsc::TrySendError::Full(_)) => return,
                // It had no room for a stack.
                Err(mpsc::TrySendError::Disconnected(ahead)) => ahead,
            },
            None => ahead,
        };
        let (give, taken) = mpsc::sync_channel(1);
        let spares = Arc::clone(&self.spares);
        let thread = std::thread::Builder::new().name("longarm-ahead".into()).stack_size(AHEAD_STACK_BYTES);
        // Without it, the next one makes its own.
        self.ahead = thread.spawn(move || make_ahead(&taken, &spares)).ok().map(|thread| (give, thread));
        if let Some((thread, _)) = &self.ahead {
            // There is room for one.
            drop(thread.try_send(ahead));
        }
    }

    fn start_in_sandbox(&mut self, prepared: &Prepared, plan: &SandboxPlan) -> Result<Child, LaunchFailure> {
        let arrays = Arrays::new(prepared);
        let report = Report::default();
        let mut order = Order::new(prepared, &arrays);
        order.umask = Some(report.umask());
        order.parent = parent(prepared, plan.holds_everybody());
        let argument = ptr::from_ref(&order).cast_mut().cast::<c_void>();
        // SAFETY: this thread blocks all signals, and the stacks are lent to nobody else. `order` and all that it points
        // to outlive the call. `child_main` calls nothing but async-signal-safe functions.
        let started =
            self.with_stacks(|stacks, spares| unsafe { plan.start(stacks, spares, (child_main, argument), &report) });
        let mut started = started?;
        let (until, over) = mpsc::channel();
        self.rest = Some(Rest { plan: plan.clone(), builder: started.builder.take(), over });
        let child = Child::sandboxed(started, plan, until);
        match order.failure() {
            None => Ok(child),
            Some(failure) => {
                // It is ending: it called exit before this thread went on.
                child.wait_and_release();
                Err(plan.explain(failure, Path::new(OsStr::from_bytes(prepared.cwd.as_bytes()))))
            }
        }
    }

    fn start_in(&mut self, prepared: &Prepared, container: Option<Container>) -> Result<Child, LaunchFailure> {
        let arrays = Arrays::new(prepared);
        let in_namespace = matches!(container, Some(Container::PidNamespace(_)));
        let mut order = Order::new(prepared, &arrays);
        order.parent = parent(prepared, in_namespace);
        order.shows_processes = in_namespace;
        let child = match self.make(&mut order, container.as_ref(), !prepared.exit_by_thread) {
            Ok((pid, pidfd)) => Child::new(pid, pidfd, container),
            Err(failure) => {
                if let Some(container) = container {
                    container.end();
                }
                return Err(failure);
            }
        };
        let Some(failure) = order.failure() else { return Ok(child) };
        // It is ending: it called exit before this thread went on.
        child.wait_and_release();
        if failure.stage == Stage::Contain {
            let what = if in_namespace { "the processes of a new PID namespace cannot be shown" } else { ENTER_CGROUP };
            return Err(LaunchFailure::containment(format!("{what}: {}", failure.error)));
        }
        Err(failure)
    }

    /// Makes the process. Returns when it has executed its program or ended.
    fn make(
        &mut self,
        order: &mut Order<'_>,
        container: Option<&Container>,
        with_pidfd: bool,
    ) -> Result<Made, LaunchFailure> {
        match container {
            None => clone_child(&mut self.stack, order, 0, with_pidfd),
            Some(Container::PidNamespace(namespace)) => {
                let stack = &mut self.stack;
                let born = || clone_child(stack, order, libc::CLONE_NEWNS, with_pidfd);
                self.namespaces.within(namespace, born).map_err(LaunchFailure::containment)?
            }
            Some(Container::Cgroup(cgroup)) => {
                let stack = self.stack.range();
                let argument = ptr::from_mut(order).cast::<c_void>();
                let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
                // SAFETY: as in `clone_child`.
                match unsafe { clone_into(cgroup.directory(), flags, with_pidfd, stack, child_main, argument) } {
                    // SAFETY: the kernel put a new descriptor there, if any, which nobody else owns.
                    Ok((pid, fd)) => Ok((pid, (fd != -1).then(|| unsafe { OwnedFd::from_raw_fd(fd) }))),
                    Err(error) => match error.raw_os_error() {
                        // No such call, or one that a filter does not know: it enters by itself.
                        Some(libc::ENOSYS | libc::EPERM | libc::EINVAL | libc::E2BIG) => {
                            order.members = Some(cgroup.members());
                            clone_child(&mut self.stack, order, 0, with_pidfd)
                        }
                        Some(libc::EAGAIN | libc::ENOMEM) => Err(LaunchFailure::new(Stage::Fork, error)),
                        _ => Err(LaunchFailure::containment(format!("{ENTER_CGROUP}: {error}"))),
                    },
                }
            }
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        if let Some((more, thread)) = self.ahead.take() {
            drop(more);
            // A panic was reported where it happened.
            drop(thread.join());
        }
        super::sandbox::rest();
    }
}

/// Who the process has to end with. A namespace ends with us, and nobody in it can tell who made him.
fn parent(prepared: &Prepared, in_namespace: bool) -> Option<libc::pid_t> {
    // SAFETY: the call has no arguments and cannot fail.
    (prepared.end_with_executor && !in_namespace).then(|| unsafe { libc::getpid() })
}

/// A process: its number, and its pidfd where there are any.
type Made = (libc::pid_t, Option<OwnedFd>);

const NO_NAMESPACES: &str = "the partial sandboxes of this executor have no namespaces that would hold a process";
const ENTER_CGROUP: &str = "a new cgroup cannot be entered";

fn clone_child(stack: &mut Stack, order: &Order<'_>, flags: c_int, with_pidfd: bool) -> Result<Made, LaunchFailure> {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | flags;
    let mut pidfd: c_int = -1;
    let argument = ptr::from_ref(order).cast_mut().cast::<c_void>();
    let top = stack.top();
    if with_pidfd {
        // SAFETY: the child gets a stack of its own, large enough for `child_main`, which is used by one child at
        // a time since the call suspends this thread until the child is done with our memory. `order` and
        // all that it points to outlive the call. `child_main` calls nothing but async-signal-safe functions, and
        // this thread blocks all signals. The kernel writes one descriptor to `pidfd`.
        let pid = unsafe { libc::clone(child_main, top, flags | libc::CLONE_PIDFD, argument, &raw mut pidfd) };
        if pid != -1 {
            // Kernels before 5.2 ignore the flag and leave the place as it was.
            // SAFETY: the kernel put a new descriptor there, which nobody else owns.
            return Ok((pid, (pidfd != -1).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) })));
        }
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) {
            return Err(LaunchFailure::new(Stage::Fork, error));
        }
    }
    // SAFETY: as above; without the flag no descriptor is written.
    match check(unsafe { libc::clone(child_main, top, flags, argument) }) {
        Ok(pid) => Ok((pid, None)),
        Err(error) => Err(LaunchFailure::new(Stage::Fork, error)),
    }
}

/// Makes namespaces, one after the other, for sandboxes that come next. Whoever wants to start one, of another kind perhaps, is
/// not to wait for that.
fn make_ahead(taken: &mpsc::Receiver<Ahead>, spares: &Spares) {
    let Ok(mut stack) = Stack::new() else { return };
    give_way();
    while let Ok((plan, over)) = taken.recv() {
        if !plan.lacks_new(spares) {
            continue;
        }
        // A short command ends sooner, and its end is told sooner, if nothing else is done meanwhile.
        let Err(_over_or_late) = over.recv_timeout(AHEAD_AFTER);
        // SAFETY: this thread blocks all signals, as does the one that made it, and the stack is lent to nobody else.
        unsafe { plan.make_ahead(stack.top(), spares) };
    }
}

/// A mapping with an inaccessible page at its low end.
#[derive(Debug)]
struct Stack {
    base: *mut c_void,
}

// SAFETY: the mapping belongs to the value alone and is bound to no thread.
unsafe impl Send for Stack {}

const STACK_BYTES: usize = 64 << 10;
const AHEAD_STACK_BYTES: usize = 64 << 10;
/// How long a command may run before namespaces are made beside it, for the next one.
const AHEAD_AFTER: Duration = Duration::from_millis(100);
/// The largest page that Linux uses on the machines it runs on.
const GUARD_BYTES: usize = 64 << 10;

impl Stack {
    fn new() -> io::Result<Self> {
        // SAFETY: asks for a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                GUARD_BYTES + STACK_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Self { base };
        // SAFETY: the range is the start of our own mapping.
        check(unsafe { libc::mprotect(base, GUARD_BYTES, libc::PROT_NONE) })?;
        Ok(stack)
    }

    /// Where it begins, at its low end, and its size.
    fn range(&mut self) -> (*mut c_void, usize) {
        // SAFETY: inside of our own mapping.
        (unsafe { self.base.byte_add(GUARD_BYTES) }, STACK_BYTES)
    }

    /// Stacks grow down on every machine that Rust and Linux share.
    fn top(&mut self) -> *mut c_void {
        // SAFETY: one past the end of our own mapping.
        unsafe { self.base.byte_add(GUARD_BYTES + STACK_BYTES) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: unmaps our own mapping, which no child uses any more.
        unsafe { libc::munmap(self.base, GUARD_BYTES + STACK_BYTES) };
    }
}

/// From here on, this thread takes nobody else's place on a processor when it wakes up, unless its priority is the host's choice.
/// It has its share of the time as before.
pub(super) fn give_way() {
    // SAFETY: takes a number.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        return;
    }
    // SAFETY: all zeroes is a valid value of the C structure, and the priority of this policy.
    let priority: libc::sched_param = unsafe { std::mem::zeroed() };
    // It does without where that is not allowed.
    // SAFETY: reads the structure, and changes this thread only.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const priority) };
}

/// What to wait for by a pidfd.
pub(super) fn wait_target(pidfd: RawFd) -> Option<(libc::idtype_t, libc::id_t)> {
    Some((libc::P_PIDFD, libc::id_t::try_from(pidfd).ok()?))
}

/// Whether a process ends within this time. Blocks that long, or a little less if it cannot be told.
pub(super) fn has_ended_within(pidfd: &OwnedFd, limit: Duration) -> bool {
    let mut end = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which the call fills.
    unsafe { libc::poll(&raw mut end, 1, c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX)) == 1 }
}

/// A hold on a process, if there is one of this number.
pub(super) fn pidfd_of(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: the call touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = check(c_int::try_from(fd).unwrap_or(-1))?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to one process. One that has ended is no error.
pub(super) fn send(pidfd: &OwnedFd, signal: c_int) -> io::Result<()> {
    match signal_by_pidfd(pidfd.as_raw_fd(), signal, 0) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        sent => sent,
    }
}

/// Whether and how signals go to a process group by pidfd.
pub(super) fn signal_group_by_pidfd(pidfd: RawFd, signal: c_int) -> io::Result<()> {
    const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;
    signal_by_pidfd(pidfd, signal, PIDFD_SIGNAL_PROCESS_GROUP)
}

fn signal_by_pidfd(pidfd: RawFd, signal: c_int, flags: libc::c_uint) -> io::Result<()> {
    let none = ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open; without a structure of its own the call touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd, signal, none, flags) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
