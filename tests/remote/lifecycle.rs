use std::sync::Arc;
use std::time::Duration;

use longarm::Remote;
use longarm::backend::ExecBackend as _;
use longarm::config::ClientConfig;
use longarm::error::{ConnectError, Sent, WaitError, WriteError};
use longarm::event::Event;
use longarm::request::ProcessId;
use longarm::transport::memory;
use serde_json::json;

use crate::peer::{ALL, Peer, events, next_event, no_task_left, request, tasks};

#[tokio::test]
async fn first_requests_leave_together_with_the_handshake() {
    let (remote, mut peer) = Peer::pipelined(ClientConfig::default());
    assert_eq!(remote.session_id(), None);
    let (spawned, ()) = tokio::join!(remote.spawn(request("p")), async {
        let initialize = peer.expect("initialize").await;
        peer.expect("initialized").await;
        let start = peer.expect("process/start").await;
        peer.answer(&initialize, json!({"sessionId": "s"})).await;
        peer.answer(&start, json!({"processId": "p"})).await;
    });
    spawned.expect("a process");
    assert_eq!(remote.session_id().as_deref(), Some("s"));
    assert_eq!(remote.features(), longarm::backend::Features::default());
}

#[tokio::test]
async fn a_start_whose_future_is_dropped_leaves_no_process() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let mut start = Box::pin(remote.spawn(request("p")));
    let sent = tokio::select! {
        biased;
        _ = &mut start => panic!("not answered yet"),
        sent = peer.expect("process/start") => sent,
    };
    drop(start);
    let stop = peer.expect("process/terminate").await;
    assert_eq!(stop["params"], json!({"processId": "p"}));
    peer.answer(&stop, json!({"running": false})).await;
    peer.answer(&sent, json!({"processId": "p"})).await;
    // The stop overtook the start.
    let stop = peer.expect("process/terminate").await;
    peer.answer(&stop, json!({"running": true})).await;
}

#[tokio::test]
async fn a_write_whose_future_is_dropped_is_applied_once() {
    let (remote, mut peer) = Peer::open(ALL).await;
    let spawned = peer.start(&remote, "p").await;
    let control = Arc::clone(&spawned.control);
    let mut write = Box::pin(control.write(vec![b'x'; 200_000].into()));
    let first = tokio::select! {
        biased;
        _ = &mut write => panic!("not answered yet"),
        first = peer.expect("process/write") => first,
    };
    drop(write);
    let mut bytes = 0;
    let mut request = first;
    loop {
        let chunk: longarm::wire::Base64 = serde_json::from_value(request["params"]["chunk"].clone()).expect("base64");
        bytes += chunk.0.len();
        peer.answer(&request, json!({"status": "accepted"})).await;
        if bytes == 200_000 {
            break;
        }
        request = peer.expect("process/write").await;
    }
    let (status, ()) = tokio::join!(remote.status(), async {
        let status = peer.expect("environment/status").await;
        peer.answer(&status, json!({"status": "ready"})).await;
    });
    status.expect("nothing more was written");
}

#[tokio::test]
async fn dropping_the_last_remote_ends_processes_and_connection() {
    let before = tasks();
    let (remote, mut peer) = Peer::open(&[]).await;
    let ends = peer.start(&remote, "ends").await;
    let stays = peer.start(&remote, "stays").await;
    stays.control.detach().await.expect("detached");
    let other = remote.clone();
    drop(remote);
    other.ready().await.expect("a clone keeps it");
    drop(other);
    let stop = peer.expect("process/terminate").await;
    assert_eq!(stop["params"]["processId"], "ends");
    peer.answer(&stop, json!({"running": true})).await;
    assert_eq!(peer.rest().await, [] as [serde_json::Value; 0]);
    no_task_left(before).await;
    drop((ends, stays));
}

#[tokio::test]
async fn dropping_a_connect_closes_the_connection() {
    let before = tasks();
    let (client, peer) = memory::pair();
    let connect = Remote::connect(Box::new(client), ClientConfig::default());
    assert!(tokio::time::timeout(Duration::from_millis(20), connect).await.is_err());
    no_task_left(before).await;
    drop(peer);
}

#[tokio::test]
async fn closing_waits_for_the_stops_and_leaves_no_task() {
    let before = tasks();
    let (remote, mut peer) = Peer::open(&[]).await;
    let mut spawned = peer.start(&remote, "p").await;
    let ((), ()) = tokio::join!(remote.close(), async {
        let stop = peer.expect("process/terminate").await;
        peer.answer(&stop, json!({"running": true})).await;
        peer.rest().await;
    });
    no_task_left(before).await;
    remote.close().await;
    assert!(matches!(next_event(&mut spawned).await, Some(Err(WaitError::Disconnected(_)))));
    assert!(next_event(&mut spawned).await.is_none());
}

#[tokio::test]
async fn leaving_keeps_the_processes_and_says_how_to_come_back() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let _spawned = peer.start(&remote, "p").await;
    assert_eq!(remote.leave().await.as_deref(), Some("the-session"));
    assert_eq!(peer.rest().await, [] as [serde_json::Value; 0]);
    assert_eq!(remote.session_id().as_deref(), Some("the-session"));
}

