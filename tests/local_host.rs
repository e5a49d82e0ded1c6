//! What the host does to its children, and they to it: slow starts, death, signals.
#![cfg(target_os = "linux")]

mod local_support;

use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use local_support::{PATIENCE, Patience, is_alive, local, poll_once, read_until, run, sh, within};
use longarm::ExecRequest;
use longarm::backend::ExecBackend;
use longarm::backend::local::{Local, LocalConfig};
use longarm::error::WriteError;
use longarm::request::Stdin as Input;

/// Runs one test of this program again, in a process of its own where the mark is set.
fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(MARK, "1");
    command
}

const MARK: &str = "LOCAL_HOST_AGAIN";

fn is_again() -> bool {
    std::env::var_os(MARK).is_some()
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Of `fcntl.h`.
const F_SETSIG: i32 = 10;

/// A program whose execution is held up as long as this lives, as by a file system that does not answer.
struct Held {
    _dir: tempfile::TempDir,
    path: std::path::PathBuf,
    lease: std::fs::File,
}

impl Held {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        // By another program: if this one had it open for writing, so would a child that another test is making at that moment,
        // and there is no lease on what somebody writes.
        let copied = Command::new("cp").arg("/bin/true").arg(&path).status().unwrap();
        assert!(copied.success(), "{copied}");
        let lease = std::fs::File::open(&path).unwrap();
        // SAFETY: the descriptor is open. A signal that is ignored by default tells of the conflict.
        unsafe {
            assert_ne!(libc::fcntl(lease.as_raw_fd(), F_SETSIG, libc::SIGURG), -1);
            assert_ne!(libc::fcntl(lease.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK), -1);
        }
        Self { _dir: dir, path, lease }
    }

    fn request(&self) -> ExecRequest {
        ExecRequest::new([&self.path]).cwd("/tmp")
    }

    fn release(&self) {
        // SAFETY: the descriptor is open.
        assert_ne!(unsafe { libc::fcntl(self.lease.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) }, -1);
    }
}

#[tokio::test]
async fn a_start_that_is_stuck_does_not_hold_up_others() {
    let local = local();
    let programs = [Held::new(), Held::new()];
    let mut stuck: Vec<_> = programs.iter().map(|program| local.spawn(program.request())).collect();
    for start in &mut stuck {
        assert!(poll_once(start).is_none());
    }
    for _ in 0..10 {
        assert!(run(&local, sh("exit 0")).await.status.success());
    }
    for start in &mut stuck {
        assert!(poll_once(start).is_none(), "it is still held up");
    }
    for program in &programs {
        program.release();
    }
    for start in stuck {
        let spawned = within(PATIENCE, start).await.unwrap().unwrap();
        assert!(local_support::collect(spawned.events).await.status.success());
    }
    local.close().await;
}

#[tokio::test]
async fn a_stuck_start_can_be_given_up() {
    let local = local();
    let program = Held::new();
    let mut start = local.spawn(program.request());
    assert!(poll_once(&mut start).is_none());
    drop(start);
    assert!(run(&local, sh("exit 0")).await.status.success());
    program.release();
    within(PATIENCE, local.close()).await.unwrap();
}

