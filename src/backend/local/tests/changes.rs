//! Files that are exchanged while a sandbox is prepared.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::path_uri::PathUri;
use crate::sandbox::{NativeEnforcer, SandboxEnforcer, SandboxError, SandboxIntent, SandboxPlan, SandboxedStart};

/// Has the system's sandbox prepared, and exchanges a file before it can be made.
#[derive(Debug)]
struct Exchanges {
    file: PathBuf,
    times: usize,
    prepared: AtomicUsize,
}

impl SandboxEnforcer for Exchanges {
    fn prepare(&self, start: &SandboxedStart<'_>) -> Result<SandboxPlan, SandboxError> {
        let plan = NativeEnforcer::new().prepare(start);
        if self.prepared.fetch_add(1, Ordering::Relaxed) < self.times {
            let next = self.file.with_extension("next");
            std::fs::write(&next, "secret").unwrap();
            std::fs::rename(&next, &self.file).unwrap();
        }
        plan
    }
}

fn uri(path: &Path) -> PathUri {
    PathUri::from_host_native_path(path).unwrap()
}

/// What becomes of a command, how often it was prepared, and what is then in its workspace root.
async fn run_while_exchanged(times: usize) -> (Result<(i32, Vec<u8>), SpawnError>, usize, Vec<String>) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = directory.path().canonicalize().unwrap().join("root");
    std::fs::create_dir(&root).unwrap();
    let file = root.join("file");
    std::fs::write(&file, "secret").unwrap();
    let enforcer = Arc::new(Exchanges { file: file.clone(), times, prepared: AtomicUsize::new(0) });
    let local = Local::new(LocalConfig::from_host().enforcer(Arc::clone(&enforcer) as _));
    let intent = SandboxIntent::workspace_write([uri(&root)]).deny(uri(&file));
    let request = ExecRequest::new(["sh", "-c", "cat file; echo x >made && echo ran"]).cwd(&root).sandbox(intent);
    let outcome = match local.spawn(request).await {
        Ok(spawned) => {
            let (status, output) = collect(spawned.events).await;
            Ok((status.wire_code(), output))
        }
        Err(error) => Err(error),
    };
    local.close().await;
    let mut left: Vec<_> =
        std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    (outcome, enforcer.prepared.load(Ordering::Relaxed), left)
}

#[tokio::test]
async fn a_start_whose_files_are_exchanged_is_prepared_again_a_few_times() {
    for times in 0..3 {
        let (outcome, prepared, left) = run_while_exchanged(times).await;
        let (code, output) = match outcome {
            Ok(outcome) => outcome,
            Err(SpawnError::Sandbox(error @ SandboxError::Unavailable { .. })) => {
                return needs::skipped("a sandbox", &error.to_string());
            }
            Err(error) => panic!("{error}"),
        };
        let output = String::from_utf8(output).unwrap();
        assert!(code == 0 && output.contains("ran\n") && !output.contains("secret"), "{code} {output}");
        assert_eq!((prepared, left), (times + 1, vec!["file".to_owned(), "made".into()]));
    }
    let (outcome, prepared, left) = run_while_exchanged(usize::MAX).await;
    let error = outcome.expect_err("it has changed each time");
    assert!(error.is_retryable(), "{error}");
    let SpawnError::Sandbox(SandboxError::Changed { reason }) = error else { panic!("{error}") };
    assert!(reason.contains("/root/file"), "{reason}");
    assert_eq!((prepared, left), (3, vec!["file".to_owned()]));
}

/// Counts what it is asked for.
#[derive(Debug, Default)]
struct Counts(AtomicUsize);

impl SandboxEnforcer for Counts {
    fn prepare(&self, _start: &SandboxedStart<'_>) -> Result<SandboxPlan, SandboxError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(SandboxError::Unsupported)
    }
}

#[tokio::test]
async fn who_gives_a_start_up_has_no_tree_walked_for_it() {
    let enforcer = Arc::new(Counts::default());
    let local = Local::new(LocalConfig::from_host().enforcer(Arc::clone(&enforcer) as _));
    let (directory, intent) = workspace();
    let intent = intent.deny_glob(format!("{}/**/*.pem", directory.path().display()));
    let request = ExecRequest::new(["true"]).cwd(directory.path()).sandbox(intent);
    for gives_up in [false, true] {
        let stalled = local.placeholders.stall();
        let mut start = Box::pin(local.spawn(request.clone()));
        let early = (&mut start).now_or_never().map(|outcome| outcome.err());
        assert!(early.is_none(), "the walk is still to come: {early:?}");
        if gives_up {
            drop(start);
            drop(stalled);
        } else {
            drop(stalled);
            let Err(error) = start.await else { panic!("there is no sandbox to be had") };
            assert!(matches!(error, SpawnError::Sandbox(SandboxError::Unsupported)), "{error}");
            assert_eq!(enforcer.0.load(Ordering::Relaxed), 1);
        }
    }
    // Who looks has the enforcer too.
    local.close().await;
    drop(local);
    let mut patience = Patience::new(Duration::from_secs(60));
    while Arc::strong_count(&enforcer) > 1 {
        assert!(patience.is_left(), "the look goes on");
        patience.sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(enforcer.0.load(Ordering::Relaxed), 1, "the walk has not ended");
}
