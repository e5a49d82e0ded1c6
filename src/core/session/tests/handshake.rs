use super::*;
use crate::error::{Disconnected, InvalidRequest, Sent, SpawnError, TransportError};
use crate::request::{Signal, TerminalSize};

#[test]
fn a_fresh_session_sends_the_handshake_and_first_requests_in_one_flight() {
    let mut harness = Harness::fresh();
    harness.submit(1, start(&request(1)));
    let sent = harness.sent();
    assert_eq!(sent[0]["id"], 1);
    assert_eq!(sent[0]["params"]["clientName"], "longarm");
    assert_eq!(sent[0]["params"]["longarm"]["features"].as_array().unwrap().len(), 12);
    assert_eq!(sent[1], json!({"method": "initialized", "params": {}}));
    assert_eq!((&sent[2]["id"], &sent[2]["method"]), (&json!(2), &json!("process/start")));
    assert_eq!(sent.len(), 3);
}

#[test]
fn a_resumed_session_waits_for_its_answer() {
    let mut harness = Harness::with_config(Mode::Resume("s".into()), ClientConfig::default());
    harness.submit(1, start(&request(1)));
    let initialize = harness.sent_one();
    assert_eq!(initialize["params"]["resumeSessionId"], "s");
    harness.receive(&json!({"id": 1, "result": initialize_result(&[])}));
    assert_eq!(harness.sent_methods(), ["initialized", "process/start"]);
}

#[test]
fn refusals_of_a_resume_are_told_apart() {
    let cases = [
        (-32600, "unknown session id old", "unknown session old"),
        (-32010, "no", "session old is attached to another connection"),
    ];
    for (code, said, expected) in cases {
        let mut harness = Harness::with_config(Mode::Resume("old".into()), ClientConfig::default());
        harness.sent();
        let token = harness.submit(1, Op::Status);
        harness.receive(&json!({"id": 1, "error": {"code": code, "message": said}}));
        let rejected = harness.rejected.as_ref().unwrap();
        assert_eq!(rejected.to_string(), expected);
        assert_eq!(rejected.is_retryable(), code == -32010);
        assert!(matches!(harness.failure(token), Failure::Disconnected(Disconnected { sent: Sent::NotSent, .. })));
        assert_eq!(harness.end.as_ref().unwrap().1, Ending::Normal);
        assert!(harness.sent().is_empty(), "nothing follows a refused resume");
    }
}

#[test]
fn the_handshake_has_a_deadline() {
    let mut harness = Harness::fresh();
    harness.sent();
    assert_eq!(harness.session.poll_timeout(), Some(harness.now + Duration::from_secs(10)));
    harness.wait(Duration::from_secs(9));
    assert!(harness.rejected.is_none());
    harness.wait(Duration::from_secs(1));
    assert!(matches!(harness.rejected, Some(ConnectError::TimedOut { .. })));
    assert_eq!(harness.session.poll_timeout(), None);
}

#[test]
fn a_connection_that_breaks_during_the_handshake_is_a_connect_error() {
    let mut harness = Harness::fresh();
    harness.cut();
    assert!(matches!(harness.rejected, Some(ConnectError::Transport(TransportError::Closed(None)))));
    assert!(harness.end.is_some());
}

#[test]
fn what_depends_on_the_peer_waits_for_its_answer() {
    let mut harness = Harness::fresh();
    harness.sent();
    let no_cwd = ExecRequest::new(["true"]).process_id(process_id(1));
    let sized = request(2).terminal(TerminalSize { rows: 10, cols: 20 }).contain(true);
    let limited = request(3).time_limit(Duration::from_millis(1_500)).output_limit_bytes(9);
    for (route, request) in [(1, &no_cwd), (2, &sized), (3, &limited)] {
        harness.submit(route, start(request));
    }
    harness.submit(9, Op::List);
    let info = harness.submit(9, Op::Info);
    assert!(harness.sent().is_empty());
    harness.receive(&json!({"id": 1, "result": initialize_result(ALL)}));
    let sent = harness.sent();
    assert_eq!(sent[0]["params"]["cwd"], "file:///home/remote");
    assert_eq!(sent[1]["params"]["longarm"], json!({"terminal": {"rows": 10, "cols": 20}, "contain": true}));
    let extension = json!({"timeLimitMs": 1500, "outputLimitBytes": 9, "stopGraceMs": 2000});
    assert_eq!(sent[2]["params"]["longarm"], extension);
    assert_eq!(sent[3]["method"], "longarm/process/list");
    let Some(Ok(Answer::Info(info))) = harness.answer(info) else { panic!("{:?}", harness.answers) };
    assert_eq!(info.capabilities, ["fsWatchMissing"]);
}

