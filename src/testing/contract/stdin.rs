//! Standard input: order, end of file, and nobody else holding it open.

use bytes::Bytes;

use super::context::{Context, Watched};
use crate::backend::Terminate;
use crate::collect::CollectLimits;
use crate::error::WriteError;
use crate::request::Stdin;

cases! {"stdin":
    closing_ends_the_input_after_all_that_was_written [CloseStdin],
    reading_the_output_to_the_end_ends_the_input [CloseStdin],
    what_was_written_is_read_in_order,
    a_place_that_cannot_close_the_input_says_so_at_once,
    writing_after_the_close_says_that_it_is_closed [CloseStdin],
    without_a_pipe_the_input_is_empty_and_writes_are_refused,
    no_other_process_holds_the_pipe_open [CloseStdin],
    a_dropped_write_is_applied_once [CloseStdin],
    a_write_after_the_exit_is_answered,
    a_blocked_write_delays_neither_the_end_nor_other_processes,
}

async fn closing_ends_the_input_after_all_that_was_written(cx: Context) {
    let mut watched = cx.watch_piped(&["count"]).await;
    for _ in 0..16 {
        watched.write(vec![b'x'; 64 << 10]).await;
    }
    watched.process.close_stdin().await.unwrap();
    assert!(watched.read_to_end().await.success());
    assert_eq!(watched.stdout_text(), "1048576\n");
}

async fn reading_the_output_to_the_end_ends_the_input(cx: Context) {
    let process = cx.spawn(cx.child(&["cat"]).stdin(Stdin::Piped)).await;
    // More than the pipes hold, so that the input ends only if the output is taken meanwhile.
    let input = vec![b'x'; 1 << 20];
    let handle = process.handle();
    let (written, output) = tokio::join!(biased; handle.write(input), process.output(CollectLimits::default()));
    written.unwrap();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout.total_bytes, 1 << 20);
}

async fn what_was_written_is_read_in_order(cx: Context) {
    let mut watched = cx.watch_piped(&["cat"]).await;
    let mut expected = String::new();
    for line in 0..200 {
        expected.push_str(&format!("{line}\n"));
        watched.write(format!("{line}\n")).await;
    }
    watched.write("last\n").await;
    watched.until_stdout("last\n").await;
    assert_eq!(watched.stdout_text(), expected + "last\n");
}

async fn a_place_that_cannot_close_the_input_says_so_at_once(cx: Context) {
    let mut watched = cx.watch_piped(&["count"]).await;
    watched.write("12345").await;
    match watched.process.close_stdin().await {
        Ok(()) => {
            assert!(watched.read_to_end().await.success());
            assert_eq!(watched.stdout_text(), "5\n");
        }
        Err(error) => assert!(matches!(error, WriteError::Unsupported(_)), "{error:?}"),
    }
}

async fn writing_after_the_close_says_that_it_is_closed(cx: Context) {
    let mut watched = cx.watch_piped(&["cat"]).await;
    watched.process.close_stdin().await.unwrap();
    let late = watched.process.write("late").await;
    assert!(matches!(late, Err(WriteError::StdinClosed)), "{late:?}");
    let again = watched.process.close_stdin().await;
    assert!(matches!(again, Err(WriteError::StdinClosed)), "{again:?}");
    assert!(watched.read_to_end().await.success());
    assert_eq!(watched.stdout, b"");
}

async fn without_a_pipe_the_input_is_empty_and_writes_are_refused(cx: Context) {
    let mut watched = cx.watch(&["count"]).await;
    let refused = watched.process.write("x").await;
    assert!(matches!(refused, Err(WriteError::StdinClosed)), "{refused:?}");
    assert!(watched.read_to_end().await.success());
    assert_eq!(watched.stdout_text(), "0\n");
}

async fn no_other_process_holds_the_pipe_open(cx: Context) {
    let mut reader = cx.watch_piped(&["count"]).await;
    let others: Vec<_> = (0..20)
        .map(|_| {
            let environment = cx.environment().clone();
            let request = cx.child(&["sleep"]).stdin(Stdin::Piped);
            tokio::spawn(async move { environment.spawn(request).await })
        })
        .collect();
    let mut second = cx.watch_piped(&["count"]).await;
    let mut running = Vec::new();
    for other in others {
        let mut other = Watched::new(other.await.unwrap().unwrap());
        other.until_stdout("ready\n").await;
        running.push(other);
    }
    for watched in [&mut reader, &mut second] {
        watched.process.close_stdin().await.unwrap();
        assert!(watched.read_to_end().await.success(), "it sees the end of its input while the others run");
    }
    for other in &running {
        assert!(other.exited.is_none());
    }
}

async fn a_dropped_write_is_applied_once(cx: Context) {
    let mut watched = cx.watch_piped(&["count"]).await;
    {
        let mut write = std::pin::pin!(watched.process.write(vec![b'x'; 1000]));
        tokio::select! {
            biased;
            result = &mut write => result.unwrap(),
            () = std::future::ready(()) => {}
        }
    }
    watched.write("y").await;
    watched.process.close_stdin().await.unwrap();
    watched.read_to_end().await;
    assert_eq!(watched.stdout_text(), "1001\n");
}

async fn a_write_after_the_exit_is_answered(cx: Context) {
    let mut watched = cx.watch_piped(&["exit", "0"]).await;
    watched.read_to_end().await;
    let late = watched.process.write("late").await;
    assert!(matches!(late, Ok(()) | Err(WriteError::StdinClosed | WriteError::UnknownProcess(_))), "{late:?}");
}

async fn a_blocked_write_delays_neither_the_end_nor_other_processes(cx: Context) {
    let mut stuck = cx.watch_piped(&["read-nothing"]).await;
    stuck.until_stdout("ready\n").await;
    let handle = stuck.process.handle();
    // More than pipes and queues hold, so that the last of them cannot have been taken.
    let block = Bytes::from(vec![b'x'; 1 << 20]);
    let writer = tokio::spawn(async move {
        for _ in 0..8 {
            handle.write(block.clone()).await?;
        }
        Ok::<_, WriteError>(())
    });
    let mut other = cx.watch_piped(&["line"]).await;
    other.write("through\n").await;
    other.read_to_end().await;
    assert_eq!(other.stdout_text(), "line through\n");
    assert!(stuck.process.terminate_with(Terminate::kill()).await.unwrap());
    assert_eq!(stuck.read_to_end().await.wire_code(), 137);
    // Whether the queue took the bytes or refused them in the end, the writer does not hang.
    let _ = writer.await.unwrap();
}
