//! What a session's connection has of the place's HTTP requests.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;

use crate::core::peer::{Completion, HttpHead, HttpKey};
use crate::http::{HttpBody, HttpClient, HttpError, HttpRequest, StreamedResponse};

/// The requests of one connection, and the bodies of their responses. What is dropped ends its exchange.
#[derive(Debug)]
pub(super) struct Http {
    client: Option<Arc<dyn HttpClient>>,
    exchanges: HashMap<HttpKey, Exchange>,
    running: FuturesUnordered<Abortable<Job>>,
}

/// A request, or its response. A job has what is not here.
#[derive(Debug, Default)]
struct Exchange {
    body: Option<HttpBody>,
    job: Option<AbortHandle>,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(job) = &self.job {
            job.abort();
        }
    }
}

/// Something that takes time.
enum Job {
    Open(HttpKey, Opening),
    Pull(HttpKey, Option<HttpBody>),
}

type Opening = Pin<Box<dyn Future<Output = Result<StreamedResponse, HttpError>> + Send>>;

enum Ended {
    Opened(HttpKey, Result<StreamedResponse, HttpError>),
    Pulled(HttpKey, HttpBody, Option<Result<Bytes, HttpError>>),
}

impl Future for Job {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        match self.get_mut() {
            Self::Open(key, opening) => opening.as_mut().poll(cx).map(|result| Ended::Opened(*key, result)),
            Self::Pull(key, slot) => {
                let Some(body) = slot else { return Poll::Pending };
                let Poll::Ready(chunk) = body.poll_chunk(cx) else { return Poll::Pending };
                match slot.take() {
                    Some(body) => Poll::Ready(Ended::Pulled(*key, body, chunk)),
                    None => Poll::Pending,
                }
            }
        }
    }
}

impl Http {
    pub(super) fn new(client: Option<Arc<dyn HttpClient>>) -> Self {
        Self { client, exchanges: HashMap::new(), running: FuturesUnordered::new() }
    }

    /// Begins a request. Returns how it ended, if it did so at once.
    pub(super) fn begin(
        &mut self,
        cx: &mut Context<'_>,
        exchange: HttpKey,
        request: HttpRequest,
    ) -> Option<Completion> {
        let Some(client) = self.client.clone() else {
            return Some(Completion::HttpHead { exchange, result: Err(HttpError::Closed) });
        };
        self.run(cx, exchange, Job::Open(exchange, Box::pin(async move { client.stream(request).await })))
    }

    /// Gets the next bytes of a body. Returns them, if they are there.
    pub(super) fn pull(&mut self, cx: &mut Context<'_>, exchange: HttpKey) -> Option<Completion> {
        // The session pulls one piece at a time, of what it has not dropped.
        let found = self.exchanges.get_mut(&exchange)?;
        let mut body = found.body.take()?;
        if let Poll::Ready(chunk) = body.poll_chunk(cx) {
            found.body = Some(body);
            return Some(self.pulled(exchange, chunk));
        }
        let (abort, registration) = AbortHandle::new_pair();
        found.job = Some(abort);
        self.running.push(Abortable::new(Job::Pull(exchange, Some(body)), registration));
        None
    }

    /// The next job that has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion> {
        loop {
            match Pin::new(&mut self.running).poll_next(cx) {
                Poll::Ready(Some(Ok(ended))) => return Poll::Ready(self.end(ended)),
                // It was given up.
                Poll::Ready(Some(Err(_aborted))) => {}
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    pub(super) fn forget(&mut self, exchange: HttpKey) {
        self.exchanges.remove(&exchange);
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.exchanges.clear();
        self.running = FuturesUnordered::new();
    }

    fn run(&mut self, cx: &mut Context<'_>, exchange: HttpKey, mut job: Job) -> Option<Completion> {
        if let Poll::Ready(ended) = Pin::new(&mut job).poll(cx) {
            return Some(self.end(ended));
        }
        let (abort, registration) = AbortHandle::new_pair();
        self.exchanges.insert(exchange, Exchange { body: None, job: Some(abort) });
        self.running.push(Abortable::new(job, registration));
        None
    }

    fn end(&mut self, ended: Ended) -> Completion {
        match ended {
            Ended::Opened(exchange, result) => {
                let result = result.map(|StreamedResponse { status, headers, body }| {
                    self.exchanges.insert(exchange, Exchange { body: Some(body), job: None });
                    HttpHead { status, headers }
                });
                if result.is_err() {
                    self.exchanges.remove(&exchange);
                }
                Completion::HttpHead { exchange, result }
            }
            Ended::Pulled(exchange, body, chunk) => {
                self.exchanges.insert(exchange, Exchange { body: Some(body), job: None });
                self.pulled(exchange, chunk)
            }
        }
    }

    fn pulled(&mut self, exchange: HttpKey, chunk: Option<Result<Bytes, HttpError>>) -> Completion {
        let result = chunk.transpose();
        if !matches!(result, Ok(Some(_))) {
            self.exchanges.remove(&exchange);
        }
        Completion::HttpBody { exchange, result }
    }
}
