//! What to run, and how: the request that every backend takes.

mod id;
mod signal;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::env_policy::{EnvMap, EnvPolicy, ReservedNames, ShellEnvPolicy, child_environment};
use crate::error::InvalidRequest;
use crate::path_uri::PathUri;
use crate::sandbox::{ManagedNetworkFacts, SandboxIntent};
use crate::wire::trace::Trace;

pub use self::id::{InvalidThreadId, Metadata, ProcessId, ThreadId};
pub use self::signal::Signal;

/// A command to run, built like a [`std::process::Command`].
///
/// Nothing is checked until the request is spawned; then every fault is an
/// [`InvalidRequest`] that names the element, and nothing was started.
///
/// ```
/// use longarm::ExecRequest;
///
/// let request = ExecRequest::new(["sh", "-c", "echo $GREETING"]).cwd("/tmp").env("GREETING", "hi");
/// assert_eq!(request.argv().len(), 3);
/// ```
#[derive(Clone)]
#[must_use = "a request does nothing until it is spawned"]
pub struct ExecRequest {
    pub(crate) process_id: Option<ProcessId>,
    pub(crate) argv: Vec<OsString>,
    pub(crate) arg0: Option<OsString>,
    pub(crate) cwd: Option<RequestPath>,
    pub(crate) env: BTreeMap<OsString, OsString>,
    pub(crate) env_policy: Option<Arc<dyn EnvPolicy>>,
    pub(crate) stdin: Stdin,
    pub(crate) terminal: Option<TerminalSize>,
    pub(crate) metadata: Option<Metadata>,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) output_limit_bytes: Option<u64>,
    pub(crate) stop_grace: Duration,
    pub(crate) contain: bool,
    pub(crate) sandbox: Option<SandboxIntent>,
    pub(crate) managed_network: Option<ManagedNetworkFacts>,
    pub(crate) enforce_managed_network: bool,
    /// Which trace whoever asks for the process is in.
    pub(crate) trace: Trace,
}

impl ExecRequest {
    /// A request for the program `argv[0]` with the arguments `argv[1..]`.
    ///
    /// A program without a separator is looked up on the `PATH` of the child's environment; another one is relative to
    /// the working directory. There is no shell in between.
    pub fn new<I>(argv: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        Self {
            process_id: None,
            argv: argv.into_iter().map(Into::into).collect(),
            arg0: None,
            cwd: None,
            env: BTreeMap::new(),
            env_policy: Some(Arc::new(ShellEnvPolicy::inherit_all())),
            stdin: Stdin::Null,
            terminal: None,
            metadata: None,
            time_limit: None,
            output_limit_bytes: None,
            stop_grace: DEFAULT_STOP_GRACE,
            contain: false,
            sandbox: None,
            managed_network: None,
            enforce_managed_network: false,
            trace: Trace::default(),
        }
    }

    /// The trace of the span that serves the request for this process, for a backend that passes it on; `None` for a request
    /// that came by no connection.
    #[cfg(feature = "tracing")]
    pub fn trace_context(&self) -> Option<&crate::telemetry::TraceContext> {
        self.trace.context()
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.argv.push(arg.into());
        self
    }

    /// The id of the process within its session. By default a random one.
    pub fn process_id(mut self, id: ProcessId) -> Self {
        self.process_id = Some(id);
        self
    }

    /// What the program sees as its own name; the program file is still `argv[0]`.
    pub fn arg0(mut self, arg0: impl Into<OsString>) -> Self {
        self.arg0 = Some(arg0.into());
        self
    }

