//! What cannot be started, and why.

use super::context::Context;
use crate::error::{InvalidRequest, SpawnError};
use crate::path_uri::PathUri;
use crate::request::{ExecRequest, ProcessId};
use crate::sandbox::SandboxIntent;

cases! {"errors":
    a_request_that_nobody_can_run_names_its_fault,
    a_refused_start_frees_its_id,
    a_missing_program_is_not_a_missing_directory [PreciseErrors],
    a_missing_program_or_directory_is_an_error,
    what_may_not_or_cannot_be_executed_is_told_apart [PreciseErrors],
    a_sandbox_is_enforced_or_refused [PreciseErrors],
    a_foreign_path_is_refused,
    a_foreign_path_is_told_apart [PreciseErrors],
}

async fn refused(cx: &Context, request: ExecRequest) -> SpawnError {
    match cx.environment().spawn(request).await {
        Err(error) => error,
        Ok(process) => panic!("{process:?} was started"),
    }
}

async fn a_request_that_nobody_can_run_names_its_fault(cx: Context) {
    let nothing: [&str; 0] = [];
    for (request, fault) in [
        (ExecRequest::new(nothing), "argv"),
        (ExecRequest::new([""]), "argv[0]"),
        (cx.child(&["say", "a\0b"]), &*format!("argv[{}]", cx.child(&["say", "a"]).argv().len() - 1)),
        (cx.child(&["env"]).env("A\0", "x"), "A\\0"),
        (cx.child(&["env"]).env("A=B", "x"), "A=B"),
        (cx.child(&["env"]).env("", "x"), "name"),
        (cx.child(&["env"]).env("A", "\0"), "A"),
        (cx.child(&["cwd"]).cwd("/tmp/a\0b"), "cwd"),
        (cx.child(&["cwd"]).cwd("relative"), "relative"),
    ] {
        let shown = format!("{request:?}");
        let error = refused(&cx, request).await;
        assert!(matches!(error, SpawnError::InvalidRequest(_)), "{shown}: {error:?}");
        assert!(error.to_string().contains(fault), "{shown}: {error}");
        assert!(!error.is_retryable());
    }
}

async fn a_refused_start_frees_its_id(cx: Context) {
    let id = ProcessId::new("again");
    let missing = cx.child(&["cwd"]).cwd(cx.dir().join("gone")).process_id(id.clone());
    refused(&cx, missing).await;
    let output = cx.output(cx.child(&["say", "now"]).process_id(id)).await;
    assert_eq!(output.stdout.to_text(), "now\n");
}

async fn a_missing_program_is_not_a_missing_directory(cx: Context) {
    let gone = cx.dir().join("gone");
    let error = refused(&cx, cx.child(&["cwd"]).cwd(&gone)).await;
    assert!(matches!(&error, SpawnError::CwdNotFound { path } if *path == gone), "{error:?}");

    let error = refused(&cx, ExecRequest::new(["no-such-program"]).cwd(cx.dir()).env("PATH", "/no-such-dir")).await;
    match &error {
        SpawnError::ProgramNotFound { program, searched } => {
            assert_eq!(program.to_str(), Some("no-such-program"));
            assert_eq!(searched.as_deref(), Some("/no-such-dir"));
        }
        other => panic!("{other:?}"),
    }

    let file = cx.dir().join("file");
    std::fs::write(&file, "").unwrap();
    let error = refused(&cx, cx.child(&["cwd"]).cwd(&file)).await;
    assert!(matches!(&error, SpawnError::CwdNotADirectory { path } if *path == file), "{error:?}");
}

async fn a_missing_program_or_directory_is_an_error(cx: Context) {
    for request in [
        ExecRequest::new(["no-such-program"]).cwd(cx.dir()),
        ExecRequest::new([cx.dir().join("no-such-program")]).cwd(cx.dir()),
        cx.child(&["cwd"]).cwd(cx.dir().join("gone")),
    ] {
        let error = refused(&cx, request).await;
        let kind = std::io::Error::from(error.clone()).kind();
        assert_eq!(kind, std::io::ErrorKind::NotFound, "{error:?}");
        assert!(error.to_string().contains("no-such-program") || error.to_string().contains("gone"), "{error}");
    }
}

