//! What commands do, seen from the wire.

use serde_json::json;

use crate::client::{RawClient, piped, start_params, write_params};
use crate::server;

const ALL: &[&str] = &["credits", "closeStdin", "resize", "signal", "terminate", "exit", "limits", "list"];

#[tokio::test]
async fn a_command_runs_and_its_events_come_in_order_after_the_answer() {
    let server = server();
    let (mut client, _) = RawClient::open(&server, &[]).await;
    let id = client.request("process/start", start_params("p", &["sh", "-c", "echo hi; echo err >&2; exit 3"])).await;
    let first = client.next().await.unwrap();
    assert_eq!(first, json!({"id": id, "result": {"processId": "p", "sandboxType": "none"}}));
    let outcome = client.outcome("p").await;
    assert_eq!((outcome.stdout, outcome.stderr, outcome.exit_code), (b"hi\n".into(), b"err\n".into(), Some(3)));
    server.shutdown().await;
}

#[tokio::test]
async fn everything_in_one_flight_on_a_fresh_connection() {
    let server = server();
    let (mut client, _) = RawClient::connect(&server);
    client.request("initialize", json!({"clientName": "hasty"})).await;
    client.notify("initialized", json!({})).await;
    let start = client.request("process/start", piped("p", &["cat"])).await;
    let write = client.request("process/write", write_params("p", "w", b"hi\n")).await;
    let read = client.request("process/read", json!({"processId": "p", "waitMs": 10_000})).await;
    client.answer(1).await.unwrap();
    assert_eq!(client.answer(start).await.unwrap()["processId"], "p");
    assert_eq!(client.answer(write).await.unwrap()["status"], "accepted");
    assert_eq!(client.answer(read).await.unwrap()["chunks"][0]["chunk"], "aGkK");
    server.shutdown().await;
}

#[tokio::test]
async fn standard_input_is_closed_after_what_was_written() {
    let server = server();
    let (mut client, _) = RawClient::open(&server, ALL).await;
    client.call("process/start", piped("p", &["wc", "-c"])).await;
    for number in 0..16 {
        client.request("process/write", write_params("p", &number.to_string(), &vec![b'x'; 64 << 10])).await;
    }
    let close = json!({"processId": "p"});
    assert_eq!(client.call("longarm/process/closeStdin", close.clone()).await, json!({"status": "accepted"}));
    assert_eq!(client.write("p", "late", b"x").await, "stdinClosed");
    assert_eq!(client.write("p", "3", b"x").await, "accepted", "as before");
    assert_eq!(client.call("longarm/process/closeStdin", close).await, json!({"status": "stdinClosed"}));
    let outcome = client.outcome("p").await;
    assert_eq!((outcome.stdout, outcome.exit_code), (b"1048576\n".into(), Some(0)));
    server.shutdown().await;
}

#[tokio::test]
async fn writes_of_one_flight_arrive_in_their_order() {
    let server = server();
    let (mut client, _) = RawClient::open(&server, ALL).await;
    client.call("process/start", piped("p", &["cat"])).await;
    let mut expected = Vec::new();
    for number in 0..2_000 {
        let line = format!("{number}\n");
        client.request("process/write", write_params("p", &number.to_string(), line.as_bytes())).await;
        expected.extend(line.into_bytes());
        if number == 1_000 {
            // Lets the echo flow.
            client.call("environment/status", json!({})).await;
        }
    }
    client.request("longarm/process/closeStdin", json!({"processId": "p"})).await;
    assert_eq!(client.outcome("p").await.stdout, expected);
    server.shutdown().await;
}

