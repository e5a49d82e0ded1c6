//! The HTTP requests of a place behind a connection: to our own server, and to peers that are scripted.
#![cfg(all(feature = "http", feature = "testing"))]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longarm::config::ClientConfig;
use longarm::error::PeerMisbehaved;
use longarm::http::{HttpClient, HttpError, HttpRequest, InvalidHttpRequest, Redirects};
use longarm::server::Server;
use longarm::testing::http_server::HttpServer;
use longarm::transport::memory;
use longarm::wire::Base64;
use longarm::{ExecBackend as _, Local, LocalConfig, Remote};
use serde_json::{Value, json};

use crate::peer::{PATIENCE, Peer};

struct Place {
    remote: Remote,
    http: Arc<dyn HttpClient>,
    server: Server,
    target: HttpServer,
}

impl Place {
    async fn new() -> Self {
        let variables = [("TOKEN".into(), "of-the-executor".into())].into();
        let server = Server::new(Arc::new(Local::new(LocalConfig::from_host().base_env(variables))));
        let (near, far) = memory::pair();
        let serving = server.clone();
        tokio::spawn(async move { serving.serve(Box::new(far)).await });
        let remote = Remote::connect(Box::new(near), ClientConfig::default()).await.unwrap();
        let http = remote.http().unwrap();
        Self { remote, http, server, target: HttpServer::start().await.unwrap() }
    }

