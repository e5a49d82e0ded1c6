//! The codes of error answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::RpcError;

/// The code of an error answer. Codes that have no name here keep their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorCode(pub i64);

impl ErrorCode {
    /// The message, the state of the handshake or the thing named is wrong.
    pub const INVALID_REQUEST: Self = Self(-32600);
    /// There is no such method.
    pub const METHOD_NOT_FOUND: Self = Self(-32601);
    /// The parameters do not decode, or their values cannot be used.
    pub const INVALID_PARAMS: Self = Self(-32602);
    /// Something failed that is not the caller's fault, or not evidently so: a spawn, a system call.
    pub const INTERNAL: Self = Self(-32603);
    /// A file or a file handle does not exist.
    pub const NOT_FOUND: Self = Self(-32004);
    /// The session to resume is attached to another connection.
    pub const SESSION_ATTACHED: Self = Self(-32010);

    /// An error answer of this code, without data.
    pub fn error(self, message: impl Into<String>) -> RpcError {
        RpcError { code: self.0, message: message.into(), data: None }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
