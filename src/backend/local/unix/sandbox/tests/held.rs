//! What stays where the intent names it, for the next command too; and what is not the host's, or must not be its.

use super::*;
use crate::path_uri::PathUri;
use crate::sandbox::{Facts, HostPaths, SandboxIntent};

fn uri(path: &Path) -> PathUri {
    PathUri::from_host_native_path(path).unwrap()
}

/// What the executor would bind an intent to now.
fn bind(intent: &SandboxIntent) -> Arc<Bound> {
    let settings = settings();
    let mut bound = intent.bind(&Facts::host(&settings, Path::new("/tmp"))).unwrap();
    bound.expand_globs(&HostPaths).unwrap();
    Arc::new(bound)
}

/// The words of `words` that a script has printed, each after something that it managed to do.
fn managed<'a>(output: &str, words: &[&'a str]) -> Vec<&'a str> {
    words.iter().copied().filter(|word| output.lines().any(|line| line == *word)).collect()
}

#[tokio::test]
async fn what_a_pattern_denies_is_denied_to_the_next_command_too() {
    for kernel in kernels_with_mounts() {
        for written in [false, true] {
            let workspace = Workspace::new();
            let root = workspace.path("w");
            for name in ["w/keys/below", "w/secrets/in", "w/none/yet"] {
                std::fs::create_dir_all(workspace.path(name)).unwrap();
            }
            for name in ["w/keys/a.key", "w/keys/plain", "w/keys/below/b.key", "w/secrets/in/f"] {
                std::fs::write(workspace.path(name), "text\n").unwrap();
            }
            let base = if written { SandboxIntent::disabled() } else { SandboxIntent::minimal_write([uri(&root)]) };
            let pattern = |text: &str| root.join(text).to_str().unwrap().to_owned();
            let intent = ["keys/**/*.key", "secrets/**", "none/yet/*.key"]
                .into_iter()
                .fold(base, |intent, text| intent.deny_glob(pattern(text)));
            let script = "mv keys k2 && echo moved; mv keys/below b2 && echo moved-below; rm -r secrets && echo removed; \
                          mv secrets s2 && echo renamed; mv none n2 && echo base; mv none/yet y2 && echo base-below; \
                          cat keys/a.key && echo read; touch keys/new && echo made; ln keys/plain hard && echo linked; \
                          mkdir keys/dir && mv keys/dir . && rmdir dir && echo free";
            let words =
                ["moved", "moved-below", "removed", "renamed", "base", "base-below", "read", "made", "linked", "free"];
            let (_, output) = run(&kernel, &bind(&intent), &root, script).await;
            assert_eq!(managed(&output, &words), ["made", "linked", "free"], "{written} {kernel:?}: {output}");

            let script =
                "cat k2/a.key; cat b2/b.key; cat keys/a.key; cat keys/below/b.key; cat s2/in/f; cat secrets/in/f";
            let (_, output) = run(&kernel, &bind(&intent), &root, script).await;
            assert!(!output.contains("text"), "{written} {kernel:?}: {output}");
        }
    }
}

#[tokio::test]
async fn a_directory_that_is_held_is_no_border_within_a_root() {
    let workspace = Workspace::new();
    let root = workspace.path("w");
    let entries = [(root.clone(), Access::Write), (workspace.path("w/deep/er/s"), Access::Read)];
    let bound = bound(Some(Access::Read), NetworkPolicy::Restricted, &entries);
    std::fs::write(workspace.path("w/deep/er/free"), "text\n").unwrap();
    for kernel in kernels_with_mounts() {
        let script = "ln deep/er/free hard && rm hard && echo linked; mv deep/er e2 && echo moved; rmdir deep && echo removed; \
                      grep -c w/deep /proc/self/mountinfo";
        let (_, output) = run(&kernel, &bound, &root, script).await;
        assert_eq!(managed(&output, &["linked", "moved", "removed"]), ["linked"], "{kernel:?}: {output}");
    }
}

