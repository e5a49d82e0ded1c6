//! HTTP requests made by a place.
//!
//! [`HttpClient`] is object-safe and the same for this machine and for a remote place;
//! [`Environment::http`](crate::Environment::http) hands it out. The contract in prose:
//!
//! - **Requests** are made by the executor: its network, its name resolution, its proxy, its trusted roots. Any status
//!   is a success.
//! - **Bodies** of responses are collected within a bound ([`HttpClient::send`]) or read as they come
//!   ([`HttpClient::stream`]). A body that nobody reads is not received: the connection behind it waits. Contents are
//!   passed on as they were sent; nothing is decompressed, and no compression is asked for.
//! - **Redirects** are followed, up to [`MAX_REDIRECTS`], unless the request says otherwise. A redirect to another origin
//!   loses `Authorization`, `Cookie` and `Proxy-Authorization`, and all headers with values from the executor's variables.
//! - **Time**: no limit, unless the request has one. It is for the whole exchange, the body included.
//! - **Secrets**: a URL may carry some, a header may too. Errors name the origin only (scheme, host and port), and what is
//!   printed for debugging has no values of headers, no bodies, and of URLs no more than the origin.
//! - **Dropping** the future of a request, or a body before its end, ends the exchange.

mod body;
mod error;
#[cfg(feature = "http")]
pub mod local;
mod none;
pub(crate) mod remote;
mod request;
mod response;

use std::fmt;

pub use self::body::HttpBody;
pub use self::error::{HttpError, InvalidHttpRequest};
#[cfg(feature = "http")]
pub use self::local::{LocalHttpClient, LocalHttpConfig, Proxies};
pub(crate) use self::none::NoHttpClient;
pub use self::request::{HttpRequest, Redirects, RequestHeader};
pub use self::response::{Headers, HttpResponse, StreamedResponse};

/// Makes the HTTP requests of one place. See the [module documentation](self) for the contract.
///
/// ```
/// # async fn example(http: &dyn longarm::http::HttpClient) -> Result<(), longarm::http::HttpError> {
/// use longarm::http::HttpRequest;
///
/// let response = http.send(HttpRequest::get("http://localhost:8080/health")).await?;
/// println!("{} {:?}", response.status, response.headers.get("content-type"));
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
///
/// When the future of a call is dropped, the exchange is ended. The other side may have seen the request.
#[async_trait::async_trait]
pub trait HttpClient: fmt::Debug + Send + Sync + 'static {
    /// Makes a request, and collects the body of the response up to [`HttpRequest::max_body_bytes`].
    ///
    /// # Errors
    ///
    /// An [`HttpError`]; `BodyTooLarge` above the bound.
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let limit = request.max_body_bytes;
        let StreamedResponse { status, headers, body } = self.stream(request).await?;
        Ok(HttpResponse { status, headers, body: body.collect(limit).await? })
    }

    /// Makes a request; returns when the head of the response has come.
    ///
    /// # Errors
    ///
    /// An [`HttpError`]. What goes wrong with the body later is an error of the [`HttpBody`].
    async fn stream(&self, request: HttpRequest) -> Result<StreamedResponse, HttpError>;
}

/// Redirects that are followed for one request. 10, as the reference.
pub const MAX_REDIRECTS: usize = 10;

/// Bytes of a body that is collected, unless the request says otherwise. 16 MiB.
pub const DEFAULT_MAX_BODY_BYTES: u64 = 16 << 20;
