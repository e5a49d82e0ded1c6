//! A server that means harm, over one connection after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use longarm::config::ClientConfig;
use longarm::error::{ConnectError, SpawnError, WaitError};
use longarm::transport::{Connector, Incoming, Outgoing, Transport, memory};
use longarm::{Environment, ExecRequest};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::soon;

/// Hands its far ends to the test.
#[derive(Debug)]
struct Script {
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

struct Peer {
    outgoing: Box<dyn Outgoing>,
    incoming: Box<dyn Incoming>,
}

impl Peer {
    async fn next(far_ends: &mut mpsc::UnboundedReceiver<memory::MemoryTransport>) -> Self {
        let far = soon(far_ends.recv()).await.expect("the client dials");
        let (outgoing, incoming) = Box::new(far).split();
        Self { outgoing, incoming }
    }

    /// False if the client is gone.
    async fn send(&mut self, message: impl Into<Bytes>) -> bool {
        soon(self.outgoing.send(message.into())).await.is_ok()
    }

    async fn hear(&mut self) -> Value {
        let message = soon(self.incoming.next()).await.expect("another message").expect("a message");
        serde_json::from_slice(&message).expect("JSON")
    }

    async fn expect(&mut self, method: &str) -> Value {
        let message = self.hear().await;
        assert_eq!(message["method"], method, "{message}");
        message
    }

    async fn answer(&mut self, request: &Value, result: Value) {
        assert!(self.send(json!({"id": request["id"], "result": result}).to_string()).await);
    }

