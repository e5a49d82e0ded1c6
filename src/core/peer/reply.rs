//! Answers on their way: kept as what they say, and encoded when the connection takes them.

use bytes::Bytes;

use super::action::StartFacts;
use super::fault::Fault;
use super::process::Process;
use super::request::Offers;
use crate::core::replay::Reading;
use crate::fs::Block;
use crate::info::{EnvironmentInfo, Features};
use crate::path_uri::PathUri;
use crate::request::ProcessId;
use crate::wire::codec::{self, hot};
use crate::wire::environment::{self, ConfigReadResult, EnvironmentStatus, StatusResult};
use crate::wire::extension::{
    CloseStdinResult, CloseStdinStatus, ExitedExtension, ListResult, Offer, ReadExtension, StartedExtension,
};
use crate::wire::fs;
use crate::wire::http;
use crate::wire::initialize::InitializeResult;
use crate::wire::method::Empty;
use crate::wire::process::{NO_SANDBOX, ReadChunk, ReadResult, StartResult, TerminateResult, WriteResult, WriteStatus};
use crate::wire::{Base64, RequestId};

/// An answer without its id.
#[derive(Debug)]
pub(super) enum Reply {
    Initialize(Box<InitializeResult>),
    Info(Box<environment::EnvironmentInfo>),
    Status,
    List(ListResult),
    Start(Box<StartResult>),
    Read(Box<ReadResult>),
    Write(WriteStatus),
    CloseStdin(CloseStdinStatus),
    Terminate { running: bool },
    Empty,
    Fault(Fault),
    Config(Box<ConfigReadResult>),
    File(Bytes),
    Block(Block),
    Opened(String),
    Path(PathUri),
    Metadata(fs::Metadata),
    Directory(fs::ReadDirectoryResult),
    Walk(fs::WalkResult),
    Watching(bool),
    Http(Box<http::RequestResult>),
}

impl Reply {
    /// About how many bytes its content holds.
    pub(super) fn content_bytes(&self) -> usize {
        const ENTRY: usize = 64;
        match self {
            Self::Read(result) => result.chunks.iter().map(|chunk| chunk.chunk.0.len() + FIXED).sum(),
            Self::List(list) => list.processes.iter().map(|listed| listed.process_id.as_str().len() + FIXED).sum(),
            Self::Initialize(_) | Self::Info(_) => 4 * FIXED,
            Self::Start(result) => result.process_id.as_str().len(),
            Self::Fault(fault) => fault.held_bytes(),
            Self::Config(_) => 4 * FIXED,
            Self::File(bytes) => bytes.len(),
            Self::Block(block) => block.bytes.len(),
            Self::Path(path) => path.as_str().len(),
            Self::Directory(list) => {
                let encoded = |entry: &fs::DirectoryEntry| {
                    entry.longarm.as_ref().and_then(|extension| extension.encoded_name.as_ref()).map_or(0, String::len)
                };
                list.entries.iter().map(|entry| entry.file_name.len() + encoded(entry) + ENTRY).sum()
            }
            Self::Walk(walk) => {
                let entries = walk.entries.iter().map(|entry| entry.path.as_str().len() + ENTRY);
                let errors = walk.errors.iter().map(|error| error.path.as_str().len() + error.message.len() + ENTRY);
                let skipped = walk.longarm.iter().flat_map(|extension| &extension.skipped);
                let skipped = skipped.map(|skipped| skipped.path.as_str().len() + ENTRY);
                entries.chain(errors).chain(skipped).sum()
            }
            Self::Http(result) => {
                let headers = result.headers.iter().map(|header| header.name.len() + header.value.len() + ENTRY);
                result.body_base64.0.len() + headers.sum::<usize>()
            }
            Self::Opened(_) | Self::Metadata(_) | Self::Watching(_) => 0,
            Self::Status | Self::Write(_) | Self::CloseStdin(_) | Self::Terminate { .. } | Self::Empty => 0,
        }
    }

    pub(super) fn encode(&self, id: &RequestId) -> Bytes {
        match self {
            Self::Initialize(result) => codec::encode_response(id, result),
            Self::Info(result) => codec::encode_response(id, result),
            Self::Status => codec::encode_response(id, &StatusResult { status: EnvironmentStatus::Ready }),
            Self::List(result) => codec::encode_response(id, result),
            Self::Start(result) => codec::encode_response(id, result),
            Self::Read(result) => codec::encode_response(id, result),
            Self::Write(status) => codec::encode_response(id, &WriteResult { status: *status }),
            Self::CloseStdin(status) => codec::encode_response(id, &CloseStdinResult { status: *status }),
            Self::Terminate { running } => codec::encode_response(id, &TerminateResult { running: *running }),
            Self::Empty => codec::encode_response(id, &Empty),
            Self::Fault(fault) => fault.encode(id),
            Self::Config(result) => codec::encode_response(id, result),
            Self::File(bytes) => hot::encode_file(id, bytes),
            Self::Block(block) => hot::encode_block(id, &block.bytes, block.eof),
            Self::Opened(handle_id) => codec::encode_response(id, &fs::OpenResult { handle_id: handle_id.clone() }),
            Self::Path(path) => codec::encode_response(id, &fs::PathResult { path: path.clone() }),
            Self::Metadata(metadata) => codec::encode_response(id, metadata),
            Self::Directory(result) => codec::encode_response(id, result),
            Self::Walk(result) => codec::encode_response(id, result),
            Self::Http(result) => codec::encode_response(id, result),
            Self::Watching(watching) => codec::encode_response(id, &fs::WatchMissingResult { watching: *watching }),
        }
    }
}

