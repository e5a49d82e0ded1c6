//! Processes on pipes, on this machine.
#![cfg(unix)]

mod local_support;

use local_support::{Run, local, run, sh};

#[tokio::test]
async fn output_of_both_streams_exit_and_close_come_in_order() {
    let Run { stdout, stderr, status, kinds, .. } = run(&local(), sh("echo out; echo err >&2; exit 3")).await;
    assert_eq!((stdout.as_slice(), stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(status.code(), Some(3));
    assert_eq!(kinds.last().map(String::as_str), Some("closed"));
}
