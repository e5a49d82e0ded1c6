//! The spans of the requests that a session serves. Without the features there are none.

use std::future::Future;

use crate::config::ServerConfig;
use crate::core::peer::{Number, Peer};
use crate::wire::trace::Trace;

/// Requests without an answer.
#[derive(Debug)]
pub(super) struct Requests {
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    spans: crate::telemetry::CallSpans,
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    open: std::collections::HashMap<Number, (crate::telemetry::CallSpan, Trace)>,
}

#[cfg(any(feature = "tracing", feature = "metrics"))]
impl Requests {
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self { spans: crate::telemetry::CallSpans::server(config), open: std::collections::HashMap::new() }
    }

    /// Takes in what has become of requests.
    pub(super) fn collect(&mut self, peer: &mut Peer) {
        use crate::core::peer::Fate;
        use crate::telemetry::Outcome;

        while let Some((number, fate)) = peer.poll_fate() {
            match fate {
                Fate::Arrived { method, trace } => {
                    self.open.insert(number, self.spans.begin(method, trace));
                }
                Fate::Begun => {
                    if let Some((span, _)) = self.open.get_mut(&number) {
                        span.left_queue();
                    }
                }
                Fate::Answered { well } => {
                    if let Some((mut span, _)) = self.open.remove(&number) {
                        span.left_queue();
                        span.end(if well { Outcome::Ok } else { Outcome::Error });
                    }
                }
            }
        }
    }

    /// The trace for what is done for a request.
    pub(super) fn trace_of(&self, request: Number) -> Trace {
        self.open.get(&request).map(|(_, trace)| trace.clone()).unwrap_or_default()
    }

    /// What is done for a request, in its span.
    pub(super) fn within<F: Future>(&self, request: Number, work: F) -> impl Future<Output = F::Output> + use<F> {
        crate::telemetry::within(self.open.get(&request).map(|(span, _)| span), work)
    }

    /// The connection is gone, and with it whoever waits.
    pub(super) fn disconnect(&mut self, peer: &mut Peer) {
        self.collect(peer);
        self.open.clear();
    }
}

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
#[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "there is nothing in it")]
impl Requests {
    pub(super) const fn new(_: &ServerConfig) -> Self {
        Self {}
    }

    pub(super) const fn collect(&mut self, _: &mut Peer) {}

    pub(super) const fn trace_of(&self, _: Number) -> Trace {
        Trace {}
    }

    pub(super) const fn within<F: Future>(&self, _: Number, work: F) -> F {
        work
    }

    pub(super) const fn disconnect(&mut self, _: &mut Peer) {}
}

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
const _: () = assert!(size_of::<Requests>() == 0);
