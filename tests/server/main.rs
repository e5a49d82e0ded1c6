//! The server, spoken to message by message over memory.

mod client;
mod processes;

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