    /// The working directory, absolute in the place where the process runs. By default the environment's own.
    pub fn cwd(mut self, cwd: impl Into<RequestPath>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Sets one variable, over all that the policy yields.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets many variables, over all that the policy yields.
    pub fn envs<I, K, V>(mut self, vars: I) -> Self
    where
        I: IntoIterator<Item = (K, V)>,
        K: Into<OsString>,
        V: Into<OsString>,
    {
        self.env.extend(vars.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Inherits nothing: the child gets exactly the variables set on this request.
    pub fn env_clear(mut self) -> Self {
        self.env_policy = None;
        self
    }

    /// How the child's environment is made from that of its place. By default [`ShellEnvPolicy::inherit_all`].
    pub fn env_policy(mut self, policy: impl EnvPolicy) -> Self {
        self.env_policy = Some(Arc::new(policy));
        self
    }

    /// Where standard input comes from. Without effect for terminals, which always take input.
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }

    /// Runs the process on a terminal of this size; its output comes as one merged stream.
    pub fn terminal(mut self, size: TerminalSize) -> Self {
        self.terminal = Some(size);
        self
    }

    /// Whom the process belongs to.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// How long the process may run. When it passes, the process tree is ended as by `terminate` and the status says so.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// How many bytes of output the process may write in all. Beyond it, the process tree is killed and the status says
    /// so. What was read before is delivered.
    pub fn output_limit_bytes(mut self, limit: u64) -> Self {
        self.output_limit_bytes = Some(limit);
        self
    }

    /// How long a process that is terminated may take to end by itself before it is killed. By default 2 s.
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// Whether descendants that start a session of their own, as daemons do, still belong to the process tree, and end when
    /// it is ended. By default they do not, and live on.
    ///
    /// It is about when the tree is ended, not a wall around it: what the process leaves behind when it exits by itself
    /// lives on until [`terminate_with`](crate::Process::terminate_with) asks for the end of descendants, or its place is
    /// closed.
    ///
    /// A place that cannot do this refuses the start: [`Unsupported`](crate::error::SpawnError::Unsupported) if it never
    /// can, [`ContainmentUnavailable`](crate::error::SpawnError::ContainmentUnavailable) if it needs something that the
    /// executor was not given.
    pub fn contain(mut self, contain: bool) -> Self {
        self.contain = contain;
        self
    }

    /// Runs the process in a sandbox, or not at all.
    pub fn sandbox(mut self, intent: SandboxIntent) -> Self {
        self.sandbox = Some(intent);
        self
    }

    /// Lets a sandboxed process reach a proxy that runs on the executor, and nothing else of the network, also if its intent
    /// enables that. An intent that restricts nothing makes no sandbox, and this has no effect then.
    pub fn managed_network(mut self, facts: ManagedNetworkFacts) -> Self {
        self.managed_network = Some(facts);
        self
    }

    /// Whether the process may reach the network through a managed proxy only. Without a sandbox, with one that restricts
    /// nothing, and without a port in [`managed_network`](Self::managed_network), the start is refused then.
    pub fn enforce_managed_network(mut self, enforce: bool) -> Self {
        self.enforce_managed_network = enforce;
        self
    }

    /// The program and its arguments.
    pub fn argv(&self) -> &[OsString] {
        &self.argv
    }

    /// The id asked for, if any.
    pub fn requested_id(&self) -> Option<&ProcessId> {
        self.process_id.as_ref()
    }

    /// What the program is to see as its own name, if not `argv[0]`.
    pub fn requested_arg0(&self) -> Option<&OsStr> {
        self.arg0.as_deref()
    }

    /// The working directory asked for, if any.
    pub fn requested_cwd(&self) -> Option<&RequestPath> {
        self.cwd.as_ref()
    }

    /// The variables set on this request.
    pub fn requested_env(&self) -> &BTreeMap<OsString, OsString> {
        &self.env
    }

    /// The policy, unless the environment is exact.
    pub fn requested_env_policy(&self) -> Option<&Arc<dyn EnvPolicy>> {
        self.env_policy.as_ref()
    }

    /// Where standard input comes from.
    pub fn requested_stdin(&self) -> Stdin {
        self.stdin
    }

    /// The terminal's initial size, if the process is to have one.
    pub fn requested_terminal(&self) -> Option<TerminalSize> {
        self.terminal
    }

    /// Whom the process belongs to.
    pub fn requested_metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// The time limit, if any.
    pub fn requested_time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// The output limit in bytes, if any.
    pub fn requested_output_limit_bytes(&self) -> Option<u64> {
        self.output_limit_bytes
    }

    /// The grace time of a stop.
    pub fn requested_stop_grace(&self) -> Duration {
        self.stop_grace
    }

    /// Whether the process is to be contained.
    pub fn requested_containment(&self) -> bool {
        self.contain
    }

    /// The sandbox intent, if any.
    pub fn requested_sandbox(&self) -> Option<&SandboxIntent> {
        self.sandbox.as_ref()
    }

    /// The facts of the proxy, if any.
    pub fn requested_managed_network(&self) -> Option<&ManagedNetworkFacts> {
        self.managed_network.as_ref()
    }

    /// Whether the network is to be reached through a managed proxy only.
    pub fn requires_managed_network(&self) -> bool {
        self.enforce_managed_network
    }

    /// Checks what can be checked without knowing the place: argv, names and NULs.
    ///
    /// # Errors
    ///
    /// The first [`InvalidRequest`] found, naming the element.
    pub fn validate(&self) -> Result<(), InvalidRequest> {
        let program = self.argv.first().ok_or(InvalidRequest::EmptyArgv)?;
        if program.is_empty() {
            return Err(InvalidRequest::EmptyProgram);
        }
        for (index, arg) in self.argv.iter().enumerate() {
            check_nul(arg, || format!("argv[{index}]"))?;
        }
        if let Some(arg0) = &self.arg0 {
            check_nul(arg0, || "arg0".into())?;
        }
        for (name, value) in &self.env {
            check_variable_name(name)?;
            check_nul(value, || format!("the value of env[{:?}]", name.to_string_lossy()))?;
        }
        if let Some(RequestPath::Native(path)) = &self.cwd {
            check_nul(path.as_os_str(), || "cwd".into())?;
        }
        if let Some(policy) = self.env_policy.as_ref().and_then(|policy| policy.portable()) {
            for (name, value) in policy.variables() {
                check_variable_name(name.as_ref())?;
                check_nul(value.as_ref(), || format!("the value of the policy's variable {name:?}"))?;
            }
        }
        if let Some(Metadata { tool_call_id: Some(id), .. }) = &self.metadata {
            check_nul(id.as_ref(), || "metadata.toolCallId".into())?;
        }
        Ok(())
    }

    /// The working directory as a native path of this host, or else `default`: for backends that start processes here.
    ///
    /// # Errors
    ///
    /// An [`InvalidRequest`]: `ForeignPath`, `Nul`, `RelativeCwd`, or `NoCwd` if there is neither.
    pub fn host_cwd(&self, default: Option<&Path>) -> Result<PathBuf, InvalidRequest> {
        let cwd = match &self.cwd {
            Some(RequestPath::Uri(uri)) => uri.to_host_native_path()?,
            Some(RequestPath::Native(path)) => path.clone(),
            None => default.ok_or(InvalidRequest::NoCwd)?.to_path_buf(),
        };
        // A URI may stand for a path that holds one.
        check_nul(cwd.as_os_str(), || "cwd".into())?;
        if cwd.is_absolute() { Ok(cwd) } else { Err(InvalidRequest::RelativeCwd { path: cwd }) }
    }

    /// The environment of the child on this host, without the reserved names: for backends that start processes here. It is
    /// made from `base` by [`child_environment`].
    ///
    /// # Errors
    ///
    /// An [`InvalidRequest`] if the policy yields a name or a value that no system takes.
    pub fn host_env(&self, base: &EnvMap, reserved: &ReservedNames) -> Result<EnvMap, InvalidRequest> {
        let policy = self.env_policy.as_deref();
        let env = child_environment(base, policy, &self.env, self.metadata.as_ref(), reserved, cfg!(windows));
        for (name, value) in &env {
            check_made_variable(name, value)?;
        }
        Ok(env)
    }
}

/// Shows what is run and where, and the names of the variables, never their values.
impl fmt::Debug for ExecRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecRequest")
            .field("process_id", &self.process_id)
            .field("argv", &self.argv)
            .field("arg0", &self.arg0)
            .field("cwd", &self.cwd)
            .field("env_names", &self.env.keys().collect::<Vec<_>>())
            .field("env_policy", &self.env_policy)
            .field("stdin", &self.stdin)
            .field("terminal", &self.terminal)
            .field("metadata", &self.metadata)
            .field("time_limit", &self.time_limit)
            .field("output_limit_bytes", &self.output_limit_bytes)
            .field("stop_grace", &self.stop_grace)
            .field("contain", &self.contain)
            .field("sandbox", &self.sandbox)
            .field("managed_network", &self.managed_network)
            .field("enforce_managed_network", &self.enforce_managed_network)
            .finish()
    }
}

