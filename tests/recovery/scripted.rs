//! What the host sees of outages, replacements, closes and refreshes, with a server that says what is written down.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use longarm::backend::remote::ConnectionState;
use longarm::config::ClientConfig;
use longarm::error::{Disconnected, Sent, SpawnError};
use longarm::fs::FsError;
use longarm::http::HttpRequest;
use longarm::transport::{ReplaceOutcome, memory};
use longarm::{Environment, ExecRequest, Remote};
use serde_json::{Value, json};

use crate::script::{Peer, script, script_with};
use crate::support::soon;

fn request() -> ExecRequest {
    ExecRequest::new(["true"]).cwd("/").process_id(longarm::request::ProcessId::new("p"))
}

fn with_facts() -> Value {
    let info = json!({
        "shell": {"name": "sh", "path": "/bin/sh"}, "cwd": "file:///", "platformOs": "linux",
        "capabilities": {"longarm": {"version": 1, "features": ["http"]}, "fsWatchMissing": true},
    });
    json!({"sessionId": "s", "environmentInfo": info})
}

async fn recovering(place: &Environment) {
    let mut connection = place.connection().expect("remote");
    soon(connection.wait_for(|state| matches!(state, ConnectionState::Recovering { .. })))
        .await
        .expect("it is noticed");
}

