use std::ffi::OsString;
use std::time::Duration;

use tokio::io::AsyncReadExt;

use super::*;
use crate::env_policy::EnvMap;
use crate::http::{InvalidHttpRequest, MAX_REDIRECTS, Redirects};
use crate::testing::http_server::HttpServer;

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it ends in time")
}

fn client_with(variables: &[(&str, &str)]) -> LocalHttpClient {
    let variables: EnvMap =
        variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
    LocalHttpClient::new(LocalHttpConfig::default().variables(variables))
}

async fn echo(client: &LocalHttpClient, request: HttpRequest) -> String {
    let response = in_time(client.send(request)).await.unwrap();
    assert_eq!(response.status, 200);
    String::from_utf8(response.body.to_vec()).unwrap()
}

#[tokio::test]
async fn any_status_is_a_success_and_headers_are_kept_with_their_repeats() {
    let (server, client) = (HttpServer::start().await.unwrap(), client_with(&[]));
    let response = in_time(client.send(HttpRequest::get(server.url("/404")))).await.unwrap();
    assert_eq!((response.status, &response.body[..]), (404, &b"nf"[..]));
    let request =
        HttpRequest::new("PuT", server.url("/echo")).header("X-B", "1").header("X-B", "z\u{fc}").body("content");
    let response = in_time(client.send(request)).await.unwrap();
    assert_eq!(response.headers.get_all("X-A").collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(response.headers.get("Content-Type"), Some("text/plain"));
    let text = String::from_utf8(response.body.to_vec()).unwrap();
    assert!(text.starts_with("PuT /echo\nx-b: 1\nx-b: z\u{fc}\n"), "{text}");
    assert!(text.ends_with("\n\ncontent") && text.contains("\naccept: */*\n"), "{text}");
    for unwanted in ["user-agent", "accept-encoding", "referer"] {
        assert!(!text.contains(unwanted), "{text}");
    }
}

#[tokio::test]
async fn a_body_is_collected_up_to_its_bound() {
    let (server, client) = (HttpServer::start().await.unwrap(), client_with(&[]));
    let request = HttpRequest::get(server.url("/bytes/300000"));
    let response = in_time(client.send(request.clone().max_body_bytes(300_000))).await.unwrap();
    assert!(response.body.iter().enumerate().all(|(index, byte)| usize::from(*byte) == index % 251));
    assert_eq!(response.body.len(), 300_000);
    let error = in_time(client.send(request.max_body_bytes(299_999))).await.unwrap_err();
    assert_eq!(error, HttpError::BodyTooLarge { limit: 299_999 });
}

#[tokio::test]
async fn a_body_is_read_as_it_comes_also_by_readers() {
    let (server, client) = (HttpServer::start().await.unwrap(), client_with(&[]));
    let mut response = in_time(client.stream(HttpRequest::get(server.url("/drip")))).await.unwrap();
    assert_eq!(in_time(response.body.chunk()).await.unwrap().unwrap(), "drop");
    let mut response = in_time(client.stream(HttpRequest::get(server.url("/stream/3")))).await.unwrap();
    let mut text = String::new();
    in_time(response.body.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "chunk0\nchunk1\nchunk2\n");
    assert_eq!(in_time(response.body.chunk()).await.unwrap(), None);
    let mut response = in_time(client.stream(HttpRequest::get(server.url("/204")))).await.unwrap();
    assert_eq!((response.status, in_time(response.body.chunk()).await.unwrap()), (204, None));
}

#[tokio::test]
async fn a_body_that_is_not_read_is_not_received() {
    let (server, client) = (HttpServer::start().await.unwrap(), client_with(&[]));
    let mut response = in_time(client.stream(HttpRequest::get(server.url("/endless")))).await.unwrap();
    in_time(response.body.chunk()).await.unwrap();
    // Other exchanges go on; by their end the server has long been stopped by the buffers of the system.
    for _ in 0..50 {
        echo(&client, HttpRequest::get(server.url("/echo"))).await;
    }
    assert!(server.sent_bytes() < 64 << 20, "{}", server.sent_bytes());
    drop(response);
    in_time(server.ended("/endless", 1)).await;
}

#[tokio::test]
async fn dropping_ends_the_exchange() {
    let (server, client) = (HttpServer::start().await.unwrap(), client_with(&[]));
    {
        let waiting = client.stream(HttpRequest::get(server.url("/slow")));
        tokio::pin!(waiting);
        tokio::select! {
            result = &mut waiting => panic!("{result:?}"),
            () = server.begun("/slow", 1) => {}
        }
    }
    in_time(server.ended("/slow", 1)).await;
    let response = in_time(client.stream(HttpRequest::get(server.url("/drip")))).await.unwrap();
    drop(response);
    in_time(server.ended("/drip", 1)).await;
}

#[tokio::test]
async fn closing_ends_all_exchanges() {
    let (server, client) = (HttpServer::start().await.unwrap(), Arc::new(client_with(&[])));
    let mut response = in_time(client.stream(HttpRequest::get(server.url("/drip")))).await.unwrap();
    in_time(response.body.chunk()).await.unwrap();
    let (other, url) = (Arc::clone(&client), server.url("/slow"));
    let waiting = tokio::spawn(async move { other.send(HttpRequest::get(url)).await });
    in_time(server.begun("/slow", 1)).await;
    client.close();
    assert_eq!(in_time(response.body.chunk()).await.unwrap_err(), HttpError::Closed);
    assert_eq!(in_time(waiting).await.unwrap().unwrap_err(), HttpError::Closed);
    assert_eq!(in_time(client.send(HttpRequest::get(server.url("/echo")))).await.unwrap_err(), HttpError::Closed);
    in_time(server.ended("/drip", 1)).await;
}

#[tokio::test]
async fn the_limit_is_for_the_whole_exchange() {
    let (server, client) = (HttpServer::start().await.unwrap(), client_with(&[]));
    let origin = server.url("");
    let request = |path: &str, millis| HttpRequest::get(server.url(path)).timeout(Duration::from_millis(millis));
    let late = |in_body| HttpError::TimedOut { origin: origin.clone(), in_body };
    assert_eq!(in_time(client.send(request("/slow", 50))).await.unwrap_err(), late(false));
    // The answer and a chunk have to come before that.
    for millis in [300, 1_200, 4_800, 19_200] {
        let error = in_time(client.send(request("/drip", millis))).await.unwrap_err();
        if error == late(true) {
            break;
        }
        assert!(error == late(false) && millis < 10_000, "{error:?}");
    }
    assert_eq!(in_time(client.send(request("/echo", 0))).await.unwrap_err(), late(false));
    assert!(in_time(client.send(request("/echo", u64::MAX))).await.is_ok());
}

#[tokio::test]
async fn redirects_are_followed_by_their_kind() {
    let (server, client) = (HttpServer::start().await.unwrap(), client_with(&[]));
    let post = |path: &str| HttpRequest::new("POST", server.url(path)).header("content-type", "text/x").body("content");
    for (status, method) in [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")] {
        let text = echo(&client, post(&format!("/redirect/{status}/1"))).await;
        assert!(text.starts_with(&format!("{method} /echo\n")), "{status}: {text}");
        let kept = method == "POST";
        assert_eq!((text.contains("content-type"), text.ends_with("content")), (kept, kept), "{status}: {text}");
        assert!(text.contains(&format!("\nreferer: {}\n", server.url(&format!("/redirect/{status}/1")))), "{text}");
    }
    let text = echo(&client, HttpRequest::new("PUT", server.url("/redirect/302/1")).body("x")).await;
    assert!(text.starts_with("PUT /echo\n") && text.ends_with('x'), "{text}");
    let stopped = in_time(client.send(post("/redir").redirects(Redirects::Stop))).await.unwrap();
    assert_eq!(
        (stopped.status, stopped.headers.get("location"), &stopped.body[..]),
        (302, Some("/echo"), &b"moved"[..])
    );
}

#[tokio::test]
async fn a_chain_of_redirects_has_a_bound() {
    let (server, client) = (HttpServer::start().await.unwrap(), client_with(&[]));
    let chain = |count: usize| HttpRequest::get(server.url(&format!("/redirect/307/{count}")));
    echo(&client, chain(MAX_REDIRECTS)).await;
    let error = in_time(client.send(chain(MAX_REDIRECTS + 1))).await.unwrap_err();
    assert_eq!(error, HttpError::TooManyRedirects { origin: server.url(""), limit: MAX_REDIRECTS });
    let error = in_time(client.send(HttpRequest::get(server.url("/to/302/ftp://x/")))).await.unwrap_err();
    assert_eq!(error, HttpError::RedirectScheme { origin: server.url(""), scheme: "ftp".into() });
}

#[tokio::test]
async fn a_redirect_to_another_origin_loses_what_is_secret() {
    let (here, there) = (HttpServer::start().await.unwrap(), HttpServer::start().await.unwrap());
    let client = client_with(&[("TOKEN", "of-the-executor")]);
    let request = |url: String| {
        HttpRequest::get(url)
            .header("authorization", "a-secret")
            .header("cookie", "a-secret")
            .header("x-plain", "kept")
            .header_from_variable("x-token", "Bearer ", "TOKEN")
    };
    let text = echo(&client, request(here.url("/redir"))).await;
    assert!(text.contains("authorization: a-secret") && text.contains("x-token: Bearer of-the-executor"), "{text}");
    let away = here.url(&format!("/to/307/{}?key=a-secret", there.url("/echo")));
    let text = echo(&client, request(away)).await;
    assert!(text.contains("x-plain: kept"), "{text}");
    assert!(!text.contains("x-token") && !text.contains("of-the-executor"), "{text}");
    assert!(!text.contains("a-secret") && !text.contains("cookie"), "{text}");
    assert!(text.contains(&format!("\nreferer: {}/\n", here.url(""))), "{text}");
}

/// An address that refuses connections: its socket is bound, so that nobody else gets it, and does not listen.
struct Nobody(tokio::net::TcpSocket);

impl Nobody {
    fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Self(socket)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.0.local_addr().unwrap())
    }
}

