//! One connection, from its first message to its end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use super::ServeError;
use super::alarm::Alarm;
use super::link::Link;
use super::registry::{CLOSE_PATIENCE, Registry};
use super::session_task::{Attach, End};
use crate::core::peer::lobby::{self, Step};
use crate::error::{PeerMisbehaved, TransportError};
use crate::time;
use crate::transport::{CloseReason, Transport};

/// Serves `transport` until it ends.
pub(super) async fn serve(registry: &Arc<Registry>, transport: Box<dyn Transport>) -> Result<(), ServeError> {
    let link = Link::new(transport, registry.config().keepalive);
    let _admission = match registry.admit() {
        Ok(admission) => admission,
        Err(refusal) => {
            close(link, refusal.close_reason()).await;
            return Err(refusal);
        }
    };
    let mut link = Some(link);
    let patience = registry.config().initialize_timeout;
    // One time for all that comes before a session: what the client says, what it does not take, and what the place is
    // asked for it.
    let lobby = async {
        match tokio::time::timeout(patience, lobby(registry, &mut link)).await {
            Ok(result) => result,
            Err(_) => Err(PeerMisbehaved::Protocol(format!("no session within {} s", patience.as_secs())).into()),
        }
    };
    let in_lobby = match select(pin!(registry.shutdown_begun()), pin!(lobby)).await {
        Either::Left(((), _)) => Ok(None),
        Either::Right((result, _)) => result,
    };
    let (link, result) = match (link, in_lobby) {
        (Some(link), result) => (link, result.map(drop)),
        (None, Ok(Some(ended))) => match ended.await {
            Ok(End { link, result }) => (link, result),
            // The session's task was dropped with its runtime, and the connection with it.
            Err(_) => return Err(ServeError::ShutDown),
        },
        (None, result) => return result.map(drop),
    };
    let reason = match &result {
        Err(error) => error.close_reason(),
        Ok(()) if registry.is_shut_down() => CloseReason::GoingAway,
        Ok(()) => CloseReason::Normal,
    };
    close(link, reason).await;
    result
}

/// Closes a connection, or drops it when that takes too long. Its end is not in question any more, so an error in
/// closing has no further meaning.
async fn close(link: Link, reason: CloseReason) {
    let _in_time = tokio::time::timeout(CLOSE_PATIENCE, link.close(reason)).await;
}

/// Answers what comes before a session, until one has the connection: then returns where the connection comes back.
/// Returns nothing if the client leaves before that.
async fn lobby(
    registry: &Arc<Registry>,
    link: &mut Option<Link>,
) -> Result<Option<oneshot::Receiver<End>>, ServeError> {
    let mut alarm = Alarm::default();
    while let Some(connected) = link {
        let Some(message) = poll_fn(|cx| poll_next(connected, &mut alarm, cx)).await? else { return Ok(None) };
        let answer = match lobby::handle_message(&message, &registry.config().messages, registry.offers()) {
            Step::Drop(error) => return Err(error.into()),
            Step::Reply(answer) => answer,
            Step::Initialize { id, params } => match registry.backend().info().await {
                Err(error) => lobby::fault_of(error).encode(&id),
                Ok(info) => {
                    let Some(taken) = link.take() else { break };
                    let (end, ended) = oneshot::channel();
                    let attach = Attach { link: taken, id, offer: params.longarm, info, end };
                    let attached = match &params.resume_session_id {
                        Some(session) => registry.resume(session, attach),
                        None => registry.open(attach),
                    };
                    match attached {
                        Ok(()) => return Ok(Some(ended)),
                        Err(refusal) => {
                            let (refused, fault) = *refusal;
                            *link = Some(refused.link);
                            fault.encode(&refused.id)
                        }
                    }
                }
            },
        };
        if let Some(connected) = link {
            send(connected, answer).await?;
        }
    }
    Ok(None)
}

/// The next message, or the end of the connection.
fn poll_next(link: &mut Link, alarm: &mut Alarm, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ServeError>> {
    loop {
        let now = time::now();
        if let Poll::Ready(Err(error)) = link.poll_flush(cx) {
            return Poll::Ready(Err(error.into()));
        }
        match link.poll_message(cx, now) {
            Poll::Ready(Some(Ok(message))) => return Poll::Ready(Ok(Some(message))),
            Poll::Ready(None | Some(Err(TransportError::Closed(_)))) => return Poll::Ready(Ok(None)),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error.into())),
            Poll::Pending => {}
        }
        if alarm.poll(cx, link.poll_timeout()).is_pending() {
            return Poll::Pending;
        }
        link.handle_timeout(time::now())?;
    }
}

/// Hands over a message; it leaves while the next one is waited for.
async fn send(link: &mut Link, message: Bytes) -> Result<(), TransportError> {
    poll_fn(|cx| link.poll_ready(cx)).await?;
    link.start_send(time::now(), message)
}
