//! Sessions that outlive their connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longarm::config::ServerConfig;
use longarm::error::PeerMisbehaved;
use longarm::server::{ServeError, Server};
use longarm::transport::{PingStart, memory};
use serde_json::json;

use crate::backends::Scripted;
use crate::client::{RawClient, piped, start_params};
use crate::pings::Pinged;
use crate::{server, server_with};

const SECOND: Duration = Duration::from_secs(1);

fn scripted(config: ServerConfig) -> (Server, Scripted) {
    let backend = Scripted::default();
    (Server::builder(Arc::new(backend.clone())).config(config).build(), backend)
}

#[tokio::test]
async fn a_session_is_resumed_with_its_processes_and_their_output() {
    let server = server();
    let (mut client, session) = RawClient::open(&server, &[]).await;
    client.call("process/start", piped("p", &["cat"])).await;
    assert_eq!(client.write("p", "1", b"one\n").await, "accepted");
    assert_eq!(client.event("process/output", "p").await["seq"], 1);

    let (mut second, _) = RawClient::connect(&server);
    let error = second.initialize(Some(&session), &[]).await.unwrap_err();
    let expected = format!("session {session} is already attached to another connection");
    assert_eq!(error, json!({"code": -32010, "message": expected}));
    for unknown in ["", "nonsense", &session.to_uppercase()] {
        let error = second.initialize(Some(unknown), &[]).await.unwrap_err();
        assert_eq!(error, json!({"code": -32600, "message": format!("unknown session id {unknown}")}));
    }
    drop(client);

    let mut client = RawClient::resume_soon(&server, &session, &[]).await;
    let read = client.call("process/read", json!({"processId": "p"})).await;
    assert_eq!(read["chunks"][0]["chunk"], "b25lCg==");
    assert_eq!(client.write("p", "1", b"one\n").await, "accepted", "again, and not applied");
    assert_eq!(client.write("p", "2", b"two\n").await, "accepted");
    let event = client.event("process/output", "p").await;
    assert_eq!((&event["seq"], &event["chunk"]), (&json!(2), &json!("dHdvCg==")));
    assert_eq!(second.try_call("environment/status", json!({})).await.unwrap_err()["code"], -32600);

    // The one that was refused may still open a session of its own, with the same process ids.
    second.initialize(None, &[]).await.unwrap();
    assert_eq!(second.refused("process/read", json!({"processId": "p"})).await.1, "unknown process id p");
    second.start("p", &["true"]).await;
    assert_eq!(second.outcome("p").await.exit_code, Some(0));
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_detached_session_lives_for_its_time_and_then_its_processes_are_killed() {
    let (server, backend) = scripted(ServerConfig::default());
    let (mut client, session) = RawClient::open(&server, &[]).await;
    client.start("p", &["wait"]).await;
    drop(client);
    let mut client = RawClient::resume_soon(&server, &session, &[]).await;
    assert_eq!(client.call("process/read", json!({"processId": "p"})).await["exited"], false);
    drop(client);
    tokio::time::sleep(79 * SECOND).await;
    let client = RawClient::resume(&server, &session, &[]).await;
    assert_eq!(server.counts().attached, 1);
    drop(client);
    tokio::time::sleep(81 * SECOND).await;
    assert_eq!(backend.seen.killed.load(Ordering::SeqCst), 1, "at once, without a grace");
    assert_eq!((server.counts().attached, server.counts().detached, server.counts().connections), (0, 0, 0));
    let (mut late, _) = RawClient::connect(&server);
    let error = late.initialize(Some(&session), &[]).await.unwrap_err();
    assert_eq!(error["message"], format!("unknown session id {session}"));
}

#[tokio::test(start_paused = true)]
async fn a_closed_process_is_forgotten_after_its_time() {
    let (server, _) = scripted(ServerConfig::default());
    let (mut client, _) = RawClient::open(&server, &[]).await;
    client.start("p", &["wait"]).await;
    assert_eq!(client.call("process/terminate", json!({"processId": "p"})).await, json!({"running": true}));
    assert_eq!(client.outcome("p").await.exit_code, Some(137));
    tokio::time::sleep(79 * SECOND).await;
    assert_eq!(client.call("process/read", json!({"processId": "p"})).await["closed"], true);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(client.refused("process/read", json!({"processId": "p"})).await.1, "unknown process id p");
    client.start("p", &["wait"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_half_open_connection_frees_its_session_after_the_silence_limit() {
    let (server, _) = scripted(ServerConfig::default());
    let (client, service) = memory::pair();
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(Box::new(Pinged::new(service, PingStart::Queued))).await }
    });
    let mut client = RawClient::over(Box::new(client));
    let session = client.initialize(None, &[]).await.unwrap()["sessionId"].as_str().unwrap().to_owned();
    client.start("p", &["wait"]).await;
    let begin = tokio::time::Instant::now();
    // Alive as long as anything comes.
    tokio::time::sleep(50 * SECOND).await;
    client.call("environment/status", json!({})).await;
    let error = serving.await.unwrap().unwrap_err();
    assert!(matches!(error, ServeError::Peer(PeerMisbehaved::Silent { silence }) if silence == 60 * SECOND), "{error}");
    assert_eq!(begin.elapsed().as_secs(), 110);
    let mut back = RawClient::resume(&server, &session, &[]).await;
    assert_eq!(back.call("process/read", json!({"processId": "p"})).await["exited"], false);
}

/// A server that does not mind how long a handshake takes.
fn patient() -> ServerConfig {
    let mut config = ServerConfig::default();
    config.initialize_timeout = Duration::MAX;
    config
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_shakes_hands_is_given_up_too() {
    let (server, _) = scripted(patient());
    let (client, service) = memory::pair();
    let served = server.serve(Box::new(Pinged::new(service, PingStart::Queued))).await;
    assert!(matches!(served, Err(ServeError::Peer(PeerMisbehaved::Silent { .. }))));
    drop(client);
}

/// Not even by one that answers pings, or goes on sending what is no request for a session.
#[tokio::test(start_paused = true)]
async fn a_connection_that_gets_no_session_has_its_time() {
    let (server, _) = scripted(ServerConfig::default());
    let (mut client, serving) = RawClient::connect(&server);
    let begin = tokio::time::Instant::now();
    // It never reads, so that the server can not go on sending.
    let message = r#"{"id":1,"method":"environment/status","params":{}}"#;
    let sending = async {
        while client.try_send_text(message).await {
            tokio::time::sleep(SECOND / 100).await;
        }
    };
    let (served, ()) = tokio::join!(serving, sending);
    let served = served.unwrap();
    assert!(matches!(served, Err(ServeError::Peer(PeerMisbehaved::Protocol(_)))), "{served:?}");
    assert_eq!(server.counts().connections, 0);
    assert!(begin.elapsed() >= 30 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_connection_too_full_for_a_ping_is_given_up_for_its_silence_too() {
    let (server, _) = scripted(patient());
    let (client, service) = memory::pair();
    let served = server.serve(Box::new(Pinged::new(service, PingStart::Busy))).await;
    assert!(matches!(served, Err(ServeError::Peer(PeerMisbehaved::Silent { .. }))));
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn a_transport_without_pings_is_never_given_up_for_its_silence() {
    let (server, _) = scripted(patient());
    let (client, service) = memory::pair();
    let serving =
        tokio::spawn(async move { server.serve(Box::new(Pinged::new(service, PingStart::Unsupported))).await });
    tokio::time::sleep(600 * SECOND).await;
    assert!(!serving.is_finished());
    drop(client);
    assert!(!matches!(serving.await.unwrap(), Err(ServeError::Peer(_))));
}

#[tokio::test]
async fn dropping_the_service_of_a_connection_detaches_its_session() {
    let server = server();
    let (mut client, serving) = RawClient::connect(&server);
    let session = client.initialize(None, &[]).await.unwrap()["sessionId"].as_str().unwrap().to_owned();
    serving.abort();
    assert_eq!(client.next().await, None);
    let client = RawClient::resume_soon(&server, &session, &[]).await;
    drop(client);
    server.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_says_what_there_is_to_say_and_leaves_nothing() {
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let server = server();
    let (mut client, session) = RawClient::open(&server, &[]).await;
    client
        .start("polite", &["sh", "-c", "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done"])
        .await;
    client.start("group", &["sh", "-c", "sleep 1000 & echo $!; wait"]).await;
    let pid = String::from_utf8(crate::client::decode(
        client.event("process/output", "group").await["chunk"].as_str().unwrap(),
    ));
    let pid = pid.unwrap().trim().to_owned();
    client.event("process/output", "polite").await;
    let (_detached, _) = RawClient::open(&server, &[]).await;
    drop(_detached);
    server.shutdown().await;
    // A shell may say on its standard error that what it waited for was terminated.
    let said = client
        .next_where(|message| message["method"] == "process/output" && message["params"]["stream"] == "stdout")
        .await;
    assert_eq!(said["params"]["chunk"], "YnllCg==", "its last words");
    client.event("process/closed", "polite").await;
    client.event("process/closed", "group").await;
    assert_eq!(client.next().await, None, "then the end of the connection");
    // The system closes the streams of a process a moment before it is dead.
    crate::ends::until(|| crate::ends::is_gone(&pid)).await;
    assert_eq!(server.counts(), longarm::server::Counts::default());
    let (mut late, serving) = RawClient::connect(&server);
    assert!(matches!(serving.await.unwrap(), Err(ServeError::ShutDown)));
    assert_eq!(late.next().await, None);
    drop((client, session, late));
    // The backend's own tasks end with their processes.
    while tokio::runtime::Handle::current().metrics().num_alive_tasks() > before {
        tokio::task::yield_now().await;
    }
    server.shutdown().await;
}

#[tokio::test]
async fn sessions_and_connections_are_bounded() {
    let mut config = ServerConfig::default();
    config.max_sessions = 2;
    config.max_connections = 3;
    let server = server_with(config);
    let (first, session) = RawClient::open(&server, &[]).await;
    let _second = RawClient::open(&server, &[]).await;
    let (mut third, _) = RawClient::connect(&server);
    let error = third.initialize(None, &[]).await.unwrap_err();
    assert_eq!(error, json!({"code": -32600, "message": "the server already has 2 sessions"}));
    let (mut fourth, serving) = RawClient::connect(&server);
    assert!(matches!(serving.await.unwrap(), Err(ServeError::TooManyConnections { limit: 3 })));
    assert_eq!(fourth.next().await, None);
    drop(first);
    while third.initialize(Some(&session), &[]).await.is_err() {
        tokio::task::yield_now().await;
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_goes_on() {
    let server = server();
    let (mut client, session) = RawClient::open(&server, &[]).await;
    client.request("process/start", start_params("p", &["sh", "-c", "echo hi; sleep 1000"])).await;
    drop(client);
    let mut client = RawClient::resume_soon(&server, &session, &[]).await;
    // The request may or may not have been read before the cut; either way the id tells.
    match client.try_call("process/read", json!({"processId": "p", "waitMs": 10_000})).await {
        Ok(read) => assert_eq!(read["chunks"][0]["chunk"], "aGkK"),
        Err(error) => assert_eq!(error["message"], "unknown process id p"),
    }
    server.shutdown().await;
}
