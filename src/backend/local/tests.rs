//! What cannot be seen from outside: the ways of older kernels.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};

use super::*;
use crate::event::Event;
use crate::request::Signal;
use crate::testing::patience::{Patience, within};

#[cfg(target_os = "linux")]
mod changes;
#[cfg(target_os = "linux")]
mod held;
#[cfg(target_os = "linux")]
#[path = "../../../tests/common/needs.rs"]
pub(super) mod needs;

/// The status and the output of a script.
async fn run(local: &Local, script: &str) -> (crate::status::ExitStatus, Vec<u8>) {
    let spawned = local.spawn(ExecRequest::new(["sh", "-c", script]).cwd("/tmp")).await.unwrap();
    collect(spawned.events).await
}

async fn collect(mut events: super::super::EventSource) -> (crate::status::ExitStatus, Vec<u8>) {
    let (mut status, mut bytes) = (None, Vec::new());
    while let Some(event) = events.next().await {
        match event.unwrap() {
            Event::Output(output) => bytes.extend_from_slice(&output.bytes),
            Event::Exited(exited) => status = Some(exited.status),
            _ => {}
        }
    }
    (status.unwrap(), bytes)
}

/// A workspace root outside of what everybody may write to, and an intent to write there.
#[cfg(target_os = "linux")]
fn workspace() -> (tempfile::TempDir, crate::sandbox::SandboxIntent) {
    use crate::path_uri::PathUri;
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = PathUri::from_host_native_path(directory.path().canonicalize().unwrap()).unwrap();
    (directory, crate::sandbox::SandboxIntent::workspace_write([root]))
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn letting_names_go_stops_no_other_process_of_the_runtime() {
    let local = Local::new(LocalConfig::from_host());
    let (directory, intent) = workspace();
    let request = ExecRequest::new(["sh", "-c", "read line; exit 3"]).stdin(crate::request::Stdin::Piped);
    let mut spawned = match local.spawn(request.cwd(directory.path()).sandbox(intent)).await {
        Ok(spawned) => spawned,
        Err(SpawnError::Sandbox(error)) => return needs::skipped("a sandbox", &error.to_string()),
        Err(error) => panic!("{error}"),
    };
    assert!(directory.path().join(".git").is_dir());
    // Stands for a file system that takes its time.
    let stalled = local.placeholders.stall();
    spawned.control.write(bytes::Bytes::from_static(b"go\n")).await.unwrap();
    for _ in 0..3 {
        assert_eq!(run(&local, "exit 4").await.0.code(), Some(4), "this one goes on");
    }
    assert!(spawned.events.next().now_or_never().is_none(), "what is held is let go before the exit is told");
    drop(stalled);
    let (status, _) = collect(spawned.events).await;
    assert_eq!(status.code(), Some(3));
    assert!(!directory.path().join(".git").exists());
    local.close().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_look_at_an_intent_is_a_part_of_the_time_that_a_start_may_take() {
    let local = Local::new(LocalConfig::from_host().start_limit(Duration::from_millis(50)));
    let (directory, intent) = workspace();
    let stalled = local.placeholders.stall();
    let request = ExecRequest::new(["true"]).cwd(directory.path()).sandbox(intent);
    let Err(error) = local.spawn(request).await else { panic!("it takes too long") };
    assert!(matches!(error, SpawnError::TimedOut { .. }), "{error}");
    drop(stalled);
    local.close().await;
}

fn without_pidfds() -> Local {
    Local::new(LocalConfig::from_host().exit_by_thread())
}

#[tokio::test]
async fn without_pidfds_exits_are_seen_and_nothing_is_left() {
    let local = without_pidfds();
    let (status, bytes) = run(&local, "echo out; exit 3").await;
    assert_eq!((status.code(), bytes.as_slice()), (Some(3), &b"out\n"[..]));
    assert_eq!(run(&local, "kill -9 $$").await.0.signal(), Some(Signal::Kill));
    let runs = (0..20).map(|code| run(&local, if code % 2 == 0 { "exit 0" } else { "exit 1" }));
    let ends = futures_util::future::join_all(runs).await;
    assert!(ends.iter().enumerate().all(|(number, (status, _))| status.code() == Some((number % 2) as i32)));
    local.close().await;
}

#[tokio::test]
async fn without_pidfds_the_leader_stays_until_the_close_and_the_group_can_be_ended() {
    let local = without_pidfds();
    let request = ExecRequest::new(["sh", "-c", "sleep 300 & exit 0"]).cwd("/tmp");
    let mut spawned = local.spawn(request).await.unwrap();
    assert!(matches!(spawned.events.next().await, Some(Ok(Event::Exited(_)))));
    let stat = format!("/proc/{}/stat", spawned.control.os_id().unwrap());
    assert!(std::fs::read_to_string(&stat).unwrap().contains(") Z "), "its number is kept");
    let how = Terminate::graceful(Duration::from_secs(60)).with_descendants();
    assert!(!spawned.control.terminate(how).await.unwrap());
    assert!(matches!(spawned.events.next().await, Some(Ok(Event::Closed(_)))));
    assert!(spawned.events.next().await.is_none());
    local.close().await;
    assert!(!Path::new(&stat).exists(), "and given back");
}

/// Has a process of this place refuse all signals, or take them again.
fn refuse_signals(local: &Local, refuse: bool) {
    for shared in local.registry.live() {
        shared.control().child.as_mut().unwrap().refuses_signals = refuse;
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn closing_does_not_wait_for_ever_for_what_cannot_be_killed() {
    let local = Local::new(LocalConfig::from_host().close_grace(Duration::from_millis(20)));
    let spawned = local.spawn(ExecRequest::new(["sleep", "300"]).cwd("/tmp")).await.unwrap();
    refuse_signals(&local, true);
    within(PATIENCE, local.close()).await.expect("it gives up");
    assert_eq!(local.unfinished(), std::slice::from_ref(&spawned.process_id));
    refuse_signals(&local, false);
    spawned.control.terminate(Terminate::kill()).await.unwrap();
    wait_until("all is gone", || local.unfinished().is_empty()).await;
    let failed = spawned.events.filter(|event| std::future::ready(event.is_err())).count().await;
    assert_eq!(failed, 1, "that it could not be killed in time is said at the end");
    local.close().await;
    assert!(local.unfinished().is_empty());
}

#[tokio::test]
async fn closing_does_not_wait_for_a_process_that_is_detached_meanwhile() {
    let local = Local::new(LocalConfig::from_host().close_grace(PATIENCE * 10));
    let request = ExecRequest::new(["sh", "-c", "trap '' TERM; echo r; while :; do sleep 0.05; done"]).cwd("/tmp");
    let mut spawned = local.spawn(request).await.unwrap();
    assert!(matches!(spawned.events.next().await, Some(Ok(Event::Output(_)))));
    let detach = async {
        tokio::task::yield_now().await;
        spawned.control.detach().await.unwrap();
    };
    let close = async { tokio::join!(local.close(), detach) };
    within(PATIENCE, close).await.expect("nothing is left to wait for");
    assert_eq!(local.unfinished(), std::slice::from_ref(&spawned.process_id));
    let live = local.registry.live();
    assert_eq!(live[0].control().stop.poll_timeout(), None, "it is not killed after the grace");
    spawned.control.terminate(Terminate::kill()).await.unwrap();
    let late = spawned.control.detach().await;
    assert!(matches!(late, Err(crate::error::SignalError::Ending)), "{late:?}");
    collect(spawned.events).await;
}

#[tokio::test]
async fn without_pidfds_what_a_closed_process_left_is_said_to_be_out_of_reach() {
    let local = without_pidfds();
    let request = ExecRequest::new(["sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!"]).cwd("/tmp");
    let mut spawned = local.spawn(request).await.unwrap();
    let mut left = Vec::new();
    while let Some(event) = spawned.events.next().await {
        if let Event::Output(output) = event.unwrap() {
            left.extend_from_slice(&output.bytes);
        }
    }
    let mut outcome = Ok(false);
    // The leader's number is given back a moment after the close.
    while matches!(outcome, Ok(false)) && !local.unfinished().is_empty() {
        tokio::task::yield_now().await;
        outcome = spawned.control.terminate(Terminate::kill()).await;
    }
    let outcome = spawned.control.terminate(Terminate::kill().with_descendants()).await;
    assert!(matches!(outcome, Err(crate::error::SignalError::Unsupported(_))), "{outcome:?}");
    let left: libc::pid_t = String::from_utf8(left).unwrap().trim().parse().unwrap();
    // SAFETY: the call touches no memory.
    assert_eq!(unsafe { libc::kill(left, libc::SIGKILL) }, 0, "it lives");
}

/// A process that has closed, with a member of its group that lives, whose number it has printed.
async fn leave_somebody(local: &Local) -> (Spawned, u32) {
    let request = ExecRequest::new(["sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!"]).cwd("/tmp");
    let mut spawned = local.spawn(request).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(event) = spawned.events.next().await {
        if let Event::Output(output) = event.unwrap() {
            bytes.extend_from_slice(&output.bytes);
        }
    }
    let left = String::from_utf8(bytes).unwrap().trim().parse().unwrap();
    assert!(is_alive(left));
    (spawned, left)
}

fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let mut patience = Patience::new(PATIENCE);
    while !condition() {
        assert!(patience.is_left(), "{what}");
        patience.sleep(Duration::from_millis(5)).await;
    }
}

/// Whether this kernel signals groups by pidfd, as Linux does since 6.9.
async fn groups_can_be_told(local: &Local) -> bool {
    let spawned = local.spawn(ExecRequest::new(["true"]).cwd("/tmp")).await.unwrap();
    let live = local.registry.live();
    let told = live[0].control().child.as_ref().unwrap().outlives_leader();
    collect(spawned.events).await;
    #[cfg(target_os = "linux")]
    assert_eq!(told, needs::Need::GroupsByPidfd.is_met(), "what the kernel has is used");
    told
}

#[tokio::test]
async fn what_a_closed_process_left_can_be_ended() {
    let local = Local::new(LocalConfig::from_host());
    if !groups_can_be_told(&local).await {
        return;
    }
    let (spawned, left) = leave_somebody(&local).await;
    assert!(!spawned.control.terminate(Terminate::kill()).await.unwrap());
    assert!(is_alive(left), "not without being asked for");
    let how = Terminate::graceful(PATIENCE).with_descendants();
    assert!(!spawned.control.terminate(how).await.unwrap());
    wait_until("it is gone", || !is_alive(left)).await;
    wait_until("the process is forgotten", || local.unfinished().is_empty()).await;
    assert!(!spawned.control.terminate(how).await.unwrap(), "nobody is left, and that is known");
}

#[tokio::test]
async fn closing_ends_what_a_closed_process_left() {
    let local = Local::new(LocalConfig::from_host());
    if !groups_can_be_told(&local).await {
        return;
    }
    let (_spawned, left) = leave_somebody(&local).await;
    local.close().await;
    assert!(!is_alive(left));
}

#[tokio::test]
async fn what_a_closed_process_left_is_let_go_with_the_handle() {
    let local = Local::new(LocalConfig::from_host());
    if !groups_can_be_told(&local).await {
        return;
    }
    let (spawned, left) = leave_somebody(&local).await;
    assert_eq!(local.unfinished(), std::slice::from_ref(&spawned.process_id));
    drop(spawned);
    wait_until("the process is forgotten", || local.unfinished().is_empty()).await;
    local.close().await;
    assert!(is_alive(left));
    // SAFETY: the call touches no memory.
    assert_eq!(unsafe { libc::kill(left.cast_signed(), libc::SIGKILL) }, 0);
}

/// Drops the handle of a process that has exited and left somebody, whom this then waits for.
async fn drop_after_exit(supervised: bool) {
    let local = Local::new(LocalConfig::from_host());
    let dir = tempfile::tempdir().unwrap();
    let script = "(while ! test -e go; do sleep 0.01; done; touch alive) & exit 0";
    let spawned = local.spawn(ExecRequest::new(["sh", "-c", script]).cwd(dir.path())).await.unwrap();
    let leader = spawned.control.os_id().unwrap();
    if supervised {
        wait_until("it exits", || local.registry.live()[0].control().exited).await;
    } else {
        let mut patience = Patience::new(PATIENCE);
        // Without a turn for the supervisor.
        while is_alive(leader) {
            assert!(patience.is_left(), "it exits");
            patience.block(Duration::from_millis(1));
        }
    }
    drop(crate::Process::new(spawned, Duration::ZERO));
    std::fs::write(dir.path().join("go"), "").unwrap();
    wait_until("what it left lives", || dir.path().join("alive").exists()).await;
}

#[tokio::test]
async fn dropping_an_exited_process_leaves_what_it_left() {
    drop_after_exit(true).await;
}

#[tokio::test]
async fn dropping_a_process_whose_exit_nobody_has_seen_leaves_what_it_left() {
    drop_after_exit(false).await;
}

#[tokio::test]
async fn a_write_gives_others_their_turn() {
    let (read, write) = std::os::unix::net::UnixStream::pair().unwrap();
    write.set_nonblocking(true).unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut &read, &mut std::io::sink()).unwrap());
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    // It takes everything at once.
    let mut input = Input::new(Some(os::InputWriter::pipe(null.into())));
    assert!(matches!(input.write(vec![0; 64 << 10].into()), input::Outcome::Now(Ok(()))));
    assert!(matches!(input.write(vec![0; 1 << 20].into()), input::Outcome::Later(_)));
    assert!(input.is_pending());
    // As the supervisor writes the rest: a bound in each turn, to a stream that can be watched.
    let mut input = Input::new(Some(os::InputWriter::pipe(write.into())));
    let input::Outcome::Later(answer) = input.write(vec![0; 4 << 20].into()) else { panic!("it is too much at once") };
    let flush = std::future::poll_fn(|cx| {
        input.poll_flush(cx);
        if input.is_pending() { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    });
    within(PATIENCE, flush).await.expect("it wakes for the rest");
    assert!(matches!(answer.await, Ok(Ok(()))));
    input.shut();
    assert_eq!(reader.join().unwrap(), 4 << 20);
}

/// A process that has ended, which its supervisor has not had a turn to see, and that left somebody: he waits for the
/// file `go` and then makes the file `alive`.
async fn ended_unseen(local: &Local, dir: &Path) -> Spawned {
    let script = "(while ! test -e go; do sleep 0.01; done; touch alive) & echo started; read line; exit 0";
    let request = ExecRequest::new(["sh", "-c", script]).cwd(dir).stdin(crate::request::Stdin::Piped);
    let mut spawned = local.spawn(request).await.unwrap();
    assert!(matches!(spawned.events.next().await, Some(Ok(Event::Output(_)))));
    spawned.control.write("\n".into()).await.unwrap();
    block_until_ended(spawned.control.os_id().unwrap());
    spawned
}

/// Without a turn for any task. The process stays a zombie.
fn block_until_ended(pid: u32) {
    // SAFETY: all zeroes is a valid value of the C structure.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: waits for a child of this process and fills the structure.
    let waited = unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
    assert_eq!(waited, 0, "{}", std::io::Error::last_os_error());
}

#[tokio::test]
async fn a_process_whose_exit_nobody_has_seen_is_not_running_and_what_it_left_is_not_ended() {
    let local = Local::new(LocalConfig::from_host());
    let dir = tempfile::tempdir().unwrap();
    let spawned = ended_unseen(&local, dir.path()).await;
    assert!(!spawned.control.terminate(Terminate::kill()).await.unwrap());
    spawned.control.signal(Signal::Kill).await.unwrap();
    std::fs::write(dir.path().join("go"), "").unwrap();
    wait_until("what it left lives", || dir.path().join("alive").exists()).await;
    local.close().await;
}

#[tokio::test]
async fn a_process_that_ended_in_time_has_not_exceeded_it_whenever_that_is_seen() {
    const LIMIT: Duration = Duration::from_millis(20);
    let local = Local::new(LocalConfig::from_host());
    let spawned = local.spawn(ExecRequest::new(["true"]).cwd("/tmp").time_limit(LIMIT)).await.unwrap();
    block_until_ended(spawned.control.os_id().unwrap());
    std::thread::sleep(LIMIT * 2);
    let (status, _) = collect(spawned.events).await;
    assert_eq!((status.code(), status.limit_exceeded()), (Some(0), None));
    local.close().await;
}

#[tokio::test]
async fn closing_waits_for_a_start_that_nobody_has_picked_up() {
    let local = Local::new(LocalConfig::from_host().close_grace(PATIENCE));
    let dir = tempfile::tempdir().unwrap();
    // A start can be so quick that it is over at the first look.
    let mut attempts = 0;
    let (start, pid) = loop {
        let cwd = dir.path().join(attempts.to_string());
        std::fs::create_dir(&cwd).unwrap();
        let request = ExecRequest::new(["sh", "-c", "echo $$ > new; mv new pid; exec sleep 300"]).cwd(&cwd);
        let mut start = local.spawn(request);
        match start.as_mut().now_or_never() {
            None => break (start, cwd.join("pid")),
            Some(spawned) => drop(crate::Process::new(spawned.unwrap(), Duration::ZERO)),
        }
        attempts += 1;
    };
    wait_until("the process runs", || pid.exists()).await;
    let pid = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    let mut close = Box::pin(local.close());
    for _ in 0..20 {
        let closed = tokio::time::timeout(Duration::from_millis(5), &mut close).await;
        assert!(closed.is_err(), "it is closed while a process runs");
    }
    assert!(matches!(start.await, Err(SpawnError::Closed)));
    within(PATIENCE, close).await.expect("it is closed");
    assert!(!is_alive(pid));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_that_cannot_be_contained_is_not_started() {
    let config = LocalConfig::from_host().no_namespaces().parent_cgroup("/no/such/cgroup");
    for by in [Containment::Any, Containment::Cgroup, Containment::PidNamespace] {
        let local = Local::new(config.clone().containment(by));
        let dir = tempfile::tempdir().unwrap();
        let request = ExecRequest::new(["touch", "ran"]).cwd(dir.path()).contain(true);
        let error = local.spawn(request.clone()).await.map(|spawned| spawned.process_id).unwrap_err();
        assert!(matches!(error, SpawnError::ContainmentUnavailable { .. }) && !error.is_retryable(), "{error:?}");
        let text = error.to_string();
        assert_eq!(
            text.contains("no cgroup can be made in /no/such/cgroup"),
            by != Containment::PidNamespace,
            "{text}"
        );
        assert_eq!(text.contains("no PID namespace can be made"), by != Containment::Cgroup, "{text}");
        assert!(text.contains("Delegate=yes") && text.contains("CAP_SYS_ADMIN"), "{text}");
        assert!(!dir.path().join("ran").exists());
        // The place is as good as before.
        let spawned = local.spawn(request.contain(false)).await.unwrap();
        assert!(collect(spawned.events).await.0.success());
        local.close().await;
    }
}

/// The places that can contain on this machine, by each means.
#[cfg(target_os = "linux")]
fn containing() -> impl Iterator<Item = Local> {
    let ways = [(Containment::Cgroup, needs::Need::Cgroup), (Containment::PidNamespace, needs::Need::PidNamespace)];
    let ways = ways.into_iter().filter(|(_, need)| need.is_met());
    ways.map(|(by, _)| Local::new(LocalConfig::from_host().containment(by)))
}

/// As a tree whose leader has become another user.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_contained_tree_is_killed_and_asked_whoever_its_leader_has_become() {
    for local in containing() {
        for (how, signal) in
            [(Terminate::kill(), Signal::Kill), (Terminate::graceful(PATIENCE * 10), Signal::Terminate)]
        {
            let request = ExecRequest::new(["sh", "-c", "echo ready; exec sleep 300"]).cwd("/tmp").contain(true);
            let mut spawned = local.spawn(request).await.unwrap();
            assert!(matches!(spawned.events.next().await, Some(Ok(Event::Output(_)))));
            refuse_signals(&local, true);
            assert!(spawned.control.terminate(how).await.unwrap());
            let ended = within(PATIENCE, collect(spawned.events)).await.expect("it ends");
            assert_eq!(ended.0.signal(), Some(signal));
        }
        local.close().await;
    }
}
