//! What only real connections show.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use longarm::config::{MessageLimits, ServerConfig};
use longarm::server::{Server, serve_websocket};
use longarm::transport::websocket::{ConnectOptions, ListenOptions, Listener, connect};
use serde_json::json;

use crate::client::{PATIENCE, RawClient};
use crate::server_with;

/// Serves until the returned sender is dropped.
async fn serve(server: &Server) -> (String, tokio::sync::oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ListenOptions::new()).await.unwrap();
    let url = listener.local_url();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = server.clone();
    let serving = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        serve_websocket(&server, listener, stopped).await.unwrap();
    });
    (url, stop, serving)
}

async fn open(url: &str) -> RawClient {
    let options = ConnectOptions::new().limits(MessageLimits::default());
    RawClient::over(Box::new(connect(url, &options).await.unwrap()))
}

const LIMIT: Duration = Duration::from_secs(2);

/// A client that takes nothing any more is gone, though its answers keep the server from reading.
#[tokio::test]
async fn a_client_that_takes_none_of_its_answers_is_given_up() {
    let mut config = ServerConfig::default();
    config.keepalive.ping_interval = Duration::from_millis(100);
    // Long enough that a client which does read is not given up because this program has to wait for its turn.
    config.keepalive.silence_limit = LIMIT;
    let server = server_with(config);
    let (url, stop, serving) = serve(&server).await;
    let mut client = open(&url).await;
    client.initialize(None, &[]).await.unwrap();
    client.start("p", &["head", "-c", "1000000", "/dev/zero"]).await;
    client.event("process/closed", "p").await;
    let begin = std::time::Instant::now();
    // More than all buffers on the way take: the server stops reading with answers in its hands.
    for _ in 0..64 {
        client.request("process/read", json!({"processId": "p"})).await;
    }
    while server.counts().attached > 0 {
        assert!(begin.elapsed() < PATIENCE, "the session is still attached");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(begin.elapsed() >= LIMIT);
    drop((client, stop));
    serving.await.unwrap();
}

#[tokio::test]
async fn connections_that_are_one_too_many_do_not_pile_up() {
    let mut config = ServerConfig::default();
    config.max_connections = 1;
    let server = server_with(config);
    let (url, stop, serving) = serve(&server).await;
    let mut first = open(&url).await;
    first.initialize(None, &[]).await.unwrap();
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    // They are upgraded, and then do not take part in closing.
    let mut others = Vec::new();
    for _ in 0..100 {
        others.push(open(&url).await);
        assert!(tokio::runtime::Handle::current().metrics().num_alive_tasks() <= before + 64 + 16);
    }
    assert_eq!(first.call("environment/status", json!({})).await["status"], "ready");
    drop((others, first, stop));
    serving.await.unwrap();
}
