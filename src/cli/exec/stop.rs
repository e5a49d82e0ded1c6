//! What the signals that longarm gets do to the command.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use longarm::TerminalSize;
use longarm::error::SignalError;
use longarm::process::ProcessHandle;
use tokio::time::Instant;

use crate::cli::{explain, os};

/// Something that is done to the command while it runs; it ends in a complaint if it fails.
pub(super) type Action = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// Within this time, another request to stop is a stronger one.
const AGAIN: Duration = Duration::from_secs(2);

/// The first interrupt interrupts; a second within two seconds terminates, as does a request to end; then the command is
/// killed; whoever still insists is let go.
#[derive(Default)]
pub(super) struct Stopper {
    last: Option<(Step, Instant)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Interrupt,
    Terminate,
    Kill,
}

impl Stopper {
    /// What to do for this signal; nothing more if all was tried.
    pub(super) fn next(&mut self, signal: os::Signal, now: Instant) -> Option<Step> {
        let step = match self.last {
            Some((Step::Kill, _)) => return None,
            Some((Step::Terminate, _)) => Step::Kill,
            Some((Step::Interrupt, at)) if now.duration_since(at) <= AGAIN => Step::Terminate,
            Some((Step::Interrupt, _)) | None => match signal {
                os::Signal::Interrupt => Step::Interrupt,
                os::Signal::Terminate | os::Signal::Resize => Step::Terminate,
            },
        };
        self.last = Some((step, now));
        Some(step)
    }
}

impl Step {
    pub(super) fn take(self, handle: ProcessHandle) -> Action {
        Box::pin(async move {
            let taken = match self {
                Self::Interrupt => handle.interrupt().await,
                Self::Terminate => handle.terminate().await.map(drop),
                Self::Kill => handle.kill().await.map(drop),
            };
            taken.map_err(|error| explain(&error))
        })
    }
}

/// Follows the size of the local terminal. A process that has ended has none any more.
pub(super) fn resize(handle: ProcessHandle, size: TerminalSize) -> Action {
    Box::pin(async move {
        match handle.resize(size).await {
            Ok(()) | Err(SignalError::UnknownProcess(_)) => Ok(()),
            Err(error) => Err(explain(&error)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_within_two_seconds_is_stronger_than_the_one_before() {
        let start = Instant::now();
        let mut stopper = Stopper::default();
        let steps =
            [0, 1, 1, 1].map(|seconds| stopper.next(os::Signal::Interrupt, start + Duration::from_secs(seconds)));
        assert_eq!(steps, [Some(Step::Interrupt), Some(Step::Terminate), Some(Step::Kill), None]);
    }

    #[test]
    fn interrupts_far_apart_stay_interrupts() {
        let start = Instant::now();
        let mut stopper = Stopper::default();
        for index in 0..5 {
            let now = start + Duration::from_secs(3) * index;
            assert_eq!(stopper.next(os::Signal::Interrupt, now), Some(Step::Interrupt));
        }
    }

    #[test]
    fn a_request_to_end_terminates_at_once() {
        let mut stopper = Stopper::default();
        assert_eq!(stopper.next(os::Signal::Terminate, Instant::now()), Some(Step::Terminate));
        assert_eq!(stopper.next(os::Signal::Terminate, Instant::now()), Some(Step::Kill));
    }
}
