//! Exit, end of output and end of the process tree, on this machine.
#![cfg(unix)]

mod local_support;

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use local_support::{PATIENCE, Patience, Run, collect, is_alive, is_running, local, next, read_until, run, sh};
use longarm::Signal;
use longarm::backend::local::{Local, LocalConfig};
use longarm::backend::{ExecBackend, Terminate};
use longarm::error::{SpawnError, WaitError};
use longarm::event::{Event, OutputStream};
use longarm::status::LimitExceeded;

/// The number in the first line that a script printed.
async fn read_pid(events: &mut longarm::backend::EventSource) -> u32 {
    let line = read_until(events, "\n").await;
    String::from_utf8(line).unwrap().lines().next().unwrap().parse().unwrap()
}

/// Waits until a child of ours is gone: nobody else reaps it.
async fn wait_until_gone(pid: u32) {
    wait_for(&format!("process {pid} is gone"), || !is_alive(pid)).await;
}

/// Waits until a descendant has ended. It is left to the system, which need not reap it.
async fn wait_until_ended(pid: u32) {
    wait_for(&format!("process {pid} has ended"), || !is_running(pid)).await;
}

async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let mut patience = Patience::new(PATIENCE);
    while !condition() {
        assert!(patience.is_left(), "{what}");
        patience.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn exit_is_reported_while_a_grandchild_holds_stdout() {
    let local = local();
    let mut spawned = local.spawn(sh("sleep 300 & echo $!")).await.unwrap();
    let sleep = read_pid(&mut spawned.events).await;
    let Event::Exited(exited) = next(&mut spawned.events).await else { panic!("it exits") };
    assert!(exited.status.success());
    assert!(!spawned.control.terminate(Terminate::kill()).await.unwrap(), "it is not running");
    assert!(is_running(sleep), "it ends when it is asked for, and that was long before its own time");
    assert!(!spawned.control.terminate(Terminate::kill().with_descendants()).await.unwrap());
    let Event::Closed(closed) = next(&mut spawned.events).await else { panic!("it closes") };
    assert!(!closed.cut);
    wait_until_ended(sleep).await;
}

#[tokio::test]
async fn output_after_the_exit_is_delivered() {
    let (local, dir) = (local(), tempfile::tempdir().unwrap());
    let script = "(until test -e exited; do sleep 0.01; done; echo late) & echo early";
    let mut spawned = local.spawn(sh(script).cwd(dir.path())).await.unwrap();
    assert_eq!(read_until(&mut spawned.events, "\n").await, b"early\n");
    assert!(matches!(next(&mut spawned.events).await, Event::Exited(_)));
    std::fs::write(dir.path().join("exited"), "").unwrap();
    let Event::Output(late) = next(&mut spawned.events).await else { panic!("there is more") };
    assert_eq!(late.bytes, "late\n");
    assert!(matches!(next(&mut spawned.events).await, Event::Closed(_)));
}

#[tokio::test]
async fn closing_the_place_ends_what_exited_processes_left() {
    let local = local();
    let mut spawned = local.spawn(sh("sleep 300 & echo $!")).await.unwrap();
    let sleep = read_pid(&mut spawned.events).await;
    local.close().await;
    wait_until_ended(sleep).await;
    local.close().await;
    assert!(matches!(local.spawn(sh("true")).await, Err(SpawnError::Closed)));
}

#[tokio::test]
async fn terminate_ends_a_tree_that_ignores_the_polite_request() {
    let local = local();
    let script = "trap '' TERM; (trap '' TERM; sleep 300) & echo $!; sleep 300";
    let mut spawned = local.spawn(sh(script)).await.unwrap();
    let inner = read_pid(&mut spawned.events).await;
    let start = Instant::now();
    let grace = Duration::from_millis(300);
    assert!(spawned.control.terminate(Terminate::graceful(grace)).await.unwrap());
    let Event::Exited(exited) = next(&mut spawned.events).await else { panic!("it exits") };
    assert_eq!(exited.status.signal(), Some(Signal::Kill));
    assert!(start.elapsed() >= grace);
    assert!(matches!(next(&mut spawned.events).await, Event::Closed(_)));
    wait_until_ended(inner).await;
}

#[tokio::test]
async fn terminate_lets_a_process_end_by_itself_and_drains_it() {
    let local = local();
    let script = "trap 'head -c 300000 /dev/zero; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut spawned = local.spawn(sh(script)).await.unwrap();
    read_until(&mut spawned.events, "ready").await;
    assert!(spawned.control.terminate(Terminate::graceful(PATIENCE)).await.unwrap());
    let mut bytes = 0;
    let status = loop {
        match next(&mut spawned.events).await {
            // The shell also says on the other stream that its helper was terminated.
            Event::Output(output) if output.stream == OutputStream::Stdout => bytes += output.bytes.len(),
            Event::Output(_) => {}
            Event::Exited(exited) => break exited.status,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(status.code(), Some(9));
    assert_eq!(bytes, 300_000);
}

#[tokio::test]
async fn a_member_without_streams_has_its_grace_and_is_then_killed() {
    let (local, dir) = (local(), tempfile::tempdir().unwrap());
    let member = "(trap '' TERM; : >deaf; exec sleep 300) >/dev/null 2>&1";
    let script = format!("{member} & until test -e deaf; do sleep 0.01; done; echo $!; wait");
    let mut spawned = local.spawn(sh(&script).cwd(dir.path())).await.unwrap();
    let inner = read_pid(&mut spawned.events).await;
    // The shell dies at once; its streams close, and the member lives until the grace time is over.
    let grace = Duration::from_millis(500);
    let start = Instant::now();
    assert!(spawned.control.terminate(Terminate::graceful(grace)).await.unwrap());
    while !matches!(next(&mut spawned.events).await, Event::Closed(_)) {}
    wait_until_ended(inner).await;
    assert!(start.elapsed() >= grace, "it had its grace");
}

#[tokio::test]
async fn a_kill_does_not_wait_for_a_holder_in_another_session() {
    let local = local();
    let mut spawned = local.spawn(sh("setsid sleep 300 & echo $!; wait")).await.unwrap();
    let setsid = read_pid(&mut spawned.events).await;
    // The shell may print before its child has left the session; then it would be killed, too.
    let comm = format!("/proc/{setsid}/comm");
    let has_left = || std::fs::read_to_string(&comm).is_ok_and(|name| name.trim() == "sleep");
    wait_for("it has left the session", has_left).await;
    assert!(spawned.control.terminate(Terminate::kill()).await.unwrap());
    let Event::Exited(exited) = next(&mut spawned.events).await else { panic!("it exits") };
    assert_eq!(exited.status.wire_code(), 137);
    let Event::Closed(closed) = next(&mut spawned.events).await else { panic!("it closes") };
    assert!(closed.cut);
    assert!(is_running(setsid), "it left the session, and is not reached");
    run(&local, sh(&format!("kill -9 {setsid}"))).await;
    wait_until_ended(setsid).await;
}

#[tokio::test]
async fn a_signal_death_is_told_from_an_exit_code() {
    let local = local();
    let killed = run(&local, sh("kill -TERM $$")).await.status;
    assert_eq!((killed.signal(), killed.code(), killed.wire_code()), (Some(Signal::Terminate), None, 143));
    let exited = run(&local, sh("exit 143")).await.status;
    assert_eq!((exited.signal(), exited.code()), (None, Some(143)));
}

#[tokio::test]
async fn an_interrupt_reaches_the_group_and_its_handler() {
    let local = local();
    let script = "trap 'echo got; exit 7' INT; echo r; while :; do sleep 0.1; done";
    let mut spawned = local.spawn(sh(script)).await.unwrap();
    read_until(&mut spawned.events, "r").await;
    spawned.control.signal(Signal::Interrupt).await.unwrap();
    let Run { stdout, status, .. } = rest(spawned.events, 1).await;
    assert_eq!(stdout, b"got\n");
    assert_eq!(status.code(), Some(7));
    spawned.control.signal(Signal::Interrupt).await.unwrap();
    assert!(spawned.control.signal(Signal::Other(9)).await.is_err(), "only named signals are sent");
}

/// Collects what follows `skipped` events.
async fn rest(mut events: longarm::backend::EventSource, skipped: u64) -> Run {
    let mut run = local_support::empty_run();
    let mut seq = skipped;
    loop {
        let event = next(&mut events).await;
        seq += 1;
        assert_eq!(event.seq(), seq);
        match event {
            Event::Output(output) => run.stdout.extend_from_slice(&output.bytes),
            Event::Exited(exited) => run.status = exited.status,
            Event::Closed(_) => return run,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_time_limit_ends_the_tree_and_the_status_says_so() {
    let limit = Duration::from_millis(200);
    let start = Instant::now();
    // More grace than it needs, even where it has to wait for its turn to die.
    let request = sh("sleep 300 & sleep 300").time_limit(limit).stop_grace(PATIENCE);
    let Run { status, .. } = run(&local(), request).await;
    assert!(start.elapsed() >= limit);
    assert_eq!(status.limit_exceeded(), Some(LimitExceeded::Time));
    assert_eq!(status.signal(), Some(Signal::Terminate));
    let in_time = run(&local(), sh("exit 4").time_limit(PATIENCE)).await.status;
    assert_eq!((in_time.code(), in_time.limit_exceeded()), (Some(4), None));
}

#[tokio::test]
async fn the_output_limit_kills_and_what_was_read_is_delivered() {
    let Run { stdout, status, closed, .. } = run(&local(), sh("yes").output_limit_bytes(100_000)).await;
    assert!(stdout.len() > 100_000 && stdout.len() <= 100_000 + (64 << 10), "{} bytes", stdout.len());
    assert_eq!(status.limit_exceeded(), Some(LimitExceeded::Output));
    assert!(closed.cut);
    let exact = run(&local(), sh("head -c 5000 /dev/zero").output_limit_bytes(5000)).await;
    assert_eq!((exact.stdout.len(), exact.status.success(), exact.closed.cut), (5000, true, false));
}

#[tokio::test]
async fn streams_can_be_closed_a_bounded_time_after_the_exit() {
    let config = LocalConfig::from_host().close_streams_after_exit(Some(Duration::from_millis(200)));
    let local = Local::new(config);
    let mut spawned = local.spawn(sh("(sleep 300; echo never) & echo $!")).await.unwrap();
    let inner = read_pid(&mut spawned.events).await;
    assert!(matches!(next(&mut spawned.events).await, Event::Exited(_)));
    let Event::Closed(closed) = next(&mut spawned.events).await else { panic!("it closes") };
    assert!(closed.cut);
    assert!(is_alive(inner), "it is left alone");
    run(&local, sh(&format!("kill -9 {inner}"))).await;
    let patient = Local::new(LocalConfig::from_host().close_streams_after_exit(Some(PATIENCE)));
    let whole = run(&patient, sh("(sleep 0.1; echo in time) &")).await;
    assert_eq!((whole.stdout.as_slice(), whole.closed.cut), (&b"in time\n"[..], false));
}

#[tokio::test]
async fn dropping_the_place_kills_all_but_detached_processes() {
    let place = local();
    let mut killed = place.spawn(sh("echo $$; sleep 300")).await.unwrap();
    let mut kept =
        place.spawn(sh("echo $$; read line; echo $line; exit 5").stdin(longarm::Stdin::Piped)).await.unwrap();
    read_pid(&mut killed.events).await;
    let kept_pid = read_pid(&mut kept.events).await;
    kept.control.detach().await.unwrap();
    kept.control.kill_now();
    drop(place);
    let Event::Exited(exited) = next(&mut killed.events).await else { panic!("it exits") };
    assert_eq!(exited.status.signal(), Some(Signal::Kill));
    assert!(is_alive(kept_pid), "a detached process outlives its handle and its place");
    kept.control.write("still here\n".into()).await.unwrap();
    let Run { stdout, status, .. } = rest(kept.events, 1).await;
    assert_eq!((stdout.as_slice(), status.code()), (&b"still here\n"[..], Some(5)));
}

#[tokio::test]
async fn a_runtime_that_goes_takes_its_processes_with_it() {
    let pid = tokio::task::spawn_blocking(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = local();
        let (pid, mut events) = runtime.block_on(async {
            let mut spawned = local.spawn(sh("echo $$; sleep 300")).await.unwrap();
            (read_pid(&mut spawned.events).await, spawned.events)
        });
        drop(runtime);
        let error = local_support::poll_once(&mut events.next()).expect("nothing is outstanding");
        assert!(matches!(error, Some(Err(WaitError::Closed))), "{error:?}");
        pid
    })
    .await
    .unwrap();
    wait_until_gone(pid).await;
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "and leaves no zombie");
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_no_process() {
    let local = local();
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..50 {
        let mut spawn = local.spawn(sh("echo $$ >> pids; exec sleep 300").cwd(dir.path()));
        // Once polled, it is under way, or even done.
        drop(local_support::poll_once(&mut spawn));
        drop(spawn);
    }
    local.close().await;
    let pids = std::fs::read_to_string(dir.path().join("pids")).unwrap_or_default();
    for pid in pids.lines() {
        wait_until_gone(pid.parse().unwrap()).await;
    }
}

#[tokio::test]
async fn no_zombie_is_left_after_the_close() {
    let local = local();
    let spawned = local.spawn(sh("exit 0")).await.unwrap();
    let pid = spawned.control.os_id().unwrap();
    collect(spawned.events).await;
    wait_until_gone(pid).await;
}
