//! Files: methods and notifications of the plain wire, and their members beyond it.
//!
//! A member `sandbox` that is present asks for something that an executor either enforces or refuses; it is kept as it
//! came.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::bytes::{self, Base64, InvalidBase64};
use super::process::RawObject;
use crate::path_uri::PathUri;

/// Bytes in one block at most, as the reference has it.
pub const MAX_BLOCK_BYTES: u64 = 1 << 20;

/// Bytes of the largest file that, as base64, fits into one message of so many bytes.
pub(crate) const fn whole_file_bytes(message_bytes: usize) -> u64 {
    (message_bytes.saturating_sub(AROUND_A_FILE) / 4 * 3) as u64
}

/// More than there is in a message around the bytes of a file: the longest path is 4 KiB, three times that as a URI.
const AROUND_A_FILE: usize = 16 << 10;

/// Bytes of a handle's id at most, as the reference has it.
pub const MAX_HANDLE_ID_BYTES: usize = 32;

/// Paths in one watch at most, as the reference has it.
pub const MAX_WATCHED_PATHS: usize = 64;

/// Parameters of `fs/readFile`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadFileParams {
    /// The file.
    pub path: PathUri,
    /// Whether components of the path may be symbolic links; yes, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow_symlinks: Option<bool>,
    /// What the call may do.
    pub sandbox: Option<RawObject>,
    /// Members beyond the plain wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<ReadFileExtension>,
}

/// Additional members of `fs/readFile`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadFileExtension {
    /// The largest file to read, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// Result of `fs/readFile`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadFileResult {
    /// The content.
    pub data_base64: Base64,
}

/// Parameters of `fs/writeFile`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteFileParams {
    /// The file.
    pub path: PathUri,
    /// The content.
    pub data_base64: LateBase64,
    /// Whether components of the path may be symbolic links; yes, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow_symlinks: Option<bool>,
    /// What the call may do.
    pub sandbox: Option<RawObject>,
    /// Members beyond the plain wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<WriteFileExtension>,
}

/// Additional members of `fs/writeFile`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFileExtension {
    /// Whether to answer only when the content has reached the storage.
    #[serde(default)]
    pub fsync: bool,
}

/// Bytes as base64, whose faults are told after the parameters have decoded: they have another code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateBase64(pub Result<Base64, InvalidBase64>);

impl Serialize for LateBase64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(bytes) => bytes.serialize(serializer),
            Err(fault) => Err(serde::ser::Error::custom(fault)),
        }
    }
}

impl<'de> Deserialize<'de> for LateBase64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl Visitor<'_> for TextVisitor {
            type Value = LateBase64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LateBase64, E> {
                Ok(LateBase64(bytes::decode(text).map(Base64)))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// Parameters of `fs/open`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenParams {
    /// The id that the handle is to have.
    pub handle_id: String,
    /// The file.
    pub path: PathUri,
    /// What for.
    #[serde(default)]
    pub mode: OpenMode,
    /// What the call may do.
    pub sandbox: Option<RawObject>,
    /// Members beyond the plain wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<OpenExtension>,
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OpenMode {
    /// To read an existing file.
    #[default]
    Read,
    /// To write a file that is created, or emptied.
    Replace,
}

/// Additional members of `fs/open`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenExtension {
    /// Towards [`OpenMode::Replace`]: an existing file keeps its content.
    #[serde(default)]
    pub keep_content: bool,
}

/// Result of `fs/open`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenResult {
    /// The id of the handle.
    pub handle_id: String,
}

/// Parameters of `fs/readBlock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadBlockParams {
    /// The handle.
    pub handle_id: String,
    /// Where in the file.
    pub offset: u64,
    /// How many bytes: 1 to [`MAX_BLOCK_BYTES`].
    pub len: u64,
}

/// Result of `fs/readBlock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadBlockResult {
    /// The bytes.
    pub chunk: Base64,
    /// Whether these are fewer than were asked for, because the file ends.
    pub eof: bool,
}

/// Parameters of `fs/writeBlock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteBlockParams {
    /// The handle.
    pub handle_id: String,
    /// Where in the file.
    pub offset: u64,
    /// The bytes: 1 to [`MAX_BLOCK_BYTES`].
    pub chunk: Base64,
}

/// Parameters of `fs/close`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloseParams {
    /// The handle; unknown ones are closed already.
    pub handle_id: String,
}

/// Parameters of `fs/canonicalize` and `fs/readDirectory`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathParams {
    /// The path.
    pub path: PathUri,
    /// What the call may do.
    pub sandbox: Option<RawObject>,
}

/// A path as a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathResult {
    /// The path.
    pub path: PathUri,
}

/// Parameters of `fs/createDirectory`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateDirectoryParams {
    /// The directory.
    pub path: PathUri,
    /// Whether missing parents are created, and an existing directory is fine; yes, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive: Option<bool>,
    /// Whether components of the path may be symbolic links; yes, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow_symlinks: Option<bool>,
    /// What the call may do.
    pub sandbox: Option<RawObject>,
}

