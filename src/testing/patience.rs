//! Bounds on waiting, in time that this program has: what others have of a busy machine does not count.
#![allow(dead_code, reason = "each test program uses a part")]

use std::future::Future;
use std::time::Duration;

/// What is left of a bound.
pub(crate) struct Patience(Duration);

impl Patience {
    pub(crate) const fn new(limit: Duration) -> Self {
        Self(limit)
    }

    /// Whether it is worth while to look once more.
    pub(crate) const fn is_left(&self) -> bool {
        !self.0.is_zero()
    }

    /// Lets so much time pass. What passes beyond it does not count.
    pub(crate) async fn sleep(&mut self, time: Duration) {
        tokio::time::sleep(time).await;
        self.0 = self.0.saturating_sub(time);
    }

    /// The same, with the thread.
    pub(crate) fn block(&mut self, time: Duration) {
        std::thread::sleep(time);
        self.0 = self.0.saturating_sub(time);
    }
}

/// It has not come in time.
#[derive(Debug)]
pub(crate) struct Late;

/// Waits for `future`, until this program could have run for `limit`. Not for a clock that is paused, which would take each
/// of many small steps where it takes one.
pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> Result<F::Output, Late> {
    let late = async {
        let mut patience = Patience::new(limit);
        while patience.is_left() {
            patience.sleep(TICK).await;
        }
    };
    tokio::select! {
        biased;
        output = future => Ok(output),
        () = late => Err(Late),
    }
}

/// Short against the time for which a busy machine keeps a program waiting.
const TICK: Duration = Duration::from_millis(10);
