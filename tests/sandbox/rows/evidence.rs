//! Calls that the filter refuses, as evidence.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use longarm::request::Signal;
use longarm::sandbox::{Denial, Enforcement, Evidence};
use longarm::{ExitStatus, Process};

use super::tools::{Outcome, begin, ensure, has_ended, read_until, state, unique, until};
use crate::place::{Cripple, Kind, Settings};
use crate::policy::{dis, ro, ww};
use crate::row::Expect::{Fails, Works};
use crate::row::{Row, Stage};

pub(super) fn rows() -> Vec<Row> {
    let outer = Settings { cripple: Some(Cripple::Listeners), ..Settings::default() };
    vec![
        custom!(70, "refused sockets are evidence", ro, of_one_thread).needs(no_listener),
        custom!(70, "refused sockets of many threads are evidence", ro, of_many_threads).needs(no_listener),
        custom!(70, "refused sockets of descendants are evidence", ro, of_descendants).needs(no_listener),
        custom!(72, "refused pairs are evidence beside words", ro, of_pairs).needs(no_listener),
        custom!(79, "refused families are evidence where the network is open", |dirs| ww(dirs).enabled(), of_vsock)
            .needs(no_listener),
        custom!(76, "what is allowed is no evidence", ro, of_nothing),
        custom!(87, "no evidence without a sandbox", dis, of_nothing),
        super::script(70, "nobody else listens", ro, "$PROBE listener", Fails(&[super::EBUSY])).needs(no_listener),
        super::script(70, "behind a listener", ro, "$PROBE sockets 1 3", Works).settings(outer).at(Kind::ALONE),
        custom!(70, "behind a listener there is no evidence", ro, behind_another).settings(outer).at(Kind::ALONE),
        custom!(70, "a kill while a socket is being refused", ro, killed).needs(no_listener).at(Kind::ALONE),
        custom!(70, "a stop while a socket is being refused", ro, stopped).needs(no_listener).at(Kind::ALONE),
        custom!(70, "nothing listens any more", ro, nothing_left).needs(no_listener).at(Kind::ALONE),
    ]
}

/// Why nobody can listen to what a filter refuses.
fn no_listener() -> Option<String> {
    static LACKS: OnceLock<Option<String>> = OnceLock::new();
    let ask = || {
        let helper = Command::new("/proc/self/exe").args([crate::helper::FLAG, "listener"]).output().unwrap();
        (!helper.status.success()).then(|| String::from_utf8_lossy(&helper.stderr).trim().to_owned())
    };
    LACKS.get_or_init(ask).clone()
}

/// How a process ended, and what is known of denials.
async fn ended(mut process: Process) -> Result<(ExitStatus, Option<Denial>), String> {
    let status = process.wait().await.map_err(|error| error.to_string())?;
    Ok((status, process.denial()))
}

async fn run(stage: &Stage<'_>, script: &str) -> Result<(ExitStatus, Option<Denial>), String> {
    ended(begin(stage, script).await?).await
}

fn refused(syscall: &str, count: u64) -> Evidence {
    Evidence::Seccomp { syscall: syscall.into(), count }
}

/// It has ended with 0; so many calls are evidence, and nothing counts as denied.
async fn counts(stage: &Stage<'_>, script: &str, count: u64) -> Outcome {
    let process = begin(stage, script).await?;
    let reported = |enforcement: &Enforcement| enforcement.mechanisms.iter().any(|name| name == "seccomp notification");
    ensure(process.enforcement().as_ref().is_some_and(reported), || format!("{:?}", process.enforcement()))?;
    let (status, denial) = ended(process).await?;
    let expected = Denial::new(false, vec![refused("socket", count)]);
    ensure(status.success() && denial == Some(expected), || format!("{status}, {denial:?}"))
}

async fn of_one_thread(stage: &Stage<'_>) -> Outcome {
    counts(stage, "exec $PROBE sockets 1 3", 3).await
}

async fn of_many_threads(stage: &Stage<'_>) -> Outcome {
    counts(stage, "exec $PROBE sockets 8 50", 400).await
}

async fn of_descendants(stage: &Stage<'_>) -> Outcome {
    counts(stage, "for one in 1 2 3; do $PROBE sockets 1 2 & done; wait; $PROBE sockets 1 1", 7).await
}

async fn of_pairs(stage: &Stage<'_>) -> Outcome {
    let (status, denial) = run(stage, "$PROBE datagram-pair && exit 7; $PROBE sockets 1 1; exit 1").await?;
    let denial = denial.ok_or("no denial")?;
    let [sure @ .., Evidence::Text { .. }] = denial.evidence.as_slice() else { return Err(format!("{denial:?}")) };
    ensure(sure == [refused("socket", 1), refused("socketpair", 1)], || format!("{denial:?}"))?;
    ensure(status.code() == Some(1) && denial.denied, || format!("{status}, {denial:?}"))
}

async fn of_vsock(stage: &Stage<'_>) -> Outcome {
    counts(stage, "! $PROBE socket 40 1 0 2>/dev/null", 1).await
}

async fn of_nothing(stage: &Stage<'_>) -> Outcome {
    let (status, denial) = run(stage, "$PROBE pair").await?;
    ensure(status.success() && denial.is_none(), || format!("{status}, {denial:?}"))
}

async fn behind_another(stage: &Stage<'_>) -> Outcome {
    let process = begin(stage, "$PROBE sockets 1 3").await?;
    let enforcement = process.enforcement().ok_or("no report")?;
    let (status, denial) = ended(process).await?;
    ensure(status.success() && denial.is_none(), || format!("{status}, {denial:?}"))?;
    let tells = |fact: &String| fact.contains("no seccomp notification") && fact.contains(super::EBUSY);
    ensure(enforcement.kernel_facts.iter().any(tells), || format!("{enforcement:?}"))?;
    ensure(!enforcement.mechanisms.iter().any(|name| name.contains("notification")), || format!("{enforcement:?}"))
}

