//! A sandbox while its command runs, and its end.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::task::{Context, Poll, ready};

use futures_util::task::AtomicWaker;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::SandboxPlan;
use super::notice::{self, Notices};
use super::ports::Forwarders;
use super::spare::Lent;
use crate::backend::local::unix::platform::{Container, send, wait_target};
use crate::backend::local::unix::process::wait;
use crate::backend::local::unix::watch;
use crate::sandbox::Enforcement;
use crate::status::ExitStatus;

/// What belongs to a sandbox as long as its command runs.
#[derive(Debug)]
pub(in crate::backend::local::unix) struct Running {
    /// Sockets that listen inside, until somebody serves them.
    listeners: Mutex<Vec<(u16, OwnedFd)>>,
    ended: Ended,
    /// What the filter refuses, or why that is not known; none if it was not to be.
    notices: Option<io::Result<Notices>>,
    /// Namespaces for another sandbox, until somebody watches for the end.
    lent: Mutex<Option<Lent>>,
    /// Whether the one who has built it was reaped.
    is_built: Arc<Gone>,
    _over: Over,
}

/// To be dropped once the end was told: whoever has the other end goes on then.
pub(in crate::backend::local::unix) type Over = mpsc::Sender<Infallible>;

/// How the command has ended, once it was reaped. The first process of a namespace does not end before all others were
/// reaped, so that this cannot wait for the report.
type Ended = Arc<OnceLock<ExitStatus>>;

impl Running {
    pub(in crate::backend::local::unix) fn new(
        plan: &SandboxPlan,
        listeners: Vec<OwnedFd>,
        notices: Option<io::Result<Notices>>,
        (lent, is_built, over): (Option<Lent>, Arc<Gone>, Over),
    ) -> Self {
        let ports = plan.shape.namespaces().map_or(&[][..], |namespaces| &namespaces.ports);
        Self {
            listeners: Mutex::new(ports.iter().copied().zip(listeners).collect()),
            ended: Ended::default(),
            notices,
            lent: Mutex::new(lent),
            is_built,
            _over: over,
        }
    }

    /// The system calls that the filter has refused so far, and how often.
    pub(in crate::backend::local::unix) fn refused_calls(&self) -> Vec<(&'static str, u64)> {
        self.notices.iter().flatten().flat_map(Notices::refused).collect()
    }

    /// Corrects the report where the start was not what the plan was.
    pub(in crate::backend::local::unix) fn correct(&self, enforcement: &mut Enforcement) {
        if let Some(Err(why)) = &self.notices {
            enforcement.mechanisms.retain(|mechanism| mechanism != notice::MECHANISM);
            enforcement.kernel_facts.push(notice::lack(why));
        }
    }

    /// How the command has ended, if it was reaped already.
    pub(in crate::backend::local::unix) fn ended(&self) -> Option<ExitStatus> {
        self.ended.get().copied()
    }

    /// Watches for the end of the command, and brings about that of everybody else. Must be called within a runtime.
    pub(in crate::backend::local::unix) fn watch(
        &self,
        command: &Arc<OwnedFd>,
        container: Option<&Container>,
    ) -> io::Result<EndWatch> {
        let listeners = std::mem::take(&mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner));
        let first = match container {
            Some(Container::PidNamespace(namespace)) => Some(watch(namespace.first(), Interest::READABLE)?),
            _ => None,
        };
        let command = watch(command, Interest::READABLE)?;
        let lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = Arc::clone(&self.ended);
        let is_built = Arc::clone(&self.is_built);
        Ok(EndWatch { command: Some(command), first, ended, lent, is_built, _forwarders: Forwarders::new(listeners)? })
    }
}

/// That a process is gone, and who waits for that.
#[derive(Debug, Default)]
pub(in crate::backend::local::unix) struct Gone {
    is_gone: AtomicBool,
    waiter: AtomicWaker,
}

impl Gone {
    pub(super) fn tell(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.waiter.wake();
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        self.waiter.register(cx.waker());
        if self.is_gone.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Tells when the command of a sandbox has ended and nobody else is left in it.
#[derive(Debug)]
pub(in crate::backend::local) struct EndWatch {
    /// The command, until it has ended.
    command: Option<AsyncFd<Arc<OwnedFd>>>,
    /// The first process of its namespace, whose end is that of everybody.
    first: Option<AsyncFd<Arc<OwnedFd>>>,
    ended: Ended,
    lent: Option<Lent>,
    is_built: Arc<Gone>,
    _forwarders: Forwarders,
}

impl EndWatch {
    /// The first process of its namespace, if the command has ended and this is all that is waited for.
    pub(in crate::backend::local::unix) fn last(&self) -> Option<&Arc<OwnedFd>> {
        self.first.as_ref().filter(|_| self.command.is_none()).map(AsyncFd::get_ref)
    }

    pub(in crate::backend::local::unix) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(command) = &self.command {
            ready!(command.poll_read_ready(cx))?.retain_ready();
            if let Some(first) = &self.first {
                send(first.get_ref(), libc::SIGKILL)?;
                let target = wait_target(command.get_ref().as_raw_fd());
                // Nobody can say how it ended if the host has reaped it itself.
                let look = |options| target.and_then(|target| wait(target, options | libc::WNOHANG).ok().flatten());
                let status = look(libc::WEXITED | libc::WNOWAIT).unwrap_or_else(ExitStatus::unknown);
                self.ended.get_or_init(|| status);
                look(libc::WEXITED);
            }
            self.command = None;
        }
        if let Some(first) = &self.first {
            ready!(first.poll_read_ready(cx))?.retain_ready();
            // It was about to end when the command began, and the thread that has made it does nothing else but reap it.
            ready!(self.is_built.poll(cx));
            // Nobody is left.
            if let Some(lent) = self.lent.take() {
                lent.give_back();
            }
        }
        Poll::Ready(Ok(()))
    }
}
