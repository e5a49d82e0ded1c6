//! How the environment of a child is made: pure functions from variables to variables.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

/// Variables by name.
pub type EnvMap = BTreeMap<OsString, OsString>;

/// Decides what a child inherits: base environment in, variables out.
pub trait EnvPolicy: fmt::Debug + Send + Sync + 'static {
    /// What the child gets of `base`, before the request's own variables are laid over it.
    fn apply(&self, base: &EnvMap) -> EnvMap;

    /// The form in which a remote executor can carry this policy out, if there is one.
    fn portable(&self) -> Option<ShellEnvPolicy> {
        None
    }
}

/// Which variables are inherited at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherit {
    /// All of them.
    All,
    /// A short list: paths, locale, user, temporary directory.
    Core,
    /// None.
    None,
}

/// The policy of the wire: inherit, exclude, set, keep.
#[derive(Clone, PartialEq, Eq)]
pub struct ShellEnvPolicy {
    pub(crate) inherit: Inherit,
    pub(crate) ignore_default_excludes: bool,
    pub(crate) exclude: Vec<String>,
    pub(crate) set: BTreeMap<String, String>,
    pub(crate) include_only: Vec<String>,
}

impl fmt::Debug for ShellEnvPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShellEnvPolicy").field("inherit", &self.inherit).finish_non_exhaustive()
    }
}

impl ShellEnvPolicy {
    /// Inherits everything, with no excludes.
    pub fn inherit_all() -> Self {
        Self {
            inherit: Inherit::All,
            ignore_default_excludes: true,
            exclude: Vec::new(),
            set: BTreeMap::new(),
            include_only: Vec::new(),
        }
    }
}

impl EnvPolicy for ShellEnvPolicy {
    fn apply(&self, base: &EnvMap) -> EnvMap {
        base.clone()
    }
}
