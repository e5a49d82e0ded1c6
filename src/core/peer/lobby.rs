//! A connection before it has a session.
//!
//! ```text
//!   ┌───────┐ initialize, refused  ┌───────┐
//!   │ lobby │ ───────────────────▶ │ lobby │
//!   └───────┘                      └───────┘
//!       │ initialize, accepted
//!       ▼
//!   the session's Peer
//! ```
//!
//! Every other request is answered with an error, every other message ends the connection.

use bytes::Bytes;

use super::fault::Fault;
use super::request::{Offers, Request};
use crate::config::MessageLimits;
use crate::error::{CallError, PeerMisbehaved};
use crate::info::Features;
use crate::wire::RequestId;
use crate::wire::codec::{self, Message};
use crate::wire::initialize::InitializeParams;

/// What to do with a message.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send this.
    Reply(Bytes),
    /// Open or resume a session, and let its peer answer; if that fails, answer with a [`Fault`].
    Initialize { id: RequestId, params: InitializeParams },
    /// End the connection.
    Drop(PeerMisbehaved),
}

/// Decides what to do with a message of a connection that has no session yet, to a place with these offers.
pub(crate) fn handle_message(message: &Bytes, limits: &MessageLimits, offers: Offers) -> Step {
    let message = match codec::decode(message, limits) {
        Ok(message) => message,
        Err(malformed) => return Step::Reply(Fault::malformed(&malformed).encode(&RequestId::MALFORMED)),
    };
    match message {
        Message::Request { id, method, params, .. } => {
            match Request::decode(method.as_ref(), params, Features::default(), offers) {
                Ok(Request::Initialize(params)) => Step::Initialize { id, params },
                Ok(request) => {
                    let family = request.family();
                    let fault =
                        Fault::invalid_request(format!("client must call initialize before using {family} methods"));
                    Step::Reply(fault.encode(&id))
                }
                Err(fault) => Step::Reply(fault.encode(&id)),
            }
        }
        Message::Notification { method, .. } => {
            Step::Drop(PeerMisbehaved::Protocol(format!("notification {method:?} before initialize")))
        }
        Message::Response { id, .. } | Message::Error { id, .. } => {
            Step::Drop(PeerMisbehaved::Protocol(format!("an answer with id {id}, which was never asked")))
        }
    }
}

/// The answer to an `initialize` for which the place could not be asked.
pub(crate) fn fault_of(error: CallError) -> Fault {
    error.into()
}
