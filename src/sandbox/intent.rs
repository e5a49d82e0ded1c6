//! The portable intent, in the shape of the wire's member `sandbox`.

use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::error::SandboxError;
use crate::path_uri::PathUri;

/// A portable statement of what a process, or a call about files, may do.
///
/// It names no mechanism of an operating system: the executor [binds](Self::bind) it to its own paths and enforces it, or
/// refuses. Most hosts begin with a preset:
///
/// ```
/// use longarm::path_uri::PathUri;
/// use longarm::sandbox::SandboxIntent;
///
/// let job = PathUri::parse("file:///srv/job")?;
/// let intent = SandboxIntent::workspace_write([job]).deny_below_roots("secrets");
/// assert_eq!(SandboxIntent::from_json(&intent.to_json())?, intent);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Wire
///
/// The member `sandbox` of `process/start` and of the calls about files. Unknown members are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
#[must_use]
pub struct SandboxIntent {
    /// What is allowed.
    pub permissions: PermissionProfile,
    /// How an executor on Windows is to enforce it. Other systems only refuse what they cannot have.
    pub windows_sandbox_level: WindowsSandboxLevel,
    /// What relative globs are relative to, and what file operations need for relative things. It makes nothing writable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathUri>,
    /// What [`Special::ProjectRoots`] stands for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspace_roots: Vec<PathUri>,
    /// Replaces [`cwd`](Self::cwd) and [`workspace_roots`](Self::workspace_roots) where present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_context: Option<PolicyContext>,
    /// What `~/` in globs stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_home_dir: Option<PathUri>,
    /// What [`Special::Tmpdir`] stands for, of those that the executor accepts. Without any, the executor's own directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_directories: Option<Vec<PathUri>>,
    /// A record of the controller; it has no effect on an executor.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sandbox_override: SandboxOverride,
    /// How an executor on Windows treats the proxy settings that its set-up knows.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub windows_sandbox_proxy_settings_mode: ProxySettingsMode,
    /// Asks for a mechanism of old Linux executors, which this library does not have.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub use_legacy_landlock: bool,
}

impl SandboxIntent {
    /// An intent with these permissions and nothing else.
    pub const fn new(permissions: PermissionProfile) -> Self {
        Self {
            permissions,
            windows_sandbox_level: WindowsSandboxLevel::RestrictedToken,
            cwd: None,
            workspace_roots: Vec::new(),
            policy_context: None,
            user_home_dir: None,
            temporary_directories: None,
            sandbox_override: SandboxOverride::NoOverride,
            windows_sandbox_proxy_settings_mode: ProxySettingsMode::Reconcile,
            use_legacy_landlock: false,
        }
    }

    /// Takes the JSON object of the wire's member `sandbox`.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Invalid`] if the text is not of that form. Of a path that is no file URI it names the text.
    pub fn from_json(json: &str) -> Result<Self, SandboxError> {
        if !json.trim_start().starts_with('{') {
            return Err(SandboxError::invalid("it is not an object"));
        }
        serde_json::from_str(json).map_err(|error| SandboxError::Invalid { reason: reason(json, &error) })
    }