#[tokio::test]
async fn thousands_of_directories_are_held_and_more_are_refused_by_name() {
    let workspace = Workspace::new();
    let root = workspace.path("w");
    for number in 0..3_000 {
        let directory = root.join(format!("d{number}"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("a.key"), "text\n").unwrap();
    }
    let pattern = format!("{}/**/*.key", root.display());
    let intent = SandboxIntent::read_only().write(uri(&root)).deny_glob(pattern);
    let bound = bind(&intent);
    let kernel = probe::kernel().unwrap();
    if kernel.mode == Mode::Bare {
        return;
    }
    let script = "mv d7 x && echo moved; mv d2999 x && echo moved; cat d*/a.key && echo read; echo end";
    let (_, output) = run(kernel, &bound, &root, script).await;
    assert_eq!(managed(&output, &["moved", "read", "end"]), ["end"], "{}", output.len());
}

#[tokio::test]
async fn a_held_directory_that_changes_before_the_start_refuses_it() {
    for kernel in kernels_with_mounts() {
        let workspace = Workspace::new();
        let root = workspace.path("w");
        let entries = [(root.clone(), Access::Write), (workspace.path("w/deep/er/s"), Access::Deny)];
        let bound = bound(Some(Access::Read), NetworkPolicy::Restricted, &entries);
        let sandbox = prepared(&kernel, &bound, Walls::default());
        std::fs::rename(workspace.path("w/deep/er"), workspace.path("w/deep/aside")).unwrap();
        std::fs::create_dir(workspace.path("w/deep/er")).unwrap();
        let error = Running::start(launch_plan("true", Path::new("/tmp"), sandbox)).await.err().unwrap();
        let SpawnError::Sandbox(SandboxError::Changed { reason }) = &error else { panic!("{error}") };
        assert!(reason.contains(workspace.path("w/deep/er").to_str().unwrap()), "{reason}");
    }
}

#[test]
fn a_root_that_was_a_file_and_is_a_directory_or_the_reverse_is_not_opened() {
    for kernel in kernels_with_mounts() {
        for (root, access) in
            [(Access::Read, Access::Write), (Access::Write, Access::Read), (Access::Read, Access::Deny)]
        {
            let workspace = Workspace::new();
            let named = workspace.path("w/named");
            for (is_directory, other) in [(false, true), (true, false), (true, true)] {
                let make = |is_directory| match is_directory {
                    true => std::fs::create_dir(&named).unwrap(),
                    false => std::fs::write(&named, "").unwrap(),
                };
                make(is_directory);
                let bound = bound(Some(root), NetworkPolicy::Restricted, &[(named.clone(), access)]);
                std::fs::rename(&named, workspace.path("w/aside")).unwrap();
                make(other);
                let planned = prepared_on(&kernel, &bound, &settings(), None, Walls::default());
                let changed = |error: &SandboxError| matches!(error, SandboxError::Changed { reason } if reason.contains(named.to_str().unwrap()));
                // What may not be written to is no less closed by what it is.
                let may_go_on = is_directory == other || access != Access::Write;
                assert!(planned.as_ref().map_or_else(changed, |_| may_go_on), "{access:?} {is_directory}: {planned:?}");
                for path in [&named, &workspace.path("w/aside")] {
                    if path.is_dir() { std::fs::remove_dir(path).unwrap() } else { std::fs::remove_file(path).unwrap() }
                }
            }
        }
    }
}

#[tokio::test]
async fn what_is_attached_or_masked_and_changes_before_the_start_refuses_it() {
    const PLACE: &str = "a place has changed";
    const TARGET: &str = "a place to attach to has changed";
    for kernel in kernels_with_mounts() {
        for (root, access, said) in [
            (Access::Read, Access::Write, PLACE),
            (Access::Read, Access::Deny, TARGET),
            (Access::Write, Access::Read, PLACE),
            (Access::Write, Access::Deny, TARGET),
        ] {
            let workspace = Workspace::new();
            let named = workspace.path("w/named");
            std::fs::create_dir(&named).unwrap();
            let bound = bound(Some(root), NetworkPolicy::Restricted, &[(named.clone(), access)]);
            let sandbox = prepared(&kernel, &bound, Walls::default());
            std::fs::rename(&named, workspace.path("w/aside")).unwrap();
            std::fs::create_dir(&named).unwrap();
            let error = Running::start(launch_plan("true", Path::new("/tmp"), sandbox)).await.err().unwrap();
            let SpawnError::Sandbox(SandboxError::Changed { reason }) = &error else { panic!("{error}") };
            assert!(reason.contains(said) && reason.contains(named.to_str().unwrap()), "{root:?} {access:?}: {reason}");
        }
    }
}

#[tokio::test]
async fn nobody_writes_the_settings_of_the_machine_where_something_is_denied() {
    let workspace = Workspace::new();
    let root = workspace.path("w");
    let denied = [(workspace.path("w/secret"), Access::Deny)];
    let read = [(PathBuf::from("/sys"), Access::Read), denied[0].clone()];
    let inner = [(PathBuf::from("/sys/kernel"), Access::Deny), denied[0].clone()];
    // Some systems have the control groups there, some what is below.
    let script = "(exec 3<>/sys/kernel/mm/ksm/run) && echo setting; (exec 3<>/proc/sys/vm/swappiness) && echo proc; \
                  mkdir /sys/fs/cgroup/longarm-sandbox && echo group; \
                  for group in /sys/fs/cgroup/*/; do mkdir $group/longarm-sandbox && echo below; done; \
                  ls /sys/kernel > /dev/null && echo kernel; ls secret && echo secret; touch file && echo file";
    let words = ["setting", "proc", "group", "below", "kernel", "secret", "file"];
    for kernel in kernels_with_mounts() {
        for (entries, expected) in
            [(&denied[..], &["kernel", "file"][..]), (&read, &["kernel", "file"]), (&inner, &["file"])]
        {
            let bound = bound(Some(Access::Write), NetworkPolicy::Restricted, entries);
            let (_, output) = run(&kernel, &bound, &root, script).await;
            assert_eq!(managed(&output, &words), expected, "{entries:?} {kernel:?}: {output}");
        }
    }
}

/// Where there is no such directory, there is nothing to see.
fn in_shared_memory() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir_in("/dev/shm").ok()?;
    std::fs::create_dir_all(directory.path().join("w/deep/secret")).unwrap();
    for name in ["w/file", "w/deep/secret/f", "f"] {
        std::fs::write(directory.path().join(name), "text\n").unwrap();
    }
    Some(directory)
}

