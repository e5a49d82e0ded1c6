//! Error answers: which error of ours is which code and text.

use bytes::Bytes;

use crate::error::{CallError, RpcError, SignalError, SpawnError, explain};
use crate::wire::codec;
use crate::wire::spawn_error;
use crate::wire::{ErrorCode, RequestId};

/// An error answer, but for its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(Box<RpcError>);

impl Fault {
    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(RpcError { code: code.0, message: message.into(), data: None }))
    }

    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_REQUEST, message)
    }

    pub(super) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_PARAMS, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INTERNAL, message)
    }

    /// With the word by which a client tells causes apart.
    pub(super) fn with_kind(mut self, kind: &str) -> Self {
        self.0.data = Some(serde_json::json!({ "kind": kind }).to_string());
        self
    }

    /// The session is attached. The text is the reference's.
    pub(crate) fn session_attached(session_id: &str) -> Self {
        Self::new(
            ErrorCode::SESSION_ATTACHED,
            format!("session {session_id} is already attached to another connection"),
        )
    }

    pub(crate) fn unknown_session(session_id: &str) -> Self {
        Self::invalid_request(format!("unknown session id {session_id}"))
    }

    /// The text is the reference's, odd as it is.
    pub(super) fn method_not_found(method: &str) -> Self {
        Self::new(ErrorCode::METHOD_NOT_FOUND, format!("exec-server stub does not implement `{method}` yet"))
    }

    pub(super) fn malformed(reason: &codec::DecodeError) -> Self {
        Self::invalid_request(format!("malformed message: {reason}"))
    }

    pub(super) fn unknown_process(id: &crate::request::ProcessId) -> Self {
        Self::invalid_request(format!("unknown process id {id}"))
    }

    pub(crate) fn encode(&self, id: &RequestId) -> Bytes {
        codec::encode_error(id, &self.0)
    }

    /// About how many bytes of text it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.0.message.len() + self.0.data.as_ref().map_or(0, String::len)
    }
}

impl From<RpcError> for Fault {
    fn from(error: RpcError) -> Self {
        Self(Box::new(error))
    }
}

impl From<SpawnError> for Fault {
    fn from(error: SpawnError) -> Self {
        spawn_error::to_rpc(&error).into()
    }
}

impl From<SignalError> for Fault {
    fn from(error: SignalError) -> Self {
        match error {
            SignalError::NoTerminal(_) => Self::invalid_request(error.to_string()),
            SignalError::UnknownProcess(id) => Self::unknown_process(&id),
            SignalError::InvalidRequest(_) | SignalError::Unsupported(_) => Self::invalid_params(error.to_string()),
            // A server of a server passes on what the one behind it said.
            SignalError::Remote(rpc) => rpc.into(),
            _ => Self::internal(explain(&error)),
        }
    }
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Remote(rpc) => rpc.into(),
            _ => Self::internal(explain(&error)),
        }
    }
}
