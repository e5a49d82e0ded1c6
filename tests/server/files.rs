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

/// What the reference's own client asked of files when it applied a patch, with the intent that it sent, and what its
/// server answered; and the calls with an intent of another recording.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn recorded_calls_with_an_intent_are_answered_alike() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = dir.path().canonicalize().unwrap();
    for directory in ["workspace/sub", "cwd"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    for (name, content) in [("old.txt", "one\ntwo\nthree\n"), ("crlf.txt", "a\r\nb\r\n"), ("gone.txt", "x\n")] {
        std::fs::write(root.join("workspace").join(name), content).unwrap();
    }
    let server = server();
    let (mut client, _) = RawClient::open(&server, &[]).await;
    let mut with_intent = 0;
    for recording in ["codex-client/apply_patch", "sandbox"] {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/transcripts/{recording}.jsonl"));
        let text = std::fs::read_to_string(path).unwrap();
        let at = |name: &str| format!("file://{}/{name}", root.display());
        let text = text.replace("file:///workspace", &at("workspace"));
        let text = text.replace("file://<TMP>/", &at("")).replace("file:///etc/hostname", &at("workspace/crlf.txt"));
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let messages = || lines.iter().map(|line| &line["msg"]);
        for asked in messages().filter(|message| message["method"].as_str().is_some_and(is_call)) {
            with_intent += usize::from(asked["params"]["sandbox"].is_object());
            let recorded = messages().find(|message| message["id"] == asked["id"] && message["method"].is_null());
            let mut recorded = recorded.unwrap().clone();
            let answer = client.try_call(asked["method"].as_str().unwrap(), asked["params"].clone()).await;
            match answer {
                Ok(mut result) => {
                    for time in ["createdAtMs", "modifiedAtMs"] {
                        for result in [&mut result, &mut recorded["result"]] {
                            result.as_object_mut().unwrap().remove(time);
                        }
                    }
                    assert_eq!(result, recorded["result"], "{asked}");
                }
                Err(error) => assert_eq!(error, recorded["error"], "{asked}"),
            }
        }
    }
    assert!(with_intent > 8, "{with_intent}");
    assert_eq!(std::fs::read(root.join("workspace/sub/deep/new.txt")).unwrap(), b"hello\nworld\n");
    assert!(!root.join("workspace/old.txt").exists() && !root.join("cwd/x").exists());
    server.shutdown().await;
}

#[cfg(target_os = "linux")]
fn is_call(method: &str) -> bool {
    method.starts_with("fs/") && !method.starts_with("fs/missing") && !method.starts_with("fs/watch")
}
