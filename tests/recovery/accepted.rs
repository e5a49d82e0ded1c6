//! An executor that dials its host: a real axum server accepts it, and hands every later connection over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use longarm::backend::remote::ConnectionState;
use longarm::config::ClientConfig;
use longarm::error::ConnectError;
use longarm::event::Event;
use longarm::server::Server;
use longarm::transport::axum::Upgrade;
use longarm::transport::websocket::{self, ConnectOptions, WebSocketTransport};
use longarm::transport::{ReplaceError, ReplaceOutcome};
use longarm::{CollectLimits, Environment, ExecRequest, Local, LocalConfig, Stdin};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::proxy::Proxy;
use crate::support::{Random, check_pattern, generation_of, pattern, soon};

const TOKEN: &str = "let me in";

/// A host: an axum server whose handler lets in whoever has the token, and hands the sockets to the test.
struct Host {
    url: String,
    sockets: mpsc::Receiver<WebSocketTransport>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Host {
    async fn start() -> Self {
        let (sender, sockets) = mpsc::channel(1);
        let app = Router::new().route("/", any(handler)).with_state(sender);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let url = format!("ws://{}", listener.local_addr().expect("bound"));
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let serving = axum::serve(listener, app).with_graceful_shutdown(async { drop(stopped.await) });
            serving.await.expect("it serves");
        });
        Self { url, sockets, stop, task }
    }

    async fn stop(self) {
        drop(self.sockets);
        drop(self.stop);
        soon(self.task).await.expect("it ends well");
    }
}

