//! How far output runs ahead of a client that reads slower than processes write.

use std::sync::Arc;
use std::time::Duration;

use longarm::config::ServerConfig;
use longarm::server::Server;
use longarm::transport::{PingStart, memory};
use serde_json::json;

use crate::backends::Scripted;
use crate::client::RawClient;
use crate::pings::{Marks, Pinged};

/// What may be unanswered at first, and the largest message beyond it.
const WINDOW: u64 = 256 << 10;
const MESSAGE: u64 = 100 << 10;

async fn flooded() -> (RawClient, Arc<Marks>) {
    let server = Server::builder(Arc::new(Scripted::default())).config(ServerConfig::default()).build();
    let (client, service) = memory::pair();
    let service = Pinged::new(service, PingStart::Queued);
    let marks = service.marks();
    tokio::spawn(async move { server.serve(Box::new(service)).await });
    let mut client = RawClient::over(Box::new(client));
    client.initialize(None, &[]).await.unwrap();
    client.start("p", &["flood"]).await;
    (client, marks)
}

/// Reads until nothing more comes, or `limit` bytes have. Returns how many bytes of messages came.
async fn read(client: &mut RawClient, limit: u64) -> u64 {
    let mut bytes = 0;
    while bytes < limit {
        // The clock stands still while anything moves.
        match tokio::time::timeout(Duration::from_secs(1), client.next()).await {
            Ok(message) => bytes += message.expect("a message").to_string().len() as u64,
            Err(_) => break,
        }
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn output_waits_for_the_client_to_have_read_and_answers_do_not() {
    let (mut client, marks) = flooded().await;
    let mut before = 0;
    for round in 0..20 {
        let bytes = read(&mut client, u64::MAX).await;
        assert!(bytes > 0, "round {round}");
        if round == 0 {
            assert!(bytes <= WINDOW + MESSAGE, "{bytes}");
        }
        let mark = marks.last().expect("a ping");
        assert!(mark > before, "a ping behind what is new, in round {round}");
        before = mark;
        // No room for output, but for an answer.
        client.call("environment/status", json!({})).await;
        assert_eq!(read(&mut client, u64::MAX).await, 0, "round {round}");
        marks.answer();
        client.call("environment/status", json!({})).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_no_ping_gets_all_the_same() {
    let (mut client, _) = flooded().await;
    assert!(read(&mut client, u64::MAX).await <= WINDOW + MESSAGE);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(read(&mut client, 20 << 20).await >= 20 << 20);
}
