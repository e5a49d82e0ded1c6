//! Clients that do what they should not.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use longarm::config::{MessageLimits, ServerConfig};
use longarm::error::{PeerMisbehaved, TransportError};
use longarm::server::ServeError;
use longarm::transport::stdio;
use proptest::prelude::*;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{RawClient, start_params, write_params};
use crate::{server, server_with};

#[tokio::test]
async fn malformed_messages_are_answered_and_the_connection_goes_on() {
    let server = server();
    let (mut client, _) = RawClient::open(&server, &[]).await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let many = format!("{{\"id\":1,\"method\":\"environment/status\",\"x\":[{}0]}}", "0,".repeat(300_000));
    for text in [
        "not json".to_owned(),
        "[]".into(),
        "{}".into(),
        r#"{"id":null,"method":"environment/status"}"#.into(),
        r#"{"id":1e99,"method":"environment/status"}"#.into(),
        r#"{"id":7,"id":8,"method":"environment/status"}"#.into(),
        r#"{"id":7,"method":"environment/status","params":{"a":{"b":1,"b":2}}}"#.into(),
        r#"{"id":7,"method":"environment/status"}{}"#.into(),
        format!("{{\"id\":1,\"method\":\"environment/status\",\"params\":{deep}}}"),
        many,
        "\u{feff}{}".into(),
    ] {
        client.send_text(text.clone()).await;
        let answer = client.next().await.unwrap();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(-1), &json!(-32600)),
            "{}",
            &text[..40.min(text.len())]
        );
    }
    client.send_text(Bytes::from_static(b"\xff\xfe")).await;
    assert_eq!(client.next().await.unwrap()["id"], -1);
    assert_eq!(client.call("environment/status", json!({})).await, json!({"status": "ready"}));
    server.shutdown().await;
}

#[tokio::test]
async fn an_unexpected_notification_ends_the_connection_and_detaches_the_session() {
    let server = server();
    for message in [
        json!({"method": "some/notification", "params": {}}),
        json!({"id": 4, "result": {}}),
        json!({"id": 4, "error": {"code": 1, "message": "x"}}),
        json!({"method": "longarm/process/ack", "params": {"acks": []}}),
    ] {
        let (mut client, serving) = RawClient::connect(&server);
        let result = client.initialize(None, &[]).await.unwrap();
        client.send_text(message.to_string()).await;
        assert_eq!(client.next().await, None, "nothing is sent");
        let error = serving.await.unwrap().unwrap_err();
        assert!(matches!(error, ServeError::Peer(PeerMisbehaved::Protocol(_))), "{error}");
        RawClient::resume_soon(&server, result["sessionId"].as_str().unwrap(), &[]).await;
    }
    let (mut client, serving) = RawClient::connect(&server);
    client.notify("initialized", json!({})).await;
    assert_eq!(client.next().await, None);
    assert!(serving.await.unwrap().is_err());
    server.shutdown().await;
}

#[tokio::test]
async fn a_message_above_the_limit_ends_only_its_connection() {
    let mut config = ServerConfig::default();
    config.messages.max_message_bytes = 10_000;
    let server = server_with(config);
    let (client, service) = tokio::io::duplex(64 << 10);
    let (reader, writer) = tokio::io::split(service);
    let serving = tokio::spawn({
        let server = server.clone();
        let limits = server.config().messages;
        async move { server.serve(Box::new(stdio::from_io(reader, writer, limits))).await }
    });
    let (mut other, _) = RawClient::open(&server, &[]).await;
    let (mut reader, mut writer) = tokio::io::split(client);
    let sending = tokio::spawn(async move {
        // It is cut off on the way.
        let _cut = writer.write_all(&vec![b'x'; 1 << 20]).await;
    });
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
    let error = serving.await.unwrap().unwrap_err();
    assert!(
        matches!(error, ServeError::Transport(TransportError::MessageTooLarge { limit_bytes: 10_000, .. })),
        "{error}"
    );
    drop(reader);
    sending.await.unwrap();
    other.start("p", &["true"]).await;
    assert_eq!(other.outcome("p").await.exit_code, Some(0));
    server.shutdown().await;
}

#[tokio::test]
async fn a_read_of_more_than_fits_into_a_message_is_split() {
    let mut config = ServerConfig::default();
    config.output.retained_bytes = 90 << 20;
    let server = server_with(config);
    let (mut client, _) = RawClient::open(&server, &["credits", "exit"]).await;
    client.start("p", &["head", "-c", "80000000", "/dev/zero"]).await;
    client.event("process/closed", "p").await;
    let (mut last, mut total, mut reads) = (0, 0, 0);
    loop {
        let params = json!({"processId": "p", "afterSeq": last, "maxBytes": 100_000_000});
        let id = client.request("process/read", params).await;
        let answer = client.next_where(|message| message["id"] == id).await;
        assert!(answer.to_string().len() <= 64 << 20, "within what a peer has to take");
        let chunks = answer["result"]["chunks"].as_array().unwrap();
        if chunks.is_empty() {
            break;
        }
        assert_eq!(answer["result"]["longarm"]["offset"], total);
        for chunk in chunks {
            last = chunk["seq"].as_u64().unwrap();
            total += chunk["chunk"].as_str().unwrap().len() / 4 * 3;
            total -= chunk["chunk"].as_str().unwrap().bytes().rev().take_while(|byte| *byte == b'=').count();
        }
        reads += 1;
    }
    assert_eq!(total, 80_000_000);
    assert!(reads > 1);
    server.shutdown().await;
}

