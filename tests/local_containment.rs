//! What containment holds, and that nothing of it is left behind.
#![cfg(target_os = "linux")]

mod local_support;
#[path = "common/needs.rs"]
mod needs;
#[path = "common/roles.rs"]
mod roles;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use longarm::backend::local::{Containment, Local, LocalConfig};
use longarm::backend::{ExecBackend, Spawned, Terminate};
use longarm::error::SpawnError;
use longarm::{ExecRequest, Signal, TerminalSize};

use local_support::{PATIENCE, collect, is_alive, read_until, run, sh, within};
use needs::Need;

/// A place that contains by these means, and the directory in which it makes cgroups; none if the machine cannot do this.
async fn place(by: Containment) -> Option<(Local, PathBuf)> {
    let need = match by {
        Containment::Cgroup => Need::Cgroup,
        _ => Need::PidNamespace,
    };
    if !need.is_met() {
        return None;
    }
    let mut config = LocalConfig::from_host().containment(by);
    let mut own = PathBuf::new();
    if by == Containment::Cgroup {
        // One of its own, so that what is left in it is of this test.
        own = needs::own_cgroup().unwrap().join(format!("test-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&own).unwrap();
        config = config.parent_cgroup(&own);
    }
    Some((Local::new(config), own))
}

/// Closes the place and checks that nothing is left: no cgroup, no child of ours.
async fn end((local, own): (Local, PathBuf)) {
    local.close().await;
    assert_eq!(local.unfinished(), []);
    if own.is_dir() {
        std::fs::remove_dir(&own).expect("no cgroup is left in it");
    }
}

/// The processes whose command line has this mark.
fn marked(mark: &Mark) -> BTreeSet<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_mark =
        |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| contains(&line, mark.name()));
    pids.filter(has_mark).collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let looks = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(PATIENCE, looks).await.unwrap_or_else(|_| panic!("{what} in time"));
}

/// Starts a daemon, which shows that it runs by a file.
fn daemon(mark: &Mark) -> String {
    let script = format!("echo >{0}/up; sleep 300; : {0}", mark.name());
    // The shell in between ends at once, so that the daemon is nobody's child.
    format!("sh -c \"setsid sh -c '{script}' </dev/null >/dev/null 2>&1 &\"")
}

/// A shell that leaves a daemon, says `ready`, and goes on. Both have the mark in their command lines.
fn with_daemon(mark: &Mark) -> ExecRequest {
    sh(&format!("{}; echo ready; sleep 300; : {}", daemon(mark), mark.name())).contain(true)
}

async fn started(local: &Local, mark: &Mark) -> Spawned {
    start(local, mark, with_daemon(mark)).await
}

async fn start(local: &Local, mark: &Mark, request: ExecRequest) -> Spawned {
    let mut spawned = local.spawn(request).await.unwrap();
    read_until(&mut spawned.events, "ready\n").await;
    wait_until("the daemon runs", || mark.is_up()).await;
    spawned
}

/// What tells the processes of one start from all others: a directory of its own.
struct Mark(tempfile::TempDir);

impl Mark {
    fn name(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn is_up(&self) -> bool {
        self.0.path().join("up").exists()
    }
}

fn mark() -> Mark {
    Mark(tempfile::tempdir().unwrap())
}

/// The tests take turns, since what they do to this process and its cgroup shows in the others.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn every_end_ends_daemons(by: Containment) {
    let Some(place) = place(by).await else { return };
    let local = &place.0;

    let name = mark();
    let killed = started(local, &name).await;
    assert!(killed.control.terminate(Terminate::kill()).await.unwrap());
    assert_eq!(collect_rest(killed).await, Some(Signal::Kill));
    wait_until("all are gone after a kill", || marked(&name).is_empty()).await;

    let name = mark();
    let asked = started(local, &name).await;
    assert!(asked.control.terminate(Terminate::graceful(PATIENCE)).await.unwrap());
    assert_eq!(collect_rest(asked).await, Some(Signal::Terminate));
    wait_until("all are gone when they were asked", || marked(&name).is_empty()).await;

    // The limit must not pass before the daemon lives.
    for limit in [1, 4, 16, 64].map(Duration::from_secs) {
        let name = mark();
        let request = with_daemon(&name).time_limit(limit).stop_grace(Duration::from_millis(100));
        let limited = run(local, request).await;
        assert!(limited.status.timed_out());
        wait_until("all are gone after the time limit", || marked(&name).is_empty()).await;
        if name.is_up() {
            break;
        }
        assert!(limit < PATIENCE, "the daemon comes to life");
    }

    let name = mark();
    let dropped = started(local, &name).await;
    dropped.control.kill_now();
    drop(dropped);
    wait_until("all are gone after the handle", || marked(&name).is_empty()).await;

    let name = mark();
    let closed = started(local, &name).await;
    end(place).await;
    assert_eq!(marked(&name), BTreeSet::new(), "closing waits for all");
    drop(closed);
}

