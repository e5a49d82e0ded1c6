//! Starts that are held up, and children that cannot be killed.

use super::*;
use crate::backend::local::config::LocalConfig;
use crate::request::ExecRequest;
use crate::testing::patience::within;

const PATIENCE: Duration = Duration::from_secs(60);

fn plan(argv: [&str; 2]) -> LaunchPlan {
    LaunchPlan::new(&ExecRequest::new(argv).cwd("/tmp"), &LocalConfig::from_host()).unwrap()
}

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    within(PATIENCE, future).await.expect("it does not hang")
}

/// Kills by number what refuses to be killed by us.
fn kill(pid: u32) {
    let pid = libc::pid_t::try_from(pid).unwrap();
    // SAFETY: the call touches no memory; nobody has reaped the child yet.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}

#[tokio::test]
async fn a_start_behind_stuck_ones_ends_in_an_error() {
    let spawner = Spawner::new(Duration::from_secs(2));
    let mut ends = Vec::new();
    for _ in 0..MAX_THREADS {
        let (end, until) = std::sync::mpsc::channel();
        spawner.queue.push(Job::Stuck(until)).unwrap();
        ends.push(end);
    }
    let error = patiently(spawner.start(plan(["sleep", "300"]))).await.unwrap_err();
    assert!(matches!(error, SpawnError::TimedOut { limit } if limit == Duration::from_secs(2)), "{error}");
    drop(ends);
    let launched = patiently(spawner.start(plan(["sleep", "0"]))).await;
    spawner.bury(launched.unwrap().child, None);
    patiently(spawner.shut_down()).await;
}

#[tokio::test]
async fn children_that_cannot_be_killed_hold_no_start_up() {
    let spawner = Spawner::new(PATIENCE);
    let mut pids = Vec::new();
    for _ in 0..=MAX_THREADS {
        let mut child = patiently(spawner.start(plan(["sleep", "300"]))).await.unwrap().child;
        child.refuses_signals = true;
        pids.push(child.id());
        spawner.bury(child, None);
    }
    let launched = patiently(spawner.start(plan(["sleep", "300"]))).await.unwrap();
    pids.into_iter().for_each(kill);
    let path = format!("/proc/{}", launched.child.id());
    spawner.bury(launched.child, None);
    patiently(spawner.shut_down()).await;
    assert!(!cfg!(target_os = "linux") || !std::path::Path::new(&path).exists(), "it was killed and reaped");
}

#[tokio::test]
async fn a_burial_after_the_end_of_the_pool_does_not_block() {
    let spawner = Spawner::new(PATIENCE);
    let mut child = patiently(spawner.start(plan(["sleep", "300"]))).await.unwrap().child;
    patiently(spawner.shut_down()).await;
    child.refuses_signals = true;
    let pid = child.id();
    let (told, done) = std::sync::mpsc::channel();
    let queue = Arc::clone(&spawner.queue);
    let thread = std::thread::spawn(move || {
        queue.bury(child, None);
        told.send(()).unwrap();
    });
    assert_eq!(done.recv_timeout(PATIENCE), Ok(()));
    thread.join().unwrap();
    kill(pid);
    patiently(spawner.shut_down()).await;
}

#[tokio::test]
async fn threads_that_have_panicked_are_replaced() {
    let spawner = Spawner::new(PATIENCE);
    for _ in 0..=MAX_THREADS {
        spawner.queue.push(Job::Panics).unwrap();
        let launched = patiently(spawner.start(plan(["sleep", "0"]))).await.unwrap();
        spawner.bury(launched.child, None);
    }
    patiently(spawner.shut_down()).await;
}

#[tokio::test]
async fn a_child_that_outlives_its_owner_lives_and_is_reaped() {
    let spawner = Spawner::new(PATIENCE);
    let child = patiently(spawner.start(plan(["sleep", "300"]))).await.unwrap().child;
    let pid = child.id();
    spawner.outlive(child, None);
    // The end of the pool waits for nobody whom it does not end.
    patiently(spawner.shut_down()).await;
    kill(pid);
    patiently(async {
        while lock(&spawner.queue.graves).tended {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let pid = libc::pid_t::try_from(pid).unwrap();
    // SAFETY: without a place for the status the call touches no memory.
    assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) }, -1, "it was reaped");
}

/// A workspace root in which a placeholder stands for a name, and who shares in that.
#[cfg(target_os = "linux")]
fn held(spawner: &Spawner) -> (tempfile::TempDir, std::path::PathBuf, Names) {
    use crate::sandbox::{Access, Existing, MissingProtected, ProtectedName};
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let path = root.join(".git");
    let name = ProtectedName {
        root,
        path: path.clone(),
        state: Existing::Missing,
        access: Access::Read,
        git_dir: None,
        placeholder: true,
        required: false,
    };
    let placeholders = os::sandbox::Placeholders::new(Some(directory.path().join("state")));
    let held = placeholders.hold(&[name], MissingProtected::Placeholder);
    assert!(path.is_dir());
    (directory, path, spawner.keeper().keep(held, None))
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn names_are_held_until_a_child_that_nobody_owns_has_ended() {
    for detached in [false, true] {
        let spawner = Spawner::new(PATIENCE);
        let (_directory, path, names) = held(&spawner);
        let mut child = patiently(spawner.start(plan(["sleep", "300"]))).await.unwrap().child;
        child.refuses_signals = true;
        let pid = child.id();
        if detached {
            spawner.outlive(child, Some(names))
        } else {
            spawner.bury(child, Some(names))
        }
        // The reaper has been by, since it lets these go.
        let (_other, other_path, other) = held(&spawner);
        drop(other);
        patiently(gone(&other_path)).await;
        assert!(path.is_dir(), "it runs");
        kill(pid);
        patiently(gone(&path)).await;
        patiently(spawner.shut_down()).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn names_are_held_while_a_start_that_was_given_up_is_under_way() {
    let spawner = Spawner::new(PATIENCE);
    let (_directory, path, names) = held(&spawner);
    let (end, until) = std::sync::mpsc::channel();
    spawner.queue.push(Job::Stuck(until)).unwrap();
    let start = spawner.start(LaunchPlan { names: Some(names), ..plan(["sleep", "300"]) });
    assert!(tokio::time::timeout(Duration::from_millis(20), start).await.is_err());
    let (_other, other_path, other) = held(&spawner);
    drop(other);
    patiently(gone(&other_path)).await;
    assert!(path.is_dir(), "the program could still be started");
    drop(end);
    patiently(gone(&path)).await;
    patiently(spawner.shut_down()).await;
}

#[cfg(target_os = "linux")]
async fn gone(path: &std::path::Path) {
    while path.exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Where what prepares a start runs.
fn thread_name() -> Option<String> {
    std::thread::current().name().map(str::to_owned)
}

async fn start_and_bury(spawner: &Spawner) {
    let launched = patiently(spawner.start(plan(["sleep", "0"]))).await.unwrap();
    spawner.bury(launched.child, None);
}

/// A start that is prepared tells which thread has done it.
async fn prepared_by(spawner: &Spawner) -> Option<String> {
    let start = spawner.start_prepared(Preparer::Spawner, || Ok((plan(["sleep", "0"]), thread_name())));
    let (launched, by) = patiently(start).await.unwrap();
    spawner.bury(launched.child, None);
    by
}

async fn until_idle(spawner: &Spawner) {
    patiently(async {
        while lock(&spawner.queue.state).idle == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_start_is_prepared_by_the_thread_that_makes_it_if_that_has_nothing_to_do() {
    let spawner = Arc::new(Spawner::new(PATIENCE));
    assert_ne!(prepared_by(&spawner).await.as_deref(), Some("longarm-spawn"), "there is none yet");
    until_idle(&spawner).await;
    assert_eq!(prepared_by(&spawner).await.as_deref(), Some("longarm-spawn"));
    until_idle(&spawner).await;
    // One whose preparation hangs.
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let (begun, has_begun) = oneshot::channel();
    let hanging = tokio::spawn({
        let spawner = Arc::clone(&spawner);
        async move {
            let prepare = move || {
                begun.send(thread_name()).unwrap();
                wait.recv().unwrap();
                Ok((plan(["sleep", "0"]), ()))
            };
            spawner.start_prepared(Preparer::Spawner, prepare).await
        }
    });
    assert_eq!(patiently(has_begun).await.unwrap().as_deref(), Some("longarm-spawn"));
    // Neither plain ones nor others that are prepared have to wait for it, and none of these is behind it.
    start_and_bury(&spawner).await;
    until_idle(&spawner).await;
    assert_ne!(prepared_by(&spawner).await.as_deref(), Some("longarm-spawn"));
    go_on.send(()).unwrap();
    let (launched, ()) = patiently(hanging).await.unwrap().unwrap();
    spawner.bury(launched.child, None);
    patiently(spawner.shut_down()).await;
}

#[tokio::test]
async fn a_preparation_that_fails_or_panics_starts_nothing() {
    let spawner = Spawner::new(PATIENCE);
    start_and_bury(&spawner).await;
    until_idle(&spawner).await;
    let start = spawner.start_prepared(Preparer::Spawner, || {
        Err::<(LaunchPlan, ()), _>(SpawnError::CwdNotFound { path: "/here".into() })
    });
    let error = patiently(start).await.unwrap_err();
    assert!(matches!(&error, SpawnError::CwdNotFound { path } if path == std::path::Path::new("/here")), "{error}");
    until_idle(&spawner).await;
    let start = spawner
        .start_prepared(Preparer::Spawner, || -> Result<(LaunchPlan, ()), SpawnError> { panic!("as a test wants it") });
    let error = patiently(start).await.unwrap_err();
    assert!(matches!(error, SpawnError::Os(_)), "{error}");
    assert!(lock(&spawner.threads).iter().all(|thread| !thread.is_finished()), "whoever is its child lives on");
    let start = spawner.start_prepared(Preparer::Runtime, || Ok((plan(["sleep", "0"]), thread_name())));
    let (launched, by) = patiently(start).await.unwrap();
    assert_ne!(by.as_deref(), Some("longarm-spawn"), "it is not for code of a host's");
    spawner.bury(launched.child, None);
    // The right to prepare is not lost with it.
    start_and_bury(&spawner).await;
    until_idle(&spawner).await;
    assert_eq!(prepared_by(&spawner).await.as_deref(), Some("longarm-spawn"));
    patiently(spawner.shut_down()).await;
    let error =
        patiently(spawner.start_prepared(Preparer::Spawner, || Ok((plan(["sleep", "0"]), ())))).await.unwrap_err();
    assert!(matches!(error, SpawnError::Closed), "{error}");
}

#[tokio::test]
async fn what_was_prepared_for_a_caller_that_is_gone_is_dropped() {
    let spawner = Arc::new(Spawner::new(PATIENCE));
    start_and_bury(&spawner).await;
    until_idle(&spawner).await;
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let (begun, has_begun) = oneshot::channel();
    // Its end closes this channel.
    let (besides, dropped) = oneshot::channel::<()>();
    let start = tokio::spawn({
        let spawner = Arc::clone(&spawner);
        async move {
            let prepare = move || {
                begun.send(()).unwrap();
                wait.recv().unwrap();
                Ok((plan(["sleep", "300"]), besides))
            };
            spawner.start_prepared(Preparer::Spawner, prepare).await.map(drop)
        }
    });
    patiently(has_begun).await.unwrap();
    start.abort();
    assert!(patiently(start).await.unwrap_err().is_cancelled());
    go_on.send(()).unwrap();
    assert!(patiently(dropped).await.is_err());
    patiently(spawner.shut_down()).await;
}