#[tokio::test]
async fn a_workspace_in_shared_memory_is_one() {
    let Some(directory) = in_shared_memory() else { return };
    let root = directory.path().canonicalize().unwrap().join("w");
    let script = "echo x > new && rm new && echo made; cat file > /dev/null && echo read; cat deep/secret/f && echo secret; \
                  mv deep d2 && echo moved; cat ../f && echo above; echo x > /dev/shm/own && echo own; ls -A /dev/shm | wc -l";
    let words = ["made", "read", "secret", "moved", "above", "own"];
    let secret = root.join("deep/secret");
    for kernel in kernels_with_mounts() {
        for base in [SandboxIntent::read_only(), SandboxIntent::minimal_read([]), SandboxIntent::disabled()] {
            let open = base == SandboxIntent::disabled();
            let intent = base.workspace_root(uri(&root)).write(uri(&root)).deny(uri(&secret));
            let (_, output) = run(&kernel, &bind(&intent), &root, script).await;
            assert_eq!(managed(&output, &words), ["made", "read", "own"], "{open} {kernel:?}: {output}");
            assert!(output.ends_with("\n2\n"), "that of the workspace, and its own: {output}");
        }
        let bound = bind(&SandboxIntent::read_only().workspace_root(uri(&root)));
        let (_, output) = run(&kernel, &bound, &root, script).await;
        assert_eq!(managed(&output, &words), ["read", "secret", "own"], "{kernel:?}: {output}");
        assert!(!std::fs::exists("/dev/shm/own").unwrap(), "it is not the host's");
    }
}

#[tokio::test]
async fn a_directory_that_is_made_anew_is_not_said_to_be_missing() {
    let Some(directory) = in_shared_memory() else { return };
    for kernel in kernels_with_mounts() {
        let plan = launch_plan("true", directory.path(), prepared(&kernel, &read_only(), Walls::default()));
        let error = Running::start(plan).await.err().unwrap();
        let SpawnError::Sandbox(SandboxError::Preparation { reason }) = &error else { panic!("{error}") };
        assert!(reason.contains(directory.path().to_str().unwrap()) && reason.contains("workspace root"), "{reason}");
    }
}
