//! The parent's part: makes the builder, waits for it, and takes over what it made.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::child::{Failure, Report, SetUp, builder_main};
use super::notice::{Notices, Place};
use super::shape::Shape;
use crate::backend::local::unix::namespace::{PidNamespace, above};
use crate::backend::local::unix::platform::pidfd_of;
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

/// A function that a process begins with, and its argument.
pub(super) type Entry = (extern "C" fn(*mut c_void) -> c_int, *mut c_void);

/// Builds a sandbox and starts a command in it; without a command, it only tries.
///
/// # Safety
///
/// This thread blocks all signals. The two stacks are used by nobody else. The command's function is one that may run in a
/// child that shares our memory, and its argument is valid.
pub(super) unsafe fn run(
    shape: &Shape,
    stacks: [*mut c_void; 2],
    command: Option<Entry>,
    report: &Report,
) -> Result<Option<Started>, Refusal> {
    let other = |what| move |error| Refusal::Other(what, error);
    let namespaces = shape.namespaces();
    let ports = namespaces.map_or(0, |namespaces| namespaces.ports.len());
    let image = match namespaces {
        Some(_) => init_program::image().ok_or_else(|| {
            Refusal::Other("make a PID namespace on this kind of processor", io::ErrorKind::Unsupported.into())
        })?,
        None => Vec::new(),
    };
    let (read, orders) = pipe().map_err(other("make a pipe"))?;
    let read = above(&read, FIRST_FREE).map_err(other("make a pipe"))?;
    // Before the process is there, since it might have to wait for the thread.
    let place = (command.is_some() && !shape.telling_filter.is_empty()).then(Place::take);
    let tells = matches!(place, Some(Ok(_)));
    let passing = if ports > 0 || tells { Some(socket_pair().map_err(other("make a pair of sockets"))?) } else { None };
    let places = places(namespaces.map_or(0, |namespaces| namespaces.sources.len()));
    let devices: Vec<AtomicI32> =
        (0..namespaces.map_or(0, |namespaces| namespaces.devices.len())).map(|_| AtomicI32::new(-1)).collect();
    let [first_stack, second_stack] = stacks;
    let set_up = SetUp {
        shape,
        places: &places,
        devices: &devices,
        init: &image,
        orders: read.as_raw_fd(),
        passing: passing.as_ref().map_or(-1, |(_, theirs)| theirs.as_raw_fd()),
        tells,
        second_stack,
        command,
        report,
    };
    let flags =
        libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | namespaces.map_or(0, |namespaces| namespaces.flags);
    let argument = ptr::from_ref(&set_up).cast_mut().cast::<c_void>();
    // SAFETY: the child gets a stack of its own. `set_up` and all that it points to outlive the call, which suspends this
    // thread until the child has ended. `builder_main` calls nothing but async-signal-safe functions.
    let builder =
        check(unsafe { libc::clone(builder_main, first_stack, flags, argument) }).map_err(Refusal::Builder)?;
    // It has ended. Whoever else has reaped it: it is gone.
    drop(reap(builder));
    drop(read);

    let init = Newborn::new(&report.init);
    let made = Newborn::new(&report.command);
    let outcome = match report.failure() {
        Some(failure) => Err(Refusal::Step(failure)),
        None if report.done.load(Ordering::Relaxed) == 0 => {
            Err(Refusal::Other("build a sandbox", io::Error::other("the process that builds it was killed")))
        }
        None => Ok(()),
    };
    outcome?;
    let namespace = match &init {
        Some(init) => {
            set_nonblocking(orders.as_fd()).map_err(other("set a pipe up"))?;
            let first = init.open().map_err(other("watch the first process of a sandbox"))?;
            Some((first, orders))
        }
        None => None,
    };
    let mut listeners = Vec::new();
    let mut listener = None;
    if let Some((ours, theirs)) = passing {
        drop(theirs);
        listeners =
            (0..ports).map(|_| receive(&ours)).collect::<io::Result<_>>().map_err(other("take a socket over"))?;
        if report.told.load(Ordering::Relaxed) != 0 {
            listener = Some(receive(&ours).map_err(other("take the listener of a filter over"))?);
        }
    }
    let notices = match (place, listener) {
        (None, _) => None,
        // The command has that filter by now, so that nothing else will do.
        (Some(Ok(place)), Some(listener)) => Some(Ok(place.listen(listener).map_err(other("listen to a filter"))?)),
        (Some(Err(why)), _) => Some(Err(why)),
        (Some(Ok(_)), None) => Some(Err(io::Error::from_raw_os_error(report.not_told.load(Ordering::Relaxed)))),
    };
    let Some(made) = made else { return Ok(None) };
    let pidfd = made.open().map_err(other("watch a process"))?;
    let namespace = namespace.map(|(first, orders)| PidNamespace::new(first, orders));
    if let Some(init) = init {
        init.keep();
    }
    Ok(Some(Started { pid: made.keep(), pidfd, namespace, listeners, notices }))
}

/// The numbers that the init gives its descriptors are below this one.
const FIRST_FREE: RawFd = 5;

fn places(count: usize) -> Vec<(AtomicI32, AtomicI32)> {
    (0..count).map(|_| (AtomicI32::new(-1), AtomicI32::new(-1))).collect()
}

/// A child that nothing owns yet. It is killed and reaped if that stays so.
struct Newborn(libc::pid_t);

impl Newborn {
    fn new(pid: &AtomicI32) -> Option<Self> {
        let pid = pid.load(Ordering::Relaxed);
        if pid > 0 { Some(Self(pid)) } else { None }
    }

    /// It is our child and not reaped, so that the number means it.
    fn open(&self) -> io::Result<OwnedFd> {
        pidfd_of(self.0)
    }

    fn keep(self) -> libc::pid_t {
        let pid = self.0;
        std::mem::forget(self);
        pid
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        // SAFETY: touches no memory. It is our child and not reaped, so that the number means it.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        drop(reap(self.0));
    }
}

/// Waits for the end of our own child; how it ended is not asked for.
fn reap(pid: libc::pid_t) -> io::Result<()> {
    wait((libc::P_PID, pid.unsigned_abs()), libc::WEXITED).map(drop)
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: as above.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    // SAFETY: the call returned two new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Takes one descriptor from a message.
fn receive(from: &OwnedFd) -> io::Result<OwnedFd> {
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
    check(c_int::try_from(received).unwrap_or(-1))?;
    // SAFETY: the kernel has filled the structure and what it points to.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // The kernel put a new descriptor there, which nobody else owns.
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()))
    }
}
