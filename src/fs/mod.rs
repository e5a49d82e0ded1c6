//! The files of a place.
//!
//! [`FileSystem`] is object-safe and the same for this machine and for a remote place;
//! [`Environment::fs`](crate::Environment::fs) hands it out. The contract in prose:
//!
//! - **Paths** are absolute in the place: native text of the place, or a [`PathUri`]. A path of another operating system
//!   is refused as [`InvalidFsRequest::ForeignPath`].
//! - **Symbolic links** are followed unless a call says [`Symlinks::Refuse`]; then no component of the path, including
//!   the last, may be one. Links found *inside* a tree are never followed by [`FileSystem::copy`] and
//!   [`FileSystem::remove`].
//! - **Files** are regular files, which is checked on the opened file, and opening never blocks on what is none: a
//!   directory, a device or a FIFO is [`FsError::NotAFile`] to who reads, a directory [`FsError::IsADirectory`] to who
//!   writes. Only a whole-file write and a copy may go to a device.
//! - **Whole files** are read up to a limit, and written so that a write that fails leaves the former content
//!   ([`WriteOptions`] says when that is not possible).
//! - **Blocks** are positioned: there is no cursor, and any number of them may be in flight on a handle.
//! - **Sandboxes**: [`FileSystem::with_sandbox`] gives the same files as far as a
//!   [`SandboxIntent`] allows. The place enforces it, or refuses.
//! - **Errors** name the path that they are about, which in a tree is that of the file or directory that failed.

mod entry;
mod error;
pub mod local;
mod none;
mod options;
pub(crate) mod remote;
mod stream;
mod walk;
mod watch;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub(crate) use self::entry::is_name;
pub use self::entry::{DirectoryEntry, Metadata};
pub use self::error::{FsError, InvalidFsRequest};
pub use self::local::{LocalFileSystem, LocalFileSystemConfig};
pub(crate) use self::none::NoFileSystem;
pub use self::options::{
    CopyOptions, CreateDirectoryOptions, OpenMode, ReadOptions, RemoveOptions, Symlinks, WriteOptions,
};
pub(crate) use self::stream::when_there_is_room;
pub use self::stream::{BLOCKS_IN_FLIGHT, FileReader, FileWriter, STREAM_BLOCK_BYTES};
pub use self::walk::{SkipReason, Skipped, Walk, WalkEntry, WalkFailure, WalkKind, WalkOptions};
pub use self::watch::MissingWatch;
pub use crate::request::RequestPath;

use crate::error::PeerMisbehaved;
use crate::path_uri::PathUri;
use crate::sandbox::{SandboxError, SandboxIntent};
use crate::wire::method::{Method as _, ReadBlock};

