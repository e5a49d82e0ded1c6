//! Where the command runs.

use std::sync::Arc;

use longarm::Environment;
use longarm::backend::local::{Local, LocalConfig};
use longarm::config::ClientConfig;
use longarm::error::ConnectError;
use longarm::transport::Transport;
use longarm::transport::stdio::StdioServer;
use longarm::transport::websocket::{self, ConnectOptions, WebSocketTransport};

use super::Failure;
use super::throttle::{Gate, Throttled};
use crate::cli::args::ExecArgs;
use crate::cli::explain;

/// A place, and the gate of its connection.
pub(super) async fn connect(args: &ExecArgs) -> Result<(Environment, Gate), Failure> {
    let gate = Gate::default();
    let environment = match (&args.connect, &args.stdio) {
        (Some(url), _) => attach(dial(url, args).await?, &gate).await,
        (None, Some(command)) => attach(StdioServer::shell(command).launch(), &gate).await,
        (None, None) => {
            let config = LocalConfig::from_host().end_with_executor(true);
            Ok(Environment::with_backend(Arc::new(Local::new(config))))
        }
    };
    let environment = environment.map_err(|error| Failure::Reason(explain(&error)))?;
    if !environment.features().credits {
        gate.activate();
    }
    Ok((environment, gate))
}

async fn attach<T: Transport>(dialled: Result<T, ConnectError>, gate: &Gate) -> Result<Environment, ConnectError> {
    let transport = Throttled { transport: dialled?, gate: gate.clone() };
    Environment::connect(transport, ClientConfig::default()).await
}

async fn dial(url: &str, args: &ExecArgs) -> Result<Result<WebSocketTransport, ConnectError>, Failure> {
    let mut options = ConnectOptions::new();
    if let Some(path) = &args.auth_token_file {
        let token = std::fs::read_to_string(path)
            .map_err(|error| Failure::Reason(format!("cannot read token file {path:?}: {error}")))?;
        options = options.bearer_token(token.trim());
    }
    Ok(websocket::connect(url, &options).await)
}
