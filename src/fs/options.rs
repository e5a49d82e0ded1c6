//! How files are read, written, opened, created, removed and copied.

/// What to do about symbolic links in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    /// Follow them.
    #[default]
    Follow,
    /// Refuse the path if any of its components, including the last, is one.
    Refuse,
}

/// How a whole file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct ReadOptions {
    /// What to do about links. By default they are followed.
    pub symlinks: Symlinks,
    /// The largest file to read, in bytes. By default the limit of the place, normally
    /// [`DEFAULT_WHOLE_FILE_BYTES`](super::DEFAULT_WHOLE_FILE_BYTES).
    pub max_bytes: Option<u64>,
}

impl ReadOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what to do about links.
    pub fn symlinks(mut self, symlinks: Symlinks) -> Self {
        self.symlinks = symlinks;
        self
    }

    /// Sets the largest file to read.
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }
}

/// How a whole file is written.
///
/// The content goes into a temporary file in the same directory, which gets the owner, group, mode, extended attributes
/// and access control lists of the file it replaces, and then its name. Where the result would be another file than
/// before, or none, the file is written in place and a failure can leave a part of the new content: a file with several
/// hard links, a mount point, a file whose directory may not be written to, or one whose metadata cannot be carried over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct WriteOptions {
    /// What to do about links. By default they are followed, also those that lead to nothing yet.
    pub symlinks: Symlinks,
    /// Whether to wait until content and name have reached the storage. By default not.
    pub fsync: bool,
}

impl WriteOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what to do about links.
    pub fn symlinks(mut self, symlinks: Symlinks) -> Self {
        self.symlinks = symlinks;
        self
    }

    /// Sets whether to wait for the storage.
    pub fn fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }
}

/// For what a file is opened. Links in the path are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenMode {
    /// To read an existing file.
    #[default]
    Read,
    /// To write a file that is created, or emptied now.
    Replace,
    /// To write to a file that is created, or keeps what it has: for an upload that goes on. `Unsupported` towards a peer
    /// without the feature `fs`.
    Update,
}

/// How a directory is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct CreateDirectoryOptions {
    /// Whether to create missing directories above it, and to accept that it exists. By default yes.
    pub recursive: bool,
    /// What to do about links. By default they are followed.
    pub symlinks: Symlinks,
}

impl Default for CreateDirectoryOptions {
    fn default() -> Self {
        Self { recursive: true, symlinks: Symlinks::Follow }
    }
}

impl CreateDirectoryOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether to create missing directories above it, and to accept that it exists.
    pub fn recursive(mut self, recursive: bool) -> Self {
        self.recursive = recursive;
        self
    }

    /// Sets what to do about links.
    pub fn symlinks(mut self, symlinks: Symlinks) -> Self {
        self.symlinks = symlinks;
        self
    }
}

/// How a path is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct RemoveOptions {
    /// Whether to remove a directory with all that is in it. By default yes.
    pub recursive: bool,
    /// Whether it is a success if there is nothing. By default yes.
    pub force: bool,
    /// What to do about links above the path: one at its end is removed itself, or refused. By default they are followed.
    pub symlinks: Symlinks,
}

impl Default for RemoveOptions {
    fn default() -> Self {
        Self { recursive: true, force: true, symlinks: Symlinks::Follow }
    }
}

impl RemoveOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether to remove a directory with all that is in it.
    pub fn recursive(mut self, recursive: bool) -> Self {
        self.recursive = recursive;
        self
    }

    /// Sets whether it is a success if there is nothing.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Sets what to do about links above the path.
    pub fn symlinks(mut self, symlinks: Symlinks) -> Self {
        self.symlinks = symlinks;
        self
    }
}

/// How a path is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct CopyOptions {
    /// Whether a directory may be copied, with all that is in it. By default not.
    pub recursive: bool,
}

impl CopyOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether a directory may be copied, with all that is in it.
    pub fn recursive(mut self, recursive: bool) -> Self {
        self.recursive = recursive;
        self
    }
}