/// The files of one place. See the [module documentation](self) for the contract.
///
/// ```
/// # async fn example(fs: &dyn longarm::fs::FileSystem) -> Result<(), longarm::fs::FsError> {
/// use longarm::fs::{ReadOptions, WriteOptions};
///
/// fs.write("/tmp/greeting".into(), "hello".into(), WriteOptions::new()).await?;
/// let bytes = fs.read("/tmp/greeting".into(), ReadOptions::new()).await?;
/// assert_eq!(bytes, "hello");
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
///
/// When the future of a call that only looks is dropped, nothing is lost. That of a call that changes something may still
/// be carried out after it was dropped, whole or (for trees) in part.
#[async_trait::async_trait]
pub trait FileSystem: fmt::Debug + Send + Sync + 'static {
    /// Reads a whole file.
    ///
    /// # Errors
    ///
    /// An [`FsError`]; `TooLarge` above the limit of the options, or of the place.
    async fn read(&self, path: RequestPath, options: ReadOptions) -> Result<Bytes, FsError>;

    /// Writes a whole file: creates it, or replaces its content and keeps its metadata.
    ///
    /// # Errors
    ///
    /// An [`FsError`]. Then the former content is untouched, except where the file was written in place
    /// ([`WriteOptions`]) or the connection ended.
    async fn write(&self, path: RequestPath, data: Bytes, options: WriteOptions) -> Result<(), FsError>;

    /// Opens a file for blocks.
    ///
    /// # Errors
    ///
    /// An [`FsError`]; `TooManyHandles` if the place allows no more.
    async fn open(&self, path: RequestPath, mode: OpenMode) -> Result<Box<dyn FileHandle>, FsError>;

    /// Creates a directory.
    ///
    /// # Errors
    ///
    /// An [`FsError`]. An existing directory is one only without `recursive`.
    async fn create_directory(&self, path: RequestPath, options: CreateDirectoryOptions) -> Result<(), FsError>;

    /// What a path is. All but [`Metadata::is_symlink`] is about the target of a link.
    ///
    /// # Errors
    ///
    /// An [`FsError`]; `NotFound` also for a link that leads nowhere.
    async fn metadata(&self, path: RequestPath, symlinks: Symlinks) -> Result<Metadata, FsError>;

    /// The same place by a path without links.
    ///
    /// # Errors
    ///
    /// An [`FsError`]; `NotFound` if there is nothing.
    async fn canonicalize(&self, path: RequestPath) -> Result<PathUri, FsError>;

    /// The entries of a directory, in the order in which the system gives them. Links that lead nowhere are left out.
    ///
    /// # Errors
    ///
    /// An [`FsError`].
    async fn read_directory(&self, path: RequestPath) -> Result<Vec<DirectoryEntry>, FsError>;

    /// What lies below a directory, breadth first, within bounds. Names are in the order of their bytes.
    ///
    /// # Errors
    ///
    /// An [`FsError`], if the root does not exist or the options are out of range. What fails below the root is in
    /// [`Walk::errors`].
    async fn walk(&self, path: RequestPath, options: WalkOptions) -> Result<Walk, FsError>;

    /// Removes a file, a link (never its target), or a directory.
    ///
    /// # Errors
    ///
    /// An [`FsError`]. Then a part of a tree may be gone; the error names what could not be removed.
    async fn remove(&self, path: RequestPath, options: RemoveOptions) -> Result<(), FsError>;

    /// Copies a file with its permission bits, a link as such, or a directory into another one. A copy onto itself, by
    /// whichever name, changes nothing.
    ///
    /// # Errors
    ///
    /// An [`FsError`]. Then a part of a tree may be copied; the error names what could not be. A file that could not be
    /// copied has its former content, except where it had to be written in place ([`WriteOptions`]) and the disk failed.
    async fn copy(&self, source: RequestPath, destination: RequestPath, options: CopyOptions) -> Result<(), FsError>;

    /// Watches for paths that do not exist, 1 to [`MAX_MISSING_PATHS`] of them, and for a present one to change. None if
    /// that is not possible: one of `missing` exists or passes through a link, `present` does not exist, or the place
    /// cannot watch there. Of those who watch over one connection, all with a `present` must have the same one.
    ///
    /// A watch is a hint that looking again may have another result. It ends when one of `missing`, or a missing directory
    /// above it, appears; when its nearest existing directory is removed, renamed or has its mode changed; when `present`
    /// is removed or renamed, or is a file and modified. False alarms are allowed.
    ///
    /// # Errors
    ///
    /// An [`FsError`], only if the place could not be asked.
    async fn watch_missing(
        &self,
        missing: Vec<RequestPath>,
        present: Option<RequestPath>,
    ) -> Result<Option<MissingWatch>, FsError>;

    /// The place's temporary directory.
    ///
    /// # Errors
    ///
    /// An [`FsError`]; `Unsupported` if the place does not name one.
    async fn temp_dir(&self) -> Result<PathUri, FsError>;

    /// Creates a fresh directory in the temporary directory that nobody but its owner can enter, and never could.
    ///
    /// # Errors
    ///
    /// An [`FsError`]; `Unsupported` if the place cannot make one in one step.
    async fn private_directory(&self) -> Result<PathUri, FsError>;

    /// The same files, as far as an intent allows. It holds for every call of what this returns, and for files that are
    /// opened through it; handles and other views are as free as before.
    ///
    /// Paths of the intent are bound when they are first needed, and again when they lead elsewhere than before.
    ///
    /// # Errors
    ///
    /// [`FsError::Sandbox`], from here or from the first call, if the place does not enforce sandboxes, or not this one.
    ///
    /// # Wire
    ///
    /// The member `sandbox` of each call.
    fn with_sandbox(self: Arc<Self>, intent: SandboxIntent) -> Result<Arc<dyn FileSystem>, FsError> {
        drop(intent);
        Err(SandboxError::Unsupported.into())
    }

    /// The same files through calls that never wait for a connection to be made again. None if those of this one do not
    /// either.
    fn fail_fast(&self) -> Option<Arc<dyn FileSystem>> {
        None
    }
}

