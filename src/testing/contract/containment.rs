//! Process trees that nobody leaves: daemons end with the process that has started them.
//!
//! A daemon here is what `daemon(3)` makes: a grandchild whose parent has ended, in a session of its own.

use std::time::{Duration, Instant};

use super::context::{Context, Watched};
use crate::backend::Terminate;
use crate::collect::CollectLimits;
use crate::request::{ExecRequest, Signal, TerminalSize};

cases! {"containment":
    a_kill_ends_daemons [Containment],
    a_kill_ends_daemons_that_hold_no_stream [Containment],
    a_stop_asks_daemons_to_end [Containment, GracefulStop],
    a_daemon_that_does_not_end_by_itself_is_killed_after_the_grace [Containment, GracefulStop],
    the_time_limit_ends_daemons [Containment, Limits],
    the_output_limit_ends_daemons [Containment, Limits],
    dropping_the_handle_ends_daemons [Containment],
    closing_the_place_ends_daemons [Containment],
    closing_the_place_ends_daemons_of_an_exited_process [Containment, GracefulStop],
    daemons_outlive_an_exit_and_can_be_ended_then [Containment, GracefulStop],
    a_detached_tree_outlives_its_place [Containment, Detach],
    a_contained_process_on_a_terminal_is_one_like_any_other [Containment, Terminal],
    a_program_that_cannot_be_started_is_told_as_ever [Containment, PreciseErrors],
}

fn contained(cx: &Context, args: &[&str]) -> ExecRequest {
    cx.child(args).contain(true)
}

/// Starts a process that waits for a signal, and has left a daemon.
async fn with_daemon(cx: &Context) -> (Watched, u32) {
    let request = contained(cx, &["on-signal-with-daemon", &Signal::User1.number().to_string(), "0"]);
    let mut watched = Watched::new(cx.spawn(request).await);
    watched.until_stdout("ready\n").await;
    let daemon = watched.life().await;
    (watched, daemon)
}

async fn a_kill_ends_daemons(cx: Context) {
    let (mut watched, daemon) = with_daemon(&cx).await;
    assert!(watched.process.kill().await.unwrap());
    assert_eq!(watched.read_to_end().await.wire_code(), 137);
    cx.assert_gone(daemon).await;
}

async fn a_kill_ends_daemons_that_hold_no_stream(cx: Context) {
    let request = contained(&cx, &["leave-daemon-and-sleep", "without-streams", "sleep-silently"]);
    let mut watched = Watched::new(cx.spawn(request).await);
    watched.until_stdout("ready\n").await;
    let daemon = watched.life().await;
    assert!(watched.process.kill().await.unwrap());
    watched.read_to_end().await;
    cx.assert_gone(daemon).await;
}

async fn a_stop_asks_daemons_to_end(cx: Context) {
    let file = cx.dir().join("cleaned-up");
    let request = contained(&cx, &["leave-daemon-and-sleep", "clean-up-when-stopped", &file.to_string_lossy()]);
    let mut watched = Watched::new(cx.spawn(request).await);
    while watched.stdout_text().matches("ready\n").count() < 2 {
        watched.step().await;
    }
    let daemon = watched.life().await;
    assert!(watched.process.terminate_with(Terminate::graceful(Duration::from_secs(50))).await.unwrap());
    watched.read_to_end().await;
    cx.assert_gone(daemon).await;
    assert!(file.exists(), "it was not asked");
}

async fn a_daemon_that_does_not_end_by_itself_is_killed_after_the_grace(cx: Context) {
    let daemon = ["leave-daemon-and-sleep", "ignoring-stop", "alive", "without-streams", "sleep-silently"];
    let mut watched = Watched::new(cx.spawn(contained(&cx, &daemon)).await);
    let [_, ignoring] = watched.lives().await;
    let (begun, grace) = (Instant::now(), Duration::from_millis(200));
    assert!(watched.process.terminate_with(Terminate::graceful(grace)).await.unwrap());
    watched.until_exit().await;
    cx.assert_gone(ignoring).await;
    assert!(begun.elapsed() >= grace, "the grace was not granted");
}

async fn the_time_limit_ends_daemons(cx: Context) {
    // The limit must not pass before the daemon lives.
    for limit in [1, 4, 16].map(Duration::from_secs) {
        let request = contained(&cx, &["leave-daemon-and-sleep", "sleep-silently"]).time_limit(limit);
        let mut watched = Watched::new(cx.spawn(request.stop_grace(Duration::from_millis(100))).await);
        assert!(watched.read_to_end().await.timed_out());
        if watched.has_life() {
            let daemon = watched.life().await;
            return cx.assert_gone(daemon).await;
        }
    }
    panic!("the daemon does not come to life");
}

