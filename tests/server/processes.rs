//! What commands do, seen from the wire.

use serde_json::json;

use crate::client::{RawClient, start_params};
use crate::server;

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
