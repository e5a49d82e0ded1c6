//! Terminals.

use super::context::{Context, Watched};
use crate::error::{SignalError, WriteError};
use crate::request::{Signal, TerminalSize};

cases! {"pty":
    all_three_streams_are_one_terminal [Terminal],
    a_terminal_has_24_rows_of_80_columns_by_default [Terminal],
    a_terminal_starts_with_the_size_asked_for [Terminal, Resize],
    a_resize_reaches_the_program [Terminal, Resize],
    a_resize_without_a_terminal_is_refused [Resize],
    a_size_with_a_zero_is_refused [Terminal, Resize],
    the_last_line_arrives [Terminal],
    input_is_echoed_and_read [Terminal],
    the_end_of_file_character_ends_the_input [Terminal],
    standard_input_of_a_terminal_cannot_be_closed [Terminal],
    the_interrupt_character_interrupts [Terminal],
    an_interrupt_reaches_a_program_in_raw_mode [Terminal],
    the_end_of_the_terminal_is_no_error [Terminal],
}

async fn terminal(cx: &Context, args: &[&str], size: TerminalSize) -> Watched {
    Watched::new(cx.spawn(cx.child(args).terminal(size)).await)
}

async fn all_three_streams_are_one_terminal(cx: Context) {
    let mut watched = terminal(&cx, &["terminal"], TerminalSize::default()).await;
    assert!(watched.read_to_end().await.success());
    assert_eq!(watched.pty_text(), "true true true\r\n");
    let mut watched = terminal(&cx, &["complain", "on stderr"], TerminalSize::default()).await;
    watched.read_to_end().await;
    assert_eq!(watched.pty_text(), "on stderr\r\n");
    assert_eq!((watched.stdout.len(), watched.stderr.len()), (0, 0));
}

async fn a_terminal_has_24_rows_of_80_columns_by_default(cx: Context) {
    let mut watched = terminal(&cx, &["sizes"], TerminalSize::default()).await;
    watched.until_pty("24x80\r\n").await;
}

async fn a_terminal_starts_with_the_size_asked_for(cx: Context) {
    let mut watched = terminal(&cx, &["sizes"], TerminalSize { rows: 7, cols: 213 }).await;
    watched.until_pty("7x213\r\n").await;
}

async fn a_resize_reaches_the_program(cx: Context) {
    let mut watched = terminal(&cx, &["sizes"], TerminalSize::default()).await;
    watched.until_pty("24x80\r\n").await;
    watched.process.resize(TerminalSize { rows: 50, cols: 120 }).await.unwrap();
    watched.until_pty("50x120\r\n").await;
}

async fn a_resize_without_a_terminal_is_refused(cx: Context) {
    let watched = cx.watch(&["sleep"]).await;
    let refused = watched.process.resize(TerminalSize::default()).await;
    assert!(matches!(refused, Err(SignalError::NoTerminal(_))), "{refused:?}");
}

async fn a_size_with_a_zero_is_refused(cx: Context) {
    let zero = TerminalSize { rows: 0, cols: 80 };
    let refused = cx.environment().spawn(cx.child(&["sleep"]).terminal(zero)).await;
    assert!(refused.is_err(), "{refused:?}");
    let watched = terminal(&cx, &["sleep"], TerminalSize::default()).await;
    let refused = watched.process.resize(zero).await;
    assert!(matches!(refused, Err(SignalError::InvalidRequest(_))), "{refused:?}");
}

async fn the_last_line_arrives(cx: Context) {
    let mut watched = terminal(&cx, &["terminal-lines", "5000"], TerminalSize::default()).await;
    assert!(watched.read_to_end().await.success());
    let text = watched.pty_text();
    assert!(text.ends_with("line 4999\r\nEND"), "{watched}");
    assert_eq!(text.lines().count(), 5001);
}

async fn input_is_echoed_and_read(cx: Context) {
    let mut watched = terminal(&cx, &["line"], TerminalSize::default()).await;
    watched.write("hello\n").await;
    assert!(watched.read_to_end().await.success());
    assert_eq!(watched.pty_text(), "hello\r\nline hello\r\n");
}

async fn the_end_of_file_character_ends_the_input(cx: Context) {
    let mut watched = terminal(&cx, &["count"], TerminalSize::default()).await;
    watched.write("four\n").await;
    watched.write("\x04").await;
    assert!(watched.read_to_end().await.success());
    assert!(watched.pty_text().ends_with("5\r\n"), "{watched}");
}

async fn standard_input_of_a_terminal_cannot_be_closed(cx: Context) {
    let watched = terminal(&cx, &["sleep"], TerminalSize::default()).await;
    let refused = watched.process.close_stdin().await;
    assert!(matches!(refused, Err(WriteError::Unsupported(_))), "{refused:?}");
}

async fn the_interrupt_character_interrupts(cx: Context) {
    let interrupt = Signal::Interrupt.number().to_string();
    let mut watched = terminal(&cx, &["on-signal", &interrupt, "7"], TerminalSize::default()).await;
    watched.until_pty("ready\r\n").await;
    watched.write("\x03").await;
    assert_eq!(watched.read_to_end().await.code(), Some(7));
}

async fn an_interrupt_reaches_a_program_in_raw_mode(cx: Context) {
    let interrupt = Signal::Interrupt.number().to_string();
    let mut watched = terminal(&cx, &["raw-on-signal", &interrupt, "7"], TerminalSize::default()).await;
    watched.until_pty("ready\n").await;
    watched.process.interrupt().await.unwrap();
    assert_eq!(watched.read_to_end().await.code(), Some(7));
    assert_eq!(watched.pty_text(), "ready\ngot\n");
}

async fn the_end_of_the_terminal_is_no_error(cx: Context) {
    let mut watched = terminal(&cx, &["exit", "5"], TerminalSize::default()).await;
    assert_eq!(watched.read_to_end().await.code(), Some(5));
    assert_eq!(watched.pty_text(), "");
}
