//! A server with one client: the one at the other end of its standard streams.

use std::future::Future;

use tokio::io::{AsyncRead, AsyncWrite};

use super::{ServeError, Server};
use crate::transport::stdio;

/// Serves the client that writes to `stdin` and reads from `stdout`, until the end of input, a violation of the protocol,
/// or `shutdown`; then shuts `server` down, which ends its processes: nobody can come back to a session.
///
/// # Errors
///
/// A [`ServeError`] that says why the connection ended, unless it ended in good order.
///
/// # Cancel safety
///
/// Dropping the future ends the connection; the session is detached, and processes go on until the server is shut down.
pub async fn serve_stdio(
    server: &Server,
    stdin: impl AsyncRead + Send + Unpin + 'static,
    stdout: impl AsyncWrite + Send + Unpin + 'static,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let transport = stdio::from_io(stdin, stdout, server.config().messages);
    let served = server.serve(Box::new(transport));
    tokio::select! {
        result = served => {
            server.shutdown().await;
            result
        }
        () = async {
            shutdown.await;
            // Lets the connection tell its client what the processes still say; the other branch sees it end.
            server.shutdown().await;
        } => Ok(()),
    }
}
