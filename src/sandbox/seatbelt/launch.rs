//! What becomes of a command that [`SANDBOX_EXEC`] starts, as far as that can be decided without it: pure functions.
//!
//! That program applies the policy to itself and then executes the command in its own place. So the command is the same
//! process, with the same streams, terminal, directory and exit status. What fails before it begins shows as an exit of that
//! program, with a message on standard error; [`refusal`] tells it from an exit of the command.

use std::ffi::OsStr;
use std::path::Path;

use super::{SANDBOX_EXEC, SANDBOX_EXEC_FAILED};
use crate::sandbox::bound::{Bound, Class};
use crate::sandbox::error::SandboxError;

/// Checks that a command can be given its name: it is executed under the name by which it is looked up.
///
/// # Errors
///
/// [`SandboxError::Unavailable`] if the two differ.
pub(crate) fn check_name(program: &OsStr, name: &OsStr) -> Result<(), SandboxError> {
    if program == name {
        return Ok(());
    }
    Err(SandboxError::unavailable(
        format!("{SANDBOX_EXEC} executes a command under its program's own name, not under another one"),
        "leave out `arg0`",
    ))
}

/// Whether the beginning of a file is that of something which the system executes: a program for one or for several kinds of
/// processors, or a script that names its interpreter. [`SANDBOX_EXEC`] would have a shell read anything else.
pub(crate) fn is_image(head: &[u8]) -> bool {
    let magic = head.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
    let is_program = magic.is_some_and(|magic| {
        let thin = [0xfeed_face, 0xfeed_facf].into_iter().any(|own: u32| magic == own || magic == own.swap_bytes());
        thin || matches!(magic, 0xcafe_babe | 0xcafe_babf)
    });
    is_program || head.starts_with(b"#!")
}

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// The policy is not applied yet.
    Waits,
    /// The command runs.
    Began,
    /// The process has ended, and its status and message tell whether the command had begun.
    Ended,
}

/// How far a command has come, of whose process this is the program, if it could be found out.
///
/// The command is never taken for begun too late: what cannot be told counts as begun, as its sandbox does not depend on it.
pub(crate) fn beginning(program: Option<&Path>, has_ended: bool) -> Beginning {
    match program {
        _ if has_ended => Beginning::Ended,
        Some(program) if program == Path::new(SANDBOX_EXEC) => Beginning::Waits,
        _ => Beginning::Began,
    }
}

/// Why a command never began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The system does not apply the policy, such as inside another sandbox.
    Apply(String),
    /// The system does not take the policy.
    Policy(String),
    /// The policy was applied, and the program cannot be executed under it.
    Execute(ExecuteFault, String),
}

/// Why a program cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecuteFault {
    NotFound,
    NotADirectory,
    /// By the file's mode.
    Denied,
    /// By the policy.
    NotPermitted,
    /// It is no program, or one for another processor.
    Format,
    TooLong,
    Other,
}

/// Why a command never began, by the exit code of its process and the beginning of what came on standard error, or on the
/// terminal. None if it did begin.
pub(crate) fn refusal(exit_code: Option<i32>, output: &[u8]) -> Option<Refusal> {
    let message = output.strip_prefix(OWN_NAME)?;
    let message = String::from_utf8_lossy(message.trim_ascii()).into_owned();
    match exit_code {
        Some(SANDBOX_EXEC_FAILED) if message.starts_with("execvp") => {
            let fault = FAULTS.iter().find(|(text, _)| message.ends_with(text));
            Some(Refusal::Execute(fault.map_or(ExecuteFault::Other, |(_, fault)| *fault), message))
        }
        Some(SANDBOX_EXEC_FAILED) => Some(Refusal::Apply(message)),
        Some(BAD_USAGE | BAD_POLICY) => Some(Refusal::Policy(message)),
        _ => None,
    }
}

impl Refusal {
    /// The error of a start, unless it is one of the program.
    pub(crate) fn into_error(self) -> Result<ExecuteFault, SandboxError> {
        match self {
            Self::Apply(message) => Err(SandboxError::unavailable(
                format!("the system refused to apply a sandbox: {message}"),
                "run the executor outside of any other sandbox, or send the profile `external`",
            )),
            Self::Policy(message) => {
                Err(SandboxError::preparation(format!("the system does not take the policy: {message}")))
            }
            Self::Execute(fault, _) => Ok(fault),
        }
    }
}

/// Why a sandbox of this system counts as partial.
pub(crate) fn reasons(bound: &Bound) -> Vec<String> {
    let mut reasons = vec![
        "what this version enforces on macOS has not been proven on it",
        "a descendant that has left the process group of its command outlives it, in the sandbox",
    ];
    if !matches!(bound.class, Class::FullWrite | Class::Nothing) {
        reasons.push("what is outside the roots stands behind one wall");
    }
    if !bound.globs.is_empty() {
        reasons
            .push("what appears later and matches a pattern is denied at its path, and its directories can be moved");
    }
    reasons.into_iter().map(str::to_owned).collect()
}

/// How that program begins what it says.
const OWN_NAME: &[u8] = b"sandbox-exec: ";
/// Its exit code for arguments that it does not take.
const BAD_USAGE: i32 = 64;
/// Its exit code for a policy that it does not take.
const BAD_POLICY: i32 = 65;
/// The system's texts.
const FAULTS: [(&str, ExecuteFault); 7] = [
    ("No such file or directory", ExecuteFault::NotFound),
    ("Not a directory", ExecuteFault::NotADirectory),
    ("Permission denied", ExecuteFault::Denied),
    ("Operation not permitted", ExecuteFault::NotPermitted),
    ("Exec format error", ExecuteFault::Format),
    ("Bad CPU type in executable", ExecuteFault::Format),
    ("Argument list too long", ExecuteFault::TooLong),
];

#[cfg(test)]
mod tests;
