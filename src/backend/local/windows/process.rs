//! A child after its start: exit status, signals, release.

use std::io;
use std::os::windows::io::OwnedHandle;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use windows::Win32::Foundation::{WAIT_OBJECT_0, WAIT_TIMEOUT};
use windows::Win32::System::Console::{CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent};
use windows::Win32::System::Threading::{GetExitCodeProcess, WaitForSingleObject};

use super::InputWriter;
use super::job::Job;
use super::system::{check, raw};
use super::terminal::Console;
use super::wait::Wait;
use crate::request::Signal;
use crate::status::ExitStatus;

/// A child of ours and the job that it leads.
#[derive(Debug)]
pub(in crate::backend::local) struct Child {
    /// Means this process as long as `process` is open.
    id: u32,
    process: Arc<OwnedHandle>,
    job: Arc<Job>,
    console: Option<Arc<Console>>,
    /// It uses the same console as we do.
    shares_console: bool,
    /// The exit code that the job was ended with; zero if it was not.
    ended_with: AtomicU32,
    /// Whoever is left of its job ends with it, as in a sandbox.
    ends_with_leader: bool,
}

impl Child {
    pub(super) fn new(
        id: u32,
        process: OwnedHandle,
        job: Arc<Job>,
        console: Option<Arc<Console>>,
        shares_console: bool,
        ends_with_leader: bool,
    ) -> Self {
        let (process, ended_with) = (Arc::new(process), AtomicU32::new(0));
        Self { id, process, job, console, shares_console, ended_with, ends_with_leader }
    }

    /// The process id.
    pub(in crate::backend::local) fn id(&self) -> u32 {
        self.id
    }