/// Reads what is left of the events, and tells the signal that ended the process.
async fn collect_rest(mut spawned: Spawned) -> Option<Signal> {
    let mut signal = None;
    while let Some(event) =
        within(PATIENCE, futures_util::StreamExt::next(&mut spawned.events)).await.expect("events come")
    {
        if let longarm::Event::Exited(exited) = event.unwrap() {
            signal = exited.status.signal();
        }
    }
    signal
}

#[tokio::test]
async fn every_end_of_a_process_in_a_cgroup_ends_daemons() {
    let _turn = TURN.lock().await;
    every_end_ends_daemons(Containment::Cgroup).await;
}

#[tokio::test]
async fn every_end_of_a_process_in_a_namespace_ends_daemons() {
    let _turn = TURN.lock().await;
    every_end_ends_daemons(Containment::PidNamespace).await;
}

#[tokio::test]
async fn what_an_exited_process_left_ends_with_its_place_whoever_holds_it() {
    let _turn = TURN.lock().await;
    for (by, held) in [Containment::Cgroup, Containment::PidNamespace].into_iter().zip([true, false]) {
        let Some(place) = place(by).await else { continue };
        let local = &place.0;
        let name = mark();
        let Spawned { events, control, .. } = local.spawn(sh(&daemon(&name)).contain(true)).await.unwrap();
        assert!(collect(events).await.status.success());
        let control = held.then_some(control);
        wait_until("the daemon runs", || name.is_up()).await;
        end(place).await;
        assert_eq!(marked(&name), BTreeSet::new());
        drop(control);
    }
}

#[tokio::test]
async fn dropping_the_place_ends_daemons() {
    let _turn = TURN.lock().await;
    for by in [Containment::Cgroup, Containment::PidNamespace] {
        let Some((local, own)) = place(by).await else { continue };
        let name = mark();
        let spawned = started(&local, &name).await;
        drop(local);
        wait_until("all are gone", || marked(&name).is_empty()).await;
        drop(spawned);
        if own.is_dir() {
            wait_until("its cgroup is gone", || std::fs::remove_dir(&own).is_ok()).await;
        }
    }
}

#[test]
fn the_end_of_the_runtime_ends_daemons() {
    let _turn = TURN.blocking_lock();
    for by in [Containment::Cgroup, Containment::PidNamespace] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let Some((local, own)) = runtime.block_on(place(by)) else { continue };
        let name = mark();
        let spawned = runtime.block_on(started(&local, &name));
        drop(runtime);
        let another = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        another.block_on(wait_until("all are gone", || marked(&name).is_empty()));
        drop(spawned);
        another.block_on(end((local, own)));
    }
}

#[tokio::test]
async fn without_containment_daemons_live_on() {
    let _turn = TURN.lock().await;
    let local = Local::new(LocalConfig::from_host());
    let name = mark();
    let spawned = start(&local, &name, with_daemon(&name).contain(false)).await;
    spawned.control.terminate(Terminate::kill()).await.unwrap();
    assert_eq!(collect_rest(spawned).await, Some(Signal::Kill));
    local.close().await;
    let left = marked(&name);
    assert!(!left.is_empty(), "the test would see a daemon that lives");
    // One that the daemon is making has its command line for a moment; the group is the daemon's.
    let kill = |pid: &u32| {
        // SAFETY: the call touches no memory; a group of this number is that of the daemon, which nobody else has ended.
        unsafe { libc::kill(-pid.cast_signed(), libc::SIGKILL) == 0 }
    };
    assert_eq!(left.iter().filter(|pid| kill(pid)).count(), 1, "one daemon");
    wait_until("it is gone", || marked(&name).is_empty()).await;
}

#[tokio::test]
async fn a_contained_process_is_told_as_it_is() {
    let _turn = TURN.lock().await;
    for by in [Containment::Cgroup, Containment::PidNamespace] {
        let Some(place) = place(by).await else { continue };
        let local = &place.0;
        let exited = run(local, sh("echo out; echo err >&2; exit 7").contain(true)).await;
        assert_eq!((exited.status.code(), &*exited.stdout, &*exited.stderr), (Some(7), &b"out\n"[..], &b"err\n"[..]));
        let died = run(local, sh("kill -SEGV $$").contain(true)).await;
        assert_eq!(died.status.signal(), Some(Signal::Other(libc::SIGSEGV)));
        let terminal = sh("test -t 0 && stty size && test -d /proc/$$").contain(true);
        let terminal = run(local, terminal.terminal(TerminalSize { rows: 11, cols: 55 })).await;
        assert!(terminal.pty.starts_with(b"11 55\r\n"), "{terminal:?}");
        assert!(terminal.status.success(), "it finds itself among the processes: {terminal:?}");
        let spawned = local.spawn(sh("sleep 300").contain(true)).await.unwrap();
        assert!(is_alive(spawned.control.os_id().unwrap()), "its number is that of this side");
        end(place).await;
    }
}

