//! Tests that run as somebody else: as an ordinary user, or with mounts of their own. Such a test starts this program
//! again for itself alone.
#![allow(dead_code, reason = "each test program uses a part")]

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::needs::Need;

const CHILD: &str = "LONGARM_TEST_ROLE";
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    // The owner of what this process makes.
    tempfile::tempfile().unwrap().metadata().unwrap().uid() == 0
}

/// Runs `body` as an ordinary user. `name` is the path of the test within this program.
pub(crate) fn as_user(name: &str, body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() || !is_root() {
        return body();
    }
    // The program may lie where only root can reach it.
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = dir.path().join("program");
    // By another program: if this one had the copy open for writing, a child that another test is making at that moment would
    // have it as well, and nobody could execute it until that child has its own program.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success(), "{copied}");
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    run(command, name);
}

/// Runs `body` in a program in which no other test runs.
pub(crate) fn alone(name: &str, body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    run(Command::new(std::env::current_exe().unwrap()), name);
}

/// Runs `body` where it may mount, if this machine lets it.
pub(crate) fn with_mounts(name: &str, body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    if !Need::Mounts.is_met() {
        return;
    }
    let mut command = Command::new("unshare");
    command.arg("--mount").arg(std::env::current_exe().unwrap());
    run(command, name);
}

fn run(mut command: Command, name: &str) {
    let output = command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}
