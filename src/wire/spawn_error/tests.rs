use serde_json::{Value, json};

use super::*;
use crate::error::PeerMisbehaved;

const CWD: &str = "/work";

fn decode(answer: RpcError) -> SpawnError {
    let process_id = ProcessId::new("p");
    from_rpc(answer, Asked { process_id: &process_id, program: Path::new("prog"), cwd: Path::new(CWD) })
}

/// Errors are compared by what they show, which is all that they hold.
fn shown(error: &SpawnError) -> String {
    format!("{error:?}")
}

/// Every error that goes over the wire and comes back the same, with its code, kind and text.
fn table() -> Vec<(SpawnError, i64, Option<&'static str>, &'static str)> {
    let id = ProcessId::new("p");
    let program = || PathBuf::from("prog");
    let path = || PathBuf::from("/nowhere");
    let invalid = |error: InvalidRequest, text| (SpawnError::from(error), -32602, None, text);
    let failed = |error, text| (error, -32603, Some("spawnFailed"), text);
    let missing = |error, text| (error, -32603, Some("spawnNotFound"), text);
    let denied = |error, text| (error, -32603, Some("spawnPermissionDenied"), text);
    vec![
        invalid(InvalidRequest::EmptyArgv, "argv must not be empty"),
        invalid(InvalidRequest::EmptyProgram, "argv[0] is empty"),
        invalid(InvalidRequest::Nul { element: "argv[2]".into() }, "argv[2] contains a NUL"),
        invalid(
            InvalidRequest::VariableName { name: "A=B".into() },
            r#"environment variable name "A=B" is empty or contains '=' or a NUL"#,
        ),
        invalid(
            InvalidRequest::NotUnicode { element: "arg0".into() },
            "arg0 is not Unicode text, which the wire needs",
        ),
        invalid(InvalidRequest::RelativeCwd { path: "x".into() }, r#"working directory "x" is not absolute"#),
        invalid(
            InvalidRequest::ForeignPath { uri: "file:///C:/x".into(), os: "linux".into() },
            "cwd URI `file:///C:/x` is not valid on this exec-server host: 'file:///C:/x' is invalid on 'linux'",
        ),
        invalid(InvalidRequest::NoCwd, "no working directory: the request names none and the place has no default"),
        invalid(InvalidRequest::TerminalSize { rows: 0, cols: 80 }, "terminal size 0x80 has a zero"),
        invalid(InvalidRequest::PolicyNotPortable, "the environment policy cannot be sent to a remote executor"),
        invalid(InvalidRequest::Other("no".into()), "no"),
        (
            SandboxError::Unsupported.into(),
            -32602,
            Some("sandboxUnavailable"),
            "this executor cannot enforce a sandbox",
        ),
        (
            SandboxError::unavailable("no kernel", "boot one").into(),
            -32602,
            Some("sandboxUnavailable"),
            "sandbox cannot be enforced here: no kernel; boot one",
        ),
        (
            SandboxError::Unavailable { cause: "no kernel".into(), remedy: None }.into(),
            -32602,
            Some("sandboxUnavailable"),
            "sandbox cannot be enforced here: no kernel",
        ),
        (
            SandboxError::preparation("no glob").into(),
            -32602,
            Some("sandboxPreparation"),
            "sandbox cannot be prepared: no glob",
        ),
        (
            SandboxError::changed("gone").into(),
            -32602,
            Some("sandboxPreparation"),
            "sandbox cannot be prepared: gone; try again",
        ),
        (SandboxError::invalid("no level").into(), -32602, None, "sandbox intent is invalid: no level"),
        missing(SpawnError::ProgramNotFound { program: program(), searched: None }, r#"program "prog" not found"#),
        missing(
            SpawnError::ProgramNotFound { program: program(), searched: Some("/bin".into()) },
            r#"program "prog" not found on PATH "/bin""#,
        ),
        missing(
            SpawnError::InterpreterNotFound { program: program(), interpreter: path() },
            r#"interpreter "/nowhere" of script "prog" not found"#,
        ),
        missing(SpawnError::CwdNotFound { path: path() }, r#"working directory "/nowhere" does not exist"#),
        missing(
            SpawnError::ProgramOrCwdNotFound { program: program(), cwd: path() },
            r#"program "prog" or working directory "/nowhere" not found"#,
        ),
        denied(SpawnError::CwdPermissionDenied { path: path() }, r#"working directory "/nowhere" may not be entered"#),
        denied(SpawnError::PermissionDenied { program: program() }, r#"program "prog" may not be executed"#),
        failed(SpawnError::CwdNotADirectory { path: path() }, r#"working directory "/nowhere" is not a directory"#),
        failed(SpawnError::NotExecutable { program: program() }, r#"program "prog" is not an executable"#),
        failed(SpawnError::TextBusy { program: program() }, r#"program "prog" is being written to"#),
        failed(
            SpawnError::ArgumentListTooLong { bytes: 5 },
            "arguments and environment of 5 bytes are too long for the system",
        ),
        failed(SpawnError::DescriptorLimit { limit: Some(9) }, "out of file descriptors (soft limit 9)"),
        failed(SpawnError::ProcessLimit { limit: None }, "the system allows no more processes (limit unknown)"),
        failed(
            SpawnError::ContainmentUnavailable { reason: "no cgroup".into() },
            "processes cannot be contained here: no cgroup; what this takes is a cgroup in which the executor may make \
             others (such as by Delegate=yes in a systemd unit), or CAP_SYS_ADMIN",
        ),
        failed(SpawnError::Closed, "the environment is closed"),
        failed(
            Disconnected { sent: Sent::Unknown, reason: "cut".into() }.into(),
            "disconnected (the request may have run): cut",
        ),
        failed(
            Disconnected { sent: Sent::NotSent, reason: "cut".into() }.into(),
            "disconnected (the request was not sent): cut",
        ),
        (SpawnError::TooManyProcesses { limit: 3 }, -32600, None, "the session already has 3 processes"),
        (
            SpawnError::TimedOut { limit: Duration::from_secs(30) },
            -32603,
            Some("spawnFailed"),
            "the start took longer than 30000 ms",
        ),
        (Busy { limit: 64 }.into(), -32600, None, "64 calls are already in flight"),
        (SpawnError::AlreadyExists(id.clone()), -32600, None, "process p already exists"),
        (SpawnError::Cancelled(id), -32600, None, "process p start was cancelled"),
        (
            RpcError { code: -5, message: "of another executor".into(), data: Some(r#"{"kind":1}"#.into()) }.into(),
            -5,
            None,
            "of another executor",
        ),
    ]
}

#[test]
fn every_error_has_its_code_kind_and_text_and_comes_back_the_same() {
    for (error, code, kind, text) in table() {
        let answer = to_rpc(&error);
        assert_eq!((answer.code, &*answer.message), (code, text));
        let data: Value = answer.data.as_deref().map_or(Value::Null, |data| serde_json::from_str(data).unwrap());
        assert_eq!(data["kind"].as_str(), kind, "{text}");
        assert_eq!(shown(&decode(answer)), shown(&error));
    }
}

#[test]
fn what_the_table_leaves_out_comes_back_as_what_it_means_to_the_client() {
    let os = SpawnError::from(OsError::new("create a pipe", io::Error::other("out of them")));
    let answer = to_rpc(&os);
    assert_eq!((answer.code, &*answer.message), (-32603, "create a pipe: out of them"));
    let SpawnError::Os(decoded) = decode(answer.clone()) else { panic!() };
    assert_eq!((decoded.op, decoded.source.to_string()), (ON_EXECUTOR, answer.message));

    let unsupported = SpawnError::from(Unsupported { feature: "a terminal", place: "this build".into() });
    let answer = to_rpc(&unsupported);
    assert_eq!((answer.code, &*answer.message), (-32602, "a terminal is not supported by this build"));
    let SpawnError::Unsupported(decoded) = decode(answer) else { panic!() };
    assert_eq!(
        decoded.to_string(),
        "something in the request is not supported by the executor: a terminal is not supported by this build"
    );

    let peer = SpawnError::from(PeerMisbehaved::Protocol("odd".into()));
    let answer = to_rpc(&peer);
    assert_eq!((answer.code, answer.data.as_deref()), (-32603, Some(r#"{"kind":"spawnFailed"}"#)));
    assert_eq!(shown(&decode(answer.clone())), shown(&SpawnError::Remote(answer)));
}

#[test]
fn a_path_that_is_no_text_is_named_as_well_as_text_can() {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"/a\xff")).to_path_buf();
        let decoded = decode(to_rpc(&SpawnError::CwdNotFound { path }));
        assert_eq!(shown(&decoded), shown(&SpawnError::CwdNotFound { path: "/a\u{fffd}".into() }));
    }
}

#[test]
fn the_answers_of_a_plain_peer_are_understood() {
    let not_found = SpawnError::ProgramOrCwdNotFound { program: "prog".into(), cwd: CWD.into() };
    let denied = SpawnError::PermissionDenied { program: "prog".into() };
    let other = |text: &str| SpawnError::from(InvalidRequest::Other(text.into()));
    for (code, message, data, expected) in [
        (-32603, "No such file or directory (os error 2)", json!({"kind": "spawnNotFound"}), Some(not_found)),
        (-32603, "Permission denied (os error 13)", json!({"kind": "spawnPermissionDenied"}), Some(denied)),
        (-32603, "Exec format error (os error 8)", json!({"kind": "spawnFailed"}), None),
        (-32603, "text", json!({"kind": "aKindOfTheFuture"}), None),
        (-32603, "text", json!({"kind": 5}), None),
        (-32603, "text", json!([]), None),
        (-32603, "text", json!("spawnNotFound"), None),
        (-32603, "text", Value::Null, None),
        (-32602, "bad cwd", json!({"kind": "sandboxPreparation"}), {
            Some(SandboxError::preparation("bad cwd").into())
        }),
        (-32603, "no bwrap", json!({"kind": "sandboxUnavailable"}), {
            Some(SandboxError::Unavailable { cause: "no bwrap".into(), remedy: None }.into())
        }),
        (-32602, "argv must not be empty", Value::Null, Some(InvalidRequest::EmptyArgv.into())),
        (-32602, "missing field `tty`", Value::Null, Some(other("missing field `tty`"))),
        (-32600, "process p already exists", Value::Null, Some(SpawnError::AlreadyExists(ProcessId::new("p")))),
        (-32600, "process p start was cancelled", Value::Null, Some(SpawnError::Cancelled(ProcessId::new("p")))),
        (-32600, "process q already exists", Value::Null, None),
        (-32603, "process p already exists", Value::Null, None),
        (-32601, "text", Value::Null, None),
        (77, "text", Value::Null, None),
        (-32603, "text", json!({"kind": "spawnFailed", "longarm": {"kind": "ofTheFuture", "x": 1}}), None),
        (-32603, "text", json!({"kind": "spawnFailed", "longarm": {"kind": "cwdNotFound", "path": 5}}), None),
        (-32603, "text", json!({"kind": "spawnFailed", "longarm": 5}), None),
    ] {
        let data = (!data.is_null()).then(|| data.to_string());
        let answer = RpcError { code, message: message.into(), data };
        let expected = expected.unwrap_or_else(|| SpawnError::Remote(answer.clone()));
        assert_eq!(shown(&decode(answer)), shown(&expected), "{message}");
    }
}
