//! The same towards the reference's own server. Its program is named by `LONGARM_REFERENCE`; without it these tests say that
//! they are skipped, and in CI on Linux they fail instead.

use std::process::Stdio as StdStdio;
use std::sync::Arc;

use longarm::backend::remote::ConnectionState;
use longarm::config::ClientConfig;
use longarm::error::{SpawnError, WaitError};
use longarm::event::Event;
use longarm::{Environment, ExecRequest, Process, Stdin};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::proxy::Proxy;
use crate::support::{Random, check_pattern, environment, generation_of, pattern, soon};

struct Reference {
    url: String,
    _child: tokio::process::Child,
    _home: tempfile::TempDir,
}

impl Reference {
    async fn start() -> Option<Self> {
        let Some(program) = std::env::var_os("LONGARM_REFERENCE") else {
            let required = cfg!(target_os = "linux") && std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!required, "LONGARM_REFERENCE must name the reference's program in CI");
            eprintln!("SKIPPED: LONGARM_REFERENCE does not name the reference's program");
            return None;
        };
        let home = tempfile::tempdir().expect("a home");
        let mut child = tokio::process::Command::new(program)
            .args(["exec-server", "--listen", "ws://127.0.0.1:0"])
            .env("HOME", home.path())
            .stdin(StdStdio::null())
            .stdout(StdStdio::piped())
            .stderr(StdStdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the reference starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let url = lines.next_line().await.expect("it says").expect("where it listens");
        Some(Self { url, _child: child, _home: home })
    }
}

async fn spawn(place: &Environment, request: &ExecRequest) -> Process {
    loop {
        match soon(place.spawn(request.clone())).await {
            Ok(process) => return process,
            Err(error) => assert!(matches!(error, SpawnError::Disconnected(_)), "{error}"),
        }
    }
}

const CUTS: usize = 200;

/// So much is on its way at most, so that never more than the reference keeps falls into one outage.
const AHEAD: u64 = 400_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_in_200_cuts_with_less_than_it_keeps_in_each_outage() {
    let Some(reference) = Reference::start().await else { return };
    let proxy = Arc::new(Proxy::start(&reference.url, CUTS, Random::new()).await);
    let place = environment(&proxy.url, ClientConfig::default());
    let request = ExecRequest::new(["cat"]).cwd("/").env("PATH", "/usr/bin:/bin").stdin(Stdin::Piped);
    let mut process = spawn(&place, &request).await;
    let handle = process.handle();
    let (progress, mut seen) = tokio::sync::watch::channel(0_u64);
    let writer = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move {
            let mut written = 0;
            while proxy.cuts_made() < CUTS {
                seen.wait_for(|read| written - *read < AHEAD).await.expect("the reader lives");
                handle.write(pattern(written, 50_000)).await.expect("a write lives through cuts");
                written += 50_000;
            }
            written
        }
    });
    let mut writer = Some(writer);
    let (mut read, mut written) = (0, None);
    while written != Some(read) {
        tokio::select! {
            event = soon(process.next_event()) => match event.expect("events live through cuts") {
                Some(Event::Output(output)) => {
                    check_pattern(read, &output.bytes);
                    read += output.bytes.len() as u64;
                    progress.send_replace(read);
                }
                other => panic!("{other:?}"),
            },
            total = async { writer.as_mut().expect("it runs").await }, if writer.is_some() => {
                written = Some(total.expect("the writer ends"));
                writer = None;
            }
        }
    }
    println!("{read} bytes in both directions, {} connections", proxy.connections());
    // All has come before the last recovery is through: what was missed has been asked for, and the answer is on its way.
    let generation = generation_of(&place).await;
    assert!(generation > 20, "{generation}");
    soon(place.close()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_it_keeps_is_an_explicit_gap_that_fails_the_process_alone() {
    let Some(reference) = Reference::start().await else { return };
    let proxy = Proxy::start(&reference.url, 0, Random::new()).await;
    let place = environment(&proxy.url, ClientConfig::default());
    let folder = tempfile::tempdir().expect("a folder");
    let done = folder.path().join("done");
    let script =
        format!("echo ready; read go; head -c 4000000 /dev/zero; touch {done}; sleep 300", done = done.display());
    let env = |request: ExecRequest| request.cwd("/").env("PATH", "/usr/bin:/bin").stdin(Stdin::Piped);
    let mut loud = spawn(&place, &env(ExecRequest::new(["sh", "-c", &script]))).await;
    let mut quiet = spawn(&place, &env(ExecRequest::new(["cat"]))).await;
    let ready = soon(loud.next_event()).await.expect("no error");
    assert!(matches!(ready, Some(Event::Output(_))), "{ready:?}");
    // The write is taken, and the link breaks before much of what follows has come.
    loud.write("go\n").await.expect("written");
    proxy.set_closed(true);
    proxy.cut();
    soon(async {
        while !done.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    proxy.set_closed(false);
    let mut gaps = Vec::new();
    let error = loop {
        match soon(loud.next_event()).await {
            Ok(Some(Event::Gap(gap))) => gaps.push(gap),
            Ok(Some(Event::Output(_))) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, WaitError::OutputLost { .. }), "{error:?}");
    assert_eq!(gaps.len(), 1, "the gap is explicit: {gaps:?}");
    quiet.write("hi").await.expect("the other one goes on");
    assert!(matches!(soon(quiet.next_event()).await, Ok(Some(Event::Output(output))) if output.bytes == "hi"));
    soon(place.close()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reference_knows_a_resumed_session_and_forgets_one_that_is_unknown() {
    let Some(reference) = Reference::start().await else { return };
    let proxy = Proxy::start(&reference.url, 0, Random::new()).await;
    let place = environment(&proxy.url, ClientConfig::default());
    soon(place.wait_until_ready()).await.expect("connected");
    let session = place.remote().expect("remote").session_id();
    let mut connection = place.connection().expect("a remote place");
    proxy.cut();
    let again = |state: &ConnectionState| matches!(state, ConnectionState::Connected { generation: 2, .. });
    soon(connection.wait_for(again)).await.expect("it comes back");
    assert_eq!(place.remote().expect("remote").session_id(), session);
    soon(place.close()).await;
}
