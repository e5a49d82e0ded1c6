//! Requests of a client, decoded, and the calls that they open.

use super::fault::Fault;
use super::record::Number;
use crate::info::Features;
use crate::request::{ProcessId, Signal};
use crate::wire::RequestId;
use crate::wire::codec::Payload;
use crate::wire::environment::ConfigReadParams;
use crate::wire::extension::{CloseStdinParams, ResizeParams, SignalByNameParams};
use crate::wire::fs;
use crate::wire::http;
use crate::wire::initialize::InitializeParams;
use crate::wire::method::{self, Method};
use crate::wire::process::{
    PlainSignal, RawObject, ReadParams, SignalParams, StartParams, TerminateParams, WriteParams,
};

/// A request that is to be answered, on the connection that it came by.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Which of the session's connections it came by; after a resume, an answer has nowhere to go.
    pub(super) connection: u64,
    pub(super) id: RequestId,
    /// Names it to whoever measures.
    pub(super) number: Number,
    /// The size of the message, for the bound on what is in flight.
    pub(super) bytes: usize,
}

/// A request with its parameters.
#[derive(Debug)]
pub(super) enum Request {
    Initialize(InitializeParams),
    Info,
    Status,
    List,
    Start(Box<StartParams>),
    Read(ReadParams),
    Write(WriteParams),
    Signal { process_id: ProcessId, signal: Signal },
    Terminate(TerminateParams),
    CloseStdin(ProcessId),
    Resize(ResizeParams),
    ReadConfig(ConfigReadParams),
    File(FileRequest),
    Http(Box<http::RequestParams>),
}

/// What the place offers besides processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offers {
    /// Its files.
    pub(crate) files: bool,
    /// HTTP requests.
    pub(crate) http: bool,
}

/// A request about files.
#[derive(Debug)]
pub(super) enum FileRequest {
    ReadFile(fs::ReadFileParams),
    WriteFile(fs::WriteFileParams),
    Open(fs::OpenParams),
    ReadBlock(fs::ReadBlockParams),
    WriteBlock(fs::WriteBlockParams),
    Close(fs::CloseParams),
    Canonicalize(fs::PathParams),
    CreateDirectory(fs::CreateDirectoryParams),
    GetMetadata(fs::GetMetadataParams),
    ReadDirectory(fs::PathParams),
    Walk(fs::WalkParams),
    Remove(fs::RemoveParams),
    Copy(fs::CopyParams),
    WatchMissing(fs::WatchMissingParams),
    PrivateDirectory,
}

