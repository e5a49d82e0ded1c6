//! The errors of files on the wire.
//!
//! To every peer they are a code and a text, as the reference has them. A peer with the extension's feature `fs` also finds
//! `data.longarm`, from which the same [`FsError`] is made again, with the path that it is about.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error_code::ErrorCode;
use super::method::{self, Method};
use super::spawn_error::{SANDBOX_PREPARATION, SANDBOX_UNAVAILABLE, of_sandbox_kind, sandbox_kind};
use crate::error::{Busy, Disconnected, RpcError, Sent, Unsupported};
use crate::fs::{FsError, InvalidFsRequest, MAX_BLOCK_BYTES, RequestPath, Symlinks, WalkOptions};
use crate::path_uri::{PathConvention, PathUri};
use crate::sandbox::SandboxError;

/// What was asked for, to name it where the answer does not.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method.
    pub method: &'static str,
    /// The path, as the caller gave it; of a handle, the path that it was opened by.
    pub path: RequestPath,
    /// The second path, of a copy.
    pub destination: Option<RequestPath>,
    /// What the call said of links.
    pub symlinks: Symlinks,
}

impl Asked {
    /// A call of `method` about one path.
    pub fn new(method: &'static str, path: RequestPath) -> Self {
        Self { method, path, destination: None, symlinks: Symlinks::Follow }
    }

    /// A path as the caller gave it, or in the form in which he gives paths.
    fn spelling_of(&self, path: PathUri) -> RequestPath {
        for given in std::iter::once(&self.path).chain(&self.destination) {
            if uri(given).as_ref() == Some(&path) {
                return given.clone();
            }
        }
        match (&self.path, path.to_host_native_path()) {
            (RequestPath::Native(_), Ok(native)) => RequestPath::Native(native),
            _ => RequestPath::Uri(path),
        }
    }
}

/// The error answer that stands for `error` of a call of `method` that says this of links; with all that it names, if the
/// peer is to have that.
pub fn to_rpc(error: &FsError, method: &str, symlinks: Symlinks, detailed: bool) -> RpcError {
    // A server in front of another one passes its answers on as they are.
    if let FsError::Remote(answer) = error {
        return answer.clone();
    }
    let (code, message) = match (error, symlinks) {
        (FsError::NotAFile { .. }, Symlinks::Refuse) => (ErrorCode::INVALID_REQUEST, NOT_A_REGULAR_FILE.into()),
        _ => code_and_text(error, method),
    };
    let longarm = if detailed { Detail::of(error) } else { None };
    let kind = if let FsError::Sandbox(refusal) = error { sandbox_kind(refusal) } else { None };
    let data = Data { kind, longarm };
    let data = (data.kind.is_some() || data.longarm.is_some()).then(|| serde_json::to_string(&data).ok()).flatten();
    RpcError { code: code.0, message, data }
}

/// The error that an answer to `asked` stands for. Whatever it does not know stays an answer as it came.
pub fn from_rpc(answer: RpcError, asked: &Asked) -> FsError {
    let data = answer.data.as_deref().and_then(|data| serde_json::from_str::<AnyData>(data).ok());
    let (kind, detail) = data.map_or((None, None), |data| (data.kind, data.longarm));
    let detail = detail.and_then(|detail| serde_json::from_str::<Detail>(detail.get()).ok());
    if let Some(error) = detail.and_then(|detail| detail.into_error(asked)) {
        return error;
    }
    if let Some(kind @ (SANDBOX_UNAVAILABLE | SANDBOX_PREPARATION)) = kind.as_ref().and_then(serde_json::Value::as_str)
    {
        return of_sandbox_kind(kind, answer.message).into();
    }
    match ErrorCode(answer.code) {
        ErrorCode::METHOD_NOT_FOUND => Unsupported { feature: asked.method, place: "the peer".into() }.into(),
        ErrorCode::NOT_FOUND => match quoted(&answer.message, "unknown file handle `", "`") {
            Some(handle) => FsError::UnknownHandle { handle: handle.into() },
            None => FsError::NotFound { path: asked.path.clone() },
        },
        ErrorCode::INVALID_PARAMS => InvalidFsRequest::Other(answer.message).into(),
        ErrorCode::INVALID_REQUEST => invalid(&answer.message, asked),
        ErrorCode::INTERNAL => match os_error(&answer.message) {
            Some(number) => of_number(number, &answer.message, asked),
            None => FsError::Remote(answer),
        },
        _ => FsError::Remote(answer),
    }
}

