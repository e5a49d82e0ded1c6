//! HTTP requests made by this machine.

mod chain;
mod classify;
mod config;
mod connect;
mod prepare;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use reqwest::Response;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

pub use self::config::{LocalHttpConfig, Proxies};
use self::connect::Ready;
use self::prepare::Prepared;
use super::error::{origin, origin_of};
use super::{Headers, HttpBody, HttpClient, HttpError, HttpRequest, StreamedResponse};

/// Makes HTTP requests from this machine. Connections are kept for a while and used again.
///
/// It must be used within a tokio runtime with its I/O and time drivers enabled. Without the feature `tls`, a request by
/// `https` is refused.
pub struct LocalHttpClient {
    config: Arc<LocalHttpConfig>,
    /// None when closed. What it is made of is read from files once, at the first request.
    client: Mutex<Option<Arc<OnceCell<Arc<Ready>>>>>,
    closed: watch::Sender<bool>,
}

impl LocalHttpClient {
    /// A client with these settings. Nothing happens until the first request.
    pub fn new(config: LocalHttpConfig) -> Self {
        Self { config: Arc::new(config), client: Mutex::default(), closed: watch::Sender::new(false) }.opened()
    }

    fn opened(self) -> Self {
        *self.lock() = Some(Arc::default());
        self
    }

    /// Ends all exchanges, and closes all connections. Later requests end in [`HttpError::Closed`]. Idempotent.
    pub fn close(&self) {
        self.lock().take();
        self.closed.send_replace(true);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<OnceCell<Arc<Ready>>>>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ready(&self, origin: &str) -> Result<Arc<Ready>, HttpError> {
        let cell = self.lock().clone().ok_or(HttpError::Closed)?;
        let ready = cell.get_or_try_init(|| async {
            let config = Arc::clone(&self.config);
            // The roots are read from files.
            let built = crate::blocking::run(move || Ready::new(&config)).await;
            built.unwrap_or_else(|why| Err(why.to_string())).map(Arc::new)
        });
        let unusable = |reason| HttpError::Connect { origin: origin.into(), reason };
        Ok(Arc::clone(ready.await.map_err(unusable)?))
    }
}

#[async_trait::async_trait]
impl HttpClient for LocalHttpClient {
    async fn stream(&self, request: HttpRequest) -> Result<StreamedResponse, HttpError> {
        let mut guard = Guard::new(self.closed.subscribe(), request.timeout);
        let prepared = Prepared::new(request, &self.config)?;
        let origin = origin(&prepared.url);
        guard.origin.clone_from(&origin);
        if guard.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(guard.timed_out(false));
        }
        let exchange = async {
            let ready = self.ready(&origin).await?;
            chain::follow(&ready, prepared).await
        };
        let response = guard.run(false, Box::pin(exchange)).await?;
        guard.origin = origin_of(response.url().as_str());
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())));
        let headers = Headers::from_iter(headers);
        let chunks = Chunks { response, guard };
        Ok(StreamedResponse { status, headers, body: HttpBody::new(stream::unfold(Some(chunks), Chunks::next)) })
    }
}

impl fmt::Debug for LocalHttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalHttpClient").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Drop for LocalHttpClient {
    fn drop(&mut self) {
        self.close();
    }
}

/// What ends an exchange from outside: its deadline, and the closing of the client.
struct Guard {
    closed: watch::Receiver<bool>,
    deadline: Option<Instant>,
    origin: String,
}

impl Guard {
    fn new(closed: watch::Receiver<bool>, timeout: Option<Duration>) -> Self {
        let deadline = timeout.map(|timeout| Instant::now() + timeout.min(MAX_TIMEOUT));
        Self { closed, deadline, origin: String::new() }
    }

    fn timed_out(&self, in_body: bool) -> HttpError {
        HttpError::TimedOut { origin: self.origin.clone(), in_body }
    }

    async fn run<T>(
        &mut self,
        in_body: bool,
        work: impl Future<Output = Result<T, HttpError>>,
    ) -> Result<T, HttpError> {
        let deadline = self.deadline;
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let closed = async {
            // An error means that the client is gone, which closes it first.
            let _closed = self.closed.wait_for(|closed| *closed).await;
        };
        // Also if there is something at each look.
        let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
        tokio::select! {
            biased;
            () = closed => return Err(HttpError::Closed),
            () = std::future::ready(()), if is_late => {}
            result = work => return result,
            () = late => {}
        }
        Err(self.timed_out(in_body))
    }
}

/// The body of a response.
struct Chunks {
    response: Response,
    guard: Guard,
}

impl Chunks {
    async fn next(chunks: Option<Self>) -> Option<(Result<Bytes, HttpError>, Option<Self>)> {
        let Self { mut response, mut guard } = chunks?;
        let origin = guard.origin.clone();
        let chunk = async { response.chunk().await.map_err(|error| classify::body(&error, origin)) };
        match guard.run(true, chunk).await {
            Ok(chunk) => Some((Ok(chunk?), Some(Self { response, guard }))),
            Err(error) => Some((Err(error), None)),
        }
    }
}

/// The longest deadline that is kept: what is later never comes.
const MAX_TIMEOUT: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);
