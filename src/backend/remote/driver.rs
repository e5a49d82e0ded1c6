//! The task of one connection.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::Handshake;
use super::command::Link;
use crate::config::ClientConfig;
use crate::core::session::Mode;
use crate::error::{ConnectError, TransportError};
use crate::transport::Transport;

/// Starts the task.
pub(super) fn start(
    transport: Box<dyn Transport>,
    _config: ClientConfig,
    _mode: Mode,
) -> (Arc<Link>, watch::Receiver<Handshake>) {
    let (commands, _) = mpsc::unbounded_channel();
    let (_, ended) = watch::channel(Some("closed".into()));
    drop(transport);
    let refused = ConnectError::Transport(TransportError::Closed(None));
    let (_, handshake) = watch::channel(Handshake::Failed(refused));
    (Link::new(commands, ended), handshake)
}
