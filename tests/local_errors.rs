//! Starts that fail: each error names the thing, and nothing is left running.
#![cfg(target_os = "linux")]

mod local_support;
#[path = "common/needs.rs"]
mod needs;
#[path = "common/roles.rs"]
mod roles;

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use local_support::{local, run, sh, write_program};
use longarm::ExecRequest;
use longarm::backend::ExecBackend;
use longarm::error::{CallError, InvalidRequest, SpawnError};
use longarm::fs::{FsError, OpenMode, ReadOptions, RemoveOptions, RequestPath, WriteOptions};
use longarm::request::TerminalSize;
use longarm::sandbox::{SandboxError, SandboxIntent, WindowsSandboxLevel};

/// The error of a request, which is the same with a terminal.
async fn refused(request: ExecRequest) -> SpawnError {
    let local = local();
    let on_pipes = local.spawn(request.clone()).await.expect_err("it cannot start");
    let on_a_terminal = local.spawn(request.terminal(TerminalSize::default())).await.expect_err("it cannot start");
    assert_eq!(on_pipes.to_string(), on_a_terminal.to_string());
    on_pipes
}

#[tokio::test]
async fn a_missing_program_and_a_missing_directory_are_told_apart() {
    let gone = refused(ExecRequest::new(["true"]).cwd("/tmp/gone/for/good")).await;
    assert_eq!(gone.to_string(), "working directory \"/tmp/gone/for/good\" does not exist");
    assert!(matches!(gone, SpawnError::CwdNotFound { .. }));

    let request = ExecRequest::new(["no-such-cmd"]).cwd("/tmp").env("PATH", "/usr/bin:/bin");
    let missing = refused(request).await;
    assert_eq!(missing.to_string(), "program \"no-such-cmd\" not found on PATH \"/usr/bin:/bin\"");

    let missing = refused(ExecRequest::new(["./no-such-cmd"]).cwd("/tmp")).await;
    assert_eq!(missing.to_string(), "program \"./no-such-cmd\" not found");

    let both = refused(ExecRequest::new(["no-such-cmd"]).cwd("/tmp/gone/for/good")).await;
    assert!(matches!(both, SpawnError::CwdNotFound { .. }), "{both}");
}

#[tokio::test]
async fn a_file_is_no_working_directory() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = refused(ExecRequest::new(["true"]).cwd(file.path())).await;
    assert!(matches!(&error, SpawnError::CwdNotADirectory { path } if path == file.path()), "{error}");
}

#[tokio::test]
async fn a_script_whose_interpreter_is_missing_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    write_program(&script, "#! /no/such/interpreter -x\necho hi\n");
    let error = refused(ExecRequest::new(["script"]).cwd("/tmp").env("PATH", dir.path())).await;
    let SpawnError::InterpreterNotFound { program, interpreter } = &error else { panic!("{error}") };
    assert_eq!((program.as_path(), interpreter.as_path()), (script.as_path(), Path::new("/no/such/interpreter")));
}

#[tokio::test]
async fn what_is_not_executable_is_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    write_program(&text, "hello");
    std::fs::set_permissions(&text, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = refused(ExecRequest::new([&text]).cwd("/tmp")).await;
    assert!(matches!(&error, SpawnError::PermissionDenied { program } if *program == text), "{error}");

    let error = refused(ExecRequest::new([dir.path()]).cwd("/tmp")).await;
    assert!(matches!(&error, SpawnError::PermissionDenied { program } if program == dir.path()), "{error}");

    write_program(&text, "no first line of a script, and no shell runs it all the same\n");
    let error = refused(ExecRequest::new([&text]).cwd("/tmp")).await;
    assert!(matches!(&error, SpawnError::NotExecutable { program } if *program == text), "{error}");
}

#[tokio::test]
async fn a_program_that_is_being_written_to_is_busy_and_retried() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    let writer = std::fs::OpenOptions::new().write(true).open(&program).unwrap();
    let request = ExecRequest::new([&program]).cwd("/tmp");
    let error = refused(request.clone()).await;
    assert!(matches!(&error, SpawnError::TextBusy { program: named } if *named == program), "{error}");
    assert!(error.is_retryable());

    // It becomes free while the start is being retried.
    let local = Arc::new(local());
    let start = tokio::spawn({
        let local = Arc::clone(&local);
        async move { run(&local, request).await.status }
    });
    tokio::task::yield_now().await;
    drop(writer);
    assert!(start.await.unwrap().success());
}

