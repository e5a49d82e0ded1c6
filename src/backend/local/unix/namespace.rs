//! A PID namespace of its own for one process and all that it starts.
//!
//! The first process of the namespace is a program of a few instructions ([`init_program`]). The command is not its child
//! but ours, made in the namespace: so its exit status, its process group, its signals and its terminal are to us what
//! those of any other child are, and nothing has to be passed on. Only its orphans belong to the first process.
//!
//! A user namespace would let anybody make a PID namespace, but changes who the command is: programs with rights of their
//! own (`sudo`, `ping`) lose them, and files of others seem to be nobody's. So this takes the right to make namespaces.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::child::{close_all_from, errno, reset_dispositions};
use super::platform::{pidfd_of, pipe, send};
use super::process::wait;
use super::{check, init_program, set_nonblocking};

/// A PID namespace, by its first process.
#[derive(Debug)]
pub(super) struct PidNamespace {
    /// The first process, which is a child of ours.
    first: Arc<OwnedFd>,
    /// What it reads from.
    orders: OwnedFd,
    /// How often somebody has looked whether it is alone.
    looks: AtomicU32,
}

/// So often it is only waited for the first process: to look for strays takes a look at every child of this process.
const LOOKS_BEFORE_STRAYS: u32 = 3;

impl PidNamespace {
    /// The namespace of this first process, which reads from the other end of `orders`.
    pub(super) fn new(first: OwnedFd, orders: OwnedFd) -> Self {
        Self { first: Arc::new(first), orders, looks: AtomicU32::new(0) }
    }

    /// The first process.
    pub(super) fn first(&self) -> &Arc<OwnedFd> {
        &self.first
    }

    /// Ends the first process, with which the kernel kills all others.
    pub(super) fn kill(&self) -> io::Result<()> {
        send(&self.first, libc::SIGKILL)
    }

    /// Has the first process send a signal to all others. If there are none, it ends.
    pub(super) fn signal(&self, signal: c_int) -> io::Result<()> {
        let order = [u8::try_from(signal).map_err(io::Error::other)?];
        match super::write(self.orders.as_raw_fd(), &order) {
            // It has ended, and everybody with it.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            // Somebody has stopped it, so that all that was ordered waits. Only a kill gets past that.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result.map(drop),
        }
    }

    /// Whether anybody but the first process is left: it ends when it is asked and is alone.
    pub(super) fn has_members(&self) -> bool {
        // Without an answer the next look tells.
        drop(self.signal(0));
        if self.reap(libc::WNOHANG) {
            return false;
        }
        // It needs a moment to find that it is alone.
        if self.looks.fetch_add(1, Ordering::Relaxed) >= LOOKS_BEFORE_STRAYS {
            self.reap_strays();
        }
        true
    }

    /// Reaps children of ours in the namespace that we have not made: a member has made them our children (`CLONE_PARENT`).
    /// The first process is not alone before all others were reaped, nor does it end, and nobody else can do it.
    fn reap_strays(&self) {
        let Some(first) = number_of(&self.first) else { return };
        let namespace = |pid: libc::pid_t| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let Some(ours) = namespace(first) else { return };
        // What cannot be looked at now, can when it is looked again.
        for pid in children().unwrap_or_else(|| numbers_in("/proc")) {
            let is_member = || pid != first && namespace(pid).as_ref() == Some(&ours);
            if !is_member() {
                continue;
            }
            let Ok(member) = pidfd_of(pid) else { continue };
            // The number may mean somebody else by now, and somebody else here if this is the `/proc` of others. Whoever is no
            // child of ours cannot be waited for.
            if number_of(&member) == Some(pid) && is_member() {
                drop(wait((libc::P_PIDFD, member.as_raw_fd().unsigned_abs()), libc::WEXITED | libc::WNOHANG));
            }
        }
    }

    pub(super) fn end(&self) {
        // It is ours and has no other rights than we have.
        drop(self.kill());
        self.reap(0);
    }

    /// Whether the first process has ended and was reaped.
    fn reap(&self, options: c_int) -> bool {
        match wait((libc::P_PIDFD, self.first.as_raw_fd().unsigned_abs()), options | libc::WEXITED) {
            Ok(status) => status.is_some(),
            // Whoever else has reaped it: it is gone.
            Err(error) => error.raw_os_error() == Some(libc::ECHILD),
        }
    }
}

/// Makes PID namespaces, and has this thread's children be born in them.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    /// They are born in one that was made for another child, since the way back failed.
    astray: bool,
}