    fn get(&self, path: &str) -> HttpRequest {
        HttpRequest::get(self.target.url(path))
    }
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

#[tokio::test]
async fn bodies_of_any_size_come_whole_and_in_pieces() {
    let place = Place::new().await;
    for length in [0_usize, 1, 65_537, 1_000_000, 5_000_000] {
        for limit in [length as u64, 1 << 20, 64 << 20] {
            let request = place.get(&format!("/bytes/{length}")).max_body_bytes(limit);
            let result = in_time(place.http.send(request)).await;
            if length as u64 > limit {
                assert_eq!(result.unwrap_err(), HttpError::BodyTooLarge { limit });
                continue;
            }
            let body = result.unwrap().body;
            assert_eq!(body.len(), length);
            assert!(body.iter().enumerate().all(|(index, byte)| usize::from(*byte) == index % 251));
        }
        let mut response = in_time(place.http.stream(place.get(&format!("/bytes/{length}")))).await.unwrap();
        let mut read = 0;
        while let Some(piece) = in_time(response.body.chunk()).await.unwrap() {
            assert!(piece.iter().enumerate().all(|(index, byte)| usize::from(*byte) == (read + index) % 251));
            read += piece.len();
        }
        assert_eq!(read, length);
    }
}

#[tokio::test]
async fn requests_arrive_as_they_are_made() {
    let place = Place::new().await;
    let request = HttpRequest::new("PuT", place.target.url("/echo"))
        .header("X-A", "1")
        .header("X-A", "2")
        .header_from_variable("X-Token", "Bearer ", "TOKEN")
        .body("content");
    let response = in_time(place.http.send(request)).await.unwrap();
    let text = String::from_utf8(response.body.to_vec()).unwrap();
    assert!(text.starts_with("PuT /echo\nx-a: 1\nx-a: 2\nx-token: Bearer of-the-executor\n"), "{text}");
    assert!(text.ends_with("content"), "{text}");
    assert_eq!(response.headers.get_all("x-a").collect::<Vec<_>>(), ["1", "2"]);
    let stopped = in_time(place.http.send(place.get("/redir").redirects(Redirects::Stop))).await.unwrap();
    assert_eq!((stopped.status, stopped.headers.get("location")), (302, Some("/echo")));
    assert_eq!(in_time(place.http.send(place.get("/redir"))).await.unwrap().status, 200);
}

#[tokio::test]
async fn errors_are_those_of_the_place_itself() {
    let place = Place::new().await;
    let here = Local::new(LocalConfig::default());
    let local = here.http().unwrap();
    // Bound, so that nobody else gets the address, and not listening.
    let unused = tokio::net::TcpSocket::new_v4().unwrap();
    unused.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let url = format!("http://{}/?k=hunter2", unused.local_addr().unwrap());
    let requests = [
        HttpRequest::get(&url),
        HttpRequest::get("http://user:hunter2@name..invalid/?k=hunter2"),
        HttpRequest::get("ftp://x/"),
        HttpRequest::get("hunter2"),
        HttpRequest::new("BAD METHOD", &url),
        HttpRequest::get(&url).header("bad name", "1"),
        HttpRequest::get(&url).header("x", "a\nb"),
        HttpRequest::get(&url).header_from_variable("x", "", "NOT_SET"),
        HttpRequest::get(&url).header_from_variable("x", "", "OPENAI_API_KEY"),
        place.get("/slow?k=hunter2").timeout(Duration::from_millis(30)),
        place.get("/slow").timeout(Duration::ZERO),
        place.get("/trunc?k=hunter2"),
        place.get("/garbage"),
        place.get("/redirect/302/11"),
        place.get("/bytes/10").max_body_bytes(9),
    ];
    for request in requests {
        let here = in_time(local.send(request.clone())).await.unwrap_err();
        let there = in_time(place.http.send(request.clone())).await.unwrap_err();
        assert_eq!(there, here);
        assert!(!format!("{there} {there:?} {request:?}").contains("hunter2"), "{there:?}");
    }
    let mut here = in_time(local.stream(place.get("/trunc"))).await.unwrap().body;
    let mut there = in_time(place.http.stream(place.get("/trunc"))).await.unwrap().body;
    for body in [&mut here, &mut there] {
        assert_eq!(in_time(body.chunk()).await.unwrap().unwrap(), "short");
    }
    let (here, there) = (in_time(here.chunk()).await, in_time(there.chunk()).await);
    assert_eq!(there.unwrap_err(), here.unwrap_err());
}

#[tokio::test]
async fn a_body_that_is_not_read_stops_at_its_window_and_nothing_else_does() {
    let place = Place::new().await;
    let mut response = in_time(place.http.stream(place.get("/endless"))).await.unwrap();
    let mut sent = 0;
    loop {
        for _ in 0..50 {
            in_time(place.http.send(place.get("/echo"))).await.unwrap();
        }
        if place.target.sent_bytes() == sent {
            break;
        }
        sent = place.target.sent_bytes();
        assert!(sent < 256 << 20, "{sent} bytes, and nobody reads");
    }
    // It goes on with its reader.
    while place.target.sent_bytes() == sent {
        in_time(response.body.chunk()).await.unwrap().expect("a body without end");
    }
    drop(response);
    in_time(place.target.ended("/endless", 1)).await;
}

#[tokio::test]
async fn dropping_ends_the_exchange_at_the_peer() {
    let place = Place::new().await;
    for (path, streamed) in [("/slow", true), ("/slow?b", false)] {
        let request = place.get(path).max_body_bytes(10);
        let waiting = async {
            match streamed {
                true => drop(place.http.stream(request).await),
                false => drop(place.http.send(request).await),
            }
        };
        tokio::select! {
            () = waiting => panic!("it has no answer"),
            () = place.target.begun(path, 1) => {}
        }
        in_time(place.target.ended(path, 1)).await;
    }
    let response = in_time(place.http.stream(place.get("/drip"))).await.unwrap();
    drop(response);
    in_time(place.target.ended("/drip", 1)).await;
    place.remote.status().await.unwrap();
}

#[tokio::test]
async fn a_lost_connection_fails_bodies_at_once() {
    let place = Place::new().await;
    let mut response = in_time(place.http.stream(place.get("/drip"))).await.unwrap();
    assert_eq!(in_time(response.body.chunk()).await.unwrap().unwrap(), "drop");
    let (waiting, ()) = in_time(async {
        tokio::join!(response.body.chunk(), async {
            place.server.shutdown().await;
        })
    })
    .await;
    assert!(matches!(waiting, Err(HttpError::Disconnected(_))), "{waiting:?}");
    let refused = in_time(place.http.send(place.get("/echo"))).await.unwrap_err();
    assert!(matches!(refused, HttpError::Disconnected(_)), "{refused:?}");
    in_time(place.target.ended("/drip", 1)).await;
}

// Towards peers that are scripted.

const URL: &str = "http://user:hunter2@x/?k=hunter2";

async fn answer_head(peer: &mut Peer) -> Value {
    let request = peer.expect("http/request").await;
    peer.answer(&request, json!({"status": 200, "headers": [], "bodyBase64": ""})).await;
    request
}

async fn delta(peer: &mut Peer, request: &Value, seq: u64, bytes: &[u8], done: bool, error: Option<&str>) {
    let params = json!({
        "requestId": request["params"]["requestId"], "seq": seq,
        "deltaBase64": serde_json::to_value(Base64(Bytes::copy_from_slice(bytes))).unwrap(),
        "done": done, "error": error,
    });
    peer.send(&json!({"method": "http/request/bodyDelta", "params": params})).await;
}

#[tokio::test]
async fn a_plain_peer_that_cannot_be_slowed_down_overflows_one_body_only() {
    let mut config = ClientConfig::default();
    config.http_buffer_bytes = 1000;
    let (remote, mut peer) = Peer::open_with(&[], config).await;
    let http = remote.http().unwrap();
    let (first, request) = tokio::join!(http.stream(HttpRequest::get(URL)), answer_head(&mut peer));
    assert_eq!(request["params"]["longarm"], Value::Null);
    let (second, other) = tokio::join!(http.stream(HttpRequest::get(URL)), answer_head(&mut peer));
    assert_ne!(request["params"]["requestId"], other["params"]["requestId"]);
    let (first, mut second) = (first.unwrap().body, second.unwrap().body);
    delta(&mut peer, &request, 1, &[0; 600], false, None).await;
    delta(&mut peer, &other, 1, &[1; 400], false, None).await;
    delta(&mut peer, &other, 2, &[1], false, None).await;
    delta(&mut peer, &other, 3, &[1], false, None).await;
    delta(&mut peer, &request, 2, &[2; 400], true, None).await;
    assert_eq!(in_time(second.chunk()).await.unwrap_err(), HttpError::Overflow { limit: 1000 });
    assert_eq!(in_time(first.collect(1000)).await.unwrap().len(), 1000);
    assert_eq!(in_time(second.chunk()).await.unwrap(), None);
    drop(second);
    // A plain peer is told nothing.
    remote.leave().await;
    assert!(peer.rest().await.is_empty());
}

#[tokio::test]
async fn a_body_that_is_collected_from_a_plain_peer_has_its_own_bound() {
    let mut config = ClientConfig::default();
    config.http_buffer_bytes = 10;
    let (remote, mut peer) = Peer::open_with(&[], config).await;
    let http = remote.http().unwrap();
    for (length, fits) in [(1000, true), (1001, false)] {
        let request = HttpRequest::get(URL).max_body_bytes(1000);
        let (result, ()) = tokio::join!(http.send(request), async {
            let request = answer_head(&mut peer).await;
            delta(&mut peer, &request, 1, &vec![0; length], false, None).await;
            delta(&mut peer, &request, 2, &[], true, None).await;
        });
        match fits {
            true => assert_eq!(result.unwrap().body.len(), length),
            false => assert_eq!(result.unwrap_err(), HttpError::BodyTooLarge { limit: 1000 }),
        }
    }
}

#[tokio::test]
async fn a_peer_with_the_feature_gets_credit_and_is_told_of_the_end() {
    let mut config = ClientConfig::default();
    config.http_window_bytes = 100;
    let (remote, mut peer) = Peer::open_with(&["http"], config).await;
    let http = remote.http().unwrap();
    let (response, request) = tokio::join!(http.stream(HttpRequest::get(URL)), answer_head(&mut peer));
    assert_eq!(request["params"]["longarm"], json!({"creditBytes": 100}));
    let mut body = response.unwrap().body;
    delta(&mut peer, &request, 1, &[0; 60], false, None).await;
    in_time(body.chunk()).await.unwrap();
    let credit = peer.expect("longarm/http/credit").await;
    assert_eq!(credit["params"], json!({"requestId": request["params"]["requestId"], "creditBytes": 160}));
    drop(body);
    let cancel = peer.expect("longarm/http/cancel").await;
    assert_eq!(cancel["params"], json!({"requestId": request["params"]["requestId"]}));
    // What still comes is let go.
    delta(&mut peer, &request, 2, &[0; 60], false, None).await;
    let (ended, request) = tokio::join!(http.stream(HttpRequest::get(URL)), answer_head(&mut peer));
    let mut body = ended.unwrap().body;
    delta(&mut peer, &request, 1, &[], true, None).await;
    assert_eq!(in_time(body.chunk()).await.unwrap(), None);
    drop(body);
    let (greedy, request) = tokio::join!(http.stream(HttpRequest::get(URL)), answer_head(&mut peer));
    let mut body = greedy.unwrap().body;
    delta(&mut peer, &request, 1, &[0; 101], false, None).await;
    let error = in_time(body.chunk()).await.unwrap_err();
    assert!(matches!(error, HttpError::Peer(PeerMisbehaved::Protocol(_))), "{error:?}");
    drop(body);
    assert_eq!(peer.expect("longarm/http/cancel").await["params"]["requestId"], request["params"]["requestId"]);
}

#[tokio::test]
async fn a_piece_out_of_order_ends_its_body_and_one_too_large_the_connection() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let http = remote.http().unwrap();
    let (response, request) = tokio::join!(http.stream(HttpRequest::get(URL)), answer_head(&mut peer));
    let mut body = response.unwrap().body;
    delta(&mut peer, &request, 2, b"x", false, None).await;
    let error = in_time(body.chunk()).await.unwrap_err();
    assert!(matches!(error, HttpError::Peer(PeerMisbehaved::Protocol(_))), "{error:?}");
    let (response, request) = tokio::join!(http.stream(HttpRequest::get(URL)), answer_head(&mut peer));
    let mut body = response.unwrap().body;
    delta(&mut peer, &request, 1, &vec![0; (1 << 20) + 1], false, None).await;
    let error = in_time(body.chunk()).await.unwrap_err();
    assert!(matches!(error, HttpError::Disconnected(_)), "{error:?}");
    in_time(remote.disconnected()).await;
}