/// The table of codes and texts.
fn code_and_text(error: &FsError, method: &str) -> (ErrorCode, String) {
    use ErrorCode as Code;
    let internal = |text: &str| (Code::INTERNAL, text.to_owned());
    match error {
        FsError::InvalidRequest(invalid) => (Code::INVALID_REQUEST, invalid_text(invalid, method)),
        FsError::NotFound { .. } => (Code::NOT_FOUND, NOT_FOUND.into()),
        FsError::PermissionDenied { code, .. } => {
            (Code::INVALID_REQUEST, if *code == Some(1) { NOT_PERMITTED } else { PERMISSION_DENIED }.into())
        }
        FsError::NotAFile { path } => (Code::INVALID_REQUEST, format!("path `{}` is not a file", native(path))),
        FsError::NotADirectory { .. } => internal(NOT_A_DIRECTORY),
        FsError::IsADirectory { .. } => internal(IS_A_DIRECTORY),
        FsError::AlreadyExists { .. } => internal(EXISTS),
        FsError::NotEmpty { .. } => internal(NOT_EMPTY),
        FsError::SymbolicLink { last: true, .. } if method == method::GetMetadata::NAME => {
            (Code::INVALID_REQUEST, CONTAINS_LINK.into())
        }
        FsError::SymbolicLink { last: true, .. } => internal(LINK_LOOP),
        FsError::SymbolicLink { last: false, .. } => internal(NOT_A_DIRECTORY),
        FsError::TooLarge { limit, .. } => (Code::INVALID_REQUEST, format!("{TOO_LARGE}{limit} bytes")),
        FsError::UnknownHandle { handle } => (Code::NOT_FOUND, format!("unknown file handle `{handle}`")),
        FsError::HandleExists { handle } => (Code::INVALID_REQUEST, format!("file handle `{handle}` already exists")),
        FsError::TooManyHandles { limit } => {
            (Code::INVALID_REQUEST, format!("at most {limit} file handles may be open per connection"))
        }
        FsError::WrongMode { .. } => internal(BAD_DESCRIPTOR),
        FsError::Sandbox(_) => (Code::INVALID_PARAMS, error.to_string()),
        FsError::Unsupported(_) | FsError::Busy(_) => (Code::INVALID_REQUEST, error.to_string()),
        FsError::Disconnected(_) | FsError::Peer(_) | FsError::Closed => (Code::INTERNAL, error.to_string()),
        FsError::Remote(answer) => (ErrorCode(answer.code), answer.message.clone()),
        FsError::Os { source, .. } => (Code::INTERNAL, source.to_string()),
    }
}

fn invalid_text(invalid: &InvalidFsRequest, method: &str) -> String {
    match invalid {
        InvalidFsRequest::BlockLength { .. } => {
            let what = if method == method::WriteBlock::NAME { "write" } else { "read" };
            format!("file {what} block length must be between 1 and {MAX_BLOCK_BYTES}")
        }
        InvalidFsRequest::BlockRange { .. } => BLOCK_RANGE.into(),
        InvalidFsRequest::WalkLimitZero => WALK_ZERO.into(),
        InvalidFsRequest::WalkLimitTooLarge { depth, directories, entries } => {
            format!("{WALK_TOO_LARGE}depth={depth}, directories={directories}, entries={entries}")
        }
        InvalidFsRequest::CopyOfDirectory { .. } => COPY_OF_DIRECTORY.into(),
        InvalidFsRequest::CopyIntoItself { .. } => COPY_INTO_ITSELF.into(),
        InvalidFsRequest::CopyOfSpecial { .. } => COPY_OF_SPECIAL.into(),
        other => other.to_string(),
    }
}

