//! The one place that names the instant type of the crate.
//!
//! `core` takes instants as arguments and never asks for the time; drivers call [`now`], which follows tokio's clock,
//! so that a paused test clock moves everything.

use std::time::Duration;

pub(crate) use std::time::Instant;

/// The present, as the runtime sees it.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The instant `span` after `start`. A span beyond the end of time is one that never passes.
pub(crate) fn after(start: Instant, span: Duration) -> Instant {
    const AGES: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    start.checked_add(span).unwrap_or_else(|| start + AGES)
}