#[tokio::test]
async fn bytes_for_a_process_that_does_not_read_are_bounded() {
    let mut config = ServerConfig::default();
    config.max_request_bytes_in_flight = 1 << 20;
    let server = server_with(config);
    let (mut client, session) = RawClient::open(&server, &[]).await;
    client.call("process/start", crate::client::piped("deaf", &["sleep", "1000"])).await;
    let chunk = vec![b'x'; 100_000];
    // As many as the process may have are accepted, as many wait again, and one more is refused.
    let writes = 22;
    for write in 0..writes {
        client.request("process/write", write_params("deaf", &write.to_string(), &chunk)).await;
    }
    let refusal = loop {
        let answer = client.next_where(|message| message.get("id").is_some()).await;
        match answer.get("error") {
            Some(error) => break error.clone(),
            None => assert_eq!(answer["result"]["status"], "accepted"),
        }
    };
    assert_eq!(refusal["code"], -32600);
    assert!(refusal["message"].as_str().unwrap().contains("1048576 bytes"), "{refusal}");
    // No other process pays for it, nor does a new connection.
    client.call("process/start", crate::client::piped("other", &["sleep", "1000"])).await;
    assert_eq!(client.call("process/write", write_params("other", "1", &chunk)).await["status"], "accepted");
    drop(client);
    let mut client = RawClient::resume_soon(&server, &session, &[]).await;
    assert_eq!(client.call("process/write", write_params("other", "2", &chunk)).await["status"], "accepted");
    assert_eq!(client.call("process/terminate", json!({"processId": "deaf"})).await, json!({"running": true}));
    client.event("process/closed", "deaf").await;
    client.start("next", &["true"]).await;
    server.shutdown().await;
}

fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![
        Just("initialize"),
        Just("initialized"),
        Just("process/start"),
        Just("process/read"),
        Just("process/write"),
        Just("process/terminate"),
        Just("process/signal"),
        Just("environment/info"),
        Just("longarm/process/ack"),
        Just("longarm/process/list"),
        Just("no/such"),
    ];
    let params = prop_oneof![
        Just(json!(null)),
        Just(json!({})),
        Just(json!([])),
        Just(json!({"processId": "p"})),
        Just(json!({"clientName": "x", "longarm": {"version": 1, "features": ["credits", "list"]}})),
        Just(json!({"acks": [["p", 5]]})),
        Just(start_params("p", &["true"])),
        Just(write_params("p", "w", b"x")),
        Just(json!({"processId": "p", "signal": "interrupt"})),
    ];
    let id = prop_oneof![
        3 => (0..9_i64).prop_map(|id| Some(json!(id))),
        1 => Just(None),
        1 => Just(Some(json!(null))),
    ];
    let formed = (id, method, params).prop_map(|(id, method, params)| {
        let mut message = json!({"method": method, "params": params});
        if let Some(id) = id {
            message["id"] = id;
        }
        message.to_string().into_bytes()
    });
    let damaged = (formed.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, place, byte)| {
        let place = place.index(bytes.len());
        bytes[place] = byte;
        bytes
    });
    prop_oneof![4 => formed, 1 => damaged, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever comes, the server goes on, and every session ends.
    #[test]
    fn no_client_takes_the_server_down(clients in prop::collection::vec(prop::collection::vec(any_message(), 0..20), 1..4)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = server();
            for messages in clients {
                let (client, service) = longarm::transport::memory::pair();
                let serving = tokio::spawn({
                    let server = server.clone();
                    async move { server.serve(Box::new(service)).await }
                });
                let (mut outgoing, mut incoming) = longarm::transport::Transport::split(Box::new(client));
                for message in messages {
                    if outgoing.send(message.into()).await.is_err() {
                        break;
                    }
                }
                drop(outgoing);
                while let Some(Ok(_)) = incoming.next().await {}
                let _ended = serving.await.unwrap();
            }
            let (mut client, _) = RawClient::open(&server, &[]).await;
            client.start("p", &["true"]).await;
            assert_eq!(client.outcome("p").await.exit_code, Some(0));
            server.shutdown().await;
            assert_eq!(server.counts(), longarm::server::Counts::default());
        });
    }
}

#[tokio::test]
async fn limits_of_the_codec_are_those_of_the_configuration() {
    let mut config = ServerConfig::default();
    config.messages = MessageLimits::default();
    config.messages.max_json_depth = 3;
    let server = server_with(config);
    let (mut client, _) = RawClient::open(&server, &[]).await;
    client.send_text(r#"{"id":1,"method":"environment/status","params":{"a":{"b":{}}}}"#).await;
    assert_eq!(client.next().await.unwrap()["id"], -1);
    client.send_text(r#"{"id":1,"method":"environment/status","params":{"a":{}}}"#).await;
    assert_eq!(client.next().await.unwrap()["id"], 1);
    server.shutdown().await;
}
