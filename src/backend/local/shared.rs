//! What the handle, the reader and the supervisor of one process share.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::task::AtomicWaker;

use super::input::Input;
use super::os::Child;
use super::output::EventQueue;
use super::stop::{Action, Stop};
use crate::backend::Terminate;
use crate::request::{ProcessId, Signal};
use crate::sandbox::{Denial, Enforcement};
use crate::time::now;

/// One process, as all of its parties see it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) process_id: ProcessId,
    pub(super) os_id: u32,
    pub(super) has_terminal: bool,
    pub(super) events: EventQueue,
    /// What the sandbox enforces.
    pub(super) enforcement: Enforcement,
    /// What it denied, set before the exit is told.
    denial: OnceLock<Denial>,
    control: Mutex<Control>,
    supervisor: AtomicWaker,
    /// The supervisor gathers small output by the clock, which input ends.
    gathering: AtomicBool,
    /// Input was written since the supervisor last asked.
    input_written: AtomicBool,
}

/// What acts on the process. Signals go out under the lock, so that none can meet a group number that was given back.
#[derive(Debug)]
pub(super) struct Control {
    /// None once the process is over and its group can no longer be told from another one.
    pub(super) child: Option<Child>,
    pub(super) input: Input,
    pub(super) stop: Stop,
    pub(super) exited: bool,
    pub(super) detached: bool,
    /// Nobody but the place itself acts on it any more.
    pub(super) handle_dropped: bool,
    /// The process is over, and members of its group that are left cannot be reached.
    pub(super) out_of_reach: bool,
}

impl Shared {
    pub(super) fn new(
        process_id: ProcessId,
        child: Child,
        input: Input,
        has_terminal: bool,
        enforcement: Enforcement,
        events: EventQueue,
    ) -> Self {
        Self {
            enforcement,
            denial: OnceLock::new(),
            process_id,
            os_id: child.id(),
            has_terminal,
            events,
            control: Mutex::new(Control {
                child: Some(child),
                input,
                stop: Stop::default(),
                exited: false,
                detached: false,
                handle_dropped: false,
                out_of_reach: false,
            }),
            supervisor: AtomicWaker::new(),
            gathering: AtomicBool::new(false),
            input_written: AtomicBool::new(false),
        }
    }

    /// What the sandbox denied, and on which evidence; told once.
    pub(super) fn note_denial(&self, denial: Denial) {
        self.denial.get_or_init(|| denial);
    }

    /// The same, if it denied anything, or something else was seen.
    pub(super) fn denial(&self) -> Option<Denial> {
        self.denial.get().filter(|denial| denial.denied || !denial.evidence.is_empty()).cloned()
    }

    pub(super) fn control(&self) -> MutexGuard<'_, Control> {
        // Nothing that can panic runs under the lock.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the supervisor look at everything again.
    pub(super) fn wake_supervisor(&self) {
        self.supervisor.wake();
    }

    /// Called by the supervisor first in each poll.
    pub(super) fn register_supervisor(&self, waker: &std::task::Waker) {
        self.supervisor.register(waker);
    }

    /// The supervisor gathers, or no longer.
    pub(super) fn set_gathering(&self, gathering: bool) {
        self.gathering.store(gathering, Ordering::Relaxed);
    }

    /// Somebody wrote to the process: what it answers must not be held back.
    pub(super) fn input_was_written(&self) {
        self.input_written.store(true, Ordering::Relaxed);
        if self.gathering.swap(false, Ordering::Relaxed) {
            self.wake_supervisor();
        }
    }

    /// Whether that happened since the last call.
    pub(super) fn take_input_written(&self) -> bool {
        // Mostly not, which a load tells for less.
        self.input_written.load(Ordering::Relaxed) && self.input_written.swap(false, Ordering::Relaxed)
    }

    /// Ends the process tree; returns whether the process was still running. What a closed process left behind may be
    /// out of reach, which is [`io::ErrorKind::Unsupported`].
    pub(super) fn terminate(&self, how: Terminate) -> io::Result<bool> {
        let mut control = self.control();
        let running = control.is_running();
        if how.descendants && control.out_of_reach {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let result = if running || how.descendants { control.stop(how.grace) } else { Ok(()) };
        drop(control);
        // There is a new deadline.
        self.wake_supervisor();
        result.map(|()| running)
    }

    /// Kills the process tree, also what an exited process left, unless it is detached.
    pub(super) fn kill(&self) {
        self.kill_if(|control| !control.detached);
    }

    /// Kills the tree of a process that still runs, unless it is detached. One that has exited is left alone with what it
    /// left behind, also if the supervisor has not seen the exit yet.
    pub(super) fn kill_running(&self) {
        self.kill_if(|control| !control.detached && control.is_running());
    }

    fn kill_if(&self, condition: impl FnOnce(&Control) -> bool) {
        let mut control = self.control();
        if condition(&control) {
            // Nobody is left who could do something about an error.
            drop(control.stop(Duration::ZERO));
        }
        drop(control);
        self.wake_supervisor();
    }
}

impl Control {
    /// Whether the process itself runs. The supervisor may not have seen the exit yet, and what an exited process left
    /// behind is not to be ended in its stead.
    pub(super) fn is_running(&self) -> bool {
        let child = self.child.as_ref().filter(|_| !self.exited);
        // It cannot be told of a process only that is not ours any more: somebody has reaped it.
        child.is_some_and(|child| matches!(child.exit_status(), Ok(None)))
    }

    /// Asks the tree to end within `grace`.
    pub(super) fn stop(&mut self, grace: Duration) -> io::Result<()> {
        if self.child.is_none() {
            return Ok(());
        }
        let action = self.stop.request(now(), grace);
        self.carry_out(action)
    }

    /// Does what the stop machine says.
    pub(super) fn carry_out(&self, action: Action) -> io::Result<()> {
        let signal = match action {
            Action::Nothing => return Ok(()),
            Action::Ask => Signal::Terminate,
            Action::Kill => Signal::Kill,
        };
        let Some(child) = &self.child else { return Ok(()) };
        let mut sent = child.signal_tree(signal);
        if action == Action::Ask {
            // One that is stopped could not react.
            let continued = child.signal_tree(Signal::Continue);
            sent = sent.and(continued);
        }
        sent
    }
}
