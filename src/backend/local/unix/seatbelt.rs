//! Processes in sandboxes of macOS: a program of the system applies the policy to itself and then executes the command in its
//! own place.
//!
//! What this decides it decides by [`crate::sandbox::seatbelt`], which is the same on every system. It has not been run on
//! the system that it is for, and so every sandbox counts as partial, which the executor's owner has to accept.
//!
//! Nothing but the policy holds a protected name that does not exist: it covers the name in every spelling. What the names
//! stand for is compared at the end all the same.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::launch::{LaunchFailure, Stage};
use super::process::Child;
use super::stream::OutputReader;
use crate::backend::local::spawn::LaunchPlan;
use crate::sandbox::seatbelt::{
    Beginning, ExecuteFault, Refusal, SANDBOX_EXEC, SeatbeltPolicy, beginning, check_name, is_image, reasons, refusal,
};
use crate::sandbox::{Bound, Enforcement, Level, ManagedNetworkFacts, SandboxError, SandboxSettings};

pub(in crate::backend::local) use crate::backend::local::watched::{Held, Placeholders};

/// A policy that the system takes.
#[derive(Clone, Debug)]
pub(in crate::backend::local) struct SandboxPlan {
    policy: Arc<SeatbeltPolicy>,
    enforcement: Arc<Enforcement>,
}

impl SandboxPlan {
    /// What will be enforced.
    pub(in crate::backend::local) fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// The program and the arguments that start a command under the policy.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(SANDBOX_EXEC);
        command.args(self.policy.arguments());
        command
    }
}

/// Makes the policy and has the system try it, so that what it would refuse is known before the command starts. Blocks.
///
/// # Errors
///
/// [`SandboxError::Unavailable`] where the system has no sandboxes, this is in one already, or the owner does not accept
/// partial ones; [`SandboxError::Preparation`] for a policy that cannot be written, or that the system does not take.
pub(in crate::backend::local) fn prepare(
    bound: &Arc<Bound>,
    settings: &SandboxSettings,
    managed: Option<&ManagedNetworkFacts>,
) -> Result<SandboxPlan, SandboxError> {
    if !cfg!(target_os = "macos") {
        return Err(SandboxError::Unavailable {
            cause: format!("this version has no sandboxes for processes on {}", std::env::consts::OS),
            remedy: None,
        });
    }
    let reasons = reasons(bound);
    if !settings.accept_partial {
        return Err(SandboxError::unavailable(
            format!("the sandbox would be partial: {}", reasons.join("; ")),
            "the executor's owner can accept that (`SandboxSettings::accept_partial`)",
        ));
    }
    let policy = SeatbeltPolicy::new(bound, managed, super::platform::user_cache_dir().as_deref())?;
    let policy = taken(policy)?;
    let mechanisms = vec!["seatbelt".into()];
    let facts = vec![format!("{SANDBOX_EXEC} takes the policy")];
    let enforcement = Arc::new(Enforcement::new(Level::Partial(reasons), mechanisms, facts));
    Ok(SandboxPlan { policy, enforcement })
}

/// The policy, once the system has taken it. It takes one always or never, as long as the executor is in no sandbox itself,
/// which it cannot leave; so those that were taken are remembered.
fn taken(policy: SeatbeltPolicy) -> Result<Arc<SeatbeltPolicy>, SandboxError> {
    static TAKEN: Mutex<VecDeque<Arc<SeatbeltPolicy>>> = Mutex::new(VecDeque::new());
    let known = || TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(taken) = known().iter().find(|taken| ***taken == policy) {
        return Ok(Arc::clone(taken));
    }
    // Not under the lock: it runs a program.
    try_policy(&policy)?;
    let policy = Arc::new(policy);
    let mut known = known();
    known.push_front(Arc::clone(&policy));
    known.truncate(MOST_TAKEN);
    Ok(policy)
}

/// Runs a program that does nothing under the policy.
fn try_policy(policy: &SeatbeltPolicy) -> Result<(), SandboxError> {
    let mut command = Command::new(SANDBOX_EXEC);
    command.args(policy.arguments()).arg(NOTHING).env_clear().current_dir("/").stdin(Stdio::null());
    let output = command.output().map_err(|error| cannot_run(&error))?;
    match refusal(output.status.code(), &output.stderr) {
        // A policy under which not even this program may run is one.
        None | Some(Refusal::Execute(..)) => Ok(()),
        Some(refusal) => refusal.into_error().map(drop),
    }
}

