//! What the executor's owner decides about sandboxes.

use std::path::PathBuf;
use std::sync::Arc;

use super::violation::ViolationSink;

/// What the owner of an executor decides about the sandboxes that it makes. Nothing that comes over the wire changes it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
#[must_use]
pub struct SandboxSettings {
    /// Whether a sandbox that enforces only a part of an intent will do. Off by default: then the request is refused. On macOS
    /// and Windows every sandbox for a process is such a one, since none has been run there.
    pub accept_partial: bool,
    /// Whether processes whose network is restricted have a loopback interface of their own, on which they may listen and
    /// reach themselves. Off by default: then they can make no network socket at all. On Linux only.
    pub private_loopback: bool,
    /// Names at the top of each workspace root that are read-only besides `.git`, `.agents`, `.codex` and `.aws`, unless
    /// everything may be written. One that is empty, `.` or `..`, or that holds a separator, makes every intent that would use
    /// it fail.
    pub extra_protected_names: Vec<String>,
    /// How a protected name that does not exist is kept from being made.
    pub missing_protected: MissingProtected,
    /// Where the executor keeps its journal of what it made outside a sandbox, what it moved out of the way, and, as long
    /// as it is not closed, some empty directories for the names of later processes: on the file system of the workspaces
    /// it saves these time. It is made if need be, and nobody else may write to it. By default, on Linux,
    /// `/var/tmp/longarm-` and the number of the user; where somebody else has taken that name, `longarm` in the user's
    /// directory below `/run/user`, or the first name with a number behind it. [`Local::new`](crate::Local::new) removes
    /// what it says was left, also if no sandbox is ever asked for. Unless everything may be written, nobody in a sandbox can
    /// write to it, whatever is allowed around it, nor read it under an intent that denies something: neither processes nor
    /// calls about files. A relative path is one from where this process is when the executor is made.
    pub state_dir: Option<PathBuf>,
    /// Who is told of violations. By default nobody.
    pub violations: Option<Arc<dyn ViolationSink>>,
    /// Whether violations carry a piece of the process's output. Off by default, since that may hold secrets.
    pub output_snippets: bool,
    walls_off: Vec<Wall>,
}

impl SandboxSettings {
    /// Sets whether a partial sandbox will do.
    pub fn accept_partial(mut self, accept: bool) -> Self {
        self.accept_partial = accept;
        self
    }

    /// Sets whether restricted processes have a loopback interface of their own.
    pub fn private_loopback(mut self, private: bool) -> Self {
        self.private_loopback = private;
        self
    }

    /// Protects one more name at the top of each workspace root.
    pub fn protect_name(mut self, name: impl Into<String>) -> Self {
        self.extra_protected_names.push(name.into());
        self
    }

    /// Sets how missing protected names are held.
    pub fn missing_protected(mut self, how: MissingProtected) -> Self {
        self.missing_protected = how;
        self
    }

    /// Sets where the executor keeps its journal.
    pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(directory.into());
        self
    }

    /// Sets who is told of violations.
    pub fn violations(mut self, sink: Arc<dyn ViolationSink>) -> Self {
        self.violations = Some(sink);
        self
    }

    /// Leaves a mechanism out, to test that the others hold by themselves. What is reported does not change.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn without_wall(mut self, wall: Wall) -> Self {
        self.walls_off.push(wall);
        self
    }

    /// Whether a mechanism is left out.
    #[doc(hidden)]
    pub fn is_without(&self, wall: Wall) -> bool {
        self.walls_off.contains(&wall)
    }

    /// Sets whether violations carry a piece of the process's output.
    pub fn output_snippets(mut self, snippets: bool) -> Self {
        self.output_snippets = snippets;
        self
    }
}

/// A mechanism that has another one behind it, for tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wall {
    /// The view of the file system.
    Mounts,
    /// Landlock.
    Landlock,
    /// The network of its own.
    NetworkNamespace,
    /// What the filter of system calls says of sockets.
    Filter,
}

/// How a protected name that does not exist is kept from being made by a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingProtected {
    /// An empty directory stands there while processes run; it is removed after them. Where none can be made, though the
    /// process could make the name, the start is refused, unless the executor's owner
    /// [accepts](SandboxSettings::accept_partial) that the name is checked as below. For `.git` in a root that lies inside a
    /// larger repository none is made, since programs would take it for a repository, nor in a directory of the executor's
    /// user that may not be written to: there the name is checked, with nobody's consent. A larger repository is one whose
    /// `.git` the process may not write to, belongs to the executor's user or to root, and is a directory with a `HEAD` or a file
    /// that names one.
    ///
    /// One that a process of an executor with another [`state_dir`](SandboxSettings::state_dir), or of another user, found there
    /// stays for that process too, and until the executor that has made it runs another one, or starts anew.
    ///
    /// On macOS the policy holds the name instead, and it is checked besides.
    #[default]
    Placeholder,
    /// Nothing is made, except for what an entry of the intent denies or makes read-only. When the process has ended, a name
    /// that appeared is [reported](super::FileViolation::name_change), and stays where it is: nobody can tell what the process
    /// has made from what its user has made meanwhile. Until somebody has looked at it, programs may execute what is in it.
    ///
    /// A name that is only checked is not enforced while the process runs: [`Enforcement`](super::Enforcement) reports a
    /// [part](super::Level::Partial), and names it. It takes no other consent than this setting.
    Check,
    /// As before, and what appeared is moved out of the way: into [`SandboxSettings::state_dir`], or, where that is on
    /// another file system, to another name beside it. The report says where it is. For workspaces in which nobody but the
    /// processes makes such names, since what a user has made meanwhile is moved too.
    SetAside,
}
