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
    /// The name of the machine, where the place itself is asked; the wire does not carry it.
    pub hostname: Option<String>,
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
            hostname: None,
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

/// Features beyond the plain wire, by their names in the `longarm` extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// Output counts as seen only when acknowledged.
    pub credits: bool,
    /// Standard input can be closed.
    pub close_stdin: bool,
    /// Terminals can be resized, and started with a size.
    pub resize: bool,
    /// Signals other than interrupt.
    pub signal: bool,
    /// Stops with a grace time, and of descendants.
    pub terminate: bool,
    /// Exit facts and byte totals.
    pub exit: bool,
    /// Time and output limits.
    pub limits: bool,
    /// The list of the session's processes.
    pub list: bool,
    /// Files: opening for writing without emptying, private directories, names that are not Unicode, exact errors.
    pub fs: bool,
    /// Process trees that nobody leaves.
    pub containment: bool,
    /// HTTP: bodies of responses can be given up, and come as fast as they are read; exact errors.
    pub http: bool,
    /// Reports of what a sandbox enforces, and of the evidence of a denial.
    pub sandbox: bool,
}

impl Features {
    /// All of them.
    pub const fn all() -> Self {
        Self {
            credits: true,
            close_stdin: true,
            resize: true,
            signal: true,
            terminate: true,
            exit: true,
            limits: true,
            list: true,
            fs: true,
            containment: true,
            http: true,
            sandbox: true,
        }
    }

    /// What both have.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self {
            credits: self.credits && other.credits,
            close_stdin: self.close_stdin && other.close_stdin,
            resize: self.resize && other.resize,
            signal: self.signal && other.signal,
            terminate: self.terminate && other.terminate,
            exit: self.exit && other.exit,
            limits: self.limits && other.limits,
            list: self.list && other.list,
            fs: self.fs && other.fs,
            containment: self.containment && other.containment,
            http: self.http && other.http,
            sandbox: self.sandbox && other.sandbox,
        }
    }

    /// The names of those that are there.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.table().into_iter().filter(|(_, present)| *present).map(|(name, _)| name)
    }

    /// Those that are named. Unknown names have no meaning here.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut features = Self::default();
        for name in names {
            match name {
                "credits" => features.credits = true,
                "closeStdin" => features.close_stdin = true,
                "resize" => features.resize = true,
                "signal" => features.signal = true,
                "terminate" => features.terminate = true,
                "exit" => features.exit = true,
                "limits" => features.limits = true,
                "list" => features.list = true,
                "fs" => features.fs = true,
                "containment" => features.containment = true,
                "http" => features.http = true,
                "sandbox" => features.sandbox = true,
                _ => {}
            }
        }
        features
    }

    /// Whether there is any.
    pub fn any(self) -> bool {
        self.names().next().is_some()
    }

    const fn table(self) -> [(&'static str, bool); 12] {
        [
            ("credits", self.credits),
            ("closeStdin", self.close_stdin),
            ("resize", self.resize),
            ("signal", self.signal),
            ("terminate", self.terminate),
            ("exit", self.exit),
            ("limits", self.limits),
            ("list", self.list),
            ("fs", self.fs),
            ("containment", self.containment),
            ("http", self.http),
            ("sandbox", self.sandbox),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_names_round_trip() {
        assert_eq!(Features::from_names(Features::all().names()), Features::all());
        assert_eq!(Features::all().names().count(), 12);
        assert_eq!(Features::from_names(["unknown", "list"]), Features { list: true, ..Features::default() });
        assert!(!Features::default().any());
    }
}