fn cannot_run(error: &io::Error) -> SandboxError {
    SandboxError::unavailable(
        format!("{SANDBOX_EXEC} cannot be run: {error}"),
        "it is a part of the system; run the executor where it is there and may be executed",
    )
}

/// Checks what the program that applies the policy does otherwise than the system, or could only report as an exit: the
/// command's name, and which file it is.
pub(super) fn check(plan: &LaunchPlan, candidates: &[CString]) -> Result<(), LaunchFailure> {
    check_name(&plan.program, plan.argv.first().map_or_else(|| OsStr::new(""), OsString::as_os_str))
        .map_err(LaunchFailure::sandbox)?;
    let failed = |code| Err(LaunchFailure::new(Stage::Exec, io::Error::from_raw_os_error(code)));
    let mut refused = false;
    for candidate in candidates {
        let path = plan.cwd.join(OsStr::from_bytes(candidate.as_bytes()));
        let Ok(metadata) = path.metadata() else { continue };
        if !metadata.is_file() || rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_err() {
            refused = true;
            continue;
        }
        if path.canonicalize().is_ok_and(|path| path == Path::new(SANDBOX_EXEC)) {
            return Err(LaunchFailure::sandbox(SandboxError::unavailable(
                format!(
                    "the command is {SANDBOX_EXEC}, and no sandbox of this system can be entered from inside another"
                ),
                "start its command itself",
            )));
        }
        // What may be executed need not be readable. Then the system decides.
        return match head(&path) {
            Ok(head) if !is_image(&head) => failed(libc::ENOEXEC),
            _ => Ok(()),
        };
    }
    failed(if refused { libc::EACCES } else { libc::ENOENT })
}

fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut head)?;
    Ok(head)
}

/// Blocks until the command itself runs, or has run already.
///
/// # Errors
///
/// Why it does not. Its process is gone then.
pub(super) fn await_command(child: &Child, errors: &mut OutputReader) -> Result<(), LaunchFailure> {
    loop {
        // First, since a process that ends between the two is no program any more.
        let program = super::platform::program_of(child.id());
        let status = child.exit_status().map_err(|error| LaunchFailure::new(Stage::Sandbox, error))?;
        match beginning(program.as_deref(), status.is_some()) {
            Beginning::Began => return Ok(()),
            Beginning::Waits => std::thread::sleep(LOOK_AGAIN),
            Beginning::Ended => {
                let code = status.and_then(|status| status.code());
                let message = errors.peek(MESSAGE_BYTES).map_err(|error| LaunchFailure::new(Stage::Streams, error))?;
                let Some(refusal) = refusal(code, message) else { return Ok(()) };
                // The only error is that somebody else has reaped it.
                drop(child.release());
                return Err(failure(refusal));
            }
        }
    }
}

fn failure(refusal: Refusal) -> LaunchFailure {
    match refusal.into_error() {
        Err(error) => LaunchFailure::sandbox(error),
        Ok(fault) => LaunchFailure::new(
            Stage::Exec,
            io::Error::from_raw_os_error(match fault {
                ExecuteFault::NotFound => libc::ENOENT,
                ExecuteFault::NotADirectory => libc::ENOTDIR,
                ExecuteFault::Denied => libc::EACCES,
                ExecuteFault::NotPermitted => libc::EPERM,
                ExecuteFault::Format => libc::ENOEXEC,
                ExecuteFault::TooLong => libc::E2BIG,
                ExecuteFault::Other => libc::EIO,
            }),
        ),
    }
}

/// The failure of a start in which the program that applies policies could not be executed.
pub(super) fn not_started(error: &io::Error) -> LaunchFailure {
    LaunchFailure::sandbox(cannot_run(error))
}

/// A program that every system has.
const NOTHING: &str = "/usr/bin/true";
/// How many policies are remembered.
const MOST_TAKEN: usize = 64;
/// Applying a policy takes some milliseconds.
const LOOK_AGAIN: Duration = Duration::from_micros(500);
/// Longer than any message of the program.
const MESSAGE_BYTES: usize = 8 << 10;
