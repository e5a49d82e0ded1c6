//! The job of a launched server.

use std::io;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};

use tokio::process::{Child, Command};
use windows::Win32::Foundation::HANDLE;
use windows::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectExtendedLimitInformation, SetInformationJobObject,
    TerminateJobObject,
};

/// The job is made after the start; there is nothing to prepare.
pub(super) fn prepare(_: &mut Command) {}

/// The job of a child. All of its processes end when it is dropped.
#[derive(Debug)]
pub(super) struct Group(OwnedHandle);

impl Group {
    pub(super) fn of(child: &Child) -> io::Result<Self> {
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
        Ok(Self(job))
    }

    /// Windows has no polite request to a process without a window or a console; the end of input was it.
    pub(super) fn terminate(&self) {}

    pub(super) fn kill(&self) {
        // SAFETY: the handle is open. It fails only if the job is already gone.
        let _ = unsafe { TerminateJobObject(HANDLE(self.0.as_raw_handle()), 1) };
    }
}
