//! A link that breaks anywhere, and a client that comes back and repeats itself.

use longarm::config::MessageLimits;
use longarm::server::Server;
use longarm::transport::stdio;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{PATIENCE, RawClient, decode, piped, write_params};
use crate::server;

/// What the client says on its first connection: all of it in one flight.
fn flight() -> Vec<u8> {
    let messages = [
        json!({"id": 1, "method": "initialize", "params": {"clientName": "cut"}}),
        json!({"method": "initialized"}),
        json!({"id": 2, "method": "process/start", "params": piped("p", &["cat"])}),
        json!({"id": 3, "method": "process/write", "params": write_params("p", "w1", b"a\n")}),
    ];
    messages.iter().map(|message| format!("{message}\n")).collect::<String>().into_bytes()
}

/// Sends the first `sent` bytes of a flight over a byte stream with the framing of stdio, takes the answer to `initialize` and then
/// `taken` bytes more, and cuts the link. Returns the session.
async fn first_connection(server: &Server, flight: &[u8], sent: usize, taken: usize) -> String {
    let (client, service) = tokio::io::duplex(64 << 10);
    let (reader, writer) = tokio::io::split(service);
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(Box::new(stdio::from_io(reader, writer, MessageLimits::default()))).await }
    });
    let (mut reader, mut writer) = tokio::io::split(client);
    writer.write_all(&flight[..sent]).await.unwrap();
    let mut greeting = Vec::new();
    while !greeting.ends_with(b"\n") {
        greeting.push(reader.read_u8().await.unwrap());
    }
    let mut rest = vec![0; taken];
    tokio::time::timeout(PATIENCE, reader.read_exact(&mut rest)).await.expect("so many bytes").unwrap();
    drop((reader, writer));
    // How it ended is not the point here.
    let _ended = serving.await.unwrap();
    let greeting: Value = serde_json::from_slice(&greeting).unwrap();
    greeting["result"]["sessionId"].as_str().unwrap().into()
}

/// Comes back, repeats the write until it is answered, writes again, and sees what the process got.
async fn come_back(server: &Server, session: &str) {
    let mut client = RawClient::resume_soon(server, session, &[]).await;
    let status = client.write("p", "w1", b"a\n").await;
    if status == "unknownProcess" {
        // The start had not come across whole.
        client.call("process/start", piped("p", &["cat"])).await;
        assert_eq!(client.write("p", "w1", b"a\n").await, "accepted");
    } else {
        assert_eq!(status, "accepted");
    }
    assert_eq!(client.write("p", "w2", b"b\n").await, "accepted");
    let mut got = Vec::new();
    let mut last = 0;
    while got.len() < 4 {
        let params = json!({"processId": "p", "afterSeq": last, "waitMs": 10_000});
        let read = client.call("process/read", params).await;
        for chunk in read["chunks"].as_array().unwrap() {
            assert_eq!(chunk["seq"], last + 1, "no hole and no repetition");
            last += 1;
            got.extend(decode(chunk["chunk"].as_str().unwrap()));
        }
    }
    assert_eq!(got, b"a\nb\n");
    // Nothing more was written: the next output is what is written next.
    client.others.clear();
    client.write("p", "w3", b"c\n").await;
    let read = client.call("process/read", json!({"processId": "p", "afterSeq": last, "waitMs": 10_000})).await;
    assert_eq!(read["chunks"][0]["chunk"], "Ywo=");
    assert_eq!(client.call("process/terminate", json!({"processId": "p"})).await, json!({"running": true}));
}

#[tokio::test]
async fn a_write_is_applied_once_wherever_the_request_is_cut() {
    let server = server();
    let flight = flight();
    let handshake = flight.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for sent in handshake..=flight.len() {
        let session = first_connection(&server, &flight, sent, 0).await;
        come_back(&server, &session).await;
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_write_is_applied_once_wherever_the_answer_is_cut() {
    let server = server();
    // The answers to the start and to the write; the echo may come between them or after.
    let answers = [
        json!({"id": 2, "result": {"processId": "p", "sandboxType": "none"}}),
        json!({"id": 3, "result": {"status": "accepted"}}),
    ];
    let whole: usize = answers.iter().map(|answer| answer.to_string().len() + 1).sum();
    for taken in 0..=whole {
        let session = first_connection(&server, &flight(), flight().len(), taken).await;
        come_back(&server, &session).await;
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_whole_file_write_that_is_cut_leaves_the_old_content_or_the_new() {
    let server = server();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let messages = [
        json!({"id": 1, "method": "initialize", "params": {"clientName": "cut"}}),
        json!({"method": "initialized"}),
        json!({"id": 2, "method": "fs/writeFile", "params": {
            "path": longarm::PathUri::from_host_native_path(&path).unwrap().as_str(),
            "dataBase64": "bmV3IGNvbnRlbnQ=",
        }}),
    ];
    let flight = messages.iter().map(|message| format!("{message}\n")).collect::<String>().into_bytes();
    let handshake = flight.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for sent in handshake..=flight.len() {
        std::fs::write(&path, "old").unwrap();
        first_connection(&server, &flight, sent, 0).await;
        let found = std::fs::read(&path).unwrap();
        // A request that came across whole may be carried out after the cut.
        assert!(found == b"old" || sent == flight.len() && found == b"new content", "{sent}: {found:?}");
    }
    server.shutdown().await;
}