    /// The JSON object of the wire's member `sandbox`.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names are text and no map has other keys")
    }

    /// Whether it asks for no restriction at all.
    pub fn restricts_nothing(&self) -> bool {
        match &self.permissions {
            PermissionProfile::Disabled => true,
            PermissionProfile::External { network } => *network == NetworkPolicy::Enabled,
            PermissionProfile::Managed { file_system, network } => {
                *file_system == FileSystemPolicy::Unrestricted && *network == NetworkPolicy::Enabled
            }
        }
    }

    /// Whether it asks for a restriction of files.
    pub fn restricts_files(&self) -> bool {
        matches!(self.permissions, PermissionProfile::Managed { file_system: FileSystemPolicy::Restricted { .. }, .. })
    }

    /// Whether it means something only together with a working directory or workspace roots: it names the roots, or a
    /// relative glob, by the rules of the system that this runs on. A call about files with such an intent and no
    /// [`cwd`](Self::effective_cwd) is invalid.
    pub fn is_dynamic(&self) -> bool {
        self.permissions.entries().iter().any(|entry| match &entry.path {
            EntryPath::Path { .. } => false,
            EntryPath::Glob { pattern } => super::glob::is_relative(pattern),
            EntryPath::Special { value } => matches!(value, Special::ProjectRoots { .. }),
        })
    }

    /// The directory that relative things are relative to.
    pub fn effective_cwd(&self) -> Option<&PathUri> {
        self.policy_context.as_ref().map_or(self.cwd.as_ref(), |context| context.cwd.as_ref())
    }

    /// The workspace roots that count.
    pub fn effective_roots(&self) -> &[PathUri] {
        self.policy_context.as_ref().map_or(&self.workspace_roots, |context| &context.workspace_roots)
    }
}

/// What a profile allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PermissionProfile {
    /// The executor enforces both parts.
    Managed {
        /// Files.
        file_system: FileSystemPolicy,
        /// The network.
        network: NetworkPolicy,
    },
    /// Nothing is enforced, and the network is open.
    Disabled,
    /// Files are somebody else's duty.
    External {
        /// The network.
        network: NetworkPolicy,
    },
}

impl PermissionProfile {
    /// The entries about files; none where files are not restricted.
    pub fn entries(&self) -> &[Entry] {
        match self {
            Self::Managed { file_system: FileSystemPolicy::Restricted { entries, .. }, .. } => entries,
            _ => &[],
        }
    }
}

/// What is allowed with files.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FileSystemPolicy {
    /// Everything.
    Unrestricted,
    /// What these entries say, and nothing else.
    Restricted {
        /// For a path, the entry counts that names it or the nearest directory above it; of several that name the same
        /// path, deny goes before write, and write before read. Their order means nothing.
        entries: Vec<Entry>,
        /// How many levels below its fixed beginning a glob is looked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        glob_scan_max_depth: Option<NonZeroU32>,
    },
}

/// What is allowed with the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPolicy {
    /// Nothing, but for a managed proxy where there is one.
    Restricted,
    /// Everything.
    Enabled,
}

/// One statement about files.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// Which files.
    pub path: EntryPath,
    /// What is allowed with them and, for a directory, with all below it.
    pub access: Access,
    /// Whether a path that does not exist is passed over. A denied one is denied all the same.
    #[serde(rename = "missing_path_behavior", default, skip_serializing_if = "is_default", with = "missing")]
    pub skip_missing: bool,
}

impl Entry {
    /// A statement about a path that should exist.
    pub const fn new(path: EntryPath, access: Access) -> Self {
        Self { path, access, skip_missing: false }
    }

    /// A statement about one path.
    pub const fn path(path: PathUri, access: Access) -> Self {
        Self::new(EntryPath::Path { path }, access)
    }

    /// A statement about what a token stands for.
    pub const fn special(value: Special, access: Access) -> Self {
        Self::new(EntryPath::Special { value }, access)
    }
}

/// Which files an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EntryPath {
    /// One file, or a directory with all below it.
    Path {
        /// Its path.
        path: PathUri,
    },
    /// All that match a pattern. Only [denied](Access::Deny) patterns can be enforced.
    #[serde(rename = "glob_pattern")]
    Glob {
        /// The pattern: `*` stays within a name, `**` crosses directories, `?`, `[a-z]` and `{a,b}` are as in a shell, and all
        /// of them stand for a dot at the beginning too. A backslash takes the meaning of the next character, but separates
        /// names on Windows. It is absolute, relative to the intent's directory, below the home directory (`~/`), or below each
        /// workspace root (`codex-project-roots://`). It is compared with paths without links: a link whose name matches
        /// leads to what it led to.
        pattern: String,
    },
    /// What a token stands for on the executor.
    Special {
        /// The token.
        value: Special,
    },
}

