//! Sandboxes for processes, as Linux makes them.
//!
//! # How
//!
//! [`prepare`] turns a bound intent into a [`SandboxPlan`] before anything runs: which namespaces, what is mounted where,
//! what Landlock allows and what the filter refuses, all in the form that system calls need. The launcher then makes one
//! process that shares this one's memory, which builds the sandbox and starts the command in it; see [`child`].
//!
//! | wall | holds |
//! | --- | --- |
//! | mounts | what may be read and written, with carve-outs and masks |
//! | Landlock | the same but for what is taken back within something allowed |
//! | network namespace | the network |
//! | filter | sockets, and what could change or look through a wall |
//! | PID and IPC namespace | who can be seen, signalled and talked to; the end of everybody with the command |
//!
//! What the filter refuses can be told to a thread of the executor, which counts it as evidence; see [`notice`].
//!
//! A step that fails ends everything before the command runs, as an error of the start.

mod child;
mod direct;
mod filter;
mod kernel_mounts;
mod landlock;
mod looks;
mod notice;
mod placeholder;
mod plan;
mod plans;
mod ports;
mod probe;
mod proc_names;
mod raw;
mod running;
mod shape;
mod spare;
mod start;
#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub(super) use self::child::Report;
use self::child::{Failure, Stage};
pub(in crate::backend::local) use self::placeholder::{Held, Placeholders};
use self::plan::{Settings, Walls};
use self::plans::{For, Plans};
pub(super) use self::running::{EndWatch, Over, Running};
use self::shape::{Shape, Step, Target};
pub(super) use self::spare::Spares;
use self::start::Refusal;
pub(super) use self::start::{Builder, Started};
use super::launch::{self, LaunchFailure};
use crate::sandbox::{Bound, Enforcement, ManagedNetworkFacts, SandboxError, SandboxSettings};

/// A sandbox that can be built.
#[derive(Clone, Debug)]
pub(in crate::backend::local) struct SandboxPlan {
    shape: Arc<Shape>,
    enforcement: Arc<Enforcement>,
    bound: Arc<Bound>,
}

impl SandboxPlan {
    /// What will be enforced.
    pub(in crate::backend::local) fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// Whether nobody leaves it, and everybody ends with the command.
    pub(super) fn holds_everybody(&self) -> bool {
        self.shape.namespaces().is_some()
    }

    /// Whether the command may see what is at a path of the host.
    pub(super) fn shows(&self, path: &Path) -> bool {
        path.canonicalize().is_ok_and(|path| self.bound.can_read(&path))
    }

    /// Builds it and starts a command in it.
    ///
    /// # Safety
    ///
    /// As for [`start::run`].
    pub(super) unsafe fn start(
        &self,
        stacks: [*mut c_void; 3],
        spares: &Arc<Spares>,
        command: start::Entry,
        report: &Report,
    ) -> Result<Started, LaunchFailure> {
        // SAFETY: see the caller.
        let started = unsafe { start::run(&self.shape, stacks, spares, Some(command), report) };
        match started {
            Ok(Some(started)) => Ok(started),
            Ok(None) => Err(LaunchFailure::sandbox(SandboxError::preparation("the command was not made; try again"))),
            Err(refusal) => Err(match refusal.errno() {
                // As without a sandbox: it is the executor that has none left. Only who builds it has raised its own limit.
                Some(errno @ (libc::EMFILE | libc::ENFILE)) => {
                    let is_at_the_hard_limit = matches!(refusal, Refusal::Step(_));
                    let stage = if is_at_the_hard_limit { launch::Stage::Sandbox } else { launch::Stage::Streams };
                    LaunchFailure::new(stage, io::Error::from_raw_os_error(errno))
                }
                _ => LaunchFailure::sandbox(error(&refusal, &self.shape)),
            }),
        }
    }

    /// Whether the next one like this could use something that [`make_ahead`](Self::make_ahead) makes.
    pub(super) fn lacks_new(&self, spares: &Spares) -> bool {
        self.shape.namespaces().is_some_and(|namespaces| spares.lacks_new(namespaces))
    }

    /// Makes what the next one like this could use, if there is none. Takes as long as a start.
    ///
    /// # Safety
    ///
    /// As for [`start::make_ahead`].
    pub(super) unsafe fn make_ahead(&self, stack: *mut c_void, spares: &Spares) {
        // SAFETY: see the caller. Without it the next one makes its own, and fails if that cannot be.
        drop(unsafe { start::make_ahead(&self.shape, stack, spares) });
    }

    /// What it means that the command could not enter its directory.
    pub(super) fn explain(&self, failure: LaunchFailure, cwd: &Path) -> LaunchFailure {
        let missing = failure.stage == launch::Stage::Cwd && failure.error.raw_os_error() == Some(libc::ENOENT);
        if missing && self.holds_everybody() && plan::is_made_anew(cwd) {
            return LaunchFailure::sandbox(SandboxError::preparation(format!(
                "the working directory {} is not the host's in a sandbox, where each process has its own /dev and /proc; name it \
                 as a workspace root, which works below /dev/shm, or start the process elsewhere",
                cwd.display()
            )));
        }
        failure
    }
}

/// Ends and closes what is kept for whoever comes next, if there is nobody now: what is missing then is made again.
pub(super) fn rest() {
    notice::rest();
    kernel_mounts::rest();
}

