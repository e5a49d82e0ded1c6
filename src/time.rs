//! The one place that names the instant type of the crate.
//!
//! `core` takes instants as arguments and never asks for the time; drivers call [`now`], which follows tokio's clock,
//! so that a paused test clock moves everything.

pub(crate) use std::time::Instant;

/// The present, as the runtime sees it.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
