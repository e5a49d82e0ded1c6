//! What is told of one call.

use std::future::Future;

#[cfg(feature = "tracing")]
use super::Propagation;
use crate::config::{ClientConfig, ServerConfig};
#[cfg(feature = "metrics")]
use crate::time::{self, Instant};
use crate::wire::trace::Trace;
#[cfg(feature = "tracing")]
use crate::wire::trace::TraceContext;

/// What the spans of one connection, or of one session, have in common.
#[derive(Debug)]
pub(crate) struct CallSpans {
    side: Side,
    #[cfg(feature = "tracing")]
    propagation: Option<Propagation>,
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Client,
    Server,
}

impl Side {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    Error,
    Busy,
    Disconnected,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Busy => "busy",
            Self::Disconnected => "disconnected",
        }
    }
}

/// One call, from its beginning to its end. One that is dropped counts as disconnected.
#[derive(Debug)]
pub(crate) struct CallSpan {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
    #[cfg(feature = "metrics")]
    side: Side,
    #[cfg(feature = "metrics")]
    method: &'static str,
    /// None once it has left its queue.
    #[cfg(feature = "metrics")]
    queued_at: Option<Instant>,
    over: bool,
}

impl CallSpans {
    #[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "it is about traces"))]
    pub(crate) fn client(config: &ClientConfig) -> Self {
        Self {
            side: Side::Client,
            #[cfg(feature = "tracing")]
            propagation: config.propagation.clone(),
        }
    }

    #[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "it is about traces"))]
    pub(crate) fn server(config: &ServerConfig) -> Self {
        Self {
            side: Side::Server,
            #[cfg(feature = "tracing")]
            propagation: config.propagation.clone(),
        }
    }

    /// A call begins, in a trace or in none. Returns the trace for whatever is done for it.
    pub(crate) fn begin(&self, method: &'static str, trace: Trace) -> (CallSpan, Trace) {
        #[cfg(feature = "tracing")]
        let (span, trace) = open(self, method, trace);
        let call = CallSpan {
            #[cfg(feature = "tracing")]
            span,
            #[cfg(feature = "metrics")]
            side: self.side,
            #[cfg(feature = "metrics")]
            method,
            #[cfg(feature = "metrics")]
            queued_at: Some(time::now()),
            over: false,
        };
        (call, trace)
    }
}

impl CallSpan {
    /// It has left its queue, now or before.
    pub(crate) fn left_queue(&mut self) {
        #[cfg(feature = "metrics")]
        if let Some(queued_at) = self.queued_at.take() {
            let waited = time::now().saturating_duration_since(queued_at).as_secs_f64();
            metrics::histogram!(QUEUE_DURATION, "side" => self.side.as_str(), "method" => self.method).record(waited);
        }
    }

    /// It has ended.
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.tell(outcome);
        self.over = true;
    }

    fn tell(&self, outcome: Outcome) {
        let outcome = outcome.as_str();
        #[cfg(feature = "tracing")]
        self.span.record("outcome", outcome);
        #[cfg(feature = "metrics")]
        metrics::counter!(REQUESTS, "side" => self.side.as_str(), "method" => self.method, "outcome" => outcome)
            .increment(1);
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        if !self.over {
            self.tell(Outcome::Disconnected);
        }
    }
}

/// What is done for a call, in its span.
pub(crate) fn within<F: Future>(call: Option<&CallSpan>, work: F) -> impl Future<Output = F::Output> + use<F> {
    #[cfg(feature = "tracing")]
    return tracing::Instrument::instrument(work, call.map_or_else(tracing::Span::none, |call| call.span.clone()));
    #[cfg(not(feature = "tracing"))]
    {
        let _ = call;
        work
    }
}

#[cfg(feature = "tracing")]
fn open(spans: &CallSpans, method: &'static str, trace: Trace) -> (tracing::Span, Trace) {
    let span = tracing::info_span!(
        target: "longarm",
        "exec_server.request",
        side = spans.side.as_str(),
        method,
        trace_id = tracing::field::Empty,
        span_id = tracing::field::Empty,
        parent_span_id = tracing::field::Empty,
        outcome = tracing::field::Empty,
    );
    if span.is_disabled() {
        return (span, trace);
    }
    if let Some(parent) = trace.context() {
        span.record("parent_span_id", parent.span_id());
    }
    let within = match &spans.propagation {
        Some(propagation) => propagation.adopt(&span, trace.context()),
        None => child(trace.context()),
    };
    let Some(within) = within else { return (span, trace) };
    span.record("trace_id", within.trace_id());
    span.record("span_id", within.span_id());
    (span, Some(within).into())
}

/// The trace within a new span, which is a child of its maker's, or begins one.
#[cfg(feature = "tracing")]
fn child(parent: Option<&TraceContext>) -> Option<TraceContext> {
    // Neither number is 0: the bits of a version are set in one half, and those of a variant in the other.
    let (_, id) = uuid::Uuid::new_v4().as_u64_pair();
    match parent {
        Some(parent) => parent.child(id),
        None => TraceContext::begin(uuid::Uuid::new_v4().as_u128(), id),
    }
}

#[cfg(feature = "metrics")]
const QUEUE_DURATION: &str = "exec_server_request_queue_duration_seconds";
#[cfg(feature = "metrics")]
const REQUESTS: &str = "exec_server_requests_total";
