//! From a failed launch to an error that names what is wrong.
//!
//! The look at the working directory comes after the failure and can be wrong if somebody changes it meanwhile; then the
//! error names what the system's code says.

use std::io;
use std::path::{Path, PathBuf};

use windows::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_ACCESS_DISABLED_BY_POLICY, ERROR_BAD_EXE_FORMAT, ERROR_BAD_PATHNAME, ERROR_DIRECTORY,
    ERROR_ELEVATION_REQUIRED, ERROR_EXE_MACHINE_TYPE_MISMATCH, ERROR_EXE_MARKED_INVALID, ERROR_FILE_NOT_FOUND,
    ERROR_INVALID_EXE_SIGNATURE, ERROR_INVALID_NAME, ERROR_NOT_ENOUGH_QUOTA, ERROR_PATH_NOT_FOUND,
    ERROR_SYSTEM_INTEGRITY_POLICY_VIOLATION, ERROR_TOO_MANY_OPEN_FILES, ERROR_VIRUS_INFECTED, WIN32_ERROR,
};

use super::command_line::Fault;
use super::launch::{Failure, LaunchFailure, is_sharing_violation};
use crate::backend::local::spawn::LaunchPlan;
use crate::error::{InvalidRequest, OsError, SpawnError, Unsupported};

/// What is wrong. May block on the file system.
pub(in crate::backend::local) fn classify(failure: LaunchFailure, plan: &LaunchPlan) -> SpawnError {
    match failure.0 {
        Failure::NotFound { searched, denied } => cwd_error(&plan.cwd).unwrap_or_else(|| match denied {
            Some(program) => SpawnError::PermissionDenied { program },
            None => SpawnError::ProgramNotFound { program: PathBuf::from(&plan.program), searched },
        }),
        Failure::CommandLine(Fault::TooLong { units }) => SpawnError::ArgumentListTooLong { bytes: 2 * units as u64 },
        Failure::CommandLine(Fault::Argument { index, why }) => {
            InvalidRequest::Other(format!("argv[{index}] {why}")).into()
        }
        Failure::Nul(element) => InvalidRequest::Nul { element }.into(),
        Failure::NameOfBatchFile => unsupported("a name of its own for a batch file"),
        Failure::NetworkDirectoryOfBatchFile => unsupported("a batch file in a working directory on the network"),
        Failure::Execute { program, error } => execute_error(plan, program, error),
        Failure::Other { op, error } => match code(&error) {
            Some(ERROR_TOO_MANY_OPEN_FILES) => SpawnError::DescriptorLimit { limit: None },
            Some(ERROR_NOT_ENOUGH_QUOTA) => SpawnError::ProcessLimit { limit: None },
            _ => SpawnError::Os(OsError::new(op, error)),
        },
    }
}

/// There is no thread that could make a process.
pub(in crate::backend::local) fn no_thread() -> SpawnError {
    SpawnError::ProcessLimit { limit: None }
}

fn unsupported(feature: &'static str) -> SpawnError {
    Unsupported { feature, place: "Windows".into() }.into()
}

fn code(error: &io::Error) -> Option<WIN32_ERROR> {
    error.raw_os_error().map(|code| WIN32_ERROR(code.cast_unsigned()))
}

/// The system's answer is about the program, which exists, or about the working directory.
fn execute_error(plan: &LaunchPlan, program: PathBuf, error: io::Error) -> SpawnError {
    if is_sharing_violation(&error) {
        return SpawnError::TextBusy { program };
    }
    match code(&error) {
        Some(
            ERROR_FILE_NOT_FOUND | ERROR_PATH_NOT_FOUND | ERROR_DIRECTORY | ERROR_INVALID_NAME | ERROR_BAD_PATHNAME,
        ) => cwd_error(&plan.cwd).unwrap_or_else(|| {
            if program.exists() {
                SpawnError::Os(OsError::new("execute the program", error))
            } else {
                SpawnError::ProgramNotFound { program: PathBuf::from(&plan.program), searched: None }
            }
        }),
        Some(ERROR_ACCESS_DENIED) => cwd_error(&plan.cwd).unwrap_or(SpawnError::PermissionDenied { program }),
        // Besides permissions: one that asks for elevation, that a policy forbids, that a scanner holds back.
        Some(
            ERROR_ELEVATION_REQUIRED
            | ERROR_ACCESS_DISABLED_BY_POLICY
            | ERROR_SYSTEM_INTEGRITY_POLICY_VIOLATION
            | ERROR_VIRUS_INFECTED,
        ) => SpawnError::PermissionDenied { program },
        Some(
            ERROR_BAD_EXE_FORMAT
            | ERROR_INVALID_EXE_SIGNATURE
            | ERROR_EXE_MARKED_INVALID
            | ERROR_EXE_MACHINE_TYPE_MISMATCH,
        ) => SpawnError::NotExecutable { program },
        Some(ERROR_TOO_MANY_OPEN_FILES) => SpawnError::DescriptorLimit { limit: None },
        Some(ERROR_NOT_ENOUGH_QUOTA) => SpawnError::ProcessLimit { limit: None },
        _ => SpawnError::Os(OsError::new("execute the program", error)),
    }
}

/// What is wrong with the working directory, if anything is.
fn cwd_error(cwd: &Path) -> Option<SpawnError> {
    let path = cwd.to_path_buf();
    match std::fs::metadata(cwd) {
        Ok(meta) if !meta.is_dir() => Some(SpawnError::CwdNotADirectory { path }),
        Ok(_) => {
            let listed = std::fs::read_dir(cwd);
            let denied = listed.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
            denied.then_some(SpawnError::CwdPermissionDenied { path })
        }
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Some(SpawnError::CwdNotFound { path }),
            io::ErrorKind::NotADirectory => Some(SpawnError::CwdNotADirectory { path }),
            io::ErrorKind::PermissionDenied => Some(SpawnError::CwdPermissionDenied { path }),
            _ => None,
        },
    }
}
