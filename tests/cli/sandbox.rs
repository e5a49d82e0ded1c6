//! `longarm exec --sandbox`, in every place.

use std::path::Path;
use std::process::Command;

use crate::support::{Outcome, PROGRAM, Place, Server, run as run_program};

/// A directory that no policy makes writable by itself.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

/// Whether sandboxes can be had here. What the machine lacks, the conformance matrix tells.
fn refused(outcome: &Outcome) -> bool {
    let refused = outcome.code() == 125;
    if refused {
        assert!(outcome.reason().contains("sandbox cannot be enforced here"), "{outcome:?}");
    }
    refused
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn what_is_denied_is_told_in_one_line() {
    for place in Place::all() {
        let dir = directory();
        let new = dir.path().join("new");
        let script = format!("echo x > '{}'", new.display());
        let outcome = place.run(&["--sandbox", "read-only", "--", "sh", "-c", &script]);
        if refused(&outcome) {
            continue;
        }
        assert!(outcome.code() != 0 && !new.exists(), "{}: {outcome:?}", place.name());
        let said = String::from_utf8_lossy(&outcome.stderr);
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with("longarm: the sandbox seems to have denied something: "), "{}: {said}", place.name());
        let outcome = place.run(&["--sandbox", "read-only", "--", "sh", "-c", "exit 3"]);
        assert_eq!((outcome.code(), outcome.stderr.len()), (3, 0), "{}: {outcome:?}", place.name());
    }
}

#[test]
fn workspace_roots_are_writable_and_the_directory_of_the_command_is_one_by_default() {
    for place in Place::all() {
        let (dir, other) = (directory(), directory());
        let both = format!("echo x > new; echo x > '{}/new'; true", other.path().display());
        let cwd = text(dir.path());
        let outcome = place.run(&["--sandbox", "workspace-write", "--cwd", cwd, "--", "sh", "-c", &both]);
        if refused(&outcome) {
            continue;
        }
        let made = |at: &tempfile::TempDir| at.path().join("new").exists();
        assert!(made(&dir) && !made(&other), "{}: {outcome:?}", place.name());
        std::fs::remove_file(dir.path().join("new")).unwrap();
        let root = text(other.path());
        let args = ["--sandbox", "workspace-write", "--root", root, "--cwd", cwd, "--", "sh", "-c", &both];
        let outcome = place.run(&args);
        assert!(!made(&dir) && made(&other), "{}: {outcome:?}", place.name());
    }
}