#[test]
fn children_end_with_a_host_that_is_killed_if_asked_to() {
    let name = "children_end_with_a_host_that_is_killed_if_asked_to";
    if is_again() {
        block_on(async {
            for end in [true, false] {
                let local = Local::new(LocalConfig::from_host().end_with_executor(end));
                // Of a few, since each could be made by another thread.
                let mut pids = Vec::new();
                for _ in 0..3 {
                    let spawned = local.spawn(ExecRequest::new(["sleep", "300"]).cwd("/tmp")).await.unwrap();
                    pids.push(spawned.control.os_id().unwrap().to_string());
                    std::mem::forget(spawned);
                }
                println!("{end} {}", pids.join(" "));
                std::mem::forget(local);
            }
            // SAFETY: ends this process as a crash would.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        });
        unreachable!("it was killed");
    }
    let output = again(name).stdout(Stdio::piped()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let pids = |mark: &str| -> Vec<u32> {
        let line = text.lines().find_map(|line| line.split_once(mark)).unwrap_or_else(|| panic!("{text}")).1;
        line.split(' ').map(|pid| pid.parse().unwrap()).collect()
    };
    let (ended, left) = (pids("true "), pids("false "));
    let mut patience = Patience::new(PATIENCE);
    // Reaped by somebody else now, so that a zombie counts as ended.
    while ended.iter().any(|pid| is_running(*pid)) {
        assert!(patience.is_left());
        patience.block(Duration::from_millis(5));
    }
    for pid in left {
        assert!(is_running(pid), "without the option they go on");
        // SAFETY: the process is ours.
        assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGKILL) }, 0);
    }
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    is_alive(pid) && stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_host_that_dies_of_sigpipe_does_not_die_of_a_closed_input() {
    let name = "a_host_that_dies_of_sigpipe_does_not_die_of_a_closed_input";
    if !is_again() {
        let output = again(name).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    // SAFETY: in a process of its own.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    block_on(async {
        let local = local();
        let mut spawned = local.spawn(sh("exec <&-; echo closed; sleep 60").stdin(Input::Piped)).await.unwrap();
        read_until(&mut spawned.events, "closed").await;
        assert!(matches!(spawned.control.write("x".into()).await, Err(WriteError::StdinClosed)));
        // The later kind of failure: while a write is waiting.
        let mut spawned = local.spawn(sh("read line; exec <&-; sleep 60").stdin(Input::Piped)).await.unwrap();
        let write = spawned.control.write([b"line\n".to_vec(), vec![b'x'; 1 << 20]].concat().into());
        assert!(matches!(write.await, Err(WriteError::StdinClosed)));
        assert!(poll_once(&mut futures_util::StreamExt::next(&mut spawned.events)).is_none());
        local.close().await;
        // SAFETY: all zeroes is a valid value, which the call fills.
        let pending = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            assert_eq!(libc::sigpending(&raw mut set), 0);
            libc::sigismember(&raw const set, libc::SIGPIPE)
        };
        assert_eq!(pending, 0, "and no signal is left for later");
    });
}

#[test]
fn a_host_that_ignores_the_ends_of_its_children_loses_only_their_status() {
    let name = "a_host_that_ignores_the_ends_of_its_children_loses_only_their_status";
    if !is_again() {
        let output = again(name).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    // SAFETY: in a process of its own.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    block_on(async {
        let local = local();
        let run = run(&local, sh("echo out; exit 3")).await;
        assert_eq!(run.stdout, b"out\n");
        assert_eq!((run.status.code(), run.status.signal(), run.status.wire_code()), (None, None, -1));
        local.close().await;
    });
}

#[test]
fn a_host_without_standard_descriptors_can_start_processes() {
    let name = "a_host_without_standard_descriptors_can_start_processes";
    if !is_again() {
        let output = again(name).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    // SAFETY: in a process of its own; nothing of it uses them before they are restored.
    let saved = unsafe {
        let saved = libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 100);
        for fd in 0..3 {
            libc::close(fd);
        }
        saved
    };
    let outcome = block_on(async {
        let local = local();
        let spawned = local.spawn(sh("cat; echo err >&2; ls /proc/self/fd").stdin(Input::Piped)).await.unwrap();
        spawned.control.write("in\n".into()).await.unwrap();
        spawned.control.close_stdin().await.unwrap();
        local_support::collect(spawned.events).await
    });
    // SAFETY: restores a descriptor for the reports of this program.
    unsafe { libc::dup2(saved, 1) };
    assert_eq!(outcome.stderr, b"err\n");
    assert_eq!(outcome.stdout, b"in\n0\n1\n2\n3\n");
}
