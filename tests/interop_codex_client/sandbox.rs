//! The client's sandboxes, enforced by this server: what it asks for works, what it forbids is denied, and it is told so.

use std::process::Command;

use serde_json::json;

use super::{Run, Turn};

fn command(id: &str, cmd: &str) -> Turn {
    Turn::call(id, json!({"cmd": cmd, "yield_time_ms": 20_000}))
}

fn git(run: &Run, args: &[&str]) {
    let workspace = run.dir.path().join("workspace");
    let status = Command::new("git").args(args).current_dir(workspace).status().unwrap();
    assert!(status.success(), "git {args:?}: {status}");
}

#[test]
fn workspace_write_lets_it_write_there_and_nowhere_else() {
    let Some(run) = Run::new() else { return };
    let outside = run.dir.path().join("outside");
    let outputs = run.script_as(
        &["--sandbox", "workspace-write"],
        "",
        vec![
            command("inside", "echo x > new && cat new && rm new && echo done"),
            command("outside", &format!("echo x > {}", outside.display())),
            command("read", "cat /etc/passwd > /dev/null && echo readable"),
            command("loopback", "exec 3<>/dev/tcp/127.0.0.1/9"),
            command("metadata", "mkdir .agents .codex"),
            command("tty", "trap 'exit 7' INT; kill -INT $$; sleep 5"),
        ],
    );
    let says = |id: &str, text: &str| assert!(outputs[id].contains(text), "{id}: {}", outputs[id]);
    says("inside", "done");
    says("inside", "Process exited with code 0");
    says("outside", "Read-only file system");
    says("read", "readable");
    says("loopback", "Operation not permitted");
    says("metadata", "cannot create directory");
    says("tty", "Process exited with code 7");
    assert!(!outside.exists());
    for name in [".agents", ".codex", ".aws", ".git", "new"] {
        assert!(!run.dir.path().join("workspace").join(name).exists(), "{name} is left");
    }
}

#[test]
fn read_only_lets_it_write_nowhere() {
    let Some(run) = Run::new() else { return };
    let outputs = run.script_as(
        &["--sandbox", "read-only"],
        "",
        vec![
            command("write", "echo x > new"),
            command("temporary", "echo x > /tmp/longarm-interop"),
            command("read", "ls / && echo listed"),
        ],
    );
    assert!(outputs["write"].contains("Read-only file system"), "{}", outputs["write"]);
    assert!(outputs["temporary"].contains("Read-only file system"), "{}", outputs["temporary"]);
    assert!(outputs["read"].contains("listed"), "{}", outputs["read"]);
    assert!(!run.dir.path().join("workspace/new").exists());
}

#[test]
fn a_commit_needs_an_entry_for_the_repository() {
    let Some(run) = Run::new() else { return };
    git(&run, &["init", "-q"]);
    let commit =
        "git -c user.name=x -c user.email=x@example.org commit -q --allow-empty -m x && git log --oneline | wc -l";
    let outputs = run.script_as(&["--sandbox", "workspace-write"], "", vec![command("denied", commit)]);
    assert!(outputs["denied"].contains("Read-only file system"), "{}", outputs["denied"]);

    let profile = "default_permissions = \"committing\"\n\
        permissions.committing.filesystem = { \":root\" = \"read\", \":workspace_roots\" = { \".\" = \"write\", \".git\" = \"write\" } }\n";
    let outputs = run.script_as(&[], profile, vec![command("allowed", commit), command("protected", "mkdir .codex")]);
    assert!(outputs["allowed"].contains("Process exited with code 0"), "{}", outputs["allowed"]);
    assert!(!outputs["protected"].contains("Process exited with code 0"), "{}", outputs["protected"]);
}
