//! Where the command runs.

use std::sync::Arc;

use longarm::Environment;
use longarm::backend::local::{Local, LocalConfig};
use longarm::config::ClientConfig;
use longarm::error::ConnectError;
use longarm::transport::stdio::StdioServer;
use longarm::transport::websocket::{self, ConnectOptions};

use super::Failure;
use crate::cli::args::ExecArgs;
use crate::cli::explain;

pub(super) async fn connect(args: &ExecArgs) -> Result<Environment, Failure> {
    let connected = match (&args.connect, &args.stdio) {
        (Some(url), _) => connect_url(url, args).await?,
        (None, Some(command)) => match StdioServer::shell(command).launch() {
            Ok(server) => Environment::connect(server, ClientConfig::default()).await,
            Err(error) => Err(error),
        },
        (None, None) => {
            let config = LocalConfig::from_host().end_with_executor(true);
            Ok(Environment::with_backend(Arc::new(Local::new(config))))
        }
    };
    connected.map_err(|error| Failure::Reason(explain(&error)))
}

async fn connect_url(url: &str, args: &ExecArgs) -> Result<Result<Environment, ConnectError>, Failure> {
    let mut options = ConnectOptions::new();
    if let Some(path) = &args.auth_token_file {
        let token = std::fs::read_to_string(path)
            .map_err(|error| Failure::Reason(format!("cannot read token file {path:?}: {error}")))?;
        options = options.bearer_token(token.trim());
    }
    Ok(match websocket::connect(url, &options).await {
        Ok(transport) => Environment::connect(transport, ClientConfig::default()).await,
        Err(error) => Err(error),
    })
}
