//! What goes beyond the plain wire: the offer, members in objects `longarm`, and methods `longarm/…`.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::sandbox::{DenialReport, EnforcementReport};
use crate::request::{ProcessId, Signal};

/// What a side has beyond the plain wire. Both sides use what both have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The version of the extension. A later one has all of the earlier ones.
    pub version: u64,
    /// Names of features. Unknown ones have no meaning here.
    #[serde(default)]
    pub features: Vec<String>,
}

/// Additional members of `process/start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartExtension {
    /// The terminal's initial size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Size>,
    /// How long the process may run, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// How many bytes of output the process may write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit_bytes: Option<u64>,
    /// How long a stop waits before it kills, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_grace_ms: Option<u64>,
    /// Whether descendants that start a session of their own end with the process.
    #[serde(default, skip_serializing_if = "is_false")]
    pub contain: bool,
}

/// Additional members of the result of `process/start`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedExtension {
    /// What the sandbox enforces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<EnforcementReport>,
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// Additional members of `process/terminate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminateExtension {
    /// How long the process may take to end by itself, in milliseconds; 0 kills at once.
    #[serde(default)]
    pub grace_ms: u64,
    /// Whether what an already exited process left behind is ended too.
    #[serde(default)]
    pub descendants: bool,
}

/// Additional members of `process/exited`.
///
/// A word that is not known here counts as absent, as an unknown member does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "ExitedWords")]
pub struct ExitedExtension {
    /// The signal that ended the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
    /// Whether the executor ended the process for its time limit. It says no more than [`limit`](Self::limit) does, in the
    /// word that a client may look for that knows of no other limit.
    #[serde(skip_serializing_if = "is_false")]
    pub timed_out: bool,
    /// The limit for which the executor ended the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// On which evidence a sandbox denied something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denial: Option<DenialReport>,
}

/// The same, as it comes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExitedWords {
    signal: Option<Word<Signal>>,
    timed_out: Option<bool>,
    limit: Option<Word<Limit>>,
    denial: Option<DenialReport>,
}

impl From<ExitedWords> for ExitedExtension {
    fn from(words: ExitedWords) -> Self {
        Self {
            signal: words.signal.and_then(Word::known),
            timed_out: words.timed_out.unwrap_or(false),
            limit: words.limit.and_then(Word::known),
            denial: words.denial,
        }
    }
}

/// A limit of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Limit {
    /// The time limit.
    Time,
    /// The output limit.
    Output,
}

/// Additional members of `process/closed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClosedExtension {
    /// How much the process wrote.
    pub total_bytes: TotalBytes,
    /// The executor closed its end while someone still held the other end.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cut: bool,
}

/// Bytes written on each stream since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalBytes {
    /// On standard output.
    #[serde(default)]
    pub stdout: u64,
    /// On standard error.
    #[serde(default)]
    pub stderr: u64,
    /// On the terminal.
    #[serde(default)]
    pub pty: u64,
}

/// Additional members of the result of `process/read`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadExtension {
    /// How much the process has written so far.
    pub total_bytes: TotalBytes,
    /// Bytes on all streams that precede the first returned chunk, or all if none is returned.
    pub offset: u64,
    /// The number of the exit, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_seq: Option<u64>,
    /// Whether retained output follows the last returned chunk. Without a limit of the request, that is the case if there
    /// is more than fits into one message; then the next number of the result is not the process's.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
    /// The number that the process's next event will have, if no retained output follows the last returned chunk and the
    /// next number of the result is another one, since the request had a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_seq: Option<u64>,
    /// As in [`ExitedExtension`].
    #[serde(default, deserialize_with = "known", skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
    /// As in [`ExitedExtension`].
    #[serde(default, skip_serializing_if = "is_false")]
    pub timed_out: bool,
    /// As in [`ExitedExtension`].
    #[serde(default, deserialize_with = "known", skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// As in [`ClosedExtension`].
    #[serde(default, skip_serializing_if = "is_false")]
    pub cut: bool,
    /// As in [`ExitedExtension`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial: Option<DenialReport>,
}

/// Parameters of the notification `longarm/process/ack`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckParams {
    /// For each process, the sequence number up to which everything was consumed.
    pub acks: Vec<(ProcessId, u64)>,
}

/// Parameters of `longarm/process/closeStdin`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloseStdinParams {
    /// The process.
    pub process_id: ProcessId,
}

/// Result of `longarm/process/closeStdin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseStdinResult {
    /// What became of it.
    pub status: CloseStdinStatus,
}

/// What became of the closing of standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CloseStdinStatus {
    /// It closes after everything written before.
    Accepted,
    /// It is closed already, or no pipe.
    StdinClosed,
    /// There is no such process.
    UnknownProcess,
}

/// Parameters of `longarm/process/resize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResizeParams {
    /// The process.
    pub process_id: ProcessId,
    /// Rows; not 0.
    pub rows: u16,
    /// Columns; not 0.
    pub cols: u16,
}

/// Parameters of `longarm/process/signal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignalByNameParams {
    /// The process.
    pub process_id: ProcessId,
    /// The signal.
    pub signal: Signal,
}

/// Result of `longarm/process/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListResult {
    /// The processes of the session.
    pub processes: Vec<ListedProcess>,
}

/// A process of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedProcess {
    /// Its id.
    pub process_id: ProcessId,
    /// What it is doing.
    pub state: ProcessState,
    /// The sequence number that its next event will have.
    pub next_seq: u64,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Its exit code.
    pub exit_code: Option<i32>,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcessState {
    /// It is being started.
    Starting,
    /// It runs.
    Running,
    /// It has ended, and its streams have not.
    Exited,
    /// Its streams have ended too.
    Closed,
}

/// Something of which a newer peer may have other kinds.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Word<T> {
    Known(T),
    Unknown(IgnoredAny),
}

impl<T> Word<T> {
    pub(super) fn known(self) -> Option<T> {
        match self {
            Self::Known(word) => Some(word),
            Self::Unknown(IgnoredAny) => None,
        }
    }
}

fn known<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(Option::<Word<T>>::deserialize(deserializer)?.and_then(Word::known))
}

/// Lets serde leave out what is false. The reference is serde's.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_false(value: &bool) -> bool {
    !*value
}