#[tokio::test]
async fn killing_and_letting_go_from_drop_never_wait() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let spawned = peer.start(&remote, "p").await;
    spawned.control.kill_now();
    drop(spawned);
    let stop = peer.expect("process/terminate").await;
    peer.answer(&stop, json!({"running": true})).await;
    peer.output("p", 1, b"late").await;
    peer.exited("p", 2, 137).await;
    peer.closed("p", 3).await;
    // What was sent before has been dealt with when this is answered.
    let (status, ()) = tokio::join!(remote.status(), async {
        let status = peer.expect("environment/status").await;
        peer.answer(&status, json!({"status": "ready"})).await;
    });
    status.expect("the connection lives");
    // The id is free for the next one.
    peer.start(&remote, "p").await;
}

#[tokio::test]
async fn a_lost_connection_ends_calls_and_streams() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let mut spawned = peer.start(&remote, "p").await;
    peer.output("p", 1, b"before").await;
    let control = Arc::clone(&spawned.control);
    let (write, ()) = tokio::join!(control.write("x".into()), async {
        peer.expect("process/write").await;
        drop(peer);
    });
    assert!(matches!(write, Err(WriteError::Disconnected(error)) if error.sent == Sent::Unknown));
    let events = events(&mut spawned).await;
    assert!(matches!(&events[..], [Ok(Event::Output(_)), Err(WaitError::Disconnected(_))]), "{events:?}");
}

#[tokio::test]
async fn a_resumed_session_is_followed_from_where_it_was_left() {
    let (client, peer) = memory::pair();
    let mut peer = Peer::over(peer);
    let (remote, ()) = tokio::join!(Remote::resume(Box::new(client), ClientConfig::default(), "the-session"), async {
        let initialize = peer.expect("initialize").await;
        assert_eq!(initialize["params"]["resumeSessionId"], "the-session");
        peer.answer(&initialize, json!({"sessionId": "the-session"})).await;
        peer.expect("initialized").await;
    });
    let remote = remote.expect("resumed");
    let (spawned, ()) = tokio::join!(remote.attach(ProcessId::new("p"), 3), async {
        let read = peer.expect("process/read").await;
        assert_eq!(read["params"]["afterSeq"], 3);
        let result = json!({
            "chunks": [{"seq": 4, "stream": "stdout", "chunk": "eA=="}], "nextSeq": 7, "exited": true, "exitCode": 5,
            "closed": true, "failure": null, "sandboxDenied": false,
        });
        peer.answer(&read, result).await;
    });
    let events = events(&mut spawned.expect("attached")).await;
    let seqs: Vec<_> = events.iter().map(|event| event.as_ref().expect("no error").seq()).collect();
    assert_eq!(seqs, [4, 5, 6]);
    assert!(matches!(&events[1], Ok(Event::Exited(exited)) if exited.status.code() == Some(5)));

    let (missing, ()) = tokio::join!(remote.attach(ProcessId::new("q"), 0), async {
        let read = peer.expect("process/read").await;
        peer.fail(&read, json!({"code": -32600, "message": "unknown process id q"})).await;
    });
    assert!(matches!(missing, Err(WaitError::UnknownProcess(_))), "{missing:?}");
}

/// Nothing of the process counts as read, so that all of it is still there for who attaches next.
#[tokio::test]
async fn attaching_whose_future_is_dropped_takes_nothing_from_the_process() {
    let (remote, mut peer) = Peer::open(ALL).await;
    let chunk = |seq: u64| json!({"seq": seq, "stream": "stdout", "chunk": "eA=="});
    let result = json!({
        "chunks": [chunk(1), chunk(2)], "nextSeq": 3, "exited": true, "exitCode": 0, "closed": true, "failure": null,
        "sandboxDenied": false, "longarm": {"totalBytes": {"stdout": 2}, "offset": 0, "exitSeq": 3, "nextSeq": 5},
    });
    let mut attach = Box::pin(remote.attach(ProcessId::new("p"), 0));
    let read = tokio::select! {
        biased;
        _ = &mut attach => panic!("not answered yet"),
        read = peer.expect("process/read") => read,
    };
    drop(attach);
    let mut running = result.clone();
    running["longarm"] = json!(null);
    running["closed"] = json!(false);
    running["exited"] = json!(false);
    peer.answer(&read, running).await;
    let (spawned, ()) = tokio::join!(remote.attach(ProcessId::new("p"), 0), async {
        let read = peer.expect("process/read").await;
        peer.answer(&read, result).await;
    });
    let mut spawned = spawned.expect("attached");
    let seqs: Vec<_> = events(&mut spawned).await.iter().map(|event| event.as_ref().expect("no error").seq()).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
    assert_eq!(peer.expect("longarm/process/ack").await["params"]["acks"], json!([["p", 4]]));
}

#[tokio::test]
async fn a_session_that_is_gone_or_taken_cannot_be_resumed() {
    for (code, said, retryable) in [(-32600, "unknown session id gone", false), (-32010, "no", true)] {
        let (client, peer) = memory::pair();
        let mut peer = Peer::over(peer);
        let (remote, ()) = tokio::join!(Remote::resume(Box::new(client), ClientConfig::default(), "gone"), async {
            let initialize = peer.expect("initialize").await;
            peer.fail(&initialize, json!({"code": code, "message": said})).await;
        });
        let error = remote.expect_err("refused");
        assert_eq!(error.is_retryable(), retryable);
        assert!(matches!(error, ConnectError::UnknownSession(_) | ConnectError::SessionAttached(_)), "{error:?}");
        assert_eq!(peer.rest().await, [] as [serde_json::Value; 0]);
    }
}
