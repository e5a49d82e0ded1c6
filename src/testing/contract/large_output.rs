//! More output than any buffer holds.

use super::context::{Context, Watched};
use crate::collect::CollectLimits;

cases! {"large_output":
    no_byte_is_lost_at_full_speed [Backpressure],
    what_is_lost_is_never_lost_in_silence,
    no_byte_is_lost_to_a_slow_reader [Backpressure],
    collecting_keeps_both_ends_and_counts_the_rest,
    one_full_stream_does_not_hold_up_the_other,
}

const LINES: u64 = 2_000_000;
const BYTES: u64 = 14_888_896;

async fn no_byte_is_lost_at_full_speed(cx: Context) {
    let mut watched = cx.watch(&["lines", "1", &LINES.to_string()]).await;
    assert!(watched.read_to_end().await.success());
    assert_eq!(watched.stdout.len() as u64, BYTES);
    assert_lines(&watched);
}

async fn what_is_lost_is_never_lost_in_silence(cx: Context) {
    let process = cx.spawn(cx.child(&["lines", "1", &LINES.to_string()])).await;
    let output = process.output(CollectLimits::default()).await.unwrap();
    assert!(output.status.success() && !output.still_open);
    match output.missing {
        None => assert_eq!(output.stdout.total_bytes, BYTES),
        Some(missing) => match missing.bytes {
            Some(bytes) => assert_eq!(output.stdout.total_bytes + bytes, BYTES),
            None => assert!(output.stdout.total_bytes <= BYTES),
        },
    }
}

async fn no_byte_is_lost_to_a_slow_reader(cx: Context) {
    let mut watched = cx.watch(&["lines", "1", &LINES.to_string()]).await;
    // The reader stops at first, for as long as it takes another process to come and go several times.
    for _ in 0..5 {
        assert!(cx.watch(&["say-and-exit", "x", "0"]).await.read_to_end().await.success());
    }
    assert!(watched.read_to_end().await.success());
    assert_eq!(watched.stdout.len() as u64, BYTES);
    assert_lines(&watched);
}

fn assert_lines(watched: &Watched) {
    let text = std::str::from_utf8(&watched.stdout).unwrap();
    let mut expected = 1;
    for line in text.lines() {
        assert_eq!(line.parse(), Ok(expected));
        expected += 1;
    }
    assert_eq!(expected, LINES + 1);
}

async fn collecting_keeps_both_ends_and_counts_the_rest(cx: Context) {
    let process = cx.spawn(cx.child(&["lines", "1", "200000"])).await;
    let output = process.output(CollectLimits::default().head_bytes(4).tail_bytes(7)).await.unwrap();
    assert_eq!((output.stdout.head.as_slice(), output.stdout.tail.as_slice()), (&b"1\n2\n"[..], &b"200000\n"[..]));
    assert_eq!((output.stdout.total_bytes, output.stdout.dropped_bytes), (1_288_895, 1_288_884));
    assert_eq!(output.missing, None);
}

async fn one_full_stream_does_not_hold_up_the_other(cx: Context) {
    let mut watched = cx.watch(&["emit", "500000", "500000"]).await;
    assert!(watched.read_to_end().await.success());
    assert_eq!((watched.stdout.len(), watched.stderr.len()), (500_000, 500_000));
}
