//! A child after its start: exit status, signals, release.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::{InputWriter, check, platform, watch};
use crate::request::Signal;
use crate::sandbox::Enforcement;
use crate::status::ExitStatus;

/// A child of ours and the process group that it leads.
///
/// The number of a process group can be used again once its leader was reaped and its last member has ended, so a
/// group may only be signalled by number while the leader is not reaped. Linux 6.9 can signal a group by its leader's
/// pidfd, which never means another one. So the leader is reaped at once where that works
/// ([`Child::outlives_leader`]), and else kept as a zombie until its streams are closed.
///
/// A container holds the group and all who have left it. It can always be told from another one.
#[derive(Debug)]
pub(in crate::backend::local) struct Child {
    pid: libc::pid_t,
    pidfd: Option<Arc<OwnedFd>>,
    group_by_pidfd: bool,
    /// By us or, which is its right, by the host. From then on its number can mean another process.
    reaped: Cell<bool>,
    container: Option<platform::Container>,
    /// It runs in a sandbox, with which it ends as a whole.
    #[cfg(target_os = "linux")]
    sandbox: Option<super::sandbox::Running>,
    /// Whoever is left of its group ends with it.
    #[cfg(not(target_os = "linux"))]
    ends_with_leader: bool,
    /// Stands for a process that may not be signalled, such as one that took another user's rights.
    #[cfg(test)]
    pub(in crate::backend::local) refuses_signals: bool,
}

impl Child {
    pub(super) fn new(pid: libc::pid_t, pidfd: Option<OwnedFd>, container: Option<platform::Container>) -> Self {
        let group_by_pidfd =
            pidfd.as_ref().is_some_and(|pidfd| platform::signal_group_by_pidfd(pidfd.as_raw_fd(), 0).is_ok());
        Self {
            pid,
            pidfd: pidfd.map(Arc::new),
            group_by_pidfd,
            reaped: Cell::new(false),
            container,
            #[cfg(target_os = "linux")]
            sandbox: None,
            #[cfg(not(target_os = "linux"))]
            ends_with_leader: false,
            #[cfg(test)]
            refuses_signals: false,
        }
    }

    /// A command that runs in a sandbox.
    #[cfg(target_os = "linux")]
    pub(super) fn sandboxed(
        started: super::sandbox::Started,
        plan: &super::sandbox::SandboxPlan,
        over: super::sandbox::Over,
    ) -> Self {
        let super::sandbox::Started { pid, pidfd, namespace, listeners, notices, lent, builder, is_built } = started;
        drop(builder);
        let container = namespace.map(platform::Container::PidNamespace);
        let sandbox = Some(super::sandbox::Running::new(plan, listeners, notices, (lent, is_built, over)));
        Self { sandbox, ..Self::new(pid, Some(pidfd), container) }
    }

