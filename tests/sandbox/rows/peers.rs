//! Executors that say less than this library's.

use futures_util::{SinkExt as _, StreamExt as _};
use longarm::Environment;
use longarm::config::ClientConfig;
use longarm::transport::{Incoming, Outgoing, Transport as _, memory};
use serde_json::{Value, json};

use super::tools::{Outcome, ensure};
use crate::place::Kind;
use crate::policy::{none, ro};
use crate::row::{Row, Stage};

pub(super) fn rows() -> Vec<Row> {
    vec![
        // The place itself takes no part.
        custom!(126, "an old executor, no sandbox", none, old_executor).at(&[Kind::Remote]),
        custom!(126, "an old executor, with an intent", ro, old_executor).at(&[Kind::Remote]),
    ]
}

/// The other end of a connection.
struct Peer {
    outgoing: Box<dyn Outgoing>,
    incoming: Box<dyn Incoming>,
}

impl Peer {
    /// The next message; it is of this method.
    async fn expect(&mut self, method: &str) -> Value {
        let message = self.incoming.next().await.unwrap().unwrap();
        let message: Value = serde_json::from_slice(&message).unwrap();
        assert_eq!(message["method"], method, "{message}");
        message
    }

    async fn send(&mut self, message: Value) {
        self.outgoing.send(message.to_string().into()).await.unwrap();
    }

    /// Answers a request of this method; says what it asked.
    async fn answer(&mut self, method: &str, result: Value) -> Value {
        let request = self.expect(method).await;
        self.send(json!({"id": request["id"], "result": result})).await;
        request
    }
}

async fn old_executor(stage: &Stage<'_>) -> Outcome {
    let (near, far) = memory::pair();
    let (outgoing, incoming) = Box::new(far).split();
    let mut peer = Peer { outgoing, incoming };
    let script = async {
        peer.answer("initialize", json!({"sessionId": "old"})).await;
        peer.expect("initialized").await;
        let request = peer.expect("process/start").await;
        let id = request["params"]["processId"].clone();
        peer.send(json!({"id": request["id"], "result": {"processId": id}})).await;
        let exited = json!({"processId": id, "seq": 1, "exitCode": 1});
        peer.send(json!({"method": "process/exited", "params": exited})).await;
        peer.send(json!({"method": "process/closed", "params": {"processId": id, "seq": 2}})).await;
        // What the event did not say may be asked for; there it is not said either.
        let read = json!({"chunks": [], "nextSeq": 3, "exited": true, "exitCode": 1, "closed": true, "failure": null});
        loop {
            peer.answer("process/read", read.clone()).await;
        }
    };
    let client = async {
        let environment = Environment::connect(near, ClientConfig::default()).await.unwrap();
        let mut request = stage.request(["false"]);
        if let Some(json) = stage.policy.json() {
            request = request.sandbox(longarm::sandbox::SandboxIntent::from_json(&json).unwrap());
        }
        let process = environment.spawn(request).await.unwrap();
        let (kind, enforcement) = (process.sandbox_type().map(str::to_owned), process.enforcement());
        let output = process.output(longarm::collect::CollectLimits::default()).await.unwrap();
        ensure(kind.is_none() && enforcement.is_none(), || format!("{kind:?}, {enforcement:?}"))?;
        ensure(!output.sandbox_denied && output.status.wire_code() == 1, || format!("{output:?}"))
    };
    tokio::select! {
        outcome = client => outcome,
        () = script => Err("the executor has nothing more to say".into()),
    }
}