#[test]
fn a_policy_may_be_a_file() {
    for place in Place::all() {
        let dir = directory();
        let policy = dir.path().join("policy.json");
        let entries = r#"[{"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"},
            {"path": {"type": "special", "value": {"kind": "project_roots", "subpath": "open"}}, "access": "write"}]"#;
        let permissions = format!(
            r#"{{"type": "managed", "network": "restricted", "file_system": {{"type": "restricted", "entries": {entries}}}}}"#
        );
        std::fs::write(&policy, format!(r#"{{"permissions": {permissions}, "windowsSandboxLevel": "disabled"}}"#))
            .unwrap();
        std::fs::create_dir(dir.path().join("open")).unwrap();
        let (policy, root) = (text(&policy), text(dir.path()));
        let script = "echo x > open/new && ! echo x > new";
        let args = ["--sandbox", policy, "--root", root, "--cwd", root, "--", "sh", "-c", script];
        let outcome = place.run(&args);
        if refused(&outcome) {
            continue;
        }
        assert_eq!(outcome.code(), 0, "{}: {outcome:?}", place.name());
        assert!(dir.path().join("open/new").exists() && !dir.path().join("new").exists());
    }
}

#[test]
fn what_is_wrong_with_a_policy_is_said_in_one_line() {
    let dir = directory();
    let file = dir.path().join("policy.json");
    std::fs::write(&file, r#"{"permissions": {"type": "disabled"}}"#).unwrap();
    let (cut, path) = (dir.path().join("cut.json"), dir.path().join("path.json"));
    std::fs::write(&cut, "{\n  \"permissions\": {\"type\": \"disabled\",}\n}").unwrap();
    std::fs::write(
        &path,
        r#"{"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled", "workspaceRoots": ["/srv/job"]}"#,
    )
    .unwrap();
    let place = Place::Local;
    for (args, word) in [
        (&["--sandbox", "/no/such/policy", "--", "true"][..], "/no/such/policy"),
        (&["--sandbox", "workspace_write", "--", "true"], "neither read-only nor workspace-write"),
        (&["--sandbox", text(&cut), "--", "true"], "line 2 column"),
        (&["--sandbox", text(&path), "--", "true"], "`/srv/job`"),
        (&["--sandbox", text(&file), "--", "true"], "windowsSandboxLevel"),
        (&["--sandbox", "workspace-write", "--root", "relative", "--", "true"], "relative"),
        (&["--root", "/", "--", "true"], "--sandbox"),
        (&["--sandbox", "read-only", "--root", "/", "--", "true"], "workspace-write"),
        // Of a server it is not the caller's to decide.
        (&["--sandbox", "read-only", "--sandbox-accept-partial", "--stdio", "x", "--", "true"], "--stdio"),
        (&["--sandbox-accept-partial", "--", "true"], "--sandbox"),
    ] {
        let outcome = place.run(args);
        assert_eq!(outcome.code(), 125, "{args:?}: {outcome:?}");
        assert!(outcome.reason().contains(word), "{args:?}: {outcome:?}");
    }
}

#[test]
fn a_workspace_may_have_any_name_and_be_a_file() {
    use std::os::unix::ffi::OsStrExt as _;
    for place in Place::all() {
        let dir = directory();
        let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"\xff\n%41 *"));
        std::fs::create_dir(&odd).unwrap();
        std::fs::write(dir.path().join("file"), "old").unwrap();
        let file = dir.path().join("file");
        for (root, to, script) in [
            (&odd, odd.join("new"), "cd *41* && echo new > new"),
            (&file, file.clone(), "echo new > file; echo no > file.beside; true"),
        ] {
            let args = ["--sandbox", "workspace-write", "--root", "R", "--cwd", "C", "--", "sh", "-c", script];
            let args = args.map(|arg| match arg {
                "R" => root.as_os_str(),
                "C" => dir.path().as_os_str(),
                arg => arg.as_ref(),
            });
            let outcome = place.run(&args);
            if refused(&outcome) {
                continue;
            }
            let written = std::fs::read_to_string(to).unwrap_or_default();
            assert_eq!(written, "new\n", "{}: {outcome:?}", place.name());
        }
        assert!(!dir.path().join("file.beside").exists());
    }
}

#[test]
fn placeholders_are_noted_in_the_directory_that_is_named() {
    let (dir, state) = (directory(), directory());
    let place = Place::Local;
    let run = |at: &Path, script: &str| {
        let cwd = text(dir.path());
        let args = ["--sandbox", "workspace-write", "--sandbox-state-dir", text(at), "--cwd", cwd, "--"];
        place.run(&[&args[..], &["sh", "-c", script]].concat())
    };
    let at = state.path().join("state");
    let outcome = run(&at, "test -d .aws");
    if refused(&outcome) {
        return;
    }
    assert_eq!(outcome.code(), 0, "{outcome:?}");
    assert!(at.is_dir());
    // No command can write there, wherever it is and however it is named.
    for name in ["state", "./state", "state/below/.."] {
        let here = directory();
        let at = here.path().join("state");
        let given = Path::new(name);
        if given.ends_with("..") {
            std::fs::create_dir_all(at.join("below")).unwrap();
            std::fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        }
        let script = format!("cd {} && mkdir .aws && exit 1; echo > state/forged; echo > beside", text(here.path()));
        let args = ["exec", "--sandbox", "workspace-write", "--sandbox-state-dir", name, "--root", text(here.path())];
        let args = [&args[..], &["--", "sh", "-c", &script]].concat();
        let outcome = run_program(Command::new(PROGRAM).args(args).current_dir(here.path()), b"");
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert!(outcome.code() == 0, "{name}: {said}");
        assert!(at.is_dir() && here.path().join("beside").exists(), "{name}: {said}");
        assert!(!at.join("forged").exists(), "{name}: {said}");
    }
    // One that cannot be made is named.
    let outcome = run(Path::new("/proc/none"), "true");
    assert_eq!(outcome.code(), 125, "{outcome:?}");
    assert!(outcome.reason().contains("/proc/none"), "{outcome:?}");
}

