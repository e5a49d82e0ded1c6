use std::time::Duration;

use longarm::backend::{ExecBackend as _, Terminate};
use longarm::config::ClientConfig;
use longarm::error::{CallError, ConnectError, PeerMisbehaved, Sent, SignalError, SpawnError, WaitError, WriteError};
use longarm::event::Event;
use longarm::fs::{FsError, OpenMode, ReadOptions, WalkOptions};
use serde_json::{Value, json};

use crate::peer::{Peer, events, next_event, no_task_left, request, tasks};

#[tokio::test]
async fn nonsense_instead_of_a_handshake_is_the_peers_fault() {
    for nonsense in ["", "\"text\"", "{}", "\u{0}", r#"{"id":1,"result":{"sessionId":7}}"#, r#"{"id":-1,"error":{}}"#] {
        let (remote, mut peer) = Peer::pipelined(ClientConfig::default());
        peer.expect("initialize").await;
        peer.send_raw(nonsense.to_owned()).await;
        let Err(error) = remote.ready().await else { panic!("{nonsense:?} is no handshake") };
        assert!(matches!(error, ConnectError::Peer(_)), "{nonsense:?}: {error:?}");
        assert!(!error.is_retryable());
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_answers_the_handshake_is_given_up() {
    let before = tasks();
    let (remote, mut peer) = Peer::pipelined(ClientConfig::default());
    let error = remote.ready().await.expect_err("no handshake");
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    peer.rest().await;
    drop(remote);
    no_task_left(before).await;
}

#[tokio::test]
async fn a_broken_message_ends_everything_in_typed_errors() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let mut spawned = peer.start(&remote, "p").await;
    peer.output("p", 1, b"hi").await;
    let (status, ()) = tokio::join!(remote.status(), async {
        peer.expect("environment/status").await;
        peer.send_raw("}").await;
    });
    match status {
        Err(CallError::Disconnected(error)) => {
            assert_eq!(error.sent, Sent::Unknown);
            assert!(error.reason.contains("malformed"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let events = events(&mut spawned).await;
    assert!(
        matches!(&events[..], [Ok(Event::Output(_)), Err(WaitError::Peer(PeerMisbehaved::Malformed { .. }))]),
        "{events:?}"
    );
    assert!(
        matches!(remote.spawn(request("q")).await, Err(SpawnError::Disconnected(error)) if error.sent == Sent::NotSent)
    );
    assert!(matches!(spawned.control.write("x".into()).await, Err(WriteError::Disconnected(_))));
    assert!(matches!(spawned.control.terminate(Terminate::kill()).await, Err(SignalError::Disconnected(_))));
    assert!(remote.disconnected().await.reason.contains("malformed"));
    peer.rest().await;
}

#[tokio::test]
async fn a_message_above_the_limit_ends_the_connection() {
    let mut config = ClientConfig::default();
    config.messages.max_message_bytes = 1_000;
    let (remote, mut peer) = Peer::open_with(&[], config).await;
    peer.send(&json!({"method": "process/output", "params": {"text": "x".repeat(1_000)}})).await;
    let reason = remote.disconnected().await.reason;
    assert!(reason.contains("exceeds the limit of 1000 bytes"), "{reason}");
}

#[tokio::test]
async fn guessed_answers_are_worth_nothing() {
    let (remote, mut peer) = Peer::open(&[]).await;
    for id in 0..200 {
        peer.send(&json!({"id": id, "result": {"processId": "p", "sandboxType": "fake"}})).await;
    }
    let (spawned, ()) = tokio::join!(remote.spawn(request("p")), async {
        let start = peer.expect("process/start").await;
        peer.answer(&start, json!({"processId": "p", "sandboxType": "none"})).await;
    });
    assert_eq!(spawned.expect("a process").sandbox_type.as_deref(), Some("none"));
}

#[tokio::test]
async fn a_flood_that_nobody_reads_is_held_within_the_window() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let mut spawned = peer.start(&remote, "p").await;
    let chunk = vec![b'x'; 60_000];
    const CHUNKS: u64 = 500;
    for seq in 1..=CHUNKS {
        peer.output("p", seq, &chunk).await;
    }
    // Whatever was sent before has been dealt with when this is answered.
    let (status, ()) = tokio::join!(remote.status(), async {
        let status = peer.expect("environment/status").await;
        peer.answer(&status, json!({"status": "ready"})).await;
    });
    status.expect("the connection lives");
    let read = async {
        let read = peer.expect("process/read").await;
        let result = json!({
            "chunks": [], "nextSeq": CHUNKS + 1, "exited": false, "exitCode": null, "closed": false, "failure": null,
            "sandboxDenied": false,
        });
        peer.answer(&read, result).await;
        peer.exited("p", CHUNKS + 1, 0).await;
        peer.closed("p", CHUNKS + 2).await;
    };
    let (events, ()) = tokio::join!(events(&mut spawned), read);
    let events: Vec<_> = events.into_iter().map(|event| event.expect("no error")).collect();
    let kept = events.iter().filter(|event| matches!(event, Event::Output(_))).count();
    assert!(kept * chunk.len() <= (1 << 20) + chunk.len(), "{kept} chunks were held");
    let Some(Event::Gap(gap)) = events.get(kept) else { panic!("{:?}", events.get(kept)) };
    assert_eq!((gap.first_seq, gap.last_seq, gap.bytes), (kept as u64 + 1, CHUNKS, None));
    assert!(matches!(events.last(), Some(Event::Closed(_))));
}

#[tokio::test]
async fn events_beyond_the_window_end_their_process_only() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let mut bad = peer.start(&remote, "bad").await;
    let mut good = peer.start(&remote, "good").await;
    for seq in 2..=300 {
        peer.output("bad", seq, b"x").await;
    }
    match next_event(&mut bad).await {
        Some(Err(WaitError::Peer(PeerMisbehaved::ReorderWindow { process_id }))) => {
            assert_eq!(process_id.as_str(), "bad")
        }
        other => panic!("{other:?}"),
    }
    assert!(next_event(&mut bad).await.is_none());
    let stop = peer.expect("process/terminate").await;
    assert_eq!(stop["params"]["processId"], "bad");
    peer.output("good", 1, b"x").await;
    assert!(matches!(next_event(&mut good).await, Some(Ok(Event::Output(_)))));
}

#[tokio::test]
async fn an_event_above_the_window_is_refused() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let mut spawned = peer.start(&remote, "p").await;
    peer.output("p", 1, &vec![0; (1 << 20) + 1]).await;
    assert!(matches!(next_event(&mut spawned).await, Some(Err(WaitError::Peer(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_makes_calls_busy_and_cannot_hold_up_the_close() {
    let before = tasks();
    let (remote, mut peer) = Peer::open(&[]).await;
    let spawned = peer.start(&remote, "p").await;
    let mut calls = Vec::new();
    loop {
        let remote = remote.clone();
        let call = tokio::spawn(async move { remote.status().await });
        // A call ends at once only if there is no place for it.
        if let Ok(result) = tokio::time::timeout(Duration::from_millis(1), call).await {
            match result.expect("no panic") {
                Err(CallError::Busy(busy)) => assert_eq!(busy.limit, 64),
                other => panic!("{other:?}"),
            }
            break;
        }
        calls.push(());
        assert!(calls.len() <= 64);
    }
    spawned.control.kill_now();
    let started = tokio::time::Instant::now();
    remote.close().await;
    assert!(started.elapsed() <= Duration::from_secs(5), "{:?}", started.elapsed());
    drop((remote, spawned));
    no_task_left(before).await;
}

#[tokio::test]
async fn a_flood_of_requests_ends_the_connection() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let flood = async {
        for id in 0.. {
            let message = json!({"id": id, "method": "network/policyRequest", "params": {}}).to_string();
            if futures_util::SinkExt::send(&mut peer.outgoing, message.into()).await.is_err() {
                return;
            }
        }
    };
    let (disconnected, ()) = tokio::join!(remote.disconnected(), flood);
    assert!(disconnected.reason.contains("more requests than answers"), "{disconnected}");
}

/// What a peer with files answers to a call about them.
async fn answered<T>(call: impl Future<Output = T>, peer: &mut Peer, method: &str, result: Value) -> T {
    let (answer, ()) = tokio::join!(call, async {
        let request = peer.expect(method).await;
        peer.answer(&request, result).await;
    });
    answer
}

#[tokio::test]
async fn a_block_that_cannot_be_the_one_that_was_asked_for_is_refused() {
    for (chunk, eof) in [("aGk=", false), ("", false), ("aGVsbG8=", true), ("aGVsbG8h", false)] {
        let (remote, mut peer) = Peer::open(&["fs"]).await;
        let fs = remote.fs().unwrap();
        let open = fs.open("/file".into(), OpenMode::Read);
        let (file, ()) = tokio::join!(open, async {
            let request = peer.expect("fs/open").await;
            let handle = request["params"]["handleId"].clone();
            peer.answer(&request, json!({"handleId": handle})).await;
        });
        let file = file.unwrap();
        let answer = json!({"chunk": chunk, "eof": eof});
        let error = answered(file.read_block(0, 5), &mut peer, "fs/readBlock", answer).await.unwrap_err();
        assert!(matches!(error, FsError::Peer(PeerMisbehaved::BadResult { .. })), "{chunk} {eof}: {error:?}");
        drop(file);
        peer.expect("fs/close").await;
    }
}

#[tokio::test]
async fn names_and_paths_that_lead_elsewhere_are_refused() {
    let (remote, mut peer) = Peer::open(&["fs"]).await;
    let fs = remote.fs().unwrap();
    let entry = json!({"fileName": "../../.ssh/authorized_keys", "isDirectory": false, "isFile": true});
    let entries = json!({"entries": [entry]});
    let list = fs.read_directory("/dir".into());
    let error = answered(list, &mut peer, "fs/readDirectory", entries).await.unwrap_err();
    assert!(matches!(error, FsError::Peer(PeerMisbehaved::BadResult { .. })), "{error:?}");
    let found = json!([{"path": "file:///etc/passwd", "kind": "file"}]);
    let result = json!({"entries": found, "errors": [], "truncated": false});
    let walk = fs.walk("/dir".into(), WalkOptions::new());
    let error = answered(walk, &mut peer, "fs/walk", result).await.unwrap_err();
    assert!(matches!(error, FsError::Peer(PeerMisbehaved::BadResult { .. })), "{error:?}");
}

#[tokio::test]
async fn what_a_peer_says_of_a_size_is_not_believed() {
    let (remote, mut peer) = Peer::open(&["fs"]).await;
    let fs = remote.fs().unwrap();
    let read = |most| fs.read("/file".into(), ReadOptions::new().max_bytes(most));
    let error = answered(read(2), &mut peer, "fs/readFile", json!({"dataBase64": "aGVsbG8="})).await.unwrap_err();
    assert!(matches!(error, FsError::TooLarge { size: Some(5), limit: 2, .. }), "{error:?}");

    let (bytes, ()) = tokio::join!(read(u64::MAX), async {
        let request = peer.expect("fs/readFile").await;
        let size = 1_u64 << 62;
        let detail = json!({"kind": "tooLarge", "path": "file:///file", "size": size, "limit": 4 << 20});
        let error = json!({"code": -32600, "message": "file is too large", "data": {"longarm": detail}});
        peer.fail(&request, error).await;
        let request = peer.expect("fs/open").await;
        let handle = request["params"]["handleId"].clone();
        peer.answer(&request, json!({"handleId": handle})).await;
        loop {
            let request = peer.next().await.unwrap();
            match request["method"].as_str() {
                Some("fs/readBlock") if request["params"]["offset"] == 0 => {
                    peer.answer(&request, json!({"chunk": "aGk=", "eof": true})).await;
                }
                Some("fs/readBlock") => peer.answer(&request, json!({"chunk": "", "eof": true})).await,
                Some("fs/close") => break peer.answer(&request, json!({})).await,
                _ => panic!("{request}"),
            }
        }
    });
    assert_eq!(bytes.unwrap(), "hi");
}

#[tokio::test]
async fn a_file_that_says_it_is_empty_is_read_from_a_plain_peer_in_blocks() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let fs = remote.fs().unwrap();
    let (bytes, ()) = tokio::join!(fs.read("/proc/file".into(), ReadOptions::new()), async {
        let request = peer.expect("fs/getMetadata").await;
        let times = json!({"createdAtMs": 0, "modifiedAtMs": 0, "size": 0, "isDirectory": false, "isFile": true});
        peer.answer(&request, times).await;
        let request = peer.expect("fs/open").await;
        let handle = request["params"]["handleId"].clone();
        peer.answer(&request, json!({"handleId": handle})).await;
        loop {
            let request = peer.next().await.unwrap();
            match request["method"].as_str() {
                Some("fs/readBlock") if request["params"]["offset"] == 0 => {
                    peer.answer(&request, json!({"chunk": "aGk=", "eof": true})).await;
                }
                Some("fs/readBlock") => peer.answer(&request, json!({"chunk": "", "eof": true})).await,
                Some("fs/close") => break peer.answer(&request, json!({})).await,
                _ => panic!("{request}"),
            }
        }
    });
    assert_eq!(bytes.unwrap(), "hi");
}