impl FileRequest {
    pub(super) const fn method(&self) -> &'static str {
        match self {
            Self::ReadFile(_) => method::ReadFile::NAME,
            Self::WriteFile(_) => method::WriteFile::NAME,
            Self::Open(_) => method::OpenFile::NAME,
            Self::ReadBlock(_) => method::ReadBlock::NAME,
            Self::WriteBlock(_) => method::WriteBlock::NAME,
            Self::Close(_) => method::CloseFile::NAME,
            Self::Canonicalize(_) => method::Canonicalize::NAME,
            Self::CreateDirectory(_) => method::CreateDirectory::NAME,
            Self::GetMetadata(_) => method::GetMetadata::NAME,
            Self::ReadDirectory(_) => method::ReadDirectory::NAME,
            Self::Walk(_) => method::Walk::NAME,
            Self::Remove(_) => method::Remove::NAME,
            Self::Copy(_) => method::Copy::NAME,
            Self::WatchMissing(_) => method::WatchMissing::NAME,
            Self::PrivateDirectory => method::PrivateDirectory::NAME,
        }
    }

    /// What the call may do, if it says.
    pub(super) const fn sandbox(&self) -> Option<&RawObject> {
        match self {
            Self::ReadFile(params) => params.sandbox.as_ref(),
            Self::WriteFile(params) => params.sandbox.as_ref(),
            Self::Open(params) => params.sandbox.as_ref(),
            Self::Canonicalize(params) | Self::ReadDirectory(params) => params.sandbox.as_ref(),
            Self::CreateDirectory(params) => params.sandbox.as_ref(),
            Self::GetMetadata(params) => params.sandbox.as_ref(),
            Self::Walk(params) => params.sandbox.as_ref(),
            Self::Remove(params) => params.sandbox.as_ref(),
            Self::Copy(params) => params.sandbox.as_ref(),
            Self::WatchMissing(params) => params.sandbox.as_ref(),
            Self::ReadBlock(_) | Self::WriteBlock(_) | Self::Close(_) | Self::PrivateDirectory => None,
        }
    }

    /// Decodes the parameters of a method about files. None if there is no such method.
    fn decode(method: &str, params: Payload<'_>, features: Features) -> Option<Result<Self, Fault>> {
        Some(match method {
            method::ReadFile::NAME => decode::<method::ReadFile>(params).map(Self::ReadFile),
            method::WriteFile::NAME => decode::<method::WriteFile>(params).map(Self::WriteFile),
            method::OpenFile::NAME => decode::<method::OpenFile>(params).map(Self::Open),
            method::ReadBlock::NAME => decode::<method::ReadBlock>(params).map(Self::ReadBlock),
            method::WriteBlock::NAME => decode::<method::WriteBlock>(params).map(Self::WriteBlock),
            method::CloseFile::NAME => decode::<method::CloseFile>(params).map(Self::Close),
            method::Canonicalize::NAME => decode::<method::Canonicalize>(params).map(Self::Canonicalize),
            method::CreateDirectory::NAME => decode::<method::CreateDirectory>(params).map(Self::CreateDirectory),
            method::GetMetadata::NAME => decode::<method::GetMetadata>(params).map(Self::GetMetadata),
            method::ReadDirectory::NAME => decode::<method::ReadDirectory>(params).map(Self::ReadDirectory),
            method::Walk::NAME => decode::<method::Walk>(params).map(Self::Walk),
            method::Remove::NAME => decode::<method::Remove>(params).map(Self::Remove),
            method::Copy::NAME => decode::<method::Copy>(params).map(Self::Copy),
            method::WatchMissing::NAME => decode::<method::WatchMissing>(params).map(Self::WatchMissing),
            method::PrivateDirectory::NAME if features.fs => {
                decode::<method::PrivateDirectory>(params).map(|_| Self::PrivateDirectory)
            }
            _ => return None,
        })
    }
}

impl Request {
    /// Decodes the parameters of `method`. A method that needs a feature outside of `features`, or what the place does
    /// not offer, is unknown.
    pub(super) fn decode(method: &str, params: Payload<'_>, features: Features, offers: Offers) -> Result<Self, Fault> {
        match method {
            method::Initialize::NAME => decode::<method::Initialize>(params).map(Self::Initialize),
            method::Info::NAME => decode::<method::Info>(params).map(|_| Self::Info),
            method::Status::NAME => decode::<method::Status>(params).map(|_| Self::Status),
            method::Start::NAME => decode::<method::Start>(params).map(|start| Self::Start(Box::new(start))),
            method::Read::NAME => decode::<method::Read>(params).map(Self::Read),
            method::Write::NAME => decode::<method::Write>(params).map(Self::Write),
            method::SendSignal::NAME => decode::<method::SendSignal>(params).map(
                |SignalParams { process_id, signal: PlainSignal::Interrupt }| Self::Signal {
                    process_id,
                    signal: Signal::Interrupt,
                },
            ),
            method::Terminate::NAME => decode::<method::Terminate>(params).map(Self::Terminate),
            method::CloseStdin::NAME if features.close_stdin => {
                decode::<method::CloseStdin>(params).map(|CloseStdinParams { process_id }| Self::CloseStdin(process_id))
            }
            method::Resize::NAME if features.resize => decode::<method::Resize>(params).map(Self::Resize),
            method::SendSignalByName::NAME if features.signal => decode::<method::SendSignalByName>(params)
                .map(|SignalByNameParams { process_id, signal }| Self::Signal { process_id, signal }),
            method::List::NAME if features.list => decode::<method::List>(params).map(|_| Self::List),
            method::ConfigRead::NAME => decode::<method::ConfigRead>(params).map(Self::ReadConfig),
            method::HttpRequest::NAME if offers.http => {
                decode::<method::HttpRequest>(params).map(|request| Self::Http(Box::new(request)))
            }
            other => match FileRequest::decode(other, params, features).filter(|_| offers.files) {
                Some(request) => request.map(Self::File),
                None => Err(Fault::method_not_found(other)),
            },
        }
    }

