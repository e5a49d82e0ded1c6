//! Calls of any method, for what is built on a connection.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::Remote;
use super::bodies::Bodies;
use super::command::Command;
use super::watches::Watches;
use crate::core::session::{Answer, Ask, Failure, LinkId, Op, RouteKey};
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
    pub(crate) async fn ask_cleanup<M>(&self, on: Option<LinkId>, params: M::Params) -> Result<M::Result, Failure>
    where
        M: Method,
        M::Params: Send + 'static,
    {
        let encode = move |id: &RequestId| codec::encode_request::<M>(id, &params);
        result_of::<M>(&self.ask_on(on, M::NAME, true, encode).await?)
    }

    /// Makes a call whose message and result the caller knows a short way for.
    pub(crate) async fn ask_raw(
        &self,
        method: &'static str,
        cleanup: bool,
        encode: impl FnOnce(&RequestId) -> Bytes + Send + 'static,
    ) -> Result<Answer, Failure> {
        self.ask_on(None, method, cleanup, encode).await
    }

    /// The same for a call that has no meaning over another connection than `on`.
    pub(crate) async fn ask_on(
        &self,
        on: Option<LinkId>,
        method: &'static str,
        cleanup: bool,
        encode: impl FnOnce(&RequestId) -> Bytes + Send + 'static,
    ) -> Result<Answer, Failure> {
        self.place.link().call(Op::Ask(Box::new(Ask { method, cleanup, on, encode: Box::new(encode) }))).await
    }

    /// Makes a call that frees something at the peer, and waits for nothing. If the connection is gone, so is what was to
    /// be freed.
    pub(crate) fn tell_cleanup<M>(&self, on: Option<LinkId>, params: M::Params)
    where
        M: Method,
        M::Params: Send + 'static,
    {
        let encode = move |id: &RequestId| codec::encode_request::<M>(id, &params);
        let op = Op::Ask(Box::new(Ask { method: M::NAME, cleanup: true, on, encode: Box::new(encode) }));
        let (reply, _) = oneshot::channel();
        self.place.present().send(Command::Call { route: RouteKey::NONE, op, reply });
    }

    /// Tells the peer something that has no answer. If the connection is gone, it has no meaning any more.
    pub(crate) fn notify<N: Notification>(&self, params: &N::Params) {
        self.place.present().send(Command::Notify(codec::encode_notification::<N>(params)));
    }

    /// The features of the peer, once it has answered the handshake.
    pub(crate) fn agreed_features(&self) -> Option<Features> {
        self.place.facts(|facts| facts.features)
    }

    /// The connection that stood last.
    pub(crate) fn last_connection(&self) -> Option<LinkId> {
        self.place.facts(|facts| facts.link)
    }

    /// The error of a call on a connection that is gone, or was never made.
    pub(crate) fn not_connected(&self, sent: Sent) -> Disconnected {
        let link = self.place.present();
        if link.is_over() { link.disconnected(sent) } else { Disconnected { sent, reason: "not connected yet".into() } }
    }

    /// The bodies of HTTP responses that are streamed from this place.
    pub(crate) fn bodies(&self) -> &Arc<Bodies> {
        self.place.bodies()
    }

    /// Who waits for missing paths of this place.
    pub(crate) fn watches(&self) -> &Arc<Watches> {
        self.place.watches()
    }
}

/// Reads the result of a call of `M`.
pub(crate) fn result_of<M: Method>(answer: &Answer) -> Result<M::Result, Failure> {
    match answer {
        Answer::Json(json) => Payload::of_json(json).decode().map_err(|error| error.into_bad_result(M::NAME).into()),
        other => Err(super::failure::mismatch(other).into()),
    }
}
