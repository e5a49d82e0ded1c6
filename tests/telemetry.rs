//! Traces and measurements: a subscriber and a recorder of the test's own hear what a host's would.
#![cfg(all(feature = "tracing", feature = "metrics", feature = "testing"))]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use longarm::config::{ClientConfig, ServerConfig};
use longarm::server::Server;
use longarm::telemetry::{Propagate, Propagation, TraceContext, current_trace, in_trace};
use longarm::testing::fake::FakeBackend;
use longarm::transport::{Transport as _, memory};
use longarm::{Environment, ExecRequest, ExitStatus, Remote};
use metrics::{Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

type Fields = BTreeMap<String, String>;

/// Keeps the fields of all spans of this crate, in the order in which they were opened, and within which one each was.
#[derive(Clone, Default)]
struct Subscriber {
    spans: Arc<Mutex<Vec<Fields>>>,
    entered: Arc<Mutex<Vec<span::Id>>>,
}

struct Fill<'a>(&'a mut Fields);

impl Visit for Fill<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl tracing::Subscriber for Subscriber {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "longarm"
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::from([("name".to_owned(), attributes.metadata().name().to_owned())]);
        attributes.record(&mut Fill(&mut fields));
        let mut spans = self.spans.lock().expect("no panic");
        if let Some(outer) = self.entered.lock().expect("no panic").last() {
            fields.insert("within".into(), outer.into_u64().to_string());
        }
        fields.insert("number".into(), (spans.len() + 1).to_string());
        spans.push(fields);
        span::Id::from_u64(spans.len() as u64)
    }

    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        let index = usize::try_from(span.into_u64()).expect("few") - 1;
        values.record(&mut Fill(&mut self.spans.lock().expect("no panic")[index]));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, span: &span::Id) {
        self.entered.lock().expect("no panic").push(span.clone());
    }

    fn exit(&self, span: &span::Id) {
        assert_eq!(self.entered.lock().expect("no panic").pop().as_ref(), Some(span));
    }
}

/// Keeps counts and samples by name and labels.
#[derive(Clone, Default)]
struct Recorder {
    counts: Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>,
    samples: Arc<Mutex<BTreeMap<String, Arc<Samples>>>>,
}

#[derive(Default)]
struct Samples(Mutex<Vec<f64>>);

impl HistogramFn for Samples {
    fn record(&self, value: f64) {
        self.0.lock().expect("no panic").push(value);
    }
}

struct Count(Arc<AtomicU64>);

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::SeqCst);
    }

    fn absolute(&self, value: u64) {
        self.0.store(value, Ordering::SeqCst);
    }
}

fn name_of(key: &Key) -> String {
    let labels: Vec<_> = key.labels().map(|label| label.value().to_owned()).collect();
    format!("{} {}", key.name(), labels.join(" "))
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let count = Arc::clone(self.counts.lock().expect("no panic").entry(name_of(key)).or_default());
        Counter::from_arc(Arc::new(Count(count)))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        panic!("{key} is not documented")
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::clone(self.samples.lock().expect("no panic").entry(name_of(key)).or_default()))
    }
}

impl Recorder {
    fn count(&self, name: &str) -> u64 {
        self.counts.lock().expect("no panic").get(name).map_or(0, |count| count.load(Ordering::SeqCst))
    }

    fn samples(&self, name: &str) -> Vec<f64> {
        let samples = self.samples.lock().expect("no panic").get(name).cloned().unwrap_or_default();
        samples.0.lock().expect("no panic").clone()
    }
}

/// Runs on one thread, where alone subscriber and recorder are.
fn heard(test: impl Future<Output = ()>) -> (Vec<Fields>, Recorder) {
    let (subscriber, recorder) = (Subscriber::default(), Recorder::default());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("built");
    let spans = Arc::clone(&subscriber.spans);
    tracing::subscriber::with_default(subscriber, || {
        metrics::with_local_recorder(&recorder, || runtime.block_on(test));
        // Its tasks end here.
        metrics::with_local_recorder(&recorder, || drop(runtime));
    });
    let spans = spans.lock().expect("no panic").clone();
    (spans, recorder)
}

fn spans_of<'a>(spans: &'a [Fields], side: &str, method: &str) -> Vec<&'a Fields> {
    spans.iter().filter(|span| span["side"] == side && span["method"] == method).collect()
}

async fn place(server: &Server) -> Environment {
    let (near, far) = memory::pair();
    let server = server.clone();
    tokio::spawn(async move { drop(server.serve(Box::new(far)).await) });
    Environment::connect(near, ClientConfig::default()).await.expect("connected")
}

fn fake() -> FakeBackend {
    FakeBackend::new(|_, _| async { ExitStatus::exited(0) })
}

