//! What a request says.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::DEFAULT_MAX_BODY_BYTES;
use super::error::origin_of;

/// A request. It is checked when it is made, by the place that makes it.
///
/// ```
/// use std::time::Duration;
/// use longarm::http::HttpRequest;
///
/// let request = HttpRequest::new("POST", "https://example.org/items?key=secret")
///     .header("content-type", "application/json")
///     .header_from_variable("authorization", "Bearer ", "API_TOKEN")
///     .body("{}")
///     .timeout(Duration::from_secs(30));
/// assert!(!format!("{request:?}").contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a request does nothing until it is sent"]
pub struct HttpRequest {
    /// The method, case kept.
    pub method: String,
    /// The absolute URL, `http` or `https`.
    pub url: String,
    /// The headers, in order. A name may be there more than once.
    pub headers: Vec<RequestHeader>,
    /// The body.
    pub body: Option<Bytes>,
    /// How long the whole exchange may take, the body of the response included. By default without limit.
    pub timeout: Option<Duration>,
    /// What happens at a redirect.
    pub redirects: Redirects,
    /// Bytes of the body that [`HttpClient::send`](super::HttpClient::send) collects at most.
    pub max_body_bytes: u64,
}

impl HttpRequest {
    /// A request without headers and body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: None,
            timeout: None,
            redirects: Redirects::Follow,
            max_body_bytes: DEFAULT_MAX_BODY_BYTES,
        }
    }

    /// A `GET` request.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// Adds a header, also if there is one of that name.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push(RequestHeader { name: name.into(), value: value.into(), variable: None });
        self
    }

    /// Adds a header whose value is `prefix`, followed by the value of a variable of the executor. It never leaves the
    /// origin of the request's URL.
    pub fn header_from_variable(
        mut self,
        name: impl Into<String>,
        prefix: impl Into<String>,
        variable: impl Into<String>,
    ) -> Self {
        let variable = Some(variable.into());
        self.headers.push(RequestHeader { name: name.into(), value: prefix.into(), variable });
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sets how long the whole exchange may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets what happens at a redirect.
    pub fn redirects(mut self, redirects: Redirects) -> Self {
        self.redirects = redirects;
        self
    }

    /// Sets how many bytes of a body are collected.
    pub fn max_body_bytes(mut self, limit: u64) -> Self {
        self.max_body_bytes = limit;
        self
    }
}

impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRequest")
            .field("method", &self.method)
            .field("origin", &origin_of(&self.url))
            .field("headers", &self.headers)
            .field("body_bytes", &self.body.as_ref().map(Bytes::len))
            .field("timeout", &self.timeout)
            .field("redirects", &self.redirects)
            .field("max_body_bytes", &self.max_body_bytes)
            .finish()
    }
}

/// A header of a request.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestHeader {
    /// The name.
    pub name: String,
    /// The value, or what comes before that of the variable.
    pub value: String,
    /// The variable of the executor whose value is appended.
    pub variable: Option<String>,
}

/// Without the value.
impl fmt::Debug for RequestHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RequestHeader");
        shown.field("name", &self.name);
        if let Some(variable) = &self.variable {
            shown.field("variable", variable);
        }
        shown.finish_non_exhaustive()
    }
}

/// What happens at a redirect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Redirects {
    /// It is followed. 301 and 302 turn `POST` into `GET`, 303 any method but `HEAD`; 307 and 308 repeat the request.
    #[default]
    Follow,
    /// It is the response.
    Stop,
}
