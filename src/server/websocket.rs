//! The accept loop of a WebSocket server.

use std::future::Future;
use std::io;
use std::pin::pin;

use tokio::task::JoinSet;

use super::Server;
use crate::transport::websocket::Listener;

/// Serves every connection that `listener` takes in, until `shutdown` is ready; then shuts `server` down, which ends its
/// processes and closes its connections as going away, and returns when no connection is left.
///
/// Handshakes run side by side and are bounded ([`ListenOptions`](crate::transport::websocket::ListenOptions)); how many
/// connections are served is bounded by [`ServerConfig::max_connections`](crate::config::ServerConfig::max_connections).
///
/// # Errors
///
/// The system's, if the listening socket is unusable; then the server is shut down too.
///
/// # Cancel safety
///
/// Dropping the future drops the listener and all of its connections; sessions are detached.
pub async fn serve_websocket(
    server: &Server,
    mut listener: Listener,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let mut shutdown = pin!(shutdown);
    let mut connections = JoinSet::new();
    let most = server.config().max_connections.saturating_add(MAX_CLOSING);
    let result = loop {
        tokio::select! {
            () = &mut shutdown => break Ok(()),
            // Those that are one too many are told so, which takes a moment each; meanwhile no more are taken in.
            accepted = listener.accept(), if connections.len() < most => match accepted {
                Ok(transport) => {
                    let server = server.clone();
                    // Why a connection ended concerns its client, who was told by the close frame.
                    connections.spawn(async move { drop(server.serve(Box::new(transport)).await) });
                }
                Err(error) => break Err(error),
            },
            Some(_) = connections.join_next() => {}
        }
    };
    drop(listener);
    server.shutdown().await;
    while connections.join_next().await.is_some() {}
    result
}

/// Connections beyond the limit that are being closed.
const MAX_CLOSING: usize = 64;
