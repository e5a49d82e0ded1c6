//! Both ends of a WebSocket: a server that asks for a token, and a client that shows it.
//! The server's half would run on the other machine; `longarm serve` is that half as a program. The token travels in the
//! clear, so between machines put a tunnel around it.

use std::error::Error;
use std::sync::Arc;

use longarm::backend::local::{Local, LocalConfig};
use longarm::config::{ClientConfig, ServerConfig};
use longarm::error::ConnectError;
use longarm::server::{Server, serve_websocket};
use longarm::transport::websocket::{self, CapabilityToken, ConnectOptions, ListenOptions, Listener};
use longarm::{CollectLimits, Environment, ExecRequest};
use tokio::sync::oneshot;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // The far end. It serves until `stop` is dropped; then its processes end and its connections close.
    let options = ListenOptions::new().token(CapabilityToken::new("open-sesame")?);
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), options).await?;
    let url = listener.local_url();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let local = Arc::new(Local::new(LocalConfig::from_host()));
        let server = Server::builder(local).config(ServerConfig::default()).build();
        serve_websocket(&server, listener, async { drop(stopped.await) }).await
    });

    // The near end. Without the token there is a typed refusal.
    match websocket::connect(&url, &ConnectOptions::new()).await {
        Err(ConnectError::Refused { status, reason, .. }) => println!("without a token: {status} {reason}"),
        other => return Err(format!("let in without a token: {other:?}").into()),
    }
    let transport = websocket::connect(&url, &ConnectOptions::new().bearer_token("open-sesame")).await?;
    let env = Environment::connect(transport, ClientConfig::default()).await?;
    let process = env.spawn(ExecRequest::new(["uname", "-s"])).await?;
    let output = process.output(CollectLimits::default()).await?;
    print!("with a token: {}", output.stdout.to_text());
    env.close().await;

    drop(stop);
    serving.await??;
    if !output.status.success() {
        return Err(format!("the command failed: {}", output.status).into());
    }
    Ok(())
}
