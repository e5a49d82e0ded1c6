//! `longarm exec` towards the reference's server, which has none of our extensions.
//!
//! Needs the reference's program, named by the variable `LONGARM_REFERENCE`; skipped without it, save in CI on Linux.

use std::process::Command;
use std::time::Duration;

use crate::support::{Place, Running, Server, run};

/// The reference's server, if it is here.
pub(crate) fn reference() -> Option<(Place, tempfile::TempDir)> {
    let Some(program) = std::env::var_os("LONGARM_REFERENCE") else {
        let must = cfg!(target_os = "linux") && std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!must, "LONGARM_REFERENCE is not set, and CI on Linux needs it");
        eprintln!("SKIPPED: LONGARM_REFERENCE does not name the reference's program");
        return None;
    };
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(program);
    command.args(["exec-server", "--listen", "ws://127.0.0.1:0"]).env_clear();
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path))).env("HOME", home.path());
    Some((Place::Connect(Server::from_command(&mut command)), home))
}

#[test]
fn commands_end_as_they_do_elsewhere() {
    let Some((place, _home)) = reference() else { return };
    let outcome = place.run(&["--", "sh", "-c", "echo hi; echo err >&2; exit 3"]);
    assert_eq!((outcome.code(), outcome.text(), outcome.stderr.as_slice()), (3, "hi\n", &b"err\n"[..]));
    assert_eq!(place.run(&["--", "sh", "-c", "kill -9 $$"]).code(), 137);
    let outcome = place.run(&["--timeout", "0.3", "--", "sleep", "600"]);
    assert!(outcome.code() == 124 && outcome.reason().contains("time limit"), "{outcome:?}");
    let outcome = place.run(&["--", "/no/such/program"]);
    assert!(outcome.code() == 125 && outcome.reason().contains("/no/such/program"), "{outcome:?}");
    let outcome = place.run(&["--env-inherit", "none", "--env", "A=b", "--", "/usr/bin/env"]);
    assert_eq!(outcome.text(), "A=b\n");
}

#[test]
fn an_end_of_input_that_cannot_be_passed_on_is_refused_before_the_start() {
    let Some((place, _home)) = reference() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let outcome = run(place.exec().args(["-i", "--", "touch", mark.to_str().unwrap()]), b"x");
    assert!(outcome.code() == 125 && outcome.reason().contains("end of standard input"), "{outcome:?}");
    assert!(!mark.exists());
    let outcome = run(place.exec().args(["-it", "--", "sh", "-c", "stty -echo; stty size; cat"]), b"typed\n");
    assert!(outcome.code() == 0 && outcome.text().contains("24 80"), "{outcome:?}");
    assert!(outcome.text().ends_with("typed\r\n"), "{outcome:?}");
}

#[test]
fn an_interrupt_reaches_the_command() {
    let Some((place, _home)) = reference() else { return };
    let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let mut running = Running::start(place.exec().args(["--", "sh", "-c", script]));
    assert_eq!(running.line(), "ready");
    running.signal("INT");
    let outcome = running.finish();
    assert_eq!((outcome.code(), outcome.text()), (9, "caught\n"), "{outcome:?}");
}

#[test]
fn a_slow_reader_makes_the_command_wait_and_loses_nothing() {
    let Some((place, _home)) = reference() else { return };
    let script = "echo begin; head -c 30000000 /dev/zero";
    let mut running = Running::start(place.exec().args(["--", "sh", "-c", script]));
    assert_eq!(running.line(), "begin");
    // What is tested is a reader's pause: long enough for much more than a client holds to pile up, if anything let it.
    std::thread::sleep(Duration::from_secs(1));
    let outcome = running.finish();
    assert_eq!(
        (outcome.code(), outcome.stdout.len()),
        (0, 30_000_000),
        "{:?}",
        String::from_utf8_lossy(&outcome.stderr)
    );
}
