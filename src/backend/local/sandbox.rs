//! The sandbox of a process on this machine: from the intent of a request to a plan, before anything is started, and what
//! becomes of it at the end.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::config::LocalConfig;
use super::enforcer::{SandboxPlan, SandboxedStart};
use super::names::{Names, Unheld};
use super::os;
use crate::error::{OsError, SpawnError};
use crate::event::OutputStream;
use crate::request::ExecRequest;
use crate::sandbox::{
    Bindings, Bound, Class, Denial, DenialWatch, Enforcement, Evidence, Facts, FileViolation, Found, HostPaths,
    KeepsOwn as _, Level, ManagedNetworkFacts, MissingOwn, PathIdentity, SandboxBackend, SandboxError, SandboxIntent,
    SandboxSettings, Seen, Violation,
};
use crate::status::ExitStatus;

/// What a sandboxed start needs.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) plan: SandboxPlan,
    /// What the wire calls it.
    pub(super) sandbox_type: String,
    pub(super) sandboxed: Sandboxed,
    /// Names that must not appear while it runs. To let them go blocks.
    pub(super) held: Option<os::sandbox::Held>,
    /// The working directory, without links.
    pub(super) cwd: PathBuf,
}

/// What watches over a process in a sandbox.
#[derive(Debug)]
pub(super) struct Sandboxed {
    enforcement: Enforcement,
    watch: DenialWatch,
    settings: SandboxSettings,
    /// Names that must not appear while it runs.
    names: Option<Names>,
}

/// What it takes to bind and plan the sandbox of a request. None if it asks for none.
///
/// # Errors
///
/// Why there can be none. Nothing was started.
pub(super) fn work(
    request: &ExecRequest,
    config: &Arc<LocalConfig>,
    (placeholders, bindings): (&os::sandbox::Placeholders, &Arc<Bindings>),
    cwd: &Path,
    hold: Hold,
) -> Result<Option<Work>, SpawnError> {
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
    Ok(Some(Work {
        intent,
        managed: request.managed_network.clone(),
        must_manage: request.enforce_managed_network,
        config: Arc::clone(config),
        placeholders: placeholders.clone(),
        bindings: Arc::clone(bindings),
        cwd: cwd.into(),
        hold,
    }))
}

/// Whether protected names that are missing are held, for a process that will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    Names,
    /// Nothing is started: nothing is made either.
    Nothing,
}

/// What is done away from the tasks: paths are looked up, which can take a while.
pub(super) struct Work {
    intent: SandboxIntent,
    managed: Option<ManagedNetworkFacts>,
    /// Whether the network may be reached in no other way.
    must_manage: bool,
    config: Arc<LocalConfig>,
    placeholders: os::sandbox::Placeholders,
    bindings: Arc<Bindings>,
    cwd: PathBuf,
    hold: Hold,
}

impl Work {
    /// Binds and plans. None if the request asks for a sandbox that restricts nothing. Blocks, and ends early when `asker` is no more.
    ///
    /// # Errors
    ///
    /// Why there can be none. Nothing was started, and what was held for it is let go.
    pub(super) fn carry_out(&self, attempt: Attempt, asker: &Weak<()>) -> Result<Option<Prepared>, SpawnError> {
        let settings = &self.config.sandbox;
        let (raw, own) = self.bind()?;
        let bound = self.bindings.finish(&raw, &own, &[])?;
        if bound.class == Class::Nothing {
            return match self.must_manage {
                false => Ok(None),
                true => {
                    Err(unmanaged("asks for a sandbox that restricts nothing", "restrict the network in it").into())
                }
            };
        }
        // Where the intent was just bound to it, it is known to be there, and to have no links.
        let known = bound.workspace_roots.iter().find(|root| **root == self.cwd);
        let cwd = match known.map_or_else(|| self.cwd.canonicalize(), |root| Ok(root.clone())) {
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
        let (mut bound, mut held, mut unheld) = (bound, None, Vec::new());
        if self.hold == Hold::Names {
            let mut names = self.placeholders.hold(&bound.protected, settings.missing_protected);
            if let Some(path) = names.appeared(&bound) {
                let what = format!("{} has appeared while the sandbox was prepared", path.display());
                return Err(SandboxError::changed(what).into());
            }
            // What was missing is there now, to be mounted over.
            bound = self.bindings.finish(&raw, &own, &names.placeholders().collect::<Vec<_>>())?;
            // Whoever has it may keep it for long, and it has been waited for.
            names.lend_to(&bound).map_err(|error| SandboxError::preparation(format!("{error}; try again")))?;
            unheld = admit(names.unheld(), &bound, settings)?;
            held = (!names.is_idle()).then_some(names);
        } else {
            let names = self.placeholders.foresee(&bound.protected, settings.missing_protected);
            unheld.extend(names.into_iter().map(|(path, why)| (path.display().to_string(), why.to_string())));
        }
        // Last, since it can be a long walk.
        if !bound.globs.is_empty() {
            let bound = Arc::make_mut(&mut bound);
            bound.expand_globs(&WhileWanted(asker))?;
            if attempt.is_last() {
                // Where files that match come and go all the time, one is always gone.
                bound.let_matches_go();
            }
        }
        let enforcer = &self.config.enforcer;
        let start = SandboxedStart { bound: &bound, settings, managed: self.managed.as_ref(), cwd: &cwd };
        let plan = enforcer.prepare(&start)?.admitted(settings)?;
        let mut enforcement = plan.enforcement().clone();
        for (path, why) in unheld {
            enforcement.mechanisms.push(format!("look at {path} at the end: {why}"));
            lower(
                &mut enforcement,
                format!("{path} can be made while the process runs, and is looked at afterwards: {why}"),
            );
        }
        let watch = DenialWatch::new(SandboxBackend::NATIVE, settings.output_snippets);
        let sandboxed = Sandboxed { enforcement, watch, settings: settings.clone(), names: None };
        Ok(Some(Prepared { plan, sandbox_type: enforcer.sandbox_type().into(), sandboxed, held, cwd }))
    }

    /// What the intent is bound to, and which directories of the executor's own are to be kept out of that.
    fn bind(&self) -> Result<(Arc<Bound>, Vec<PathBuf>), SandboxError> {
        let temp_dir = os::temporary_directories(&self.config.base_env).1;
        let bound = self.bindings.bind(&self.intent, &Facts::host(&self.config.sandbox, &temp_dir))?;
        let missing = match self.hold {
            Hold::Names => MissingOwn::Make,
            Hold::Nothing => MissingOwn::Leave,
        };
        let own = self.placeholders.own(&bound, missing)?;
        Ok((bound, own))
    }
}

/// The files of this machine, of which nothing more is listed when nobody waits for it any more: a tree can be large, or on a file
/// system that is far away.
struct WhileWanted<'a>(&'a Weak<()>);

