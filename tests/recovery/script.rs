//! A server that says what a test writes down, over one connection after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use longarm::Environment;
use longarm::config::ClientConfig;
use longarm::error::ConnectError;
use longarm::transport::{Connector, Incoming, Outgoing, Transport, memory};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::soon;

/// Hands its far ends to the test.
#[derive(Debug)]
pub(crate) struct Script {
    far_ends: mpsc::UnboundedSender<memory::MemoryTransport>,
    dialled: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Connector for Script {
    async fn connect(&self) -> Result<Box<dyn Transport>, ConnectError> {
        self.dialled.fetch_add(1, Ordering::SeqCst);
        let (near, far) = memory::pair();
        match self.far_ends.send(far) {
            Ok(()) => Ok(Box::new(near)),
            // The test is over.
            Err(_) => Err(ConnectError::UnknownSession("none".into())),
        }
    }

    fn can_reconnect(&self) -> bool {
        true
    }
}

pub(crate) struct Peer {
    outgoing: Box<dyn Outgoing>,
    pub(crate) incoming: Box<dyn Incoming>,
}

impl Peer {
    pub(crate) async fn next(far_ends: &mut mpsc::UnboundedReceiver<memory::MemoryTransport>) -> Self {
        Self::over(soon(far_ends.recv()).await.expect("the client dials"))
    }

    pub(crate) fn over(far: memory::MemoryTransport) -> Self {
        let (outgoing, incoming) = Box::new(far).split();
        Self { outgoing, incoming }
    }

    /// False if the client is gone.
    pub(crate) async fn send(&mut self, message: impl Into<Bytes>) -> bool {
        soon(self.outgoing.send(message.into())).await.is_ok()
    }

    pub(crate) async fn hear(&mut self) -> Value {
        let message = soon(self.incoming.next()).await.expect("another message").expect("a message");
        serde_json::from_slice(&message).expect("JSON")
    }

    pub(crate) async fn expect(&mut self, method: &str) -> Value {
        let message = self.hear().await;
        assert_eq!(message["method"], method, "{message}");
        message
    }

    pub(crate) async fn answer(&mut self, request: &Value, result: Value) {
        assert!(self.send(json!({"id": request["id"], "result": result}).to_string()).await);
    }

    pub(crate) async fn greet(&mut self) {
        let initialize = self.expect("initialize").await;
        self.answer(&initialize, json!({"sessionId": "s"})).await;
        self.expect("initialized").await;
    }

    /// The handshake of a first connection, or of a later one.
    pub(crate) async fn greet_with(&mut self, result: Value) {
        let initialize = self.expect("initialize").await;
        self.answer(&initialize, result).await;
        self.expect("initialized").await;
    }

    /// The handshake and the start of the one process.
    pub(crate) async fn greet_pipelined(&mut self) {
        let initialize = self.expect("initialize").await;
        self.expect("initialized").await;
        let start = self.expect("process/start").await;
        self.answer(&initialize, json!({"sessionId": "s"})).await;
        self.answer(&start, json!({"processId": "p"})).await;
    }

    /// Waits until the client has closed the connection.
    pub(crate) async fn is_left(&mut self) {
        while soon(self.incoming.next()).await.is_some_and(|message| message.is_ok()) {}
    }
}

pub(crate) fn script_with(
    mut config: ClientConfig,
) -> (Environment, mpsc::UnboundedReceiver<memory::MemoryTransport>, Arc<AtomicUsize>) {
    let (far_ends, receiver) = mpsc::unbounded_channel();
    let dialled = Arc::new(AtomicUsize::new(0));
    let connector = Script { far_ends, dialled: Arc::clone(&dialled) };
    // What is written to a client that is busy with a flood takes its time.
    config.initialize_timeout = std::time::Duration::from_secs(600);
    config.recovery.deadline = std::time::Duration::from_secs(600);
    (Environment::with_connector(connector, config), receiver, dialled)
}

pub(crate) fn script() -> (Environment, mpsc::UnboundedReceiver<memory::MemoryTransport>, Arc<AtomicUsize>) {
    script_with(ClientConfig::default())
}
