//! Calls of any method, for what is built on a connection.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::bodies::Bodies;
use super::command::Command;
use super::watches::Watches;
use super::{Handshake, Remote};
use crate::core::session::{Answer, Ask, Failure, Op, RouteKey};
use crate::error::{Disconnected, Sent};
use crate::info::Features;
use crate::wire::RequestId;
use crate::wire::codec::{self, Payload};
use crate::wire::method::{Method, Notification};

impl Remote {
    /// Makes a call.
    pub(crate) async fn ask<M>(&self, params: M::Params) -> Result<M::Result, Failure>
    where
        M: Method,
        M::Params: Send + 'static,
    {
        let encode = move |id: &RequestId| codec::encode_request::<M>(id, &params);
        result_of::<M>(&self.ask_raw(M::NAME, false, encode).await?)
    }

    /// Makes a call that frees something at the peer; it has a place also when all others are taken.
    pub(crate) async fn ask_cleanup<M>(&self, params: M::Params) -> Result<M::Result, Failure>
    where
        M: Method,
        M::Params: Send + 'static,
    {
        let encode = move |id: &RequestId| codec::encode_request::<M>(id, &params);
        result_of::<M>(&self.ask_raw(M::NAME, true, encode).await?)
    }

    /// Makes a call whose message and result the caller knows a short way for.
    pub(crate) async fn ask_raw(
        &self,
        method: &'static str,
        cleanup: bool,
        encode: impl FnOnce(&RequestId) -> Bytes + Send + 'static,
    ) -> Result<Answer, Failure> {
        self.shared.link.call(Op::Ask(Box::new(Ask { method, cleanup, encode: Box::new(encode) }))).await
    }

    /// Makes a call that frees something at the peer, and waits for nothing. If the connection is gone, so is what was to
    /// be freed.
    pub(crate) fn tell_cleanup<M>(&self, params: M::Params)
    where
        M: Method,
        M::Params: Send + 'static,
    {
        let encode = move |id: &RequestId| codec::encode_request::<M>(id, &params);
        let op = Op::Ask(Box::new(Ask { method: M::NAME, cleanup: true, encode: Box::new(encode) }));
        let (reply, _) = oneshot::channel();
        self.shared.link.send(Command::Call { route: RouteKey::NONE, op, reply });
    }

    /// Tells the peer something that has no answer. If the connection is gone, it has no meaning any more.
    pub(crate) fn notify<N: Notification>(&self, params: &N::Params) {
        self.shared.link.send(Command::Notify(codec::encode_notification::<N>(params)));
    }

    /// The features of the peer, once it has answered the handshake.
    pub(crate) fn agreed_features(&self) -> Option<Features> {
        match &*self.shared.handshake.borrow() {
            Handshake::Done(facts) => Some(facts.features),
            Handshake::Pending | Handshake::Failed(_) => None,
        }
    }

    /// The error of a call on a connection that is gone, or was never made.
    pub(crate) fn not_connected(&self, sent: Sent) -> Disconnected {
        if let Handshake::Pending = &*self.shared.handshake.borrow() {
            return Disconnected { sent, reason: "not connected yet".into() };
        }
        self.shared.link.disconnected(sent)
    }

    /// The bodies of HTTP responses that are streamed over this connection.
    pub(crate) fn bodies(&self) -> &Arc<Bodies> {
        &self.shared.link.bodies
    }

    /// Who waits for missing paths on this connection.
    pub(crate) fn watches(&self) -> &Arc<Watches> {
        &self.shared.link.watches
    }
}

/// Reads the result of a call of `M`.
pub(crate) fn result_of<M: Method>(answer: &Answer) -> Result<M::Result, Failure> {
    match answer {
        Answer::Json(json) => Payload::of_json(json).decode().map_err(|error| error.into_bad_result(M::NAME).into()),
        other => Err(super::failure::mismatch(other).into()),
    }
}