#[tokio::test]
async fn a_place_that_was_closed_begins_no_session_however_the_last_one_ended() {
    let (place, mut far_ends, dialled) = script();
    place.remote().expect("remote").start_connecting();
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet().await;
    drop(peer);
    let mut peer = Peer::next(&mut far_ends).await;
    let resume = peer.expect("initialize").await;
    let error = json!({"code": -32600, "message": "unknown session id s"});
    assert!(peer.send(json!({"id": resume["id"], "error": error}).to_string()).await);
    let mut connection = place.connection().expect("remote");
    let lost = soon(connection.wait_for(ConnectionState::is_over)).await.expect("it is known");
    assert!(matches!(lost, ConnectionState::SessionLost { .. }), "{lost:?}");
    soon(place.close()).await;
    assert_eq!(connection.state(), ConnectionState::Closed);
    let error = soon(place.spawn(request())).await.expect_err("it is closed");
    assert!(matches!(error, SpawnError::Disconnected(Disconnected { sent: Sent::NotSent, .. })), "{error:?}");
    soon(place.refresh()).await.expect_err("it is closed");
    assert_eq!(dialled.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_place_that_was_never_used_is_left_without_a_connection() {
    let (place, _far_ends, dialled) = script();
    assert_eq!(soon(place.leave()).await, None);
    soon(place.spawn(request())).await.expect_err("it was left");
    assert_eq!(dialled.load(Ordering::SeqCst), 0);
    // One that is being connected is left even if nobody waits for that.
    let (place, mut far_ends, _) = script();
    place.remote().expect("remote").start_connecting();
    let mut peer = Peer::next(&mut far_ends).await;
    peer.expect("initialize").await;
    assert!(place.leave().now_or_never().is_none());
    soon(peer.is_left()).await;
}

#[tokio::test]
async fn a_streamed_request_that_waits_for_a_connection_has_its_body() {
    let (place, mut far_ends, _) = script();
    place.remote().expect("remote").start_connecting();
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_with(with_facts()).await;
    soon(place.wait_until_ready()).await.expect("connected");
    drop(peer);
    recovering(&place).await;
    let http = place.http();
    let asking = tokio::spawn(async move { http.stream(HttpRequest::new("POST", "http://there/")).await });
    // One that is given up meanwhile is not made.
    let given_up = place.http();
    let mut given_up = given_up.stream(HttpRequest::new("POST", "http://nowhere/"));
    assert!((&mut given_up).now_or_never().is_none());
    let mut peer = Peer::next(&mut far_ends).await;
    peer.expect("initialize").await;
    // It breaks within the handshake, and so does what waits for the next one not.
    drop(peer);
    let mut peer = Peer::next(&mut far_ends).await;
    drop(given_up);
    peer.greet_with(with_facts()).await;
    let asked = peer.expect("http/request").await;
    assert_eq!(asked["params"]["url"], "http://there/");
    peer.answer(&asked, json!({"status": 200, "headers": [], "bodyBase64": ""})).await;
    let id = &asked["params"]["requestId"];
    let delta = |seq: u64, done: bool| json!({"requestId": id, "seq": seq, "deltaBase64": "aGk=", "done": done});
    assert!(peer.send(json!({"method": "http/request/bodyDelta", "params": delta(1, false)}).to_string()).await);
    let mut response = soon(asking).await.expect("no panic").expect("an answer");
    let piece = soon(response.body.next()).await.expect("a piece").expect("of a body that lives");
    assert_eq!(piece, "hi");
    // Its own connection is another matter.
    drop(peer);
    soon(response.body.next()).await.expect("an end").expect_err("it is cut");
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_every_place_is_taken_has_to_show_that_it_lives() {
    let mut config = ClientConfig::default();
    config.max_calls = 1;
    let (place, mut far_ends, dialled) = script_with(config);
    let remote = place.remote().expect("remote").clone();
    remote.start_connecting();
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet().await;
    soon(place.wait_until_ready()).await.expect("connected");
    let stuck = tokio::spawn({
        let remote = remote.clone();
        async move { remote.status().await }
    });
    peer.expect("environment/status").await;
    let refreshing = tokio::spawn({
        let place = place.clone();
        async move { place.refresh().await }
    });
    let begun = tokio::time::Instant::now();
    peer.expect("environment/status").await;
    // It says nothing, and is given up for another one.
    let mut next = Peer::next(&mut far_ends).await;
    assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}", begun.elapsed());
    next.greet().await;
    soon(refreshing).await.expect("no panic").expect("there is another connection");
    soon(stuck).await.expect("no panic").expect_err("it was in flight");
    // One that answers stays.
    let refreshing = tokio::spawn(async move { place.refresh().await });
    let status = next.expect("environment/status").await;
    next.answer(&status, json!({"status": "ready"})).await;
    soon(refreshing).await.expect("no panic").expect("it lives");
    assert_eq!(dialled.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn all_who_refresh_at_one_time_share_one_sign_of_life() {
    let (place, mut far_ends, dialled) = script();
    place.remote().expect("remote").start_connecting();
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet().await;
    soon(place.wait_until_ready()).await.expect("connected");
    let mut refreshing: Vec<_> = (0..10).map(|_| Box::pin(place.refresh())).collect();
    for refresh in &mut refreshing {
        assert!(refresh.as_mut().now_or_never().is_none());
    }
    let status = peer.expect("environment/status").await;
    // Whoever asked first need not stay.
    drop(refreshing.remove(0));
    peer.answer(&status, json!({"status": "ready"})).await;
    for refresh in refreshing {
        soon(refresh).await.expect("it lives");
    }
    // The next thing that is heard is another one, of its own.
    let mut refresh = Box::pin(place.refresh());
    assert!(refresh.as_mut().now_or_never().is_none());
    let status = peer.expect("environment/status").await;
    peer.answer(&status, json!({"status": "ready"})).await;
    soon(refresh).await.expect("it lives");
    let leaving = tokio::spawn(async move { place.leave().await });
    let heard = soon(peer.incoming.next()).await;
    assert!(!matches!(heard, Some(Ok(_))), "it was asked for {heard:?}");
    soon(leaving).await.expect("no panic");
    assert_eq!(dialled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn calls_that_were_given_up_while_there_was_no_connection_are_not_made() {
    let mut config = ClientConfig::default();
    config.max_calls = 8;
    let (place, mut far_ends, _) = script_with(config);
    let remote = place.remote().expect("remote").clone();
    remote.start_connecting();
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_with(with_facts()).await;
    soon(place.wait_until_ready()).await.expect("connected");
    drop(peer);
    recovering(&place).await;
    let fs = place.fs();
    for _ in 0..100 {
        // A host with a time limit of its own.
        let make = fs.create_directory("/new".into(), longarm::fs::CreateDirectoryOptions::default());
        assert!(make.now_or_never().is_none(), "there is a place for it");
        assert!(remote.status().now_or_never().is_none(), "there is a place for it");
    }
    let wanted = tokio::spawn(async move { remote.status().await });
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_with(with_facts()).await;
    let status = peer.expect("environment/status").await;
    peer.answer(&status, json!({"status": "ready"})).await;
    soon(wanted).await.expect("no panic").expect("it was not given up");
    // Nothing of the others came behind it either.
    let last = tokio::spawn(async move {
        fs.create_directory("/last".into(), longarm::fs::CreateDirectoryOptions::default()).await
    });
    let asked = peer.expect("fs/createDirectory").await;
    assert!(asked["params"]["path"].as_str().is_some_and(|path| path.ends_with("/last")), "{asked}");
    peer.answer(&asked, json!({})).await;
    soon(last).await.expect("no panic").expect("made");
}

#[tokio::test]
async fn calls_that_were_given_up_before_their_turn_are_not_made_over_a_connection_that_stands() {
    let (place, mut far_ends, _) = script();
    let remote = place.remote().expect("remote").clone();
    remote.start_connecting();
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_with(with_facts()).await;
    soon(place.wait_until_ready()).await.expect("connected");
    let fs = place.fs();
    for _ in 0..10 {
        let make = fs.create_directory("/new".into(), longarm::fs::CreateDirectoryOptions::default());
        assert!(make.now_or_never().is_none(), "nobody has answered");
        assert!(remote.status().now_or_never().is_none(), "nobody has answered");
    }
    let wanted = tokio::spawn(async move { remote.status().await });
    let status = peer.expect("environment/status").await;
    peer.answer(&status, json!({"status": "ready"})).await;
    soon(wanted).await.expect("no panic").expect("it was not given up");
    let leaving = tokio::spawn(async move { place.leave().await });
    let heard = soon(peer.incoming.next()).await;
    assert!(!matches!(heard, Some(Ok(_))), "it was asked for {heard:?}");
    soon(leaving).await.expect("no panic");
}

#[tokio::test]
async fn calls_that_fail_fast_wait_for_no_recovery() {
    let (place, mut far_ends, dialled) = script();
    place.remote().expect("remote").start_connecting();
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_with(with_facts()).await;
    soon(place.wait_until_ready()).await.expect("connected");
    let fs = place.fs().fail_fast().expect("remote");
    let make = || {
        let fs = std::sync::Arc::clone(&fs);
        async move { fs.create_directory("/new".into(), longarm::fs::CreateDirectoryOptions::default()).await }
    };
    let making = tokio::spawn(make());
    let asked = peer.expect("fs/createDirectory").await;
    peer.answer(&asked, json!({})).await;
    soon(making).await.expect("no panic").expect("made");
    // What it asked for is lost with the connection; what it asks for then is not asked.
    let making = tokio::spawn(make());
    peer.expect("fs/createDirectory").await;
    drop(peer);
    recovering(&place).await;
    let error = soon(making).await.expect("no panic").expect_err("the connection broke");
    assert!(matches!(error, FsError::Disconnected(Disconnected { sent: Sent::Unknown, .. })), "{error:?}");
    let error = make().now_or_never().expect("at once").expect_err("there is no connection");
    assert!(matches!(error, FsError::Disconnected(Disconnected { sent: Sent::NotSent, .. })), "{error:?}");
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_with(with_facts()).await;
    soon(place.wait_until_ready()).await.expect("connected");
    let making = tokio::spawn(make());
    let asked = peer.expect("fs/createDirectory").await;
    peer.answer(&asked, json!({})).await;
    soon(making).await.expect("no panic").expect("made");
    assert_eq!(dialled.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_watch_ends_with_its_connection_and_says_why() {
    let (place, mut far_ends, _) = script();
    place.remote().expect("remote").start_connecting();
    let mut peer = Peer::next(&mut far_ends).await;
    peer.greet_with(with_facts()).await;
    soon(place.wait_until_ready()).await.expect("connected");
    let fs = place.fs();
    let watching = tokio::spawn(async move { fs.watch_missing(vec!["/missing".into()], None).await });
    let asked = peer.expect("fs/watchMissing").await;
    peer.answer(&asked, json!({"watching": true})).await;
    let watch = soon(watching).await.expect("no panic").expect("no error").expect("it is watched");
    drop(peer);
    recovering(&place).await;
    let error = soon(watch).await.expect_err("its connection is gone");
    assert!(error.to_string().contains("the peer closed the connection"), "{error}");
}

fn accepted() -> (Remote, Peer) {
    let (near, far) = memory::pair();
    (Remote::accepted(Box::new(near), ClientConfig::default()), Peer::over(far))
}

fn replace(remote: &Remote) -> (longarm::backend::remote::Replacement, Peer) {
    let (near, far) = memory::pair();
    (remote.replace(Box::new(near)).expect("taken"), Peer::over(far))
}

#[tokio::test]
async fn an_outcome_is_that_of_the_socket_that_was_handed_over() {
    let (remote, mut first) = accepted();
    first.greet().await;
    soon(remote.wait_until_ready()).await.expect("connected");
    // The host does not wait for what becomes of this one, which is in its handshake.
    let (forgotten, mut second) = replace(&remote);
    soon(first.is_left()).await;
    let late = second.expect("initialize").await;
    drop(forgotten);
    let (replacement, mut third) = replace(&remote);
    let outcome = tokio::spawn(replacement.outcome());
    soon(second.is_left()).await;
    assert!(!second.send(json!({"id": late["id"], "result": {"sessionId": "s"}}).to_string()).await);
    let resume = third.expect("initialize").await;
    assert_eq!(resume["params"]["resumeSessionId"], "s");
    third.answer(&resume, json!({"sessionId": "s"})).await;
    third.expect("initialized").await;
    assert_eq!(soon(outcome).await.expect("no panic"), ReplaceOutcome::Installed);
    let status = tokio::spawn(async move { remote.status().await });
    let asked = third.expect("environment/status").await;
    third.answer(&asked, json!({"status": "ready"})).await;
    soon(status).await.expect("no panic").expect("it is used");
}

#[tokio::test]
async fn a_socket_is_not_used_up_by_a_server_that_has_not_noticed_yet() {
    let (remote, mut first) = accepted();
    first.greet().await;
    soon(remote.wait_until_ready()).await.expect("connected");
    let (replacement, mut second) = replace(&remote);
    let outcome = tokio::spawn(replacement.outcome());
    for _ in 0..3 {
        let resume = second.expect("initialize").await;
        let error = json!({"code": -32010, "message": "session s is already attached to another connection"});
        assert!(second.send(json!({"id": resume["id"], "error": error}).to_string()).await);
    }
    second.greet().await;
    assert_eq!(soon(outcome).await.expect("no panic"), ReplaceOutcome::Installed);
}

#[tokio::test]
async fn a_first_socket_that_breaks_is_followed_by_the_next_that_is_handed_over() {
    let (remote, first) = accepted();
    drop(first);
    let (replacement, mut second) = replace(&remote);
    let outcome = tokio::spawn(replacement.outcome());
    let initialize = second.expect("initialize").await;
    assert_eq!(initialize["params"]["resumeSessionId"], Value::Null);
    second.answer(&initialize, json!({"sessionId": "s"})).await;
    assert_eq!(soon(outcome).await.expect("no panic"), ReplaceOutcome::Installed);
    soon(remote.ready()).await.expect("it stands");
}
