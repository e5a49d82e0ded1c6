//! What calls are without the features: nothing.

use crate::config::ClientConfig;
use crate::wire::trace::Trace;

#[derive(Debug)]
pub(crate) struct CallSpans;

impl CallSpans {
    pub(crate) const fn client(_: &ClientConfig) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "there is nothing in it")]
    pub(crate) const fn begin(&self, _: &'static str, trace: Trace) -> (CallSpan, Trace) {
        (CallSpan, trace)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Ok,
    Error,
    Busy,
    Disconnected,
}

#[derive(Debug)]
pub(crate) struct CallSpan;

const _: () = assert!(size_of::<(CallSpans, CallSpan, Trace)>() == 0);

#[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "there is nothing in it")]
impl CallSpan {
    pub(crate) const fn left_queue(&mut self) {}

    pub(crate) const fn end(self, _: Outcome) {}
}