    /// The system calls that a sandbox has refused, and how often: that is not told here.
    pub(in crate::backend::local) fn refused_calls(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Corrects the report on its sandbox where the start was not what the plan was: it is.
    pub(in crate::backend::local) fn correct(&self, _enforcement: &mut crate::sandbox::Enforcement) {}

    /// Whether the group can be signalled, and told from an empty one, after [`Child::release`]: always.
    pub(in crate::backend::local) fn outlives_leader(&self) -> bool {
        true
    }

    /// Whether everybody ends with the leader.
    pub(in crate::backend::local) fn ends_as_a_whole(&self) -> bool {
        self.ends_with_leader
    }

    /// Whether something has to be removed once the last member of the group has ended: the system does that.
    pub(in crate::backend::local) fn needs_clean_up(&self) -> bool {
        false
    }

    /// The exit status, once the leader has ended.
    pub(in crate::backend::local) fn exit_status(&self) -> io::Result<Option<ExitStatus>> {
        // Whether it has ended cannot be told from the code, which is 259 before, and may be after.
        if !self.has_ended()? {
            return Ok(None);
        }
        let mut code = 0;
        // SAFETY: the handle is open; the call writes the code.
        check(unsafe { GetExitCodeProcess(raw(&*self.process), &raw mut code) })?;
        let ended_with = self.ended_with.load(Ordering::Relaxed);
        if ended_with != 0 && ended_with == code {
            let signal = Signal::from_number(code.cast_signed() - SIGNAL_BASE);
            return Ok(Some(ExitStatus::signaled(signal)));
        }
        Ok(Some(ExitStatus::exited(code.cast_signed())))
    }

    /// Nothing is to be done: the system keeps an ended process for as long as there are handles.
    pub(in crate::backend::local) fn release(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whether the job may have members that cannot be reached any more.
    pub(in crate::backend::local) fn may_have_left_members(&self) -> bool {
        self.job.has_members().unwrap_or(true)
    }

    fn has_ended(&self) -> io::Result<bool> {
        // SAFETY: the handle is open; the call touches no memory of ours.
        match unsafe { WaitForSingleObject(raw(&*self.process), 0) } {
            WAIT_OBJECT_0 => Ok(true),
            WAIT_TIMEOUT => Ok(false),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends a signal to the group. A group that has ended is no error; what the system has no form of is
    /// [`io::ErrorKind::Unsupported`].
    pub(in crate::backend::local) fn signal_group(&self, signal: Signal) -> io::Result<()> {
        match signal {
            Signal::Kill => self.end(Signal::Kill),
            Signal::Terminate => self.ask(),
            Signal::Interrupt => self.interrupt(None),
            Signal::Quit if self.console.is_none() => self.send_break(),
            Signal::Hangup => match &self.console {
                Some(console) => {
                    console.close();
                    Ok(())
                }
                None => Err(io::ErrorKind::Unsupported.into()),
            },
            // Nothing is ever stopped here.
            Signal::Continue => Ok(()),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sends a signal to the tree, which is the group: nobody can leave it.
    pub(in crate::backend::local) fn signal_tree(&self, signal: Signal) -> io::Result<()> {
        self.signal_group(signal)
    }

    /// Whether the group has members, where that can be told.
    pub(in crate::backend::local) fn tree_has_members(&self) -> Option<bool> {
        self.job.has_members().ok()
    }

    /// Interrupts: the process that reads from `terminal`, if that is given, else the process group.
    pub(in crate::backend::local) fn interrupt(&self, terminal: Option<&InputWriter>) -> io::Result<()> {
        match terminal {
            Some(terminal) => match terminal.write_urgent(CTRL_C) {
                // The console is gone, and its processes with it.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                result => result,
            },
            // Nothing but the input of the console carries an interrupt to it.
            None if self.console.is_some() && self.tree_has_members() == Some(false) => Ok(()),
            None if self.console.is_some() => Err(io::ErrorKind::Unsupported.into()),
            None => self.send_break(),
        }
    }

    /// Asks the group to end; where nothing carries a question to it, ends it.
    fn ask(&self) -> io::Result<()> {
        if let Some(console) = &self.console {
            console.close();
            return Ok(());
        }
        match self.send_break() {
            Ok(()) => Ok(()),
            Err(_) => self.end(Signal::Terminate),
        }
    }

    fn end(&self, signal: Signal) -> io::Result<()> {
        let code = (SIGNAL_BASE + signal.number()).cast_unsigned();
        // The first one is the one that ended it. Before the call, so that whoever sees the exit sees this.
        let first = self.ended_with.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
        self.job.terminate(first.map_or_else(|earlier| earlier, |_| code))?;
        if let Some(console) = &self.console {
            console.close();
        }
        Ok(())
    }

    fn send_break(&self) -> io::Result<()> {
        if !self.shares_console {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: the call touches no memory of ours. The number is not zero, which would mean our own group, and means
        // the group of this child, since its process is kept open.
        match check(unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, self.id) }) {
            Ok(()) => Ok(()),
            // The group has ended, or is not on our console (any more).
            Err(_) if self.tree_has_members() == Some(false) => Ok(()),
            Err(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Tells when a child has ended.
#[derive(Debug)]
pub(in crate::backend::local) struct ExitWatch {
    state: Arc<State>,
    _wait: Wait,
}

#[derive(Debug, Default)]
struct State {
    ended: AtomicBool,
    waker: AtomicWaker,
}

impl ExitWatch {
    /// Watches a child.
    pub(in crate::backend::local) fn new(child: &Child) -> io::Result<Self> {
        let state: Arc<State> = Arc::default();
        let told = Arc::clone(&state);
        let job = child.ends_with_leader.then(|| Arc::clone(&child.job));
        let wait = Wait::once(Arc::clone(&child.process), move || {
            if let Some(job) = &job {
                // A job without members is no error, and nobody is there who could do something about another one.
                drop(job.terminate(ABANDONED));
            }
            told.ended.store(true, Ordering::Release);
            told.waker.wake();
        })?;
        Ok(Self { state, _wait: wait })
    }

    /// Ready when the child has ended.
    pub(in crate::backend::local) fn poll_exited(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.waker.register(cx.waker());
        if self.state.ended.load(Ordering::Acquire) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl ExitWatch {
    /// As on the systems where it can be known that a child is about to end, which it cannot here.
    #[allow(clippy::unused_self, reason = "it has the names of the system that can tell")]
    pub(in crate::backend::local) fn last_moments(&self) -> Option<fn() -> bool> {
        None
    }
}

const CTRL_C: u8 = 3;
/// The exit code of who is left in a sandbox when its command has ended.
const ABANDONED: u32 = 1;
/// What shells add to the number of the signal that ended a process. The same number goes over the wire.
const SIGNAL_BASE: i32 = 128;