/// Parameters of `fs/getMetadata`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetMetadataParams {
    /// The path.
    pub path: PathUri,
    /// Whether components of the path may be symbolic links; yes, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow_symlinks: Option<bool>,
    /// What the call may do.
    pub sandbox: Option<RawObject>,
}

/// Result of `fs/getMetadata`. It describes the target of a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// It is a directory.
    pub is_directory: bool,
    /// It is a regular file.
    pub is_file: bool,
    /// The path itself is a symbolic link.
    #[serde(default)]
    pub is_symlink: bool,
    /// Bytes.
    #[serde(default)]
    pub size: u64,
    /// When it was created, in milliseconds since the Unix epoch; 0 if unknown.
    pub created_at_ms: i64,
    /// When its content was last changed, in milliseconds since the Unix epoch; 0 if unknown.
    pub modified_at_ms: i64,
}

/// Result of `fs/readDirectory`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadDirectoryResult {
    /// The entries, in the order in which the system gives them.
    pub entries: Vec<DirectoryEntry>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DirectoryEntry {
    /// Its name; what of it is not Unicode text is replaced.
    pub file_name: String,
    /// It is, or leads to, a directory.
    pub is_directory: bool,
    /// It is, or leads to, a regular file.
    pub is_file: bool,
    /// Members beyond the plain wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<EntryExtension>,
}

/// Additional members of a directory's entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryExtension {
    /// The name as it stands in the entry's URI, if it is no Unicode text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoded_name: Option<String>,
}

/// Parameters of `fs/walk`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WalkParams {
    /// Where to begin.
    pub path: PathUri,
    /// How far to go.
    pub options: WalkOptions,
    /// What the call may do.
    pub sandbox: Option<RawObject>,
}

/// Bounds of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WalkOptions {
    /// How deep directories are entered: 0 to 64.
    pub max_depth: u64,
    /// How many directories are read: 1 to 10,000.
    pub max_directories: u64,
    /// How many entries are looked at: 1 to 50,000.
    pub max_entries: u64,
    /// Whether symbolic links to directories are reported and entered.
    pub follow_directory_symlinks: bool,
    /// Whether directories whose name begins with a dot are left unread.
    #[serde(default)]
    pub prune_hidden_directories: bool,
}

/// Result of `fs/walk`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkResult {
    /// Files and directories, breadth first.
    pub entries: Vec<WalkEntry>,
    /// What could not be looked at.
    pub errors: Vec<WalkFailure>,
    /// Whether a bound was hit.
    pub truncated: bool,
    /// Members beyond the plain wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<WalkExtension>,
}

/// Additional members of the result of `fs/walk`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkExtension {
    /// What was passed over.
    pub skipped: Vec<WalkSkipped>,
}

/// What a walk passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkSkipped {
    /// Where.
    pub path: PathUri,
    /// Why.
    pub reason: WalkSkipReason,
}

/// Why a walk passed something over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WalkSkipReason {
    /// A link that is not followed.
    Symlink,
    /// A link that leads nowhere.
    DanglingSymlink,
    /// Neither a file nor a directory.
    Special,
    /// A directory that was entered by another path.
    AlreadyEntered,
    /// A reason of a later version.
    #[serde(other)]
    Other,
}

/// What a walk found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkEntry {
    /// Where.
    pub path: PathUri,
    /// What.
    pub kind: WalkKind,
}

/// What a walk reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WalkKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
}

/// What a walk could not look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkFailure {
    /// Where.
    pub path: PathUri,
    /// Why.
    pub message: String,
}

/// Parameters of `fs/remove`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoveParams {
    /// What to remove. A symbolic link is removed itself.
    pub path: PathUri,
    /// Whether a directory is removed with all that is in it; yes, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive: Option<bool>,
    /// Whether a missing path is fine; yes, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// Whether components of the path may be symbolic links; yes, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow_symlinks: Option<bool>,
    /// What the call may do.
    pub sandbox: Option<RawObject>,
}

/// Parameters of `fs/copy`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CopyParams {
    /// From where.
    pub source_path: PathUri,
    /// To where.
    pub destination_path: PathUri,
    /// Whether directories are copied.
    pub recursive: bool,
    /// What the call may do.
    pub sandbox: Option<RawObject>,
}

/// Parameters of `fs/watchMissing`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchMissingParams {
    /// Greater than any before on this connection.
    pub watch_id: u64,
    /// Paths that do not exist.
    pub missing: Vec<PathUri>,
    /// A path that does.
    pub present: Option<PathUri>,
    /// What the call may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<RawObject>,
}

/// Result of `fs/watchMissing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchMissingResult {
    /// Whether there is a watch now.
    pub watching: bool,
}

/// Parameters of the notification `fs/missingChanged`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MissingChangedParams {
    /// The watch, which has ended.
    pub watch_id: u64,
}

#[cfg(test)]
mod tests;
