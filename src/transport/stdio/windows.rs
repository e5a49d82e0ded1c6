//! The job of a launched server.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};

use tokio::process::{Child, Command};
use windows::Win32::Foundation::HANDLE;
use windows::Win32::System::Console::{CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent, GetConsoleCP};
use windows::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectExtendedLimitInformation, SetInformationJobObject,
    TerminateJobObject,
};
use windows::Win32::System::Threading::{CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW};

/// The name of the shell.
pub(super) const SHELL: &str = "cmd.exe";

/// The shell, told to run a script: all that is between the outer marks, as it is.
pub(super) fn shell(script: &OsStr) -> Command {
    let mut command = Command::new(SHELL);
    let mut arguments = OsString::from("/d /s /c \"");
    arguments.push(script);
    arguments.push("\"");
    command.raw_arg(arguments);
    command
}

/// Puts the child out of reach of the Ctrl-C that is meant for us, and within that of a Ctrl-Break of ours. Where we have
/// no console to share with it, it gets no window for one either.
pub(super) fn prepare(command: &mut Command) {
    let mut flags = CREATE_NEW_PROCESS_GROUP;
    if !has_console() {
        flags |= CREATE_NO_WINDOW;
    }
    command.creation_flags(flags.0);
}

fn has_console() -> bool {
    // SAFETY: the call has no arguments. It fails, with zero, only without a console.
    unsafe { GetConsoleCP() != 0 }
}

/// The job of a child. All of its processes end when it is dropped. It is made after the start: what the child has
/// started in the moment between is no member.
#[derive(Debug)]
pub(super) struct Group {
    job: OwnedHandle,
    id: u32,
}

impl Group {
    pub(super) fn of(child: &Child) -> io::Result<Self> {
        let id = child.id().ok_or_else(|| io::Error::other("the child has no process id"))?;
        let process = child.raw_handle().ok_or_else(|| io::Error::other("the child has no process handle"))?;
        // SAFETY: both arguments are optional; the result is a handle that nobody else owns.
        let job = unsafe {
            let job = CreateJobObjectW(None, None)?;
            OwnedHandle::from_raw_handle(job.0)
        };
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        // SAFETY: the pointer and the size are those of `limits`, which has the type that this class wants; both handles
        // are open.
        unsafe {
            SetInformationJobObject(
                HANDLE(job.as_raw_handle()),
                JobObjectExtendedLimitInformation,
                (&raw const limits).cast(),
                size_of_val(&limits) as u32,
            )?;
            AssignProcessToJobObject(HANDLE(job.as_raw_handle()), HANDLE(process))?;
        }
        Ok(Self { job, id })
    }

    /// Only a console that the child shares with us carries a request to it; without one, the end of input was it.
    pub(super) fn terminate(&self) {
        if has_console() {
            // SAFETY: the call touches no memory of ours. The number is that of a group that the child is the head of,
            // and never zero. It fails if the group has ended.
            let _ = unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, self.id) };
        }
    }

    pub(super) fn kill(&self) {
        // SAFETY: the handle is open. It fails only if the job is already gone.
        let _ = unsafe { TerminateJobObject(HANDLE(self.job.as_raw_handle()), 1) };
    }
}
