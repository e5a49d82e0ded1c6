//! A child after its start: exit status, signals, release.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::{InputWriter, check, platform, watch};
use crate::request::Signal;
use crate::status::ExitStatus;

/// A child of ours and the process group that it leads.
///
/// The number of a process group can be used again once its leader was reaped and its last member has ended, so a
/// group may only be signalled by number while the leader is not reaped. Linux 6.9 can signal a group by its leader's
/// pidfd, which never means another one. So the leader is reaped at once where that works
/// ([`Child::outlives_leader`]), and else kept as a zombie until its streams are closed.
#[derive(Debug)]
pub(in crate::backend::local) struct Child {
    pid: libc::pid_t,
    pidfd: Option<Arc<OwnedFd>>,
    group_by_pidfd: bool,
    reaped: bool,
    /// Stands for a process that may not be signalled, such as one that took another user's rights.
    #[cfg(test)]
    pub(in crate::backend::local) refuses_signals: bool,
}

impl Child {
    pub(super) fn new(pid: libc::pid_t, pidfd: Option<OwnedFd>) -> Self {
        let group_by_pidfd =
            pidfd.as_ref().is_some_and(|pidfd| platform::signal_group_by_pidfd(pidfd.as_raw_fd(), 0).is_ok());
        Self {
            pid,
            pidfd: pidfd.map(Arc::new),
            group_by_pidfd,
            reaped: false,
            #[cfg(test)]
            refuses_signals: false,
        }
    }

    /// The process id.
    pub(in crate::backend::local) fn id(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Whether the group can be signalled, and told from an empty one, after [`Child::release`].
    pub(in crate::backend::local) fn outlives_leader(&self) -> bool {
        self.group_by_pidfd
    }

    /// The exit status, once the leader has ended. It stays a zombie.
    pub(in crate::backend::local) fn exit_status(&self) -> io::Result<Option<ExitStatus>> {
        self.wait(libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
    }

    /// Reaps the leader, which must have ended.
    pub(in crate::backend::local) fn release(&mut self) -> io::Result<()> {
        if !self.reaped {
            match self.wait(libc::WEXITED | libc::WNOHANG) {
                // The host may reap it itself, or have the system do so, which is its right and does no harm.
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {}
                waited => {
                    waited?;
                }
            }
            self.reaped = true;
        }
        Ok(())
    }

    /// Whether the group may have members after the release, where it cannot be reached any more.
    pub(in crate::backend::local) fn may_have_left_members(&self) -> bool {
        // The number may mean another group by now, so that the answer can be wrong in this direction only.
        // SAFETY: the call touches no memory; the signal 0 is none.
        let result = check(unsafe { libc::kill(-self.pid, 0) });
        !matches!(result, Err(error) if error.raw_os_error() == Some(libc::ESRCH))
    }

    /// Blocks until the leader has ended, and reaps it. Nobody is left who could be told of an error.
    #[cfg(target_os = "linux")]
    pub(super) fn wait_and_release(mut self) {
        if !self.reaped {
            self.reaped = self.wait(libc::WEXITED).is_ok();
        }
    }

    fn wait(&self, options: libc::c_int) -> io::Result<Option<ExitStatus>> {
        wait(self.pid, options)
    }

    /// Sends a signal to the group. A group that has ended is no error.
    pub(in crate::backend::local) fn signal_group(&self, signal: Signal) -> io::Result<()> {
        match self.send(signal.number()) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            // What some systems say of a group that is only a zombie.
            Err(error)
                if error.raw_os_error() == Some(libc::EPERM) && self.exit_status().is_ok_and(|s| s.is_some()) =>
            {
                Ok(())
            }
            result => result,
        }
    }

    /// Whether the group has members, where that can be told: not while its leader is a zombie.
    pub(in crate::backend::local) fn group_has_members(&self) -> Option<bool> {
        (self.group_by_pidfd && self.reaped).then(|| self.send(0).is_ok())
    }

    /// Interrupts: the foreground process group of `terminal`, if that is given and has one, else the process group.
    pub(in crate::backend::local) fn interrupt(&self, terminal: Option<&InputWriter>) -> io::Result<()> {
        // An error means that the terminal is gone, and its groups with it.
        let foreground = terminal.and_then(|terminal| Some((terminal, terminal.foreground_group().ok()??)));
        match foreground {
            Some((terminal, group)) if group != self.pid => match terminal.interrupt_foreground(group) {
                Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
                _ => Ok(()),
            },
            _ => self.signal_group(Signal::Interrupt),
        }
    }

    fn send(&self, signal: libc::c_int) -> io::Result<()> {
        #[cfg(test)]
        if self.refuses_signals {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        if let (true, Some(pidfd)) = (self.group_by_pidfd, &self.pidfd) {
            return platform::signal_group_by_pidfd(pidfd.as_raw_fd(), signal);
        }
        if self.reaped {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // SAFETY: the call touches no memory. The leader is not reaped, so that the number still means its group.
        check(unsafe { libc::kill(-self.pid, signal) }).map(drop)
    }
}

fn wait(pid: libc::pid_t, options: libc::c_int) -> io::Result<Option<ExitStatus>> {
    loop {
        // SAFETY: all zeroes is a valid value of the C structure.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: waits for our own child and fills the structure.
        let result = unsafe { libc::waitid(libc::P_PID, pid.unsigned_abs(), &raw mut info, options) };
        if result == -1 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        // SAFETY: the structure is filled by `waitid`, or still all zeroes, which means that nothing has happened.
        let (ended, status) = unsafe { (info.si_pid(), info.si_status()) };
        return Ok((ended != 0).then(|| match info.si_code {
            libc::CLD_EXITED => ExitStatus::exited(status),
            libc::CLD_KILLED | libc::CLD_DUMPED => ExitStatus::signaled(Signal::from_number(status)),
            _ => ExitStatus::unknown(),
        }));
    }
}

/// Tells when a child has ended.
#[derive(Debug)]
pub(in crate::backend::local) enum ExitWatch {
    /// Its pidfd becomes readable.
    Pidfd(AsyncFd<Arc<OwnedFd>>),
    /// A thread waits for it; on systems without pidfds.
    Thread(oneshot::Receiver<()>),
}

impl ExitWatch {
    /// Watches a child. Must be called within a runtime.
    pub(in crate::backend::local) fn new(child: &Child) -> io::Result<Self> {
        if let Some(pidfd) = &child.pidfd {
            return Ok(Self::Pidfd(watch(pidfd, Interest::READABLE)?));
        }
        let (tell, told) = oneshot::channel();
        let pid = child.pid;
        std::thread::Builder::new().name("longarm-wait".into()).stack_size(WAITER_STACK_BYTES).spawn(move || {
            // Leaves the zombie to its owner. The only error is that there is no such child any more.
            let ended = wait(pid, libc::WEXITED | libc::WNOWAIT);
            drop(ended);
            // The owner may have lost interest.
            drop(tell);
        })?;
        Ok(Self::Thread(told))
    }

    /// Ready when the child has ended.
    pub(in crate::backend::local) fn poll_exited(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Pidfd(pidfd) => {
                ready!(pidfd.poll_read_ready(cx))?.retain_ready();
                Poll::Ready(Ok(()))
            }
            Self::Thread(told) => {
                // Both a message and its absence mean that the thread has come to its end.
                std::pin::Pin::new(told).poll(cx).map(|_| Ok(()))
            }
        }
    }
}

const WAITER_STACK_BYTES: usize = 64 << 10;
