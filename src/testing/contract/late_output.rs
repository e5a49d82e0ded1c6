//! Streams that descendants hold open after the exit.

use std::time::Duration;

use super::context::{Context, Watched};
use crate::collect::CollectLimits;

cases! {"late_output":
    the_exit_is_reported_while_a_descendant_holds_the_streams,
    what_a_descendant_writes_after_the_exit_is_delivered_before_the_close,
    collecting_returns_in_time_while_a_descendant_holds_the_streams,
    closing_the_place_ends_what_was_left_behind [GracefulStop],
}

/// Leaves a descendant behind that writes when the file exists.
async fn leave_behind(cx: &Context) -> (Watched, std::path::PathBuf) {
    let file = cx.dir().join("now");
    let name = file.to_string_lossy().into_owned();
    (cx.watch(&["leave-behind", "say-when-told", &name, "late"]).await, file)
}

async fn the_exit_is_reported_while_a_descendant_holds_the_streams(cx: Context) {
    let (mut watched, file) = leave_behind(&cx).await;
    assert!(watched.until_exit().await.success());
    assert!(watched.closed.is_none(), "the descendant was not told to end");
    std::fs::write(file, "").unwrap();
    watched.read_to_end().await;
}

async fn what_a_descendant_writes_after_the_exit_is_delivered_before_the_close(cx: Context) {
    let (mut watched, file) = leave_behind(&cx).await;
    watched.until_exit().await;
    let life = watched.life().await;
    std::fs::write(file, "").unwrap();
    watched.read_to_end().await;
    assert_eq!(watched.stdout_text(), format!("{life}\nlate\n"));
}

async fn collecting_returns_in_time_while_a_descendant_holds_the_streams(cx: Context) {
    let (mut watched, file) = leave_behind(&cx).await;
    let limits = CollectLimits::default().drain_timeout(Duration::from_millis(50));
    let output = watched.process.collect(limits).await.unwrap();
    assert!(output.still_open && output.status.success());
    std::fs::write(file, "").unwrap();
    let rest = watched.process.collect(CollectLimits::default().drain_timeout(Duration::MAX)).await.unwrap();
    assert!(!rest.still_open);
    assert_eq!(rest.status, output.status);
    // Its sign of life may have come in time or not.
    assert!(rest.stdout.to_text().ends_with("late\n"), "{:?}", rest.stdout.to_text());
    let text = format!("{}{}", output.stdout.to_text(), rest.stdout.to_text());
    let life = text.strip_suffix("\nlate\n").map(str::parse::<u32>);
    assert!(matches!(life, Some(Ok(_))), "{text:?}");
}

async fn closing_the_place_ends_what_was_left_behind(cx: Context) {
    let (mut watched, _never_told) = leave_behind(&cx).await;
    let life = watched.life().await;
    watched.until_exit().await;
    cx.environment().close().await;
    cx.assert_gone(life).await;
}
