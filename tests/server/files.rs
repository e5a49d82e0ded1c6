//! Files, seen from the wire.

use longarm::PathUri;
use serde_json::json;

use crate::client::RawClient;
use crate::server;

#[tokio::test]
async fn a_file_that_fits_into_no_message_is_refused_and_the_connection_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse");
    let file = std::fs::File::create(&path).unwrap();
    let path = json!({"path": PathUri::from_host_native_path(&path).unwrap()});
    let server = server();
    let (mut client, _) = RawClient::open(&server, &[]).await;
    for (size, fits) in [(3 << 20, true), (60 << 20, false), (1 << 40, false)] {
        file.set_len(size).unwrap();
        let id = client.request("fs/readFile", path.clone()).await;
        match client.answer(id).await {
            Ok(result) => assert!(fits && result["dataBase64"].as_str().unwrap().len() as u64 == size / 3 * 4),
            Err(error) => {
                assert!(!fits, "{error}");
                assert_eq!(error["code"], -32600);
                assert_eq!(error["message"], "file is too large to read: limit is 50319360 bytes");
            }
        }
    }
    client.call("environment/status", json!({})).await;
    server.shutdown().await;
}
