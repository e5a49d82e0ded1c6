//! Cuts the link at random, many times, while a command streams in both directions, and shows that every byte arrives once.
//! The place dials again by itself and resumes its session; neither the writer nor the reader hears of it. Only the watch
//! on the connection does.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longarm::backend::remote::ConnectionState;
use longarm::config::ClientConfig;
use longarm::error::ConnectError;
use longarm::server::Server;
use longarm::transport::memory::{self, Faults};
use longarm::transport::{Connector, Transport};
use longarm::{Environment, Event, ExecRequest, Local, LocalConfig, Stdin};

const CUTS: usize = 40;

/// A link to a server within this program that breaks after some kilobytes, in both directions, `CUTS` times.
#[derive(Debug)]
struct Fragile {
    server: Server,
    connections: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Connector for Fragile {
    async fn connect(&self) -> Result<Box<dyn Transport>, ConnectError> {
        let number = self.connections.fetch_add(1, Ordering::SeqCst);
        // Anything between 4 KiB and 4 MiB.
        let bytes = 4096 << (uuid::Uuid::new_v4().as_u128() % 11);
        let faults = if number < CUTS { Faults::none().cut_after_bytes(bytes) } else { Faults::none() };
        let (near, far) = memory::pair_with_faults(faults, faults);
        let server = self.server.clone();
        // How a connection ends is seen at this end.
        tokio::spawn(async move { drop(server.serve(Box::new(far)).await) });
        Ok(Box::new(near))
    }

    fn can_reconnect(&self) -> bool {
        true
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
    let connections = Arc::new(AtomicUsize::new(0));
    let link = Fragile { server: server.clone(), connections: Arc::clone(&connections) };
    let place = Environment::with_connector(link, ClientConfig::default());

    let mut watch = place.connection().ok_or("a place with a connection")?;
    tokio::spawn(async move {
        while let Some(state) = watch.changed().await {
            if let ConnectionState::Recovering { reason, .. } = state {
                eprintln!("recovering: {reason}");
            }
        }
    });

    // A start whose answer is lost is never repeated by itself: whether to do so is for the caller to say.
    let mut process = loop {
        match place.spawn(ExecRequest::new(["cat"]).stdin(Stdin::Piped)).await {
            Ok(process) => break process,
            Err(error) => eprintln!("once more: {error}"),
        }
    };
    let stdin = process.handle();
    let writing = tokio::spawn(async move {
        let (mut sum, mut written) = (Checksum::default(), 0_u64);
        while connections.load(Ordering::SeqCst) <= CUTS {
            let data: Vec<u8> = (written..written + 32_768).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
            written += data.len() as u64;
            sum.add(&data);
            stdin.write(data).await?;
        }
        stdin.close_stdin().await?;
        Ok::<_, longarm::error::WriteError>((written, sum))
    });
    let (mut sum, mut read) = (Checksum::default(), 0_u64);
    while let Some(event) = process.next_event().await? {
        if let Event::Output(output) = event {
            sum.add(&output.bytes);
            read += output.bytes.len() as u64;
        }
    }
    let (written, expected) = writing.await??;
    println!("{written} bytes written, checksum {:016x}", expected.0);
    println!("{read} bytes read,    checksum {:016x}", sum.0);
    place.close().await;
    server.shutdown().await;
    if (written, expected) == (read, sum) { Ok(()) } else { Err("something was lost or doubled".into()) }
}

/// FNV-1a.
#[derive(Debug, PartialEq)]
struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    }
}
