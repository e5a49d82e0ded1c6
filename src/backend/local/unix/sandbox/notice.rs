//! Who answers the calls that filters refuse, and counts them: evidence that a sandbox has denied something.
//!
//! A [filter that tells](super::filter::telling_program) has a call wait for an answer of whoever holds its listener. One
//! thread holds those of all sandboxes of this process. To each call it counts it gives the same answer, the error that the
//! filter would have given by itself: what is allowed never depends on it. Without it, or once a listener is closed, the
//! kernel refuses the calls by another error (`ENOSYS`).
//!
//! The thread is made for the first sandbox, and ends when there has been none for a while. It is no task of a runtime, since
//! a command waits for each answer.

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::filter::TOLD;
use crate::backend::local::unix::check;
use crate::backend::local::unix::platform::give_way;

/// What a report calls it.
pub(super) const MECHANISM: &str = "seccomp notification";

/// What a report says where there is none.
pub(super) fn lack(why: &io::Error) -> String {
    format!("no {MECHANISM}: {why}")
}

/// How often each of the [`TOLD`] calls was refused in one sandbox. As many numbers, however many calls there are.
type Counts = [AtomicU64; TOLD.len()];

/// The place of a sandbox with the thread, which stays as long as there are any. It may have no listener yet.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    selector: Arc<Selector>,
}

impl Place {
    /// Takes one; makes the thread if need be, which inherits the mask of signals of the caller.
    pub(super) fn take() -> io::Result<Self> {
        let mut attendant = attendant();
        let attendant = match &mut *attendant {
            Some(attendant) => attendant,
            none => none.insert(Attendant::new()?),
        };
        attendant.last += 1;
        attendant.places.insert(attendant.last, None);
        Ok(Self { number: attendant.last, selector: Arc::clone(&attendant.selector) })
    }

    /// Has the thread answer the calls of which this listener tells.
    pub(super) fn listen(self, listener: OwnedFd) -> io::Result<Notices> {
        let counts = Arc::<Counts>::default();
        if let Some(attendant) = &mut *attendant() {
            self.selector.add(&listener, self.number)?;
            let listener = Listener { fd: listener, counts: Arc::clone(&counts) };
            attendant.places.insert(self.number, Some(Arc::new(listener)));
        }
        Ok(Notices { counts, _place: self })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut attendant = attendant();
        let Some(attendant) = &mut *attendant else { return };
        attendant.clear(self.number);
        attendant.places.remove(&self.number);
        if attendant.places.is_empty() {
            // It begins to count the time.
            self.selector.wake();
        }
    }
}

/// What the filter of one sandbox has refused. Dropped, it is not listened to any more.
#[derive(Debug)]
pub(in crate::backend::local::unix) struct Notices {
    counts: Arc<Counts>,
    _place: Place,
}

impl Notices {
    /// The calls that were refused so far, and how often. Whatever call has come back to its caller is among them.
    pub(super) fn refused(&self) -> Vec<(&'static str, u64)> {
        let counts = TOLD.iter().zip(self.counts.iter());
        counts.map(|((_, name), count)| (*name, count.load(Ordering::SeqCst))).filter(|(_, count)| *count > 0).collect()
    }
}

/// Ends the thread, and waits for that, if there is nobody left to listen to.
pub(in crate::backend::local::unix) fn rest() {
    let mut attendant = attendant();
    let idle = attendant.take_if(|attendant| attendant.places.is_empty());
    drop(attendant);
    if let Some(Attendant { selector, thread, .. }) = idle {
        selector.wake();
        let outcome = thread.join();
        debug_assert!(outcome.is_ok(), "it does not panic");
    }
}

/// The thread, and whom it listens to.
#[derive(Debug)]
struct Attendant {
    selector: Arc<Selector>,
    thread: JoinHandle<()>,
    places: HashMap<u64, Option<Arc<Listener>>>,
    last: u64,
}

static ATTENDANT: Mutex<Option<Attendant>> = Mutex::new(None);

fn attendant() -> MutexGuard<'static, Option<Attendant>> {
    ATTENDANT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attendant {
    fn new() -> io::Result<Self> {
        let (selector, mut call) = (Arc::new(Selector::new()?), Call::new()?);
        let own = Arc::clone(&selector);
        let thread = std::thread::Builder::new().name("longarm-notice".into()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || attend(&own, &mut call))?;
        Ok(Self { selector, thread, places: HashMap::new(), last: WAKE })
    }

    /// Closes the listener of a place.
    fn clear(&mut self, number: u64) {
        if let Some(listener) = self.places.get_mut(&number).and_then(Option::take) {
            self.selector.remove(&listener.fd);
        }
    }
}

/// The thread.
fn attend(selector: &Arc<Selector>, call: &mut Call) {
    // Each command wakes it when it ends, and would wait for it in the middle of that.
    give_way();
    loop {
        // It is made while the lock is held, so that it is there before it is looked for.
        let idle = match &*attendant() {
            Some(attendant) if Arc::ptr_eq(&attendant.selector, selector) => attendant.places.is_empty(),
            _ => return,
        };
        match selector.wait(idle.then_some(LINGER)) {
            Ok(None) => {
                let ours = |attendant: &mut Attendant| {
                    Arc::ptr_eq(&attendant.selector, selector) && attendant.places.is_empty()
                };
                // The handle goes with it: nobody waits for this thread.
                if attendant().take_if(ours).is_some() {
                    return;
                }
            }
            Ok(Some((WAKE, _))) => selector.calm(),
            Ok(Some((number, events))) => {
                let listener =
                    attendant().as_ref().and_then(|attendant| attendant.places.get(&number).cloned().flatten());
                // It was closed meanwhile.
                let Some(listener) = listener else { continue };
                // Without a call, it is that nobody is left who could make one.
                let is_over = events & libc::EPOLLIN.cast_unsigned() == 0 || listener.answer(call).is_err();
                drop(listener);
                if is_over && let Some(attendant) = &mut *attendant() {
                    attendant.clear(number);
                }
            }
            // It would be so for ever: without listeners, all calls fail.
            Err(_) => {
                attendant().take_if(|attendant| Arc::ptr_eq(&attendant.selector, selector));
                return;
            }
        }
    }
}

