//! Facts about a place.

use crate::path_uri::PathUri;

/// What a place is, as `environment/info` reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnvironmentInfo {
    /// The default shell.
    pub shell: Shell,
    /// The version of the executor; `0.0.0` if it does not say.
    pub executor_version: String,
    /// An opaque id of the executor's build.
    pub provider_id: Option<String>,
    /// The executor's working directory.
    pub cwd: Option<PathUri>,
    /// The user's home directory.
    pub home_dir: Option<PathUri>,
    /// The operating system: `linux`, `macos`, `windows`, …
    pub platform_os: Option<String>,
    /// Directories that a client should put in front of `PATH`.
    pub prepend_path_dirs: Vec<PathUri>,
    /// Temporary directories named by variables, if the executor says.
    pub temporary_directories: Option<Vec<PathUri>>,
    /// The native temporary directory.
    pub temp_dir: Option<PathUri>,
    /// Names of the capability flags that are true.
    pub capabilities: Vec<String>,
}

impl EnvironmentInfo {
    /// Facts with only a shell, and all else unknown.
    pub fn new(shell: Shell) -> Self {
        Self {
            shell,
            executor_version: "0.0.0".into(),
            provider_id: None,
            cwd: None,
            home_dir: None,
            platform_os: None,
            prepend_path_dirs: Vec::new(),
            temporary_directories: None,
            temp_dir: None,
            capabilities: Vec::new(),
        }
    }
}

/// A shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shell {
    /// `bash`, `zsh`, `sh`, `powershell` or `cmd`.
    pub name: String,
    /// Its path, as native text.
    pub path: String,
}
