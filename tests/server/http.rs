//! HTTP over the wire: the recordings of the reference replayed, and what happens when somebody goes away.
#![cfg(all(feature = "http", feature = "testing"))]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use longarm::server::Server;
use longarm::testing::http_server::HttpServer;
use longarm::{Local, LocalConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::client::{PATIENCE, RawClient, decode};

fn server() -> Server {
    let variables = [("MCP_TOKEN", "t0ken"), ("OPENAI_API_KEY", "x")];
    let variables = variables.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
    Server::new(Arc::new(Local::new(LocalConfig::from_host().base_env(variables))))
}

/// One difference: of which transcript, the id of the answer or the stream, which member, what ours has there (`PORT` for
/// the target's), and why.
const KNOWN_DIFFERENCES: &[(&str, &str, &str, &str, &str)] = &[
    (
        "http_request_buffered",
        "6",
        "error",
        "http/request failed: the exchange with http://127.0.0.1:PORT did not end in time",
        "the cause is told, and the URL is not",
    ),
    (
        "http_request_stream",
        "s-2",
        "error",
        "the body from http://127.0.0.1:PORT was cut short: end of file before message length reached",
        "the cause is told",
    ),
    (
        "http_request_stream",
        "s-4",
        "error",
        "the body from http://127.0.0.1:PORT did not end in time",
        "the cause is told",
    ),
];

#[tokio::test]
async fn recorded_requests_are_answered_alike() {
    let mut found = Vec::new();
    for name in ["http_request_buffered", "http_request_stream"] {
        let target = HttpServer::start().await.unwrap();
        // Whatever time the recording leaves to one of its bodies, the head has to come before that.
        let mut limits = [300, 1_200, 4_800, 19_200].into_iter();
        let differences = loop {
            let (mut client, _) = RawClient::open(&server(), &[]).await;
            let limit = limits.next().expect("a head in time");
            if let Some(differences) = replay(&mut client, name, target.port(), limit).await {
                break differences;
            }
        };
        for (id, member, recorded, actual) in differences {
            let actual = actual.replace(&target.port().to_string(), "PORT");
            let known = KNOWN_DIFFERENCES
                .iter()
                .position(|known| (known.0, known.1, known.2, known.3) == (name, id.as_str(), member, actual.as_str()));
            found.push(known.unwrap_or_else(|| panic!("{name}: {id} {member}: {recorded} became {actual}")));
        }
    }
    assert_eq!(found.len(), KNOWN_DIFFERENCES.len(), "listed, and differing no more");
}

type Difference = (String, &'static str, String, String);

/// The id of the one that is to end by its time, in its body.
const CUT_BY_TIME: &str = "s-4";

/// None if the head of that one did not come in time.
async fn replay(client: &mut RawClient, name: &str, port: u16, limit: u32) -> Option<Vec<Difference>> {
    let mut differences = Vec::new();
    let mut compare = |id: String, member, recorded: String, actual: String| {
        if recorded != actual {
            differences.push((id, member, recorded, actual));
        }
    };
    let mut asked = BTreeMap::new();
    let mut bodies = BTreeMap::<String, Vec<u8>>::new();
    for line in lines(name, port) {
        let message = &line["msg"];
        if line["dir"] == "c2s" {
            let mut message = message.clone();
            asked.insert(message["id"].to_string(), message["params"].clone());
            if message["params"]["requestId"] == CUT_BY_TIME {
                message["params"]["timeoutMs"] = json!(limit);
                message["params"]["url"] = json!(format!("http://127.0.0.1:{port}/stream/1000"));
            }
            client.send_text(message.to_string()).await;
            continue;
        }
        let Some(id) = message["id"].as_i64() else {
            let params = &message["params"];
            let id = params["requestId"].as_str().unwrap();
            bodies.entry(id.into()).or_default().extend(decode(params["deltaBase64"].as_str().unwrap()));
            if params["done"] == true {
                let (body, error) = body(client, id).await;
                let (ours, recorded) = (&body, &bodies[id]);
                // How much comes before the time is over is up to the target.
                let cut_by_time = ours.starts_with(recorded) || recorded.starts_with(ours);
                assert!(ours == recorded || id == CUT_BY_TIME && cut_by_time, "{name}: {id}: {ours:?}");
                compare(id.into(), "error", params["error"].to_string(), quoted(error));
            }
            continue;
        };
        let answer = client.next_where(|answer| answer["id"] == id).await;
        let key = id.to_string();
        let is_late = answer["error"]["message"].as_str().is_some_and(|error| error.ends_with("did not end in time"));
        if is_late && asked[&key]["requestId"] == CUT_BY_TIME {
            return None;
        }
        assert_eq!(answer["error"]["code"], message["error"]["code"], "{name}: {id}");
        assert_eq!(answer["error"]["data"], Value::Null);
        compare(key.clone(), "error", message["error"]["message"].to_string(), answer["error"]["message"].to_string());
        let (mut recorded, mut answer) = (message["result"].clone(), answer["result"].clone());
        if recorded["bodyBase64"] == "<BASE64_BODY>" {
            // What the target says of the request is the target's.
            for result in [&mut recorded, &mut answer] {
                let is_length = |header: &Value| header["name"] == "content-length";
                result["headers"].as_array_mut().unwrap().retain(|header| !is_length(header));
                result["bodyBase64"] = json!("");
            }
        }
        compare(key, "result", recorded.to_string(), answer.to_string());
    }
    let told = differences.into_iter();
    Some(told.map(|(id, member, recorded, actual)| (id, member, recorded, unquoted(&actual))).collect())
}

fn quoted(error: Option<String>) -> String {
    error.map_or_else(|| "null".into(), |error| json!(error).to_string())
}

fn unquoted(text: &str) -> String {
    serde_json::from_str::<String>(text).unwrap_or_else(|_| text.into())
}

fn lines(name: &str, port: u16) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap().replace("<HTTP_PORT>", &port.to_string());
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The body of a stream to its end, and its error.
async fn body(client: &mut RawClient, id: &str) -> (Vec<u8>, Option<String>) {
    let mut body = Vec::new();
    for seq in 1.. {
        let wanted =
            |message: &Value| message["method"] == "http/request/bodyDelta" && message["params"]["requestId"] == id;
        let delta = client.next_where(wanted).await["params"].take();
        assert_eq!(delta["seq"], seq);
        body.extend(decode(delta["deltaBase64"].as_str().unwrap()));
        if delta["done"] == true {
            return (body, delta["error"].as_str().map(Into::into));
        }
    }
    unreachable!("a body ends")
}

/// An MCP session of the reference's client: the target answers as recorded, and must be asked as recorded.
#[tokio::test]
async fn a_recorded_session_over_http_passes_through() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let lines = lines("codex-client/mcp_http", port);
    let exchanges: Vec<_> = lines.iter().filter(|line| line["msg"]["method"] == "http/request").collect();
    assert!(exchanges.len() >= 6, "{}", exchanges.len());
    let answer_to = |id: &Value| lines.iter().find(|line| line["dir"] == "s2c" && line["msg"]["id"] == *id).unwrap();
    let deltas_of = |id: Value| {
        let of_body = move |line: &&Value| line["msg"]["params"]["requestId"] == id && line["dir"] == "s2c";
        lines.iter().filter(of_body).map(|line| decode(line["msg"]["params"]["deltaBase64"].as_str().unwrap()))
    };
    let (answers, mut to_send) = mpsc::channel::<Vec<u8>>(1);
    let (requests, mut seen) = mpsc::channel::<String>(1);
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let mut socket = BufReader::new(socket);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert!(socket.read_line(&mut head).await.unwrap() > 0);
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            let mut body = vec![0; length.parse().unwrap()];
            socket.read_exact(&mut body).await.unwrap();
            requests.send(head).await.unwrap();
            let Some(answer) = to_send.recv().await else { return };
            socket.write_all(&answer).await.unwrap();
            socket.shutdown().await.unwrap();
        }
    });
    let (mut client, _) = RawClient::open(&server(), &[]).await;
    for line in exchanges {
        let mut message = line["msg"].clone();
        if let Some((whole, _)) = message["params"]["bodyBase64"].as_str().and_then(|body| body.split_once("...(")) {
            message["params"]["bodyBase64"] = json!(whole[..whole.len() / 4 * 4]);
        }
        let recorded = &answer_to(&message["id"])["msg"]["result"];
        let pieces: Vec<_> = deltas_of(message["params"]["requestId"].clone()).collect();
        client.send_text(message.to_string()).await;
        let head = tokio::time::timeout(PATIENCE, seen.recv()).await.unwrap().unwrap();
        let params = &message["params"];
        assert!(head.starts_with(&format!("{} /mcp HTTP/1.1\r\n", params["method"].as_str().unwrap())), "{head}");
        for header in params["headers"].as_array().unwrap() {
            let (name, value) = (header["name"].as_str().unwrap(), header["value"].as_str().unwrap());
            let variable = if header["valueEnvVar"] == "MCP_TOKEN" { "t0ken" } else { "" };
            assert!(head.contains(&format!("\r\n{name}: {value}{variable}\r\n")), "{name} in {head}");
        }
        let mut answer = format!("HTTP/1.1 {} As recorded\r\n", recorded["status"]).into_bytes();
        let mut chunked = false;
        for header in recorded["headers"].as_array().unwrap() {
            let (name, value) = (header["name"].as_str().unwrap(), header["value"].as_str().unwrap());
            chunked |= name == "transfer-encoding";
            answer.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        answer.extend_from_slice(b"\r\n");
        let whole: Vec<u8> = pieces.concat();
        match chunked {
            true => {
                for piece in pieces.iter().filter(|piece| !piece.is_empty()).chain([&Vec::new()]) {
                    answer.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                    answer.extend_from_slice(piece);
                    answer.extend_from_slice(b"\r\n");
                }
            }
            false => answer.extend_from_slice(&whole),
        }
        answers.send(answer).await.unwrap();
        let id = message["id"].as_i64().unwrap();
        let result = client.answer(id).await.unwrap();
        assert_eq!(result, *recorded);
        if params["streamResponse"] == true {
            assert_eq!(body(&mut client, params["requestId"].as_str().unwrap()).await, (whole, None));
        }
    }
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_exchanges() {
    let (target, server) = (HttpServer::start().await.unwrap(), server());
    let (mut client, _) = RawClient::open(&server, &[]).await;
    let request = |path: &str, id: &str| json!({"method": "GET", "url": target.url(path), "requestId": id, "streamResponse": true});
    client.request("http/request", request("/slow", "a")).await;
    let drip = client.request("http/request", request("/drip", "b")).await;
    client.answer(drip).await.unwrap();
    target.begun("/slow", 1).await;
    drop(client);
    let ended = async {
        target.ended("/slow", 1).await;
        target.ended("/drip", 1).await;
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_body_and_nothing_else() {
    let (target, server) = (HttpServer::start().await.unwrap(), server());
    let (mut slow, _) = RawClient::open(&server, &[]).await;
    let params = json!({"method": "GET", "url": target.url("/endless"), "requestId": "a", "streamResponse": true});
    let id = slow.request("http/request", params).await;
    slow.answer(id).await.unwrap();
    let (mut other, _) = RawClient::open(&server, &[]).await;
    // As long as the body moves, it is stopped within what the system and the transport hold.
    let mut sent = 0;
    loop {
        for index in 0..50 {
            let id = format!("{index}");
            let params = json!({"method": "GET", "url": target.url("/echo"), "requestId": id});
            assert_eq!(other.try_call("http/request", params).await.unwrap()["status"], 200);
        }
        if target.sent_bytes() == sent {
            break;
        }
        sent = target.sent_bytes();
        assert!(sent < 256 << 20, "{sent} bytes, and nobody reads");
    }
    let (pieces, _) = (slow.next().await.unwrap(), ());
    assert_eq!(pieces["method"], "http/request/bodyDelta");
}
