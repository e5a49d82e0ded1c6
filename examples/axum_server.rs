//! An executor that dials its host.
//!
//! The host is an axum server: its handler decides who may connect, and hands each socket over. When the executor comes back
//! over another socket, the session goes on.

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use longarm::config::ClientConfig;
use longarm::server::Server;
use longarm::transport::axum::Upgrade;
use longarm::transport::websocket::{self, ConnectOptions, WebSocketTransport};
use longarm::{CollectLimits, Environment, ExecRequest, Local, LocalConfig, Stdin};
use tokio::sync::mpsc;

const TOKEN: &str = "the executor's token";

async fn accept(
    State(sockets): State<mpsc::Sender<WebSocketTransport>>,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    if headers.get("authorization").is_none_or(|token| token != &format!("Bearer {TOKEN}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let (response, accepted) = upgrade.peer("the executor").accept();
    tokio::spawn(async move {
        if let Ok(socket) = accepted.await {
            // If the host is gone, so is the socket.
            let _ = sockets.send(socket).await;
        }
    });
    response
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (sender, mut sockets) = mpsc::channel(1);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("ws://{}", listener.local_addr()?);
    let app = Router::new().route("/", get(accept)).with_state(sender);
    let host = tokio::spawn(async move { axum::serve(listener, app).await });

    // The executor, here in the same program.
    let executor = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
    let dial = || async {
        let transport = websocket::connect(&url, &ConnectOptions::new().bearer_token(TOKEN)).await?;
        let executor = executor.clone();
        tokio::spawn(async move { executor.serve(Box::new(transport)).await });
        Ok::<_, Box<dyn Error>>(())
    };
    dial().await?;
    let place = Environment::accepted(sockets.recv().await.ok_or("no socket")?, ClientConfig::default());
    let process = place.spawn(ExecRequest::new(["cat"]).stdin(Stdin::Piped)).await?;
    process.write("before, ").await?;

    // It comes back over another socket.
    dial().await?;
    let replacement =
        place.remote().ok_or("not remote")?.replace(Box::new(sockets.recv().await.ok_or("no socket")?))?;
    println!("the other socket is {}", replacement.outcome().await);
    process.write("and after\n").await?;
    process.close_stdin().await?;
    print!("{}", process.output(CollectLimits::default()).await?.stdout.to_text());
    place.close().await;
    host.abort();
    Ok(())
}
