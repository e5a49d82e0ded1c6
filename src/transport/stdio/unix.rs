//! The process group of a launched server.

use std::ffi::OsStr;
use std::io;

use tokio::process::{Child, Command};

/// The name of the shell.
pub(super) const SHELL: &str = "/bin/sh";

/// The shell, told to run a script.
pub(super) fn shell(script: &OsStr) -> Command {
    let mut command = Command::new(SHELL);
    command.arg("-c").arg(script);
    command
}

/// Puts the child into a group of its own, so that it can be ended with all that it starts.
pub(super) fn prepare(command: &mut Command) {
    command.process_group(0);
}

/// The group of a child. Killed when dropped: whoever forgets it leaves nothing behind.
#[derive(Debug)]
pub(super) struct Group(libc::pid_t);

impl Group {
    pub(super) fn of(child: &Child) -> io::Result<Self> {
        let id = child.id().and_then(|id| libc::pid_t::try_from(id).ok());
        id.map(Self).ok_or_else(|| io::Error::other("the child has no process id"))
    }

    pub(super) fn terminate(&self) {
        self.signal(libc::SIGTERM);
    }

    /// Also kills what a leader that has ended left behind. A group without members is not an error.
    pub(super) fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill takes no pointers. The group is that of a child made with its own group; a recycled number would
        // need the whole range of ids to be used up between the end of the child and this call.
        unsafe { libc::kill(-self.0, signal) };
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
