//! What can go wrong with files.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::RequestPath;
use crate::error::{Busy, Disconnected, PeerMisbehaved, RpcError, Sent, Unsupported};
use crate::path_uri::PathUriError;
use crate::sandbox::SandboxError;

/// A call about files failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// The request is invalid. Nothing was done.
    #[error(transparent)]
    InvalidRequest(#[from] InvalidFsRequest),
    /// There is nothing at the path, or a directory above it does not exist.
    #[error("{} does not exist", Shown(.path))]
    NotFound {
        /// The path.
        path: RequestPath,
    },
    /// The system does not permit it.
    #[error("permission denied: {}", Shown(.path))]
    PermissionDenied {
        /// The path.
        path: RequestPath,
        /// The system's number for the reason, if known.
        code: Option<i32>,
    },
    /// It is not a regular file: a directory, a device, a FIFO or a socket.
    #[error("{} is not a file", Shown(.path))]
    NotAFile {
        /// The path.
        path: RequestPath,
    },
    /// It, or something above it, is not a directory.
    #[error("{} is not a directory", Shown(.path))]
    NotADirectory {
        /// The path.
        path: RequestPath,
    },
    /// It is a directory.
    #[error("{} is a directory", Shown(.path))]
    IsADirectory {
        /// The path.
        path: RequestPath,
    },
    /// It exists.
    #[error("{} already exists", Shown(.path))]
    AlreadyExists {
        /// The path.
        path: RequestPath,
    },
    /// The directory is not empty.
    #[error("directory {} is not empty", Shown(.path))]
    NotEmpty {
        /// The directory.
        path: RequestPath,
    },
    /// A component of the path is a symbolic link, which the call refuses.
    #[error("{} contains a symbolic link", Shown(.path))]
    SymbolicLink {
        /// The path.
        path: RequestPath,
        /// Whether it is the last component.
        last: bool,
    },
    /// The file is larger than is read or written in one call. Blocks have no such limit.
    #[error(
        "{}{} exceeds the limit of {limit} bytes of a whole-file call: open it and use blocks",
        Shown(.path),
        OfSize(*.size)
    )]
    TooLarge {
        /// The path.
        path: RequestPath,
        /// Its size in bytes, if known.
        size: Option<u64>,
        /// The limit in bytes.
        limit: u64,
    },
    /// The handle was closed, or closed itself after a failed read.
    #[error("the file handle {handle:?} is closed or unknown")]
    UnknownHandle {
        /// The handle's id, or the path if it has none.
        handle: String,
    },
    /// The connection has a handle of this id.
    #[error("file handle {handle:?} already exists")]
    HandleExists {
        /// The handle's id.
        handle: String,
    },
    /// As many files are open as the connection or the place allows.
    #[error("{limit} files are already open")]
    TooManyHandles {
        /// The limit.
        limit: usize,
    },
    /// A block was read from a file that is open for writing, or the other way round.
    #[error("{} is not open for {wanted}", Shown(.path))]
    WrongMode {
        /// The path.
        path: RequestPath,
        /// `reading` or `writing`.
        wanted: &'static str,
    },
    /// The place lacks a feature that the call needs. Nothing was done.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The sandbox was refused. Nothing was done.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// Too many calls are in flight.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The connection ended.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    /// The peer misbehaved.
    #[error(transparent)]
    Peer(#[from] PeerMisbehaved),
    /// An error answer that fits no other variant.
    #[error(transparent)]
    Remote(#[from] RpcError),
    /// The environment was closed.
    #[error("the environment is closed")]
    Closed,
    /// Another system error.
    #[error("cannot {op} {}", Shown(.path))]
    Os {
        /// What was being done, such as `write to`.
        op: &'static str,
        /// The path.
        path: RequestPath,
        /// The system's error.
        #[source]
        source: Arc<io::Error>,
    },
}

impl FsError {
    /// The variant for a system error of an operation on a path.
    pub fn from_io(op: &'static str, path: impl Into<RequestPath>, error: io::Error) -> Self {
        let path = path.into();
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path },
            io::ErrorKind::PermissionDenied => Self::PermissionDenied { path, code: error.raw_os_error() },
            io::ErrorKind::NotADirectory => Self::NotADirectory { path },
            io::ErrorKind::IsADirectory => Self::IsADirectory { path },
            io::ErrorKind::AlreadyExists => Self::AlreadyExists { path },
            io::ErrorKind::DirectoryNotEmpty => Self::NotEmpty { path },
            _ => Self::Os { op, path, source: Arc::new(error) },
        }
    }

    /// The path that it is about, if it is about one.
    pub fn path(&self) -> Option<&RequestPath> {
        match self {
            Self::NotFound { path }
            | Self::PermissionDenied { path, .. }
            | Self::NotAFile { path }
            | Self::NotADirectory { path }
            | Self::IsADirectory { path }
            | Self::AlreadyExists { path }
            | Self::NotEmpty { path }
            | Self::SymbolicLink { path, .. }
            | Self::TooLarge { path, .. }
            | Self::WrongMode { path, .. }
            | Self::Os { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Whether the same call may succeed later without a change by the host.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Busy(_) | Self::TooManyHandles { .. } | Self::Sandbox(SandboxError::Changed { .. }) => true,
            // Among them that the system gives no thread for the call.
            Self::Os { source, .. } => source.kind() == io::ErrorKind::WouldBlock,
            Self::Disconnected(disconnected) => disconnected.sent == Sent::NotSent,
            _ => false,
        }
    }
}