/// Plans the sandbox for a process that the intent [admits](Bound::admits_process), with the loopback ports of the executor
/// through which alone it reaches the network, if there are any. Blocks on the file system, and the first time on trying what
/// the kernel allows.
///
/// # Errors
///
/// [`SandboxError::Unavailable`] if this kernel, or the executor's owner, does not allow it;
/// [`SandboxError::Preparation`] if the intent cannot be applied to the files that there are, and [`SandboxError::Changed`] if
/// they are others than those that it was bound to.
pub(in crate::backend::local) fn prepare(
    bound: &Arc<Bound>,
    settings: &SandboxSettings,
    managed: Option<&ManagedNetworkFacts>,
) -> Result<SandboxPlan, SandboxError> {
    static PLANS: Plans = Plans::new();
    prepare_on((probe::kernel()?, &PLANS), bound, settings, managed, Walls::left_out(settings))
}

fn prepare_on(
    (kernel, plans): (&probe::Kernel, &Plans),
    bound: &Arc<Bound>,
    settings: &SandboxSettings,
    managed: Option<&ManagedNetworkFacts>,
    without: Walls,
) -> Result<SandboxPlan, SandboxError> {
    let choices = Settings { private_loopback: settings.private_loopback, managed, without };
    plans.prepare(kernel, For { bound, settings: choices, accept_partial: settings.accept_partial })
}

/// What a step is about.
fn step_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Limits => "the limit of descriptors cannot be changed",
        Stage::Spare => "namespaces that were kept cannot be entered",
        Stage::Maps => "the user and group of a user namespace cannot be mapped",
        Stage::Device => "a device cannot be attached",
        Stage::Mounts => "the mounts of a new mount namespace cannot be changed",
        Stage::Memory => "a memory file system cannot be mounted",
        Stage::Make => "the memory file system cannot be filled",
        Stage::InitImage => "the program of the first process cannot be written",
        Stage::Source => "a place cannot be copied",
        Stage::SourceChanged => "a place has changed while the sandbox was prepared",
        Stage::ReadOnly => "the mounts cannot be made read-only",
        Stage::Root => "the new root cannot be entered",
        Stage::Dev => "the new /dev cannot be mounted",
        Stage::Held => "a directory cannot be held where it is",
        Stage::HeldChanged => "a directory to be held has changed while the sandbox was prepared",
        Stage::Step => "a place cannot be attached",
        Stage::StepChanged => "a place to attach to has changed while the sandbox was prepared",
        Stage::PidNamespace => "a PID namespace cannot be made",
        Stage::Init => "the first process of a PID namespace cannot be made",
        Stage::Proc => "a new /proc cannot be mounted",
        Stage::Network => "the loopback interface cannot be raised",
        Stage::Port => "a port cannot be listened on inside",
        Stage::Capabilities => "capabilities cannot be dropped",
        Stage::Landlock => "Landlock cannot be put in force",
        Stage::Filter => "the filter of system calls cannot be put in force",
        Stage::Command => "the process of the command cannot be made",
    }
}

/// What a failed start says.
fn error(refusal: &Refusal, shape: &Shape) -> SandboxError {
    let Refusal::Step(failure @ Failure { stage, errno, .. }) = refusal else {
        return probe::explain(refusal).into();
    };
    let error = io::Error::from_raw_os_error(*errno);
    let about = || match name(*failure, shape) {
        Some(name) => format!("{}: {name}", step_name(*stage)),
        None => step_name(*stage).to_owned(),
    };
    match stage {
        Stage::Landlock if *errno == libc::E2BIG => SandboxError::unavailable(
            "the executor is itself behind as many Landlock rulesets as the kernel stacks",
            "start it from fewer nested sandboxes",
        ),
        Stage::SourceChanged | Stage::HeldChanged | Stage::StepChanged => SandboxError::changed(about()),
        // It was there a moment before, and no link.
        Stage::Source | Stage::Held | Stage::Step if matches!(*errno, libc::ENOENT | libc::ENOTDIR | libc::ELOOP) => {
            SandboxError::changed(format!("{}: {error}", about()))
        }
        Stage::Source | Stage::Held | Stage::Step | Stage::Port | Stage::Make => {
            let remedy = match stage {
                Stage::Port => "send another port",
                Stage::Make => "try again, or send fewer entries",
                _ => "let the executor's user reach it, or leave it out of the intent",
            };
            SandboxError::preparation(format!("{}: {error}; {remedy}", about()))
        }
        _ => probe::explain(refusal).into(),
    }
}

/// Which of its list a failed step was about.
fn name(failure: Failure, shape: &Shape) -> Option<String> {
    let namespaces = shape.namespaces()?;
    let place = |path: &std::ffi::CStr| format!("/{}", path.to_string_lossy());
    match failure.stage {
        Stage::Source | Stage::SourceChanged => Some(place(&namespaces.sources.get(failure.index)?.path)),
        Stage::Held | Stage::HeldChanged => {
            let hold = namespaces.held.get(failure.index)?;
            let top = if hold.top.as_bytes() == b"." { String::new() } else { place(&hold.top) };
            Some(format!("{top}/{}", hold.path.to_string_lossy()))
        }
        Stage::Step | Stage::StepChanged => match namespaces.steps.get(failure.index)? {
            Step::Attach { target: Target::Path(path, _), .. } | Step::Mask { target: Target::Path(path, _), .. } => {
                Some(place(path))
            }
            Step::Attach { source, .. } => Some(place(&namespaces.sources.get(*source)?.path)),
            Step::Mask { .. } => None,
        },
        Stage::Port => Some(namespaces.ports.get(failure.index)?.to_string()),
        _ => None,
    }
}