async fn handler(
    State(sockets): State<mpsc::Sender<WebSocketTransport>>,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    if headers.get("authorization").is_none_or(|token| token != &format!("Bearer {TOKEN}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let (response, accepted) = upgrade.peer("an executor").accept();
    tokio::spawn(async move {
        if let Ok(transport) = accepted.await {
            // The test may be over.
            let _ = sockets.send(transport).await;
        }
    });
    response
}

fn executor() -> Server {
    Server::new(Arc::new(Local::new(LocalConfig::from_host())))
}

/// Dials again whenever its connection ends.
fn dial_for_ever(server: Server, url: String) -> JoinHandle<()> {
    let options = ConnectOptions::new().bearer_token(TOKEN);
    tokio::spawn(async move {
        loop {
            if let Ok(transport) = websocket::connect(&url, &options).await {
                // The next connection is what matters.
                let _ = server.serve(Box::new(transport)).await;
            }
            tokio::task::yield_now().await;
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_directions_live_through_sockets_that_break_at_random() {
    const CUTS: usize = 60;
    let mut host = Host::start().await;
    // Two of three may be cut in their handshake; each third one carries data first.
    let (mut random, mut count) = (Random::new(), 0);
    let budget = move || {
        count += 1;
        if count % 3 == 0 { (128 << 10) + random.below(1 << 20) } else { random.below(1 << 16) }
    };
    let proxy = Arc::new(Proxy::with_budgets(&host.url, CUTS, budget).await);
    let dialling = dial_for_ever(executor(), proxy.url.clone());
    let first = soon(host.sockets.recv()).await.expect("a socket");
    let place = Environment::accepted(first, ClientConfig::default());
    // The host: whenever the executor dials, it hands the socket over.
    let (sender, mut sockets) = (place.remote().expect("remote").clone(), host.sockets);
    let host_sockets = tokio::spawn(async move {
        let mut installed = 0_u64;
        while let Some(socket) = sockets.recv().await {
            match sender.replace(Box::new(socket)) {
                Ok(replacement) => match replacement.outcome().await {
                    ReplaceOutcome::Installed => installed += 1,
                    ReplaceOutcome::Failed => {}
                    _ => break,
                },
                // The test is at its end.
                Err(ReplaceError::Closed { .. }) => break,
                Err(error) => panic!("one at a time: {error}"),
            }
        }
        installed
    });
    // The first connection may break in its handshake; then it goes over the next one.
    soon(place.wait_until_ready()).await.expect("a session");
    let process = soon(async {
        loop {
            match place.spawn(ExecRequest::new(["cat"]).stdin(Stdin::Piped)).await {
                Ok(process) => break process,
                Err(error) => assert!(matches!(error, longarm::error::SpawnError::Disconnected(_)), "{error}"),
            }
        }
    })
    .await;
    let written = Arc::new(AtomicU64::new(0));
    let writer = tokio::spawn({
        let (proxy, written, handle) = (Arc::clone(&proxy), Arc::clone(&written), process.handle());
        async move {
            while proxy.cuts_made() < CUTS {
                let offset = written.load(Ordering::SeqCst);
                handle.write(pattern(offset, 50_000)).await.expect("a write lives through cuts");
                written.store(offset + 50_000, Ordering::SeqCst);
            }
            handle.close_stdin().await.expect("so does the end of input");
        }
    });
    let mut process = process;
    let mut read = 0;
    while let Some(event) = soon(process.next_event()).await.expect("events live through cuts") {
        match event {
            Event::Output(output) => {
                check_pattern(read, &output.bytes);
                read += output.bytes.len() as u64;
            }
            Event::Gap(gap) => panic!("{gap:?}"),
            _ => {}
        }
    }
    soon(writer).await.expect("the writer ends");
    assert_eq!(read, written.load(Ordering::SeqCst));
    // The last cut may be noticed by the executor first, whose next socket takes the place of one that seems to stand.
    let generation = generation_of(&place).await;
    assert!(generation > 5, "{generation}");
    soon(place.close()).await;
    dialling.abort();
    drop(proxy);
    drop(host.stop);
    soon(host.task).await.expect("the host ends well");
    let installed = soon(host_sockets).await.expect("no panic");
    assert!(installed > 5, "{installed}");
}

#[tokio::test]
async fn a_connected_place_takes_another_socket_and_refuses_a_second_one_meanwhile() {
    let mut host = Host::start().await;
    let (server, options) = (executor(), ConnectOptions::new().bearer_token(TOKEN));
    let serve = |transport| {
        let server = server.clone();
        tokio::spawn(async move { drop(server.serve(Box::new(transport)).await) })
    };
    serve(websocket::connect(&host.url, &options).await.expect("accepted"));
    let place = Environment::accepted(host.sockets.recv().await.expect("a socket"), ClientConfig::default());
    let process = soon(place.spawn(ExecRequest::new(["cat"]).stdin(Stdin::Piped))).await.expect("it starts");
    assert_eq!(place.remote().expect("remote").peer(), "an executor");
    let remote = place.remote().expect("remote");
    // These two have nobody who serves them yet, so that the first is on its way while the second comes.
    let far = websocket::connect(&host.url, &options).await.expect("accepted");
    let near = host.sockets.recv().await.expect("a socket");
    let replacement = remote.replace(Box::new(near)).expect("taken");
    let _other = websocket::connect(&host.url, &options).await.expect("accepted");
    let other = host.sockets.recv().await.expect("a socket");
    assert_eq!(remote.replace(Box::new(other)).expect_err("one at a time"), ReplaceError::Overlapping);
    serve(far);
    assert_eq!(soon(replacement.outcome()).await, ReplaceOutcome::Installed);
    process.write("over the second socket\n").await.expect("written");
    process.close_stdin().await.expect("closed");
    let output = soon(process.output(CollectLimits::default())).await.expect("it ends");
    assert_eq!(output.stdout.to_text(), "over the second socket\n");
    let state = place.connection().map(|watch| watch.state());
    assert_eq!(state, Some(ConnectionState::Connected { generation: 2, session: 1 }));
    soon(place.close()).await;
    drop(place);
    host.stop().await;
}

#[tokio::test]
async fn who_is_not_let_in_hears_so() {
    let host = Host::start().await;
    let error = websocket::connect(&host.url, &ConnectOptions::new()).await.expect_err("no token");
    assert!(matches!(error, ConnectError::Refused { status: 401, .. }), "{error}");
    for (request, status) in [
        ("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n", "405 "),
        ("GET / HTTP/1.1\r\nhost: h\r\n", "400 "),
        (
            "GET / HTTP/1.1\r\nhost: h\r\norigin: http://h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            "403 ",
        ),
        (
            "GET / HTTP/1.0\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            "426 ",
        ),
        (
            "GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 8\r\n",
            "400 ",
        ),
        (
            "GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n",
            "400 ",
        ),
    ] {
        let address = host.url.trim_start_matches("ws://");
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("connected");
        let close = if request.contains("upgrade") { "" } else { "connection: close\r\n" };
        stream.write_all(format!("{request}{close}\r\n").as_bytes()).await.expect("written");
        let mut head = [0; 12];
        soon(stream.read_exact(&mut head)).await.expect("an answer");
        let head = String::from_utf8_lossy(&head).into_owned();
        assert!(head.ends_with(status.trim()), "{request}: {head}");
    }
    host.stop().await;
}