impl From<FsError> for io::Error {
    fn from(error: FsError) -> Self {
        let kind = match &error {
            FsError::InvalidRequest(_) | FsError::NotAFile { .. } | FsError::WrongMode { .. } => {
                io::ErrorKind::InvalidInput
            }
            FsError::NotFound { .. } | FsError::UnknownHandle { .. } => io::ErrorKind::NotFound,
            FsError::PermissionDenied { .. } => io::ErrorKind::PermissionDenied,
            FsError::NotADirectory { .. } => io::ErrorKind::NotADirectory,
            FsError::IsADirectory { .. } => io::ErrorKind::IsADirectory,
            FsError::AlreadyExists { .. } | FsError::HandleExists { .. } => io::ErrorKind::AlreadyExists,
            FsError::NotEmpty { .. } => io::ErrorKind::DirectoryNotEmpty,
            FsError::TooLarge { .. } => io::ErrorKind::FileTooLarge,
            FsError::Unsupported(_) | FsError::Sandbox(_) => io::ErrorKind::Unsupported,
            FsError::Busy(_) | FsError::TooManyHandles { .. } => io::ErrorKind::ResourceBusy,
            FsError::Disconnected(_) | FsError::Closed => io::ErrorKind::NotConnected,
            FsError::Peer(_) => io::ErrorKind::InvalidData,
            FsError::Os { source, .. } => source.kind(),
            FsError::SymbolicLink { .. } | FsError::Remote(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// A call about files that no place would carry out. The host must change it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFsRequest {
    /// The path is not absolute.
    #[error("path {} is not absolute", Shown(.path))]
    RelativePath {
        /// The path.
        path: RequestPath,
    },
    /// The path contains a NUL, which would cut it short.
    #[error("path {} contains a NUL", Shown(.path))]
    Nul {
        /// The path.
        path: RequestPath,
    },
    /// A path of another operating system's convention, or one that does not convert.
    #[error("'{uri}' is invalid on '{os}'")]
    ForeignPath {
        /// The canonical URI.
        uri: String,
        /// The operating system of the place.
        os: String,
    },
    /// A block is empty or too long.
    #[error("a block of {length} bytes is not between 1 and {max} bytes long")]
    BlockLength {
        /// Its length in bytes.
        length: usize,
        /// The most bytes of a block.
        max: usize,
    },
    /// A block reaches beyond the largest offset of a file.
    #[error("a block of {length} bytes at offset {offset} ends beyond the largest offset of a file")]
    BlockRange {
        /// Its offset in bytes.
        offset: u64,
        /// Its length in bytes.
        length: usize,
    },
    /// A walk that may read no directory or no entry.
    #[error("a walk must be allowed at least one directory and one entry")]
    WalkLimitZero,
    /// Bounds of a walk above the largest ones.
    #[error("the bounds of a walk exceed depth {depth}, {directories} directories or {entries} entries")]
    WalkLimitTooLarge {
        /// The largest depth.
        depth: u64,
        /// The most directories.
        directories: u64,
        /// The most entries.
        entries: u64,
    },
    /// A directory is to be copied, but not recursively.
    #[error("{} is a directory, and the copy is not recursive", Shown(.path))]
    CopyOfDirectory {
        /// The source.
        path: RequestPath,
    },
    /// A directory is to be copied to itself or into itself.
    #[error("directory {} cannot be copied to {}, which is itself or below it", Shown(.source_path), Shown(.destination))]
    CopyIntoItself {
        /// The source.
        source_path: RequestPath,
        /// The destination.
        destination: RequestPath,
    },
    /// Something is to be copied that is neither a file nor a directory nor a link.
    #[error("{} is neither a file nor a directory nor a link, and cannot be copied", Shown(.path))]
    CopyOfSpecial {
        /// The source.
        path: RequestPath,
    },
    /// Something else that the place refused as invalid.
    #[error("{0}")]
    Other(String),
}

impl From<PathUriError> for InvalidFsRequest {
    fn from(error: PathUriError) -> Self {
        match error {
            PathUriError::Foreign { uri, os } => Self::ForeignPath { uri, os },
            PathUriError::NotAbsolute(path) => Self::RelativePath { path: path.into() },
            other => Self::Other(other.to_string()),
        }
    }
}

/// Shows a path so that odd names stay on one line.
struct Shown<'a>(&'a RequestPath);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RequestPath::Uri(uri) => uri.fmt(f),
            RequestPath::Native(path) => write!(f, "{path:?}"),
        }
    }
}

struct OfSize(Option<u64>);

impl fmt::Display for OfSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(size) => write!(f, " of {size} bytes"),
            None => Ok(()),
        }
    }
}
