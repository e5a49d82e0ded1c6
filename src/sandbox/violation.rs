//! Events about what a sandbox denied.

use std::fmt;
use std::time::SystemTime;

/// Takes events about what sandboxes denied.
pub trait ViolationSink: fmt::Debug + Send + Sync + 'static {
    /// Something was denied, or was found changed that should not have been. Called from the executor's own tasks: it must
    /// not block. What it does has no effect on the process.
    fn violation(&self, violation: Violation);
}

/// What a sandbox denied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// An access to files: one for a command that seems to have been denied something, and one for each protected name that
    /// appeared or changed while it ran ([`FileViolation::name_change`]). The latter can come after the exit, where the file
    /// system takes its time.
    File(FileViolation),
    /// A request that a managed network's proxy denied: one for each. Nothing here tells of it: the proxy is the host's, who
    /// can tell the same sink. The process may fail by it, which is no denial of its sandbox.
    Network(NetworkViolation),
}

/// A request to the network that a proxy denied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkViolation {
    /// Whom the process wanted to reach.
    pub host: String,
    /// The proxy's word for why not, such as `denied` or `not_allowed`.
    pub reason: String,
    /// How it asked: `http`, `https_connect`, `socks5_tcp` or `socks5_udp`.
    pub protocol: String,
    /// When.
    pub timestamp: SystemTime,
    /// The port that it wanted to reach.
    pub port: Option<u16>,
    /// Who asked, as an address.
    pub client: Option<String>,
    /// The method of the HTTP request.
    pub method: Option<String>,
    /// The mode that the proxy is in.
    pub mode: Option<String>,
    /// What was decided: `deny` or `ask`.
    pub decision: Option<String>,
    /// By what, such as `baseline_policy` or `decider`.
    pub source: Option<String>,
}

impl NetworkViolation {
    /// The word for what tells of it, in events.
    pub const BACKEND: &'static str = "managed_network_proxy";

    /// An event with nothing but what every one has.
    pub fn new(
        host: impl Into<String>,
        reason: impl Into<String>,
        protocol: impl Into<String>,
        timestamp: SystemTime,
    ) -> Self {
        Self {
            host: host.into(),
            reason: reason.into(),
            protocol: protocol.into(),
            timestamp,
            port: None,
            client: None,
            method: None,
            mode: None,
            decision: None,
            source: None,
        }
    }
}

/// An access to files that a sandbox denied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileViolation {
    /// What enforces the sandbox.
    pub backend: SandboxBackend,
    /// How it showed.
    pub reason: ViolationReason,
    /// The path, where one is known. Taken from the process's own output it is a guess.
    pub path: Option<String>,
    /// A piece of the process's output, at most 512 characters. Only where the executor's owner asked for it.
    pub output_snippet: Option<String>,
    /// What became of the path, if it is a protected name. Who has done it cannot be told: the process, or somebody outside of
    /// the sandbox meanwhile.
    pub name_change: Option<NameChange>,
    /// Where what appeared there is now, if it was [moved](super::MissingProtected::SetAside).
    pub moved_to: Option<String>,
}

impl FileViolation {
    /// An event without a path or a snippet.
    pub const fn new(backend: SandboxBackend, reason: ViolationReason) -> Self {
        Self { backend, reason, path: None, output_snippet: None, name_change: None, moved_to: None }
    }

    /// With the path that it is about.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// With what became of a protected name.
    pub fn name_change(mut self, change: NameChange) -> Self {
        self.name_change = Some(change);
        self
    }

    /// With the place to which what appeared was moved.
    pub fn moved_to(mut self, path: impl Into<String>) -> Self {
        self.moved_to = Some(path.into());
        self
    }

    /// With the beginning of `output`, cut at 512 characters.
    pub fn snippet(mut self, output: &str) -> Self {
        self.output_snippet = Some(output.chars().take(MAX_SNIPPET_CHARS).collect());
        self
    }
}

/// What became of a protected name while a process ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NameChange {
    /// There is something, and there was nothing at the start.
    Appeared,
    /// There is something else than at the start.
    Replaced,
    /// It cannot be told: the name cannot be looked at any more, or the executor does not say.
    #[default]
    Unknown,
}

impl NameChange {
    /// The word in events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Replaced => "replaced",
            Self::Unknown => "unknown",
        }
    }
}

/// What enforces a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SandboxBackend {
    /// Namespaces, Landlock and seccomp, by this library.
    Linux,
    /// Seatbelt, on macOS.
    Seatbelt,
    /// A restricted token, on Windows.
    Windows,
}

impl SandboxBackend {
    /// What enforces sandboxes on this system.
    pub(crate) const NATIVE: Self = if cfg!(windows) {
        Self::Windows
    } else if cfg!(target_os = "macos") {
        Self::Seatbelt
    } else {
        Self::Linux
    };

    /// The word in events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Seatbelt => "seatbelt",
            Self::Windows => "windows_sandbox",
        }
    }

    /// The wire's name for the type of sandbox.
    pub const fn sandbox_type(self) -> &'static str {
        match self {
            Self::Linux => "linuxSeccomp",
            Self::Seatbelt => "macosSeatbelt",
            Self::Windows => "windowsRestrictedToken",
        }
    }
}

/// How a denial showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ViolationReason {
    /// "Operation not permitted", in the output.
    OperationNotPermitted,
    /// "Permission denied", in the output.
    PermissionDenied,
    /// "Read-only file system", in the output.
    ReadOnlyFileSystem,
    /// A protected name appeared or changed, which the executor itself saw; or the output holds one of the words "seccomp",
    /// "sandbox" and "landlock".
    PolicyDenied,
    /// "Failed to write file", in the output.
    FailedToWriteFile,
    /// The process was killed for a forbidden system call, or has ended with the code that a shell has for that.
    Sigsys,
}

impl ViolationReason {
    /// The word in events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OperationNotPermitted => "operation_not_permitted",
            Self::PermissionDenied => "permission_denied",
            Self::ReadOnlyFileSystem => "read_only_file_system",
            Self::PolicyDenied => "policy_denied",
            Self::FailedToWriteFile => "failed_to_write_file",
            Self::Sigsys => "sigsys",
        }
    }
}

const MAX_SNIPPET_CHARS: usize = 512;
