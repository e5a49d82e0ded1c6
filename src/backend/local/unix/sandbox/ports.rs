//! Loopback ports of the executor, as a sandboxed process has them.
//!
//! What listens on such a port inside belongs to the executor, which passes each connection on to the same port outside.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The tasks that pass connections on. They end with this.
#[derive(Debug, Default)]
pub(in crate::backend::local::unix) struct Forwarders {
    /// Dropping the set ends the tasks.
    _tasks: JoinSet<()>,
}

impl Forwarders {
    /// Must be called within a runtime.
    pub(in crate::backend::local::unix) fn new(listeners: Vec<(u16, OwnedFd)>) -> io::Result<Self> {
        let mut tasks = JoinSet::new();
        for (port, listener) in listeners {
            let listener = std::net::TcpListener::from(listener);
            listener.set_nonblocking(true)?;
            tasks.spawn(forward(TcpListener::from_std(listener)?, port));
        }
        Ok(Self { _tasks: tasks })
    }
}

async fn forward(listener: TcpListener, port: u16) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((inside, _)) => {
                    connections.spawn(pass(inside, port));
                }
                // Out of descriptors, or a connection that was given up: the next one may be better.
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Passes one connection on, until either side has ended it.
async fn pass(mut inside: TcpStream, port: u16) {
    let outside = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // Nobody listens: the process sees a connection that ends at once.
    let Ok(mut outside) = TcpStream::connect(outside).await else { return };
    // Small requests are not to wait for larger ones; without it they only do.
    drop(inside.set_nodelay(true));
    drop(outside.set_nodelay(true));
    // Whatever ends it, both sides see their connection end.
    drop(tokio::io::copy_bidirectional(&mut inside, &mut outside).await);
}

const PAUSE: Duration = Duration::from_millis(10);
