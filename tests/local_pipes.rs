//! Processes on pipes, on this machine.
#![cfg(unix)]

mod local_support;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use local_support::{
    PATIENCE, Patience, Run, collect, local, next, raise_descriptor_limit, read_until, run, sh, within,
};
use longarm::ExecRequest;
use longarm::backend::local::{Local, LocalConfig};
use longarm::backend::{ExecBackend, Terminate};
use longarm::config::OutputLimits;
use longarm::error::WriteError;
use longarm::event::Event;
use longarm::request::Stdin;

fn cat() -> ExecRequest {
    ExecRequest::new(["cat"]).cwd("/tmp").stdin(Stdin::Piped)
}

#[tokio::test]
async fn output_of_both_streams_exit_and_close_come_in_order() {
    let Run { stdout, stderr, status, kinds, .. } = run(&local(), sh("echo out; echo err >&2; exit 3")).await;
    assert_eq!((stdout.as_slice(), stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(status.code(), Some(3));
    assert_eq!(kinds.last().map(String::as_str), Some("closed"));
    assert_eq!(kinds[kinds.len() - 2], "exited", "what was written before the exit comes before it");
}

#[tokio::test]
async fn large_output_is_complete_every_time() {
    let local = local();
    for _ in 0..10 {
        let Run { stdout, status, .. } = run(&local, sh("seq 1 2000000")).await;
        assert_eq!(stdout.len(), 14_888_896);
        assert!(stdout.ends_with(b"\n2000000\n"));
        assert!(status.success());
    }
}

#[tokio::test]
async fn small_unbuffered_writes_are_complete_and_in_order() {
    // One write for each line.
    let script = "i=0; while [ $i -lt 30000 ]; do echo $i; i=$((i+1)); done";
    let Run { stdout, .. } = run(&local(), sh(script)).await;
    let expected: String = (0..30_000).map(|number| format!("{number}\n")).collect();
    assert!(stdout == expected.as_bytes(), "{} bytes", stdout.len());
}

#[tokio::test]
async fn a_mebibyte_of_input_and_its_end_arrive() {
    let spawned = local().spawn(ExecRequest::new(["wc", "-c"]).cwd("/tmp").stdin(Stdin::Piped)).await;
    // The place is gone before the process has ended: it was killed.
    let killed = collect(spawned.unwrap().events).await;
    assert_eq!(killed.status.wire_code(), 137);

    let local = local();
    let spawned = local.spawn(ExecRequest::new(["wc", "-c"]).cwd("/tmp").stdin(Stdin::Piped)).await.unwrap();
    for _ in 0..16 {
        spawned.control.write(Bytes::from(vec![b'x'; 64 << 10])).await.unwrap();
    }
    // Meanwhile others start; none may hold the pipe open.
    let others = join_all((0..20).map(|_| local.spawn(ExecRequest::new(["sleep", "60"]).cwd("/tmp")))).await;
    spawned.control.close_stdin().await.unwrap();
    let Run { stdout, status, .. } = collect(spawned.events).await;
    assert_eq!(stdout.trim_ascii(), b"1048576");
    assert!(status.success());
    assert!(matches!(spawned.control.write("x".into()).await, Err(WriteError::StdinClosed)));
    assert!(matches!(spawned.control.close_stdin().await, Err(WriteError::StdinClosed)));
    for other in others {
        other.unwrap().control.kill_now();
    }
}

#[tokio::test]
async fn without_a_pipe_standard_input_is_the_null_device() {
    let local = local();
    let spawned = local.spawn(ExecRequest::new(["cat"]).cwd("/tmp")).await.unwrap();
    assert!(matches!(spawned.control.write("x".into()).await, Err(WriteError::StdinClosed)));
    assert!(matches!(spawned.control.close_stdin().await, Err(WriteError::StdinClosed)));
    assert!(collect(spawned.events).await.status.success());
}

#[tokio::test]
async fn a_write_is_applied_once_even_if_its_future_is_dropped() {
    let local = local();
    let spawned = local.spawn(sh("sleep 0.3; cat").stdin(Stdin::Piped)).await.unwrap();
    // More than the pipe takes, so that the rest is queued.
    let first = vec![b'a'; 300_000];
    let second = vec![b'b'; 1000];
    for bytes in [first.clone(), second.clone()] {
        let mut write = spawned.control.write(bytes.into());
        assert!(local_support::poll_once(&mut write).is_none());
    }
    spawned.control.close_stdin().await.unwrap();
    let Run { stdout, .. } = collect(spawned.events).await;
    assert!(stdout == [first, second].concat(), "{} bytes", stdout.len());
}

#[tokio::test]
async fn a_write_that_nobody_reads_holds_up_neither_signal_nor_terminate() {
    let local = local();
    let script = "trap 'echo got' INT; echo ready; while :; do sleep 0.05; done";
    let mut spawned = local.spawn(sh(script).stdin(Stdin::Piped)).await.unwrap();
    read_until(&mut spawned.events, "ready").await;
    let mut write = spawned.control.write(vec![0; 1 << 20].into());
    assert!(local_support::poll_once(&mut write).is_none());
    spawned.control.signal(longarm::Signal::Interrupt).await.unwrap();
    read_until(&mut spawned.events, "got").await;
    assert!(spawned.control.terminate(Terminate::kill()).await.unwrap());
    assert!(matches!(write.await, Err(WriteError::StdinClosed)));
}

#[tokio::test]
async fn a_reader_that_is_gone_closes_the_input() {
    let local = local();
    let mut spawned = local.spawn(sh("exec <&-; echo closed; sleep 60").stdin(Stdin::Piped)).await.unwrap();
    read_until(&mut spawned.events, "closed").await;
    // A child that another test is making has all descriptors of this process until it executes its program, and so is a
    // reader for a moment.
    let refused = async {
        loop {
            if let Err(error) = spawned.control.write("x".into()).await {
                break error;
            }
            tokio::task::yield_now().await;
        }
    };
    let error = within(PATIENCE, refused).await.expect("nobody reads");
    assert!(matches!(error, WriteError::StdinClosed), "{error}");
    spawned.control.kill_now();
}

#[tokio::test]
async fn an_echo_comes_back_for_each_write() {
    let local = local();
    let mut spawned = local.spawn(cat()).await.unwrap();
    for number in 0..2000 {
        let line = format!("{number}\n");
        spawned.control.write(line.clone().into()).await.unwrap();
        assert_eq!(read_until(&mut spawned.events, "\n").await, line.as_bytes());
    }
    spawned.control.close_stdin().await.unwrap();
    assert!(collect_rest(spawned.events).await);
}

/// Whether a process whose output was read ends well.
async fn collect_rest(mut events: longarm::backend::EventSource) -> bool {
    let mut success = false;
    loop {
        match next(&mut events).await {
            Event::Exited(exited) => success = exited.status.success(),
            Event::Closed(_) => return success,
            _ => {}
        }
    }
}

/// Bytes in all blocks that the process has written in full.
#[cfg(target_os = "linux")]
fn written_to_stdout(pid: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap().parse().unwrap()
}

/// Bytes that wait in the pipe, and that it can hold.
#[cfg(target_os = "linux")]
fn pipe_on_stdout(pid: u32) -> (u64, u64) {
    use std::os::fd::AsRawFd as _;
    let pipe = std::fs::File::open(format!("/proc/{pid}/fd/1")).unwrap();
    let mut waiting: libc::c_int = 0;
    // SAFETY: the descriptor is open; the first request writes an integer, the second touches no memory.
    let (result, room) = unsafe {
        (
            libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut waiting),
            libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ),
        )
    };
    assert_eq!(result, 0);
    (u64::try_from(waiting).unwrap(), u64::try_from(room).unwrap())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_whose_events_are_not_read_is_paused_at_the_bound_and_loses_nothing() {
    let mut limits = OutputLimits::default();
    limits.retained_bytes = 256 << 10;
    let local = Local::new(LocalConfig::from_host().output(limits));
    // Blocks that a pipe takes as a whole or not at all, so that the system's count of them is exact.
    let request = ExecRequest::new(["dd", "if=/dev/zero", "bs=4096", "count=1024", "status=none"]).cwd("/tmp");
    let spawned = local.spawn(request).await.unwrap();
    let pid = spawned.control.os_id().unwrap();
    let mut patience = Patience::new(PATIENCE);
    let taken = loop {
        assert!(patience.is_left(), "it comes to stand");
        patience.sleep(Duration::from_millis(5)).await;
        // The supervisor has this thread, so that nothing is taken while we look.
        let before = written_to_stdout(pid);
        let (waiting, room) = pipe_on_stdout(pid);
        let written = written_to_stdout(pid);
        if before == written && waiting == room && written - waiting >= 256 << 10 {
            break written - waiting;
        }
    };
    assert!(taken < (256 << 10) + (64 << 10), "{taken} bytes: the bound, and what the last chunk is more");
    let Run { stdout, .. } = collect(spawned.events).await;
    assert_eq!(stdout.len(), 4 << 20);
}

#[tokio::test]
async fn dropping_the_events_discards_the_output_and_the_process_goes_on() {
    let local = local();
    let dir = tempfile::tempdir().unwrap();
    let spawned = local.spawn(sh("head -c 8M /dev/zero; touch done").cwd(dir.path())).await.unwrap();
    drop(spawned.events);
    let mut patience = Patience::new(PATIENCE);
    while !dir.path().join("done").exists() {
        assert!(patience.is_left(), "the process is not held up");
        patience.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn three_hundred_at_once_come_to_their_ends() {
    raise_descriptor_limit();
    let local = local();
    let runs = join_all((0..300).map(|number| run(&local, sh(&format!("echo {number}; exit {}", number % 7))))).await;
    for (number, run) in runs.iter().enumerate() {
        assert_eq!(run.stdout, format!("{number}\n").as_bytes());
        assert_eq!(run.status.code(), Some((number % 7) as i32));
    }
}

#[tokio::test]
async fn it_works_on_many_threads() {
    raise_descriptor_limit();
    tokio::task::spawn_blocking(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        runtime.block_on(async {
            let local = std::sync::Arc::new(local());
            let tasks = (0..100).map(|number| {
                let local = local.clone();
                tokio::spawn(async move { run(&local, sh(&format!("seq 1 {number}"))).await.stdout.len() })
            });
            let lengths = join_all(tasks).await;
            assert!(lengths.into_iter().enumerate().all(|(number, length)| {
                length.unwrap() == (1..=number).map(|line| line.to_string().len() + 1).sum::<usize>()
            }));
        });
    })
    .await
    .unwrap();
}