#[test]
fn what_stands_for_a_name_stays_while_a_command_of_an_executor_with_another_state_needs_it() {
    let (dir, state) = (directory(), directory());
    let at = |name: &str| dir.path().join(name);
    let run = |own: &str, script: &str| {
        let (own, cwd) = (state.path().join(own), text(dir.path()));
        let args = ["--sandbox", "workspace-write", "--sandbox-state-dir", text(&own), "--cwd", cwd, "--"];
        Place::Local.run(&[&args[..], &["sh", "-c", script]].concat())
    };
    std::thread::scope(|threads| {
        let first = threads.spawn(|| run("first", "echo > runs; until test -e end; do sleep 0.01; done"));
        while !at("runs").exists() && !first.is_finished() {
            std::thread::yield_now();
        }
        if first.is_finished() {
            assert!(refused(&first.join().unwrap()));
            return;
        }
        let script = "mkdir .git/a; echo > found; until test -e ended; do sleep 0.01; done; mkdir -p .git/hooks";
        let second = threads.spawn(|| run("second", script));
        while !at("found").exists() && !second.is_finished() {
            std::thread::yield_now();
        }
        std::fs::write(at("end"), "").unwrap();
        let first = first.join().unwrap();
        std::fs::write(at("ended"), "").unwrap();
        let second = second.join().unwrap();
        assert_eq!((first.code(), first.stderr.len()), (0, 0), "{first:?}");
        assert!(second.code() != 0 && !at(".git/hooks").exists(), "{second:?}");
        assert_eq!(std::fs::read_dir(at(".git")).unwrap().count(), 0);
        // Whoever has made it removes it when he has the chance.
        assert_eq!(run("first", "true").code(), 0);
        assert!(!at(".git").exists());
    });
}

#[test]
fn the_owner_of_a_server_decides_about_loopback() {
    let server = Server::start_with(&["--sandbox-private-loopback", "--sandbox-protect", ".vault"]);
    let place = Place::Connect(server);
    let dir = directory();
    let cwd = text(dir.path());
    let outcome = place.run(&["--sandbox", "workspace-write", "--cwd", cwd, "--", "mkdir", ".vault"]);
    if refused(&outcome) {
        return;
    }
    assert!(outcome.code() != 0 && !dir.path().join(".vault").exists(), "{outcome:?}");
    // The address is there when the interface is up.
    let look = ["--sandbox", "read-only", "--cwd", cwd, "--", "grep", "-q", "127.0.0.1", "/proc/net/fib_trie"];
    let outcome = place.run(&look);
    assert_eq!(outcome.code(), 0, "{outcome:?}");
}

#[test]
fn a_protected_name_that_a_command_has_made_is_told_also_after_a_success() {
    for place in Place::all() {
        let dir = directory();
        let root = dir.path().join("root");
        // Within a larger repository nothing stands for the name.
        std::fs::create_dir_all(dir.path().join(".git")).unwrap();
        std::fs::write(dir.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::create_dir(&root).unwrap();
        let outcome = place.run(&["--sandbox", "workspace-write", "--cwd", text(&root), "--", "mkdir", ".git"]);
        if refused(&outcome) {
            continue;
        }
        let git = root.canonicalize().unwrap().join(".git");
        let said = String::from_utf8_lossy(&outcome.stderr);
        let line = format!("longarm: {} appeared while a sandboxed command ran", git.display());
        assert!(
            outcome.code() == 0 && said.contains(&line) && !said.contains("denied"),
            "{}: {outcome:?}",
            place.name()
        );
        assert!(git.is_dir(), "a user may have made it");
    }
}

#[test]
fn what_appeared_is_moved_where_the_owner_of_a_server_wants_that_and_he_is_told() {
    let dir = directory();
    let (root, state) = (dir.path().join("root"), dir.path().join("state"));
    std::fs::create_dir(&root).unwrap();
    let server = Server::start_with(&["--sandbox-move-names", "--sandbox-state-dir", text(&state)]);
    let place = Place::Connect(server);
    let outcome = place.run(&["--sandbox", "workspace-write", "--cwd", text(&root), "--", "mkdir", ".git"]);
    if refused(&outcome) {
        return;
    }
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert!(said.contains(", and was moved to ") && !root.join(".git").exists(), "{outcome:?}");
    let moved = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(moved.into_iter().any(|name| name.starts_with(".git.")), "{outcome:?}");
    let Place::Connect(mut server) = place else { unreachable!("it is that one") };
    server.running.signal("TERM");
    let outcome = server.running.finish();
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert!(said.contains(".git appeared while a sandboxed command ran, and was moved to "), "{said}");
}
