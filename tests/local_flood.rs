//! Floods of output on several threads: nobody may wait for a wake-up that never comes.
#![cfg(unix)]

mod local_support;

use std::time::Duration;

use futures_util::StreamExt;
use local_support::{PATIENCE, Patience, collect, next, sh, within};
use longarm::backend::ExecBackend;
use longarm::backend::local::{Local, LocalConfig};
use longarm::config::OutputLimits;
use longarm::event::{Event, OutputStream};

/// So small that a reader is at the bound all the time.
fn narrow(retained_bytes: usize, chunk_bytes: usize) -> Local {
    let mut limits = OutputLimits::default();
    (limits.retained_bytes, limits.chunk_bytes) = (retained_bytes, chunk_bytes);
    Local::new(LocalConfig::from_host().output(limits))
}

/// How a reader takes its time.
#[derive(Clone, Copy, Debug)]
enum Pace {
    Full,
    /// Gives others a turn after each event.
    Yields,
    /// Works on each event for a while.
    Busy(Duration),
    /// Sleeps after so many events.
    Naps(u32),
}

impl Pace {
    async fn rest(self, count: u32) {
        match self {
            Self::Full => {}
            Self::Yields => tokio::task::yield_now().await,
            Self::Busy(time) => {
                let begun = std::time::Instant::now();
                while begun.elapsed() < time {
                    std::hint::spin_loop();
                }
            }
            Self::Naps(every) if count.is_multiple_of(every) => tokio::time::sleep(Duration::from_millis(1)).await,
            Self::Naps(_) => {}
        }
    }
}

/// Floods both streams, and reads them at this pace; returns how much came on each.
async fn flood(local: &Local, bytes: usize, pace: Pace) -> (usize, usize) {
    let script = format!("head -c {bytes} /dev/zero & head -c {bytes} /dev/zero >&2; wait");
    let mut events = local.spawn(sh(&script)).await.unwrap().events;
    let (mut stdout, mut stderr, mut count) = (0, 0, 0);
    loop {
        let next = within(PATIENCE, events.next()).await;
        match next.unwrap_or_else(|_| panic!("stuck after {stdout} and {stderr} bytes at {pace:?}")) {
            Some(Ok(Event::Output(output))) if output.stream == OutputStream::Stdout => stdout += output.bytes.len(),
            Some(Ok(Event::Output(output))) => stderr += output.bytes.len(),
            Some(Ok(_)) => {}
            Some(Err(error)) => panic!("{error}"),
            None => return (stdout, stderr),
        }
        count += 1;
        pace.rest(count).await;
    }
}

const PACES: [Pace; 5] = [
    Pace::Full,
    Pace::Yields,
    Pace::Busy(Duration::from_micros(5)),
    Pace::Busy(Duration::from_micros(50)),
    Pace::Naps(20),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn floods_on_both_streams_reach_readers_of_every_pace() {
    const BYTES: usize = 2 << 20;
    for (retained_bytes, chunk_bytes) in [(16 << 10, 4 << 10), (10_000, 1_000), (64 << 10, 64 << 10)] {
        let local = std::sync::Arc::new(narrow(retained_bytes, chunk_bytes));
        let readers = PACES.map(|pace| {
            let local = std::sync::Arc::clone(&local);
            tokio::spawn(async move { flood(&local, BYTES, pace).await })
        });
        for reader in readers {
            assert_eq!(reader.await.unwrap(), (BYTES, BYTES));
        }
        local.close().await;
    }
}

/// The reader on the thread of the test, its supervisor on another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_flood_reaches_a_reader_on_another_thread() {
    let local = narrow(8 << 10, 1 << 10);
    for pace in PACES {
        assert_eq!(flood(&local, 1 << 20, pace).await, (1 << 20, 1 << 20));
    }
    local.close().await;
}

#[tokio::test]
async fn what_floods_on_after_the_exit_goes_on_when_nobody_reads() {
    let dir = tempfile::tempdir().unwrap();
    let done = dir.path().join("done");
    // Always more than one look at the exit takes.
    let script = format!("(head -c 40000000 /dev/zero; echo > '{}') & exit 0", done.display());
    let local = narrow(64 << 10, 512);
    let spawned = local.spawn(sh(&script)).await.unwrap();
    drop(spawned.events);
    within(PATIENCE, async {
        while !done.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it is not held up");
    local.close().await;
}

#[tokio::test]
async fn what_was_held_when_the_process_ended_arrives() {
    let local = narrow(4 << 10, 1 << 10);
    for _ in 0..20 {
        let spawned = local.spawn(sh("head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2")).await.unwrap();
        // It has ended long before the first look.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let run = collect(spawned.events).await;
        assert_eq!((run.stdout.len(), run.stderr.len()), (60_000, 60_000));
    }
    local.close().await;
}

#[tokio::test]
async fn a_flood_on_one_stream_leaves_room_for_the_other() {
    let dir = tempfile::tempdir().unwrap();
    for (name, flood, rare) in [("stdout", "yes", "echo rare >&2"), ("stderr", "yes >&2", "echo rare")] {
        let written = dir.path().join(name);
        let local = narrow(4 << 10, 1 << 10);
        let script = format!("{flood} & {rare}; touch '{}'; wait", written.display());
        let mut events = local.spawn(sh(&script)).await.unwrap().events;
        within(PATIENCE, async {
            while !written.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("it is written");
        for count in 0.. {
            assert!(count < 100, "what came on the other stream is not read while {name} floods");
            match next(&mut events).await {
                Event::Output(output) if &output.bytes[..] == b"rare\n" => break,
                Event::Output(_) => {}
                other => panic!("{other:?}"),
            }
        }
        local.close().await;
    }
}

#[tokio::test]
async fn what_was_written_before_the_exit_comes_before_it_in_chunks_of_any_size() {
    for chunk_bytes in [64 << 10, 1000, 100] {
        let local = narrow(1 << 20, chunk_bytes);
        let spawned = local.spawn(sh("head -c 60000 /dev/zero")).await.unwrap();
        let stat = format!("/proc/{}/stat", spawned.control.os_id().unwrap());
        let mut patience = Patience::new(PATIENCE);
        // Without a turn for the supervisor, so that all is there at once.
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(patience.is_left(), "it ends");
            patience.block(Duration::from_millis(1));
        }
        let run = collect(spawned.events).await;
        assert_eq!(run.stdout.len(), 60_000);
        assert_eq!(run.kinds[run.kinds.len() - 2], "exited", "in chunks of {chunk_bytes}");
        local.close().await;
    }
}
