//! Processes: methods and notifications of the plain wire.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::bytes::Base64;
use super::extension::{
    ClosedExtension, ExitedExtension, ReadExtension, StartExtension, StartedExtension, TerminateExtension,
};
use crate::event::OutputStream;
use crate::path_uri::PathUri;
use crate::request::{ProcessId, ThreadId};

/// Parameters of `process/start`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartParams {
    /// The id that the process is to have.
    pub process_id: ProcessId,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The working directory.
    pub cwd: PathUri,
    /// Variables, over those that the policy yields.
    pub env: BTreeMap<String, String>,
    /// Whether the process gets a terminal.
    pub tty: bool,
    /// Whether standard input is a pipe. Without effect for terminals.
    #[serde(default)]
    pub pipe_stdin: bool,
    /// What the program sees as its own name.
    pub arg0: Option<String>,
    /// What is inherited of the executor's environment. Nothing, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_policy: Option<EnvPolicy>,
    /// Whom the process belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// What the process may do.
    pub sandbox: Option<RawObject>,
    /// Whether the network may be reached through a managed proxy only.
    #[serde(default)]
    pub enforce_managed_network: bool,
    /// The exceptions to that.
    pub managed_network: Option<RawObject>,
    /// The managed proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_proxy: Option<RawObject>,
    /// The state of a login shell to start from. An executor without this feature ignores it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell_snapshot: Option<RawObject>,
    /// Members beyond the plain wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<StartExtension>,
}

/// Shows the names of the variables, never their values.
impl fmt::Debug for StartParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartParams")
            .field("process_id", &self.process_id)
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("env_names", &self.env.keys().collect::<Vec<_>>())
            .field("tty", &self.tty)
            .field("pipe_stdin", &self.pipe_stdin)
            .field("arg0", &self.arg0)
            .field("env_policy", &self.env_policy)
            .field("metadata", &self.metadata)
            .field("sandbox", &self.sandbox)
            .field("enforce_managed_network", &self.enforce_managed_network)
            .field("managed_network", &self.managed_network)
            .field("network_proxy", &self.network_proxy)
            .field("shell_snapshot", &self.shell_snapshot)
            .field("longarm", &self.longarm)
            .finish()
    }
}

/// Result of `process/start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartResult {
    /// The id of the process.
    pub process_id: ProcessId,
    /// The type of sandbox that is enforced. Absent or null: the peer is too old to say.
    pub sandbox_type: Option<String>,
    /// Members beyond the plain wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<StartedExtension>,
}

/// The value of [`StartResult::sandbox_type`] for a process without a sandbox.
pub const NO_SANDBOX: &str = "none";

/// What a child inherits. All members are required.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvPolicy {
    /// Which variables are inherited at first.
    pub inherit: Inherit,
    /// Whether names that look like secrets stay.
    pub ignore_default_excludes: bool,
    /// Patterns of names to drop.
    pub exclude: Vec<String>,
    /// Variables to set.
    pub set: BTreeMap<String, String>,
    /// Patterns of names to keep, if not empty.
    pub include_only: Vec<String>,
}

/// Shows the names of the variables, never their values.
impl fmt::Debug for EnvPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvPolicy")
            .field("inherit", &self.inherit)
            .field("ignore_default_excludes", &self.ignore_default_excludes)
            .field("exclude", &self.exclude)
            .field("set_names", &self.set.keys().collect::<Vec<_>>())
            .field("include_only", &self.include_only)
            .finish()
    }
}

/// Which variables are inherited at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Inherit {
    /// A short list.
    Core,
    /// All.
    All,
    /// None.
    None,
}

/// Whom a process belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The thread of conversation.
    #[serde(default, with = "thread_id_text")]
    pub thread_id: Option<ThreadId>,
    /// The tool call.
    pub tool_call_id: Option<String>,
}

/// A JSON object that is kept as it came.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct RawObject(Box<RawValue>);

impl RawObject {
    /// Takes the text of a JSON object.
    ///
    /// # Errors
    ///
    /// The decoder's text, if it is something else.
    pub fn from_json(json: &str) -> Result<Self, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if raw.get().starts_with('{') {
            Ok(Self(raw))
        } else {
            Err(de::Error::custom("invalid type: expected an object"))
        }
    }
}

