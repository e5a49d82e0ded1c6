//! Requests of a client, decoded, and the calls that they open.

use super::fault::Fault;
use crate::info::Features;
use crate::request::{ProcessId, Signal};
use crate::wire::RequestId;
use crate::wire::codec::Payload;
use crate::wire::extension::{CloseStdinParams, ResizeParams, SignalByNameParams};
use crate::wire::initialize::InitializeParams;
use crate::wire::method::{self, Method};
use crate::wire::process::{PlainSignal, ReadParams, SignalParams, StartParams, TerminateParams, WriteParams};

/// A request that is to be answered, on the connection that it came by.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Which of the session's connections it came by; after a resume, an answer has nowhere to go.
    pub(super) connection: u64,
    pub(super) id: RequestId,
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
}

impl Request {
    /// Decodes the parameters of `method`. A method that needs a feature outside of `features` is unknown.
    pub(super) fn decode(method: &str, params: Payload<'_>, features: Features) -> Result<Self, Fault> {
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
            unknown => Err(Fault::method_not_found(unknown)),
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
        }
    }

    /// Whether its answer may depend on what a process does.
    pub(super) const fn may_wait(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Read(_) | Self::Write(_) | Self::CloseStdin(_))
    }

    /// Whether it may hold many bytes.
    pub(super) const fn is_bulky(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Write(_))
    }

    /// The process that it names.
    pub(super) const fn process_id(&self) -> Option<&ProcessId> {
        match self {
            Self::Initialize(_) | Self::Info | Self::Status | Self::List => None,
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
