//! What a host may want to measure of the requests of a session. Without the features nothing is recorded.

#[cfg(any(feature = "tracing", feature = "metrics"))]
use std::collections::VecDeque;

use crate::wire::trace::Trace;

/// Names a request among all of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Number {
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    number: u64,
}

/// What has become of requests and was not asked for yet. Whoever drives the session asks in every turn.
#[derive(Debug, Default)]
pub(super) struct Records {
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    last: u64,
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    fates: VecDeque<(Number, Fate)>,
}

/// What has become of a request.
#[cfg(any(feature = "tracing", feature = "metrics"))]
#[derive(Debug)]
pub(crate) enum Fate {
    /// It has come.
    Arrived { method: &'static str, trace: Trace },
    /// It waits for nothing before it any more.
    Begun,
    /// It is answered.
    Answered { well: bool },
}

#[cfg(any(feature = "tracing", feature = "metrics"))]
impl Records {
    pub(super) fn arrived(&mut self, method: &'static str, trace: Trace) -> Number {
        self.last += 1;
        let number = Number { number: self.last };
        self.fates.push_back((number, Fate::Arrived { method, trace }));
        number
    }

    pub(super) fn begun(&mut self, number: Number) {
        self.fates.push_back((number, Fate::Begun));
    }

    pub(super) fn answered(&mut self, number: Number, well: bool) {
        self.fates.push_back((number, Fate::Answered { well }));
    }
}

#[cfg(any(feature = "tracing", feature = "metrics"))]
impl super::Peer {
    /// The next thing that has become of a request.
    pub(crate) fn poll_fate(&mut self) -> Option<(Number, Fate)> {
        self.records.fates.pop_front()
    }
}

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
#[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "there is nothing in it")]
impl Records {
    pub(super) const fn arrived(&mut self, _: &'static str, _: Trace) -> Number {
        Number {}
    }

    pub(super) const fn begun(&mut self, _: Number) {}

    pub(super) const fn answered(&mut self, _: Number, _: bool) {}
}

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
const _: () = assert!(size_of::<(Number, Records)>() == 0);
