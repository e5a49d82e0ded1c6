//! Traces that the host keeps by other means than the fields of spans.

use std::fmt;
use std::sync::Arc;

use super::TraceContext;

/// Ties the spans of calls to traces that the host keeps itself, as OpenTelemetry does: its spans have ids of their own.
///
/// With the crate `tracing-opentelemetry` it takes two lines: the span's parent is set to what `trace` says, if there is one
/// (`set_parent`), and the span's own context (`context`) is returned in the form of the W3C.
pub trait Propagate: Send + Sync {
    /// The span of a call has begun. `trace` is the one that the call is [made in](super::in_trace), or that its request came
    /// with. Returns the trace for what is done within the span: what a request carries to the peer, and what a backend is
    /// told. `None` leaves `trace` as it is.
    ///
    /// It is called where the call is made, or by the task of a session: it must not block.
    fn adopt(&self, span: &tracing::Span, trace: Option<&TraceContext>) -> Option<TraceContext>;
}

/// What ties spans to traces, for [`ClientConfig`](crate::config::ClientConfig) and
/// [`ServerConfig`](crate::config::ServerConfig). Clones are equal, and nothing else is.
#[derive(Clone)]
pub struct Propagation(Arc<dyn Propagate>);

impl Propagation {
    /// Ties spans to traces in this way.
    pub fn new(propagate: impl Propagate + 'static) -> Self {
        Self(Arc::new(propagate))
    }

    pub(super) fn adopt(&self, span: &tracing::Span, trace: Option<&TraceContext>) -> Option<TraceContext> {
        self.0.adopt(span, trace)
    }
}

impl PartialEq for Propagation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Propagation {}

impl fmt::Debug for Propagation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Propagation").finish_non_exhaustive()
    }
}
