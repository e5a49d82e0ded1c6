//! Limits that the executor keeps.

use std::time::{Duration, Instant};

use super::context::{Context, Watched};
use crate::status::LimitExceeded;

cases! {"limits":
    a_process_beyond_its_time_is_ended_and_its_status_says_so [Limits],
    a_process_within_its_time_is_left_alone [Limits],
    a_process_beyond_its_output_is_ended_and_its_status_says_so [Limits],
    a_process_within_its_output_is_left_alone [Limits],
}

async fn a_process_beyond_its_time_is_ended_and_its_status_says_so(cx: Context) {
    let begun = Instant::now();
    let limit = Duration::from_millis(100);
    let request = cx.child(&["ignore-stop"]).time_limit(limit).stop_grace(limit);
    let status = Watched::new(cx.spawn(request).await).read_to_end().await;
    assert!(begun.elapsed() >= limit);
    assert!(status.timed_out() && !status.success(), "{status:?}");
    assert_eq!(status.limit_exceeded(), Some(LimitExceeded::Time));
}

async fn a_process_within_its_time_is_left_alone(cx: Context) {
    let request = cx.child(&["exit", "0"]).time_limit(Duration::from_secs(600));
    let status = Watched::new(cx.spawn(request).await).read_to_end().await;
    assert!(status.success() && !status.timed_out());
}

async fn a_process_beyond_its_output_is_ended_and_its_status_says_so(cx: Context) {
    let request = cx.child(&["lines", "1", "100000000"]).output_limit_bytes(100_000);
    let mut watched = Watched::new(cx.spawn(request).await);
    let status = watched.read_to_end().await;
    assert_eq!(status.limit_exceeded(), Some(LimitExceeded::Output), "{status:?}");
    assert!(!status.success());
    assert!(watched.stdout.len() >= 100_000, "what was read before is delivered");
}

async fn a_process_within_its_output_is_left_alone(cx: Context) {
    let request = cx.child(&["emit", "60000", "40000"]).output_limit_bytes(100_000);
    let mut watched = Watched::new(cx.spawn(request).await);
    assert!(watched.read_to_end().await.success());
    assert_eq!(watched.stdout.len() + watched.stderr.len(), 100_000);
}