/// A command that is about to ask for a socket when the executor is stopped, which cannot answer.
struct Asking {
    process: Process,
    executor: libc::pid_t,
    pid: libc::pid_t,
}

impl Asking {
    async fn begin(stage: &Stage<'_>) -> Result<Self, String> {
        let executor = stage.place.executor_pid().cast_signed();
        let tag = unique(stage);
        let script = format!("echo ready; until test -e $W/go; do sleep 0.02; done; exec $PROBE sockets 1 1 {tag}");
        let mut process = begin(stage, &script).await?;
        read_until(&mut process, "ready").await?;
        signal(executor, libc::SIGSTOP)?;
        // Each of its threads, after a moment.
        until("it stops", || is_stopped(executor)).await?;
        std::fs::write(stage.dirs.w.join("go"), "").map_err(|error| error.to_string())?;
        let mut asking = None;
        until("it asks", || {
            asking = pid_of(&tag, |process| calls(process, libc::SYS_socket));
            asking.is_some()
        })
        .await?;
        Ok(Self { process, executor, pid: asking.ok_or("nobody asks")? })
    }
}

fn signal(pid: libc::pid_t, signal: libc::c_int) -> Outcome {
    // SAFETY: the call takes numbers.
    let sent = unsafe { libc::kill(pid, signal) };
    ensure(sent == 0, || std::io::Error::last_os_error().to_string())
}

/// The process with this text among its arguments, if it is as it should be.
fn pid_of(text: &str, right: impl Fn(&Path) -> bool) -> Option<libc::pid_t> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok());
    let numbers = processes.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    let has_text = |path: &PathBuf| {
        let arguments = std::fs::read(path.join("cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == text.as_bytes())
    };
    numbers.into_iter().find(|(_, path)| has_text(path) && right(path)).map(|(pid, _)| pid)
}

/// Whether it waits in this system call, in any of its threads.
fn calls(process: &Path, number: libc::c_long) -> bool {
    let Ok(threads) = std::fs::read_dir(process.join("task")) else { return false };
    threads.filter_map(|thread| thread.ok()).any(|thread| {
        let call = std::fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        call.split(' ').next() == Some(&number.to_string())
    })
}

fn is_stopped(pid: libc::pid_t) -> bool {
    let mut threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().filter_map(|entry| entry.ok());
    threads.all(|thread| thread.file_name().to_str().and_then(|thread| state(thread.parse().ok()?)) == Some('T'))
}

async fn killed(stage: &Stage<'_>) -> Outcome {
    let Asking { process, executor, pid } = Asking::begin(stage).await?;
    let ended_by = async {
        signal(pid, libc::SIGKILL)?;
        until("it ends", || has_ended(pid)).await
    }
    .await;
    signal(executor, libc::SIGCONT)?;
    ended_by?;
    let (status, denial) = ended(process).await?;
    ensure(status.signal() == Some(Signal::Kill) && denial.is_none(), || format!("{status}, {denial:?}"))?;
    counts(stage, "$PROBE sockets 1 3", 3).await
}

async fn stopped(stage: &Stage<'_>) -> Outcome {
    let Asking { process, executor, pid } = Asking::begin(stage).await?;
    let stopped = signal(pid, libc::SIGSTOP);
    signal(executor, libc::SIGCONT)?;
    stopped?;
    until("it stops", || is_stopped(pid)).await?;
    counts(stage, "$PROBE sockets 1 3", 3).await?;
    signal(pid, libc::SIGCONT)?;
    let (status, denial) = ended(process).await?;
    let expected = Some(Denial::new(false, vec![refused("socket", 1)]));
    ensure(status.success() && denial == expected, || format!("{status}, {denial:?}"))
}

/// What the executor has open.
fn open(executor: u32) -> Vec<String> {
    let fds = std::fs::read_dir(format!("/proc/{executor}/fd")).unwrap().filter_map(|entry| entry.ok());
    fds.filter_map(|fd| Some(std::fs::read_link(fd.path()).ok()?.to_string_lossy().into_owned())).collect()
}

/// Whether it has the thread that listens.
fn listens(executor: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{executor}/task")).unwrap().filter_map(|entry| entry.ok());
    let mut names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
    names.any(|name| name.trim() == "longarm-notice")
}

async fn nothing_left(stage: &Stage<'_>) -> Outcome {
    let executor = stage.place.executor_pid();
    // Whatever else it opens once, it has open then.
    run(stage, "true").await?;
    until("it is idle", || !listens(executor)).await?;
    let before = open(executor).len();
    let mut process = begin(stage, "$PROBE sockets 1 3; echo ready; exec sleep 600").await?;
    read_until(&mut process, "ready").await?;
    let is_listener = |name: &String| name.contains("seccomp");
    let (listeners, open_now) = (open(executor).iter().filter(|name| is_listener(name)).count(), open(executor));
    ensure(listens(executor) && listeners == 1, || format!("{open_now:?}"))?;
    process.kill().await.map_err(|error| error.to_string())?;
    ended(process).await?;
    for _ in 0..5 {
        counts(stage, "$PROBE sockets 2 2", 4).await?;
    }
    until("nothing is left", || !listens(executor) && open(executor).len() <= before).await?;
    ensure(!open(executor).iter().any(is_listener), || format!("{:?}", open(executor)))
}
