#[cfg(feature = "tls")]
mod secure;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::upgrade::{Verdict, decide};
use super::*;
use crate::error::{ConnectError, TransportError};
use crate::transport::{CloseReason, Connector as _, PingStart};

type Halves = (Box<dyn Outgoing>, Box<dyn Incoming>);

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const UPGRADE: &str = "upgrade: websocket\r\nconnection: keep-alive, Upgrade\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn split(transport: WebSocketTransport) -> Halves {
    Box::new(transport).split()
}

async fn pair_with(limits: MessageLimits) -> (Halves, Halves) {
    let mut listener = Listener::bind(LOOPBACK, ListenOptions::new().limits(limits)).await.unwrap();
    let url = listener.local_url();
    let options = ConnectOptions::new().limits(limits);
    let (client, server) = tokio::join!(connect(&url, &options), listener.accept());
    (split(client.unwrap()), split(server.unwrap()))
}

/// A server, and a client that speaks raw bytes after the upgrade.
async fn raw_client() -> (TcpStream, Halves) {
    let mut listener = Listener::bind(LOOPBACK, ListenOptions::new()).await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr()).await.unwrap();
    client.write_all(format!("GET / HTTP/1.1\r\n{UPGRADE}\r\n").as_bytes()).await.unwrap();
    let server = split(listener.accept().await.unwrap());
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    (client, server)
}

/// A frame of a client, with a mask of zeros.
fn frame(first_byte: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first_byte];
    match u16::try_from(payload.len()) {
        Ok(length @ 0..126) => frame.push(0x80 | u8::try_from(length).unwrap()),
        Ok(length) => {
            frame.push(0x80 | 126);
            frame.extend(length.to_be_bytes());
        }
        Err(_) => {
            frame.push(0x80 | 127);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// Reads one short frame of a server: its first byte and its payload.
async fn read_frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let first = stream.read_u8().await.unwrap();
    let mut length = u64::from(stream.read_u8().await.unwrap());
    if length == 126 {
        length = u64::from(stream.read_u16().await.unwrap());
    } else if length == 127 {
        length = stream.read_u64().await.unwrap();
    }
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).await.unwrap();
    (first, payload)
}

fn close_code(frame: &(u8, Vec<u8>)) -> u16 {
    assert_eq!(frame.0, 0x88, "a close frame");
    u16::from_be_bytes([frame.1[0], frame.1[1]])
}

fn status_of(request: &str, token: Option<&CapabilityToken>) -> (u16, String) {
    match decide(request.as_bytes(), token) {
        Verdict::Upgrade { accept } => (101, accept),
        Verdict::Answer(answer) => (answer.status, String::from_utf8(answer.to_bytes()).unwrap()),
    }
}

