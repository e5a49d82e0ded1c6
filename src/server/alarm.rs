//! One timer of a task.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::Sleep;

use crate::time::{self, Instant};

/// A timer that is told its deadline whenever it is polled.
///
/// The runtime's timer is moved only to an earlier time: deadlines mostly move away, and to wake once for nothing is
/// cheaper than to move a timer for every message.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    armed: Option<Instant>,
}

impl Alarm {
    /// Ready if `deadline` has come; else wakes the task when it does.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()> {
        let Some(deadline) = deadline else { return Poll::Pending };
        if time::now() >= deadline {
            return Poll::Ready(());
        }
        loop {
            if self.armed.is_none_or(|armed| deadline < armed) {
                self.armed = Some(deadline);
                match &mut self.sleep {
                    Some(sleep) => sleep.as_mut().reset(deadline.into()),
                    None => self.sleep = Some(Box::pin(tokio::time::sleep_until(deadline.into()))),
                }
            }
            let Some(sleep) = &mut self.sleep else { return Poll::Pending };
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.armed = None;
            if time::now() >= deadline {
                return Poll::Ready(());
            }
        }
    }
}
