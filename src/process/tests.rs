use std::future::Future;

use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot as signal;

use super::*;
use crate::environment::Environment;
use crate::error::{Disconnected, Sent};
use crate::event::OutputStream;
use crate::request::{ExecRequest, Stdin};
use crate::testing::fake::{Action, FakeBackend, FakeChild};

/// Spawns `program` once, as a process.
async fn spawn<F, R>(program: F) -> (FakeBackend, Process)
where
    F: FnOnce(FakeChild) -> R + Send + 'static,
    R: Future<Output = ExitStatus> + Send + 'static,
{
    let program = Mutex::new(Some(program));
    let backend = FakeBackend::new(move |_, child| {
        let program = program.lock().unwrap().take().expect("spawned once");
        program(child)
    });
    let request = ExecRequest::new(["program"]).stdin(Stdin::Piped).stop_grace(Duration::from_secs(7));
    let process = Environment::with_backend(Arc::new(backend.clone())).spawn(request).await.unwrap();
    (backend, process)
}

/// Every handle can be used from any task.
const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    const fn send<T: Send>() {}
    send_and_sync::<Process>();
    send_and_sync::<ProcessHandle>();
    send::<Events>();
    send::<ProcessStdin>();
};

fn actions(backend: &FakeBackend) -> Vec<Action> {
    backend.calls().into_iter().skip(1).map(|call| call.action).collect()
}

fn bytes(event: Option<Event>) -> Bytes {
    match event {
        Some(Event::Output(output)) => output.bytes,
        other => panic!("no output: {other:?}"),
    }
}

#[tokio::test]
async fn exit_is_reported_while_a_descendant_holds_the_streams() {
    let (release, released) = signal::channel::<()>();
    let (_backend, mut process) = spawn(|child| async move {
        let output = child.events();
        tokio::spawn(async move {
            released.await.unwrap();
            output.output(OutputStream::Stdout, "late").await;
        });
        child.stdout("early").await;
        ExitStatus::exited(5)
    })
    .await;
    assert_eq!(process.wait().await.unwrap().code(), Some(5));
    assert_eq!(process.wait().await.unwrap().code(), Some(5), "the answer stays the same");
    release.send(()).unwrap();
    assert_eq!(bytes(process.next_event().await.unwrap()), "late", "what came before the exit was discarded");
    assert!(matches!(process.next_event().await.unwrap(), Some(Event::Closed(_))));
    assert!(process.next_event().await.unwrap().is_none());
    assert_eq!(process.wait().await.unwrap().code(), Some(5));
}

#[tokio::test]
async fn a_dropped_wait_loses_nothing_but_output() {
    let (exit, exiting) = signal::channel::<()>();
    let (_backend, mut process) = spawn(|_child| async move {
        exiting.await.unwrap();
        ExitStatus::exited(0)
    })
    .await;
    tokio::select! {
        biased;
        _ = process.wait() => panic!("it has not ended"),
        () = std::future::ready(()) => {}
    }
    exit.send(()).unwrap();
    assert!(process.wait().await.unwrap().success());
}

#[tokio::test]
async fn wait_follows_events_that_were_taken_and_takes_over_when_they_are_dropped() {
    let (_backend, mut process) = spawn(|child| async move {
        child.stdout("1").await;
        child.stdout("2").await;
        ExitStatus::exited(0)
    })
    .await;
    let mut events = process.take_events().unwrap();
    assert!(process.take_events().is_none());
    assert!(matches!(process.next_event().await, Err(WaitError::EventsTaken)));
    assert!(matches!(process.collect(CollectLimits::default()).await, Err(WaitError::EventsTaken)));
    {
        let mut wait = std::pin::pin!(process.wait());
        tokio::select! {
            biased;
            _ = &mut wait => panic!("the exit was not passed"),
            event = events.next() => assert_eq!(bytes(event.unwrap()), "1"),
        }
        drop(events);
        assert!(wait.await.unwrap().success());
    }
    assert!(matches!(process.next_event().await.unwrap(), Some(Event::Closed(_))), "the events are back");
}

#[tokio::test]
async fn wait_returns_when_another_task_passes_the_exit() {
    let (_backend, mut process) = spawn(|child| async move {
        child.stdout("1").await;
        ExitStatus::exited(4)
    })
    .await;
    let mut events = process.take_events().unwrap();
    let reader = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(event) = StreamExt::next(&mut events).await {
            seen.push(event.unwrap());
        }
        seen
    });
    assert_eq!(process.wait().await.unwrap().code(), Some(4));
    assert_eq!(process.handle().exit_status().and_then(|status| status.code()), Some(4));
    assert_eq!(reader.await.unwrap().len(), 3, "wait takes nothing from the reader");
}

