//! What is left of processes: open streams after the exit, the end of a session, and output that found no room.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longarm::backend::ExecBackend;
use longarm::config::{ServerConfig, WhenFull};
use longarm::server::Server;
use longarm::{Local, LocalConfig};
use serde_json::json;

use crate::client::{PATIENCE, RawClient, decode};
use crate::server_with;

const FEATURES: &[&str] = &["credits", "exit"];

async fn pid_of(client: &mut RawClient, process: &str) -> String {
    let output = client.event("process/output", process).await;
    let text = String::from_utf8(decode(output["chunk"].as_str().unwrap())).unwrap();
    text.trim().to_owned()
}

/// Dead, or waiting for whoever reaps orphans here.
pub(crate) fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

/// Until something holds that no event tells of.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("in time");
}

#[tokio::test]
async fn streams_that_the_place_closes_after_the_exit_are_said_to_be_cut() {
    let config = LocalConfig::from_host().close_streams_after_exit(Some(Duration::from_millis(100)));
    let server = Server::new(Arc::new(Local::new(config)));
    let (mut client, _) = RawClient::open(&server, FEATURES).await;
    client.start("p", &["sh", "-c", "sleep 1000 & echo $!"]).await;
    let pid = pid_of(&mut client, "p").await;
    let closed = client.event("process/closed", "p").await;
    assert_eq!(closed["longarm"]["cut"], true, "{closed}");
    assert!(!is_gone(&pid), "what holds the stream is left alone");
    client.start("kill", &["sh", "-c", &format!("kill -9 {pid}")]).await;
    assert_eq!(client.outcome("kill").await.exit_code, Some(0));
    server.shutdown().await;
}

#[tokio::test]
async fn the_end_of_a_session_spares_what_an_exited_process_left_behind() {
    let local = Arc::new(Local::new(LocalConfig::from_host()));
    let mut config = ServerConfig::default();
    config.session_ttl = Duration::from_millis(20);
    let server = Server::builder(Arc::clone(&local) as _).config(config).build();
    let (mut client, _) = RawClient::open(&server, FEATURES).await;
    client.start("exited", &["sh", "-c", "sleep 1000 & echo $!"]).await;
    let spared = pid_of(&mut client, "exited").await;
    client.event("process/exited", "exited").await;
    client.start("running", &["sh", "-c", "echo $$; exec sleep 1000"]).await;
    let killed = pid_of(&mut client, "running").await;
    drop(client);
    until(|| is_gone(&killed)).await;
    assert_eq!((server.counts().attached, server.counts().detached), (0, 0));
    assert!(!is_gone(&spared), "only what runs is killed");
    // The end of the place is the end of everything.
    server.shutdown().await;
    local.close().await;
    until(|| is_gone(&spared)).await;
}

#[tokio::test]
async fn output_that_is_dropped_while_nobody_is_there_is_counted() {
    // More than a pipe, the place's queue and the log hold together: the command ends only when the rest was dropped.
    const BYTES: u64 = 8_000_000;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let mut config = ServerConfig::default();
    config.output.when_full = WhenFull::DropOldest;
    config.output.retained_bytes = 128 << 10;
    let server = server_with(config);
    let (mut client, session) = RawClient::open(&server, FEATURES).await;
    let quoted = |path: &Path| path.to_str().unwrap().to_owned();
    let script = format!(
        "until [ -e {go} ]; do sleep 0.01; done; head -c {BYTES} /dev/zero; : > {done}",
        go = quoted(&file("go")),
        done = quoted(&file("done")),
    );
    client.start("p", &["sh", "-c", &script]).await;
    drop(client);
    until(|| server.counts().detached == 1).await;
    std::fs::write(file("go"), "").unwrap();
    until(|| file("done").exists()).await;

    let mut client = RawClient::resume(&server, &session, FEATURES).await;
    let (mut last, mut lost, mut received) = (0, None, 0_u64);
    loop {
        let params = json!({"processId": "p", "afterSeq": last, "waitMs": 20_000});
        let read = client.call("process/read", params).await;
        let offset = read["longarm"]["offset"].as_u64().unwrap();
        let lost = *lost.get_or_insert(offset);
        assert_eq!(offset, lost + received, "nothing is lost while somebody is there");
        for chunk in read["chunks"].as_array().unwrap() {
            last = chunk["seq"].as_u64().unwrap();
            received += decode(chunk["chunk"].as_str().unwrap()).len() as u64;
        }
        client.notify("longarm/process/ack", json!({"acks": [["p", last]]})).await;
        if read["closed"] == true {
            assert_eq!(read["longarm"]["totalBytes"]["stdout"], BYTES);
            assert!(lost > 0, "it did not wait for anybody");
            assert_eq!(lost + received, BYTES);
            break;
        }
    }
    server.shutdown().await;
}
