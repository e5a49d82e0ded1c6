//! How the environment of a child is made: pure functions from variables to variables.
//!
//! [`child_environment`] puts the pieces together, in this order:
//!
//! 1. the policy picks from the base environment ([`ShellEnvPolicy`] describes how); without a policy nothing is
//!    inherited;
//! 2. names that never reach a child are dropped ([`ReservedNames`]);
//! 3. on Windows, `PATHEXT` is added if a policy left it out;
//! 4. the request's own variables are laid over the rest, exempt from all patterns;
//! 5. names that never reach a child are dropped again;
//! 6. the request's metadata is set.
//!
//! Names and values that are not UTF-8 pass through unchanged.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;

use wildmatch::WildMatch;

use crate::request::Metadata;

/// Variables by name.
pub type EnvMap = BTreeMap<OsString, OsString>;

/// Decides what a child inherits: base environment in, variables out.
///
/// ```
/// use longarm::env_policy::{EnvMap, EnvPolicy};
///
/// /// Passes on what the application itself has named.
/// #[derive(Debug)]
/// struct AppOnly;
///
/// impl EnvPolicy for AppOnly {
///     fn apply(&self, base: &EnvMap, _windows: bool) -> EnvMap {
///         let ours = |name: &std::ffi::OsString| name.as_encoded_bytes().starts_with(b"APP_");
///         base.iter().filter(|(name, _)| ours(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
///     }
/// }
/// ```
pub trait EnvPolicy: fmt::Debug + Send + Sync + 'static {
    /// What the child gets of `base`, before the request's own variables are laid over it. `windows` says whether names
    /// are compared without regard to case, as the place does.
    fn apply(&self, base: &EnvMap, windows: bool) -> EnvMap;

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
///
/// In this order: variables are inherited; names that look like secrets (`*KEY*`, `*SECRET*`, `*TOKEN*`) are dropped
/// unless that is switched off; names that match an exclude pattern are dropped; variables are set; and if there is any
/// include pattern, names that match none are dropped, also of those just set.
///
/// A pattern matches the whole name, without regard to case. `*` stands for any run of characters, `?` for exactly one;
/// all else is literal.
///
/// ```
/// use longarm::ShellEnvPolicy;
/// use longarm::env_policy::{EnvMap, EnvPolicy};
///
/// let base: EnvMap = [("HOME", "/root"), ("API_TOKEN", "x"), ("npm_config_prefix", "y")]
///     .map(|(name, value)| (name.into(), value.into()))
///     .into();
/// let policy = ShellEnvPolicy::inherit_all().ignore_default_excludes(false).exclude("NPM_*").set("LANG", "C");
///
/// let names: Vec<_> = policy.apply(&base, false).into_keys().collect();
/// assert_eq!(names, ["HOME", "LANG"]);
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use = "a policy does nothing until a request carries it"]
pub struct ShellEnvPolicy {
    pub(crate) inherit: Inherit,
    pub(crate) ignore_default_excludes: bool,
    pub(crate) exclude: Vec<String>,
    pub(crate) set: BTreeMap<String, String>,
    pub(crate) include_only: Vec<String>,
}

impl ShellEnvPolicy {
    /// Inherits by `inherit`, and excludes nothing.
    pub fn new(inherit: Inherit) -> Self {
        Self {
            inherit,
            ignore_default_excludes: true,
            exclude: Vec::new(),
            set: BTreeMap::new(),
            include_only: Vec::new(),
        }
    }

    /// Inherits everything, and excludes nothing.
    pub fn inherit_all() -> Self {
        Self::new(Inherit::All)
    }

    /// Inherits a short list: paths, locale, user, temporary directory.
    pub fn inherit_core() -> Self {
        Self::new(Inherit::Core)
    }

    /// Inherits nothing.
    pub fn inherit_none() -> Self {
        Self::new(Inherit::None)
    }

    /// Whether names that look like secrets are inherited all the same. True by default.
    pub fn ignore_default_excludes(mut self, ignore: bool) -> Self {
        self.ignore_default_excludes = ignore;
        self
    }

    /// Adds a pattern of names that are not inherited.
    pub fn exclude(mut self, pattern: impl Into<String>) -> Self {
        self.exclude.push(pattern.into());
        self
    }

    /// Sets one variable.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set.insert(name.into(), value.into());
        self
    }

    /// Adds a pattern of names to keep. With none, all are kept.
    pub fn include_only(mut self, pattern: impl Into<String>) -> Self {
        self.include_only.push(pattern.into());
        self
    }

    /// Which variables are inherited at first.
    pub fn inherits(&self) -> Inherit {
        self.inherit
    }

    /// Whether names that look like secrets are inherited all the same.
    pub fn ignores_default_excludes(&self) -> bool {
        self.ignore_default_excludes
    }

    /// The patterns of names that are not inherited.
    pub fn exclude_patterns(&self) -> &[String] {
        &self.exclude
    }

    /// The variables that are set.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.set
    }

    /// The patterns of names to keep; all, if empty.
    pub fn include_only_patterns(&self) -> &[String] {
        &self.include_only
    }
}

/// Shows patterns and the names of the variables, never their values.
impl fmt::Debug for ShellEnvPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShellEnvPolicy")
            .field("inherit", &self.inherit)
            .field("ignore_default_excludes", &self.ignore_default_excludes)
            .field("exclude", &self.exclude)
            .field("set_names", &self.set.keys().collect::<Vec<_>>())
            .field("include_only", &self.include_only)
            .finish()
    }
}