#[tokio::test]
async fn arguments_that_are_too_long_are_counted() {
    // A terminal adds the shell where the variable is missing, which would count.
    let request = ExecRequest::new(["true"]).cwd("/tmp").env("SHELL", "/bin/sh");
    let request = (0..64).fold(request, |request, _| request.arg("x".repeat(100_000)));
    let error = refused(request).await;
    let SpawnError::ArgumentListTooLong { bytes } = error else { panic!("{error}") };
    assert!(bytes > 6_400_000);
}

#[tokio::test]
async fn nuls_and_odd_names_are_refused_before_anything_starts() {
    let request = || ExecRequest::new(["echo", "ok"]).cwd("/tmp");
    let cases: [(ExecRequest, &str); 9] = [
        (request().arg("a\0b"), "argv[2] contains a NUL"),
        (request().arg0("a\0b"), "arg0 contains a NUL"),
        (request().env("A\0", "x"), "environment variable name \"A\\0\" is empty or contains '=' or a NUL"),
        (request().env("A", "x\0y"), "the value of env[\"A\"] contains a NUL"),
        (request().env("A=B", "x"), "environment variable name \"A=B\" is empty or contains '=' or a NUL"),
        (request().env("", "x"), "environment variable name \"\" is empty or contains '=' or a NUL"),
        (request().cwd("/tmp/a\0b"), "cwd contains a NUL"),
        (ExecRequest::new([""; 0]).cwd("/tmp"), "argv is empty"),
        (ExecRequest::new([""]).cwd("/tmp"), "argv[0] is empty"),
    ];
    for (request, message) in cases {
        let error = refused(request).await;
        assert!(matches!(error, SpawnError::InvalidRequest(_)) && !error.is_retryable());
        assert_eq!(error.to_string(), message);
    }
}

#[tokio::test]
async fn a_cwd_uri_with_a_nul_a_relative_one_and_none_are_refused() {
    if let Ok(uri) = longarm::PathUri::parse("file:///tmp/a%00b") {
        let error = refused(ExecRequest::new(["true"]).cwd(uri)).await;
        assert!(matches!(error, SpawnError::InvalidRequest(_)), "{error}");
    }
    let error = refused(ExecRequest::new(["true"]).cwd("relative")).await;
    assert!(matches!(error, SpawnError::InvalidRequest(InvalidRequest::RelativeCwd { .. })), "{error}");
    let foreign = longarm::PathUri::parse("file:///C:/windows").unwrap();
    let error = refused(ExecRequest::new(["true"]).cwd(foreign)).await;
    assert!(matches!(error, SpawnError::InvalidRequest(InvalidRequest::ForeignPath { .. })), "{error}");
    let bare = longarm::Local::new(longarm::LocalConfig::default());
    let error = bare.spawn(ExecRequest::new(["true"])).await.unwrap_err();
    assert!(matches!(error, SpawnError::InvalidRequest(InvalidRequest::NoCwd)), "{error}");
}

#[tokio::test]
async fn a_sandbox_that_this_system_does_not_have_is_refused_and_never_left_out() {
    let intent = SandboxIntent::read_only().windows_level(WindowsSandboxLevel::Mxc);
    let error = refused(sh("touch /tmp/must-not-exist").sandbox(intent)).await;
    assert!(matches!(error, SpawnError::Sandbox(SandboxError::Unavailable { .. })), "{error}");
}

#[tokio::test]
async fn a_terminal_without_rows_is_refused() {
    let request = ExecRequest::new(["true"]).cwd("/tmp").terminal(TerminalSize { rows: 0, cols: 80 });
    let error = local().spawn(request).await.unwrap_err();
    assert!(matches!(error, SpawnError::InvalidRequest(InvalidRequest::TerminalSize { rows: 0, cols: 80 })), "{error}");
}

/// As another user where this one is the superuser, who may enter anything.
#[test]
fn a_directory_that_may_not_be_entered_is_named() {
    roles::as_user("a_directory_that_may_not_be_entered_is_named", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let closed = dir.path().join("closed");
            std::fs::create_dir(&closed).unwrap();
            std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o600)).unwrap();
            let error = refused(ExecRequest::new(["true"]).cwd(&closed)).await;
            assert!(matches!(&error, SpawnError::CwdPermissionDenied { path } if *path == closed), "{error}");
        });
    });
}

#[tokio::test]
async fn a_program_that_starts_only_with_a_missing_loader_is_not_executable() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    let mut bytes = std::fs::read("/bin/true").unwrap();
    let loader = b"/ld-linux";
    let Some(at) = bytes.windows(loader.len()).position(|window| window == loader) else {
        // A system whose programs have no loader.
        return;
    };
    bytes[at + 1] = b'#';
    write_program(&program, bytes);
    let error = refused(ExecRequest::new([&program]).cwd("/tmp")).await;
    assert!(matches!(&error, SpawnError::NotExecutable { program: named } if *named == program), "{error}");
}