    /// The same child, with which its group ends, as in a sandbox.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn ends_with_leader(mut self) -> Self {
        self.ends_with_leader = true;
        self
    }

    /// The process id.
    pub(in crate::backend::local) fn id(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// The system calls that the filter of its sandbox has refused so far, and how often, as far as that is told.
    pub(in crate::backend::local) fn refused_calls(&self) -> Vec<(&'static str, u64)> {
        #[cfg(target_os = "linux")]
        if let Some(sandbox) = &self.sandbox {
            return sandbox.refused_calls();
        }
        Vec::new()
    }

    /// Corrects the report on its sandbox where the start was not what the plan was.
    pub(in crate::backend::local) fn correct(&self, enforcement: &mut Enforcement) {
        #[cfg(target_os = "linux")]
        if let Some(sandbox) = &self.sandbox {
            sandbox.correct(enforcement);
        }
        // Elsewhere all is known before.
        #[cfg(not(target_os = "linux"))]
        let _ = enforcement;
    }

    /// Whether the tree can be signalled, and told from an empty one, after [`Child::release`].
    pub(in crate::backend::local) fn outlives_leader(&self) -> bool {
        self.group_by_pidfd || self.container.is_some()
    }

    /// Whether nobody of the tree may outlive the leader.
    pub(in crate::backend::local) fn ends_as_a_whole(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.sandbox.is_some();
        #[cfg(not(target_os = "linux"))]
        self.ends_with_leader
    }

    /// Whether something has to be removed once the last member of the tree has ended.
    pub(in crate::backend::local) fn needs_clean_up(&self) -> bool {
        self.container.is_some()
    }

    /// The exit status, once the leader has ended. It stays a zombie.
    pub(in crate::backend::local) fn exit_status(&self) -> io::Result<Option<ExitStatus>> {
        self.wait(libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
    }

    /// Reaps the leader, which must have ended.
    pub(in crate::backend::local) fn release(&self) -> io::Result<()> {
        match self.wait(libc::WEXITED | libc::WNOHANG) {
            // The host may reap it itself, or have the system do so, which is its right and does no harm.
            Err(_) if self.reaped.get() => {}
            waited => {
                waited?;
            }
        }
        self.reaped.set(true);
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
    pub(super) fn wait_and_release(self) {
        drop(self.wait(libc::WEXITED));
        if let Some(container) = &self.container {
            container.end();
        }
    }

    /// Waits by the pidfd where there is one, since the number may mean another child of the host once the host itself has
    /// reaped this one.
    fn wait(&self, options: libc::c_int) -> io::Result<Option<ExitStatus>> {
        #[cfg(target_os = "linux")]
        if let Some(status) = self.sandbox.as_ref().and_then(super::sandbox::Running::ended) {
            self.reaped.set(true);
            return Ok(Some(status));
        }
        if self.reaped.get() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        let by_pidfd = self.pidfd.as_ref().and_then(|pidfd| platform::wait_target(pidfd.as_raw_fd()));
        let by_number = (libc::P_PID, self.pid.unsigned_abs());
        let waited = match by_pidfd.map(|target| wait(target, options)) {
            // Linux before 5.4 has pidfds and cannot wait for them.
            Some(Err(error)) if error.raw_os_error() == Some(libc::EINVAL) => wait(by_number, options),
            Some(waited) => waited,
            None => wait(by_number, options),
        };
        if matches!(&waited, Err(error) if error.raw_os_error() == Some(libc::ECHILD)) {
            self.reaped.set(true);
        }
        waited
    }

    /// Sends a signal to the tree: the group, or all whom the container holds. A tree that has ended is no error.
    pub(in crate::backend::local) fn signal_tree(&self, signal: Signal) -> io::Result<()> {
        let Some(container) = &self.container else { return self.signal_group(signal) };
        if signal == Signal::Kill {
            // Also the group: somebody with the right to can have moved a member elsewhere. One that may not be signalled,
            // since it took another user's rights, is killed by its container all the same.
            let group = self.signal_group(signal);
            return container.kill().or_else(|error| group.and(Err(error)));
        }
        let mut told = None;
        if !container.signals_at_once() && self.signal_group(signal).is_ok() {
            told = (self.group_by_pidfd || !self.reaped.get()).then_some(self.pid);
        }
        // Whoever of the group was not told is told, or refuses, as one of all.
        container.signal(signal, told)
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

    /// Whether the tree has members, where that can be told: not while its leader is a zombie.
    pub(in crate::backend::local) fn tree_has_members(&self) -> Option<bool> {
        match &self.container {
            _ if !self.reaped.get() => None,
            Some(container) => Some(container.has_members()),
            None => self.group_by_pidfd.then(|| self.send(0).is_ok()),
        }
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
        // The host may have reaped it since the last look.
        drop(self.exit_status());
        if self.reaped.get() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // SAFETY: the call touches no memory. The leader is not reaped, so that the number still means its group.
        check(unsafe { libc::kill(-self.pid, signal) }).map(drop)
    }
}

pub(super) fn wait((kind, id): (libc::idtype_t, libc::id_t), options: libc::c_int) -> io::Result<Option<ExitStatus>> {
    loop {
        // SAFETY: all zeroes is a valid value of the C structure.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: waits for our own child and fills the structure.
        let result = unsafe { libc::waitid(kind, id, &raw mut info, options) };
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
    /// As before, and with it everybody else in its sandbox ends.
    #[cfg(target_os = "linux")]
    Sandbox(Box<super::sandbox::EndWatch>),
    /// A thread waits for it; on systems without pidfds.
    Thread(oneshot::Receiver<()>),
}

impl ExitWatch {
    /// Watches a child. Must be called within a runtime.
    pub(in crate::backend::local) fn new(child: &Child) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let (Some(sandbox), Some(pidfd)) = (&child.sandbox, &child.pidfd) {
            return Ok(Self::Sandbox(Box::new(sandbox.watch(pidfd, child.container.as_ref())?)));
        }
        if let Some(pidfd) = &child.pidfd {
            return Ok(Self::Pidfd(watch(pidfd, Interest::READABLE)?));
        }
        let (tell, told) = oneshot::channel();
        let pid = child.pid;
        #[cfg(not(target_os = "linux"))]
        let ends_with_leader = child.ends_with_leader;
        std::thread::Builder::new().name("longarm-wait".into()).stack_size(WAITER_STACK_BYTES).spawn(move || {
            // Leaves the zombie to its owner. The only error is that there is no such child any more.
            let ended = wait((libc::P_PID, pid.unsigned_abs()), libc::WEXITED | libc::WNOWAIT);
            #[cfg(not(target_os = "linux"))]
            if ends_with_leader && ended.is_ok() {
                // It is a zombie until its exit is told, so that the number still means its group. One that is empty is no error.
                // SAFETY: the call touches no memory.
                drop(check(unsafe { libc::kill(-pid, libc::SIGKILL) }));
            }
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
            #[cfg(target_os = "linux")]
            Self::Sandbox(watch) => watch.poll_ended(cx),
            Self::Thread(told) => {
                // Both a message and its absence mean that the thread has come to its end.
                std::pin::Pin::new(told).poll(cx).map(|_| Ok(()))
            }
        }
    }
}

impl ExitWatch {
    /// Waits until the child has ended, for a bounded time, where it is known to be about to: returns whether it has. Blocks. None
    /// where it is not.
    #[cfg(target_os = "linux")]
    pub(in crate::backend::local) fn last_moments(&self) -> Option<impl FnOnce() -> bool + Send + use<>> {
        const MOMENTS: std::time::Duration = std::time::Duration::from_millis(100);
        let Self::Sandbox(watch) = self else { return None };
        let last = Arc::clone(watch.last()?);
        Some(move || platform::has_ended_within(&last, MOMENTS))
    }

    /// The same, where nobody is.
    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self, reason = "it has the names of the system that can tell")]
    pub(in crate::backend::local) fn last_moments(&self) -> Option<fn() -> bool> {
        None
    }
}

const WAITER_STACK_BYTES: usize = 64 << 10;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::fd::FromRawFd;
    use std::process::{Command, Stdio};

    use super::*;

    fn pidfd(pid: u32) -> OwnedFd {
        // SAFETY: the call touches no memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        // SAFETY: the call returned a new descriptor that nobody else owns.
        unsafe { OwnedFd::from_raw_fd(libc::c_int::try_from(fd).unwrap()) }
    }

    fn signed(pid: u32) -> libc::pid_t {
        libc::pid_t::try_from(pid).unwrap()
    }

    #[test]
    fn another_child_under_the_same_number_is_not_taken_for_this_one() {
        let mut ours = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut other = Command::new("true").spawn().unwrap();
        // As after the host has reaped ours, and the number was given to the other one.
        let child = Child::new(signed(other.id()), Some(pidfd(ours.id())), None);
        let ended = wait((libc::P_PID, other.id()), libc::WEXITED | libc::WNOWAIT).unwrap();
        assert!(ended.is_some_and(|status| status.success()), "the other one has ended");
        assert_eq!(child.exit_status().unwrap(), None, "ours runs");
        ours.kill().unwrap();
        ours.wait().unwrap();
        assert_eq!(child.exit_status().unwrap_err().raw_os_error(), Some(libc::ECHILD));
        child.release().unwrap();
        assert!(other.wait().unwrap().success(), "its status is still there for who owns it");
    }

    #[test]
    fn a_number_that_the_host_has_given_back_is_not_signalled() {
        let mut process = Command::new("true").spawn().unwrap();
        let child = Child::new(signed(process.id()), None, None);
        process.wait().unwrap();
        assert_eq!(child.send(0).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(child.reaped.get(), "so that a later owner of the number is safe");
        child.signal_group(Signal::Kill).unwrap();
    }
}