/// What tells of calls, and where they are counted.
#[derive(Debug)]
struct Listener {
    fd: OwnedFd,
    counts: Arc<Counts>,
}

impl Listener {
    /// Refuses one call. Does not block if there is one: nobody else takes any.
    ///
    /// # Errors
    ///
    /// Only what will not change.
    fn answer(&self, call: &mut Call) -> io::Result<()> {
        call.notice.fill(0);
        // SAFETY: the buffer is as large as the kernel says that its structure is, and zeroed, as the kernel wants it.
        let received = check(unsafe {
            libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, call.notice.as_mut_ptr())
        });
        match received {
            // Who made it has ended, or was interrupted.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => return Ok(()),
            received => received?,
        };
        // SAFETY: the buffer is large enough and aligned for the structure, which the kernel has filled; any bytes are valid.
        let notice = unsafe { &*call.notice.as_ptr().cast::<libc::seccomp_notif>() };
        let counts = self.counts.iter().zip(TOLD);
        let count = counts.into_iter().find(|(_, (told, _))| *told == libc::c_long::from(notice.data.nr));
        // Before the answer, after which the end of the process may be told at any time.
        if let Some((count, _)) = count {
            count.fetch_add(1, Ordering::SeqCst);
        }
        let answer = libc::seccomp_notif_resp { id: notice.id, val: 0, error: -libc::EPERM, flags: 0 };
        let answered = loop {
            // SAFETY: the buffer begins with the kernel's structure, and is at least as large as the kernel says that it is.
            let sent = check(unsafe {
                call.answer.as_mut_ptr().cast::<libc::seccomp_notif_resp>().write(answer);
                libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, call.answer.as_mut_ptr())
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => break sent,
            }
        };
        let Err(error) = answered else { return Ok(()) };
        // Nobody waits for it any more. Who was interrupted by a signal makes it again.
        if let Some((count, _)) = count {
            count.fetch_sub(1, Ordering::SeqCst);
        }
        if error.raw_os_error() == Some(libc::ENOENT) { Ok(()) } else { Err(error) }
    }
}

/// Room for a call and its answer, which newer kernels may make larger.
struct Call {
    notice: Vec<u64>,
    answer: Vec<u64>,
}

impl Call {
    fn new() -> io::Result<Self> {
        let mut sizes = libc::seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
        // SAFETY: the call fills the structure.
        let asked =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_NOTIF_SIZES, 0, ptr::from_mut(&mut sizes)) };
        check(c_int::try_from(asked).unwrap_or(-1))?;
        let room = |theirs: u16, ours: usize| vec![0; usize::from(theirs).max(ours).div_ceil(size_of::<u64>())];
        Ok(Self {
            notice: room(sizes.seccomp_notif, size_of::<libc::seccomp_notif>()),
            answer: room(sizes.seccomp_notif_resp, size_of::<libc::seccomp_notif_resp>()),
        })
    }
}

/// Waits for any of the listeners, or to be woken.
#[derive(Debug)]
struct Selector {
    epoll: OwnedFd,
    event: OwnedFd,
}

impl Selector {
    fn new() -> io::Result<Self> {
        // SAFETY: touches no memory.
        let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the call returned a new descriptor that nobody else owns.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        // SAFETY: touches no memory.
        let event = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: as above.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        let selector = Self { epoll, event };
        selector.add(&selector.event, WAKE)?;
        Ok(selector)
    }

    fn add(&self, fd: &OwnedFd, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: number };
        // SAFETY: both descriptors are open, and the kernel reads its structure.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event) })
            .map(drop)
    }

    fn remove(&self, fd: &OwnedFd) {
        // It is there. Closing it would do the same, were it not that a child that is being made has a copy.
        // SAFETY: both descriptors are open; for this the structure is not read.
        let removed = check(unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), ptr::null_mut())
        });
        debug_assert!(removed.is_ok(), "{removed:?}");
    }

    /// One event and whose it is, or none if nothing happens for so long.
    fn wait(&self, limit: Option<Duration>) -> io::Result<Option<(u64, u32)>> {
        let limit = limit.map_or(-1, |limit| c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX));
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        loop {
            // SAFETY: the kernel fills at most the one structure.
            match check(unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, limit) }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some((event.u64, event.events))),
            }
        }
    }

    fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: reads eight bytes. It fails only if it was woken very often and did not look.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Waking it again has an effect.
    fn calm(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: writes at most eight bytes. It fails only if it was not woken.
        unsafe { libc::read(self.event.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// What the selector calls its own event; places have higher numbers.
const WAKE: u64 = 0;
/// How long the thread waits for another sandbox: making it anew for each of a row of commands would cost each of them.
const LINGER: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 64 << 10;