/// Another test's runtime is among what this process has open, also while that waits for its turn.
#[test]
fn many_contained_processes_leave_nothing() {
    roles::alone("many_contained_processes_leave_nothing", || block_on(run_many()));
}

async fn run_many() {
    for by in [Containment::Cgroup, Containment::PidNamespace] {
        let Some(place) = place(by).await else { continue };
        let local = &place.0;
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        run(local, sh("true").contain(true)).await;
        wait_until("the first is forgotten", || local.unfinished().is_empty()).await;
        let before = descriptors();
        let runs = (0..50).map(|_| run(local, sh("(setsid sleep 0.05 &) ; echo x").contain(true)));
        for run in futures_util::future::join_all(runs).await {
            assert_eq!(run.stdout, b"x\n");
        }
        wait_until("all are forgotten", || local.unfinished().is_empty()).await;
        assert!(descriptors() <= before, "{} descriptors, {before} before", descriptors());
        if place.1.is_dir() {
            let left: Vec<_> = std::fs::read_dir(&place.1).unwrap().flatten().filter(|e| e.path().is_dir()).collect();
            assert!(left.is_empty(), "{left:?}");
        }
        end(place).await;
    }
}

#[tokio::test]
async fn cgroups_that_members_have_made_go_too() {
    let _turn = TURN.lock().await;
    let Some(place) = place(Containment::Cgroup).await else { return };
    let script = "own=$(ls -d $PARENT/longarm-*); mkdir -p $own/a/b && echo $$ >$own/a/b/cgroup.procs && echo in";
    let request = sh(&format!("{script}; sleep 300")).env("PARENT", &place.1).contain(true);
    let mut spawned = place.0.spawn(request).await.unwrap();
    read_until(&mut spawned.events, "in\n").await;
    spawned.control.terminate(Terminate::kill()).await.unwrap();
    assert_eq!(collect_rest(spawned).await, Some(Signal::Kill));
    end(place).await;
}

#[tokio::test]
async fn a_namespace_has_a_proc_of_its_own() {
    let _turn = TURN.lock().await;
    let Some(place) = place(Containment::PidNamespace).await else { return };
    let script = "echo $$; readlink /proc/self/exe >/dev/null && ls -d /proc/[0-9]* | wc -l";
    let seen = run(&place.0, sh(script).contain(true)).await;
    let text = String::from_utf8(seen.stdout).unwrap();
    let numbers: Vec<u32> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert!(numbers[0] < 10 && numbers[1] < 10, "{numbers:?} are not those of a namespace");
    assert!(seen.status.success(), "{}", String::from_utf8_lossy(&seen.stderr));
    end(place).await;
}

/// Says to this program that it is to make a child of its parent.
const MAKES_A_SIBLING: &str = "LONGARM_TEST_MAKES_A_SIBLING";

#[test]
fn helper_that_makes_a_sibling() {
    if std::env::var_os(MAKES_A_SIBLING).is_none() {
        return;
    }
    // SAFETY: the child does nothing but end.
    unsafe {
        match libc::syscall(libc::SYS_clone, libc::CLONE_PARENT | libc::SIGCHLD, 0, 0, 0, 0) {
            0 => libc::_exit(0),
            made => assert_ne!(made, -1, "{}", std::io::Error::last_os_error()),
        }
    }
}

#[tokio::test]
async fn a_namespace_ends_whose_members_have_made_children_of_ours() {
    let _turn = TURN.lock().await;
    let Some(place) = place(Containment::PidNamespace).await else { return };
    let program = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let request = ExecRequest::new([program.as_str(), "--exact", "helper_that_makes_a_sibling", "--nocapture"]);
    let run = run(&place.0, request.cwd("/tmp").env(MAKES_A_SIBLING, "1").contain(true)).await;
    assert_eq!(run.status.code(), Some(0), "{}", String::from_utf8_lossy(&run.stdout));
    wait_until("it is over", || place.0.unfinished().is_empty()).await;
    end(place).await;
}

/// What another test has started may have to be waited for after its end.
#[test]
fn a_program_that_is_nowhere_leaves_no_container() {
    roles::alone("a_program_that_is_nowhere_leaves_no_container", || block_on(start_what_is_nowhere()));
}

async fn start_what_is_nowhere() {
    for by in [Containment::Cgroup, Containment::PidNamespace] {
        let Some(place) = place(by).await else { continue };
        for path in ["", "/nowhere"] {
            let request = ExecRequest::new(["missing"]).cwd("/").env("PATH", path).contain(true);
            let error = place.0.spawn(request).await.unwrap_err();
            assert!(matches!(error, SpawnError::ProgramNotFound { .. }), "{error}");
        }
        end(place).await;
        assert!(!has_children(), "nobody is left to be waited for");
    }
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

/// Whether this process has a child, also one that has ended.
fn has_children() -> bool {
    // SAFETY: all zeroes is a valid value of the C structure, which the call fills; the child stays what it is.
    let result = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
    };
    result != -1 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ECHILD)
}
