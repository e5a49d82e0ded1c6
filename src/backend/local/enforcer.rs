//! Who makes the sandboxes of a local place: the trait, what it is given and what it gives, and the one of this system.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::os;
use super::spawn::LaunchPlan;
use crate::env_policy::EnvMap;
use crate::sandbox::{Bound, Enforcement, Level, ManagedNetworkFacts, SandboxBackend, SandboxError, SandboxSettings};

/// Makes the sandboxes of the processes of a [`Local`](crate::Local) place.
///
/// [`NativeEnforcer`], the one of the system, is what a place has by default. A host that has another way, such as a
/// container runtime or a launcher of its own, supplies it by
/// [`LocalConfig::enforcer`](crate::LocalConfig::enforcer).
///
/// # Contract
///
/// - The place binds the intent, looks whether the working directory and the patterns can be used, and holds protected
///   names that are missing; the enforcer is asked last, and only if the intent restricts something.
/// - What cannot be enforced is an error, or a report that says so. The place itself refuses a [partial](Level::Partial) report
///   unless the executor's owner accepts partial sandboxes, and always one of [`Level::None`].
/// - Calls about files are not its business: the place decides them itself.
///
/// ```
/// use std::ffi::{OsStr, OsString};
/// use std::sync::Arc;
///
/// use longarm::sandbox::{
///     Access, Enforcement, Level, SandboxEnforcer, SandboxError, SandboxPlan, SandboxedStart,
/// };
/// use longarm::{Environment, Local, LocalConfig};
///
/// /// Runs commands in containers of a program that the host has.
/// #[derive(Debug)]
/// struct Containers;
///
/// impl SandboxEnforcer for Containers {
///     fn prepare(&self, start: &SandboxedStart<'_>) -> Result<SandboxPlan, SandboxError> {
///         if start.managed.is_some() || start.bound.root != Some(Access::Read) {
///             return Err(SandboxError::Unavailable { cause: "only read-only trees".into(), remedy: None });
///         }
///         let mut launcher: Vec<OsString> = vec!["/usr/bin/contain".into(), "--read-only".into()];
///         for entry in start.bound.entries.iter().filter(|entry| entry.access == Access::Write) {
///             launcher.extend(["--writable".into(), entry.path.clone().into_os_string()]);
///         }
///         launcher.push("--".into());
///         let enforcement = Enforcement::new(Level::Full, vec!["contain".into()], Vec::new());
///         SandboxPlan::launcher(launcher, enforcement)
///     }
/// }
///
/// let local = Local::new(LocalConfig::from_host().enforcer(Arc::new(Containers)));
/// let environment = Environment::with_backend(Arc::new(local));
/// ```
pub trait SandboxEnforcer: Any + fmt::Debug + Send + Sync {
    /// What its sandboxes are called on the wire, as [`Process::sandbox_type`](crate::Process::sandbox_type) reports it. By
    /// default as those of the system. Codex's client knows `linuxSeccomp`, `macosSeatbelt`, `windowsRestrictedToken` and
    /// `windowsMxc`.
    fn sandbox_type(&self) -> &str {
        SandboxBackend::NATIVE.sandbox_type()
    }

    /// Prepares the sandbox of one process, before anything is started. It is called on a thread that may block; a start that
    /// is given up meanwhile drops what it returns.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Unavailable`] for what cannot be enforced here, and [`SandboxError::Preparation`] for an intent that
    /// cannot be applied to the files that there are. The process is not started then. After [`SandboxError::Changed`] the place
    /// binds the intent once more and asks again, three times in all.
    fn prepare(&self, start: &SandboxedStart<'_>) -> Result<SandboxPlan, SandboxError>;
}

/// Whether it is the one of the system, and nothing of a host's runs in it.
pub(super) fn is_native(enforcer: &Arc<dyn SandboxEnforcer>) -> bool {
    let enforcer: &dyn Any = &**enforcer;
    enforcer.is::<NativeEnforcer>()
}

/// What an enforcer is to prepare.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SandboxedStart<'a> {
    /// The intent, as bound to the paths of this machine, with its patterns expanded.
    pub bound: &'a Arc<Bound>,
    /// What the executor's owner has decided.
    pub settings: &'a SandboxSettings,
    /// The loopback ports of the executor through which alone the process may reach the network, if there are any. An
    /// enforcer that cannot restrict the network to them has to refuse.
    pub managed: Option<&'a ManagedNetworkFacts>,
    /// The working directory, absolute and without links.
    pub cwd: &'a Path,
}

/// How one process is put into its sandbox.
#[derive(Clone, Debug)]
pub struct SandboxPlan {
    enforcement: Enforcement,
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    Native(os::sandbox::SandboxPlan),
    Launcher(Arc<[OsString]>),
}

