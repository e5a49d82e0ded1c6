//! The server, spoken to message by message over memory.

mod backends;
mod client;
#[cfg(target_os = "linux")]
mod codex_client;
mod cuts;
mod ends;
mod files;
mod hostile;
mod http;
mod load;
mod order;
mod pacing;
mod pings;
mod processes;
mod sessions;
mod sockets;
mod transcripts;

use std::sync::Arc;

use longarm::config::ServerConfig;
use longarm::server::Server;
use longarm::{Local, LocalConfig};

fn server() -> Server {
    server_with(ServerConfig::default())
}

fn server_with(config: ServerConfig) -> Server {
    Server::builder(Arc::new(Local::new(LocalConfig::from_host()))).config(config).build()
}