impl Namespaces {
    /// Makes a namespace, whose first process runs on the stack that ends at `top` until it executes its program. With
    /// `end_with_thread` it ends with this thread.
    ///
    /// # Errors
    ///
    /// Why that cannot be, for whoever can change it.
    pub(super) fn make(top: *mut c_void, end_with_thread: bool) -> Result<PidNamespace, String> {
        let failed = |error: io::Error| format!("no PID namespace can be made: {error}");
        let image = init_program::image().ok_or("there are no PID namespaces for this kind of processor")?;
        // Made anew each time, so that no thread keeps one.
        let program = executable(&image).map_err(failed)?;
        let (read, orders) = pipe().map_err(failed)?;
        let order = Order {
            program: program.as_raw_fd(),
            // Out of the way of the numbers that it gets.
            orders: above(&read, FIRST_FREE).map_err(failed)?,
            other_end: orders.as_raw_fd(),
            end_with_thread,
            errno: AtomicI32::new(0),
        };
        let mut pidfd: c_int = -1;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_NEWPID | libc::CLONE_PIDFD | libc::SIGCHLD;
        let argument = ptr::from_ref(&order).cast_mut().cast::<c_void>();
        // SAFETY: the child gets a stack of its own, which no other child uses: the call suspends this thread until the
        // child is done with our memory. `order` outlives the call. `first_main` calls nothing but async-signal-safe
        // functions, and this thread blocks all signals. The kernel writes one descriptor to `pidfd`.
        let pid = check(unsafe { libc::clone(first_main, top, flags, argument, &raw mut pidfd) }).map_err(failed)?;
        // Kernels before 5.2 ignore the flag and leave the place as it was.
        // SAFETY: the kernel put a new descriptor there, which nobody else owns.
        let first = (pidfd != -1).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
        // Those before 5.4 cannot wait for one.
        let Some(first) = first.filter(can_be_waited_for) else {
            // It ends with our end of the pipe.
            drop(orders);
            drop(wait((libc::P_PID, pid.unsigned_abs()), libc::WEXITED));
            return Err("no PID namespace can be made: this kernel cannot wait for pidfds (Linux 5.4)".into());
        };
        let namespace = PidNamespace::new(first, orders);
        let prepared = match order.errno.load(Ordering::Relaxed) {
            0 => set_nonblocking(std::os::fd::AsFd::as_fd(&namespace.orders)),
            errno => Err(io::Error::from_raw_os_error(errno)),
        };
        prepared.map_err(|error| {
            namespace.end();
            failed(error)
        })?;
        Ok(namespace)
    }

    /// Runs `birth` while children of this thread are born in `namespace`.
    pub(super) fn within<T>(&mut self, namespace: &PidNamespace, birth: impl FnOnce() -> T) -> Result<T, String> {
        let failed = |error: io::Error| format!("the PID namespace cannot be entered: {error}");
        bear_in(&namespace.first).map_err(failed)?;
        self.astray = true;
        let born = birth();
        // If it fails, it is tried again before the next start.
        drop(self.return_home());
        Ok(born)
    }

    /// Makes sure that children of this thread are born where this process is.
    pub(super) fn return_home(&mut self) -> io::Result<()> {
        if self.astray {
            // This process stands for the namespace that it is in itself.
            // SAFETY: the call has no arguments and cannot fail.
            bear_in(&pidfd_of(unsafe { libc::getpid() })?)?;
            self.astray = false;
        }
        Ok(())
    }
}

/// Our children, those of all threads. None where the kernel does not list them.
fn children() -> Option<Vec<libc::pid_t>> {
    let threads = numbers_in("/proc/self/task").into_iter().map(|thread| {
        match std::fs::read_to_string(format!("/proc/self/task/{thread}/children")) {
            // The thread has ended: its children are those of others.
            Err(_) if std::fs::exists(format!("/proc/self/task/{thread}")).is_ok_and(|exists| !exists) => {
                Some(Vec::new())
            }
            listed => Some(listed.ok()?.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()),
        }
    });
    Some(threads.collect::<Option<Vec<Vec<_>>>>()?.concat())
}

/// What is named by a number in a directory.
fn numbers_in(directory: &str) -> Vec<libc::pid_t> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The number of a process of which there is a pidfd; none if it was reaped.
fn number_of(pidfd: &OwnedFd) -> Option<libc::pid_t> {
    let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let number = facts.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
    (number > 0).then_some(number)
}

