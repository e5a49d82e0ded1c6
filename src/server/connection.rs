//! One connection, from its first message to its end.

use std::sync::Arc;

use futures_util::SinkExt;

use super::ServeError;
use super::registry::Registry;
use crate::transport::Transport;

/// Serves `transport` until it ends.
pub(crate) async fn serve(registry: &Arc<Registry>, transport: Box<dyn Transport>) -> Result<(), ServeError> {
    let (mut outgoing, _incoming) = transport.split();
    let refusal = match registry.admit() {
        Ok(_admission) => ServeError::ShutDown,
        Err(error) => error,
    };
    outgoing.set_close_reason(refusal.close_reason());
    outgoing.close().await?;
    Err(refusal)
}
