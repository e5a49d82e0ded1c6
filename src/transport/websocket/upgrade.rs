//! Whether a request becomes a WebSocket: the rules of the reference, as a pure function.
//!
//! The order: an `Origin` (browsers send it, and nobody else) is refused before all else; then the path; then the
//! method and the upgrade headers; then authentication.

use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::head::{MAX_HEADERS, header, items};
use super::token::CapabilityToken;

/// What to answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A WebSocket from here on, with this `Sec-WebSocket-Accept`.
    Upgrade { accept: String },
    /// An answer, and the end of the connection.
    Answer(Answer),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: &'static str,
    allow: bool,
    head_only: bool,
}

impl Answer {
    pub(super) const fn new(status: u16, body: &'static str) -> Self {
        Self { status, body, allow: false, head_only: false }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            426 => "Upgrade Required",
            _ => "Request Header Fields Too Large",
        };
        let allow = if self.allow { "allow: GET,HEAD\r\n" } else { "" };
        let content_type = if self.body.is_empty() { "" } else { "content-type: text/plain; charset=utf-8\r\n" };
        let body = if self.head_only { "" } else { self.body };
        let length = self.body.len();
        let status = self.status;
        format!("HTTP/1.1 {status} {reason}\r\n{allow}{content_type}content-length: {length}\r\nconnection: close\r\n\r\n{body}")
            .into_bytes()
    }
}

/// Decides on a request head.
pub(super) fn decide(head: &[u8], token: Option<&CapabilityToken>) -> Verdict {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Verdict::Answer(Answer::new(431, "")),
        Ok(httparse::Status::Partial) | Err(_) => return Verdict::Answer(Answer::new(400, "")),
    }
    let method = request.method.unwrap_or_default();
    let path = path_of(request.path.unwrap_or_default());
    match decide_parsed(method, path, request.version, request.headers, token) {
        Ok(accept) => Verdict::Upgrade { accept },
        Err(answer) => Verdict::Answer(Answer { head_only: method == "HEAD", ..answer }),
    }
}

fn decide_parsed(
    method: &str,
    path: &str,
    version: Option<u8>,
    headers: &[httparse::Header<'_>],
    token: Option<&CapabilityToken>,
) -> Result<String, Answer> {
    let all = || headers.iter().map(|header| (header.name, header.value));
    if has_origin(all()) {
        return Err(Answer::new(403, ""));
    }
    match path {
        "/" => {}
        "/readyz" => match method {
            "GET" | "HEAD" => return Err(Answer::new(200, "")),
            _ => return Err(Answer { allow: true, ..Answer::new(405, "") }),
        },
        _ => return Err(Answer::new(404, "")),
    }
    let accept =
        accept(method, version == Some(1), all).map_err(|refusal| Answer::new(refusal.status(), refusal.reason()))?;
    if let Some(token) = token {
        check_token(header(headers, "authorization"), token).map_err(|body| Answer::new(401, body))?;
    }
    Ok(accept)
}

/// Why a request is none for a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport) enum Refusal {
    Method,
    Connection,
    Upgrade,
    Version,
    Key,
    Http,
}

impl Refusal {
    pub(in crate::transport) const fn status(self) -> u16 {
        match self {
            Self::Method => 405,
            Self::Connection | Self::Upgrade | Self::Version | Self::Key => 400,
            Self::Http => 426,
        }
    }

    pub(in crate::transport) const fn reason(self) -> &'static str {
        match self {
            Self::Method => "the request method must be GET",
            Self::Connection => "the header Connection does not include 'upgrade'",
            Self::Upgrade => "the header Upgrade does not include 'websocket'",
            Self::Version => "the header Sec-WebSocket-Version is not '13'",
            Self::Key => "the header Sec-WebSocket-Key is missing",
            Self::Http => "an upgrade needs HTTP/1.1",
        }
    }
}

/// Whether a browser has sent the request: no page is to reach an executor by the way of its reader.
pub(in crate::transport) fn has_origin<'a>(mut headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> bool {
    headers.any(|(name, _)| name.eq_ignore_ascii_case("origin"))
}

/// The `Sec-WebSocket-Accept` for a request, by its method, its version and its headers, names in any case.
pub(in crate::transport) fn accept<'a, H: Iterator<Item = (&'a str, &'a [u8])>>(
    method: &str,
    is_http_1_1: bool,
    headers: impl Fn() -> H,
) -> Result<String, Refusal> {
    let values = |wanted: &'static str| {
        headers().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    };
    let has_word =
        |name, word: &str| values(name).flat_map(items).any(|item| item.eq_ignore_ascii_case(word.as_bytes()));
    if method != "GET" {
        return Err(Refusal::Method);
    }
    if !has_word("connection", "upgrade") {
        return Err(Refusal::Connection);
    }
    if !has_word("upgrade", "websocket") {
        return Err(Refusal::Upgrade);
    }
    if values("sec-websocket-version").next().map(<[u8]>::trim_ascii) != Some(b"13") {
        return Err(Refusal::Version);
    }
    let key = values("sec-websocket-key").next().ok_or(Refusal::Key)?;
    if !is_http_1_1 {
        return Err(Refusal::Http);
    }
    Ok(derive_accept_key(key))
}

/// The path of a request target, without its query. Of an absolute target the scheme and the host are dropped.
fn path_of(target: &str) -> &str {
    let target = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => match rest.find('/') {
            Some(slash) => rest.get(slash..).unwrap_or_default(),
            None => "/",
        },
        _ => target,
    };
    target.split(['?', '#']).next().unwrap_or_default()
}

fn check_token(authorization: Option<&[u8]>, token: &CapabilityToken) -> Result<(), &'static str> {
    let value = authorization.ok_or("missing websocket bearer token")?;
    let value = std::str::from_utf8(value).map_err(|_| "invalid authorization header")?;
    let (scheme, candidate) = value.trim().split_once(' ').ok_or("invalid authorization header")?;
    let candidate = candidate.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || candidate.is_empty() {
        return Err("invalid authorization header");
    }
    if !token.matches(candidate) {
        return Err("invalid websocket bearer token");
    }
    Ok(())
}