#[test]
fn requests_are_answered_as_the_reference_answers_them() {
    let up = UPGRADE;
    let without = |line: &str| -> String { up.split_inclusive("\r\n").filter(|l| !l.starts_with(line)).collect() };
    let cases: &[(&str, String, u16)] = &[
        ("GET / HTTP/1.1", up.into(), 101),
        ("GET /?role=x&y HTTP/1.1", up.into(), 101),
        ("GET http://somewhere/ HTTP/1.1", up.into(), 101),
        ("GET / HTTP/1.1", up.to_uppercase().replace("DGHLIHNHBXBSZSBUB25JZQ", "x"), 101),
        ("GET / HTTP/1.1", format!("{up}sec-websocket-protocol: a, b\r\nhost: evil\r\n"), 101),
        ("GET / HTTP/1.1", format!("{up}sec-websocket-extensions: permessage-deflate\r\n"), 101),
        ("GET / HTTP/1.1", format!("{up}authorization: Bearer whatever\r\n"), 101),
        ("GET / HTTP/1.1", format!("{up}origin: null\r\n"), 403),
        ("GET / HTTP/1.1", format!("{up}Origin: http://127.0.0.1\r\n"), 403),
        ("GET / HTTP/1.1", format!("{up}ORIGIN:\r\n"), 403),
        ("GET /nope HTTP/1.1", "origin: x\r\n".into(), 403),
        ("POST /readyz HTTP/1.1", "origin: x\r\n".into(), 403),
        ("GET /nope HTTP/1.1", up.into(), 404),
        ("GET // HTTP/1.1", up.into(), 404),
        ("GET /%2f HTTP/1.1", up.into(), 404),
        ("GET * HTTP/1.1", up.into(), 404),
        ("GET /healthz HTTP/1.1", String::new(), 404),
        ("GET /readyz/ HTTP/1.1", String::new(), 404),
        ("GET /readyz HTTP/1.1", String::new(), 200),
        ("GET /readyz?x HTTP/1.1", String::new(), 200),
        ("HEAD /readyz HTTP/1.1", String::new(), 200),
        ("POST /readyz HTTP/1.1", String::new(), 405),
        ("POST / HTTP/1.1", up.into(), 405),
        ("HEAD / HTTP/1.1", up.into(), 405),
        ("GET / HTTP/1.1", String::new(), 400),
        ("GET / HTTP/1.1", without("upgrade"), 400),
        ("GET / HTTP/1.1", without("connection"), 400),
        ("GET / HTTP/1.1", without("sec-websocket-key"), 400),
        ("GET / HTTP/1.1", without("sec-websocket-version"), 400),
        ("GET / HTTP/1.1", up.replace("13", "12"), 400),
        ("GET / HTTP/1.1", up.replace("keep-alive, Upgrade", "close"), 400),
        ("GET / HTTP/1.1", up.replace("websocket\r", "h2c\r"), 400),
        ("GET / HTTP/1.0", up.into(), 426),
        ("BAD", String::new(), 400),
        ("GET / HTTP/1.1", "no colon\r\n".into(), 400),
        ("GET / HTTP/1.1", "x: y\r\n".repeat(65), 431),
    ];
    for (line, headers, expected) in cases {
        let (status, answer) = status_of(&format!("{line}\r\n{headers}\r\n"), None);
        assert_eq!(status, *expected, "{line} {headers:?}: {answer}");
    }
    assert_eq!(status_of(&format!("GET / HTTP/1.1\r\n{up}\r\n"), None).1, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let (_, answer) = status_of("PUT /readyz HTTP/1.1\r\n\r\n", None);
    assert!(answer.contains("\r\nallow: GET,HEAD\r\n"), "{answer}");
    let (_, answer) = status_of("HEAD / HTTP/1.1\r\n\r\n", None);
    assert!(answer.ends_with("\r\n\r\n"), "an answer to HEAD has no body: {answer}");
}

#[test]
fn authentication_comes_last_and_its_failures_are_told_apart() {
    let token = CapabilityToken::new("s3cret").unwrap();
    let cases = [
        ("", 401, "missing websocket bearer token"),
        ("authorization: Bearer s3cret\r\n", 101, ""),
        ("Authorization: bEARER    s3cret  \r\n", 101, ""),
        ("authorization: Bearer wrong\r\n", 401, "invalid websocket bearer token"),
        ("authorization: Bearer s3cret2\r\n", 401, "invalid websocket bearer token"),
        ("authorization: Basic s3cret\r\n", 401, "invalid authorization header"),
        ("authorization: s3cret\r\n", 401, "invalid authorization header"),
        ("authorization: Bearer\r\n", 401, "invalid authorization header"),
        ("authorization: Bearer   \r\n", 401, "invalid authorization header"),
        ("authorization:\r\n", 401, "invalid authorization header"),
    ];
    for (header, expected, text) in cases {
        let (status, answer) = status_of(&format!("GET / HTTP/1.1\r\n{UPGRADE}{header}\r\n"), Some(&token));
        assert_eq!(status, expected, "{header:?}");
        assert!(status == 101 || answer.ends_with(&format!("\r\n\r\n{text}")), "{header:?}: {answer}");
    }
    for (request, expected) in [
        (format!("GET / HTTP/1.1\r\norigin: x\r\n{UPGRADE}\r\n"), 403),
        ("GET / HTTP/1.1\r\n\r\n".into(), 400),
        ("POST / HTTP/1.1\r\n\r\n".into(), 405),
        ("GET /readyz HTTP/1.1\r\n\r\n".into(), 200),
        (format!("GET /?token=s3cret HTTP/1.1\r\n{UPGRADE}sec-websocket-protocol: s3cret\r\n\r\n"), 401),
    ] {
        assert_eq!(status_of(&request, Some(&token)).0, expected, "{request}");
    }
}

#[tokio::test]
async fn messages_go_both_ways() {
    let ((mut client_out, mut client_in), (mut server_out, mut server_in)) = pair_with(MessageLimits::default()).await;
    client_out.send(Bytes::from_static(b"{\"to\":\"server\"}")).await.unwrap();
    server_out.send(Bytes::from_static("{\"to\":\"clïent\"}".as_bytes())).await.unwrap();
    assert_eq!(server_in.next().await.unwrap().unwrap(), "{\"to\":\"server\"}");
    assert_eq!(client_in.next().await.unwrap().unwrap(), "{\"to\":\"clïent\"}");
}

#[tokio::test]
async fn a_close_is_an_end_on_the_other_side_and_says_why() {
    for (reason, expected) in
        [(CloseReason::Normal, None), (CloseReason::GoingAway, Some("1001")), (CloseReason::Policy, Some("1008"))]
    {
        let ((_client_out, mut client_in), (mut server_out, server_in)) = pair_with(MessageLimits::default()).await;
        server_out.send(Bytes::from_static(b"last")).await.unwrap();
        server_out.set_close_reason(reason);
        let closing = tokio::spawn(async move {
            server_out.close().await.unwrap();
            drop(server_in);
        });
        assert_eq!(client_in.next().await.unwrap().unwrap(), "last");
        match (client_in.next().await, expected) {
            (None, None) => {}
            (Some(Err(TransportError::Closed(Some(text)))), Some(code)) => assert!(text.contains(code), "{text}"),
            other => panic!("{other:?}"),
        }
        assert!(client_in.next().await.is_none());
        drop((client_in, _client_out));
        closing.await.unwrap();
    }
}

#[tokio::test]
async fn a_close_frame_is_answered_and_an_end_without_one_is_an_ordinary_end() {
    let (mut client, (mut out, mut input)) = raw_client().await;
    client.write_all(&frame(0x88, &1000_u16.to_be_bytes())).await.unwrap();
    assert!(input.next().await.is_none());
    assert_eq!(close_code(&read_frame(&mut client).await), 1000);
    assert!(matches!(out.send(Bytes::from_static(b"x")).await, Err(TransportError::Closed(_))));

    let (client, (_out, mut input)) = raw_client().await;
    drop(client);
    assert!(input.next().await.is_none());
}

#[tokio::test]
async fn violations_are_answered_with_their_close_codes() {
    let cases: [(&str, Vec<u8>, u16); 6] = [
        ("unmasked", vec![0x81, 0x01, b'x'], 1002),
        ("reserved bit", frame(0xc1, b"x"), 1002),
        ("unknown opcode", frame(0x83, b"x"), 1002),
        ("bad text", frame(0x81, b"\xff\xfe"), 1007),
        ("continuation of nothing", frame(0x80, b"x"), 1002),
        (
            "frame above the limit",
            [&[0x81, 0xff][..], &(64_u64 * 1024 * 1024 + 1).to_be_bytes(), &[0; 4]].concat(),
            1009,
        ),
    ];
    for (name, bytes, code) in cases {
        let (mut client, (mut out, mut input)) = raw_client().await;
        client.write_all(&bytes).await.unwrap();
        let error = input.next().await.unwrap().unwrap_err();
        match code {
            1009 => {
                assert!(matches!(error, TransportError::MessageTooLarge { limit_bytes, .. } if limit_bytes == 64 << 20))
            }
            _ => assert!(matches!(error, TransportError::Framing(_)), "{name}: {error:?}"),
        }
        assert_eq!(close_code(&read_frame(&mut client).await), code, "{name}");
        drop(client);
        out.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_message_above_the_limit_in_fragments_is_refused() {
    let limits = MessageLimits { max_message_bytes: 1000, ..MessageLimits::default() };
    let ((mut client_out, mut client_in), (_server_out, mut server_in)) = pair_with(limits).await;
    client_out.send(Bytes::from(vec![b'x'; 1000])).await.unwrap();
    assert_eq!(server_in.next().await.unwrap().unwrap().len(), 1000);
    client_out.send(Bytes::from(vec![b'x'; 1001])).await.unwrap();
    assert!(matches!(server_in.next().await, Some(Err(TransportError::MessageTooLarge { limit_bytes: 1000, .. }))));
    let Some(Err(TransportError::Closed(Some(text)))) = client_in.next().await else { panic!("not told") };
    assert!(text.contains("1009"), "{text}");
}

#[tokio::test]
async fn text_binary_and_fragments_with_control_frames_between_are_the_same() {
    let (mut client, (_out, mut input)) = raw_client().await;
    let bytes = [
        frame(0x81, b"text"),
        frame(0x82, b"binary"),
        frame(0x01, "\u{e4}".as_bytes().split_at(1).0),
        frame(0x89, b"ping"),
        frame(0x00, "\u{e4}".as_bytes().split_at(1).1),
        frame(0x80, b"end"),
    ];
    client.write_all(&bytes.concat()).await.unwrap();
    assert_eq!(input.next().await.unwrap().unwrap(), "text");
    assert_eq!(input.next().await.unwrap().unwrap(), "binary");
    assert_eq!(input.next().await.unwrap().unwrap(), "\u{e4}end");
    assert_eq!(read_frame(&mut client).await, (0x8a, b"ping".to_vec()));
}

#[tokio::test]
async fn every_byte_counts_as_life_and_a_dropped_receive_loses_nothing() {
    let (mut client, (mut out, mut input)) = raw_client().await;
    assert_eq!(out.start_ping(7), PingStart::Queued);
    out.flush().await.unwrap();
    assert_eq!(read_frame(&mut client).await, (0x89, 7_u64.to_be_bytes().to_vec()));
    let before = input.received_bytes();
    let whole = frame(0x81, b"{\"half\":1}");
    for (index, byte) in whole.iter().enumerate() {
        client.write_all(&[*byte]).await.unwrap();
        if index + 1 == whole.len() {
            break;
        }
        while input.received_bytes() < before + index as u64 + 1 {
            assert!(input.next().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(input.next().await.unwrap().unwrap(), "{\"half\":1}");
    assert_eq!(input.received_bytes(), before + whole.len() as u64);
    assert_eq!(input.answered_mark(), None);
    client.write_all(&frame(0x8a, &7_u64.to_be_bytes())).await.unwrap();
    while input.answered_mark().is_none() {
        assert!(input.next().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert_eq!(input.answered_mark(), Some(7));
    assert!(input.received_bytes() > before + whole.len() as u64);
    // Answers to nothing, of any form, change nothing.
    client.write_all(&[frame(0x8a, b""), frame(0x8a, b"nine byte"), frame(0x81, b"{}")].concat()).await.unwrap();
    assert_eq!(input.next().await.unwrap().unwrap(), "{}");
    assert_eq!(input.answered_mark(), Some(7));
}

#[tokio::test]
async fn no_frame_is_large_and_order_is_kept_around_large_messages() {
    let (mut client, (mut out, _input)) = raw_client().await;
    let sending = tokio::spawn(async move {
        out.feed(Bytes::from_static(b"before")).await.unwrap();
        out.feed(Bytes::from(vec![b'x'; (40 << 20) + 5])).await.unwrap();
        assert_eq!(out.start_ping(7), PingStart::Queued);
        out.feed(Bytes::from_static(b"after")).await.unwrap();
        out.close().await.unwrap();
        drop(_input);
    });
    let mut frames = Vec::new();
    loop {
        let (first, payload) = read_frame(&mut client).await;
        match first {
            0x88 => break,
            0x89 => {}
            _ => frames.push((first, payload.len())),
        }
    }
    let part = 512 << 10;
    let mut expected = vec![(0x81, 6), (0x01, part)];
    expected.extend([(0x00, part); 79]);
    expected.extend([(0x80, 5), (0x81, 5)]);
    assert_eq!(frames, expected);
    drop(client);
    sending.await.unwrap();
}

#[tokio::test]
async fn the_largest_message_passes_both_ways() {
    let ((mut client_out, mut client_in), (mut server_out, mut server_in)) = pair_with(MessageLimits::default()).await;
    let large = Bytes::from(vec![b'x'; 64 << 20]);
    let (sent, got) = tokio::join!(client_out.send(large.clone()), server_in.next());
    sent.unwrap();
    assert_eq!(got.unwrap().unwrap().len(), large.len());
    let (sent, got) = tokio::join!(server_out.send(large.clone()), client_in.next());
    sent.unwrap();
    assert_eq!(got.unwrap().unwrap().len(), large.len());
}

#[tokio::test]
async fn a_peer_that_does_not_read_stops_the_sender_soon() {
    let (client, (mut out, _input)) = raw_client().await;
    let message = Bytes::from(vec![b'x'; 32 << 10]);
    let mut sent = 0_usize;
    while out.send(message.clone()).now_or_never().is_some() {
        sent += message.len();
        assert!(sent < 64 << 20, "nothing bounds what is queued");
    }
    drop(client);
    while out.send(message.clone()).await.is_ok() {}
}

#[tokio::test(start_paused = true)]
async fn pings_of_a_peer_that_does_not_read_are_not_hoarded() {
    let (mut client, (_out, mut input)) = raw_client().await;
    let pings = frame(0x89, &[0; 125]).repeat(1000);
    let mut sent = 0_usize;
    // The kernel's buffers fill with answers, then the server stops reading, then ours fill and the write waits.
    loop {
        let write = client.write_all(&pings);
        tokio::select! {
            result = write => { result.unwrap(); sent += pings.len(); }
            _ = input.next() => panic!("a ping is no message"),
            // The clock moves when nothing else can.
            () = tokio::time::sleep(Duration::from_secs(1)) => break,
        }
        assert!(sent < 256 << 20, "answers are hoarded");
    }
}

#[tokio::test]
async fn a_slow_handshake_keeps_nobody_out() {
    let options = ListenOptions::new().max_handshakes(2).handshake_timeout(Duration::from_secs(600));
    let mut listener = Listener::bind(LOOPBACK, options).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..5 {
        let mut stream = TcpStream::connect(listener.local_addr()).await.unwrap();
        stream.write_all(b"GET / HT").await.unwrap();
        silent.push(stream);
    }
    let url = listener.local_url();
    let options = ConnectOptions::new();
    let (client, server) = tokio::join!(connect(&url, &options), listener.accept());
    let _client = client.unwrap();
    let _ = server.unwrap();
    assert_eq!(
        silent[0].read(&mut [0; 10]).await.map_err(|error| error.kind()).unwrap_or(0),
        0,
        "the oldest is dropped"
    );
}

#[tokio::test]
async fn a_handshake_is_bounded_in_time_and_size() {
    let options = ListenOptions::new().handshake_timeout(Duration::from_millis(50));
    let mut listener = Listener::bind(LOOPBACK, options).await.unwrap();
    let addr = listener.local_addr();
    let accepting = tokio::spawn(async move { listener.accept().await.map(drop) });
    let mut slow = TcpStream::connect(addr).await.unwrap();
    assert_eq!(slow.read(&mut [0; 10]).await.unwrap(), 0);
    let mut large = TcpStream::connect(addr).await.unwrap();
    large.write_all(format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(20_000)).as_bytes()).await.unwrap();
    let mut answer = String::new();
    large.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    accepting.abort();
}

#[tokio::test]
async fn a_message_in_the_same_packet_as_the_upgrade_is_kept() {
    let mut listener = Listener::bind(LOOPBACK, ListenOptions::new()).await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr()).await.unwrap();
    let bytes = [format!("GET / HTTP/1.1\r\n{UPGRADE}\r\n").into_bytes(), frame(0x81, b"early")].concat();
    client.write_all(&bytes).await.unwrap();
    let (_out, mut input) = split(listener.accept().await.unwrap());
    assert_eq!(input.next().await.unwrap().unwrap(), "early");
}

#[tokio::test]
async fn a_token_opens_the_door_and_a_refusal_is_typed() {
    let token = CapabilityToken::new("s3cret").unwrap();
    let mut listener = Listener::bind(LOOPBACK, ListenOptions::new().token(token)).await.unwrap();
    let url = listener.local_url();
    let accepting = tokio::spawn(async move { listener.accept().await.map(|transport| transport.peer()) });
    let connector = WebSocketConnector::new(url.clone(), ConnectOptions::new());
    let error = connector.connect().await.unwrap_err();
    let ConnectError::Refused { status: 401, reason, address, retry_after: None } = error else { panic!("{error:?}") };
    assert_eq!((reason.as_str(), address.as_str()), ("missing websocket bearer token", url.as_str()));
    let options = ConnectOptions::new().bearer_token("s3cret");
    assert!(!format!("{options:?}").contains("s3cret"));
    let _transport = connect(&url, &options).await.unwrap();
    assert!(accepting.await.unwrap().unwrap().starts_with("ws://127.0.0.1:"));
}

#[tokio::test]
async fn ipv6_works_where_the_machine_has_it() {
    let addr = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0);
    let mut listener = match Listener::bind(addr, ListenOptions::new()).await {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("SKIPPED: no IPv6 loopback here: {error}");
            return;
        }
    };
    let url = listener.local_url();
    assert!(url.starts_with("ws://[::1]:"), "{url}");
    let options = ConnectOptions::new();
    let (client, server) = tokio::join!(connect(&url, &options), listener.accept());
    assert_eq!(client.unwrap().peer(), url);
    let _ = server.unwrap();
}

#[tokio::test]
async fn unusable_addresses_are_told_apart_and_show_no_secrets() {
    let options = ConnectOptions::new();
    for (url, text) in [
        #[cfg(not(feature = "tls"))]
        ("wss://host/", "wss"),
        ("http://host/", "scheme"),
        ("ws://user:hunter2@host/?token=hunter2#hunter2", "credentials"),
        ("hunter2", "relative URL"),
    ] {
        let error = connect(url, &options).await.unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, ConnectError::InvalidAddress { .. }), "{error:?}");
        assert!(message.contains(text) && !message.contains("hunter2"), "{message}");
    }
    let connector = WebSocketConnector::new("ws://user:hunter2@host:1/?token=hunter2", ConnectOptions::new());
    assert!(!format!("{connector:?}").contains("hunter2"));
    // Bound, so that nobody else gets the address, and not listening.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind(LOOPBACK).unwrap();
    let port = nobody.local_addr().unwrap().port();
    let error = connect(&format!("ws://127.0.0.1:{port}/?token=hunter2"), &options).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Unreachable { address, .. } if !address.contains("hunter2")), "{error:?}");
    assert!(error.is_retryable());
    for url in ["ws://localhost:1", "ws://127.0.0.1", "wss://127.0.0.1:1", "127.0.0.1:1", "ws://127.0.0.1:1/x", "ws://"]
    {
        assert!(parse_listen_url(url).is_err(), "{url}");
    }
    assert_eq!(parse_listen_url("ws://[::1]:0").unwrap().port(), 0);
}

