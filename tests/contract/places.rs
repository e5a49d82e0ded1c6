//! The places under test: this machine, and this machine behind each transport.

use std::sync::{Arc, Mutex};

use longarm::config::ClientConfig;
use longarm::server::Server;
use longarm::testing::contract::{Need, Suite};
use longarm::transport::{Transport, memory};
use longarm::{ExecBackend, Local, LocalConfig, Remote};

pub(crate) fn all() -> Vec<(&'static str, Suite)> {
    let mut places = ours();
    #[cfg(target_os = "linux")]
    {
        let contained = contained();
        if contained.is_empty() {
            places = places.into_iter().map(|(name, suite)| (name, suite.without(Need::Containment))).collect();
        }
        places.extend(contained);
    }
    if !cfg!(target_os = "linux") {
        places = places.into_iter().map(|(name, suite)| (name, suite.without(Need::SandboxedFiles))).collect();
    }
    if !cfg!(feature = "http") {
        places = places.into_iter().map(|(name, suite)| (name, suite.without(Need::Http))).collect();
    }
    #[cfg(unix)]
    places.push(("custom_executor", custom_executor()));
    #[cfg(feature = "websocket")]
    places.extend(reference().map(|suite| ("reference", suite)));
    places
}

fn ours() -> Vec<(&'static str, Suite)> {
    vec![
        ("local", Suite::new(|| async { local() })),
        ("memory", Suite::new(over_memory)),
        #[cfg(feature = "websocket")]
        ("websocket", Suite::new(over_websocket)),
        #[cfg(feature = "cli")]
        // A server on standard streams ends with its client, and its processes with it.
        ("stdio", Suite::new(over_stdio).without(Need::Detach)),
    ]
}

fn local() -> Arc<dyn ExecBackend> {
    Arc::new(Local::new(LocalConfig::from_host()))
}

/// This machine with every process contained, by each means that it has: nothing else may change by that.
#[cfg(target_os = "linux")]
fn contained() -> Vec<(&'static str, Suite)> {
    use longarm::backend::local::Containment;

    use crate::needs::Need;

    let ways = [
        ("contained_in_a_cgroup", Containment::Cgroup, Need::Cgroup),
        ("contained_in_a_namespace", Containment::PidNamespace, Need::PidNamespace),
    ];
    let available = ways.into_iter().filter(|(.., need)| need.is_met());
    let suite =
        |by| Suite::new(move || async move { Arc::new(crate::contained::Contained::new(by)) as Arc<dyn ExecBackend> });
    available.map(|(name, by, _)| (name, suite(by))).collect()
}

async fn connect(transport: impl Transport) -> Arc<dyn ExecBackend> {
    let remote = Remote::connect(Box::new(transport), ClientConfig::default()).await;
    Arc::new(remote.unwrap_or_else(|error| panic!("no connection: {error}")))
}

async fn over_memory() -> Arc<dyn ExecBackend> {
    let (near, far) = memory::pair();
    let server = Server::new(local());
    tokio::spawn(async move { server.serve(Box::new(far)).await });
    connect(near).await
}

#[cfg(feature = "websocket")]
async fn over_websocket() -> Arc<dyn ExecBackend> {
    use longarm::server::serve_websocket;
    use longarm::transport::websocket::{self, ConnectOptions, ListenOptions, Listener};

    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), ListenOptions::new()).await;
    let listener = listener.unwrap_or_else(|error| panic!("no listener: {error}"));
    let url = listener.local_url();
    let server = Server::new(local());
    tokio::spawn(async move { serve_websocket(&server, listener, std::future::pending()).await });
    let transport = websocket::connect(&url, &ConnectOptions::new()).await;
    connect(transport.unwrap_or_else(|error| panic!("no connection: {error}"))).await
}

/// The server is the program itself, as a child.
#[cfg(feature = "cli")]
async fn over_stdio() -> Arc<dyn ExecBackend> {
    use longarm::transport::stdio::StdioServer;

    let server = StdioServer::new(env!("CARGO_BIN_EXE_longarm")).args(["serve", "--listen", "stdio"]);
    connect(server.launch().unwrap_or_else(|error| panic!("no server: {error}"))).await
}

/// The example of a host's own executor.
#[cfg(unix)]
fn custom_executor() -> Suite {
    let suite = Suite::new(|| async {
        Arc::new(crate::custom_executor::Commands(Mutex::new(Some(Vec::new())))) as Arc<dyn ExecBackend>
    });
    let lacks = [
        Need::Terminal,
        Need::Resize,
        Need::GracefulStop,
        Need::Limits,
        Need::Containment,
        Need::PreciseErrors,
        Need::Detach,
        // It passes on descriptors that this program itself has inherited.
        Need::CleanChildren,
        Need::Http,
    ];
    lacks.into_iter().fold(suite, Suite::without)
}

/// The reference's server, without what its wire lacks. Its program is named by the variable `LONGARM_REFERENCE`; without
/// it the place is left out, but in CI on Linux it has to be there.
#[cfg(feature = "websocket")]
fn reference() -> Option<Suite> {
    let Some(program) = std::env::var_os("LONGARM_REFERENCE") else {
        let must = cfg!(target_os = "linux") && std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!must, "LONGARM_REFERENCE is not set, and CI on Linux needs it");
        eprintln!("SKIPPED: LONGARM_REFERENCE does not name the reference's program");
        return None;
    };
    let suite = Suite::new(move || over_reference(program.clone()));
    let lacks = [
        Need::Resize,
        Need::CloseStdin,
        Need::Signals,
        Need::GracefulStop,
        Need::Containment,
        Need::ExitFacts,
        Need::Limits,
        Need::Backpressure,
        Need::PreciseErrors,
        Need::CleanChildren,
        Need::FileExtensions,
        // It starts a helper that needs namespaces.
        Need::SandboxedFiles,
        // It empties a file that is copied onto itself, and waits for the reader of a FIFO.
        Need::SafeFiles,
        Need::HttpCauses,
        Need::HttpFlow,
    ];
    Some(lacks.into_iter().fold(suite, Suite::without))
}

#[cfg(feature = "websocket")]
async fn over_reference(program: std::ffi::OsString) -> Arc<dyn ExecBackend> {
    use longarm::transport::websocket::{self, ConnectOptions};
    use tokio::io::{AsyncBufReadExt, BufReader};

    let home = tempfile::tempdir().unwrap_or_else(|error| panic!("no home: {error}"));
    let mut server = tokio::process::Command::new(program)
        .args(["exec-server", "--listen", "ws://127.0.0.1:0"])
        .env("HOME", home.path())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("no reference: {error}"));
    let mut lines = BufReader::new(server.stdout.take().unwrap_or_else(|| panic!("it has no output"))).lines();
    let url = lines.next_line().await.ok().flatten().unwrap_or_else(|| panic!("the reference names no URL"));
    // It lives as long as the runtime of the case.
    tokio::spawn(async move {
        let ended = server.wait().await;
        drop(home);
        ended
    });
    let transport = websocket::connect(&url, &ConnectOptions::new()).await;
    connect(transport.unwrap_or_else(|error| panic!("no connection: {error}"))).await
}
