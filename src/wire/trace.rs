//! The trace that a request belongs to: what it says, and what becomes of that.

#[cfg(feature = "tracing")]
mod context;

use std::borrow::Cow;

use serde::Deserialize;

#[cfg(feature = "tracing")]
pub use self::context::TraceContext;

/// What a request says of its trace, as it stands there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TraceMember<'a> {
    /// Which trace it is, and who made the request.
    #[serde(borrow)]
    pub traceparent: Option<Cow<'a, str>>,
    /// What the systems that keep the trace add to that.
    #[serde(borrow)]
    pub tracestate: Option<Cow<'a, str>>,
}

/// The trace that something is done in, if there is one. Without the feature it is nothing: nothing is kept of what a peer
/// says, and nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    #[cfg(feature = "tracing")]
    context: Option<Box<TraceContext>>,
}

#[cfg(feature = "tracing")]
impl Trace {
    /// What a request says, if W3C would take it.
    pub(crate) fn of(member: &TraceMember<'_>) -> Self {
        let parent = member.traceparent.as_deref();
        parent.and_then(|parent| TraceContext::parse(parent, member.tracestate.as_deref())).into()
    }

    pub(crate) fn context(&self) -> Option<&TraceContext> {
        self.context.as_deref()
    }
}

#[cfg(feature = "tracing")]
impl From<Option<TraceContext>> for Trace {
    fn from(context: Option<TraceContext>) -> Self {
        Self { context: context.map(Box::new) }
    }
}

#[cfg(not(feature = "tracing"))]
impl Trace {
    pub(crate) const fn of(_: &TraceMember<'_>) -> Self {
        Self {}
    }
}