#[tokio::test]
async fn events_outlive_their_process() {
    let (backend, mut process) = spawn(|child| async move {
        child.stdout("1").await;
        std::future::pending().await
    })
    .await;
    let mut events = process.take_events().unwrap();
    assert_eq!(bytes(events.next().await.unwrap()), "1");
    drop(process);
    assert_eq!(actions(&backend), [Action::KillNow]);
    let exited = events.next().await.unwrap();
    assert!(matches!(exited, Some(Event::Exited(exited)) if exited.status.signal() == Some(Signal::Kill)));
}

#[tokio::test(start_paused = true)]
async fn collecting_waits_for_late_output_within_its_bound_and_the_events_go_on() {
    let (release, released) = signal::channel::<()>();
    let (_backend, mut process) = spawn(|child| async move {
        let output = child.events();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            output.output(OutputStream::Stdout, " in time").await;
            released.await.unwrap();
            output.output(OutputStream::Stdout, "too late").await;
        });
        child.stdout("at once").await;
        ExitStatus::exited(0)
    })
    .await;
    let begun = tokio::time::Instant::now();
    let output = process.collect(CollectLimits::default()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    assert_eq!(output.stdout.to_text(), "at once in time");
    assert!(output.still_open);
    release.send(()).unwrap();
    assert_eq!(bytes(process.next_event().await.unwrap()), "too late");
}

#[tokio::test]
async fn collecting_does_not_wait_once_the_streams_have_ended() {
    let (_backend, process) = spawn(|child| async move {
        child.stderr("e").await;
        ExitStatus::exited(1)
    })
    .await;
    let output = process.output(CollectLimits::default().drain_timeout(Duration::MAX)).await.unwrap();
    assert!(!output.still_open);
    assert_eq!((output.status.code(), output.stderr.to_text()), (Some(1), "e".into()));
}

#[tokio::test(start_paused = true)]
async fn collecting_after_the_exit_was_met_has_the_status_and_its_own_time() {
    let (_backend, mut process) = spawn(|child| async move {
        let output = child.events();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            output.output(OutputStream::Pty, "late").await;
            std::future::pending::<()>().await;
        });
        ExitStatus::exited(6)
    })
    .await;
    process.wait().await.unwrap();
    let output = process.collect(CollectLimits::default()).await.unwrap();
    assert_eq!((output.status.code(), output.pty.to_text(), output.still_open), (Some(6), "late".into(), true));
}

#[tokio::test]
async fn an_error_ends_the_events_and_is_repeated() {
    let (_backend, mut process) = spawn(|child| async move {
        let lost = Disconnected { sent: Sent::Unknown, reason: "cut".into() };
        child.events().fail(lost.into()).await;
        std::future::pending().await
    })
    .await;
    for _ in 0..2 {
        assert!(matches!(process.next_event().await, Err(WaitError::Disconnected(_))));
        assert!(matches!(process.wait().await, Err(WaitError::Disconnected(_))));
    }
    let mut events = process.take_events().unwrap();
    assert!(StreamExt::next(&mut events).await.is_none(), "a stream gives its error once");
}

#[tokio::test]
async fn a_process_that_has_exited_or_was_detached_is_not_killed_by_its_drop() {
    let (backend, mut process) = spawn(|_| async { ExitStatus::exited(0) }).await;
    process.wait().await.unwrap();
    drop(process);
    assert_eq!(actions(&backend), []);

    let (backend, process) = spawn(|_| std::future::pending()).await;
    process.handle().detach().await.unwrap();
    drop(process);
    assert_eq!(actions(&backend), [Action::Detach]);
}

#[tokio::test]
async fn a_stop_has_the_grace_of_the_request_and_a_kill_none() {
    let (backend, process) = spawn(|child| async move {
        let mut signals = child.signals();
        while signals.recv().await.is_some() {}
        ExitStatus::exited(0)
    })
    .await;
    // The program has to be running to handle anything.
    tokio::task::yield_now().await;
    process.interrupt().await.unwrap();
    assert!(process.terminate().await.unwrap());
    assert!(process.kill().await.unwrap());
    let expected = [
        Action::Signal(Signal::Interrupt),
        Action::Terminate(Terminate::graceful(Duration::from_secs(7))),
        Action::Terminate(Terminate::kill()),
    ];
    assert_eq!(actions(&backend), expected);
}