impl Eq for RawObject {}

/// Shows the size only: what it holds may be secret.
impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawObject").field("json_bytes", &self.as_json().len()).finish()
    }
}

/// Equal text; the same object in another spelling counts as different.
impl PartialEq for RawObject {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}

/// Parameters of `process/read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadParams {
    /// The process.
    pub process_id: ProcessId,
    /// Only what comes after this sequence number; 0 if absent.
    pub after_seq: Option<u64>,
    /// At most this many bytes of output, but at least one chunk; no limit if absent.
    pub max_bytes: Option<u64>,
    /// How long to wait for something new, in milliseconds; 0 if absent.
    pub wait_ms: Option<u64>,
}

/// Result of `process/read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadResult {
    /// Retained output in rising order.
    pub chunks: Vec<ReadChunk>,
    /// Where to go on: see the specification of `process/read`.
    pub next_seq: u64,
    /// Whether the process has ended.
    pub exited: bool,
    /// With which code.
    pub exit_code: Option<i32>,
    /// Whether all streams have ended too.
    pub closed: bool,
    /// A terminal failure of the process.
    pub failure: Option<String>,
    /// Whether a sandbox seems to have denied something.
    #[serde(default)]
    pub sandbox_denied: bool,
    /// Members beyond the plain wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<ReadExtension>,
}

/// A piece of retained output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadChunk {
    /// Sequence number.
    pub seq: u64,
    /// The stream.
    pub stream: OutputStream,
    /// The bytes.
    pub chunk: Base64,
}

/// Parameters of `process/write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteParams {
    /// The process.
    pub process_id: ProcessId,
    /// The bytes; may be empty.
    pub chunk: Base64,
    /// Names the write, so that it can be repeated without a second effect. Not empty.
    pub write_id: String,
}

/// Result of `process/write`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteResult {
    /// What became of the write.
    pub status: WriteStatus,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteStatus {
    /// Queued, now or by an earlier write of the same id.
    Accepted,
    /// There is no such process.
    UnknownProcess,
    /// Standard input is no pipe.
    StdinClosed,
    /// The process is still being started.
    Starting,
}

/// Parameters of `process/signal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignalParams {
    /// The process.
    pub process_id: ProcessId,
    /// The signal.
    pub signal: PlainSignal,
}

/// The signals of the plain wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PlainSignal {
    /// What Ctrl-C does.
    Interrupt,
}

/// Parameters of `process/terminate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminateParams {
    /// The process.
    pub process_id: ProcessId,
    /// Members beyond the plain wire. Without them the process tree is killed at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<TerminateExtension>,
}

/// Result of `process/terminate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminateResult {
    /// Whether the process had not ended yet.
    pub running: bool,
}

/// Parameters of the notification `process/output`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputParams {
    /// The process.
    pub process_id: ProcessId,
    /// Sequence number.
    pub seq: u64,
    /// The stream.
    pub stream: OutputStream,
    /// The bytes.
    pub chunk: Base64,
}

/// Parameters of the notification `process/exited`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitedParams {
    /// The process.
    pub process_id: ProcessId,
    /// Sequence number.
    pub seq: u64,
    /// The exit code.
    pub exit_code: i32,
    /// Whether a sandbox seems to have denied something. Older servers do not say; then `process/read` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_denied: Option<bool>,
    /// Members beyond the plain wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<ExitedExtension>,
}

/// Parameters of the notification `process/closed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClosedParams {
    /// The process.
    pub process_id: ProcessId,
    /// Sequence number, the last one of the process.
    pub seq: u64,
    /// Members beyond the plain wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longarm: Option<ClosedExtension>,
}

/// A UUID in any of its usual spellings; written in the canonical one.
mod thread_id_text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(id: &Option<ThreadId>, serializer: S) -> Result<S::Ok, S::Error> {
        match id {
            Some(id) => serializer.collect_str(id),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ThreadId>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| ThreadId::parse(&text).map_err(de::Error::custom)).transpose()
    }
}

#[cfg(test)]
pub(super) mod tests;
