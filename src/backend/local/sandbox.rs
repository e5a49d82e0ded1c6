//! The sandbox of a process on this machine: from the intent of a request to a plan, before anything is started, and what
//! becomes of it at the end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::config::LocalConfig;
use super::os;
use crate::error::{OsError, SpawnError};
use crate::event::OutputStream;
use crate::request::ExecRequest;
use crate::sandbox::{
    Class, Denial, DenialWatch, Enforcement, Evidence, Facts, FileViolation, HostPaths, ManagedNetworkFacts,
    MissingProtected, SandboxBackend, SandboxError, SandboxIntent, SandboxSettings, Violation, ViolationReason,
};
use crate::status::ExitStatus;

/// What a sandboxed start needs.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) plan: os::sandbox::SandboxPlan,
    pub(super) sandboxed: Sandboxed,
}

/// What watches over a process in a sandbox.
#[derive(Debug)]
pub(super) struct Sandboxed {
    enforcement: Enforcement,
    watch: DenialWatch,
    settings: SandboxSettings,
    /// Names that must not appear while it runs. They are let go with this.
    held: Option<os::sandbox::Held>,
}

/// Binds and plans the sandbox of a request. None if it asks for none, or for one that restricts nothing.
///
/// # Errors
///
/// Why there can be none. Nothing was started.
pub(super) async fn prepare(
    request: &ExecRequest,
    config: &Arc<LocalConfig>,
    placeholders: &os::sandbox::Placeholders,
    cwd: &Path,
) -> Result<Option<Prepared>, SpawnError> {
    if request.enforce_managed_network {
        let ports = request.managed_network.as_ref().is_some_and(ManagedNetworkFacts::has_ports);
        if request.sandbox.is_none() {
            return Err(unmanaged("has no sandbox", "send a sandbox that restricts the network").into());
        }
        if !ports {
            return Err(unmanaged("names no loopback port of a proxy", "send the ports of the proxy").into());
        }
    }
    let Some(intent) = request.sandbox.clone() else { return Ok(None) };
    let work = Work {
        intent,
        managed: request.managed_network.clone(),
        must_manage: request.enforce_managed_network,
        config: Arc::clone(config),
        placeholders: placeholders.clone(),
        cwd: cwd.into(),
    };
    // It looks up paths, which can take a while.
    let prepared = tokio::task::spawn_blocking(move || work.carry_out()).await;
    prepared.map_err(|error| OsError::new("prepare a sandbox", io::Error::other(error)))?
}

/// What is done away from the tasks.
struct Work {
    intent: SandboxIntent,
    managed: Option<ManagedNetworkFacts>,
    /// Whether the network may be reached in no other way.
    must_manage: bool,
    config: Arc<LocalConfig>,
    placeholders: os::sandbox::Placeholders,
    cwd: PathBuf,
}

impl Work {
    fn carry_out(&self) -> Result<Option<Prepared>, SpawnError> {
        let settings = &self.config.sandbox;
        let temp_dir = os::temporary_directories(&self.config.base_env).1;
        let bind = || {
            let mut bound = self.intent.bind(&Facts::host(settings, &temp_dir))?;
            bound.expand_globs(&HostPaths)?;
            Ok::<_, SandboxError>(bound)
        };
        let mut bound = bind()?;
        if bound.class == Class::Nothing {
            return match self.must_manage {
                false => Ok(None),
                true => Err(unmanaged("asks for a sandbox that restricts nothing", "restrict the network in it").into()),
            };
        }
        let cwd = match self.cwd.canonicalize() {
            Ok(cwd) => cwd,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SpawnError::CwdNotFound { path: self.cwd.clone() });
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(SpawnError::CwdPermissionDenied { path: self.cwd.clone() });
            }
            Err(error) => return Err(OsError::new("look up the working directory", error).into()),
        };
        bound.admits_process(&cwd)?;
        let held = if bound.protected.is_empty() {
            None
        } else {
            let held = self.placeholders.hold(&bound.protected, settings.missing_protected);
            // What was missing may be there now, to be mounted over.
            bound = bind()?;
            Some(held)
        };
        let request = os::sandbox::Request { cwd: &cwd, managed: self.managed.as_ref() };
        let plan = os::sandbox::prepare(&Arc::new(bound), settings, request)?;
        let sandboxed = Sandboxed {
            enforcement: plan.enforcement().clone(),
            watch: DenialWatch::new(settings.output_snippets),
            settings: settings.clone(),
            held,
        };
        Ok(Some(Prepared { plan, sandboxed }))
    }
}

impl Sandboxed {
    pub(super) fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// Output of the process.
    pub(super) fn feed(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.watch.feed(stream, bytes);
    }

    /// The process has ended, and its output was fed, or has had its time. Tells of violations, and lets go of what was held.
    pub(super) fn finish(&mut self, status: ExitStatus) -> Denial {
        let mut denial = self.watch.classify(status);
        let tell = |violation| {
            if let Some(sink) = &self.settings.violations {
                sink.violation(Violation::File(violation));
            }
        };
        if let Some(violation) = self.watch.violation(&denial, BACKEND) {
            tell(violation);
        }
        let Some(held) = self.held.take() else { return denial };
        for path in held.changed() {
            tell(FileViolation::new(BACKEND, ViolationReason::PolicyDenied).path(path.to_string_lossy()));
            denial.evidence.push(Evidence::ProtectedName { path: path.into() });
        }
        if self.settings.missing_protected == MissingProtected::Check {
            // Of what stays where it is, the event has told too.
            let _moved = held.set_aside();
        }
        denial
    }
}

/// A managed network is required, and there is nothing to enforce it by.
fn unmanaged(lacks: &str, remedy: &str) -> SandboxError {
    SandboxError::unavailable(format!("a managed network is required, and the request {lacks}"), remedy)
}

/// The wire's name for the type of sandboxes here.
pub(super) const fn sandbox_type() -> &'static str {
    BACKEND.sandbox_type()
}

/// What enforces sandboxes here.
const BACKEND: SandboxBackend = if cfg!(windows) {
    SandboxBackend::Windows
} else if cfg!(target_os = "macos") {
    SandboxBackend::Seatbelt
} else {
    SandboxBackend::Linux
};