fn can_be_waited_for(pidfd: &OwnedFd) -> bool {
    let looked = wait((libc::P_PIDFD, pidfd.as_raw_fd().unsigned_abs()), libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
    !matches!(looked, Err(error) if error.raw_os_error() == Some(libc::EINVAL))
}

/// Has children of this thread be born in the PID namespace of a process.
fn bear_in(process: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open; the call touches no memory, and concerns the later children of this thread only.
    check(unsafe { libc::setns(process.as_raw_fd(), libc::CLONE_NEWPID) }).map(drop)
}

/// A file without a name that holds a program, and can be sealed.
pub(super) fn executable(image: &[u8]) -> io::Result<OwnedFd> {
    const MFD_EXEC: libc::c_uint = 0x10;
    const FLAGS: libc::c_uint = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let name = c"longarm-init".as_ptr();
    // SAFETY: the name is a constant with a terminating NUL.
    let mut fd = unsafe { libc::memfd_create(name, FLAGS | MFD_EXEC) };
    if fd == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        // Kernels before 6.3 do not know that flag, and need none.
        // SAFETY: as above.
        fd = unsafe { libc::memfd_create(name, FLAGS) };
    }
    // SAFETY: the call returned a new descriptor that nobody else owns.
    let file = unsafe { OwnedFd::from_raw_fd(check(fd)?) };
    let mut written = 0;
    while written < image.len() {
        written += super::write(file.as_raw_fd(), &image[written..])?;
    }
    // Out of the way of the numbers that its process gets.
    above(&file, FIRST_FREE)
}

/// The same file under a number from `least` on.
pub(super) fn above(fd: &OwnedFd, least: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open; the call touches no memory.
    let new = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

/// What a first process has to do, and where it says what failed. Lives in memory that parent and child share.
struct Order {
    program: RawFd,
    orders: OwnedFd,
    /// Where the parent writes them, of which the child has a copy.
    other_end: RawFd,
    end_with_thread: bool,
    errno: AtomicI32,
}

/// Where the program reads its orders, and where it is itself until it runs.
const ORDERS: RawFd = 3;
const PROGRAM: RawFd = 4;
const FIRST_FREE: RawFd = 5;

/// The first process of a namespace, until it executes its program. It runs in the parent's memory on a stack of its own:
/// it allocates nothing, locks nothing, unwinds nowhere, and calls only what is safe in a signal handler.
extern "C" fn first_main(order: *mut c_void) -> c_int {
    // SAFETY: the parent passes a valid `Order` and is suspended as long as we run.
    let order = unsafe { &*order.cast::<Order>() };
    // SAFETY: system calls on descriptors of `order` and on memory of our own stack, all safe in a signal handler.
    unsafe {
        if !become_first(order) {
            order.errno.store(errno(), Ordering::Relaxed);
        }
        // Ends this process without running anything of the parent's.
        libc::_exit(127)
    }
}

/// Returns false if a call failed. All signals stay blocked: the program handles none.
///
/// # Safety
///
/// Only in a child that shares memory with its suspended parent.
unsafe fn become_first(order: &Order) -> bool {
    const NAME: &CStr = c"longarm-init";
    // SAFETY: see the caller.
    unsafe {
        if order.end_with_thread {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) == -1 {
                return false;
            }
            // The parent may have died before the call, which then never fires; its end of the pipe has died with it, and
            // must not seem to live by our copy.
            libc::close(order.other_end);
            let mut orders = libc::pollfd { fd: order.orders.as_raw_fd(), events: 0, revents: 0 };
            if libc::poll(&raw mut orders, 1, 0) != 0 {
                libc::_exit(127);
            }
        }
        reset_dispositions();
        // The kernel reaps what nobody asks for. This survives the execution.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        if libc::setsid() == -1
            || libc::chdir(c"/".as_ptr()) == -1
            || libc::dup2(order.orders.as_raw_fd(), ORDERS) == -1
            || libc::dup3(order.program, PROGRAM, libc::O_CLOEXEC) == -1
        {
            return false;
        }
        close_all_from(FIRST_FREE);
        for fd in 0..ORDERS {
            libc::close(fd);
        }
        let argv: [*const c_char; 2] = [NAME.as_ptr(), ptr::null()];
        let envp: [*const c_char; 1] = [ptr::null()];
        libc::syscall(libc::SYS_execveat, PROGRAM, c"".as_ptr(), argv.as_ptr(), envp.as_ptr(), libc::AT_EMPTY_PATH);
        false
    }
}

/// Shows the processes of a new PID namespace in `/proc`, to whoever shares the mount namespace of this child. Returns
/// false if that failed.
///
/// # Safety
///
/// Only in a child that has a mount namespace of its own.
pub(super) unsafe fn show_processes() -> bool {
    let (proc, kind) = (c"/proc".as_ptr(), c"proc".as_ptr());
    // SAFETY: constant strings, and system calls that are safe in a signal handler.
    unsafe {
        // So that the mount below stays in this namespace.
        if libc::mount(ptr::null(), proc, ptr::null(), libc::MS_PRIVATE, ptr::null()) == -1 {
            // Nothing is mounted there, so that nobody misses it.
            return matches!(errno(), libc::EINVAL | libc::ENOENT);
        }
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        libc::mount(kind, proc, kind, flags, ptr::null()) == 0
    }
}