/// Writes a file by another program: if this one had it open for writing, so would a child that another case is making at that
/// moment, and nobody could execute it until that child has its own program.
#[cfg(unix)]
fn write_apart(path: &std::path::Path, format: &str) {
    let mut shell = std::process::Command::new("sh");
    let written = shell.args(["-c", "printf \"$1\" >\"$2\"", "sh", format]).arg(path).status().unwrap();
    assert!(written.success(), "{written}");
}

#[cfg(not(unix))]
fn write_apart(path: &std::path::Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

async fn what_may_not_or_cannot_be_executed_is_told_apart(cx: Context) {
    let script = cx.dir().join("script");
    write_apart(&script, r"#!/no/such/interpreter\n");
    let error = refused(&cx, ExecRequest::new([&script]).cwd(cx.dir())).await;
    assert!(matches!(&error, SpawnError::PermissionDenied { program } if *program == script), "{error:?}");

    let error = refused(&cx, ExecRequest::new([cx.dir()]).cwd(cx.dir())).await;
    assert!(matches!(error, SpawnError::PermissionDenied { .. }), "a directory: {error:?}");

    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&script, executable.clone()).unwrap();
        let error = refused(&cx, ExecRequest::new([&script]).cwd(cx.dir())).await;
        match &error {
            SpawnError::InterpreterNotFound { program, interpreter } => {
                assert_eq!((program, interpreter.to_str()), (&script, Some("/no/such/interpreter")));
            }
            other => panic!("{other:?}"),
        }
        let garbage = cx.dir().join("garbage");
        write_apart(&garbage, r"\000\001\002\003");
        std::fs::set_permissions(&garbage, executable).unwrap();
        let error = refused(&cx, ExecRequest::new([&garbage]).cwd(cx.dir())).await;
        assert!(matches!(&error, SpawnError::NotExecutable { program } if *program == garbage), "{error:?}");
    }
}

async fn a_sandbox_is_enforced_or_refused(cx: Context) {
    let (told, done) = (cx.dir().join("told"), cx.dir().join("done"));
    let [told_name, done_name] = [&told, &done].map(|path| path.to_string_lossy().into_owned());
    std::fs::write(&told, "").unwrap();
    let request = cx.child(&["create-when-told", &told_name, &done_name]).sandbox(SandboxIntent::read_only());
    match cx.environment().spawn(request).await {
        Err(error) => assert!(matches!(error, SpawnError::Sandbox(_)), "{error:?}"),
        Ok(mut process) => {
            assert!(process.sandbox_type().is_some_and(|kind| kind != "none"), "{process:?}");
            assert!(!process.wait().await.unwrap().success(), "it may write");
        }
    }
    assert!(!done.exists(), "it has written");
}

const FOREIGN: &str = if cfg!(windows) { "file:///usr/bin" } else { "file:///C:/Windows" };

async fn a_foreign_path_is_refused(cx: Context) {
    let error = refused(&cx, cx.child(&["cwd"]).cwd(PathUri::parse(FOREIGN).unwrap())).await;
    assert!(matches!(error, SpawnError::InvalidRequest(_)), "{error:?}");
    assert!(error.to_string().contains(FOREIGN), "{error}");
}

async fn a_foreign_path_is_told_apart(cx: Context) {
    let error = refused(&cx, cx.child(&["cwd"]).cwd(PathUri::parse(FOREIGN).unwrap())).await;
    match &error {
        SpawnError::InvalidRequest(InvalidRequest::ForeignPath { uri, .. }) => assert_eq!(uri, FOREIGN),
        other => panic!("{other:?}"),
    }
}
