//! A server that means harm, over one connection after another.

use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use longarm::ExecRequest;
use longarm::config::ClientConfig;
use longarm::error::{PeerMisbehaved, SpawnError, WaitError};
use serde_json::json;

use crate::script::{Peer, script};
use crate::support::soon;

fn request() -> ExecRequest {
    ExecRequest::new(["true"]).cwd("/").process_id(longarm::request::ProcessId::new("p"))
}

#[tokio::test]
async fn a_one_shot_command_costs_one_round_trip() {
    let (place, mut far_ends, _) = script();
    let running = tokio::spawn(async move { place.output(request()).await });
    let mut peer = Peer::next(&mut far_ends).await;
    // All of it before the peer has said a word.
    let initialize = peer.expect("initialize").await;
    peer.expect("initialized").await;
    let start = peer.expect("process/start").await;
    peer.answer(&initialize, json!({"sessionId": "s"})).await;
    peer.answer(&start, json!({"processId": "p"})).await;
    for event in [
        json!({"method": "process/output", "params": {"processId": "p", "seq": 1, "stream": "stdout", "chunk": "aGk="}}),
        json!({"method": "process/exited", "params": {"processId": "p", "seq": 2, "exitCode": 0, "sandboxDenied": false}}),
        json!({"method": "process/closed", "params": {"processId": "p", "seq": 3}}),
    ] {
        assert!(peer.send(event.to_string()).await);
    }
    let output = soon(running).await.expect("no panic").expect("it runs");
    assert_eq!(output.stdout.to_text(), "hi");
    // The place was dropped with the task: nothing was asked in the end, not even that.
    assert!(soon(peer.incoming.next()).await.is_none());
}

#[tokio::test]
async fn an_older_server_costs_one_read_more() {
    let (place, mut far_ends, _) = script();
    let running = tokio::spawn(async move { place.output(request()).await });
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_pipelined().await;
    for event in [
        json!({"method": "process/exited", "params": {"processId": "p", "seq": 1, "exitCode": 0}}),
        json!({"method": "process/closed", "params": {"processId": "p", "seq": 2}}),
    ] {
        assert!(peer.send(event.to_string()).await);
    }
    let read = peer.expect("process/read").await;
    let result = json!({"chunks": [], "nextSeq": 3, "exited": true, "exitCode": 0, "closed": true, "failure": null});
    peer.answer(&read, result).await;
    soon(running).await.expect("no panic").expect("it runs");
    assert!(soon(peer.incoming.next()).await.is_none());
}

#[tokio::test]
async fn events_may_flood_in_before_the_answer_to_the_resume() {
    let (place, mut far_ends, _) = script();
    let spawning = tokio::spawn(async move { place.spawn(request()).await.map(|process| (place, process)) });
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_pipelined().await;
    let (_place, mut process) = soon(spawning).await.expect("no panic").expect("it starts");
    drop(peer);
    let mut peer = Peer::next(&mut far_ends).await;
    let resume = peer.expect("initialize").await;
    assert_eq!(resume["params"]["resumeSessionId"], "s");
    for seq in 1..=5_000 {
        let params = json!({"processId": "p", "seq": seq, "stream": "stdout", "chunk": "eA=="});
        assert!(peer.send(json!({"method": "process/output", "params": params}).to_string()).await);
    }
    peer.answer(&resume, json!({"sessionId": "s"})).await;
    peer.expect("initialized").await;
    let read = peer.expect("process/read").await;
    assert_eq!(read["params"]["afterSeq"], 5_000);
    for seq in 1..=5_000 {
        let event = soon(process.next_event()).await.expect("no error").expect("an event");
        assert_eq!(event.seq(), seq);
    }
}