/// A path in the place where the process runs: a URI, or native text of that place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestPath {
    /// A file URI.
    Uri(PathUri),
    /// Native text; must be absolute.
    Native(PathBuf),
}

impl From<PathUri> for RequestPath {
    fn from(uri: PathUri) -> Self {
        Self::Uri(uri)
    }
}

impl From<PathBuf> for RequestPath {
    fn from(path: PathBuf) -> Self {
        Self::Native(path)
    }
}

impl From<&Path> for RequestPath {
    fn from(path: &Path) -> Self {
        Self::Native(path.into())
    }
}

impl From<&PathBuf> for RequestPath {
    fn from(path: &PathBuf) -> Self {
        Self::Native(path.clone())
    }
}

impl From<&str> for RequestPath {
    fn from(path: &str) -> Self {
        Self::Native(path.into())
    }
}

impl From<String> for RequestPath {
    fn from(path: String) -> Self {
        Self::Native(path.into())
    }
}

/// Where standard input comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stdin {
    /// Nothing: the null device.
    #[default]
    Null,
    /// A pipe that the host writes to.
    Piped,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

impl Default for TerminalSize {
    /// 24 rows of 80 columns, as a terminal on the plain wire always has.
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

fn check_nul(text: &OsStr, element: impl FnOnce() -> String) -> Result<(), InvalidRequest> {
    if text.as_encoded_bytes().contains(&0) {
        return Err(InvalidRequest::Nul { element: element() });
    }
    Ok(())
}

/// Checks a variable that somebody else than the request made: a policy of the host's own, or the base environment, in
/// which Windows keeps names such as `=C:`.
fn check_made_variable(name: &OsStr, value: &OsStr) -> Result<(), InvalidRequest> {
    let bytes = name.as_encoded_bytes();
    if bytes.is_empty() || bytes.iter().skip(1).any(|byte| *byte == b'=') || bytes.contains(&0) {
        return Err(InvalidRequest::VariableName { name: name.to_string_lossy().into_owned() });
    }
    check_nul(value, || format!("the value of the variable {:?}", name.to_string_lossy()))
}

fn check_variable_name(name: &OsStr) -> Result<(), InvalidRequest> {
    let bytes = name.as_encoded_bytes();
    // Windows keeps variables such as `=C:` whose name starts with the sign; setting them is still refused.
    if bytes.is_empty() || bytes.contains(&b'=') || bytes.contains(&0) {
        return Err(InvalidRequest::VariableName { name: name.to_string_lossy().into_owned() });
    }
    Ok(())
}

/// Decision: a stop waits this long before it kills, unless the request says otherwise.
pub(crate) const DEFAULT_STOP_GRACE: Duration = Duration::from_secs(2);