/// An open file. Dropping it closes it without waiting.
///
/// Blocks may be in flight at the same time; each is one positioned read or write.
#[async_trait::async_trait]
pub trait FileHandle: fmt::Debug + Send + Sync + 'static {
    /// Reads `length` bytes (1 to [`MAX_BLOCK_BYTES`]) at `offset`, or up to the end of the file.
    ///
    /// # Errors
    ///
    /// An [`FsError`]. A length out of range and `Busy` leave the handle as it is; any other error closes it. No offset is an
    /// error: behind the end, the block is empty.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    async fn read_block(&self, offset: u64, length: usize) -> Result<Block, FsError>;

    /// Writes all of `data` (1 to [`MAX_BLOCK_BYTES`] bytes) at `offset`. Bytes between the end of the file and `offset`
    /// become zeros.
    ///
    /// # Errors
    ///
    /// An [`FsError`]. The handle remains usable; a part may have been written.
    ///
    /// # Cancel safety
    ///
    /// A block whose future was polled once may still be written after it was dropped.
    async fn write_block(&self, offset: u64, data: Bytes) -> Result<(), FsError>;

    /// Closes the file; later calls end in `UnknownHandle`. Idempotent. Nothing is forced to storage.
    ///
    /// # Errors
    ///
    /// An [`FsError`], if the place could not be told, or if the system says only now that what was written found no room,
    /// as it may on a network's file system. The file is closed all the same.
    async fn close(&self) -> Result<(), FsError>;
}

/// Bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// The bytes.
    pub bytes: Bytes,
    /// Whether fewer bytes came than were asked for, which means that the file ends there. A block that ends exactly at
    /// the end does not know; the next one is empty and says so.
    pub eof: bool,
}

impl Block {
    /// A block.
    pub fn new(bytes: Bytes, eof: bool) -> Self {
        Self { bytes, eof }
    }

    /// The block, if it can be the answer to a request for `length` bytes. With any other, what follows it would be taken
    /// for something else.
    pub(crate) fn checked(self, length: usize) -> Result<Self, FsError> {
        let came = self.bytes.len();
        if came > length || (came < length) != self.eof {
            let end = if self.eof { "the" } else { "no" };
            let reason = format!("{came} bytes and {end} end of the file, where {length} bytes were asked for");
            return Err(PeerMisbehaved::BadResult { method: ReadBlock::NAME.into(), reason }.into());
        }
        Ok(self)
    }
}

/// Bytes in one block at most. 1 MiB, as the reference.
pub const MAX_BLOCK_BYTES: usize = 1 << 20;

/// Paths in one watch at most. 64, as the reference.
pub const MAX_MISSING_PATHS: usize = 64;

/// Bytes of a whole file that is read in one call, unless the options say otherwise. 48 MiB: what fits into one message of 64
/// MiB as base64, but for the 12 KiB that the rest of the message takes. So many fewer bytes can be written in one call over
/// a connection, or read through a path whose links are refused; on this machine, writes have no limit.
pub const DEFAULT_WHOLE_FILE_BYTES: u64 = 48 << 20;