#[test]
fn both_sides_have_a_span_for_a_call_and_the_trace_goes_through_two_machines() {
    let context = TraceContext::parse(PARENT, Some("a=b"));
    let seen = Arc::new(Mutex::new(None));
    let (spans, recorder) = heard(async {
        // A server whose place is behind another server.
        let backend = FakeBackend::new({
            let seen = Arc::clone(&seen);
            move |request, _| {
                *seen.lock().expect("no panic") = request.trace_context().cloned();
                async { ExitStatus::exited(0) }
            }
        });
        let far = place(&Server::new(Arc::new(backend))).await;
        let near = place(&Server::new(Arc::clone(far.backend()))).await;
        in_trace(context.clone(), async {
            near.status(ExecRequest::new(["program"]).cwd("/")).await.expect("it runs");
        })
        .await;
        assert_eq!(current_trace(), None);
        near.close().await;
        far.close().await;
    });
    let starts = [spans_of(&spans, "client", "process/start"), spans_of(&spans, "server", "process/start")].concat();
    assert_eq!(starts.len(), 4, "{spans:?}");
    assert!(starts.iter().all(|span| span["trace_id"] == TRACE && span["outcome"] == "ok"), "{starts:?}");
    assert!(starts.iter().all(|span| span["name"] == "exec_server.request"));
    // Each one is the child of the one before it: the host's, client, server, client, server.
    let mut parent = "b7ad6b7169203331".to_owned();
    for _ in 0..4 {
        let next = starts.iter().find(|span| span["parent_span_id"] == parent).expect("a child");
        parent.clone_from(&next["span_id"]);
    }
    // The backend of the nearer server, which is a client, starts within the span of the request.
    let within: Vec<_> = starts.iter().filter_map(|span| span.get("within")).collect();
    let nearer = spans_of(&spans, "server", "process/start");
    assert!(matches!(within[..], [outer] if *outer == nearer[0]["number"]), "{starts:?}");
    let seen = seen.lock().expect("no panic").clone().expect("a trace");
    assert_eq!((seen.trace_id(), seen.tracestate()), (TRACE, Some("a=b")));
    for side in ["client", "server"] {
        assert_eq!(recorder.count(&format!("exec_server_requests_total {side} process/start ok")), 2);
        let queue = format!("exec_server_request_queue_duration_seconds {side} process/start");
        assert_eq!(recorder.samples(&queue), [0.0, 0.0]);
    }
}

#[test]
fn a_call_without_a_trace_begins_one() {
    let (spans, _) = heard(async {
        let place = place(&Server::new(Arc::new(fake()))).await;
        place.remote().expect("remote").status().await.expect("alive");
        place.close().await;
    });
    let (client, server) =
        (spans_of(&spans, "client", "environment/status"), spans_of(&spans, "server", "environment/status"));
    assert_eq!((client.len(), server.len()), (1, 1), "{spans:?}");
    assert_eq!(client[0]["trace_id"], server[0]["trace_id"]);
    assert_eq!(client[0]["span_id"], server[0]["parent_span_id"]);
    assert!(!client[0].contains_key("parent_span_id"));
}

/// Keeps traces by ids of its own, in the order in which spans began.
#[derive(Clone, Default)]
struct OwnTraces {
    parents: Arc<Mutex<Vec<Option<String>>>>,
}

impl Propagate for OwnTraces {
    fn adopt(&self, span: &tracing::Span, trace: Option<&TraceContext>) -> Option<TraceContext> {
        assert!(!span.is_disabled());
        let mut parents = self.parents.lock().expect("no panic");
        parents.push(trace.map(|trace| trace.span_id().to_owned()));
        TraceContext::parse(&format!("00-{TRACE}-{:016x}-01", parents.len()), None)
    }
}

#[test]
fn a_host_ties_spans_to_traces_that_it_keeps_itself() {
    let own = OwnTraces::default();
    let seen = Arc::new(Mutex::new(None));
    let (spans, _) = heard(async {
        let backend = FakeBackend::new({
            let seen = Arc::clone(&seen);
            move |request, _| {
                *seen.lock().expect("no panic") = request.trace_context().cloned();
                async { ExitStatus::exited(0) }
            }
        });
        let propagation = Propagation::new(own.clone());
        let (mut client, mut config) = (ClientConfig::default(), ServerConfig::default());
        client.propagation = Some(propagation.clone());
        config.propagation = Some(propagation);
        let server = Server::builder(Arc::new(backend)).config(config).build();
        let (near, far) = memory::pair();
        tokio::spawn(async move { drop(server.serve(Box::new(far)).await) });
        let place = Environment::connect(near, client).await.expect("connected");
        let _process = place.spawn(ExecRequest::new(["program"]).cwd("/")).await.expect("it runs");
    });
    let parents = own.parents.lock().expect("no panic").clone();
    // What the client does within its span is the server's span, within which the backend is asked.
    let ids = ["0000000000000001", "0000000000000002"];
    assert_eq!(parents[..2], [None, Some(ids[0].to_owned())]);
    assert_eq!(
        seen.lock().expect("no panic").as_ref().map(|trace| trace.span_id().to_owned()).as_deref(),
        Some(ids[1])
    );
    for (side, id) in ["client", "server"].into_iter().zip(ids) {
        let starts = spans_of(&spans, side, "process/start");
        assert!(matches!(starts[..], [start] if start["span_id"] == id && start["trace_id"] == TRACE), "{starts:?}");
    }
}