/// A token that the executor binds to paths of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Special {
    /// The whole file system.
    Root,
    /// What programs of the platform need to run, to be read.
    Minimal,
    /// Every workspace root.
    #[serde(alias = "current_working_directory")]
    ProjectRoots {
        /// A relative path below each root, instead of the root itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subpath: Option<String>,
    },
    /// The directory for temporary files: see [`SandboxIntent::temporary_directories`].
    Tmpdir,
    /// `/tmp`, where there is one.
    SlashTmp,
    /// A token that the sender knew to be newer than the protocol. It allows nothing; to deny it cannot be enforced.
    Unknown {
        /// The token.
        path: String,
        /// Its relative path.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subpath: Option<String>,
    },
}

/// What is allowed with a file. Ordered from less to more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Nothing. The wire's old name for it is `none`.
    #[serde(alias = "none")]
    Deny,
    /// To read, list and execute.
    Read,
    /// To do anything.
    Write,
}

/// A directory and roots that go before those of the intent itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyContext {
    /// The directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathUri>,
    /// The workspace roots.
    pub workspace_roots: Vec<PathUri>,
}

/// How an executor on Windows is to enforce an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowsSandboxLevel {
    /// Not at all: a restricted intent is refused there.
    Disabled,
    /// By a restricted token of the user.
    RestrictedToken,
    /// By accounts of their own.
    Elevated,
    /// By the system's own container interface. Every other system refuses it.
    Mxc,
}

/// A controller's own record of how a sandbox came about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SandboxOverride {
    /// As its policy says.
    #[default]
    NoOverride,
    /// Widened, within limits.
    EscalatedSandboxWithRestrictions,
    /// The first attempt was to go without.
    BypassSandboxFirstAttempt,
}

/// How an executor on Windows treats the proxy settings of its set-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxySettingsMode {
    /// They follow the launch.
    #[default]
    Reconcile,
    /// They stay as they are.
    Preserve,
}

/// The member `missing_path_behavior`, whose one value is `skip`.
mod missing {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Behavior {
        Skip,
    }

    pub(super) fn serialize<S: Serializer>(skip: &bool, serializer: S) -> Result<S::Ok, S::Error> {
        skip.then_some(Behavior::Skip).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
        Option::<Behavior>::deserialize(deserializer).map(|behavior| behavior.is_some())
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn null_is_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Why the text is none. A path that is no file URI is named: there may be many.
fn reason(json: &str, error: &serde_json::Error) -> String {
    let reason = without_place(error);
    let named = serde_json::from_str(json).ok().and_then(|value| wrong_uri(&value, &reason).map(str::to_owned));
    match named {
        Some(text) => format!("`{text}`: {reason}; a path is given as a URI such as `file:///srv/job`"),
        None => reason,
    }
}

/// The first of the texts for paths in `value` with which this is wrong.
fn wrong_uri<'a>(value: &'a Value, wrong: &str) -> Option<&'a str> {
    let is_wrong = |text: &&str| PathUri::parse(text).is_err_and(|error| error.to_string() == wrong);
    let object = value.as_object()?;
    object.iter().find_map(|(member, value)| match (member.as_str(), value) {
        ("path" | "cwd" | "userHomeDir", Value::String(text)) => Some(text.as_str()).filter(is_wrong),
        ("workspaceRoots" | "temporaryDirectories", Value::Array(texts)) => {
            texts.iter().filter_map(Value::as_str).find(is_wrong)
        }
        ("entries", Value::Array(entries)) => entries.iter().find_map(|entry| wrong_uri(entry, wrong)),
        // The path of a token is another thing.
        ("value", _) => None,
        _ => wrong_uri(value, wrong),
    })
}

/// The text of an error without the place in a text that its reader has not seen.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).map_or_else(|| text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests;