impl PathIdentity for WhileWanted<'_> {
    fn look(&self, path: &Path) -> io::Result<Seen> {
        HostPaths.look(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(OsString, Found)>> {
        if self.0.strong_count() == 0 {
            return Err(io::Error::other("the start was given up"));
        }
        HostPaths.list(directory)
    }

    fn read_start(&self, file: &Path, max: usize) -> io::Result<Vec<u8>> {
        HostPaths.read_start(file, max)
    }

    fn true_name(&self, path: &Path) -> io::Result<PathBuf> {
        HostPaths.true_name(path)
    }
}

/// One more look at files, which come and go: what was found at a path can be another thing at the next look. Then nothing was
/// started, and it is tried again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt(u8);

impl Attempt {
    pub(super) const FIRST: Self = Self(1);

    fn is_last(self) -> bool {
        self.0 == 3
    }

    /// The next one, if the outcome of this one asks for it.
    pub(super) fn after<T>(self, outcome: &Result<T, SpawnError>) -> Option<Self> {
        let has_changed = matches!(outcome, Err(SpawnError::Sandbox(SandboxError::Changed { .. })));
        (has_changed && !self.is_last()).then_some(Self(self.0 + 1))
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

    /// Names are held for it from now on, until they are taken.
    pub(super) fn hold(&mut self, names: Option<Names>) {
        self.names = names;
    }

    /// What is held for it.
    pub(super) fn names(&self) -> Option<&Names> {
        self.names.as_ref()
    }

    /// What is held for it, to be let go when it has ended.
    pub(super) fn take_names(&mut self) -> Option<Names> {
        self.names.take()
    }

    /// The process has ended, and its output was fed, or has had its time. Tells of a violation. The system calls that were
    /// refused, and how often, are evidence only.
    pub(super) fn classify(&self, status: ExitStatus, refused: Vec<(&'static str, u64)>) -> Denial {
        let mut denial = self.watch.classify(status);
        if let Some(violation) = self.watch.violation(&denial) {
            self.tell(violation);
        }
        let refused = refused.into_iter().map(|(syscall, count)| Evidence::Seccomp { syscall: syscall.into(), count });
        // What is sure comes first.
        drop(denial.evidence.splice(..0, refused));
        denial
    }

    fn tell(&self, violation: FileViolation) {
        if let Some(sink) = &self.settings.violations {
            sink.violation(Violation::File(violation));
        }
    }
}

/// The names that the process could make, and why, if that will do.
fn admit<'a>(
    unheld: impl Iterator<Item = (&'a Path, &'a Unheld)>,
    bound: &Bound,
    settings: &SandboxSettings,
) -> Result<Vec<(String, String)>, SandboxError> {
    let unheld = unheld.map(|(path, why)| {
        let is_required = bound.protected.iter().any(|name| name.required && name.path == path);
        let (is_failure, path, why) = (why.is_failure(), path.display(), why.to_string());
        if is_required {
            return Err(SandboxError::preparation(format!(
                "{path} must not be made, and does not exist, and its name cannot be held: {why}; give the executor a directory of \
                 its own for its state, and room"
            )));
        }
        if is_failure && !settings.accept_partial {
            let remedy = "give the executor a directory of its own for its state, and room; or its owner accepts partial sandboxes, \
                          or checks names instead of holding them";
            return Err(SandboxError::unavailable(format!("the protected name {path} cannot be held: {why}"), remedy));
        }
        Ok((path.to_string(), why))
    });
    unheld.collect()
}

/// A part is not enforced.
fn lower(enforcement: &mut Enforcement, reason: String) {
    match &mut enforcement.level {
        Level::Partial(reasons) => reasons.push(reason),
        level => *level = Level::Partial(vec![reason]),
    }
}

/// A managed network is required, and there is nothing to enforce it by.
fn unmanaged(lacks: &str, remedy: &str) -> SandboxError {
    SandboxError::unavailable(format!("a managed network is required, and the request {lacks}"), remedy)
}
