//! The errors of a start on the wire.
//!
//! To every peer they are a code and, for most, a word `data.kind`, as the reference has them. A peer with the extension
//! also finds `data.longarm`, from which the same [`SpawnError`] is made again. Paths in it that are no Unicode text
//! come with replacement characters.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error_code::ErrorCode;
use crate::error::{Busy, Disconnected, InvalidRequest, OsError, RpcError, Sent, SpawnError, Unsupported};
use crate::request::ProcessId;
use crate::sandbox::SandboxError;

/// What was asked for, to name it where the answer does not.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The id that the process was to have.
    pub process_id: &'a ProcessId,
    /// The program.
    pub program: &'a Path,
    /// The working directory.
    pub cwd: &'a Path,
}

/// The error answer that stands for `error`.
pub fn to_rpc(error: &SpawnError) -> RpcError {
    // A server in front of another one passes its answers on as they are.
    if let SpawnError::Remote(answer) = error {
        return answer.clone();
    }
    let (code, kind) = class(error);
    let detail = Detail::of(error);
    let data = Data { kind, longarm: detail };
    let data = (data.kind.is_some() || data.longarm.is_some()).then(|| serde_json::to_string(&data).ok()).flatten();
    RpcError { code: code.0, message: message(error), data }
}

/// The error that an answer to `asked` stands for. Whatever it does not know stays an answer as it came.
pub fn from_rpc(answer: RpcError, asked: Asked<'_>) -> SpawnError {
    let data = answer.data.as_deref().and_then(|data| serde_json::from_str::<AnyData>(data).ok()).unwrap_or_default();
    let detail = data.longarm.and_then(|detail| serde_json::from_value::<Detail>(detail).ok());
    if let Some(detail) = detail {
        return detail.into_error();
    }
    let program = || asked.program.to_path_buf();
    match data.kind.as_ref().and_then(serde_json::Value::as_str) {
        Some(NOT_FOUND) => SpawnError::ProgramOrCwdNotFound { program: program(), cwd: asked.cwd.into() },
        Some(PERMISSION_DENIED) => SpawnError::PermissionDenied { program: program() },
        Some(kind @ (SANDBOX_UNAVAILABLE | SANDBOX_PREPARATION)) => of_sandbox_kind(kind, answer.message).into(),
        _ => match by_text(&answer, asked) {
            Some(error) => error,
            None if answer.code == ErrorCode::INVALID_PARAMS.0 => InvalidRequest::Other(answer.message).into(),
            None => SpawnError::Remote(answer),
        },
    }
}

/// The errors for which every peer has the same text, and a code that it shares with other errors.
fn by_text(answer: &RpcError, asked: Asked<'_>) -> Option<SpawnError> {
    let id = asked.process_id;
    let errors: [SpawnError; 3] =
        [InvalidRequest::EmptyArgv.into(), SpawnError::AlreadyExists(id.clone()), SpawnError::Cancelled(id.clone())];
    errors.into_iter().find(|error| class(error).0.0 == answer.code && message(error) == answer.message)
}

/// The table of codes and kinds.
const fn class(error: &SpawnError) -> (ErrorCode, Option<&'static str>) {
    use ErrorCode as Code;
    match error {
        SpawnError::InvalidRequest(_) | SpawnError::Unsupported(_) => (Code::INVALID_PARAMS, None),
        SpawnError::Sandbox(refusal) => (Code::INVALID_PARAMS, sandbox_kind(refusal)),
        SpawnError::ProgramNotFound { .. }
        | SpawnError::InterpreterNotFound { .. }
        | SpawnError::CwdNotFound { .. }
        | SpawnError::ProgramOrCwdNotFound { .. } => (Code::INTERNAL, Some(NOT_FOUND)),
        SpawnError::CwdPermissionDenied { .. } | SpawnError::PermissionDenied { .. } => {
            (Code::INTERNAL, Some(PERMISSION_DENIED))
        }
        SpawnError::CwdNotADirectory { .. }
        | SpawnError::NotExecutable { .. }
        | SpawnError::TextBusy { .. }
        | SpawnError::ArgumentListTooLong { .. }
        | SpawnError::DescriptorLimit { .. }
        | SpawnError::ProcessLimit { .. }
        | SpawnError::TimedOut { .. }
        | SpawnError::ContainmentUnavailable { .. }
        | SpawnError::Closed
        | SpawnError::Disconnected(_)
        | SpawnError::Peer(_)
        | SpawnError::Os(_) => (Code::INTERNAL, Some(FAILED)),
        SpawnError::TooManyProcesses { .. }
        | SpawnError::AlreadyExists(_)
        | SpawnError::Cancelled(_)
        | SpawnError::Busy(_) => (Code::INVALID_REQUEST, None),
        SpawnError::Remote(answer) => (ErrorCode(answer.code), None),
    }
}

