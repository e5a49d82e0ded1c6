//! A TCP proxy that cuts what goes through it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::support::Random;

/// The proxy. Dropping it ends it, with all of its connections.
pub(crate) struct Proxy {
    pub(crate) url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    /// Cuts that are still to be made.
    cuts_left: AtomicUsize,
    cuts_made: AtomicUsize,
    connections: AtomicUsize,
    /// Connections are refused.
    closed: AtomicBool,
    /// Nothing is passed on, and nothing is closed.
    held: watch::Sender<bool>,
    cut_now: Notify,
}

impl Proxy {
    /// In front of the server at `url`; cuts `cuts` connections, each after some number of bytes, then no more. One that its
    /// ends close before that is not among them.
    pub(crate) async fn start(url: &str, cuts: usize, mut random: Random) -> Self {
        // From the handshake's first bytes to a MiB: as often short as long.
        let budget = move || {
            let size = 8 + random.below(13);
            random.below(1 << size)
        };
        Self::with_budgets(url, cuts, budget).await
    }

    /// The same, with as many bytes for each connection as `budget` says.
    pub(crate) async fn with_budgets(url: &str, cuts: usize, mut budget: impl FnMut() -> u64 + Send + 'static) -> Self {
        let target = Mutex::new(address_of(url));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let url = format!("ws://{}", listener.local_addr().expect("bound"));
        let (held, _) = watch::channel(false);
        let shared = Arc::new(Shared {
            target,
            cuts_left: AtomicUsize::new(cuts),
            cuts_made: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            held,
            cut_now: Notify::new(),
        });
        let accepting = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                if accepting.closed.load(Ordering::SeqCst) {
                    reset(client);
                    continue;
                }
                let one_less = |left: usize| left.checked_sub(1);
                let cut = accepting.cuts_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok();
                let budget = cut.then(&mut budget);
                connections.spawn(pass(Arc::clone(&accepting), client, budget));
            }
        });
        Self { url, shared, task }
    }

    pub(crate) fn cuts_made(&self) -> usize {
        self.shared.cuts_made.load(Ordering::SeqCst)
    }

    /// How many connections the server was asked for.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Cuts what stands now.
    pub(crate) fn cut(&self) {
        self.shared.cut_now.notify_waiters();
    }

    /// Connections lead to the server at `url` from now on.
    pub(crate) fn lead_to(&self, url: &str) {
        *self.shared.target.lock().expect("no panic") = address_of(url);
    }

    /// Refuses connections from now on, or no longer.
    pub(crate) fn set_closed(&self, closed: bool) {
        self.shared.closed.store(closed, Ordering::SeqCst);
    }

    /// Passes nothing on, and closes nothing, or goes on.
    pub(crate) fn hold(&self, held: bool) {
        self.shared.held.send_replace(held);
    }
}

fn address_of(url: &str) -> SocketAddr {
    url.trim_start_matches("ws://").parse().expect("an address")
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(shared: Arc<Shared>, client: TcpStream, budget: Option<u64>) {
    if pass_until_cut(&shared, client, budget).await {
        shared.cuts_made.fetch_add(1, Ordering::SeqCst);
    } else if budget.is_some() {
        // Another one is cut instead: who waits for all cuts would wait for ever.
        shared.cuts_left.fetch_add(1, Ordering::SeqCst);
    }
}

/// Whether it was cut, rather than closed by an end.
async fn pass_until_cut(shared: &Shared, client: TcpStream, budget: Option<u64>) -> bool {
    let target = *shared.target.lock().expect("no panic");
    let Ok(server) = TcpStream::connect(target).await else {
        reset(client);
        return false;
    };
    shared.connections.fetch_add(1, Ordering::SeqCst);
    let left = AtomicI64::new(budget.map_or(i64::MAX, |budget| i64::try_from(budget).expect("small")));
    let (mut client_in, mut client_out) = client.into_split();
    let (mut server_in, mut server_out) = server.into_split();
    let cut = tokio::select! {
        cut = one_way(shared, &left, &mut client_in, &mut server_out) => cut,
        cut = one_way(shared, &left, &mut server_in, &mut client_out) => cut,
        () = shared.cut_now.notified() => true,
    };
    let whole = [client_in.reunite(client_out), server_in.reunite(server_out)];
    for stream in whole.into_iter().flatten() {
        if cut {
            reset(stream);
        }
    }
    cut
}

/// Passes bytes on until the end, or until the budget of both directions is spent: then true.
async fn one_way(
    shared: &Shared,
    left: &AtomicI64,
    from: &mut tokio::net::tcp::OwnedReadHalf,
    to: &mut tokio::net::tcp::OwnedWriteHalf,
) -> bool {
    let mut held = shared.held.subscribe();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return false };
        held.wait_for(|held| !held).await.expect("the proxy lives");
        let before = left.fetch_sub(i64::try_from(count).expect("small"), Ordering::SeqCst);
        let passed = usize::try_from(before.max(0)).expect("not negative").min(count);
        if to.write_all(&buffer[..passed]).await.is_err() {
            return false;
        }
        if passed < count {
            return true;
        }
    }
}

/// Closes with a reset, so that what is under way is lost.
fn reset(stream: TcpStream) {
    // If that fails, the close is an orderly one, and a cut all the same.
    let _ = SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO));
}
