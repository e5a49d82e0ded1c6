//! The client's side: dial, ask for the upgrade, check the answer.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use url::Url;

use super::head::{Head, HeadError, MAX_HEAD_BYTES, MAX_HEADERS, has_word, header, read_head};
use super::io::Io;
use super::{WebSocketTransport, secure};
use crate::config::MessageLimits;
use crate::error::{ConnectError, PeerMisbehaved};
use crate::transport::{Connector, Transport};

/// How to connect.
#[derive(Clone)]
#[must_use]
pub struct ConnectOptions {
    bearer_token: Option<String>,
    timeout: Duration,
    limits: MessageLimits,
    #[cfg(feature = "tls")]
    extra_roots: Vec<bytes::Bytes>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            bearer_token: None,
            timeout: Duration::from_secs(10),
            limits: MessageLimits::default(),
            #[cfg(feature = "tls")]
            extra_roots: Vec::new(),
        }
    }
}

impl ConnectOptions {
    /// Without a token.
    pub fn new() -> Self {
        Self::default()
    }

    /// The token to show. Without TLS it travels in the clear: then the connection should be local, or in a tunnel.
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.bearer_token = Some(token.into());
        self
    }

    /// How long it may take until the connection is upgraded. By default 10 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Bounds on messages.
    pub fn limits(mut self, limits: MessageLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds a root, as DER, that the certificate of a `wss` server may have besides those that the platform trusts.
    #[cfg(feature = "tls")]
    pub fn extra_root(mut self, der: impl Into<bytes::Bytes>) -> Self {
        self.extra_roots.push(der.into());
        self
    }

    #[cfg(feature = "tls")]
    pub(super) fn extra_roots(&self) -> &[bytes::Bytes] {
        &self.extra_roots
    }
}

/// Does not show the token.
impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("bearer_token", &self.bearer_token.as_ref().map(|_| ".."))
            .field("timeout", &self.timeout)
            .field("limits", &self.limits)
            .finish()
    }
}

/// Connects to a server at a URL such as `ws://127.0.0.1:4711`, or with the feature `tls` `wss://host/path`. Certificates are
/// checked by what the platform trusts, and `ConnectOptions::extra_root` with it.
///
/// # Errors
///
/// A [`ConnectError`]: `InvalidAddress` (also for `wss` without the feature), `Unreachable`, `Certificate`, `Refused` with the
/// HTTP status, `TimedOut`, or `Peer` if the answer is none to a WebSocket upgrade, or not TLS.
///
/// # Cancel safety
///
/// When the future is dropped, the attempt is given up and its socket is closed.
pub async fn connect(url: &str, options: &ConnectOptions) -> Result<WebSocketTransport, ConnectError> {
    let target = Target::parse(url)?;
    if let Some(token) = &options.bearer_token
        && (token.trim() != token || token.is_empty() || !token.bytes().all(|byte| matches!(byte, b' '..=b'~')))
    {
        return Err(target.invalid("the bearer token is empty or holds characters that no header can carry"));
    }
    match timeout(options.timeout, dial(&target, options)).await {
        Ok(result) => result,
        Err(_) => Err(ConnectError::TimedOut { what: "the WebSocket connection", limit: options.timeout }),
    }
}

/// Connects to one URL, again and again.
#[derive(Clone, Debug)]
pub struct WebSocketConnector {
    url: SecretUrl,
    options: ConnectOptions,
}

impl WebSocketConnector {
    /// A connector for `url`, which is looked at when it is first dialled.
    pub fn new(url: impl Into<String>, options: ConnectOptions) -> Self {
        Self { url: SecretUrl(url.into()), options }
    }
}

#[async_trait::async_trait]
impl Connector for WebSocketConnector {
    async fn connect(&self) -> Result<Box<dyn Transport>, ConnectError> {
        Ok(Box::new(connect(&self.url.0, &self.options).await?))
    }

    fn can_reconnect(&self) -> bool {
        true
    }
}

/// Whether a URL can be connected to, as far as it says.
pub(crate) fn check_url(url: &str) -> Result<(), ConnectError> {
    Target::parse(url).map(drop)
}

/// A URL that may hold credentials.
#[derive(Clone)]
struct SecretUrl(String);

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_secrets(&self.0))
    }
}

/// What of a URL may be shown.
fn without_secrets(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) => match url.host_str() {
            Some(host) => {
                let port = url.port_or_known_default().map(|port| format!(":{port}")).unwrap_or_default();
                format!("{}://{host}{port}{}", url.scheme(), url.path().trim_end_matches('/'))
            }
            None => format!("{}:", url.scheme()),
        },
        Err(_) => "(unparsable URL)".into(),
    }
}

/// Where to connect to, and what to ask for there.
pub(super) struct Target {
    pub(super) host: String,
    port: u16,
    /// Under TLS.
    secure: bool,
    /// `host:port` as the header wants it, with brackets around IPv6 addresses.
    authority: String,
    /// Path and query.
    resource: String,
    /// Without credentials, query and fragment.
    pub(super) shown: String,
}