#[tokio::test]
async fn a_terminal_is_resized_interrupted_and_ended() {
    let server = server();
    let (mut client, _) = RawClient::open(&server, ALL).await;
    let mut params = start_params(
        "p",
        &[
            "sh",
            "-c",
            "trap 'stty size' WINCH; stty size; trap 'echo int; exit 7' INT; echo ready; while :; do sleep 0.01; done",
        ],
    );
    params["tty"] = json!(true);
    params["longarm"] = json!({"terminal": {"rows": 10, "cols": 20}});
    client.call("process/start", params).await;
    let mut text = String::new();
    let mut until = async |client: &mut RawClient, wanted: &str| {
        while !text.contains(wanted) {
            let event = client.event("process/output", "p").await;
            assert_eq!(event["stream"], "pty");
            text.push_str(&String::from_utf8(crate::client::decode(event["chunk"].as_str().unwrap())).unwrap());
        }
    };
    until(&mut client, "10 20\r\nready").await;
    client.call("longarm/process/resize", json!({"processId": "p", "rows": 30, "cols": 40})).await;
    until(&mut client, "30 40").await;
    let refused = client.refused("longarm/process/closeStdin", json!({"processId": "p"})).await;
    assert_eq!(refused.0, -32600);
    client.call("process/signal", json!({"processId": "p", "signal": "interrupt"})).await;
    until(&mut client, "int").await;
    assert_eq!(client.event("process/exited", "p").await["exitCode"], 7);
    client.event("process/closed", "p").await;
    assert_eq!(client.call("process/signal", json!({"processId": "p", "signal": "interrupt"})).await, json!({}));
    server.shutdown().await;
}

#[tokio::test]
async fn stops_signals_and_limits_tell_what_they_did() {
    let server = server();
    let (mut client, _) = RawClient::open(&server, ALL).await;
    client.start("signal", &["sleep", "1000"]).await;
    client.call("longarm/process/signal", json!({"processId": "signal", "signal": "USR1"})).await;
    let exited = client.event("process/exited", "signal").await;
    assert_eq!((&exited["exitCode"], &exited["longarm"]), (&json!(138), &json!({"signal": "USR1"})));

    let mut params = start_params("time", &["sleep", "1000"]);
    params["longarm"] = json!({"timeLimitMs": 50});
    client.call("process/start", params).await;
    let exited = client.event("process/exited", "time").await;
    assert_eq!(exited["longarm"]["limit"], "time");
    assert_eq!(exited["longarm"]["timedOut"], true);

    client.start("stop", &["sh", "-c", "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done"]).await;
    client.event("process/output", "stop").await;
    let stop = json!({"processId": "stop", "longarm": {"graceMs": 10_000}});
    assert_eq!(client.call("process/terminate", stop).await, json!({"running": true}));
    assert_eq!(client.event("process/exited", "stop").await["exitCode"], 5);

    client.start("tree", &["sh", "-c", "sleep 1000 & echo $!"]).await;
    let output = client.event("process/output", "tree").await;
    assert_eq!(client.event("process/exited", "tree").await["exitCode"], 0);
    assert_eq!(client.call("process/terminate", json!({"processId": "tree"})).await, json!({"running": false}));
    let all = json!({"processId": "tree", "longarm": {"descendants": true}});
    assert_eq!(client.call("process/terminate", all).await, json!({"running": false}));
    let closed = client.event("process/closed", "tree").await;
    let written = crate::client::decode(output["chunk"].as_str().unwrap()).len();
    assert_eq!(closed["longarm"]["totalBytes"], json!({"stdout": written, "stderr": 0, "pty": 0}));
    server.shutdown().await;
}

#[tokio::test]
async fn a_failed_start_names_the_fault_and_frees_the_id() {
    let server = server();
    let (mut client, _) = RawClient::open(&server, &[]).await;
    for (argv, cwd, kind, named) in [
        (&["/nonexistent/program"][..], "file:///tmp", "spawnNotFound", "/nonexistent/program"),
        (&["true"], "file:///nonexistent/directory", "spawnNotFound", "/nonexistent/directory"),
        (&["/etc"], "file:///tmp", "spawnPermissionDenied", "/etc"),
        (&["true"], "file:///etc/passwd", "spawnFailed", "/etc/passwd"),
    ] {
        let mut params = start_params("p", argv);
        params["cwd"] = json!(cwd);
        let error = client.try_call("process/start", params).await.unwrap_err();
        assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32603), &json!(kind)));
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }
    client.start("p", &["true"]).await;
    server.shutdown().await;
}
