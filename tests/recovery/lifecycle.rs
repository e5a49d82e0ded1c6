//! Lazy connections, lost sessions, half-open links, sockets of the host.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longarm::backend::ExecBackend as _;
use longarm::backend::remote::{ConnectionState, Readiness};
use longarm::config::{ClientConfig, ServerConfig};
use longarm::error::{ConnectError, SpawnError, WaitError};
use longarm::server::Server;
use longarm::transport::websocket::{self, ConnectOptions};
use longarm::transport::{Connector, ReplaceError, ReplaceOutcome, Transport, memory};
use longarm::{CollectLimits, Environment, ExecRequest, Local, LocalConfig, Remote, Stdin};

use crate::proxy::Proxy;
use crate::support::{Random, Running, environment, soon};

/// Dials a server within this program, or fails as it is told.
#[derive(Debug)]
struct Dialler {
    server: Server,
    attempts: Arc<AtomicUsize>,
    fail_first: usize,
    error: fn() -> ConnectError,
}

impl Dialler {
    fn new(fail_first: usize, error: fn() -> ConnectError) -> (Self, Arc<AtomicUsize>) {
        let attempts = Arc::new(AtomicUsize::new(0));
        let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
        (Self { server, attempts: Arc::clone(&attempts), fail_first, error }, attempts)
    }
}

#[async_trait::async_trait]
impl Connector for Dialler {
    async fn connect(&self) -> Result<Box<dyn Transport>, ConnectError> {
        if self.attempts.fetch_add(1, Ordering::SeqCst) < self.fail_first {
            return Err((self.error)());
        }
        Ok(Box::new(serve(&self.server)))
    }

    fn can_reconnect(&self) -> bool {
        true
    }
}

fn serve(server: &Server) -> memory::MemoryTransport {
    let (near, far) = memory::pair();
    let server = server.clone();
    // How a connection ends is seen at its other end.
    tokio::spawn(async move { drop(server.serve(Box::new(far)).await) });
    near
}

fn unreachable() -> ConnectError {
    let source = Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused));
    ConnectError::Unreachable { address: "ws://nowhere".into(), source }
}

fn refused() -> ConnectError {
    ConnectError::Refused { address: "ws://nowhere".into(), status: 401, reason: "no".into(), retry_after: None }
}

