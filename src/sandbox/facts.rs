//! What binding needs to know of an executor.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::settings::SandboxSettings;

/// What an executor knows of itself when it binds an intent. Nothing of it comes from a request.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Facts<'a> {
    /// Its system.
    pub platform: Platform,
    /// Its own directory for temporary files, if it has one.
    pub temp_dir: Option<&'a Path>,
    /// The user that commands run as. Absent where directories have no owner of that kind.
    pub uid: Option<u32>,
    /// Names that are protected besides the usual ones.
    pub extra_protected_names: &'a [String],
    /// Its file system.
    pub identity: &'a dyn PathIdentity,
}

impl<'a> Facts<'a> {
    /// Facts with a file system only.
    pub const fn new(platform: Platform, identity: &'a dyn PathIdentity) -> Self {
        Self { platform, temp_dir: None, uid: None, extra_protected_names: &[], identity }
    }

    /// Sets the directory for temporary files. One that is relative is none.
    pub fn temp_dir(mut self, directory: &'a Path) -> Self {
        self.temp_dir = directory.is_absolute().then_some(directory);
        self
    }

    /// Sets the user.
    pub const fn uid(mut self, uid: Option<u32>) -> Self {
        self.uid = uid;
        self
    }

    /// Takes what the owner decided.
    pub fn settings(mut self, settings: &'a SandboxSettings) -> Self {
        self.extra_protected_names = &settings.extra_protected_names;
        self
    }
}

impl std::fmt::Debug for Facts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Facts")
            .field("platform", &self.platform)
            .field("temp_dir", &self.temp_dir)
            .field("uid", &self.uid)
            .field("extra_protected_names", &self.extra_protected_names)
            .finish_non_exhaustive()
    }
}

/// The system of an executor, as far as intents mean different things on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Platform {
    /// Linux.
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
    /// Another POSIX system.
    Posix,
}

impl Platform {
    /// The system that this runs on.
    pub const HOST: Self = if cfg!(target_os = "linux") {
        Self::Linux
    } else if cfg!(target_os = "macos") {
        Self::MacOs
    } else if cfg!(windows) {
        Self::Windows
    } else {
        Self::Posix
    };

    /// The base that programs need to run, to be read.
    pub(super) const fn minimal_paths(self) -> &'static [&'static str] {
        match self {
            Self::Linux | Self::Posix => {
                &["/bin", "/sbin", "/usr", "/etc", "/lib", "/lib64", "/nix/store", "/run/current-system/sw"]
            }
            Self::MacOs => &[
                "/bin",
                "/sbin",
                "/usr",
                "/etc",
                "/System",
                "/Library/Apple",
                "/Library/Developer/CommandLineTools",
                "/Library/Filesystems/NetFSPlugins",
                "/Library/Frameworks",
                "/Library/Preferences/Logging",
                "/opt/homebrew",
                "/private/var/db/DarwinDirectory/local/recordStore.data",
                "/private/var/db/dyld",
                "/private/var/db/timezone",
                "/private/var/select",
            ],
            Self::Windows => &[],
        }
    }
}

/// What is found at a path, without following a link there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A device, a socket or a pipe.
    Other,
    /// A link, and what it says.
    Link(PathBuf),
    /// Nothing.
    Missing,
}

/// What is at a path, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is.
    pub found: Found,
    /// The user that owns it, where things have one.
    pub owner: Option<u32>,
}

/// A look at a file system, by which paths get their meaning. All calls may block.
pub trait PathIdentity {
    /// What is at an absolute path. Only the links before its last name are followed.
    ///
    /// # Errors
    ///
    /// Any but that there is nothing: that is [`Found::Missing`].
    fn look(&self, path: &Path) -> io::Result<Seen>;

    /// The names in a directory, and what they are.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn list(&self, directory: &Path) -> io::Result<Vec<(OsString, Found)>>;

    /// At most `max` bytes from the beginning of a file. Waits for nobody, and follows no link at the end of the path.
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound) if there is no file, but nothing or another thing; those of the file system.
    fn read_start(&self, file: &Path, max: usize) -> io::Result<Vec<u8>>;

    /// An existing path in the one spelling that its file system has for it, where that has several.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn true_name(&self, path: &Path) -> io::Result<PathBuf>;
}