#[tokio::test]
async fn a_start_is_never_repeated_and_its_process_is_ended() {
    let (place, mut far_ends, _) = script();
    let spawning = tokio::spawn({
        let place = place.clone();
        async move { place.spawn(request()).await }
    });
    let mut peer = Peer::next(&mut far_ends).await;
    let initialize = peer.expect("initialize").await;
    peer.expect("initialized").await;
    peer.answer(&initialize, json!({"sessionId": "s"})).await;
    peer.expect("process/start").await;
    // By then the client has the answer to the handshake.
    soon(place.connection().expect("remote").wait_for(|state| state.is_connected())).await.expect("connected");
    drop(peer);
    assert!(matches!(soon(spawning).await.expect("no panic"), Err(SpawnError::Disconnected(_))));
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet().await;
    let stop = peer.expect("process/terminate").await;
    assert_eq!(stop["params"]["processId"], "p");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_breaks_the_protocol_again_and_again_is_given_up() {
    let (place, mut far_ends, dialled) = script();
    place.remote().expect("remote").start_connecting();
    let mut connection = place.connection().expect("remote");
    for _ in 0..3 {
        let mut peer = Peer::next(&mut far_ends).await;
        peer.greet().await;
        assert!(peer.send("no JSON at all").await);
    }
    let state = soon(connection.wait_for(|state| state.is_over())).await.expect("it is given up");
    assert!(state.is_over());
    assert_eq!(dialled.load(Ordering::SeqCst), 3);
}

/// What the process has in memory now, in bytes.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize = statm.split(' ').nth(1).expect("the second number").parse().expect("a number");
    pages * 4096
}

/// Everything that a server can send without being asked, more of it than anybody could hold, on each of some connections.
/// What other tests hold meanwhile would count, too.
#[cfg(target_os = "linux")]
#[test]
fn memory_stays_bounded_whatever_comes() {
    crate::roles::alone("hostile::memory_stays_bounded_whatever_comes", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("built");
        runtime.block_on(send_whatever());
    });
}

#[cfg(target_os = "linux")]
async fn send_whatever() {
    let (place, mut far_ends, _) = script();
    let spawning = tokio::spawn(async move { place.spawn(request()).await.map(|process| (place, process)) });
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_pipelined().await;
    let (_place, process) = soon(spawning).await.expect("no panic").expect("it starts");
    let chunk = "eHh4".repeat(20_000);
    let output = |id: &str, seq: u64| {
        let params = json!({"processId": id, "seq": seq, "stream": "stdout", "chunk": chunk});
        json!({"method": "process/output", "params": params}).to_string()
    };
    let before = resident();
    let mut most = before;
    for connection in 0..4 {
        if connection > 0 {
            // It breaks, and the next one breaks before it says anything.
            drop(peer);
            Peer::next(&mut far_ends).await.expect("initialize").await;
            peer = Peer::next(&mut far_ends).await;
            let resume = peer.expect("initialize").await;
            // Before the answer, for known and unknown processes, in order and far out of it.
            for round in 0..150_u64 {
                peer.send(output("p", 2 * round + 1)).await;
                peer.send(output("unknown", round)).await;
            }
            peer.answer(&resume, json!({"sessionId": "s"})).await;
        }
        for round in 0..300_u64 {
            let guessed = json!({"id": round + 100, "result": {"junk": chunk}}).to_string();
            for message in [output("unknown", round), guessed, json!({"method": "x/y", "params": [chunk]}).to_string()]
            {
                peer.send(message).await;
            }
            most = most.max(resident());
        }
    }
    most = most.max(resident());
    let grown = most.saturating_sub(before) >> 20;
    assert!(grown < 64, "{grown} MiB");
    drop(process);
}

/// A reorder window that is exceeded fails its process, which is ended, and nothing else.
#[tokio::test]
async fn events_too_far_out_of_order_fail_their_process_alone() {
    let (place, mut far_ends, dialled) = script();
    let spawning = tokio::spawn({
        let place = place.clone();
        async move { place.spawn(request()).await }
    });
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_pipelined().await;
    let mut process = soon(spawning).await.expect("no panic").expect("it starts");
    for seq in 2..2 + ClientConfig::default().reorder_events as u64 + 1 {
        let params = json!({"processId": "p", "seq": seq, "stream": "stdout", "chunk": "eA=="});
        assert!(peer.send(json!({"method": "process/output", "params": params}).to_string()).await);
    }
    let error = soon(process.next_event()).await.expect_err("no event is in order");
    let WaitError::Peer(PeerMisbehaved::ReorderWindow { process_id }) = error else { panic!("{error:?}") };
    assert_eq!(process_id.as_str(), "p");
    let stop = peer.expect("process/terminate").await;
    peer.answer(&stop, json!({"running": true})).await;
    let status = tokio::spawn(async move { place.remote().expect("remote").status().await });
    let asked = peer.expect("environment/status").await;
    peer.answer(&asked, json!({"status": "ready"})).await;
    soon(status).await.expect("no panic").expect("the connection lives");
    assert_eq!(dialled.load(Ordering::SeqCst), 1);
}