/// What an answer with the code of invalid requests stands for, by its text.
fn invalid(text: &str, asked: &Asked) -> FsError {
    let path = || asked.path.clone();
    let request = match text {
        CONTAINS_LINK => return FsError::SymbolicLink { path: path(), last: true },
        WALK_ZERO => InvalidFsRequest::WalkLimitZero,
        COPY_OF_DIRECTORY => InvalidFsRequest::CopyOfDirectory { path: path() },
        COPY_INTO_ITSELF => InvalidFsRequest::CopyIntoItself {
            source_path: path(),
            destination: asked.destination.clone().unwrap_or_else(path),
        },
        COPY_OF_SPECIAL => InvalidFsRequest::CopyOfSpecial { path: path() },
        text if text.starts_with(WALK_TOO_LARGE) => InvalidFsRequest::WalkLimitTooLarge {
            depth: WalkOptions::MAX_DEPTH,
            directories: WalkOptions::MAX_DIRECTORIES,
            entries: WalkOptions::MAX_ENTRIES,
        },
        text if text.starts_with("path `") && text.ends_with("` is not a file") || text == NOT_A_REGULAR_FILE => {
            return FsError::NotAFile { path: path() };
        }
        _ => {
            if let Some(limit) = quoted(text, TOO_LARGE, " bytes").and_then(|limit| limit.parse().ok()) {
                return FsError::TooLarge { path: path(), size: None, limit };
            }
            if let Some(limit) = quoted(text, "at most ", " file handles may be open per connection")
                && let Ok(limit) = limit.parse()
            {
                return FsError::TooManyHandles { limit };
            }
            if let Some(handle) = quoted(text, "file handle `", "` already exists") {
                return FsError::HandleExists { handle: handle.into() };
            }
            if let Some((uri, os)) = quoted(text, "'", "'").and_then(|foreign| foreign.split_once("' is invalid on '"))
            {
                return InvalidFsRequest::ForeignPath { uri: uri.into(), os: os.into() }.into();
            }
            match os_error(text) {
                Some(number @ (EPERM | EACCES)) => {
                    return FsError::PermissionDenied { path: path(), code: Some(number) };
                }
                _ => InvalidFsRequest::Other(text.into()),
            }
        }
    };
    request.into()
}

/// The error for a number that a POSIX system gave. These are the same on Linux and macOS, save two, which have both.
fn of_number(number: i32, text: &str, asked: &Asked) -> FsError {
    let path = asked.path.clone();
    match number {
        17 => FsError::AlreadyExists { path },
        20 => FsError::NotADirectory { path },
        21 => FsError::IsADirectory { path },
        39 | 66 => FsError::NotEmpty { path },
        40 | 62 if asked.symlinks == Symlinks::Refuse => FsError::SymbolicLink { path, last: true },
        9 => {
            let wanted = if asked.method == method::WriteBlock::NAME { "writing" } else { "reading" };
            FsError::WrongMode { path, wanted }
        }
        _ => {
            let kind = match number {
                18 => io::ErrorKind::CrossesDevices,
                22 => io::ErrorKind::InvalidInput,
                27 => io::ErrorKind::FileTooLarge,
                28 => io::ErrorKind::StorageFull,
                30 => io::ErrorKind::ReadOnlyFilesystem,
                _ => io::ErrorKind::Other,
            };
            FsError::Os { op: ON_EXECUTOR, path, source: Arc::new(io::Error::new(kind, text)) }
        }
    }
}

/// The number at the end of a system's text, as `(os error 2)`.
fn os_error(text: &str) -> Option<i32> {
    text.strip_suffix(')')?.rsplit_once("(os error ")?.1.parse().ok()
}

fn quoted<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.strip_prefix(before)?.strip_suffix(after)
}

/// The native text of a path.
fn native(path: &RequestPath) -> String {
    match path {
        RequestPath::Native(path) => path.to_string_lossy().into_owned(),
        RequestPath::Uri(uri) => {
            let convention = uri.convention();
            let native = convention.and_then(|convention| uri.to_native(PathConvention::an_os(convention)).ok());
            native.map_or_else(|| uri.as_str().to_owned(), |native| native.to_string())
        }
    }
}

