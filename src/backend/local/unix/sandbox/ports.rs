//! Loopback ports of the executor, as a sandboxed process has them.
//!
//! What listens on such a port inside belongs to the executor, which passes each connection on to the same port outside.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
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
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        for (port, listener) in listeners {
            let listener = std::net::TcpListener::from(listener);
            listener.set_nonblocking(true)?;
            tasks.spawn(forward(TcpListener::from_std(listener)?, port, Arc::clone(&room)));
        }
        Ok(Self { _tasks: tasks })
    }
}

async fn forward(listener: TcpListener, port: u16, room: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((inside, _)) => {
                    // Those behind it wait in the listener's queue. A port to which nobody connects takes no room.
                    let room = Arc::clone(&room).acquire_owned().await;
                    connections.spawn(async move {
                        pass(inside, port).await;
                        drop(room);
                    });
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

/// How many connections a sandbox may have at a time, all ports together. Each takes two descriptors of the executor, which
/// has to serve others too.
const MAX_CONNECTIONS: usize = 256;
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::testing::patience::within;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn ports_to_which_nobody_connects_take_no_room_from_others() {
        let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = outside.local_addr().unwrap().port();
        let room = Arc::new(Semaphore::new(1));
        let (mut addresses, mut forwarding) = (Vec::new(), JoinSet::new());
        for _ in 0..3 {
            let inside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            addresses.push(inside.local_addr().unwrap());
            forwarding.spawn(forward(inside, port, Arc::clone(&room)));
        }
        // The last first: the others have been waiting for longer.
        for address in addresses.into_iter().rev() {
            let client = TcpStream::connect(address).await.unwrap();
            let (mut server, _) = within(PATIENCE, outside.accept()).await.unwrap().unwrap();
            drop(client);
            within(PATIENCE, server.read(&mut [0; 1])).await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_wait_until_others_end() {
        let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = outside.local_addr().unwrap().port();
        let inside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = inside.local_addr().unwrap();
        let room = Arc::new(Semaphore::new(2));
        let forwarding = tokio::spawn(forward(inside, port, Arc::clone(&room)));
        let accept = || within(PATIENCE, outside.accept());
        let mut clients = Vec::new();
        for number in 0..3 {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_u8(number).await.unwrap();
            clients.push(client);
        }
        let (mut first, _) = accept().await.unwrap().unwrap();
        let (_second, _) = accept().await.unwrap().unwrap();
        assert_eq!(room.available_permits(), 0, "the third waits");
        // One ends, whichever came first, from outside and by its client; then the third has its turn.
        let number = within(PATIENCE, first.read_u8()).await.unwrap().unwrap();
        drop(first);
        let mut ended = clients.remove(usize::from(number));
        within(PATIENCE, ended.read(&mut [0; 1])).await.unwrap().unwrap();
        drop(ended);
        accept().await.unwrap().unwrap();
        forwarding.abort();
    }
}
