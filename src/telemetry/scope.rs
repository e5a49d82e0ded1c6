//! Which trace the present task is in.

use std::future::Future;

use super::TraceContext;

tokio::task_local! {
    static TRACE: Option<TraceContext>;
}

/// Runs a future within a trace, or outside of any. Tasks that it spawns are not in it.
///
/// # Cancel safety
///
/// That of the future.
pub async fn in_trace<F: Future>(context: Option<TraceContext>, future: F) -> F::Output {
    TRACE.scope(context, future).await
}

/// The trace within which this is run.
pub fn current_trace() -> Option<TraceContext> {
    TRACE.try_with(Clone::clone).ok().flatten()
}
