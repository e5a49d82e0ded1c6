//! How the end of a process is told.

use super::context::Context;
use crate::request::Signal;

cases! {"exit":
    exit_codes_are_told_exactly,
    a_death_by_signal_is_told_from_an_exit_code [ExitFacts],
    a_death_by_signal_is_128_plus_its_number_on_the_wire,
    the_exit_comes_after_the_output_that_preceded_it,
    a_process_that_closes_its_streams_runs_on,
    wait_gives_the_same_answer_again,
}

async fn exit_codes_are_told_exactly(cx: Context) {
    for code in [0, 1, 42, 127, 255] {
        let status = cx.watch(&["exit", &code.to_string()]).await.read_to_end().await;
        assert_eq!(status.code(), Some(code));
        assert_eq!(status.success(), code == 0);
    }
}

async fn a_death_by_signal_is_told_from_an_exit_code(cx: Context) {
    let killed = cx.watch(&["die", &Signal::Kill.number().to_string()]).await.read_to_end().await;
    assert_eq!((killed.code(), killed.signal()), (None, Some(Signal::Kill)));
    let exited = cx.watch(&["exit", "137"]).await.read_to_end().await;
    assert_eq!((exited.code(), exited.signal()), (Some(137), None));
}

async fn a_death_by_signal_is_128_plus_its_number_on_the_wire(cx: Context) {
    for signal in [Signal::Terminate, Signal::Kill, Signal::User1] {
        let status = cx.watch(&["die", &signal.number().to_string()]).await.read_to_end().await;
        assert_eq!(status.wire_code(), 128 + signal.number());
    }
}

async fn the_exit_comes_after_the_output_that_preceded_it(cx: Context) {
    let mut watched = cx.watch(&["say-and-exit", "hello", "3"]).await;
    assert_eq!(watched.read_to_end().await.code(), Some(3));
    assert_eq!((watched.stdout_text(), watched.stderr.len()), ("hello\n".into(), 0));
}

async fn a_process_that_closes_its_streams_runs_on(cx: Context) {
    let mut watched = cx.watch_piped(&["close-streams", "9"]).await;
    watched.write("go on\n").await;
    assert_eq!(watched.read_to_end().await.code(), Some(9));
}

async fn wait_gives_the_same_answer_again(cx: Context) {
    let mut process = cx.spawn(cx.child(&["say-and-exit", "hello", "7"])).await;
    for _ in 0..2 {
        assert_eq!(process.wait().await.unwrap().code(), Some(7));
    }
}
