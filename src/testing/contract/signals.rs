//! Interrupts and other signals.

use super::context::Context;
use crate::error::SignalError;
use crate::request::Signal;

cases! {"signals":
    an_interrupt_reaches_its_handler,
    an_interrupt_ends_a_process_without_a_handler,
    an_interrupt_reaches_the_whole_group,
    an_interrupt_after_the_exit_is_harmless,
    signals_are_sent_by_name [Signals],
    a_signal_that_only_a_status_can_hold_is_refused,
}

async fn an_interrupt_reaches_its_handler(cx: Context) {
    let mut watched = cx.watch(&["on-signal", &Signal::Interrupt.number().to_string(), "7"]).await;
    watched.until_stdout("ready\n").await;
    watched.process.interrupt().await.unwrap();
    assert_eq!(watched.read_to_end().await.code(), Some(7));
    assert_eq!(watched.stdout_text(), "ready\ngot\n");
}

async fn an_interrupt_ends_a_process_without_a_handler(cx: Context) {
    let mut watched = cx.watch(&["sleep"]).await;
    watched.until_stdout("ready\n").await;
    watched.process.interrupt().await.unwrap();
    assert_eq!(watched.read_to_end().await.wire_code(), 130);
}

async fn an_interrupt_reaches_the_whole_group(cx: Context) {
    let interrupt = Signal::Interrupt.number().to_string();
    let mut watched = cx.watch(&["on-signal-with-descendant", &interrupt, "7"]).await;
    watched.until_stdout("ready\n").await;
    let life = watched.life().await;
    watched.process.interrupt().await.unwrap();
    assert_eq!(watched.read_to_end().await.code(), Some(7), "the streams end since the descendant has ended too");
    cx.assert_gone(life).await;
}

async fn an_interrupt_after_the_exit_is_harmless(cx: Context) {
    let mut watched = cx.watch(&["exit", "0"]).await;
    watched.read_to_end().await;
    let late = watched.process.interrupt().await;
    assert!(matches!(late, Ok(()) | Err(SignalError::UnknownProcess(_))), "{late:?}");
}

async fn signals_are_sent_by_name(cx: Context) {
    for signal in [Signal::Hangup, Signal::Terminate, Signal::User1, Signal::User2] {
        let mut watched = cx.watch(&["on-signal", &signal.number().to_string(), "3"]).await;
        watched.until_stdout("ready\n").await;
        watched.process.signal(signal).await.unwrap();
        assert_eq!(watched.read_to_end().await.code(), Some(3), "{signal}");
    }
    let mut watched = cx.watch(&["sleep"]).await;
    watched.until_stdout("ready\n").await;
    watched.process.signal(Signal::Quit).await.unwrap();
    assert_eq!(watched.read_to_end().await.wire_code(), 128 + Signal::Quit.number());
}

async fn a_signal_that_only_a_status_can_hold_is_refused(cx: Context) {
    let mut watched = cx.watch(&["sleep"]).await;
    watched.until_stdout("ready\n").await;
    let refused = watched.process.signal(Signal::Other(63)).await;
    assert!(matches!(refused, Err(SignalError::Unsupported(_) | SignalError::InvalidRequest(_))), "{refused:?}");
    watched.process.kill().await.unwrap();
    assert_eq!(watched.read_to_end().await.wire_code(), 137);
}