async fn the_output_limit_ends_daemons(cx: Context) {
    let request = contained(&cx, &["leave-daemon-and-sleep", "flood"]).output_limit_bytes(100_000);
    let mut watched = Watched::new(cx.spawn(request).await);
    let daemon = watched.life().await;
    assert!(watched.read_to_end().await.limit_exceeded().is_some());
    cx.assert_gone(daemon).await;
}

async fn dropping_the_handle_ends_daemons(cx: Context) {
    let (watched, daemon) = with_daemon(&cx).await;
    drop(watched);
    cx.assert_gone(daemon).await;
}

async fn closing_the_place_ends_daemons(cx: Context) {
    let (_watched, daemon) = with_daemon(&cx).await;
    cx.environment().close().await;
    cx.assert_gone(daemon).await;
}

async fn closing_the_place_ends_daemons_of_an_exited_process(cx: Context) {
    let request = contained(&cx, &["leave-daemon", "without-streams", "sleep-silently"]);
    let mut watched = Watched::new(cx.spawn(request).await);
    let daemon = watched.life().await;
    assert!(watched.read_to_end().await.success());
    cx.environment().close().await;
    cx.assert_gone(daemon).await;
}

async fn daemons_outlive_an_exit_and_can_be_ended_then(cx: Context) {
    let file = cx.dir().join("now");
    let told = file.to_string_lossy().into_owned();
    let done = cx.dir().join("done");
    let created = done.to_string_lossy().into_owned();
    let request = contained(&cx, &["leave-daemon", "without-streams", "create-when-told-and-sleep", &told, &created]);
    let mut watched = Watched::new(cx.spawn(request).await);
    let daemon = watched.life().await;
    assert!(watched.read_to_end().await.success());
    assert!(!watched.process.kill().await.unwrap(), "it has exited");
    std::fs::write(file, "").unwrap();
    let waiter = cx.output(cx.child(&["say-when-told", &created, "it lives"])).await;
    assert_eq!(waiter.stdout.to_text(), "it lives\n");
    assert!(!watched.process.terminate_with(Terminate::kill().with_descendants()).await.unwrap());
    cx.assert_gone(daemon).await;
}

async fn a_detached_tree_outlives_its_place(cx: Context) {
    let (told, done) = (cx.dir().join("told"), cx.dir().join("done"));
    let [told_name, done_name] = [&told, &done].map(|path| path.to_string_lossy().into_owned());
    let request = contained(&cx, &["leave-daemon", "without-streams", "create-when-told", &told_name, &done_name]);
    let mut watched = Watched::new(cx.spawn(request).await);
    let daemon = watched.life().await;
    watched.process.detach().await.unwrap();
    drop(watched);
    cx.environment().close().await;
    std::fs::write(&told, "").unwrap();
    let elsewhere = cx.another_environment().await;
    let waiter = elsewhere.spawn(cx.child(&["say-when-told", &done_name, "it ran on"])).await.unwrap();
    let output = waiter.output(CollectLimits::default()).await.unwrap();
    assert_eq!(output.stdout.to_text(), "it ran on\n");
    elsewhere.close().await;
    cx.assert_gone(daemon).await;
}

async fn a_contained_process_on_a_terminal_is_one_like_any_other(cx: Context) {
    let request = contained(&cx, &["on-signal-with-daemon", &Signal::Interrupt.number().to_string(), "5"]);
    let mut watched = Watched::new(cx.spawn(request.terminal(TerminalSize::default())).await);
    watched.until_pty("ready\r\n").await;
    watched.write([3]).await;
    assert_eq!(watched.until_exit().await.code(), Some(5), "what is typed goes to those in the foreground");
}

async fn a_program_that_cannot_be_started_is_told_as_ever(cx: Context) {
    use crate::error::SpawnError;

    let gone = cx.dir().join("gone");
    let missing = ExecRequest::new([&gone]).cwd(cx.dir()).contain(true);
    let error = cx.environment().spawn(missing).await.unwrap_err();
    assert!(matches!(&error, SpawnError::ProgramNotFound { program, .. } if *program == gone), "{error:?}");
    let error = cx.environment().spawn(contained(&cx, &["cwd"]).cwd(&gone)).await.unwrap_err();
    assert!(matches!(&error, SpawnError::CwdNotFound { path } if *path == gone), "{error:?}");
    let output = cx.output(contained(&cx, &["say-and-exit", "well", "7"])).await;
    assert_eq!((output.stdout.to_text(), output.status.code()), ("well\n".into(), Some(7)));
}
