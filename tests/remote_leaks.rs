//! What many processes leave behind in a client, a server and its session: no task, descriptor, child or memory.
//!
//! One test in a program of its own: it counts what the whole process has.
#![cfg(all(target_os = "linux", feature = "websocket"))]

#[path = "../src/testing/patience.rs"]
mod patience;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use longarm::config::{ClientConfig, ServerConfig};
use longarm::server::{Server, serve_websocket};
use longarm::transport::memory;
use longarm::transport::websocket::{ConnectOptions, ListenOptions, Listener, WebSocketConnector};
use longarm::{Environment, ExecRequest, Local, LocalConfig};

use self::patience::Patience;

/// Generous: it only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the server keeps what has ended.
const RETENTION: Duration = Duration::from_millis(200);

#[derive(Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
    children: usize,
    tasks: usize,
}

fn held() -> Held {
    // A kernel can be built without it.
    assert!(std::path::Path::new("/proc/thread-self/children").exists(), "children cannot be counted");
    let count = |dir: &str| std::fs::read_dir(dir).unwrap().count();
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let children = threads
        .map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap_or_default())
        .map(|children| children.split_whitespace().count())
        .sum();
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    Held { descriptors: count("/proc/self/fd"), threads: count("/proc/self/task"), children, tasks }
}

/// Waits until nothing more is held than before: the ends of tasks and threads tell nobody.
async fn until_held(expected: &Held, when: &str) {
    let mut patience = Patience::new(PATIENCE);
    while held() != *expected {
        assert!(patience.is_left(), "{when}: {:?} instead of {expected:?}", held());
        patience.sleep(Duration::from_millis(5)).await;
    }
}

/// Resident memory that no file backs, in KiB.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn server() -> Server {
    let mut config = ServerConfig::default();
    config.closed_retention = RETENTION;
    config.session_ttl = RETENTION;
    Server::builder(Arc::new(Local::new(LocalConfig::from_host()))).config(config).build()
}

async fn run(environment: &Environment, number: usize) {
    let request = ExecRequest::new(["sh", "-c", "head -c 20000 /dev/zero; echo err >&2; exit 3"]);
    let output = environment.output(request.cwd("/tmp")).await.unwrap_or_else(|error| panic!("{number}: {error}"));
    assert_eq!((output.status.code(), output.stdout.total_bytes), (Some(3), 20_000));
}

/// A thousand in a row and three hundred at once; then the same again, which takes no more memory.
async fn work(environment: &Environment) {
    for number in 0..1_000 {
        run(environment, number).await;
    }
    drop(join_all((0..300).map(|number| run(environment, number))).await);
    // A first time for what grows once only.
    let before = memory_kib();
    drop(join_all((0..300).map(|number| run(environment, number))).await);
    let grown = memory_kib().saturating_sub(before);
    // With what is retained for a moment: 20 KB for each of them.
    assert!(grown < 24 << 10, "{grown} KiB more after the same work");
}

#[tokio::test]
async fn nothing_is_left_behind() {
    let before = held();

    let server_over_memory = server();
    let (near, far) = memory::pair();
    let serving = tokio::spawn({
        let server = server_over_memory.clone();
        async move { server.serve(Box::new(far)).await }
    });
    let environment = Environment::connect(near, ClientConfig::default()).await.unwrap();
    work(&environment).await;
    environment.close().await;
    serving.await.unwrap().unwrap();
    server_over_memory.shutdown().await;
    drop((environment, server_over_memory));
    until_held(&before, "after the work over memory").await;

    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), ListenOptions::new()).await.unwrap();
    let connector = WebSocketConnector::new(listener.local_url(), ConnectOptions::new());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let server = server();
        serve_websocket(&server, listener, async move { drop(stopped.await) }).await
    });
    let environment = Environment::connect_with(&connector, ClientConfig::default()).await.unwrap();
    work(&environment).await;
    environment.close().await;
    drop(environment);
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
    until_held(&before, "after the work over a WebSocket").await;
}
