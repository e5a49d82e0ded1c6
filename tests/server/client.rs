//! A client that sends what it is told to, and shows what comes.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use longarm::server::{ServeError, Server};
use longarm::transport::{Incoming, Outgoing, Transport, memory};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::order::Order;

/// Generous: it only ends tests that hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One connection to a server, without any protocol of its own.
pub(crate) struct RawClient {
    outgoing: Box<dyn Outgoing>,
    incoming: Box<dyn Incoming>,
    next_id: i64,
    /// What came while something else was awaited.
    pub(crate) others: Vec<Value>,
    order: Order,
}

impl RawClient {
    /// Connects over memory; the server's side runs as a task.
    pub(crate) fn connect(server: &Server) -> (Self, JoinHandle<Result<(), ServeError>>) {
        let (client, service) = memory::pair();
        let server = server.clone();
        let serving = tokio::spawn(async move { server.serve(Box::new(service)).await });
        (Self::over(Box::new(client)), serving)
    }

    pub(crate) fn over(transport: Box<dyn Transport>) -> Self {
        let (outgoing, incoming) = transport.split();
        Self { outgoing, incoming, next_id: 1, others: Vec::new(), order: Order::default() }
    }

    /// Connects and shakes hands. Returns the id of the session too.
    pub(crate) async fn open(server: &Server, features: &[&str]) -> (Self, String) {
        let (mut client, _) = Self::connect(server);
        let result = client.initialize(None, features).await.expect("a session");
        let id = result["sessionId"].as_str().expect("an id").to_owned();
        (client, id)
    }

    /// Connects again and resumes.
    pub(crate) async fn resume(server: &Server, session: &str, features: &[&str]) -> Self {
        let (mut client, _) = Self::connect(server);
        client.initialize(Some(session), features).await.expect("the session");
        client
    }

    /// Resumes as soon as the server has noticed that the earlier connection is gone.
    pub(crate) async fn resume_soon(server: &Server, session: &str, features: &[&str]) -> Self {
        loop {
            let (mut client, _) = Self::connect(server);
            match client.initialize(Some(session), features).await {
                Ok(_) => return client,
                Err(error) => assert_eq!(error["code"], -32010, "{error}"),
            }
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn initialize(&mut self, resume: Option<&str>, features: &[&str]) -> Result<Value, Value> {
        let mut params = json!({"clientName": "raw", "resumeSessionId": resume});
        if !features.is_empty() {
            params["longarm"] = json!({"version": 1, "features": features});
        }
        let result = self.try_call("initialize", params).await?;
        self.notify("initialized", json!({})).await;
        Ok(result)
    }

    pub(crate) async fn send_text(&mut self, text: impl Into<Bytes>) {
        self.outgoing.send(text.into()).await.expect("the server takes messages");
    }

    /// Sends; false if the connection has ended.
    pub(crate) async fn try_send_text(&mut self, text: &'static str) -> bool {
        self.outgoing.send(text.into()).await.is_ok()
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send_text(json!({"method": method, "params": params}).to_string()).await;
    }

    /// Sends a request and returns its id.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send_text(json!({"id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// The next message, in whose place nothing else should have come; none at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let message = tokio::time::timeout(PATIENCE, self.incoming.next()).await.expect("a message in time")?;
        let message = message.expect("a good end of the connection");
        let message = serde_json::from_slice(&message).expect("JSON");
        self.order.check(&message);
        Some(message)
    }

    /// The next message for which `wanted` holds. Others are kept.
    pub(crate) async fn next_where(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.others.iter().position(&wanted) {
            return self.others.remove(place);
        }
        loop {
            let message = self.next().await.expect("the connection goes on");
            if wanted(&message) {
                return message;
            }
            self.others.push(message);
        }
    }

    pub(crate) async fn answer(&mut self, id: i64) -> Result<Value, Value> {
        let mut answer = self.next_where(|message| message["id"] == id).await;
        match answer.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(answer["result"].take()),
        }
    }

    pub(crate) async fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.request(method, params).await;
        self.answer(id).await
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    pub(crate) async fn refused(&mut self, method: &str, params: Value) -> (i64, String) {
        let error = self.try_call(method, params).await.expect_err("a refusal");
        (error["code"].as_i64().expect("a code"), error["message"].as_str().expect("a text").to_owned())
    }

    pub(crate) async fn start(&mut self, id: &str, argv: &[&str]) -> Value {
        self.call("process/start", start_params(id, argv)).await
    }

    pub(crate) async fn write(&mut self, process: &str, write_id: &str, bytes: &[u8]) -> Value {
        let result = self.call("process/write", write_params(process, write_id, bytes)).await;
        result["status"].clone()
    }

    /// The next notification of `method` about `process`.
    pub(crate) async fn event(&mut self, method: &str, process: &str) -> Value {
        let event =
            self.next_where(|message| message["method"] == method && message["params"]["processId"] == process).await;
        event["params"].clone()
    }

    /// Everything until `process/closed`: output by stream, and the exit code. Checks the order on the way.
    pub(crate) async fn outcome(&mut self, process: &str) -> Outcome {
        let mut outcome = Outcome::default();
        let mut seq = 0;
        loop {
            let event = self
                .next_where(|message| message["params"]["processId"] == process && message.get("method").is_some())
                .await;
            let params = &event["params"];
            seq += 1;
            assert_eq!(params["seq"], seq, "in order: {event}");
            match event["method"].as_str().expect("a method") {
                "process/output" => {
                    let bytes = decode(params["chunk"].as_str().expect("a chunk"));
                    assert!(!bytes.is_empty() && bytes.len() <= 64 << 10, "chunks of 1 to 64 KiB");
                    match params["stream"].as_str().expect("a stream") {
                        "stderr" => outcome.stderr.extend(bytes),
                        _ => outcome.stdout.extend(bytes),
                    }
                }
                "process/exited" => outcome.exit_code = params["exitCode"].as_i64(),
                "process/closed" => return outcome,
                other => panic!("unexpected {other}"),
            }
        }
    }
}

/// What a process wrote and how it ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exit_code: Option<i64>,
}

pub(crate) fn start_params(id: &str, argv: &[&str]) -> Value {
    json!({
        "processId": id, "argv": argv, "cwd": "file:///tmp", "env": {"PATH": "/usr/bin:/bin"}, "tty": false,
        "pipeStdin": false, "arg0": null,
    })
}

pub(crate) fn piped(id: &str, argv: &[&str]) -> Value {
    let mut params = start_params(id, argv);
    params["pipeStdin"] = json!(true);
    params
}

pub(crate) fn write_params(process: &str, write_id: &str, bytes: &[u8]) -> Value {
    json!({"processId": process, "writeId": write_id, "chunk": encode(bytes)})
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(bytes)
}

pub(crate) fn decode(text: &str) -> Vec<u8> {
    base64_simd::STANDARD.decode_to_vec(text).expect("base64")
}
