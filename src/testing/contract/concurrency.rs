//! Many processes at a time.

use super::context::{Context, Watched};
use crate::request::Stdin;

cases! {"concurrency":
    many_processes_keep_their_output_apart,
    a_reader_that_stops_holds_up_nobody_else [Backpressure],
    many_processes_come_and_go,
}

async fn many_processes_keep_their_output_apart(cx: Context) {
    let runs: Vec<_> = (0..32_u32)
        .map(|number| {
            let environment = cx.environment().clone();
            let request = cx.child(&["line"]).stdin(Stdin::Piped);
            tokio::spawn(async move {
                let mut watched = Watched::new(environment.spawn(request).await.unwrap());
                watched.write(format!("{number}\n")).await;
                assert!(watched.read_to_end().await.success());
                assert_eq!(watched.stdout_text(), format!("line {number}\n"));
            })
        })
        .collect();
    for run in runs {
        run.await.unwrap();
    }
}

async fn a_reader_that_stops_holds_up_nobody_else(cx: Context) {
    let mut stopped = cx.watch(&["emit", "8000000", "0"]).await;
    stopped.step().await;
    for _ in 0..3 {
        let mut other = cx.watch(&["emit", "3000000", "1000"]).await;
        assert!(other.read_to_end().await.success());
        assert_eq!((other.stdout.len(), other.stderr.len()), (3_000_000, 1000));
    }
    assert!(stopped.read_to_end().await.success());
    assert_eq!(stopped.stdout.len(), 8_000_000);
}

async fn many_processes_come_and_go(cx: Context) {
    for number in 0..50_u32 {
        let mut watched = cx.watch(&["say-and-exit", &number.to_string(), "0"]).await;
        watched.read_to_end().await;
        assert_eq!(watched.stdout_text(), format!("{number}\n"));
    }
}
