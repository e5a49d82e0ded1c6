//! How long the end of the streams is waited for after the exit.
//!
//! What the command itself wrote has to arrive, however slow the way and the reader of our output are; what it left behind
//! may hold the streams, and write to them, for ever. Nobody can tell the one from the other, so both have a bound: on the
//! time spent waiting, which bytes that come at the pace of a slow connection buy back, and on the bytes.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// The wait for the end of the streams.
pub(super) struct Drain {
    begun: Instant,
    /// It may be waited for so long without a byte.
    left: Duration,
    bytes: u64,
}

impl Drain {
    /// The process has just exited.
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), left: TIME, bytes: 0 }
    }

    /// The outcome of `next`, unless it was waited for long enough. Time that passes outside of this is the reader's, and does
    /// not count.
    pub(super) async fn wait<T>(&mut self, next: impl Future<Output = T>) -> Option<T> {
        if self.bytes > MOST_BYTES && self.begun.elapsed() >= TIME {
            return None;
        }
        let begun = Instant::now();
        let next = timeout(self.left, next).await.ok();
        self.left = self.left.saturating_sub(begun.elapsed());
        next
    }

    /// So many bytes came.
    pub(super) fn came(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.bytes = self.bytes.saturating_add(bytes);
        self.left = (self.left + Duration::from_secs(1).mul_f64(bytes as f64 / LEAST_BYTES_A_SECOND)).min(TIME);
    }
}

const TIME: Duration = Duration::from_secs(2);
/// What a connection brings at least.
const LEAST_BYTES_A_SECOND: f64 = 32_768.0;
/// More than all that a place holds of an exited process: pipes, the server's log, and what is on its way.
const MOST_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::{advance, sleep};

    use super::*;

    const CHUNK: usize = 64 << 10;

    #[tokio::test(start_paused = true)]
    async fn silence_ends_it() {
        let (begun, mut drain) = (Instant::now(), Drain::new());
        assert_eq!(drain.wait(pending::<()>()).await, None);
        assert_eq!(begun.elapsed(), TIME);
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_bytes_now_and_then_do_not_keep_it() {
        let (begun, mut drain) = (Instant::now(), Drain::new());
        while drain.wait(sleep(TIME / 4)).await.is_some() {
            drain.came(2);
        }
        assert!(begun.elapsed() < TIME * 2, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_connection_brings_all() {
        let mut drain = Drain::new();
        for _ in 0..MOST_BYTES / CHUNK as u64 {
            assert_eq!(drain.wait(sleep(TIME * 3 / 4)).await, Some(()));
            drain.came(CHUNK);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_ends_it_in_time() {
        let mut drain = Drain::new();
        for _ in 0..MOST_BYTES / CHUNK as u64 + 100 {
            assert_eq!(drain.wait(ready(())).await, Some(()));
            drain.came(CHUNK);
        }
        advance(TIME).await;
        assert_eq!(drain.wait(ready(())).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_readers_own_time_does_not_count() {
        let mut drain = Drain::new();
        for _ in 0..100 {
            advance(TIME * 10).await;
            assert_eq!(drain.wait(ready(())).await, Some(()));
            drain.came(1);
        }
    }
}