#[derive(Serialize)]
struct Data {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    longarm: Option<Detail>,
}

/// The data of any peer, whose members may be anything.
#[derive(Deserialize)]
struct AnyData {
    kind: Option<serde_json::Value>,
    longarm: Option<Box<serde_json::value::RawValue>>,
}

/// The member `longarm`: an [`FsError`] with all that it names. A path that is absent is the one asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Detail {
    NotFound { path: Option<PathUri> },
    PermissionDenied { path: Option<PathUri>, code: Option<i32> },
    NotAFile { path: Option<PathUri> },
    NotADirectory { path: Option<PathUri> },
    IsADirectory { path: Option<PathUri> },
    AlreadyExists { path: Option<PathUri> },
    NotEmpty { path: Option<PathUri> },
    SymbolicLink { path: Option<PathUri>, last: bool },
    TooLarge { path: Option<PathUri>, size: Option<u64>, limit: u64 },
    WrongMode { path: Option<PathUri>, reading: bool },
    UnknownHandle { handle: String },
    HandleExists { handle: String },
    TooManyHandles { limit: usize },
    RelativePath { path: Option<PathUri> },
    Nul { path: Option<PathUri> },
    ForeignPath { uri: String, os: String },
    BlockLength { length: usize, max: usize },
    BlockRange { offset: u64, length: usize },
    WalkLimitZero,
    WalkLimitTooLarge { depth: u64, directories: u64, entries: u64 },
    CopyOfDirectory { path: Option<PathUri> },
    CopyIntoItself,
    CopyOfSpecial { path: Option<PathUri> },
    InvalidRequest { reason: String },
    SandboxUnsupported,
    SandboxInvalid { reason: String },
    SandboxUnavailable { cause: String, remedy: Option<String> },
    SandboxPreparation { reason: String },
    SandboxChanged { reason: String },
    Unsupported { reason: String },
    Busy { limit: usize },
    Disconnected { may_have_run: bool, reason: String },
    Closed,
    Os { path: Option<PathUri>, text: String, number: Option<i32> },
}

impl Detail {
    /// None for errors that mean something to this end only.
    fn of(error: &FsError) -> Option<Self> {
        Some(match error {
            FsError::InvalidRequest(invalid) => Self::of_invalid(invalid)?,
            FsError::NotFound { path } => Self::NotFound { path: uri(path) },
            FsError::PermissionDenied { path, code } => Self::PermissionDenied { path: uri(path), code: *code },
            FsError::NotAFile { path } => Self::NotAFile { path: uri(path) },
            FsError::NotADirectory { path } => Self::NotADirectory { path: uri(path) },
            FsError::IsADirectory { path } => Self::IsADirectory { path: uri(path) },
            FsError::AlreadyExists { path } => Self::AlreadyExists { path: uri(path) },
            FsError::NotEmpty { path } => Self::NotEmpty { path: uri(path) },
            FsError::SymbolicLink { path, last } => Self::SymbolicLink { path: uri(path), last: *last },
            FsError::TooLarge { path, size, limit } => Self::TooLarge { path: uri(path), size: *size, limit: *limit },
            FsError::WrongMode { path, wanted } => Self::WrongMode { path: uri(path), reading: *wanted == READING },
            FsError::UnknownHandle { handle } => Self::UnknownHandle { handle: handle.clone() },
            FsError::HandleExists { handle } => Self::HandleExists { handle: handle.clone() },
            FsError::TooManyHandles { limit } => Self::TooManyHandles { limit: *limit },
            FsError::Unsupported(unsupported) => Self::Unsupported { reason: unsupported.to_string() },
            FsError::Sandbox(SandboxError::Unsupported) => Self::SandboxUnsupported,
            FsError::Sandbox(SandboxError::Invalid { reason }) => Self::SandboxInvalid { reason: reason.clone() },
            FsError::Sandbox(SandboxError::Unavailable { cause, remedy }) => {
                Self::SandboxUnavailable { cause: cause.clone(), remedy: remedy.clone() }
            }
            FsError::Sandbox(SandboxError::Preparation { reason }) => {
                Self::SandboxPreparation { reason: reason.clone() }
            }
            FsError::Sandbox(SandboxError::Changed { reason }) => Self::SandboxChanged { reason: reason.clone() },
            FsError::Busy(Busy { limit }) => Self::Busy { limit: *limit },
            FsError::Disconnected(Disconnected { sent, reason }) => {
                Self::Disconnected { may_have_run: *sent == Sent::Unknown, reason: reason.to_string() }
            }
            FsError::Closed => Self::Closed,
            FsError::Os { path, source, .. } => {
                Self::Os { path: uri(path), text: source.to_string(), number: source.raw_os_error() }
            }
            FsError::Peer(_) | FsError::Remote(_) => return None,
        })
    }

