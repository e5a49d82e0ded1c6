//! A walk through a tree: its bounds, and what it found.

use crate::path_uri::PathUri;

/// The bounds of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct WalkOptions {
    /// How deep directories are read: 0 is only the root. At most [`MAX_DEPTH`](Self::MAX_DEPTH), the default.
    pub max_depth: u64,
    /// How many directories are read, the root included. 1 to [`MAX_DIRECTORIES`](Self::MAX_DIRECTORIES), the default.
    pub max_directories: u64,
    /// How many entries are looked at. 1 to [`MAX_ENTRIES`](Self::MAX_ENTRIES), the default.
    pub max_entries: u64,
    /// Whether links to directories are reported and entered. By default not. Each directory is entered once.
    pub follow_directory_symlinks: bool,
    /// Whether directories whose name begins with a dot are reported but not entered. By default not.
    pub prune_hidden_directories: bool,
}

impl WalkOptions {
    /// The largest depth. As the reference.
    pub const MAX_DEPTH: u64 = 64;
    /// The most directories. As the reference.
    pub const MAX_DIRECTORIES: u64 = 10_000;
    /// The most entries. As the reference.
    pub const MAX_ENTRIES: u64 = 50_000;

    /// The largest bounds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how deep directories are read.
    pub fn max_depth(mut self, depth: u64) -> Self {
        self.max_depth = depth;
        self
    }

    /// Sets how many directories are read.
    pub fn max_directories(mut self, directories: u64) -> Self {
        self.max_directories = directories;
        self
    }

    /// Sets how many entries are looked at.
    pub fn max_entries(mut self, entries: u64) -> Self {
        self.max_entries = entries;
        self
    }

    /// Sets whether links to directories are entered.
    pub fn follow_directory_symlinks(mut self, follow: bool) -> Self {
        self.follow_directory_symlinks = follow;
        self
    }

    /// Sets whether hidden directories are not entered.
    pub fn prune_hidden_directories(mut self, prune: bool) -> Self {
        self.prune_hidden_directories = prune;
        self
    }
}

impl Default for WalkOptions {
    fn default() -> Self {
        Self {
            max_depth: Self::MAX_DEPTH,
            max_directories: Self::MAX_DIRECTORIES,
            max_entries: Self::MAX_ENTRIES,
            follow_directory_symlinks: false,
            prune_hidden_directories: false,
        }
    }
}

/// What a walk found. Paths are built from the path of the root as it was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Walk {
    /// Files and directories below the root, breadth first.
    pub entries: Vec<WalkEntry>,
    /// What could not be read or examined.
    pub errors: Vec<WalkFailure>,
    /// Whether there is more than the bounds on directories and entries allow, or than fits into one message of a
    /// connection. The depth has no part in it.
    pub truncated: bool,
    /// What was passed over, as many as there may be entries; absent if the place does not say.
    pub skipped: Option<Vec<Skipped>>,
}

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalkEntry {
    /// Its path.
    pub path: PathUri,
    /// What it is.
    pub kind: WalkKind,
}

impl WalkEntry {
    /// An entry.
    pub fn new(path: PathUri, kind: WalkKind) -> Self {
        Self { path, kind }
    }
}

/// What an entry of a walk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WalkKind {
    /// A regular file.
    File,
    /// A directory, or a link to one that is followed.
    Directory,
}

/// Something that could not be read or examined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalkFailure {
    /// Its path.
    pub path: PathUri,
    /// Why.
    pub message: String,
}

impl WalkFailure {
    /// A failure.
    pub fn new(path: PathUri, message: impl Into<String>) -> Self {
        Self { path, message: message.into() }
    }
}

/// Something that a walk passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// Its path.
    pub path: PathUri,
    /// Why.
    pub reason: SkipReason,
}

impl Skipped {
    /// Something passed over.
    pub fn new(path: PathUri, reason: SkipReason) -> Self {
        Self { path, reason }
    }
}

/// Why a walk passes something over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// A link that is not followed.
    Symlink,
    /// A link that leads nowhere.
    DanglingSymlink,
    /// Neither a file nor a directory.
    Special,
    /// A directory that was reported, and entered by another path.
    AlreadyEntered,
}