#[tokio::test]
async fn standard_input_is_a_writer_that_closes_on_shutdown() {
    let (_backend, process) = spawn(|mut child| async move {
        let mut count = 0;
        while let Some(data) = child.read_stdin().await {
            count += data.len();
        }
        child.stdout(count.to_string()).await;
        ExitStatus::exited(0)
    })
    .await;
    let mut stdin = process.stdin();
    stdin.write_all(&vec![b'x'; 200_000]).await.unwrap();
    stdin.shutdown().await.unwrap();
    stdin.shutdown().await.unwrap();
    assert_eq!(stdin.write(b"x").await.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    process.stdin().shutdown().await.unwrap();
    assert!(matches!(process.close_stdin().await, Err(WriteError::StdinClosed)));
    assert_eq!(process.output(CollectLimits::default()).await.unwrap().stdout.to_text(), "200000");
}

#[tokio::test]
async fn output_closes_standard_input_and_delivers_what_was_written() {
    let (_backend, process) = spawn(|mut child| async move {
        while let Some(data) = child.read_stdin().await {
            child.stdout(data).await;
        }
        ExitStatus::exited(0)
    })
    .await;
    process.write("hi").await.unwrap();
    let output = process.output(CollectLimits::default()).await.unwrap();
    assert_eq!(output.stdout.to_text(), "hi");
}

#[tokio::test]
async fn try_wait_does_not_wait_and_sees_the_exit() {
    let (exit, exiting) = signal::channel::<()>();
    let (_backend, mut process) = spawn(|child| async move {
        child.stdout("discarded").await;
        exiting.await.unwrap();
        ExitStatus::exited(3)
    })
    .await;
    assert_eq!(process.try_wait().unwrap(), None);
    exit.send(()).unwrap();
    let status = loop {
        match process.try_wait().unwrap() {
            Some(status) => break status,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(status.code(), Some(3));
    assert_eq!(process.try_wait().unwrap(), Some(status), "the answer stays the same");
}

#[tokio::test]
async fn a_handle_waits_for_whoever_follows_the_events() {
    let (_backend, mut process) = spawn(|_child| async { ExitStatus::exited(4) }).await;
    let handle = process.handle();
    let waiting = tokio::spawn(async move { handle.wait().await });
    process.wait().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().code(), Some(4));
}

#[tokio::test]
async fn a_handle_does_not_wait_for_events_that_nobody_follows() {
    let (_backend, process) = spawn(|_child| std::future::pending()).await;
    let handle = process.handle();
    drop(process);
    assert!(matches!(handle.wait().await, Err(WaitError::Closed)));
}

/// Has a process yield these events instead of its own.
fn with_events(process: &mut Process, events: impl futures_core::Stream<Item = Event> + Send + 'static) {
    let source = Source::new(Box::pin(events.map(Ok)), Arc::clone(&process.handle.shared));
    process.slot = Mutex::new(Slot::Held(source));
}

fn output(seq: u64) -> Event {
    Event::Output(crate::event::Output { seq, stream: OutputStream::Stdout, bytes: "y\n".into() })
}

fn exited(seq: u64) -> Event {
    Event::Exited(crate::event::Exited { seq, status: ExitStatus::exited(0), sandbox_denied: false })
}

#[tokio::test]
async fn a_descendant_that_writes_faster_than_anybody_reads_does_not_keep_collect() {
    let (_backend, mut process) = spawn(|_child| async { ExitStatus::exited(0) }).await;
    let begun = std::time::Instant::now();
    let flood = futures_util::stream::iter(2..).map(move |seq| {
        assert!(begun.elapsed() < Duration::from_secs(60), "it goes on for ever");
        output(seq)
    });
    with_events(&mut process, futures_util::stream::iter([exited(1)]).chain(flood));
    let limits = CollectLimits::default().head_bytes(10).tail_bytes(10).drain_timeout(Duration::from_millis(20));
    let collected = process.collect(limits).await.unwrap();
    assert!(collected.still_open && collected.status.success());
    assert!(collected.stdout.total_bytes > 0);
}

#[tokio::test]
async fn what_has_come_in_time_is_collected_without_a_wait() {
    let (_backend, mut process) = spawn(|_child| async { ExitStatus::exited(0) }).await;
    let closed = Event::Closed(crate::event::Closed { seq: 3, totals: None, cut: false });
    with_events(&mut process, futures_util::stream::iter([exited(1), output(2), closed]));
    let collected = process.collect(CollectLimits::default().drain_timeout(Duration::ZERO)).await.unwrap();
    assert!(!collected.still_open);
    assert_eq!(collected.stdout.head, b"y\n");
}