    fn of_invalid(invalid: &InvalidFsRequest) -> Option<Self> {
        Some(match invalid {
            InvalidFsRequest::RelativePath { path } => Self::RelativePath { path: uri(path) },
            InvalidFsRequest::Nul { path } => Self::Nul { path: uri(path) },
            InvalidFsRequest::ForeignPath { uri, os } => Self::ForeignPath { uri: uri.clone(), os: os.clone() },
            InvalidFsRequest::BlockLength { length, max } => Self::BlockLength { length: *length, max: *max },
            InvalidFsRequest::BlockRange { offset, length } => Self::BlockRange { offset: *offset, length: *length },
            InvalidFsRequest::WalkLimitZero => Self::WalkLimitZero,
            InvalidFsRequest::WalkLimitTooLarge { depth, directories, entries } => {
                Self::WalkLimitTooLarge { depth: *depth, directories: *directories, entries: *entries }
            }
            InvalidFsRequest::CopyOfDirectory { path } => Self::CopyOfDirectory { path: uri(path) },
            InvalidFsRequest::CopyIntoItself { .. } => Self::CopyIntoItself,
            InvalidFsRequest::CopyOfSpecial { path } => Self::CopyOfSpecial { path: uri(path) },
            InvalidFsRequest::Other(reason) => Self::InvalidRequest { reason: reason.clone() },
        })
    }

    fn into_error(self, asked: &Asked) -> Option<FsError> {
        let path = |path: Option<PathUri>| path.map_or_else(|| asked.path.clone(), |path| asked.spelling_of(path));
        Some(match self {
            Self::NotFound { path: at } => FsError::NotFound { path: path(at) },
            Self::PermissionDenied { path: at, code } => FsError::PermissionDenied { path: path(at), code },
            Self::NotAFile { path: at } => FsError::NotAFile { path: path(at) },
            Self::NotADirectory { path: at } => FsError::NotADirectory { path: path(at) },
            Self::IsADirectory { path: at } => FsError::IsADirectory { path: path(at) },
            Self::AlreadyExists { path: at } => FsError::AlreadyExists { path: path(at) },
            Self::NotEmpty { path: at } => FsError::NotEmpty { path: path(at) },
            Self::SymbolicLink { path: at, last } => FsError::SymbolicLink { path: path(at), last },
            Self::TooLarge { path: at, size, limit } => FsError::TooLarge { path: path(at), size, limit },
            Self::WrongMode { path: at, reading } => {
                FsError::WrongMode { path: path(at), wanted: if reading { READING } else { WRITING } }
            }
            Self::UnknownHandle { handle } => FsError::UnknownHandle { handle },
            Self::HandleExists { handle } => FsError::HandleExists { handle },
            Self::TooManyHandles { limit } => FsError::TooManyHandles { limit },
            Self::RelativePath { path: at } => InvalidFsRequest::RelativePath { path: path(at) }.into(),
            Self::Nul { path: at } => InvalidFsRequest::Nul { path: path(at) }.into(),
            Self::ForeignPath { uri, os } => InvalidFsRequest::ForeignPath { uri, os }.into(),
            Self::BlockLength { length, max } => InvalidFsRequest::BlockLength { length, max }.into(),
            Self::BlockRange { offset, length } => InvalidFsRequest::BlockRange { offset, length }.into(),
            Self::WalkLimitZero => InvalidFsRequest::WalkLimitZero.into(),
            Self::WalkLimitTooLarge { depth, directories, entries } => {
                InvalidFsRequest::WalkLimitTooLarge { depth, directories, entries }.into()
            }
            Self::CopyOfDirectory { path: at } => InvalidFsRequest::CopyOfDirectory { path: path(at) }.into(),
            Self::CopyIntoItself => InvalidFsRequest::CopyIntoItself {
                source_path: asked.path.clone(),
                destination: asked.destination.clone()?,
            }
            .into(),
            Self::CopyOfSpecial { path: at } => InvalidFsRequest::CopyOfSpecial { path: path(at) }.into(),
            Self::InvalidRequest { reason } => InvalidFsRequest::Other(reason).into(),
            Self::SandboxUnsupported => SandboxError::Unsupported.into(),
            Self::SandboxInvalid { reason } => SandboxError::Invalid { reason }.into(),
            Self::SandboxUnavailable { cause, remedy } => SandboxError::Unavailable { cause, remedy }.into(),
            Self::SandboxPreparation { reason } => SandboxError::Preparation { reason }.into(),
            Self::SandboxChanged { reason } => SandboxError::Changed { reason }.into(),
            Self::Unsupported { reason } => {
                Unsupported { feature: asked.method, place: format!("the executor: {reason}") }.into()
            }
            Self::Busy { limit } => Busy { limit }.into(),
            Self::Disconnected { may_have_run, reason } => {
                let sent = if may_have_run { Sent::Unknown } else { Sent::NotSent };
                Disconnected { sent, reason: reason.into() }.into()
            }
            Self::Closed => FsError::Closed,
            Self::Os { path: at, text, number } => match number.map(|number| of_number(number, &text, asked)) {
                Some(FsError::Os { op, source, .. }) => FsError::Os { op, path: path(at), source },
                _ => FsError::Os { op: ON_EXECUTOR, path: path(at), source: Arc::new(io::Error::other(text)) },
            },
        })
    }
}

