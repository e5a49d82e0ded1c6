//! Calls of any method, for what is built on a connection.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::Remote;
use super::bodies::Bodies;
use super::command::Command;
use super::watches::Watches;
use crate::core::session::{Answer, Ask, ConnectionState, Failure, LinkId, Op, RouteKey};
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
        self.ask_over::<M>(None, params).await
    }

    /// The same over the connection `on`, if there is one without which it has no meaning.
    pub(crate) async fn ask_over<M>(&self, on: Option<LinkId>, params: M::Params) -> Result<M::Result, Failure>
    where
        M: Method,
        M::Params: Send + 'static,
    {
        let encode = move |id: &RequestId| codec::encode_request::<M>(id, &params);
        result_of::<M>(&self.ask_on(on, M::NAME, false, encode).await?)
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

    /// Makes a call whose message and result the caller knows a short way for, over the connection `on` if there is one
    /// without which it has no meaning.
    pub(crate) async fn ask_on(
        &self,
        on: Option<LinkId>,
        method: &'static str,
        cleanup: bool,
        encode: impl FnOnce(&RequestId) -> Bytes + Send + 'static,
    ) -> Result<Answer, Failure> {
        // What belongs to a connection that is gone is no reason to make another one.
        let link = if on.is_some() { self.place.present() } else { self.place.link() };
        link.call(Op::Ask(Box::new(Ask { method, cleanup, on, encode: Box::new(encode) }))).await
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
        let link = self.place.present();
        let waiter = link.waiter(&op, reply);
        link.send(Command::Call { route: RouteKey::NONE, op, waiter });
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

    /// The connection that stands now, if one does.
    pub(crate) fn present_connection(&self) -> Option<LinkId> {
        // Between the answer to a first handshake and the state there is a moment.
        let stands = |state: &ConnectionState| state.is_connected() || matches!(state, ConnectionState::Connecting);
        let stands = stands(&self.place.state().borrow());
        if stands { self.last_connection() } else { None }
    }

    /// The connection that stands; waits for it, and makes one if there is none and none is being made.
    pub(crate) async fn standing_connection(&self) -> Result<LinkId, Disconnected> {
        let stands = self.wait_until_ready().await.is_ok();
        self.last_connection().filter(|_| stands).ok_or_else(|| self.not_connected(Sent::NotSent))
    }

    /// The error of a call on a connection that is gone, or was never made.
    pub(crate) fn not_connected(&self, sent: Sent) -> Disconnected {
        let link = self.place.present();
        if link.is_over() {
            return link.disconnected(sent);
        }
        // The last one is gone, whether or not there is another one by now.
        let reason = self.place.last_end().unwrap_or_else(|| "not connected yet".into());
        Disconnected { sent, reason }
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