/// In a process of its own, since it takes the working directory away and runs out of descriptors.
#[test]
fn a_host_in_trouble_still_starts_processes_or_says_why_not() {
    const MARK: &str = "LOCAL_ERRORS_IN_TROUBLE";
    if std::env::var_os(MARK).is_none() {
        let test = std::env::current_exe().unwrap();
        let name = "a_host_in_trouble_still_starts_processes_or_says_why_not";
        let output = std::process::Command::new(test).args([name, "--exact"]).env(MARK, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::env::set_current_dir(dir.path()).unwrap();
    let path: PathBuf = dir.path().into();
    drop(dir);
    assert!(!path.exists());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let local = local();
        let run = run(&local, sh("pwd")).await;
        assert_eq!(run.stdout, b"/tmp\n", "although the own working directory is gone");

        let limit = libc::rlimit { rlim_cur: 40, rlim_max: 4096 };
        // SAFETY: valid arguments, in a process of its own.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        let mut running = Vec::new();
        let error = loop {
            match local.spawn(sh("sleep 60")).await {
                Ok(spawned) => running.push(spawned),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, SpawnError::DescriptorLimit { limit: Some(40) }), "{error}");
        assert!(error.is_retryable() && running.len() > 3);
        // The one that failed left nothing behind.
        running.pop().unwrap().control.kill_now();
        let count = running.len();
        local.close().await;
        assert!(count > 2);
    });
}

/// As an ordinary user, since the superuser has no limit of processes.
#[test]
fn where_the_system_gives_no_thread_calls_fail_and_are_not_made_later() {
    roles::as_user("where_the_system_gives_no_thread_calls_fail_and_are_not_made_later", || {
        let local = local();
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        std::fs::write(&old, "old").unwrap();
        let fs = local.fs().unwrap();
        let at = |path: &Path| RequestPath::from(path);
        // What is open for writing closes on a thread, too.
        let open = runtime().block_on(fs.open(at(&dir.path().join("open")), OpenMode::Replace)).unwrap();
        let touch = |name: &str| ExecRequest::new(["touch", name]).cwd(dir.path());
        let sandboxed = || touch("sandboxed").sandbox(SandboxIntent::workspace_write([]));

        let runtime = runtime();
        let before = limit_processes(1);
        runtime.block_on(async {
            for error in [
                fs.write(at(&new), "new".into(), WriteOptions::default()).await.unwrap_err(),
                fs.remove(at(&old), RemoveOptions::default()).await.unwrap_err(),
                fs.read(at(&old), ReadOptions::default()).await.unwrap_err(),
            ] {
                let FsError::Os { source, .. } = &error else { panic!("{error:?}") };
                assert_eq!(source.kind(), ErrorKind::WouldBlock, "{error:?}");
                assert!(error.is_retryable(), "{error:?}");
            }
            assert!(FsError::from(SandboxError::changed("a file has changed")).is_retryable());
            for request in [touch("piped"), touch("terminal").terminal(TerminalSize::default()), sandboxed()] {
                let error = local.spawn(request).await.unwrap_err();
                assert!(matches!(error, SpawnError::ProcessLimit { limit: Some(1) }), "{error:?}");
                assert!(error.is_retryable());
            }
            let error = local.assess_sandbox(&sandboxed()).await.unwrap_err();
            assert!(matches!(error, SpawnError::ProcessLimit { .. }), "{error:?}");
            let error = local.info().await.unwrap_err();
            assert!(matches!(error, CallError::Os(_)), "{error:?}");
            drop(open);
            local_support::local().close().await;
        });
        limit_processes(before);
        runtime.block_on(async {
            // The first thread of the runtime comes to this after all that was refused.
            assert_eq!(fs.read(at(&old), ReadOptions::default()).await.unwrap(), "old");
            let left: Vec<_> = dir.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left.len(), 2, "{left:?}");
            fs.write(at(&new), "new".into(), WriteOptions::default()).await.unwrap();
            assert_eq!(fs.read(at(&new), ReadOptions::default()).await.unwrap(), "new");
            assert!(run(&local, touch("piped")).await.status.success());
            assert!(run(&local, touch("terminal").terminal(TerminalSize::default())).await.status.success());
            local.info().await.unwrap();
            assert!(dir.path().join("piped").exists() && dir.path().join("terminal").exists());
        });
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Sets the soft limit of processes and threads, and returns what it was.
fn limit_processes(soft: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills the structure.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit) }, 0);
    let before = std::mem::replace(&mut limit.rlim_cur, soft);
    // SAFETY: reads the structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }, 0);
    before
}