#[tokio::test]
async fn a_header_from_a_variable_is_not_sent_to_a_peer_that_would_not_fill_it_in() {
    let (remote, mut peer) = Peer::open(&[]).await;
    let request = HttpRequest::get(URL).header_from_variable("authorization", "Bearer ", "TOKEN");
    let error = in_time(remote.http().unwrap().send(request)).await.unwrap_err();
    assert!(matches!(error, HttpError::Unsupported(_)), "{error:?}");
    remote.leave().await;
    assert!(peer.rest().await.is_empty(), "nothing was sent");
}

/// The recorded requests are made, the peer says what was recorded, and the caller gets that.
#[tokio::test]
async fn recorded_exchanges_come_out_as_they_were() {
    let (mut whole, mut streamed, mut failed) = (0, 0, 0);
    for name in ["http_request_buffered", "http_request_stream", "codex-client/mcp_http"] {
        for recording in recordings(name) {
            let at = &recording.at;
            let params = &recording.params;
            // A body that is not streamed is asked for as such from a peer of which more is known.
            let (remote, mut peer) = Peer::open(&["http"]).await;
            let http = remote.http().unwrap();
            let request = request_of(params);
            let is_streamed = params["streamResponse"] == true;
            let serve = async {
                let sent = peer.expect("http/request").await;
                check_sent(&sent["params"], params, at);
                if let Some(error) = recording.answer.get("error") {
                    return peer.fail(&sent, error.clone()).await;
                }
                peer.answer(&sent, recording.answer["result"].clone()).await;
                for delta in &recording.deltas {
                    let mut delta = delta.clone();
                    delta["params"]["requestId"] = sent["params"]["requestId"].clone();
                    peer.send(&delta).await;
                }
            };
            let (result, ()) = tokio::join!(
                async {
                    let (status, headers, body) = match is_streamed {
                        true => {
                            let response = http.stream(request).await?;
                            (response.status, response.headers, response.body.collect(u64::MAX).await)
                        }
                        false => {
                            let response = http.send(request).await?;
                            (response.status, response.headers, Ok(response.body))
                        }
                    };
                    Ok::<_, HttpError>((status, headers, body))
                },
                serve
            );
            let recorded = &recording.answer["result"];
            match result {
                Err(error) => {
                    let message = recording.answer["error"]["message"].as_str().expect("a recorded error");
                    check_error(&error, message, at);
                    failed += 1;
                }
                Ok((status, headers, body)) => {
                    assert_eq!(json!(status), recorded["status"], "{at}");
                    let headers: Vec<_> =
                        headers.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
                    assert_eq!(json!(headers), recorded["headers"], "{at}");
                    let error = recording.deltas.last().and_then(|delta| delta["params"]["error"].as_str());
                    match (body, error) {
                        (Ok(body), None) => assert_eq!(body, recording.body(), "{at}"),
                        (Err(HttpError::BodyCut { reason, .. }), Some(error)) => assert_eq!(reason, error, "{at}"),
                        (body, error) => panic!("{at}: {body:?}, {error:?}"),
                    }
                    *(if is_streamed { &mut streamed } else { &mut whole }) += 1;
                }
            }
        }
    }
    assert!(whole >= 5 && streamed >= 8 && failed >= 8, "{whole} {streamed} {failed}");
}

