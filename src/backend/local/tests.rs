//! What cannot be seen from outside: the ways of older kernels.

use std::time::Duration;

use futures_util::StreamExt;

use super::*;
use crate::event::Event;
use crate::request::Signal;

/// The status and the output of a script.
async fn run(local: &Local, script: &str) -> (crate::status::ExitStatus, Vec<u8>) {
    let spawned = local.spawn(ExecRequest::new(["sh", "-c", script]).cwd("/tmp")).await.unwrap();
    collect(spawned.events).await
}

async fn collect(mut events: super::super::EventSource) -> (crate::status::ExitStatus, Vec<u8>) {
    let (mut status, mut bytes) = (None, Vec::new());
    while let Some(event) = events.next().await {
        match event.unwrap() {
            Event::Output(output) => bytes.extend_from_slice(&output.bytes),
            Event::Exited(exited) => status = Some(exited.status),
            _ => {}
        }
    }
    (status.unwrap(), bytes)
}

fn without_pidfds() -> Local {
    Local::new(LocalConfig::from_host().exit_by_thread())
}

#[tokio::test]
async fn without_pidfds_exits_are_seen_and_nothing_is_left() {
    let local = without_pidfds();
    let (status, bytes) = run(&local, "echo out; exit 3").await;
    assert_eq!((status.code(), bytes.as_slice()), (Some(3), &b"out\n"[..]));
    assert_eq!(run(&local, "kill -9 $$").await.0.signal(), Some(Signal::Kill));
    let runs = (0..20).map(|code| run(&local, if code % 2 == 0 { "exit 0" } else { "exit 1" }));
    let ends = futures_util::future::join_all(runs).await;
    assert!(ends.iter().enumerate().all(|(number, (status, _))| status.code() == Some((number % 2) as i32)));
    local.close().await;
}

#[tokio::test]
async fn without_pidfds_the_leader_stays_until_the_close_and_the_group_can_be_ended() {
    let local = without_pidfds();
    let request = ExecRequest::new(["sh", "-c", "sleep 300 & exit 0"]).cwd("/tmp");
    let mut spawned = local.spawn(request).await.unwrap();
    assert!(matches!(spawned.events.next().await, Some(Ok(Event::Exited(_)))));
    let stat = format!("/proc/{}/stat", spawned.control.os_id().unwrap());
    assert!(std::fs::read_to_string(&stat).unwrap().contains(") Z "), "its number is kept");
    let how = Terminate::graceful(Duration::from_secs(60)).with_descendants();
    assert!(!spawned.control.terminate(how).await.unwrap());
    assert!(matches!(spawned.events.next().await, Some(Ok(Event::Closed(_)))));
    assert!(spawned.events.next().await.is_none());
    local.close().await;
    assert!(!std::path::Path::new(&stat).exists(), "and given back");
}
