//! Paths here and in the place.

use std::ffi::OsStr;
use std::fmt;
use std::sync::Arc;

use longarm::Environment;
use longarm::fs::{DirectoryEntry, FileSystem, FsError, LocalFileSystem, LocalFileSystemConfig, RequestPath, Symlinks};
use longarm::path_uri::{NativePath, PathConvention, PathUri};

use crate::cli::args::PlaceArgs;
use crate::cli::{explain, os};

/// Here, and the place.
pub(super) struct Ends {
    here: Arc<Side>,
    place: Arc<Side>,
    place_cwd: Option<PathUri>,
    place_convention: PathConvention,
}

struct Side {
    files: Arc<dyn FileSystem>,
    /// Its files are those of this machine for certain.
    is_this_machine: bool,
    /// What stands before a path when it is shown.
    mark: &'static str,
}

impl Ends {
    pub(super) async fn new(environment: &Environment, place: &PlaceArgs) -> Result<Self, String> {
        let info = environment.info().await.map_err(|error| explain(&error))?;
        let here = LocalFileSystem::new(LocalFileSystemConfig::from_host());
        Ok(Self {
            here: Arc::new(Side { files: Arc::new(here), is_this_machine: true, mark: "" }),
            place: Arc::new(Side { files: environment.fs(), is_this_machine: place.is_this_machine(), mark: ":" }),
            place_convention: match (&info.platform_os, &info.cwd) {
                (Some(os), _) => PathConvention::of_os(os),
                (None, Some(cwd)) => cwd.convention().unwrap_or(PathConvention::Posix),
                (None, None) => PathConvention::Posix,
            },
            place_cwd: info.cwd,
        })
    }

    /// What an argument names.
    pub(super) fn locate(&self, argument: &OsStr) -> Result<Location, String> {
        let bytes = os::path_bytes(argument).ok_or_else(|| format!("{argument:?} is not Unicode"))?;
        let wrong = |reason: &dyn fmt::Display| format!("{argument:?} is no path to copy: {reason}");
        let ends_in = |separators: &[u8]| bytes.last().is_some_and(|last| separators.contains(last));
        let Some(path) = bytes.strip_prefix(b":") else {
            let absolute = std::path::absolute(argument).map_err(|error| wrong(&error))?;
            let path = PathUri::from_host_native_path(absolute).map_err(|error| wrong(&error))?;
            let named_as_directory = bytes.last().is_some_and(|last| std::path::is_separator(char::from(*last)));
            return Ok(Location { side: Arc::clone(&self.here), path, named_as_directory });
        };
        if path.is_empty() {
            return Err(wrong(&"nothing follows the colon"));
        }
        let (path, named_as_directory) = match self.place_convention {
            PathConvention::Posix => (self.posix(path), ends_in(b"/")),
            PathConvention::Windows => (self.windows(path), ends_in(b"\\/")),
        };
        Ok(Location { side: Arc::clone(&self.place), path: path.map_err(|error| wrong(&error))?, named_as_directory })
    }

    fn posix(&self, path: &[u8]) -> Result<PathUri, String> {
        let mut whole = Vec::new();
        if !path.starts_with(b"/") {
            let NativePath::Posix(cwd) = self.cwd()?.to_native("linux").map_err(|error| error.to_string())? else {
                return Err("the place's working directory is of another kind".into());
            };
            whole = cwd;
            whole.push(b'/');
        }
        whole.extend_from_slice(path);
        PathUri::from_native(&NativePath::Posix(whole)).map_err(|error| error.to_string())
    }

    fn windows(&self, path: &[u8]) -> Result<PathUri, String> {
        let text = std::str::from_utf8(path).map_err(|error| error.to_string())?;
        match PathUri::from_native_text(text, PathConvention::Windows) {
            Ok(path) => Ok(path),
            Err(_) => self.cwd()?.join(text).map_err(|error| error.to_string()),
        }
    }

    fn cwd(&self) -> Result<&PathUri, String> {
        self.place_cwd.as_ref().ok_or_else(|| "it is relative, and the place does not say where it is".into())
    }
}

/// A path on one side.
#[derive(Clone)]
pub(super) struct Location {
    side: Arc<Side>,
    path: PathUri,
    named_as_directory: bool,
}

impl Location {
    pub(super) fn files(&self) -> &dyn FileSystem {
        &*self.side.files
    }

    /// The path in a request: as errors are to show it, if it can be one of this system.
    pub(super) fn path(&self) -> RequestPath {
        let here = if cfg!(windows) { PathConvention::Windows } else { PathConvention::Posix };
        match self.path.to_host_native_path() {
            Ok(native) if self.path.convention() == Some(here) => native.into(),
            _ => self.path.clone().into(),
        }
    }

    pub(super) fn is_on_the_side_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.side, &other.side)
    }

    /// Refuses a destination that is this same path. Links to one file by several names are not looked for.
    pub(super) async fn refuse_same(&self, to: &Self) -> Result<(), FsError> {
        let comparable = self.is_on_the_side_of(to) || self.side.is_this_machine && to.side.is_this_machine;
        if comparable
            && let Ok(there) = to.files().canonicalize(to.path()).await
            && self.files().canonicalize(self.path()).await? == there
        {
            return Err(FsError::AlreadyExists { path: to.path() });
        }
        Ok(())
    }

    /// What tells it from others of its side, as it is written.
    pub(super) const fn uri(&self) -> &PathUri {
        &self.path
    }

    /// Whether it was written as only a directory is.
    pub(super) const fn must_be_directory(&self) -> bool {
        self.named_as_directory
    }

    /// Whether it is an existing directory.
    pub(super) async fn is_directory(&self) -> Result<bool, FsError> {
        match self.files().metadata(self.path(), Symlinks::Follow).await {
            Ok(metadata) => Ok(metadata.is_directory),
            Err(FsError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The path in this directory of what has the name of `source`.
    pub(super) fn below(&self, source: &Self) -> Result<Self, String> {
        let Some(name) = source.path.file_name() else { return Ok(self.clone()) };
        let mut entry = DirectoryEntry::new(String::from_utf8_lossy(&name), false, false);
        if std::str::from_utf8(&name).is_err() {
            entry.raw_name = Some(name.into_owned());
        }
        self.entry(&entry)
    }

    /// The path of an entry of this directory, or of one that has its name.
    pub(super) fn entry(&self, entry: &DirectoryEntry) -> Result<Self, String> {
        let path = entry.path_in(&self.path).map_err(|error| explain(&error))?;
        Ok(Self { side: Arc::clone(&self.side), path, named_as_directory: false })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.side.mark)?;
        let os = match self.path.convention() {
            Some(PathConvention::Windows) => "windows",
            _ => "linux",
        };
        match self.path.to_native(os) {
            Ok(native) => native.fmt(f),
            Err(_) => self.path.fmt(f),
        }
    }
}
