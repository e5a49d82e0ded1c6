//! What waits, what does not, and how much is held.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longarm::server::Server;
use serde_json::{Value, json};

use crate::backends::{Holding, Scripted};
use crate::client::{PATIENCE, RawClient, decode, piped, start_params, write_params};
use crate::server;

const ALL: &[&str] = &["credits", "closeStdin", "resize", "signal", "terminate", "exit", "limits", "list"];

#[tokio::test]
async fn nothing_else_waits() {
    let backend = Holding::new();
    let server = Server::new(Arc::clone(&backend) as _);
    let (mut client, _) = RawClient::open(&server, &[]).await;
    client.call("process/start", piped("deaf", &["sleep", "1000"])).await;
    client.call("process/start", piped("cat", &["cat"])).await;
    client.start("victim", &["sleep", "1000"]).await;

    let held = client.request("process/start", start_params("held", &["held"])).await;
    let chunk = [b'x'; 1_024];
    let mut writes = Vec::new();
    for number in 0..2_000 {
        writes.push(client.request("process/write", write_params("deaf", &number.to_string(), &chunk)).await);
    }
    let mut polls = Vec::new();
    for _ in 0..100 {
        polls.push(client.request("process/read", json!({"processId": "deaf", "waitMs": 60_000})).await);
    }
    #[cfg(all(feature = "http", feature = "testing"))]
    let (target, asked) = {
        let target = longarm::testing::http_server::HttpServer::start().await.unwrap();
        let request = json!({"method": "GET", "url": target.url("/slow"), "requestId": "slow"});
        let asked = client.request("http/request", request).await;
        target.begun("/slow", 1).await;
        (target, asked)
    };
    let began = tokio::time::Instant::now();
    assert_eq!(client.call("process/terminate", json!({"processId": "victim"})).await, json!({"running": true}));
    assert_eq!(client.write("cat", "w", b"hi\n").await, "accepted");
    assert_eq!(client.event("process/output", "cat").await["chunk"], "aGkK");
    assert!(client.call("environment/info", json!({})).await["shell"].is_object());
    assert_eq!(client.call("environment/status", json!({})).await, json!({"status": "ready"}));
    assert!(began.elapsed() < Duration::from_secs(50), "before any of those that wait would have ended by itself");

    // None of those that wait has ended before, but the writes for which there was room.
    let ended: Vec<i64> = client.others.iter().filter_map(|message| message["id"].as_i64()).collect();
    assert!(!ended.contains(&held));
    #[cfg(all(feature = "http", feature = "testing"))]
    assert!(!ended.contains(&asked), "{:?}", client.others);
    assert!(polls.iter().all(|poll| !ended.contains(poll)));
    assert!(ended.len() < 600, "{} writes fit into the queue and the pipe", ended.len());
    assert_eq!(writes[..ended.len()], ended, "in their order");

    // And all of them end.
    assert_eq!(client.call("process/terminate", json!({"processId": "deaf"})).await, json!({"running": true}));
    for write in writes {
        assert_eq!(client.answer(write).await.unwrap()["status"], "accepted");
    }
    for poll in polls {
        assert_eq!(client.answer(poll).await.unwrap()["exited"], true);
    }
    backend.release.notify_waiters();
    assert_eq!(client.answer(held).await.unwrap_err()["data"]["kind"], "spawnNotFound");
    #[cfg(all(feature = "http", feature = "testing"))]
    {
        drop(target);
        assert!(client.answer(asked).await.is_err(), "its target is gone");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_start_that_is_held_can_be_cancelled() {
    let backend = Holding::new();
    let server = Server::new(Arc::clone(&backend) as _);
    let (mut client, _) = RawClient::open(&server, &[]).await;
    let start = client.request("process/start", start_params("p", &["held"])).await;
    let mut holding = backend.holding.subscribe();
    holding.wait_for(|held| *held == 1).await.unwrap();
    assert_eq!(client.call("process/terminate", json!({"processId": "p"})).await, json!({"running": true}));
    let error = client.answer(start).await.unwrap_err();
    assert_eq!(error["message"], "process p start was cancelled");
    holding.wait_for(|held| *held == 0).await.unwrap();
    client.start("p", &["true"]).await;
    assert_eq!(client.outcome("p").await.exit_code, Some(0));
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_holds_a_bounded_amount() {
    for features in [&[][..], ALL] {
        let backend = Scripted::default();
        let server = Server::new(Arc::new(backend.clone()));
        let (mut client, _) = RawClient::open(&server, features).await;
        for process in 0..3 {
            client.start(&process.to_string(), &["flood"]).await;
        }
        // Time stands still until everything is at rest.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let pulled = backend.seen.pulled.load(Ordering::SeqCst);
        // A window each, and what the transport holds.
        assert!(pulled <= 3 * (1 << 20) + (4 << 20), "{pulled} bytes");
        // Requests are not answered without end either: at some point they are not read any more.
        let mut sent = 0_u32;
        while tokio::time::timeout(Duration::from_secs(1), client.request("environment/status", json!({})))
            .await
            .is_ok()
        {
            sent += 1;
            assert!(sent < 20_000);
        }
        drop(client);
        server.shutdown().await;
        assert_eq!(backend.seen.running.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn a_slow_reader_pauses_its_own_child_only() {
    let server = server();
    let (mut client, _) = RawClient::open(&server, ALL).await;
    client.start("flood", &["sh", "-c", "yes | head -c 20000000; echo done >&2"]).await;
    client.call("process/start", piped("cat", &["cat"])).await;
    // The flood is not acknowledged: it comes up to its window, and then no further.
    let mut flooded = 0;
    for round in 0..50 {
        let id = format!("w{round}");
        client.write("cat", &id, b"x\n").await;
        client.event("process/output", "cat").await;
    }
    let mut last = 0;
    while flooded + (64 << 10) <= 1 << 20 {
        let event = client.event("process/output", "flood").await;
        flooded += decode(event["chunk"].as_str().unwrap()).len();
        last = event["seq"].as_u64().unwrap();
    }
    let list = client.call("longarm/process/list", json!({})).await;
    assert_eq!(list["processes"][0]["state"], "running", "it waits");
    assert!(list["processes"][0]["nextSeq"].as_u64().unwrap() <= last + 2);
    // Acknowledged, it goes on to its end.
    let mut total = flooded;
    loop {
        client.notify("longarm/process/ack", json!({"acks": [["flood", last]]})).await;
        let event = client.next_where(|message| message["params"]["processId"] == "flood").await;
        last = event["params"]["seq"].as_u64().unwrap();
        match event["params"]["chunk"].as_str() {
            Some(chunk) => total += decode(chunk).len(),
            None if event["method"] == "process/closed" => break,
            None => {}
        }
    }
    assert_eq!(total, 20_000_005);
    server.shutdown().await;
}

/// Takes the output of a process over any number of connections, as a client with credits does.
#[derive(Default)]
struct Follower {
    bytes: Vec<u8>,
    last: u64,
    closed: bool,
    totals: Value,
}

impl Follower {
    fn take(&mut self, seq: u64, chunk: Option<&str>) {
        if seq <= self.last {
            return;
        }
        assert_eq!(seq, self.last + 1, "no hole");
        self.last = seq;
        self.bytes.extend(chunk.map(decode).unwrap_or_default());
    }

    fn event(&mut self, event: &Value) {
        let params = &event["params"];
        self.take(params["seq"].as_u64().unwrap(), params["chunk"].as_str());
        if event["method"] == "process/closed" {
            self.closed = true;
            self.totals = params["longarm"]["totalBytes"].clone();
        }
    }

    async fn catch_up(&mut self, client: &mut RawClient) {
        let read = client.call("process/read", json!({"processId": "p", "afterSeq": self.last})).await;
        for chunk in read["chunks"].as_array().unwrap() {
            let seq = chunk["seq"].as_u64().unwrap();
            // The exit has a number too, and is told by its flag.
            if seq == self.last + 2 {
                assert_eq!(read["exited"], true);
                self.last += 1;
            }
            self.take(seq, chunk["chunk"].as_str());
        }
        self.last = read["nextSeq"].as_u64().unwrap() - 1;
        if read["closed"] == true {
            self.closed = true;
            self.totals = read["longarm"]["totalBytes"].clone();
        }
        client.notify("longarm/process/ack", json!({"acks": [["p", self.last]]})).await;
    }
}

#[tokio::test]
async fn no_byte_is_lost_at_cuts_at_full_speed_with_credits() {
    let server = server();
    let (mut client, session) = RawClient::open(&server, ALL).await;
    client.start("p", &["seq", "1", "2000000"]).await;
    let mut follower = Follower::default();
    let mut cuts = 0;
    while !follower.closed {
        // Each connection takes some events more than the one before, and is then cut without a word.
        let patience = 5 + cuts * 7;
        for _ in 0..patience {
            let event = client.next_where(|message| message["params"]["processId"] == "p").await;
            follower.event(&event);
            if follower.closed {
                break;
            }
            if event["params"]["seq"].as_u64().unwrap() % 4 == 0 {
                client.notify("longarm/process/ack", json!({"acks": [["p", follower.last]]})).await;
            }
        }
        if !follower.closed {
            drop(client);
            cuts += 1;
            client = RawClient::resume_soon(&server, &session, ALL).await;
            follower.catch_up(&mut client).await;
        }
    }
    assert!(cuts > 5, "{cuts} cuts");
    assert_eq!(follower.bytes.len(), 14_888_896);
    assert!(follower.bytes.ends_with(b"\n2000000\n"));
    assert_eq!(follower.totals, json!({"stdout": 14_888_896, "stderr": 0, "pty": 0}));
    server.shutdown().await;
}

#[tokio::test]
async fn many_processes_in_one_session_come_to_their_end() {
    let server = server();
    let (mut client, _) = RawClient::open(&server, &[]).await;
    let mut starts = Vec::new();
    for number in 0..200 {
        let script = format!("echo {number}; exit {}", number % 7);
        starts.push(client.request("process/start", start_params(&number.to_string(), &["sh", "-c", &script])).await);
    }
    for start in starts {
        client.answer(start).await.unwrap();
    }
    for number in 0..200 {
        let outcome = tokio::time::timeout(PATIENCE, client.outcome(&number.to_string())).await.unwrap();
        assert_eq!(outcome.stdout, format!("{number}\n").into_bytes());
        assert_eq!(outcome.exit_code, Some(number % 7));
    }
    server.shutdown().await;
}