/// About how many bytes an answer holds while it waits.
pub(super) fn held_bytes(id: &RequestId, reply: &Reply) -> usize {
    FIXED + id_bytes(id) + reply.content_bytes()
}

/// How many bytes an id holds.
pub(super) fn id_bytes(id: &RequestId) -> usize {
    match id {
        RequestId::Number(_) => 0,
        RequestId::Text(text) => text.len(),
    }
}

/// About what every answer holds.
const FIXED: usize = 256;

/// The answer to a read.
pub(super) fn read_result(process: &Process, reading: Reading, features: Features) -> Reply {
    let (with_facts, with_reports) = (features.exit, features.sandbox);
    let log = &process.log;
    let exit = log.exit();
    let ended = exit.and_then(|exit| ExitedExtension::of(exit.status)).unwrap_or_default();
    let longarm = with_facts.then(|| ReadExtension {
        total_bytes: log.close().and_then(|close| close.totals).unwrap_or_else(|| log.totals()).into(),
        offset: reading.offset,
        exit_seq: exit.map(|exit| exit.seq),
        more: reading.more,
        next_seq: reading.process_next_seq,
        signal: ended.signal,
        timed_out: ended.timed_out,
        limit: ended.limit,
        cut: log.close().is_some_and(|close| close.cut),
        denial: process.denial.clone().filter(|_| with_reports),
    });
    Reply::Read(Box::new(ReadResult {
        chunks: reading
            .chunks
            .into_iter()
            .map(|chunk| ReadChunk { seq: chunk.seq, stream: chunk.stream, chunk: Base64(chunk.bytes) })
            .collect(),
        next_seq: reading.next_seq,
        exited: exit.is_some(),
        exit_code: exit.map(|exit| exit.status.wire_code()),
        closed: log.close().is_some(),
        failure: log.failure().map(Into::into),
        sandbox_denied: exit.is_some_and(|exit| exit.sandbox_denied),
        longarm,
    }))
}

/// The answer to a start. A backend that does not say whether there is a sandbox has none.
pub(super) fn start_result(process_id: ProcessId, facts: StartFacts, with_reports: bool) -> Reply {
    let StartFacts { sandbox_type, enforcement } = facts;
    let longarm = enforcement
        .filter(|_| with_reports)
        .map(|enforcement| StartedExtension { enforcement: Some(enforcement.into()) });
    let sandbox_type = sandbox_type.or_else(|| Some(NO_SANDBOX.into()));
    Reply::Start(Box::new(StartResult { process_id, sandbox_type, longarm }))
}

/// The facts of the place as this server passes them on. Flags of the backend are not among them: they are about methods,
/// and this server has only its own, some of them only for a place with files, or with HTTP.
pub(super) fn environment_info(
    info: EnvironmentInfo,
    offers: Offers,
    offer: Option<Offer>,
) -> environment::EnvironmentInfo {
    let of_files = if offers.files { FILE_FLAGS } else { &[] };
    let of_http = if offers.http { HTTP_FLAGS } else { &[] };
    let capabilities = [CONFIG_FLAG].iter().chain(of_files).chain(of_http).map(|flag| String::from(*flag)).collect();
    environment::EnvironmentInfo::of(EnvironmentInfo { capabilities, ..info }, offer)
}

/// The answer to a request for configuration: this server has none, and says where a client may look for its own.
pub(super) fn config_result(info: &EnvironmentInfo) -> Option<Reply> {
    let home = info.home_dir.clone();
    let codex_home_dir = home.as_ref().or(info.temp_dir.as_ref())?.join(".codex").ok()?;
    Some(Reply::Config(Box::new(ConfigReadResult {
        user_home_dir: home,
        codex_home_dir,
        hostname: info.hostname.clone(),
        config: environment::ConfigLayers::default(),
        requirements: environment::ConfigLayers::default(),
    })))
}

const CONFIG_FLAG: &str = "environmentConfigRead";
const HTTP_FLAGS: &[&str] = &["httpHeaderEnvVars"];
const FILE_FLAGS: &[&str] = &["fsWatchMissing", "fileWriteStreaming", "sandboxedFileStreaming"];