impl SandboxPlan {
    /// A process that is started by another program: `launcher` is that program, by its absolute path, and the arguments
    /// that stand before those of the command. It gets the command's variables, directory, streams and terminal, and
    /// is to execute the command in its own place, or to pass its exit code on. What it says of a command that cannot
    /// be executed is an exit, and no error of the start.
    ///
    /// It runs before there is a sandbox, and who sends a request chooses its variables. Those by which the system's loader and
    /// shells take code from elsewhere (`LD_…`, `DYLD_…`, `GLIBC_TUNABLES`, `GCONV_PATH`, `LOCPATH`, `BASH_ENV`) are refused, unless
    /// they are those of the place; no other one may make it do something else, so it should not be a script.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Preparation`] if there is no program, or its path is not absolute: which program enforces a sandbox must
    /// not be up to the command's variables.
    pub fn launcher(
        launcher: impl IntoIterator<Item = impl Into<OsString>>,
        enforcement: Enforcement,
    ) -> Result<Self, SandboxError> {
        let launcher: Arc<[OsString]> = launcher.into_iter().map(Into::into).collect();
        match launcher.first() {
            Some(program) if Path::new(program).is_absolute() => {}
            Some(program) => {
                let program = program.display();
                return Err(SandboxError::preparation(format!(
                    "the launcher {program} is not named by an absolute path"
                )));
            }
            None => return Err(SandboxError::preparation("the enforcer names no launcher")),
        }
        Ok(Self { enforcement, way: Way::Launcher(launcher) })
    }

    /// What will be enforced.
    pub const fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// The plan, if its report is one that the owner accepts.
    pub(super) fn admitted(self, settings: &SandboxSettings) -> Result<Self, SandboxError> {
        match &self.enforcement.level {
            Level::Full => Ok(self),
            Level::Partial(_) if settings.accept_partial => Ok(self),
            Level::Partial(reasons) => Err(SandboxError::unavailable(
                format!("the sandbox would be partial: {}", reasons.join("; ")),
                "the executor's owner can accept that (`SandboxSettings::accept_partial`)",
            )),
            Level::None => Err(SandboxError::Unavailable {
                cause: "the executor's enforcer would enforce nothing".into(),
                remedy: None,
            }),
        }
    }

    /// Makes it a part of a start.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Unavailable`] if the command is to have another name than that of its program, which a launcher cannot
    /// give it, or variables that would have the launcher do something else.
    pub(super) fn apply(self, plan: &mut LaunchPlan, base_env: &EnvMap) -> Result<(), SandboxError> {
        match self.way {
            Way::Native(native) => plan.sandbox = Some(native),
            Way::Launcher(launcher) => {
                if plan.argv.first() != Some(&plan.program) {
                    return Err(SandboxError::unavailable(
                        "the executor starts sandboxed commands by a launcher, which gives a command the name of its program",
                        "send no `arg0`",
                    ));
                }
                let differs = |name: &&OsString| is_of_the_loader(name) && plan.env.get(*name) != base_env.get(*name);
                if let Some(name) = plan.env.keys().find(differs) {
                    return Err(SandboxError::unavailable(
                        format!(
                            "the executor starts sandboxed commands by a launcher, and {} would have that load code from elsewhere",
                            name.display()
                        ),
                        "do not send that variable",
                    ));
                }
                let argv = launcher.iter().cloned().chain(std::mem::take(&mut plan.argv)).collect();
                plan.program.clone_from(&launcher[0]);
                plan.argv = argv;
            }
        }
        Ok(())
    }
}

/// Whether a variable makes programs load code, or have other rules for it, before they do anything.
fn is_of_the_loader(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let begins = |prefix: &[u8]| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    begins(b"LD_")
        || begins(b"DYLD_")
        || [b"GLIBC_TUNABLES".as_slice(), b"GCONV_PATH", b"LOCPATH", b"BASH_ENV"].contains(&name)
}

/// The enforcer of the system: namespaces, Landlock and seccomp on Linux, Seatbelt on macOS, a restricted token and a job
/// object on Windows. `guide::sandbox` says what each of them can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NativeEnforcer;

impl NativeEnforcer {
    /// The enforcer of the system.
    pub const fn new() -> Self {
        Self
    }
}

impl SandboxEnforcer for NativeEnforcer {
    fn prepare(&self, start: &SandboxedStart<'_>) -> Result<SandboxPlan, SandboxError> {
        let native = os::sandbox::prepare(start.bound, start.settings, start.managed)?;
        Ok(SandboxPlan { enforcement: native.enforcement().clone(), way: Way::Native(native) })
    }
}

#[cfg(all(test, unix))]
mod tests;
