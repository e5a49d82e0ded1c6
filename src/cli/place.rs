//! Where commands run and files are.

use std::sync::Arc;

use longarm::Environment;
use longarm::backend::local::{Local, LocalConfig};
use longarm::config::ClientConfig;
use longarm::error::ConnectError;
use longarm::sandbox::SandboxSettings;
use longarm::transport::Transport;
use longarm::transport::stdio::StdioServer;
use longarm::transport::websocket::{self, ConnectOptions, WebSocketTransport};

use super::args::PlaceArgs;
use super::explain;
use super::throttle::{Gate, Throttled};

/// Output held while nobody takes it, such as what the reference sends before its response to the start.
const HELD_BYTES: usize = 4 << 20;

/// A place, and the gate of its connection, which is open.
pub(super) async fn connect(args: &PlaceArgs) -> Result<(Environment, Gate), String> {
    connect_with(args, SandboxSettings::default()).await
}

/// The same; if it is this machine, its sandboxes are made by these settings.
pub(super) async fn connect_with(args: &PlaceArgs, sandbox: SandboxSettings) -> Result<(Environment, Gate), String> {
    let gate = Gate::default();
    let environment = match (&args.connect, &args.stdio) {
        (Some(url), _) => attach(dial(url, args).await?, &gate).await,
        (None, Some(command)) => attach(StdioServer::shell(command).launch(), &gate).await,
        (None, None) => {
            let config = LocalConfig::from_host().end_with_executor(true).sandbox(sandbox);
            Ok(Environment::with_backend(Arc::new(Local::new(config))))
        }
    };
    Ok((environment.map_err(|error| explain(&error))?, gate))
}

async fn attach<T: Transport>(dialled: Result<T, ConnectError>, gate: &Gate) -> Result<Environment, ConnectError> {
    let transport = Throttled { transport: dialled?, gate: gate.clone() };
    let mut config = ClientConfig::default();
    config.output.retained_bytes = HELD_BYTES;
    Environment::connect(transport, config).await
}

async fn dial(url: &str, args: &PlaceArgs) -> Result<Result<WebSocketTransport, ConnectError>, String> {
    let mut options = ConnectOptions::new();
    if let Some(path) = &args.auth_token_file {
        let token =
            std::fs::read_to_string(path).map_err(|error| format!("cannot read token file {path:?}: {error}"))?;
        options = options.bearer_token(token.trim());
    }
    Ok(websocket::connect(url, &options).await)
}