impl Target {
    fn parse(text: &str) -> Result<Self, ConnectError> {
        let shown = without_secrets(text);
        let invalid = |reason: &str| ConnectError::InvalidAddress { address: shown.clone(), reason: reason.into() };
        let url = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
        let secure = match url.scheme() {
            "ws" => false,
            "wss" if cfg!(feature = "tls") => true,
            "wss" => return Err(invalid("wss needs the feature `tls`, or ws through a tunnel")),
            _ => return Err(invalid("the scheme is neither ws nor wss")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("credentials in the URL are not supported; use a bearer token"));
        }
        let host = url.host().ok_or_else(|| invalid("there is no host"))?;
        let port = url.port_or_known_default().unwrap_or(80);
        let authority = format!("{host}:{port}");
        let host = match host {
            url::Host::Domain(name) => name.to_owned(),
            url::Host::Ipv4(addr) => addr.to_string(),
            url::Host::Ipv6(addr) => addr.to_string(),
        };
        let resource = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        Ok(Self { host, port, secure, authority, resource, shown })
    }

    pub(super) fn invalid(&self, reason: &str) -> ConnectError {
        ConnectError::InvalidAddress { address: self.shown.clone(), reason: reason.into() }
    }

    pub(super) fn unreachable(&self, source: io::Error) -> ConnectError {
        ConnectError::Unreachable { address: self.shown.clone(), source: Arc::new(source) }
    }
}

async fn dial(target: &Target, options: &ConnectOptions) -> Result<WebSocketTransport, ConnectError> {
    let unreachable = |error| target.unreachable(error);
    let addresses = crate::blocking::lookup(&target.host, target.port).await.map_err(unreachable)?;
    let stream = TcpStream::connect(addresses.as_slice()).await.map_err(unreachable)?;
    prepare_socket(&stream).map_err(unreachable)?;
    let mut stream = if target.secure { secure::secure(stream, target, options).await? } else { Io::Tcp(stream) };
    let key = generate_key();
    let authorization = match &options.bearer_token {
        Some(token) => format!("authorization: Bearer {token}\r\n"),
        None => String::new(),
    };
    let request = format!(
        "GET {} HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: {key}\r\n{authorization}\r\n",
        target.resource, target.authority
    );
    stream.write_all(request.as_bytes()).await.map_err(unreachable)?;
    stream.flush().await.map_err(unreachable)?;
    let head = match read_head(&mut stream).await {
        Ok(head) => head,
        Err(HeadError::Io(error)) => return Err(target.unreachable(error)),
        Err(HeadError::TooLarge) => {
            let limit_bytes = MAX_HEAD_BYTES as u64;
            return Err(PeerMisbehaved::MessageTooLarge { size_bytes: None, limit_bytes }.into());
        }
    };
    match check_answer(&head.bytes, &key)? {
        None => {
            Ok(WebSocketTransport::new(stream, head.rest, Role::Client, options.limits, target.shown.clone()).await)
        }
        Some(refusal) => {
            let reason = read_reason(&mut stream, head, refusal.content_length).await;
            let Refusal { status, retry_after, .. } = refusal;
            Err(ConnectError::Refused { address: target.shown.clone(), status, reason, retry_after })
        }
    }
}

struct Refusal {
    status: u16,
    content_length: Option<usize>,
    retry_after: Option<Duration>,
}

/// Whether the answer is the upgrade that was asked for; else what was answered.
fn check_answer(head: &[u8], key: &str) -> Result<Option<Refusal>, ConnectError> {
    let malformed = |reason: &str| ConnectError::Peer(PeerMisbehaved::Malformed { reason: reason.into() });
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) | Err(_) => return Err(malformed("the answer to the upgrade is not HTTP")),
    }
    let status = response.code.unwrap_or_default();
    if status != 101 {
        let text = |name| header(response.headers, name).and_then(|value| std::str::from_utf8(value).ok());
        let content_length = text("content-length").and_then(|length| length.trim().parse().ok());
        let retry_after = text("retry-after").and_then(|time| time.trim().parse().ok()).map(Duration::from_secs);
        return Ok(Some(Refusal { status, content_length, retry_after }));
    }
    if !has_word(response.headers, "upgrade", "websocket") || !has_word(response.headers, "connection", "upgrade") {
        return Err(malformed("the answer upgrades to something else than a WebSocket"));
    }
    if header(response.headers, "sec-websocket-accept").map(<[u8]>::trim_ascii)
        != Some(derive_accept_key(key.as_bytes()).as_bytes())
    {
        return Err(malformed("the answer belongs to another upgrade"));
    }
    if header(response.headers, "sec-websocket-extensions").is_some()
        || header(response.headers, "sec-websocket-protocol").is_some()
    {
        return Err(malformed("the answer selects an extension or a protocol that was not asked for"));
    }
    Ok(None)
}

/// The beginning of the body of a refusal. An end before its time makes it shorter.
async fn read_reason(stream: &mut Io, head: Head, content_length: Option<usize>) -> String {
    let wanted = content_length.unwrap_or(MAX_REASON_BYTES).min(MAX_REASON_BYTES);
    let mut body = head.rest;
    let rest = wanted.saturating_sub(body.len()) as u64;
    let _ = timeout(REASON_TIME, stream.take(rest).read_to_end(&mut body)).await;
    body.truncate(wanted);
    let text = String::from_utf8_lossy(&body);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

/// No delay for small messages; and little held by the kernel before it can leave, so that an answer does not wait behind
/// megabytes of output on a slow link.
pub(super) fn prepare_socket(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(NOT_SENT_BYTES)?;
    Ok(())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const NOT_SENT_BYTES: u32 = 128 << 10;
const MAX_REASON_BYTES: usize = 1024;
const REASON_TIME: Duration = Duration::from_secs(1);
