//! How a local place is set up: every value explicit, and its default.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::enforcer::{NativeEnforcer, SandboxEnforcer};
use crate::config::OutputLimits;
use crate::env_policy::{EnvMap, ReservedNames};
use crate::sandbox::SandboxSettings;

/// Settings of [`Local`](super::Local).
///
/// [`LocalConfig::default`] is empty: children inherit nothing and each request names its directory.
/// [`LocalConfig::from_host`] takes both from this process, once.
#[derive(Clone)]
#[non_exhaustive]
#[must_use]
pub struct LocalConfig {
    /// The variables that a request's policy starts from. By default none.
    pub base_env: EnvMap,
    /// The working directory of requests that name none. By default there is none, and such requests are refused.
    pub default_cwd: Option<PathBuf>,
    /// Names of variables that never reach a child. By default those that hold the executor's own credentials.
    pub reserved_names: ReservedNames,
    /// Output held for a process whose events are not polled. At the bound its pipes fill up (on Linux, those of a fast
    /// writer hold 1 MiB), and the process is paused. A place behind a [`Server`](crate::server::Server), which retains output itself,
    /// can do with less: 256 KiB are enough for full speed.
    pub output: OutputLimits,
    /// How long processes may take to end by themselves when the place is closed. 2 s.
    pub close_grace: Duration,
    /// How long after an exit the output streams may stay open before our ends of them are closed, and
    /// [`Closed::cut`](crate::event::Closed::cut) says so. By default without limit.
    pub close_streams_after_exit: Option<Duration>,
    /// Whether the system kills processes when this process dies without closing the place. Off by default. On Unix
    /// systems other than Linux it has no effect. On Linux such a process does not outlive the threads of its place either:
    /// one that was detached ends with the runtime that it was spawned in.
    pub end_with_executor: bool,
    /// The soft and hard limit of open descriptors that children get. By default what this process has.
    pub child_descriptor_limit: Option<(u64, u64)>,
    /// How long a start may take in all, such as behind others that a file system holds up, before it ends in
    /// [`SpawnError::TimedOut`](crate::error::SpawnError::TimedOut). 30 s.
    pub start_limit: Duration,
    /// What holds processes that are to be [contained](crate::ExecRequest::contain), on Linux. By default whatever there is.
    pub containment: Containment,
    /// The cgroup in which those of contained processes are made, as its directory. By default the one that this process
    /// is in at the time.
    pub parent_cgroup: Option<PathBuf>,
    /// What the executor's owner decides about sandboxes.
    pub sandbox: SandboxSettings,
    /// Who makes the sandboxes of processes. By default the [one of the system](crate::sandbox::NativeEnforcer).
    pub enforcer: Arc<dyn SandboxEnforcer>,
    /// Behaves as where no PID namespace can be made.
    #[cfg(test)]
    pub(super) no_namespaces: bool,
    /// Waits for exits by threads even where the system has something better, as on old kernels.
    pub(super) exit_by_thread: bool,
}

/// What holds a process and all that it starts together, on Linux.
///
/// | | takes | the process | when the executor is killed |
/// | --- | --- | --- | --- |
/// | cgroup | Linux 5.14, and a cgroup in which this user may make others | notices nothing | what has left its session lives on; the cgroup is removed by a later executor |
/// | PID namespace | Linux 5.8, and `CAP_SYS_ADMIN` | has another number for itself than outside, and a `/proc` and mounts of its own | everything ends, with [`end_with_executor`](LocalConfig::end_with_executor) |
///
/// A member of a cgroup that has the right to can have itself moved to another one; nobody leaves a PID namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Containment {
    /// A cgroup, or else a PID namespace.
    #[default]
    Any,
    /// A cgroup (version 2) of its own.
    Cgroup,
    /// A PID namespace of its own. It is never made by way of a user namespace, in which a process would be another user
    /// to its own files and programs.
    PidNamespace,
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            base_env: EnvMap::new(),
            default_cwd: None,
            reserved_names: ReservedNames::default(),
            output: OutputLimits::default(),
            close_grace: Duration::from_secs(2),
            close_streams_after_exit: None,
            end_with_executor: false,
            child_descriptor_limit: None,
            start_limit: Duration::from_secs(30),
            containment: Containment::default(),
            parent_cgroup: None,
            sandbox: SandboxSettings::default(),
            enforcer: Arc::new(NativeEnforcer),
            #[cfg(test)]
            no_namespaces: false,
            exit_by_thread: false,
        }
    }
}

