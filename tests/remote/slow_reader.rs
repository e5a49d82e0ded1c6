//! Our client and our server: a reader that stops pauses its own process, and nothing is lost.

use std::sync::Arc;

use longarm::backend::local::{Local, LocalConfig};
use longarm::backend::{ExecBackend as _, Spawned, Terminate};
use longarm::config::ClientConfig;
use longarm::event::Event;
use longarm::server::Server;
use longarm::transport::memory;
use longarm::{ExecRequest, Remote};

use crate::peer::{events, next_event};

async fn connect() -> Remote {
    let server = Server::new(Arc::new(Local::new(LocalConfig::default())));
    let (client, service) = memory::pair();
    tokio::spawn(async move { server.serve(Box::new(service)).await });
    Remote::connect(Box::new(client), ClientConfig::default()).await.expect("connected")
}

fn sh(script: &str) -> ExecRequest {
    ExecRequest::new(["sh", "-c", script]).cwd("/")
}

async fn output(spawned: &mut Spawned) -> (Vec<u8>, Event) {
    let (mut bytes, mut last) = (Vec::new(), None);
    for event in events(spawned).await {
        match event.expect("no error") {
            Event::Output(output) => bytes.extend_from_slice(&output.bytes),
            Event::Gap(gap) => panic!("{gap:?}"),
            other => last = Some(other),
        }
    }
    (bytes, last.expect("an end"))
}

#[cfg(unix)]
#[tokio::test]
async fn a_reader_that_stops_pauses_its_own_process_and_loses_nothing() {
    let remote = connect().await;
    let mut slow = remote.spawn(sh("seq 1000000")).await.expect("a process");
    assert!(matches!(next_event(&mut slow).await, Some(Ok(Event::Output(_)))));
    for round in 0..5 {
        let mut other = remote.spawn(sh(&format!("echo {round}"))).await.expect("a process");
        assert_eq!(output(&mut other).await.0, format!("{round}\n").as_bytes());
    }
    let (rest, closed) = output(&mut slow).await;
    let mut expected = Vec::new();
    for number in 1..=1_000_000 {
        expected.extend_from_slice(format!("{number}\n").as_bytes());
    }
    assert!(expected.ends_with(&rest), "the rest follows what was read first");
    let Event::Closed(closed) = closed else { panic!("{closed:?}") };
    assert_eq!(closed.totals.expect("totals").stdout, expected.len() as u64);
    remote.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_process_whose_events_nobody_wants_runs_to_its_end() {
    let remote = connect().await;
    let mut process = remote.spawn(sh("seq 500000; echo done >&2; exit 3")).await.expect("a process");
    let control = Arc::clone(&process.control);
    process.events = Box::pin(futures_util::stream::empty());
    // It ends although it writes far more than the window: the stop finds nothing to end.
    let deadline = tokio::time::Instant::now() + crate::peer::PATIENCE;
    loop {
        let listed = remote.list_processes().await.expect("a list");
        if listed.iter().all(|process| process.exit_code == Some(3)) && !listed.is_empty() {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{listed:?}");
        tokio::task::yield_now().await;
    }
    assert!(!control.terminate(Terminate::kill()).await.expect("answered"));
    remote.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_megabyte_of_input_arrives_in_order() {
    let remote = connect().await;
    let request = sh("cat").stdin(longarm::request::Stdin::Piped);
    let mut process = remote.spawn(request).await.expect("a process");
    let data: Vec<u8> = (0..1_000_000_u32).map(|index| (index % 251) as u8).collect();
    let control = Arc::clone(&process.control);
    let sent = data.clone();
    let (written, (echoed, _)) = tokio::join!(
        async move {
            control.write(sent.into()).await?;
            control.close_stdin().await
        },
        output(&mut process)
    );
    written.expect("written");
    assert!(echoed == data);
    remote.close().await;
}