#[tokio::test]
async fn looking_makes_no_connection_and_the_first_use_does() {
    let (dialler, attempts) = Dialler::new(0, unreachable);
    let place = Environment::with_connector(dialler, ClientConfig::default());
    assert_eq!(place.readiness(), Readiness::Unknown);
    let mut connection = place.connection().expect("a remote place");
    assert_eq!(connection.state(), ConnectionState::Idle);
    tokio::task::yield_now().await;
    assert_eq!(attempts.load(Ordering::SeqCst), 0);
    let output = soon(place.output(ExecRequest::new(["echo", "hi"]))).await.expect("it runs");
    assert_eq!(output.stdout.to_text(), "hi\n");
    let state = soon(connection.wait_for(ConnectionState::is_connected)).await;
    assert_eq!(state, Some(ConnectionState::Connected { generation: 1, session: 1 }));
    assert_eq!(place.readiness(), Readiness::Ready);
    soon(place.close()).await;
    assert_eq!(connection.state(), ConnectionState::Closed);
    assert!(matches!(place.spawn(ExecRequest::new(["true"])).await, Err(SpawnError::Disconnected(_))));
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_share_one_attempt_that_is_tried_again() {
    let (dialler, attempts) = Dialler::new(3, unreachable);
    let place = Environment::with_connector(dialler, ClientConfig::default());
    let waiting = (0..10).map(|_| {
        let place = place.clone();
        async move { place.wait_until_ready().await }
    });
    for result in soon(futures_util::future::join_all(waiting)).await {
        result.expect("the fourth attempt succeeds");
    }
    assert_eq!(attempts.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn a_retryable_failure_is_given_up_at_the_deadline_and_a_later_call_tries_anew() {
    let (dialler, attempts) = Dialler::new(451, unreachable);
    let place = Environment::with_connector(dialler, ClientConfig::default());
    let begun = tokio::time::Instant::now();
    let error = place.wait_until_ready().await.expect_err("nobody answers");
    assert!(error.is_retryable(), "{error}");
    assert_eq!(begun.elapsed(), ClientConfig::default().recovery.deadline);
    assert!(matches!(place.readiness(), Readiness::Failed { .. }));
    // The deadline has passed before the last few attempts.
    let tried = attempts.load(Ordering::SeqCst);
    assert!((440..=451).contains(&tried), "{tried}");
    attempts.store(451, Ordering::SeqCst);
    place.wait_until_ready().await.expect("now there is somebody");
}

#[tokio::test]
async fn a_permanent_failure_stays_until_it_is_refreshed() {
    let (dialler, attempts) = Dialler::new(1, refused);
    let place = Environment::with_connector(dialler, ClientConfig::default());
    for _ in 0..2 {
        let error = soon(place.wait_until_ready()).await.expect_err("refused");
        assert!(matches!(error, ConnectError::Refused { status: 401, .. }), "{error}");
    }
    assert!(soon(place.info()).await.is_err());
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
    soon(place.refresh()).await.expect("the second attempt succeeds");
    soon(place.refresh()).await.expect("it stands");
    assert_eq!(attempts.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_anew_has_lost_the_session_and_the_next_call_begins_another() {
    let server = Running::start().await;
    // Its port is anybody's once it has stopped; that of the proxy stays.
    let proxy = Proxy::start(&server.url, 0, Random::new()).await;
    let place = environment(&proxy.url, ClientConfig::default());
    let mut process = soon(place.spawn(ExecRequest::new(["cat"]).stdin(Stdin::Piped))).await.expect("it starts");
    let mut connection = place.connection().expect("a remote place");
    proxy.set_closed(true);
    server.stop().await;
    let server = Running::start().await;
    proxy.lead_to(&server.url);
    proxy.set_closed(false);
    let lost = soon(connection.wait_for(ConnectionState::is_over)).await.expect("it is known");
    assert!(matches!(lost, ConnectionState::SessionLost { .. }), "{lost:?}");
    let error = soon(async {
        loop {
            match process.next_event().await {
                // The server ends its processes before it goes, and may tell of that.
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        }
    })
    .await;
    assert!(matches!(error, None | Some(WaitError::Disconnected(_))), "{error:?}");
    let output = soon(place.output(ExecRequest::new(["echo", "again"]))).await.expect("a new session");
    assert_eq!(output.stdout.to_text(), "again\n");
    assert!(matches!(connection.state(), ConnectionState::Connected { session: 2, generation } if generation > 1));
    soon(place.close()).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link_is_found_dead_and_the_session_goes_on() {
    let server = Running::start().await;
    let proxy = Proxy::start(&server.url, 0, Random::new()).await;
    let mut config = ClientConfig::default();
    config.keepalive.ping_interval = Duration::from_millis(100);
    config.keepalive.silence_limit = Duration::from_millis(400);
    let place = environment(&proxy.url, config);
    let request = ExecRequest::new(["sh", "-c", "i=0; while read line; do i=$((i+1)); echo $i $line; done"]);
    let request = request.stdin(Stdin::Piped);
    let process = soon(async {
        loop {
            // Where this program has to wait for long enough for its turn, the link is found dead before it is.
            match place.spawn(request.clone()).await {
                Ok(process) => break process,
                Err(error) => assert!(matches!(error, SpawnError::Disconnected(_)), "{error}"),
            }
        }
    })
    .await;
    let mut connection = place.connection().expect("a remote place");
    process.write("before\n").await.expect("written");
    proxy.hold(true);
    let state = soon(connection.wait_for(|state| !state.is_connected())).await.expect("it is noticed");
    assert!(
        matches!(&state, ConnectionState::Recovering { reason, .. } if reason.contains("nothing heard")),
        "{state:?}"
    );
    let handle = process.handle();
    let write = tokio::spawn(async move { handle.write("during\n").await });
    // The proxy's sockets end with the client's, so that the server lets the session go.
    proxy.hold(false);
    soon(write).await.expect("no panic").expect("it is written after the recovery");
    process.close_stdin().await.expect("closed");
    let output = soon(process.output(CollectLimits::default())).await.expect("whole");
    assert_eq!(output.stdout.to_text(), "1 before\n2 during\n");
    soon(place.close()).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_to_the_connection_fails_at_once() {
    let server = Running::start().await;
    let proxy = Proxy::start(&server.url, 0, Random::new()).await;
    let place = environment(&proxy.url, ClientConfig::default());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    std::fs::write(&path, "content").expect("written");
    let file = soon(place.fs().open(path.as_path().into(), longarm::fs::OpenMode::Read)).await.expect("open");
    assert_eq!(soon(file.read_block(0, 7)).await.expect("a block").bytes, "content");
    let mut connection = place.connection().expect("a remote place");
    proxy.set_closed(true);
    proxy.cut();
    soon(connection.wait_for(|state| !state.is_connected())).await.expect("it is noticed");
    // There is no connection, and the file does not wait for one.
    let error = soon(file.read_block(0, 7)).await.expect_err("its connection is gone");
    assert!(matches!(error, longarm::fs::FsError::Disconnected(_)), "{error:?}");
    assert!(!connection.state().is_connected());
    // That stays so, whatever comes later.
    for _ in 0..2 {
        let error = soon(file.read_block(0, 7)).await.expect_err("its connection is gone");
        assert!(matches!(error, longarm::fs::FsError::Disconnected(_)), "{error:?}");
    }
    proxy.set_closed(false);
    let fs = place.fs();
    let whole = fs.read(path.as_path().into(), longarm::fs::ReadOptions::default());
    assert_eq!(soon(whole).await.expect("the place is back"), "content");
    let error = soon(file.read_block(0, 7)).await.expect_err("and the file is not");
    assert!(matches!(error, longarm::fs::FsError::Disconnected(_)), "{error:?}");
    soon(place.close()).await;
    server.stop().await;
}

#[tokio::test]
async fn a_socket_of_the_host_is_replaced_and_the_session_goes_on() {
    let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
    let remote = Remote::accepted(Box::new(serve(&server)), ClientConfig::default());
    let place = Environment::from(remote.clone());
    let process = soon(place.spawn(ExecRequest::new(["cat"]).stdin(Stdin::Piped))).await.expect("it starts");
    process.write("one\n").await.expect("written");
    let replacement = remote.replace(Box::new(serve(&server))).expect("taken");
    let refused = remote.replace(Box::new(serve(&server)));
    assert!(matches!(refused, Err(ReplaceError::Overlapping)), "{refused:?}");
    process.write("two\n").await.expect("it waits for the new connection");
    assert_eq!(soon(replacement.outcome()).await, ReplaceOutcome::Installed);
    // One that is dropped at once frees the place, whether or not it was used.
    drop(remote.replace(Box::new(serve(&server))).expect("taken"));
    // A dead socket leads to nothing; the place waits for the next one.
    let (near, far) = memory::pair();
    drop(far);
    let dead = remote.replace(Box::new(near)).expect("taken");
    assert_eq!(soon(dead.outcome()).await, ReplaceOutcome::Failed);
    let last = remote.replace(Box::new(serve(&server))).expect("taken");
    assert_eq!(soon(last.outcome()).await, ReplaceOutcome::Installed);
    process.close_stdin().await.expect("closed");
    let output = soon(process.output(CollectLimits::default())).await.expect("whole");
    assert_eq!(output.stdout.to_text(), "one\ntwo\n");
    soon(remote.close()).await;
    let closed = remote.replace(Box::new(serve(&server)));
    assert!(matches!(closed, Err(ReplaceError::Closed { .. })), "{closed:?}");
}

#[tokio::test]
async fn only_a_place_of_the_hosts_sockets_takes_them() {
    let (dialler, _) = Dialler::new(0, unreachable);
    let remote = Remote::with_connector(Arc::new(dialler), ClientConfig::default());
    assert!(matches!(remote.replace(Box::new(memory::pair().0)), Err(ReplaceError::NotAccepted)));
}

#[tokio::test]
async fn a_place_that_is_dropped_leaves_no_task() {
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    for fail_first in [0, usize::MAX] {
        let (dialler, _) = Dialler::new(fail_first, unreachable);
        let server = dialler.server.clone();
        let place = Environment::with_connector(dialler, ClientConfig::default());
        let ready = tokio::time::timeout(Duration::from_millis(300), place.wait_until_ready()).await;
        assert!(ready.is_ok() || fail_first > 0);
        drop(place);
        // Else the session waits for its client to come back.
        soon(server.shutdown()).await;
    }
    soon(async {
        while metrics.num_alive_tasks() > before {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Asks for the session until it is had, or not before `limit`.
async fn ask_for_session(url: &str, session: &str, limit: Duration) -> Option<Environment> {
    let asking = async {
        loop {
            let transport = websocket::connect(url, &ConnectOptions::new()).await.expect("connected");
            match Environment::resume(transport, ClientConfig::default(), session).await {
                Ok(place) => break place,
                Err(ConnectError::SessionAttached(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(limit, asking).await.ok()
}

/// A session whose link is alive, over which this program has asked for it in vain for some time, with its client, its process
/// and what the link goes through. None if it was given away: once in a while this program may have had to wait so long for its
/// turn that the link seemed dead.
async fn refused_while_alive(server: &Running) -> Option<(Environment, longarm::Process, String, Proxy)> {
    let proxy = Proxy::start(&server.url, 0, Random::new()).await;
    let before = environment(&proxy.url, ClientConfig::default());
    let process = soon(before.spawn(ExecRequest::new(["cat"]).stdin(Stdin::Piped))).await.expect("it starts");
    let session = before.remote().and_then(Remote::session_id).expect("a session");
    match ask_for_session(&server.url, &session, Duration::from_secs(1)).await {
        None => Some((before, process, session, proxy)),
        Some(taken) => {
            soon(taken.close()).await;
            None
        }
    }
}

#[tokio::test]
async fn a_session_on_a_half_dead_link_is_had_at_once_and_one_on_a_live_link_is_not() {
    let mut config = ServerConfig::default();
    config.takeover_patience = Duration::from_millis(200);
    let server = Running::start_with(config).await;
    let mut attempts = 1..=5;
    let (before, process, session, proxy) = loop {
        attempts.next().expect("the link is alive, every time");
        if let Some(refused) = refused_while_alive(&server).await {
            break refused;
        }
    };
    soon(process.write("still here\n")).await.expect("nothing has happened to it");
    // From here on nothing passes, and nobody is told.
    proxy.hold(true);
    let after = ask_for_session(&server.url, &session, Duration::from_secs(30)).await;
    let after = after.expect("long before the silence limit of a minute");
    let again = soon(after.attach(process.id().clone(), 0)).await.expect("it runs on");
    soon(again.close_stdin()).await.expect("closed");
    let output = soon(again.output(CollectLimits::default())).await.expect("it ends");
    assert_eq!(output.stdout.to_text(), "still here\n");
    soon(after.close()).await;
    drop((process, before, proxy));
    server.stop().await;
}