impl LocalConfig {
    /// Settings with the variables and the working directory that this process has now. Later changes of them have no
    /// effect. A working directory that was deleted or cannot be read is left out.
    pub fn from_host() -> Self {
        Self { base_env: std::env::vars_os().collect(), default_cwd: std::env::current_dir().ok(), ..Self::default() }
    }

    /// Sets the variables that policies start from.
    pub fn base_env(mut self, base_env: EnvMap) -> Self {
        self.base_env = base_env;
        self
    }

    /// Sets the working directory of requests that name none. It must be absolute.
    pub fn default_cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.default_cwd = Some(cwd.into());
        self
    }

    /// Sets the names of variables that never reach a child.
    pub fn reserved_names(mut self, names: ReservedNames) -> Self {
        self.reserved_names = names;
        self
    }

    /// Sets the bounds on held output.
    pub fn output(mut self, output: OutputLimits) -> Self {
        self.output = output;
        self
    }

    /// Sets the grace time of closing.
    pub fn close_grace(mut self, grace: Duration) -> Self {
        self.close_grace = grace;
        self
    }

    /// Sets how long streams may outlive the exit; `None` is without limit.
    pub fn close_streams_after_exit(mut self, limit: Option<Duration>) -> Self {
        self.close_streams_after_exit = limit;
        self
    }

    /// Sets whether processes die with this one.
    pub fn end_with_executor(mut self, end: bool) -> Self {
        self.end_with_executor = end;
        self
    }

    /// Sets the soft and hard limit of open descriptors of children.
    pub fn child_descriptor_limit(mut self, soft: u64, hard: u64) -> Self {
        self.child_descriptor_limit = Some((soft, hard));
        self
    }

    /// Sets what holds contained processes.
    pub fn containment(mut self, containment: Containment) -> Self {
        self.containment = containment;
        self
    }

    /// Sets the cgroup in which those of contained processes are made.
    pub fn parent_cgroup(mut self, directory: impl Into<PathBuf>) -> Self {
        self.parent_cgroup = Some(directory.into());
        self
    }

    /// Sets what the executor's owner decides about sandboxes.
    pub fn sandbox(mut self, settings: SandboxSettings) -> Self {
        self.sandbox = settings;
        self
    }

    /// Sets who makes the sandboxes of processes.
    pub fn enforcer(mut self, enforcer: Arc<dyn SandboxEnforcer>) -> Self {
        self.enforcer = enforcer;
        self
    }

    /// Makes PID namespaces unavailable.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn no_namespaces(mut self) -> Self {
        self.no_namespaces = true;
        self
    }

    /// Makes every exit be waited for by a thread, as on systems that have nothing better.
    #[cfg(test)]
    pub(super) fn exit_by_thread(mut self) -> Self {
        self.exit_by_thread = true;
        self
    }

    /// Sets how long a start may take.
    pub fn start_limit(mut self, limit: Duration) -> Self {
        self.start_limit = limit;
        self
    }
}

/// Shows the names of variables, never their values.
impl fmt::Debug for LocalConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalConfig")
            .field("base_env_names", &self.base_env.keys().collect::<Vec<_>>())
            .field("default_cwd", &self.default_cwd)
            .field("reserved_names", &self.reserved_names)
            .field("output", &self.output)
            .field("close_grace", &self.close_grace)
            .field("close_streams_after_exit", &self.close_streams_after_exit)
            .field("end_with_executor", &self.end_with_executor)
            .field("child_descriptor_limit", &self.child_descriptor_limit)
            .field("start_limit", &self.start_limit)
            .field("containment", &self.containment)
            .field("parent_cgroup", &self.parent_cgroup)
            .field("sandbox", &self.sandbox)
            .field("enforcer", &self.enforcer)
            .finish()
    }
}