    /// Its method.
    pub(super) const fn method(&self) -> &'static str {
        match self {
            Self::Initialize(_) => method::Initialize::NAME,
            Self::Info => method::Info::NAME,
            Self::Status => method::Status::NAME,
            Self::List => method::List::NAME,
            Self::Start(_) => method::Start::NAME,
            Self::Read(_) => method::Read::NAME,
            Self::Write(_) => method::Write::NAME,
            Self::Signal { .. } => method::SendSignal::NAME,
            Self::Terminate(_) => method::Terminate::NAME,
            Self::CloseStdin(_) => method::CloseStdin::NAME,
            Self::Resize(_) => method::Resize::NAME,
            Self::ReadConfig(_) => method::ConfigRead::NAME,
            Self::File(request) => request.method(),
            Self::Http(_) => method::HttpRequest::NAME,
        }
    }

    /// The family of methods that it belongs to, as errors about the handshake name it.
    pub(super) const fn family(&self) -> &'static str {
        match self {
            Self::Initialize(_) => method::Initialize::FAMILY,
            Self::Info => method::Info::FAMILY,
            Self::Status => method::Status::FAMILY,
            Self::List => method::List::FAMILY,
            Self::Start(_) => method::Start::FAMILY,
            Self::Read(_) => method::Read::FAMILY,
            Self::Write(_) => method::Write::FAMILY,
            Self::Signal { .. } => method::SendSignal::FAMILY,
            Self::Terminate(_) => method::Terminate::FAMILY,
            Self::CloseStdin(_) => method::CloseStdin::FAMILY,
            Self::Resize(_) => method::Resize::FAMILY,
            Self::ReadConfig(_) => method::ConfigRead::FAMILY,
            Self::File(_) => method::ReadFile::FAMILY,
            Self::Http(_) => method::HttpRequest::FAMILY,
        }
    }

    /// Whether its answer may depend on what a process, a file system or another machine does.
    pub(super) const fn may_wait(&self) -> bool {
        match self {
            Self::Start(_) | Self::Read(_) | Self::Write(_) | Self::CloseStdin(_) | Self::Http(_) => true,
            Self::File(request) => !matches!(request, FileRequest::Close(_)),
            _ => false,
        }
    }

    /// The process that it names.
    pub(super) const fn process_id(&self) -> Option<&ProcessId> {
        match self {
            Self::Initialize(_) | Self::Info | Self::Status | Self::List => None,
            Self::ReadConfig(_) | Self::File(_) | Self::Http(_) => None,
            Self::Start(start) => Some(&start.process_id),
            Self::Read(read) => Some(&read.process_id),
            Self::Write(write) => Some(&write.process_id),
            Self::Signal { process_id, .. } | Self::CloseStdin(process_id) => Some(process_id),
            Self::Terminate(terminate) => Some(&terminate.process_id),
            Self::Resize(resize) => Some(&resize.process_id),
        }
    }
}

fn decode<M: Method>(params: Payload<'_>) -> Result<M::Params, Fault> {
    params.decode().map_err(|error| error.into_invalid_params().into())
}