#[tokio::test]
async fn what_a_redirect_leads_to_is_not_known_to_be_untouched() {
    let (server, client, nobody) = (HttpServer::start().await.unwrap(), client_with(&[]), Nobody::new());
    for (url, reason) in [(nobody.url("/"), "refused"), ("http://name..invalid/".into(), "cannot be resolved")] {
        let post = |url: &str| HttpRequest::new("POST", url).body("pay");
        assert!(in_time(client.send(post(&url))).await.unwrap_err().is_retryable(), "nothing was sent");
        for status in [303, 307] {
            let away = server.url(&format!("/to/{status}/{url}"));
            let error = in_time(client.send(post(&away))).await.unwrap_err();
            assert!(!error.is_retryable(), "the first host has it: {error:?}");
            assert!(matches!(&error, HttpError::Failed { origin, .. } if url.starts_with(origin)), "{error:?}");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}

#[tokio::test]
async fn a_body_that_keeps_coming_ends_at_its_limit() {
    let (server, client) = (HttpServer::start().await.unwrap(), client_with(&[]));
    // The answer and a chunk have to come before that.
    for limit in [500, 2_000, 8_000, 32_000].map(Duration::from_millis) {
        let begun = Instant::now();
        let first = async {
            let request = HttpRequest::get(server.url("/endless")).timeout(limit);
            let mut body = client.stream(request).await?.body;
            body.chunk().await.map(|_| body)
        };
        match in_time(first).await {
            Ok(mut body) => {
                // There is a chunk at each look, also after the limit.
                std::thread::sleep(limit.saturating_sub(begun.elapsed()) + Duration::from_millis(10));
                let late = in_time(body.chunk()).await;
                return assert_eq!(late, Err(HttpError::TimedOut { origin: server.url(""), in_body: true }));
            }
            Err(error) => assert!(matches!(error, HttpError::TimedOut { .. }), "{error:?}"),
        }
    }
    panic!("nothing comes in time");
}

#[tokio::test]
async fn causes_are_told_apart() {
    let (server, client) = (HttpServer::start().await.unwrap(), client_with(&[]));
    let nobody = Nobody::new();
    let origin = nobody.url("");
    let failure = async |url: String| in_time(client.send(HttpRequest::get(url))).await.unwrap_err();
    let error = failure(format!("{origin}/path?key=a-secret")).await;
    assert_eq!(error, HttpError::ConnectionRefused { origin: origin.clone() });
    assert!(error.is_retryable());
    let error = failure("http://user:a-secret@name..invalid/?key=a-secret".into()).await;
    assert!(
        matches!(&error, HttpError::NameNotResolved { origin, .. } if origin == "http://name..invalid"),
        "{error:?}"
    );
    assert!(!format!("{error} {error:?}").contains("a-secret"));
    let error = failure(server.url("/trunc?key=a-secret")).await;
    assert!(matches!(&error, HttpError::BodyCut { origin, .. } if *origin == server.url("")), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("a-secret"));
    let error = failure(server.url("/garbage?key=a-secret")).await;
    assert!(matches!(&error, HttpError::Failed { origin, .. } if *origin == server.url("")), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("a-secret"));
}

#[tokio::test]
async fn what_is_invalid_is_refused_before_anything_is_sent() {
    let client = client_with(&[("EMPTY", ""), ("OPENAI_API_KEY", "x"), ("ODD", "a\nb")]);
    let url = "http://name.invalid/";
    let reason = |reason: &str| reason.to_owned();
    let cases = [
        (HttpRequest::new("BAD METHOD", url), InvalidHttpRequest::Method { reason: reason("invalid HTTP method") }),
        (HttpRequest::get("relative"), InvalidHttpRequest::Url { reason: reason("relative URL without a base") }),
        (HttpRequest::get("ftp://x/"), InvalidHttpRequest::Scheme { scheme: "ftp".into() }),
        (
            HttpRequest::get(url).header("bad name", "1"),
            InvalidHttpRequest::HeaderName { reason: reason("invalid HTTP header name") },
        ),
        (
            HttpRequest::get(url).header("x", "a\nb"),
            InvalidHttpRequest::HeaderValue { name: "x".into(), reason: reason("failed to parse header value") },
        ),
        (
            HttpRequest::get(url).header_from_variable("x", "", "ODD"),
            InvalidHttpRequest::HeaderValue { name: "x".into(), reason: reason("failed to parse header value") },
        ),
        (
            HttpRequest::get(url).header_from_variable("X", "", "UNSET"),
            InvalidHttpRequest::VariableNotSet { name: "X".into(), variable: "UNSET".into() },
        ),
        (
            HttpRequest::get(url).header_from_variable("X", "", "EMPTY"),
            InvalidHttpRequest::VariableEmpty { name: "X".into(), variable: "EMPTY".into() },
        ),
        (
            HttpRequest::get(url).header_from_variable("X", "", "openai_api_key"),
            InvalidHttpRequest::VariableProtected { name: "X".into(), variable: "openai_api_key".into() },
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(in_time(client.send(request)).await.unwrap_err(), expected.into());
    }
}

#[tokio::test]
async fn proxies_are_those_of_the_variables_unless_told_otherwise() {
    let proxy = HttpServer::start().await.unwrap();
    let by_variable = client_with(&[("HTTP_PROXY", &proxy.url("")), ("no_proxy", "direct..invalid")]);
    let response = in_time(by_variable.send(HttpRequest::get("http://far.invalid/x"))).await.unwrap();
    assert_eq!(response.body, "no such path", "it went by the proxy");
    let error = in_time(by_variable.send(HttpRequest::get("http://direct..invalid/"))).await.unwrap_err();
    assert!(matches!(error, HttpError::NameNotResolved { .. }), "{error:?}");
    let config = LocalHttpConfig::default().proxies(Proxies::Url(proxy.url("").replace("//", "//user:a-secret@")));
    assert!(!format!("{config:?}").contains("a-secret"));
    let response = in_time(LocalHttpClient::new(config).send(HttpRequest::get("http://far.invalid/x"))).await.unwrap();
    assert_eq!(response.body, "no such path");
    let broken = client_with(&[("ALL_PROXY", "nonsense://user:a-secret@x:y")]);
    let error = in_time(broken.send(HttpRequest::get(proxy.url("/echo")))).await.unwrap_err();
    assert!(matches!(&error, HttpError::Connect { reason, .. } if reason.contains("ALL_PROXY")), "{error:?}");
    assert!(!format!("{error:?}").contains("a-secret"));
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn https_is_refused_without_the_feature() {
    let error = in_time(client_with(&[]).send(HttpRequest::get("https://name.invalid/"))).await.unwrap_err();
    assert!(matches!(error, HttpError::Unsupported(_)), "{error:?}");
}

#[cfg(feature = "tls")]
mod tls {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

    use super::*;

    const CERTIFICATE: &[u8] = include_bytes!("../../../tests/data/loopback-certificate.der");
    const KEY: &[u8] = include_bytes!("../../../tests/data/loopback-key.der");

    /// Takes one connection; answers if the client goes that far.
    fn serve_once() -> SocketAddr {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(CERTIFICATE)], PrivatePkcs8KeyDer::from(KEY).into())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = rustls::Stream::new(&mut connection, &mut socket);
            // The client that trusts nobody goes away here.
            if matches!(stream.read(&mut [0; 4096]), Ok(count) if count > 0) {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn a_certificate_must_be_trusted() {
        let url = format!("https://{}/?key=a-secret", serve_once());
        let error = in_time(client_with(&[]).send(HttpRequest::get(&url))).await.unwrap_err();
        // A machine without any roots says so.
        let said = matches!(&error, HttpError::Certificate { .. })
            || matches!(&error, HttpError::Connect { reason, .. } if reason.starts_with("no certificate can be checked"));
        assert!(said && !format!("{error} {error:?}").contains("a-secret"), "{error:?}");
    }

    #[tokio::test]
    async fn further_roots_are_trusted() {
        let url = format!("https://{}/", serve_once());
        let client = LocalHttpClient::new(LocalHttpConfig::default().extra_root(CERTIFICATE));
        assert_eq!(in_time(client.send(HttpRequest::get(url))).await.unwrap().body, "secret");
    }
}