fn request_of(params: &Value) -> HttpRequest {
    let mut request = HttpRequest::new(params["method"].as_str().unwrap(), params["url"].as_str().unwrap())
        // Less than what would be streamed.
        .max_body_bytes(1000);
    for header in params["headers"].as_array().unwrap_or(&Vec::new()) {
        let (name, value) = (header["name"].as_str().unwrap(), header["value"].as_str().unwrap());
        request = match header["valueEnvVar"].as_str() {
            Some(variable) => request.header_from_variable(name, value, variable),
            None => request.header(name, value),
        };
    }
    if params["bodyBase64"].is_string() {
        let body: Base64 = serde_json::from_value(params["bodyBase64"].clone()).unwrap();
        request = request.body(body.0);
    }
    if let Some(timeout) = params["timeoutMs"].as_u64() {
        request = request.timeout(Duration::from_millis(timeout));
    }
    if params["redirectPolicy"] == "stop" { request.redirects(Redirects::Stop) } else { request }
}

/// What differs on purpose: the id is our own, and the members of the extension.
fn check_sent(sent: &Value, recorded: &Value, at: &str) {
    let defaults = BTreeMap::from([
        ("headers", json!([])),
        ("bodyBase64", Value::Null),
        ("redirectPolicy", json!("follow")),
        ("streamResponse", json!(false)),
    ]);
    let mut expected = recorded.clone();
    for (name, value) in defaults {
        let members = expected.as_object_mut().unwrap();
        members.entry(name).or_insert(value);
    }
    let mut sent = sent.clone();
    for message in [&mut sent, &mut expected] {
        let members = message.as_object_mut().unwrap();
        members.remove("requestId");
        members.remove("longarm");
    }
    assert_eq!(sent, expected, "{at}");
}

