//! Files under an intent, of a peer that has no more than the plain wire, and not all of that.

use longarm::ExecBackend as _;
use longarm::error::Unsupported;
use longarm::fs::{FsError, OpenMode, ReadOptions};
use longarm::sandbox::SandboxIntent;
use longarm::wire::Base64;
use serde_json::{Value, json};

use crate::peer::{PATIENCE, Peer};

#[tokio::test]
async fn a_peer_that_opens_no_files_under_an_intent_is_asked_for_whole_ones() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let files = remote.fs().unwrap().with_sandbox(SandboxIntent::read_only()).unwrap();
    let intent: Value = serde_json::from_str(&SandboxIntent::read_only().to_json()).unwrap();
    for size in [0, 1, 5 << 20] {
        let read = files.read("/file".into(), ReadOptions::new());
        let answers = async {
            let asked = peer.expect("fs/getMetadata").await;
            assert_eq!(asked["params"]["sandbox"], intent);
            let metadata = json!({
                "isDirectory": false, "isFile": true, "isSymlink": false, "size": size, "createdAtMs": 0,
                "modifiedAtMs": 0,
            });
            peer.answer(&asked, metadata).await;
            let asked = peer.expect("fs/readFile").await;
            assert_eq!(asked["params"]["sandbox"], intent);
            peer.answer(&asked, json!({"dataBase64": Base64(vec![b'x'; size].into())})).await;
        };
        let (read, ()) = tokio::time::timeout(PATIENCE, async { tokio::join!(read, answers) }).await.expect("in time");
        assert_eq!(read.unwrap(), vec![b'x'; size], "{size}");
    }
    for mode in [OpenMode::Read, OpenMode::Replace, OpenMode::Update] {
        let error = files.open("/file".into(), mode).await.unwrap_err();
        assert!(matches!(&error, FsError::Unsupported(Unsupported { place, .. }) if place == "the peer"), "{error:?}");
    }
    // None of these were sent.
    let (status, ()) = tokio::join!(remote.status(), async {
        let asked = peer.expect("environment/status").await;
        peer.answer(&asked, json!({"status": "ready"})).await;
    });
    status.unwrap();
}
