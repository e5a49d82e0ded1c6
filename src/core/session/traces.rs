//! The traces that calls belong to. Without the feature nothing is kept, and nothing is said.

use bytes::Bytes;

use super::op::Token;
use crate::wire::trace::Trace;

/// The traces of the calls that have one.
#[derive(Debug, Default)]
pub(super) struct Traces {
    #[cfg(feature = "tracing")]
    of: std::collections::HashMap<Token, Trace>,
}

#[cfg(feature = "tracing")]
impl Traces {
    pub(super) fn begin(&mut self, token: Token, trace: Trace) {
        if trace.context().is_some() {
            self.of.insert(token, trace);
        }
    }

    /// The request of the call that `token` names, which belongs to its trace. It may be made more than once.
    pub(super) fn add_to(&self, request: Bytes, token: impl FnOnce() -> Option<Token>) -> Bytes {
        if self.of.is_empty() {
            return request;
        }
        match token().and_then(|token| self.of.get(&token)?.context()) {
            Some(context) => context.add_to(request),
            None => request,
        }
    }

    pub(super) fn end(&mut self, token: Token) {
        if !self.of.is_empty() {
            self.of.remove(&token);
        }
    }
}

#[cfg(not(feature = "tracing"))]
#[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "there is nothing in it")]
impl Traces {
    pub(super) fn begin(&mut self, _: Token, _: Trace) {}

    pub(super) fn add_to(&self, request: Bytes, _: impl FnOnce() -> Option<Token>) -> Bytes {
        request
    }

    pub(super) fn end(&mut self, _: Token) {}
}

#[cfg(not(feature = "tracing"))]
const _: () = assert!(size_of::<Traces>() == 0);