fn check_error(error: &HttpError, message: &str, at: &str) {
    let kind = match error {
        HttpError::InvalidRequest(invalid) => match invalid {
            InvalidHttpRequest::Method { .. } => "method is invalid",
            InvalidHttpRequest::Url { .. } => "url is invalid",
            InvalidHttpRequest::Scheme { .. } => "only supports http and https",
            InvalidHttpRequest::HeaderName { .. } => "header name is invalid",
            InvalidHttpRequest::HeaderValue { .. } => "header value is invalid",
            InvalidHttpRequest::VariableNotSet { .. } => "requires executor environment variable",
            InvalidHttpRequest::VariableProtected { .. } => "cannot use executor environment variable",
            InvalidHttpRequest::IdInUse { .. } => "is already active",
            other => panic!("{at}: {other:?}"),
        },
        HttpError::Failed { reason, .. } => {
            assert_eq!(reason, "error sending request", "{at}");
            "error sending request for url"
        }
        other => panic!("{at}: {other:?}"),
    };
    assert!(message.contains(kind), "{at}: {message}");
}

struct Recording {
    at: String,
    params: Value,
    answer: Value,
    deltas: Vec<Value>,
}

impl Recording {
    fn body(&self) -> Vec<u8> {
        let bytes = |value: &Value| serde_json::from_value::<Base64>(value.clone()).unwrap().0.to_vec();
        let deltas = self.deltas.iter().map(|delta| bytes(&delta["params"]["deltaBase64"]));
        std::iter::once(bytes(&self.answer["result"]["bodyBase64"])).chain(deltas).collect::<Vec<_>>().concat()
    }
}

fn recordings(name: &str) -> Vec<Recording> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.replace("<HTTP_PORT>", "80").replace("<BASE64_BODY>", "aGk=");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut recordings = Vec::new();
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| line["msg"]["method"] == "http/request") {
        let mut params = line["msg"]["params"].clone();
        if let Some((body, _)) = params["bodyBase64"].as_str().and_then(|body| body.split_once("...(")) {
            params["bodyBase64"] = json!(body[..body.len() / 4 * 4]);
        }
        let later = || lines[index + 1..].iter().filter(|line| line["dir"] == "s2c").map(|line| &line["msg"]);
        let answer = later().find(|message| message["id"] == line["msg"]["id"]).unwrap().clone();
        let of_body = |message: &&Value| message["params"]["requestId"] == params["requestId"];
        let mut deltas: Vec<_> = later().filter(of_body).cloned().collect();
        if answer.get("error").is_some() {
            deltas.clear();
        }
        // Rows of notifications are cut out of the recordings.
        for (seq, delta) in deltas.iter_mut().enumerate() {
            delta["params"]["seq"] = json!(seq + 1);
        }
        recordings.push(Recording { at: format!("{name}:{}", index + 1), params, answer, deltas });
    }
    recordings
}
