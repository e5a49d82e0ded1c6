//! TLS under a client's WebSocket, towards a listener behind a proxy that ends TLS.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::*;

const CERTIFICATE: &[u8] = include_bytes!("../../../../tests/data/loopback-certificate.der");
const KEY: &[u8] = include_bytes!("../../../../tests/data/loopback-key.der");

fn acceptor() -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(CERTIFICATE)], PrivatePkcs8KeyDer::from(KEY).into())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Takes one connection to `upstream`; its URL.
async fn proxy(upstream: SocketAddr) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let url = format!("wss://{}/?token=hunter2", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        // The client that does not trust it goes away here.
        let Ok(mut near) = acceptor().accept(stream).await else { return };
        let mut far = TcpStream::connect(upstream).await.unwrap();
        // It ends with either.
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    });
    (url, serving)
}

fn trusting() -> ConnectOptions {
    ConnectOptions::new().extra_root(CERTIFICATE)
}

#[tokio::test]
async fn messages_of_any_size_cross_tls_both_ways_and_its_end_is_an_end() {
    let mut listener = Listener::bind(LOOPBACK, ListenOptions::new()).await.unwrap();
    let (url, serving) = proxy(listener.local_addr()).await;
    let options = trusting();
    let (client, server) = tokio::join!(connect(&url, &options), listener.accept());
    let client = client.unwrap();
    assert!(client.peer().starts_with("wss://127.0.0.1:") && !client.peer().contains("hunter2"), "{}", client.peer());
    let ((mut out, mut back), (mut reply, mut heard)) = (split(client), split(server.unwrap()));
    for size in [0, 1, 20_000, 3 << 20] {
        let message = Bytes::from(vec![b'x'; size]);
        let (sent, got) = tokio::join!(out.send(message.clone()), heard.next());
        sent.unwrap();
        assert_eq!(got.unwrap().unwrap(), message);
        let (sent, got) = tokio::join!(reply.send(message.clone()), back.next());
        sent.unwrap();
        assert_eq!(got.unwrap().unwrap(), message);
    }
    // The proxy dies, without the end that TLS has for it.
    serving.abort();
    assert!(back.next().await.is_none_or(|end| matches!(end, Err(TransportError::Closed(_)))));
}

#[tokio::test]
async fn a_certificate_that_nobody_trusts_is_a_permanent_error_that_shows_no_secrets() {
    let listener = Listener::bind(LOOPBACK, ListenOptions::new()).await.unwrap();
    let (url, serving) = proxy(listener.local_addr()).await;
    let error = connect(&url, &ConnectOptions::new()).await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(matches!(error, ConnectError::Certificate { .. }) && !text.contains("hunter2"), "{text}");
    assert!(!error.is_retryable());
    serving.await.unwrap();
    // One for another name is none either.
    let (url, serving) = proxy(listener.local_addr()).await;
    let error = connect(&url.replace("127.0.0.1", "localhost"), &trusting()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Certificate { .. }), "{error:?}");
    serving.await.unwrap();
}

#[tokio::test]
async fn what_speaks_no_tls_is_told_apart_from_what_is_not_there() {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = listener.local_addr().unwrap();
    let plain = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let mut rest = Vec::new();
        // However the client leaves.
        let _ = stream.read_to_end(&mut rest).await;
    });
    let error = connect(&format!("wss://{address}/"), &trusting()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Peer(_)) && !error.is_retryable(), "{error:?}");
    plain.await.unwrap();
    let error = connect(&format!("wss://{address}/"), &trusting()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }) && error.is_retryable(), "{error:?}");
}
