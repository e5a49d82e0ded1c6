//! What these tests have in common.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longarm::backend::remote::ConnectionState;
use longarm::config::{ClientConfig, ServerConfig};
use longarm::server::{Server, serve_websocket};
use longarm::transport::websocket::{ConnectOptions, ListenOptions, Listener, WebSocketConnector};
use longarm::{Environment, Local, LocalConfig};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Generous: it only ends tests that hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it ends")
}

/// Numbers that can be had again by their seed, which is printed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        let seed = match std::env::var("LONGARM_SEED") {
            Ok(seed) => seed.parse().expect("LONGARM_SEED is a number"),
            Err(_) => uuid::Uuid::new_v4().as_u64_pair().0 | 1,
        };
        println!("LONGARM_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// A server of ours on a socket of its own.
pub(crate) struct Running {
    pub(crate) url: String,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start() -> Self {
        let mut config = ServerConfig::default();
        // Whatever is told anew on each connection must be told between two cuts.
        config.output.retained_bytes = 256 << 10;
        Self::start_with(config).await
    }

    pub(crate) async fn start_with(config: ServerConfig) -> Self {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), ListenOptions::new()).await.expect("bound");
        let url = listener.local_url();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let server = Server::builder(Arc::new(Local::new(LocalConfig::from_host()))).config(config).build();
            serve_websocket(&server, listener, async { drop(stopped.await) }).await.expect("it serves");
        });
        Self { url, stop: Some(stop), task }
    }

    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        soon(self.task).await.expect("it ends well");
    }
}

/// How many connections there were by now in the first session, once the place has one. The last cut may be noticed at any
/// moment, also after a look that found the place connected.
pub(crate) async fn generation_of(place: &Environment) -> u64 {
    loop {
        soon(place.wait_until_ready()).await.expect("it comes back");
        match place.connection().expect("a remote place").state() {
            ConnectionState::Connected { generation, session: 1 } => return generation,
            ConnectionState::Recovering { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn environment(url: &str, config: ClientConfig) -> Environment {
    Environment::with_connector(WebSocketConnector::new(url, ConnectOptions::new()), config)
}

/// Bytes that say where in the stream they are.
pub(crate) fn pattern(offset: u64, length: usize) -> Bytes {
    (offset..offset + length as u64).map(byte_at).collect()
}

/// Where bytes differ from the pattern, if anywhere.
pub(crate) fn check_pattern(offset: u64, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        let at = offset + index as u64;
        assert_eq!(*byte, byte_at(at), "at byte {at}: lost, doubled or changed");
    }
}

fn byte_at(offset: u64) -> u8 {
    // Blocks of 251 that say their number.
    u8::try_from((offset / 251 + offset % 251) % 256).expect("small")
}
