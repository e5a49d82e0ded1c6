//! The end of a place.

use super::context::Context;
use crate::request::Signal;

cases! {"close":
    closing_ends_all_processes,
    closing_lets_a_process_clean_up [GracefulStop],
    closing_waits_for_no_reader [GracefulStop],
    closing_twice_is_closing_once,
    nothing_starts_after_the_close,
    a_detached_process_outlives_its_handle_and_its_place [Detach],
}

async fn closing_ends_all_processes(cx: Context) {
    let mut watched = cx.watch(&["on-signal-with-descendant", &Signal::User1.number().to_string(), "0"]).await;
    watched.until_stdout("ready\n").await;
    let life = watched.life().await;
    cx.environment().close().await;
    cx.assert_gone(life).await;
}

async fn closing_lets_a_process_clean_up(cx: Context) {
    let file = cx.dir().join("cleaned-up");
    let mut watched = cx.watch(&["clean-up-when-stopped", &file.to_string_lossy()]).await;
    watched.until_stdout("ready\n").await;
    cx.environment().close().await;
    assert!(file.exists(), "it was not asked, or not waited for");
}

/// A process that waits for its reader ends with its place all the same.
async fn closing_waits_for_no_reader(cx: Context) {
    let mut watched = cx.watch(&["alive", "flood"]).await;
    let life = watched.life().await;
    cx.environment().close().await;
    cx.assert_gone(life).await;
}

async fn closing_twice_is_closing_once(cx: Context) {
    cx.environment().close().await;
    cx.environment().close().await;
}

async fn nothing_starts_after_the_close(cx: Context) {
    cx.environment().close().await;
    let late = cx.environment().spawn(cx.child(&["exit", "0"])).await;
    assert!(late.is_err(), "{late:?}");
}

async fn a_detached_process_outlives_its_handle_and_its_place(cx: Context) {
    let (told, done) = (cx.dir().join("told"), cx.dir().join("done"));
    let [told_name, done_name] = [&told, &done].map(|path| path.to_string_lossy().into_owned());
    let watched = cx.watch(&["create-when-told", &told_name, &done_name]).await;
    watched.process.detach().await.unwrap();
    drop(watched);
    cx.environment().close().await;
    std::fs::write(&told, "").unwrap();
    // Only the detached process can create the file; another one waits for it.
    let elsewhere = cx.another_environment().await;
    let waiter = elsewhere.spawn(cx.child(&["say-when-told", &done_name, "it ran on"])).await.unwrap();
    let output = waiter.output(crate::CollectLimits::default()).await.unwrap();
    assert_eq!(output.stdout.to_text(), "it ran on\n");
    elsewhere.close().await;
}