/// The word for a refused sandbox; a malformed intent has none.
pub(super) const fn sandbox_kind(refusal: &SandboxError) -> Option<&'static str> {
    match refusal {
        SandboxError::Invalid { .. } => None,
        SandboxError::Preparation { .. } | SandboxError::Changed { .. } => Some(SANDBOX_PREPARATION),
        SandboxError::Unsupported | SandboxError::Unavailable { .. } => Some(SANDBOX_UNAVAILABLE),
    }
}

/// What the word of a peer without the extension means. Its text is all that it says of the cause.
pub(super) fn of_sandbox_kind(kind: &str, text: String) -> SandboxError {
    if kind == SANDBOX_PREPARATION {
        SandboxError::Preparation { reason: text }
    } else {
        SandboxError::Unavailable { cause: text, remedy: None }
    }
}

/// The text: that of the reference where it has one of its own, else our own.
fn message(error: &SpawnError) -> String {
    match error {
        SpawnError::InvalidRequest(InvalidRequest::EmptyArgv) => "argv must not be empty".into(),
        SpawnError::InvalidRequest(foreign @ InvalidRequest::ForeignPath { uri, .. }) => {
            format!("cwd URI `{uri}` is not valid on this exec-server host: {foreign}")
        }
        SpawnError::Cancelled(id) => format!("process {id} start was cancelled"),
        SpawnError::Os(OsError { op, source }) => format!("{op}: {source}"),
        other => other.to_string(),
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
#[derive(Default, Deserialize)]
struct AnyData {
    kind: Option<serde_json::Value>,
    longarm: Option<serde_json::Value>,
}

/// The member `longarm`: a [`SpawnError`] with all that it names.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Detail {
    EmptyProgram,
    Nul { element: String },
    VariableName { name: String },
    NotUnicode { element: String },
    RelativeCwd { path: String },
    ForeignPath { uri: String, os: String },
    NoCwd,
    TerminalSize { rows: u16, cols: u16 },
    PolicyNotPortable,
    InvalidRequest { reason: String },
    SandboxUnsupported,
    SandboxInvalid { reason: String },
    SandboxUnavailable { cause: String, remedy: Option<String> },
    SandboxPreparation { reason: String },
    SandboxChanged { reason: String },
    ProgramNotFound { program: String, searched: Option<String> },
    InterpreterNotFound { program: String, interpreter: String },
    CwdNotFound { path: String },
    CwdNotADirectory { path: String },
    CwdPermissionDenied { path: String },
    ProgramOrCwdNotFound { program: String, cwd: String },
    PermissionDenied { program: String },
    NotExecutable { program: String },
    TextBusy { program: String },
    ArgumentListTooLong { bytes: u64 },
    DescriptorLimit { limit: Option<u64> },
    ProcessLimit { limit: Option<u64> },
    TooManyProcesses { limit: u64 },
    TimedOut { limit_ms: u64 },
    ContainmentUnavailable { reason: String },
    Unsupported { reason: String },
    Closed,
    Busy { limit: usize },
    Disconnected { may_have_run: bool, reason: String },
    Os { text: String },
}

impl Detail {
    /// None for errors that mean something to this end only, and for those that are told by their text.
    fn of(error: &SpawnError) -> Option<Self> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Some(match error {
            SpawnError::InvalidRequest(invalid) => return Self::of_invalid(invalid),
            SpawnError::Unsupported(_) => Self::Unsupported { reason: message(error) },
            SpawnError::Sandbox(SandboxError::Unsupported) => Self::SandboxUnsupported,
            SpawnError::Sandbox(SandboxError::Invalid { reason }) => Self::SandboxInvalid { reason: reason.clone() },
            SpawnError::Sandbox(SandboxError::Unavailable { cause, remedy }) => {
                Self::SandboxUnavailable { cause: cause.clone(), remedy: remedy.clone() }
            }
            SpawnError::Sandbox(SandboxError::Preparation { reason }) => {
                Self::SandboxPreparation { reason: reason.clone() }
            }
            SpawnError::Sandbox(SandboxError::Changed { reason }) => Self::SandboxChanged { reason: reason.clone() },
            SpawnError::ProgramNotFound { program, searched } => {
                Self::ProgramNotFound { program: text(program), searched: searched.clone() }
            }
            SpawnError::InterpreterNotFound { program, interpreter } => {
                Self::InterpreterNotFound { program: text(program), interpreter: text(interpreter) }
            }
            SpawnError::CwdNotFound { path } => Self::CwdNotFound { path: text(path) },
            SpawnError::CwdNotADirectory { path } => Self::CwdNotADirectory { path: text(path) },
            SpawnError::CwdPermissionDenied { path } => Self::CwdPermissionDenied { path: text(path) },
            SpawnError::ProgramOrCwdNotFound { program, cwd } => {
                Self::ProgramOrCwdNotFound { program: text(program), cwd: text(cwd) }
            }
            SpawnError::PermissionDenied { program } => Self::PermissionDenied { program: text(program) },
            SpawnError::NotExecutable { program } => Self::NotExecutable { program: text(program) },
            SpawnError::TextBusy { program } => Self::TextBusy { program: text(program) },
            SpawnError::ArgumentListTooLong { bytes } => Self::ArgumentListTooLong { bytes: *bytes },
            SpawnError::DescriptorLimit { limit } => Self::DescriptorLimit { limit: *limit },
            SpawnError::ProcessLimit { limit } => Self::ProcessLimit { limit: *limit },
            SpawnError::TooManyProcesses { limit } => Self::TooManyProcesses { limit: *limit },
            SpawnError::TimedOut { limit } => {
                Self::TimedOut { limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }
            }
            SpawnError::ContainmentUnavailable { reason } => Self::ContainmentUnavailable { reason: reason.clone() },
            SpawnError::Closed => Self::Closed,
            SpawnError::Busy(Busy { limit }) => Self::Busy { limit: *limit },
            SpawnError::Disconnected(Disconnected { sent, reason }) => {
                Self::Disconnected { may_have_run: *sent == Sent::Unknown, reason: reason.to_string() }
            }
            SpawnError::Os(_) => Self::Os { text: message(error) },
            SpawnError::AlreadyExists(_) | SpawnError::Cancelled(_) | SpawnError::Peer(_) | SpawnError::Remote(_) => {
                return None;
            }
        })
    }

    fn of_invalid(invalid: &InvalidRequest) -> Option<Self> {
        Some(match invalid {
            InvalidRequest::EmptyArgv => return None,
            InvalidRequest::EmptyProgram => Self::EmptyProgram,
            InvalidRequest::Nul { element } => Self::Nul { element: element.clone() },
            InvalidRequest::VariableName { name } => Self::VariableName { name: name.clone() },
            InvalidRequest::NotUnicode { element } => Self::NotUnicode { element: element.clone() },
            InvalidRequest::RelativeCwd { path } => Self::RelativeCwd { path: path.to_string_lossy().into_owned() },
            InvalidRequest::ForeignPath { uri, os } => Self::ForeignPath { uri: uri.clone(), os: os.clone() },
            InvalidRequest::NoCwd => Self::NoCwd,
            InvalidRequest::TerminalSize { rows, cols } => Self::TerminalSize { rows: *rows, cols: *cols },
            InvalidRequest::PolicyNotPortable => Self::PolicyNotPortable,
            InvalidRequest::Other(reason) => Self::InvalidRequest { reason: reason.clone() },
        })
    }

    fn into_error(self) -> SpawnError {
        let path = PathBuf::from;
        match self {
            Self::EmptyProgram => InvalidRequest::EmptyProgram.into(),
            Self::Nul { element } => InvalidRequest::Nul { element }.into(),
            Self::VariableName { name } => InvalidRequest::VariableName { name }.into(),
            Self::NotUnicode { element } => InvalidRequest::NotUnicode { element }.into(),
            Self::RelativeCwd { path } => InvalidRequest::RelativeCwd { path: path.into() }.into(),
            Self::ForeignPath { uri, os } => InvalidRequest::ForeignPath { uri, os }.into(),
            Self::NoCwd => InvalidRequest::NoCwd.into(),
            Self::TerminalSize { rows, cols } => InvalidRequest::TerminalSize { rows, cols }.into(),
            Self::PolicyNotPortable => InvalidRequest::PolicyNotPortable.into(),
            Self::InvalidRequest { reason } => InvalidRequest::Other(reason).into(),
            Self::SandboxUnsupported => SandboxError::Unsupported.into(),
            Self::SandboxInvalid { reason } => SandboxError::Invalid { reason }.into(),
            Self::SandboxUnavailable { cause, remedy } => SandboxError::Unavailable { cause, remedy }.into(),
            Self::SandboxPreparation { reason } => SandboxError::Preparation { reason }.into(),
            Self::SandboxChanged { reason } => SandboxError::Changed { reason }.into(),
            Self::ProgramNotFound { program, searched } => {
                SpawnError::ProgramNotFound { program: path(program), searched }
            }
            Self::InterpreterNotFound { program, interpreter } => {
                SpawnError::InterpreterNotFound { program: path(program), interpreter: path(interpreter) }
            }
            Self::CwdNotFound { path } => SpawnError::CwdNotFound { path: path.into() },
            Self::CwdNotADirectory { path } => SpawnError::CwdNotADirectory { path: path.into() },
            Self::CwdPermissionDenied { path } => SpawnError::CwdPermissionDenied { path: path.into() },
            Self::ProgramOrCwdNotFound { program, cwd } => {
                SpawnError::ProgramOrCwdNotFound { program: path(program), cwd: path(cwd) }
            }
            Self::PermissionDenied { program } => SpawnError::PermissionDenied { program: path(program) },
            Self::NotExecutable { program } => SpawnError::NotExecutable { program: path(program) },
            Self::TextBusy { program } => SpawnError::TextBusy { program: path(program) },
            Self::ArgumentListTooLong { bytes } => SpawnError::ArgumentListTooLong { bytes },
            Self::DescriptorLimit { limit } => SpawnError::DescriptorLimit { limit },
            Self::ProcessLimit { limit } => SpawnError::ProcessLimit { limit },
            Self::TooManyProcesses { limit } => SpawnError::TooManyProcesses { limit },
            Self::TimedOut { limit_ms } => SpawnError::TimedOut { limit: Duration::from_millis(limit_ms) },
            Self::ContainmentUnavailable { reason } => SpawnError::ContainmentUnavailable { reason },
            Self::Unsupported { reason } => {
                Unsupported { feature: IN_REQUEST, place: format!("the executor: {reason}") }.into()
            }
            Self::Closed => SpawnError::Closed,
            Self::Busy { limit } => Busy { limit }.into(),
            Self::Disconnected { may_have_run, reason } => {
                let sent = if may_have_run { Sent::Unknown } else { Sent::NotSent };
                Disconnected { sent, reason: reason.into() }.into()
            }
            Self::Os { text } => OsError::new(ON_EXECUTOR, io::Error::other(text)).into(),
        }
    }
}

/// What an executor lacks that says so; the details are in the text.
const IN_REQUEST: &str = "something in the request";

/// What was being done when a system call of the executor failed; the details are in the text.
const ON_EXECUTOR: &str = "start a process on the executor";

const NOT_FOUND: &str = "spawnNotFound";
const PERMISSION_DENIED: &str = "spawnPermissionDenied";
const FAILED: &str = "spawnFailed";
pub(super) const SANDBOX_UNAVAILABLE: &str = "sandboxUnavailable";
pub(super) const SANDBOX_PREPARATION: &str = "sandboxPreparation";

#[cfg(test)]
mod tests;
