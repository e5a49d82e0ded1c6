//! A peer that says what it is told to, over memory.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use longarm::backend::{ExecBackend as _, Spawned};
use longarm::config::ClientConfig;
use longarm::error::WaitError;
use longarm::event::Event;
use longarm::request::ProcessId;
use longarm::transport::{Incoming, Outgoing, Transport as _, memory};
use longarm::{ExecRequest, Remote};
use serde_json::{Value, json};

/// Generous: it only ends tests that hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const ALL: &[&str] = &["credits", "closeStdin", "resize", "signal", "terminate", "exit", "limits", "list"];

/// The other end of a client's connection.
pub(crate) struct Peer {
    pub(crate) outgoing: Box<dyn Outgoing>,
    pub(crate) incoming: Box<dyn Incoming>,
}

impl Peer {
    /// A client that waits for its handshake, and its peer.
    pub(crate) fn pipelined(config: ClientConfig) -> (Remote, Self) {
        let (client, peer) = memory::pair();
        (Remote::connect_pipelined(Box::new(client), config), Self::over(peer))
    }

    pub(crate) fn over(transport: memory::MemoryTransport) -> Self {
        let (outgoing, incoming) = Box::new(transport).split();
        Self { outgoing, incoming }
    }

    /// A client whose handshake is done, with a peer of these features.
    pub(crate) async fn open(features: &[&str]) -> (Remote, Self) {
        Self::open_with(features, ClientConfig::default()).await
    }

    pub(crate) async fn open_with(features: &[&str], config: ClientConfig) -> (Remote, Self) {
        let (remote, mut peer) = Self::pipelined(config);
        peer.shake_hands(features).await;
        remote.ready().await.expect("the handshake succeeds");
        (remote, peer)
    }

    pub(crate) async fn shake_hands(&mut self, features: &[&str]) {
        let initialize = self.expect("initialize").await;
        let mut capabilities = json!({});
        if !features.is_empty() {
            capabilities["longarm"] = json!({"version": 1, "features": features});
            capabilities["httpHeaderEnvVars"] = json!(features.contains(&"http"));
        }
        let info = json!({
            "shell": {"name": "sh", "path": "/bin/sh"}, "cwd": "file:///tmp", "platformOs": "linux",
            "capabilities": capabilities,
        });
        self.answer(&initialize, json!({"sessionId": "the-session", "environmentInfo": info})).await;
        self.expect("initialized").await;
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_raw(message.to_string()).await;
    }

    pub(crate) async fn send_raw(&mut self, message: impl Into<Bytes>) {
        self.outgoing.send(message.into()).await.expect("the client takes messages");
    }

    pub(crate) async fn answer(&mut self, request: &Value, result: Value) {
        self.send(&json!({"id": request["id"], "result": result})).await;
    }

    pub(crate) async fn fail(&mut self, request: &Value, error: Value) {
        self.send(&json!({"id": request["id"], "error": error})).await;
    }

    /// The next message, or none at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let message = tokio::time::timeout(PATIENCE, self.incoming.next()).await.expect("the client says something");
        message.map(|message| serde_json::from_slice(&message.expect("a message")).expect("JSON"))
    }

    /// The next message but acknowledgements, which is to be this one.
    pub(crate) async fn expect(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await.expect("another message");
            if message["method"] != "longarm/process/ack" || method == "longarm/process/ack" {
                assert_eq!(message["method"], method, "{message}");
                return message;
            }
        }
    }

    /// Waits for the end of the connection; says what came before.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut rest = Vec::new();
        while let Some(message) = self.next().await {
            rest.push(message);
        }
        rest
    }

    /// Starts a process of this id.
    pub(crate) async fn start(&mut self, remote: &Remote, id: &str) -> Spawned {
        let (spawned, ()) = tokio::join!(remote.spawn(request(id)), async {
            let start = self.expect("process/start").await;
            self.answer(&start, json!({"processId": id, "sandboxType": "none"})).await;
        });
        spawned.expect("the process starts")
    }

    pub(crate) async fn output(&mut self, id: &str, seq: u64, bytes: &[u8]) {
        let chunk = serde_json::to_value(longarm::wire::Base64(Bytes::copy_from_slice(bytes))).expect("base64");
        let params = json!({"processId": id, "seq": seq, "stream": "stdout", "chunk": chunk});
        self.send(&json!({"method": "process/output", "params": params})).await;
    }

    pub(crate) async fn exited(&mut self, id: &str, seq: u64, code: i32) {
        let params = json!({"processId": id, "seq": seq, "exitCode": code, "sandboxDenied": false});
        self.send(&json!({"method": "process/exited", "params": params})).await;
    }

    pub(crate) async fn closed(&mut self, id: &str, seq: u64) {
        self.send(&json!({"method": "process/closed", "params": {"processId": id, "seq": seq}})).await;
    }
}

pub(crate) fn request(id: &str) -> ExecRequest {
    ExecRequest::new(["true"]).cwd("/tmp").process_id(ProcessId::new(id))
}

/// All events to the end of the stream.
pub(crate) async fn events(spawned: &mut Spawned) -> Vec<Result<Event, WaitError>> {
    let mut events = Vec::new();
    while let Some(event) = next_event(spawned).await {
        events.push(event);
    }
    events
}

pub(crate) async fn next_event(spawned: &mut Spawned) -> Option<Result<Event, WaitError>> {
    tokio::time::timeout(PATIENCE, spawned.events.next()).await.expect("an event")
}

/// Waits until the task of the connection has ended, and nothing else of it is left.
pub(crate) async fn no_task_left(before: usize) {
    let metrics = tokio::runtime::Handle::current().metrics();
    tokio::time::timeout(PATIENCE, async {
        while metrics.num_alive_tasks() > before {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the task ends");
}

pub(crate) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}
