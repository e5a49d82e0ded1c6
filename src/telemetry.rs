//! Traces and measurements of calls, through the facades `tracing` and `metrics`.
//!
//! With the feature `tracing` each call has a span (target `longarm`, name `exec_server.request`), on the side that makes it
//! from the moment at which it is asked for, and on the side that serves it from the moment at which it has come, until it is
//! answered. Fields: `side` (`client` or `server`), `method`, `trace_id`, `span_id`, `parent_span_id`, and in the end
//! `outcome`. A backend starts processes within the span that serves the request.
//!
//! With the feature `metrics`:
//!
//! | name | kind | labels | what |
//! | --- | --- | --- | --- |
//! | `exec_server_request_queue_duration_seconds` | histogram | `side`, `method` | client: until the request was handed to the transport, a recovery included; server: until it waited for no other request any more |
//! | `exec_server_requests_total` | counter | `side`, `method`, `outcome` | calls that have ended |
//!
//! `method` is the name of a method of the wire, or `other` for a request that cannot be read: a peer cannot make labels up.
//! `outcome` is `ok`, `error`, `busy` or `disconnected`, which includes what was given up before it was sent. No span and no label holds a path, a command, a host or the id of a
//! process. Writes to a process are measured as a whole on the side that makes them, since their pieces have no queue of their
//! own. Handshakes are no calls.
//!
//! Nothing is set up: the host installs a subscriber and a recorder, or does not. Without the features nothing of all that
//! exists: no clock is read and nothing is kept for it.
#![cfg_attr(
    feature = "tracing",
    doc = r#"
# Traces across machines

A call that is made [within](in_trace) a [`TraceContext`] carries it to the peer, in the form of the W3C. A server hands that of
a start on to its backend ([`ExecRequest::trace_context`](crate::ExecRequest::trace_context)), and a
[`Remote`](crate::Remote) as backend to the next peer. Where a span is recorded, what is sent names that span as the parent;
where a span is recorded and there is no trace, one begins. Writes carry none.

The ids of spans are in their fields, for subscribers that write them out. A host whose traces are kept by other means, such as
OpenTelemetry, says by [`Propagate`] how both are tied: in [`ClientConfig::propagation`](crate::config::ClientConfig::propagation)
and [`ServerConfig::propagation`](crate::config::ServerConfig::propagation).

```
use longarm::telemetry::{TraceContext, current_trace, in_trace};

# #[tokio::main(flavor = "current_thread")]
# async fn main() {
// Such as the one of the request that the host is serving.
let context = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None);
in_trace(context.clone(), async {
    assert_eq!(current_trace(), context);
    // Calls of a remote environment that are made here belong to it.
})
.await;
# }
```"#
)]

#[cfg(any(feature = "tracing", feature = "metrics"))]
mod call;
#[cfg(not(any(feature = "tracing", feature = "metrics")))]
#[path = "telemetry/none.rs"]
mod call;
#[cfg(feature = "tracing")]
mod propagate;
#[cfg(feature = "tracing")]
mod scope;

#[cfg(any(feature = "tracing", feature = "metrics"))]
pub(crate) use self::call::within;
pub(crate) use self::call::{CallSpan, CallSpans, Outcome};
#[cfg(feature = "tracing")]
pub use self::propagate::{Propagate, Propagation};
#[cfg(feature = "tracing")]
pub use self::scope::{current_trace, in_trace};
use crate::wire::trace::Trace;
#[cfg(feature = "tracing")]
pub use crate::wire::trace::TraceContext;

/// The trace within which this is run.
pub(crate) fn current() -> Trace {
    #[cfg(feature = "tracing")]
    return current_trace().into();
    #[cfg(not(feature = "tracing"))]
    Trace {}
}