#[test]
fn a_plain_peer_is_asked_for_nothing_that_it_lacks() {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    let sized = request(2).terminal(TerminalSize { rows: 10, cols: 20 });
    let ops = [
        (2, start(&sized)),
        (2, start(&request(2).contain(true))),
        (1, Op::CloseStdin),
        (1, Op::Resize { size: TerminalSize::default() }),
        (1, Op::Signal { signal: Signal::Terminate }),
        (1, Op::Terminate { grace: Duration::ZERO, descendants: true }),
        (0, Op::List),
    ];
    for (route, op) in ops {
        let text = format!("{op:?}");
        let token = harness.submit(route, op);
        assert!(matches!(harness.failure(token), Failure::Unsupported(_)), "{text}: {:?}", harness.answers.last());
    }
    assert!(harness.sent().is_empty());
    harness.submit(1, Op::Signal { signal: Signal::Interrupt });
    assert_eq!(harness.sent_one()["params"], json!({"processId": "p1", "signal": "interrupt"}));
    // The fall-back: at once, since the plain wire has no polite stop.
    harness.submit(1, Op::Terminate { grace: Duration::from_secs(5), descendants: false });
    assert_eq!(harness.sent_one()["params"], json!({"processId": "p1"}));
}

#[test]
fn an_older_peer_is_asked_what_it_is_when_that_matters() {
    let mut harness = Harness::fresh();
    harness.sent();
    harness.receive(&json!({"id": 1, "result": {"sessionId": "s"}}));
    assert!(harness.sent().is_empty());
    harness.submit(1, start(&ExecRequest::new(["true"]).process_id(process_id(1))));
    let token = harness.submit(0, Op::Info);
    let ask = harness.sent_one();
    assert_eq!(ask["method"], "environment/info");
    let info = initialize_result(&[])["environmentInfo"].clone();
    harness.receive(&json!({"id": ask["id"], "result": info}));
    assert!(matches!(harness.answer(token), Some(Ok(Answer::Info(_)))));
    assert_eq!(harness.sent_one()["params"]["cwd"], "file:///home/remote");
}

#[test]
fn a_request_that_cannot_cross_the_wire_is_refused_by_the_name_of_the_element() {
    let mut harness = Harness::open(ALL);
    let mut refusal = |request: ExecRequest| {
        let token = harness.submit(1, start(&request.process_id(process_id(1))));
        harness.failure(token);
        let Some((_, Err(failure))) = harness.answers.pop() else { panic!() };
        match failure {
            Failure::InvalidRequest(error) => error.to_string(),
            Failure::Spawn(error) => error.to_string(),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(refusal(ExecRequest::new(Vec::<String>::new())), InvalidRequest::EmptyArgv.to_string());
    assert!(refusal(request(1).cwd("relative")).contains("not absolute"));
    assert!(refusal(request(1).terminal(TerminalSize { rows: 0, cols: 1 })).contains("zero"));
    #[cfg(unix)]
    {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;
        let bad = OsStr::from_bytes(b"\xff");
        assert_eq!(refusal(request(1).arg(bad)), "argv[1] is not Unicode text, which the wire needs");
        assert!(refusal(request(1).env("A", bad)).starts_with("the value of env[\"A\"] is not Unicode"));
        assert!(refusal(request(1).arg0(bad)).starts_with("arg0 is not Unicode"));
        assert!(refusal(request(1).cwd(std::path::Path::new(bad))).starts_with("cwd is not Unicode"));
    }
    assert!(harness.sent().is_empty());
}

#[test]
fn native_paths_follow_the_convention_of_the_place() {
    let mut harness = Harness::with_config(Mode::Fresh, ClientConfig::default());
    harness.sent();
    let mut result = initialize_result(&[]);
    result["environmentInfo"]["platformOs"] = json!("windows");
    harness.receive(&json!({"id": 1, "result": result}));
    harness.submit(1, start(&request(1).cwd(r"C:\work")));
    assert_eq!(harness.sent_one()["params"]["cwd"], "file:///C:/work");
    let token = harness.submit(2, start(&request(2).cwd("/unix")));
    assert!(matches!(harness.failure(token), Failure::InvalidRequest(InvalidRequest::RelativeCwd { .. })));
}

#[test]
fn an_id_that_is_in_use_is_refused_here() {
    let mut harness = Harness::open(&[]);
    harness.started(1);
    let token = harness.submit(2, start(&request(1)));
    let Failure::Spawn(error) = harness.failure(token) else { panic!() };
    assert!(matches!(**error, SpawnError::AlreadyExists(_)));
    let token = harness.submit(3, Op::Attach { process_id: process_id(1), after_seq: 0 });
    assert!(matches!(harness.failure(token), Failure::Taken));
}
