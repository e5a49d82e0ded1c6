//! Processes on terminals, on this machine.
#![cfg(all(unix, feature = "pty"))]

mod local_support;

use futures_util::future::join_all;
use local_support::{Run, local, next, read_until, run, sh};
use longarm::ExecRequest;
use longarm::Signal;
use longarm::backend::{EventSource, ExecBackend, Terminate};
use longarm::error::{InvalidRequest, SignalError, WriteError};
use longarm::event::{Event, OutputStream};
use longarm::request::TerminalSize;
use longarm::status::ExitStatus;

fn on_terminal(script: &str) -> ExecRequest {
    sh(script).terminal(TerminalSize::default())
}

/// Reads to the end: the remaining output, and the status.
async fn rest(mut events: EventSource) -> (Vec<u8>, ExitStatus) {
    let (mut bytes, mut status) = (Vec::new(), ExitStatus::unknown());
    loop {
        match next(&mut events).await {
            Event::Output(output) => bytes.extend_from_slice(&output.bytes),
            Event::Exited(exited) => status = exited.status,
            Event::Closed(closed) => {
                assert!(!closed.cut);
                return (bytes, status);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_tail_of_a_terminal_is_complete_every_time() {
    let local = local();
    let script = "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; printf END";
    let expected: String = (0..5000).map(|line| format!("line {line}\r\n")).collect::<String>() + "END";
    // Three at a time load the processor.
    for _ in 0..12 {
        let runs = (0..3).map(|_| run(&local, on_terminal(script)));
        for Run { pty, status, kinds, .. } in join_all(runs).await {
            assert!(
                pty == expected.as_bytes(),
                "{} bytes: {:?}",
                pty.len(),
                String::from_utf8_lossy(&pty[pty.len() - 40..])
            );
            assert!(status.success());
            assert_eq!(kinds.last().unwrap(), "closed");
        }
    }
}

#[tokio::test]
async fn large_output_of_a_terminal_is_complete() {
    let Run { pty, .. } = run(&local(), on_terminal("stty raw; seq 1 300000")).await;
    assert_eq!(pty.len(), 1_988_895);
    assert!(pty.ends_with(b"\n300000\n"));
}

#[tokio::test]
async fn it_is_a_terminal_of_the_size_asked_for_and_can_be_resized() {
    let local = local();
    let script = "trap 'stty size' WINCH; tty >/dev/null && stty size; while :; do sleep 0.05; done";
    let request = sh(script).terminal(TerminalSize { rows: 33, cols: 101 });
    let mut spawned = local.spawn(request).await.unwrap();
    read_until(&mut spawned.events, "33 101\r\n").await;
    spawned.control.resize(TerminalSize { rows: 50, cols: 7 }).await.unwrap();
    read_until(&mut spawned.events, "50 7\r\n").await;
    let zero = spawned.control.resize(TerminalSize { rows: 0, cols: 7 }).await;
    assert!(matches!(zero, Err(SignalError::InvalidRequest(InvalidRequest::TerminalSize { .. }))));
    assert!(spawned.control.terminate(Terminate::kill()).await.unwrap());
    let status = rest(spawned.events).await.1;
    assert_eq!(status.wire_code(), 137);
    spawned.control.resize(TerminalSize::default()).await.unwrap();

    let spawned = local.spawn(sh("sleep 60")).await.unwrap();
    let none = spawned.control.resize(TerminalSize::default()).await;
    assert!(matches!(none, Err(SignalError::NoTerminal(_))));
    spawned.control.kill_now();
}

#[tokio::test]
async fn input_is_echoed_and_the_end_of_file_character_ends_it() {
    let local = local();
    let mut spawned =
        local.spawn(ExecRequest::new(["cat"]).cwd("/tmp").terminal(TerminalSize::default())).await.unwrap();
    spawned.control.write("hello\n".into()).await.unwrap();
    // Once from the terminal, once from the program.
    assert_eq!(read_until(&mut spawned.events, "hello\r\nhello\r\n").await, b"hello\r\nhello\r\n");
    assert!(matches!(spawned.control.close_stdin().await, Err(WriteError::Unsupported(_))));
    spawned.control.write("\u{4}".into()).await.unwrap();
    assert!(rest(spawned.events).await.1.success());
}

#[tokio::test]
async fn an_interrupt_reaches_a_program_in_raw_mode() {
    let local = local();
    let script = "stty raw -echo; trap 'echo got; exit 7' INT; echo r; while :; do sleep 0.1; done";
    let mut spawned = local.spawn(on_terminal(script)).await.unwrap();
    read_until(&mut spawned.events, "r").await;
    spawned.control.signal(Signal::Interrupt).await.unwrap();
    let (bytes, status) = rest(spawned.events).await;
    assert!(String::from_utf8_lossy(&bytes).contains("got"));
    assert_eq!(status.code(), Some(7));
}

#[tokio::test]
async fn an_interrupt_reaches_the_foreground_job_and_not_the_shell() {
    let local = local();
    // An interactive shell puts each job into a group of its own.
    let request = ExecRequest::new(["bash", "--norc", "--noprofile", "-i"]).cwd("/tmp").env("PS1", "$ ");
    let mut spawned = local.spawn(request.terminal(TerminalSize::default())).await.unwrap();
    let script = "sh -c 'trap \"echo job got it; exit 3\" INT; echo job $((1+1)) runs; while :; do sleep 0.05; done'\n";
    spawned.control.write(script.into()).await.unwrap();
    read_until(&mut spawned.events, "job 2 runs").await;
    spawned.control.signal(Signal::Interrupt).await.unwrap();
    read_until(&mut spawned.events, "job got it\r\n").await;
    spawned.control.write("echo shell lives; exit 9\n".into()).await.unwrap();
    assert_eq!(rest(spawned.events).await.1.code(), Some(9));
}

#[tokio::test]
async fn the_end_of_a_session_leader_hangs_up_what_it_left() {
    let local = local();
    let Run { pty, status, .. } = run(&local, on_terminal("sleep 300 & echo left; exit 2")).await;
    assert_eq!(pty, b"left\r\n");
    assert_eq!(status.code(), Some(2));
}

#[tokio::test]
async fn six_hundred_terminals_work_at_once_without_a_thread_each() {
    local_support::raise_descriptor_limit();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let local = local();
    let cat = || ExecRequest::new(["cat"]).cwd("/tmp").terminal(TerminalSize::default());
    let mut all = Vec::new();
    for spawned in join_all((0..600).map(|_| local.spawn(cat()))).await {
        all.push(spawned.unwrap());
    }
    let before = threads();
    for (number, spawned) in all.iter().enumerate() {
        spawned.control.write(format!("{number}\n").into()).await.unwrap();
    }
    for (number, spawned) in all.iter_mut().enumerate() {
        let expected = format!("{number}\r\n{number}\r\n");
        assert_eq!(read_until(&mut spawned.events, &expected).await, expected.as_bytes());
    }
    // Other tests of this program have a few threads, too.
    assert!(before < 100 && threads() < 100, "{before} and {} threads", threads());
    for spawned in &all {
        spawned.control.kill_now();
    }
    for spawned in all {
        let mut events = spawned.events;
        while !matches!(next(&mut events).await, Event::Closed(_)) {}
    }
}

#[tokio::test]
async fn the_stream_of_a_terminal_has_its_own_name() {
    let local = local();
    let mut spawned = local.spawn(on_terminal("echo x; echo y >&2")).await.unwrap();
    let Event::Output(output) = next(&mut spawned.events).await else { panic!("output comes first") };
    assert_eq!(output.stream, OutputStream::Pty);
    let (more, _) = rest(spawned.events).await;
    assert_eq!([output.bytes.to_vec(), more].concat(), b"x\r\ny\r\n");
}

#[tokio::test]
async fn a_terminal_takes_more_input_than_it_can_hold() {
    let local = local();
    let request = on_terminal("stty raw -echo; echo ready; sleep 0.3; head -c 200000 | wc -c");
    let mut spawned = local.spawn(request).await.unwrap();
    read_until(&mut spawned.events, "ready").await;
    spawned.control.write(vec![b'x'; 200_000].into()).await.unwrap();
    let (bytes, status) = rest(spawned.events).await;
    assert_eq!(String::from_utf8_lossy(&bytes).trim(), "200000");
    assert!(status.success());
}
