//! From a failed launch to an error that names what is wrong.
//!
//! The system has one code for a missing directory, a missing program and a missing interpreter: look, then name the
//! right path. The look comes after the failure and can be wrong if somebody changes the files meanwhile; then the error
//! names what the system's code says.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::launch::{LaunchFailure, Stage, find};
use crate::backend::local::spawn::LaunchPlan;
use crate::error::{OsError, SpawnError};
use crate::sandbox::SandboxError;

/// What is wrong. May block on the file system.
pub(in crate::backend::local) fn classify(failure: LaunchFailure, plan: &LaunchPlan) -> SpawnError {
    let LaunchFailure { stage, error } = failure;
    let error = match error.downcast::<SandboxError>() {
        Ok(error) => return error.into(),
        Err(error) => error,
    };
    match (stage, error.raw_os_error()) {
        // Whoever builds a sandbox has raised its own limit to that.
        (Stage::Sandbox, Some(libc::EMFILE | libc::ENFILE)) => {
            SpawnError::DescriptorLimit { limit: limit(Resource::Descriptors, |limit| limit.rlim_max) }
        }
        (_, Some(libc::EMFILE | libc::ENFILE)) => {
            SpawnError::DescriptorLimit { limit: soft_limit(Resource::Descriptors) }
        }
        (Stage::Fork, Some(libc::EAGAIN)) => SpawnError::ProcessLimit { limit: soft_limit(Resource::Processes) },
        (Stage::Sandbox, _) => os("build the sandbox of a process", error),
        (Stage::Contain, _) => SpawnError::ContainmentUnavailable { reason: error.to_string() },
        (Stage::Streams, _) => os("open the streams of a process", error),
        (Stage::Fork, _) => os("make a process", error),
        (Stage::Setup, _) => os("set a process up", error),
        (Stage::Cwd, Some(code)) => {
            cwd_error(&plan.cwd, code).unwrap_or_else(|| os("enter the working directory", error))
        }
        (Stage::Exec, Some(code)) => exec_error(plan, code).unwrap_or_else(|| os("execute the program", error)),
        (Stage::Cwd | Stage::Exec, None) => os("start the program", error),
    }
}

/// There is no thread that could make a process.
pub(in crate::backend::local) fn no_thread() -> SpawnError {
    SpawnError::ProcessLimit { limit: soft_limit(Resource::Processes) }
}

fn os(op: &'static str, error: io::Error) -> SpawnError {
    SpawnError::Os(OsError::new(op, error))
}

fn cwd_error(cwd: &Path, code: i32) -> Option<SpawnError> {
    let path = cwd.to_path_buf();
    Some(match code {
        libc::ENOENT => SpawnError::CwdNotFound { path },
        libc::ENOTDIR => SpawnError::CwdNotADirectory { path },
        libc::EACCES | libc::EPERM => SpawnError::CwdPermissionDenied { path },
        _ => return None,
    })
}

fn exec_error(plan: &LaunchPlan, code: i32) -> Option<SpawnError> {
    Some(match code {
        libc::ENOENT | libc::ENOTDIR => not_found(plan),
        // Besides permissions: a directory, or a file system that executes nothing.
        libc::EACCES | libc::EPERM | libc::EISDIR => SpawnError::PermissionDenied { program: blamed(plan) },
        libc::ENOEXEC | libc::EINVAL => SpawnError::NotExecutable { program: blamed(plan) },
        libc::ETXTBSY => SpawnError::TextBusy { program: blamed(plan) },
        libc::E2BIG => SpawnError::ArgumentListTooLong { bytes: argument_bytes(plan) },
        libc::EAGAIN => SpawnError::ProcessLimit { limit: soft_limit(Resource::Processes) },
        _ => return None,
    })
}

/// No candidate could be executed since something does not exist: perhaps the interpreter of one that does.
fn not_found(plan: &LaunchPlan) -> SpawnError {
    let found = find(plan);
    for candidate in &found.paths {
        let path = absolute(plan, candidate.as_bytes());
        // What a sandbox hides is not there, and must not be told of.
        if is_visible(plan, &path) && path.is_file() {
            return match interpreter(&path) {
                Some(interpreter) => SpawnError::InterpreterNotFound { program: path, interpreter },
                // A program whose loader is missing, named inside of it.
                None => SpawnError::NotExecutable { program: path },
            };
        }
    }
    SpawnError::ProgramNotFound {
        program: PathBuf::from(&plan.program),
        searched: found.searched.map(|path| path.to_string_lossy().into_owned()),
    }
}

/// The first candidate that exists: the one that the system's answer is about.
fn blamed(plan: &LaunchPlan) -> PathBuf {
    let paths = find(plan).paths;
    let mut paths = paths.iter().map(|path| absolute(plan, path.as_bytes()));
    let existing = paths.find(|path| is_visible(plan, path) && path.exists());
    existing.unwrap_or_else(|| PathBuf::from(&plan.program))
}

/// Whether the process may see what is at a path.
#[cfg(target_os = "linux")]
fn is_visible(plan: &LaunchPlan, path: &Path) -> bool {
    plan.sandbox.as_ref().is_none_or(|sandbox| sandbox.shows(path))
}

#[cfg(not(target_os = "linux"))]
fn is_visible(_: &LaunchPlan, _: &Path) -> bool {
    true
}

fn absolute(plan: &LaunchPlan, candidate: &[u8]) -> PathBuf {
    plan.cwd.join(OsStr::from_bytes(candidate))
}

/// The interpreter that the first line of a script names.
fn interpreter(path: &Path) -> Option<PathBuf> {
    // As much as the kernel looks at.
    let mut head = Vec::with_capacity(256);
    std::fs::File::open(path).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let name = line.trim_ascii_start().split(|byte| byte.is_ascii_whitespace()).next()?;
    (!name.is_empty()).then(|| PathBuf::from(OsString::from_vec(name.to_vec())))
}

/// What the system counts: the strings with their terminators, and a pointer for each.
fn argument_bytes(plan: &LaunchPlan) -> u64 {
    let pointer = size_of::<usize>();
    let argv: usize = plan.argv.iter().map(|arg| arg.len() + 1 + pointer).sum();
    let envp: usize = plan.env.iter().map(|(name, value)| name.len() + value.len() + 2 + pointer).sum();
    (argv + envp) as u64
}

enum Resource {
    Descriptors,
    Processes,
}

fn soft_limit(resource: Resource) -> Option<u64> {
    limit(resource, |limit| limit.rlim_cur)
}

fn limit(resource: Resource, which: impl Fn(&libc::rlimit) -> libc::rlim_t) -> Option<u64> {
    let resource = match resource {
        Resource::Descriptors => libc::RLIMIT_NOFILE,
        Resource::Processes => libc::RLIMIT_NPROC,
    };
    // SAFETY: all zeroes is a valid value of the C structure.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: fills the structure.
    let result = unsafe { libc::getrlimit(resource, &raw mut limit) };
    Some(which(&limit)).filter(|limit| result == 0 && *limit != libc::RLIM_INFINITY)
}