#[tokio::test]
async fn answers_that_are_no_upgrade_are_refused() {
    type Check = fn(&ConnectError) -> bool;
    let cases: [(&str, Check); 6] = [
        ("HTTP/1.1 503 Busy\r\ncontent-length: 4\r\nretry-after: 7\r\n\r\nfull", |error| {
            matches!(error, ConnectError::Refused { status: 503, reason, .. } if reason == "full")
                && error.is_retryable()
                && error.retry_after() == Some(Duration::from_secs(7))
        }),
        (
            "HTTP/1.1 200 OK\r\n\r\nhello\x1b[31m",
            |error| matches!(error, ConnectError::Refused { status: 200, reason, .. } if !reason.contains('\x1b')),
        ),
        ("SSH-2.0-OpenSSH_9\r\n\r\n", |error| matches!(error, ConnectError::Peer(_))),
        ("HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: no\r\n\r\n", |error| {
            matches!(error, ConnectError::Peer(_))
        }),
        ("HTTP/1.1 101 X\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", |error| {
            matches!(error, ConnectError::Peer(_))
        }),
        ("HTTP/1.1 2", |error| matches!(error, ConnectError::Unreachable { .. })),
    ];
    for (answer, expected) in cases {
        let listener = tokio::net::TcpListener::bind(LOOPBACK).await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let head = head::read_head(&mut stream).await.ok().unwrap();
            assert!(head.bytes.starts_with(b"GET / HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let options = ConnectOptions::new();
        let (error, ()) = tokio::join!(connect(&url, &options), server);
        let error = error.err().unwrap();
        assert!(expected(&error), "{answer:?}: {error:?}");
    }
    let listener = tokio::net::TcpListener::bind(LOOPBACK).await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let error = connect(&url, &ConnectOptions::new().timeout(Duration::from_millis(50))).await.unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }));
}
