//! The place under test: this machine behind our own server, over a connection of its own for each call.

use std::sync::Arc;

use longarm::config::ClientConfig;
use longarm::fs::FileSystem;
use longarm::server::Server;
use longarm::transport::memory;
use longarm::{ExecBackend as _, Local, LocalConfig, Remote};

pub(crate) fn files() -> Arc<dyn FileSystem> {
    let (near, far) = memory::pair();
    let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
    // It ends with the connection, or with the runtime of the test.
    tokio::spawn(async move { server.serve(Box::new(far)).await });
    Remote::connect_pipelined(Box::new(near), ClientConfig::default()).fs().expect("a remote place has files")
}

pub(crate) fn place() -> Arc<dyn FileSystem> {
    files()
}