/// The form of a path on the wire. None if it has none, as a path that is not absolute.
fn uri(path: &RequestPath) -> Option<PathUri> {
    match path {
        RequestPath::Uri(uri) => Some(uri.clone()),
        RequestPath::Native(path) => PathUri::from_host_native_path(path).ok(),
    }
}

// Texts of the reference.
const NOT_FOUND: &str = "No such file or directory (os error 2)";
const NOT_PERMITTED: &str = "Operation not permitted (os error 1)";
const PERMISSION_DENIED: &str = "Permission denied (os error 13)";
const NOT_A_DIRECTORY: &str = "Not a directory (os error 20)";
const IS_A_DIRECTORY: &str = "Is a directory (os error 21)";
const EXISTS: &str = "File exists (os error 17)";
const NOT_EMPTY: &str = "Directory not empty (os error 39)";
const LINK_LOOP: &str = "Symbolic link loop (os error 40)";
const BAD_DESCRIPTOR: &str = "Bad file descriptor (os error 9)";
const CONTAINS_LINK: &str = "path contains a symbolic link";
const NOT_A_REGULAR_FILE: &str = "path is not a regular file";
const TOO_LARGE: &str = "file is too large to read: limit is ";
const BLOCK_RANGE: &str = "file write range exceeds the signed 64-bit file offset limit";
const WALK_ZERO: &str = "filesystem walk limits must be greater than zero";
const WALK_TOO_LARGE: &str = "filesystem walk limits exceed maximums: ";
const COPY_OF_DIRECTORY: &str = "fs/copy requires recursive: true when sourcePath is a directory";
const COPY_INTO_ITSELF: &str = "fs/copy cannot copy a directory to itself or one of its descendants";
const COPY_OF_SPECIAL: &str = "fs/copy only supports regular files, directories, and symlinks";

const EPERM: i32 = 1;
const EACCES: i32 = 13;

const READING: &str = "reading";
const WRITING: &str = "writing";

/// What was being done when a system call of the executor failed; the details are in the text.
const ON_EXECUTOR: &str = "use on the executor";

#[cfg(test)]
mod tests;