    async fn greet(&mut self) {
        let initialize = self.expect("initialize").await;
        self.answer(&initialize, json!({"sessionId": "s"})).await;
        self.expect("initialized").await;
    }
}

fn script() -> (Environment, mpsc::UnboundedReceiver<memory::MemoryTransport>, Arc<AtomicUsize>) {
    let (far_ends, receiver) = mpsc::unbounded_channel();
    let dialled = Arc::new(AtomicUsize::new(0));
    let connector = Script { far_ends, dialled: Arc::clone(&dialled) };
    // What is written to a client that is busy with a flood takes its time.
    let mut config = ClientConfig::default();
    config.initialize_timeout = std::time::Duration::from_secs(600);
    config.recovery.deadline = std::time::Duration::from_secs(600);
    (Environment::with_connector(connector, config), receiver, dialled)
}

fn request() -> ExecRequest {
    ExecRequest::new(["true"]).cwd("/").process_id(longarm::request::ProcessId::new("p"))
}

#[tokio::test]
async fn a_one_shot_command_costs_one_round_trip() {
    let (place, mut far_ends, _) = script();
    let running = tokio::spawn(async move { place.output(request()).await });
    let mut peer = Peer::next(&mut far_ends).await;
    // All of it before the peer has said a word.
    let initialize = peer.expect("initialize").await;
    peer.expect("initialized").await;
    let start = peer.expect("process/start").await;
    peer.answer(&initialize, json!({"sessionId": "s"})).await;
    peer.answer(&start, json!({"processId": "p"})).await;
    for event in [
        json!({"method": "process/output", "params": {"processId": "p", "seq": 1, "stream": "stdout", "chunk": "aGk="}}),
        json!({"method": "process/exited", "params": {"processId": "p", "seq": 2, "exitCode": 0, "sandboxDenied": false}}),
        json!({"method": "process/closed", "params": {"processId": "p", "seq": 3}}),
    ] {
        assert!(peer.send(event.to_string()).await);
    }
    let output = soon(running).await.expect("no panic").expect("it runs");
    assert_eq!(output.stdout.to_text(), "hi");
    // The place was dropped with the task: nothing was asked in the end, not even that.
    assert!(soon(peer.incoming.next()).await.is_none());
}

#[tokio::test]
async fn an_older_server_costs_one_read_more() {
    let (place, mut far_ends, _) = script();
    let running = tokio::spawn(async move { place.output(request()).await });
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_pipelined().await;
    for event in [
        json!({"method": "process/exited", "params": {"processId": "p", "seq": 1, "exitCode": 0}}),
        json!({"method": "process/closed", "params": {"processId": "p", "seq": 2}}),
    ] {
        assert!(peer.send(event.to_string()).await);
    }
    let read = peer.expect("process/read").await;
    let result = json!({"chunks": [], "nextSeq": 3, "exited": true, "exitCode": 0, "closed": true, "failure": null});
    peer.answer(&read, result).await;
    soon(running).await.expect("no panic").expect("it runs");
    assert!(soon(peer.incoming.next()).await.is_none());
}

impl Peer {
    /// The handshake and the start of the one process.
    async fn greet_pipelined(&mut self) {
        let initialize = self.expect("initialize").await;
        self.expect("initialized").await;
        let start = self.expect("process/start").await;
        self.answer(&initialize, json!({"sessionId": "s"})).await;
        self.answer(&start, json!({"processId": "p"})).await;
    }
}

#[tokio::test]
async fn events_may_flood_in_before_the_answer_to_the_resume() {
    let (place, mut far_ends, _) = script();
    let spawning = tokio::spawn(async move { place.spawn(request()).await.map(|process| (place, process)) });
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_pipelined().await;
    let (_place, mut process) = soon(spawning).await.expect("no panic").expect("it starts");
    drop(peer);
    let mut peer = Peer::next(&mut far_ends).await;
    let resume = peer.expect("initialize").await;
    assert_eq!(resume["params"]["resumeSessionId"], "s");
    for seq in 1..=5_000 {
        let params = json!({"processId": "p", "seq": seq, "stream": "stdout", "chunk": "eA=="});
        assert!(peer.send(json!({"method": "process/output", "params": params}).to_string()).await);
    }
    peer.answer(&resume, json!({"sessionId": "s"})).await;
    peer.expect("initialized").await;
    let read = peer.expect("process/read").await;
    assert_eq!(read["params"]["afterSeq"], 5_000);
    for seq in 1..=5_000 {
        let event = soon(process.next_event()).await.expect("no error").expect("an event");
        assert_eq!(event.seq(), seq);
    }
}

#[tokio::test]
async fn a_start_is_never_repeated_and_its_process_is_ended() {
    let (place, mut far_ends, _) = script();
    let spawning = tokio::spawn({
        let place = place.clone();
        async move { place.spawn(request()).await }
    });
    let mut peer = Peer::next(&mut far_ends).await;
    let initialize = peer.expect("initialize").await;
    peer.expect("initialized").await;
    peer.answer(&initialize, json!({"sessionId": "s"})).await;
    peer.expect("process/start").await;
    // By then the client has the answer to the handshake.
    soon(place.connection().expect("remote").wait_for(|state| state.is_connected())).await.expect("connected");
    drop(peer);
    assert!(matches!(soon(spawning).await.expect("no panic"), Err(SpawnError::Disconnected(_))));
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet().await;
    let stop = peer.expect("process/terminate").await;
    assert_eq!(stop["params"]["processId"], "p");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_breaks_the_protocol_again_and_again_is_given_up() {
    let (place, mut far_ends, dialled) = script();
    place.remote().expect("remote").start_connecting();
    let mut connection = place.connection().expect("remote");
    for _ in 0..3 {
        let mut peer = Peer::next(&mut far_ends).await;
        peer.greet().await;
        assert!(peer.send("no JSON at all").await);
    }
    let state = soon(connection.wait_for(|state| state.is_over())).await.expect("it is given up");
    assert!(state.is_over());
    assert_eq!(dialled.load(Ordering::SeqCst), 3);
}

/// What the process has in memory now, in bytes.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize = statm.split(' ').nth(1).expect("the second number").parse().expect("a number");
    pages * 4096
}

/// Everything that a server can send without being asked, more of it than anybody could hold, on each of some connections.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn memory_stays_bounded_whatever_comes() {
    let (place, mut far_ends, _) = script();
    let spawning = tokio::spawn(async move { place.spawn(request()).await.map(|process| (place, process)) });
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_pipelined().await;
    let (place, mut process) = soon(spawning).await.expect("no panic").expect("it starts");
    let chunk = "eHh4".repeat(20_000);
    let output = |id: &str, seq: u64| {
        let params = json!({"processId": id, "seq": seq, "stream": "stdout", "chunk": chunk});
        json!({"method": "process/output", "params": params}).to_string()
    };
    let before = resident();
    let mut most = before;
    for connection in 0..4 {
        if connection > 0 {
            // It breaks, and the next one breaks before it says anything.
            drop(peer);
            Peer::next(&mut far_ends).await.expect("initialize").await;
            peer = Peer::next(&mut far_ends).await;
            let resume = peer.expect("initialize").await;
            // Before the answer, for known and unknown processes, in order and far out of it.
            for round in 0..150_u64 {
                peer.send(output("p", 2 * round + 1)).await;
                peer.send(output("unknown", round)).await;
            }
            peer.answer(&resume, json!({"sessionId": "s"})).await;
        }
        for round in 0..300_u64 {
            let guessed = json!({"id": round + 100, "result": {"junk": chunk}}).to_string();
            for message in [output("unknown", round), guessed, json!({"method": "x/y", "params": [chunk]}).to_string()]
            {
                peer.send(message).await;
            }
            most = most.max(resident());
        }
    }
    most = most.max(resident());
    let grown = most.saturating_sub(before) >> 20;
    assert!(grown < 64, "{grown} MiB");
    // A reorder window that is exceeded fails the process alone.
    let error = soon(async {
        loop {
            match process.next_event().await {
                Ok(Some(_)) => {}
                other => break other,
            }
        }
    });
    drop(peer);
    drop(far_ends);
    drop(place);
    let ended = error.await;
    assert!(matches!(ended, Err(WaitError::Peer(_) | WaitError::Disconnected(_))), "{ended:?}");
}
