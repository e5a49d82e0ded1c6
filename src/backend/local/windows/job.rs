//! Job objects: the process groups of this system.

use std::io;
use std::os::windows::io::OwnedHandle;

use windows::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectBasicAccountingInformation,
    JobObjectExtendedLimitInformation, QueryInformationJobObject, SetInformationJobObject, TerminateJobObject,
};

use super::system::{check, own, raw};

/// A process and all of its descendants.
#[derive(Debug)]
pub(super) struct Job {
    handle: OwnedHandle,
    ends_with_us: bool,
}

impl Job {
    /// An empty one. With `end_with_us` its processes end when this process does so without dropping it.
    pub(super) fn new(end_with_us: bool) -> io::Result<Self> {
        // SAFETY: both arguments are optional; the call touches no memory of ours.
        let handle = check(unsafe { CreateJobObjectW(None, None) })?;
        // SAFETY: the call returned a new handle.
        let job = Self { handle: unsafe { own(handle) }, ends_with_us: end_with_us };
        if end_with_us {
            job.set_limits(JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE)?;
        }
        Ok(job)
    }

    fn set_limits(&self, flags: JOB_OBJECT_LIMIT) -> io::Result<()> {
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = flags;
        // SAFETY: the handle is open; the pointer and the length are those of a structure of the type that this class
        // of information has, which outlives the call.
        check(unsafe {
            SetInformationJobObject(
                raw(&self.handle),
                JobObjectExtendedLimitInformation,
                (&raw const limits).cast(),
                size_of_val(&limits) as u32,
            )
        })
    }

    /// Makes a process a member, and with it all processes that it starts from now on.
    pub(super) fn assign(&self, process: &OwnedHandle) -> io::Result<()> {
        // SAFETY: both handles are open; the call touches no memory of ours.
        check(unsafe { AssignProcessToJobObject(raw(&self.handle), raw(process)) })
    }

    /// Ends all members, with this exit code.
    pub(super) fn terminate(&self, exit_code: u32) -> io::Result<()> {
        // SAFETY: the handle is open; the call touches no memory of ours.
        check(unsafe { TerminateJobObject(raw(&self.handle), exit_code) })
    }

    /// Whether any member has not ended.
    pub(super) fn has_members(&self) -> io::Result<bool> {
        let mut counts = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        // SAFETY: the handle is open; the pointer and the length are those of a structure of the type that this class
        // of information has, which outlives the call.
        check(unsafe {
            QueryInformationJobObject(
                Some(raw(&self.handle)),
                JobObjectBasicAccountingInformation,
                (&raw mut counts).cast(),
                size_of_val(&counts) as u32,
                None,
            )
        })?;
        Ok(counts.ActiveProcesses > 0)
    }
}

/// Lets the members live: whoever wants their end says so before.
impl Drop for Job {
    fn drop(&mut self) {
        if self.ends_with_us {
            let cleared = self.set_limits(JOB_OBJECT_LIMIT::default());
            debug_assert!(cleared.is_ok(), "the limits of a job of ours can be cleared: {cleared:?}");
        }
    }
}
