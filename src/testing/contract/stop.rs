//! Ending a process means its whole tree.

use std::time::{Duration, Instant};

use super::context::Context;
use crate::backend::Terminate;
use crate::request::Signal;

cases! {"stop":
    a_tree_that_ignores_the_polite_request_is_killed_after_the_grace [GracefulStop],
    the_answer_to_a_request_to_end_does_not_wait_for_the_end [GracefulStop],
    a_process_that_ends_by_itself_is_not_killed [GracefulStop],
    a_kill_ends_the_whole_tree,
    ending_an_exited_process_does_nothing_and_says_so,
    what_an_exited_process_left_behind_can_be_ended [GracefulStop],
    dropping_the_handle_kills_the_tree,
    dropping_a_start_that_was_not_awaited_leaves_nothing,
    output_is_delivered_while_a_process_is_being_ended [GracefulStop],
}

async fn a_tree_that_ignores_the_polite_request_is_killed_after_the_grace(cx: Context) {
    let mut watched = cx.watch(&["ignore-stop-with-descendant"]).await;
    watched.until_stdout("ready\n").await;
    let life = watched.life().await;
    let begun = Instant::now();
    let grace = Duration::from_millis(200);
    assert!(watched.process.terminate_with(Terminate::graceful(grace)).await.unwrap());
    assert_eq!(watched.read_to_end().await.wire_code(), 137);
    assert!(begun.elapsed() >= grace, "the grace was not granted");
    cx.assert_gone(life).await;
}

async fn the_answer_to_a_request_to_end_does_not_wait_for_the_end(cx: Context) {
    let mut watched = cx.watch(&["ignore-stop-with-descendant"]).await;
    watched.until_stdout("ready\n").await;
    let life = watched.life().await;
    let begun = Instant::now();
    let grace = Duration::from_secs(600);
    assert!(watched.process.terminate_with(Terminate::graceful(grace)).await.unwrap());
    assert!(watched.process.kill().await.unwrap(), "it runs");
    assert_eq!(watched.read_to_end().await.wire_code(), 137);
    assert!(begun.elapsed() < grace, "a kill cuts the grace short");
    cx.assert_gone(life).await;
}

async fn a_process_that_ends_by_itself_is_not_killed(cx: Context) {
    let mut watched = cx.watch(&["on-signal", &Signal::Terminate.number().to_string(), "4"]).await;
    watched.until_stdout("ready\n").await;
    assert!(watched.process.terminate_with(Terminate::graceful(Duration::from_secs(50))).await.unwrap());
    assert_eq!(watched.read_to_end().await.code(), Some(4));
    assert_eq!(watched.stdout_text(), "ready\ngot\n");
}

async fn a_kill_ends_the_whole_tree(cx: Context) {
    let mut watched = cx.watch(&["on-signal-with-descendant", &Signal::User1.number().to_string(), "0"]).await;
    watched.until_stdout("ready\n").await;
    let life = watched.life().await;
    assert!(watched.process.kill().await.unwrap());
    assert_eq!(watched.read_to_end().await.wire_code(), 137);
    cx.assert_gone(life).await;
}

async fn ending_an_exited_process_does_nothing_and_says_so(cx: Context) {
    let file = cx.dir().join("now");
    let name = file.to_string_lossy().into_owned();
    let mut watched = cx.watch(&["leave-behind", "say-when-told", &name, "alive"]).await;
    watched.until_exit().await;
    assert!(!watched.process.kill().await.unwrap());
    std::fs::write(file, "").unwrap();
    watched.read_to_end().await;
    assert!(watched.stdout_text().ends_with("alive\n"), "what it left behind was ended: {watched}");
}

async fn what_an_exited_process_left_behind_can_be_ended(cx: Context) {
    let mut watched = cx.watch(&["leave-behind", "sleep-silently"]).await;
    let life = watched.life().await;
    watched.until_exit().await;
    assert!(!watched.process.terminate_with(Terminate::kill().with_descendants()).await.unwrap());
    watched.read_to_end().await;
    cx.assert_gone(life).await;
}

async fn dropping_the_handle_kills_the_tree(cx: Context) {
    let mut watched = cx.watch(&["alive", "on-signal-with-descendant", &Signal::User1.number().to_string(), "0"]).await;
    watched.until_stdout("ready\n").await;
    let [leader, descendant] = watched.lives().await;
    drop(watched);
    cx.assert_gone(leader).await;
    cx.assert_gone(descendant).await;
}

async fn dropping_a_start_that_was_not_awaited_leaves_nothing(cx: Context) {
    let ran = cx.dir().join("never");
    for _ in 0..10 {
        let request = cx.child(&["say-when-told", &ran.to_string_lossy(), "x"]);
        let mut spawn = Box::pin(cx.environment().spawn(request));
        tokio::select! {
            biased;
            started = &mut spawn => drop(started.unwrap()),
            () = tokio::task::yield_now() => {}
        }
    }
    // Closing waits for all that runs; what was left would hold it up beyond the limit of a case.
    cx.environment().close().await;
}

async fn output_is_delivered_while_a_process_is_being_ended(cx: Context) {
    let mut watched = cx.watch(&["flood-until-stopped"]).await;
    watched.until_stdout("ready\n").await;
    assert!(watched.process.terminate_with(Terminate::graceful(Duration::from_secs(50))).await.unwrap());
    assert!(watched.read_to_end().await.success(), "it could write all that it wanted to: {watched}");
    assert!(watched.stdout.ends_with(b"\nend\n"));
}