impl EnvPolicy for ShellEnvPolicy {
    fn apply(&self, base: &EnvMap, windows: bool) -> EnvMap {
        let core = if windows { WINDOWS_CORE } else { POSIX_CORE };
        let default_excludes = if self.ignore_default_excludes { &[] } else { DEFAULT_EXCLUDES };
        let exclude = Patterns::new(default_excludes.iter().copied().chain(self.exclude.iter().map(String::as_str)));
        let mut vars: EnvMap = base
            .iter()
            .filter(|(name, _)| match self.inherit {
                Inherit::All => true,
                Inherit::Core => core.iter().any(|known| name.eq_ignore_ascii_case(known)),
                Inherit::None => false,
            })
            .filter(|(name, _)| !exclude.matches(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        for (name, value) in &self.set {
            put(&mut vars, name.into(), value.into(), windows);
        }
        if !self.include_only.is_empty() {
            let keep = Patterns::new(self.include_only.iter().map(String::as_str));
            vars.retain(|name, _| keep.matches(name));
        }
        vars
    }

    fn portable(&self) -> Option<ShellEnvPolicy> {
        Some(self.clone())
    }
}

/// Names of variables that never reach a child, wherever they come from. Compared without regard to ASCII case.
///
/// By default those that hold the executor's own credentials for its peers. A host adds its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedNames {
    names: Vec<OsString>,
}

impl ReservedNames {
    /// No names at all.
    pub const fn none() -> Self {
        Self { names: Vec::new() }
    }

    /// Adds a name.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Whether `name` is one of them.
    pub fn contains(&self, name: &OsStr) -> bool {
        self.names.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &OsStr> {
        self.names.iter().map(OsString::as_os_str)
    }
}

impl Default for ReservedNames {
    fn default() -> Self {
        Self { names: RESERVED.iter().map(OsString::from).collect() }
    }
}

/// The environment of a child: what the policy yields from `base`, with `overlay` laid over it, without the reserved
/// names, and with the metadata set. `windows` selects the rules of that system.
///
/// Without a policy the child gets the overlay and the metadata only.
pub fn child_environment(
    base: &EnvMap,
    policy: Option<&dyn EnvPolicy>,
    overlay: &EnvMap,
    metadata: Option<&Metadata>,
    reserved: &ReservedNames,
    windows: bool,
) -> EnvMap {
    let mut vars = EnvMap::new();
    if let Some(policy) = policy {
        vars = policy.apply(base, windows);
        vars.retain(|name, _| !reserved.contains(name));
        if windows && !vars.keys().any(|name| name.eq_ignore_ascii_case("PATHEXT")) {
            // Without it the system finds no program that is named without its extension.
            vars.insert("PATHEXT".into(), ".COM;.EXE;.BAT;.CMD".into());
        }
    }
    for (name, value) in overlay {
        put(&mut vars, name.clone(), value.clone(), windows);
    }
    vars.remove(OsStr::new(EXIT_ON_STDIN_CLOSE));
    vars.retain(|name, _| !reserved.contains(name));
    vars.remove(OsStr::new(TOOL_CALL_ID));
    if let Some(metadata) = metadata {
        vars.remove(OsStr::new(THREAD_ID));
        if let Some(thread_id) = metadata.thread_id {
            vars.insert(THREAD_ID.into(), thread_id.to_string().into());
        }
        if let Some(tool_call_id) = &metadata.tool_call_id {
            vars.insert(TOOL_CALL_ID.into(), tool_call_id.into());
        }
    }
    vars
}

/// Sets a variable in place of every one that the system takes for the same.
fn put(vars: &mut EnvMap, name: OsString, value: OsString, windows: bool) {
    if windows {
        vars.retain(|known, _| !known.eq_ignore_ascii_case(&name));
    }
    vars.insert(name, value);
}

/// Patterns of names.
struct Patterns(Vec<WildMatch>);

impl Patterns {
    fn new<'a>(patterns: impl Iterator<Item = &'a str>) -> Self {
        Self(patterns.map(WildMatch::new_case_insensitive).collect())
    }

    /// A byte that is no character counts as one unknown character.
    fn matches(&self, name: &OsStr) -> bool {
        let name = name.to_string_lossy();
        self.0.iter().any(|pattern| pattern.matches(&name))
    }
}

/// Tells the program of an executor to end with its standard input; never meant for its children.
const EXIT_ON_STDIN_CLOSE: &str = "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE";
const THREAD_ID: &str = "CODEX_THREAD_ID";
const TOOL_CALL_ID: &str = "CODEX_TOOL_CALL_ID";

const DEFAULT_EXCLUDES: &[&str] = &["*KEY*", "*SECRET*", "*TOKEN*"];

const RESERVED: &[&str] = &[
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
    "NODE_REPL_AUTH_TOKEN",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
];

const POSIX_CORE: &[&str] =
    &["PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER"];

const WINDOWS_CORE: &[&str] = &[
    "PATH",
    "PATHEXT",
    "SHELL",
    "COMSPEC",
    "SYSTEMROOT",
    "WINDIR",
    "SYSTEMDRIVE",
    "USERNAME",
    "USERDOMAIN",
    "USERPROFILE",
    "HOMEDRIVE",
    "HOMEPATH",
    "PROGRAMFILES",
    "PROGRAMFILES(X86)",
    "PROGRAMW6432",
    "PROGRAMDATA",
    "LOCALAPPDATA",
    "APPDATA",
    "TEMP",
    "TMP",
    "TMPDIR",
    "POWERSHELL",
    "PWSH",
];