/// A peer of which every message is written out.
struct Peer {
    outgoing: Box<dyn longarm::transport::Outgoing>,
    incoming: Box<dyn longarm::transport::Incoming>,
}

impl Peer {
    fn new() -> (memory::MemoryTransport, Self) {
        let (near, far) = memory::pair();
        let (outgoing, incoming) = Box::new(far).split();
        (near, Self { outgoing, incoming })
    }

    async fn hear(&mut self) -> Value {
        let message = self.incoming.next().await.expect("a message").expect("no error");
        serde_json::from_slice(&message).expect("JSON")
    }

    async fn say(&mut self, message: Value) {
        self.outgoing.send(Bytes::from(message.to_string())).await.expect("said");
    }
}

#[test]
fn queueing_is_measured_from_the_call_to_the_transport_and_outcomes_are_told_apart() {
    let (spans, recorder) = heard(async {
        let (near, mut peer) = Peer::new();
        let remote = Remote::connect_pipelined(Box::new(near), ClientConfig::default());
        let initialize = peer.hear().await;
        peer.hear().await;
        // It depends on what the peer says, and waits for that.
        let context = TraceContext::parse(PARENT, None);
        let listing = tokio::spawn({
            let remote = remote.clone();
            in_trace(context, async move { remote.list_processes().await })
        });
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let info = json!({
            "shell": {"name": "sh", "path": "/bin/sh"},
            "capabilities": {"longarm": {"version": 1, "features": ["list"]}},
        });
        peer.say(json!({"id": initialize["id"], "result": {"sessionId": "s", "environmentInfo": info}})).await;
        let list = peer.hear().await;
        assert_eq!(list["method"], "longarm/process/list");
        assert_eq!(list["trace"]["traceparent"].as_str().and_then(|text| text.get(3..35)), Some(TRACE));
        peer.say(json!({"id": list["id"], "error": {"code": -32603, "message": "no"}})).await;
        listing.await.expect("no panic").expect_err("refused");
        // In flight when the connection breaks.
        let status = tokio::spawn({
            let remote = remote.clone();
            async move { remote.status().await }
        });
        peer.hear().await;
        drop(peer);
        status.await.expect("no panic").expect_err("disconnected");
    });
    let list = "longarm/process/list";
    let queue = format!("exec_server_request_queue_duration_seconds client {list}");
    let samples = recorder.samples(&queue);
    assert!(matches!(samples[..], [waited] if (3.0..3.1).contains(&waited)), "{samples:?}");
    assert_eq!(recorder.count(&format!("exec_server_requests_total client {list} error")), 1);
    assert_eq!(recorder.count("exec_server_requests_total client environment/status disconnected"), 1);
    assert_eq!(spans_of(&spans, "client", "environment/status")[0]["outcome"], "disconnected");
}

#[test]
fn a_client_cannot_make_labels_up() {
    let (spans, recorder) = heard(async {
        let server = Server::new(Arc::new(fake()));
        let (near, mut peer) = Peer::new();
        let serving = tokio::spawn(async move { drop(server.serve(Box::new(near)).await) });
        peer.say(json!({"id": 1, "method": "initialize", "params": {"clientName": "c"}})).await;
        peer.hear().await;
        peer.say(json!({"method": "initialized", "params": {}})).await;
        for number in 2..50 {
            let trace = json!({"traceparent": "not one at all"});
            peer.say(json!({"id": number, "method": format!("made/up{number}"), "params": {}, "trace": trace})).await;
            peer.hear().await;
        }
        drop(peer);
        serving.await.expect("no panic");
    });
    assert_eq!(recorder.count("exec_server_requests_total server other error"), 48);
    assert_eq!(recorder.counts.lock().expect("no panic").len(), 1);
    assert_eq!(spans_of(&spans, "server", "other").len(), 48);
}
