//! A writer that is killed at any step of a whole-file write: whoever looks afterwards finds the old content or the new,
//! never a part of either. The writer is this program once more, stopped at each of its system calls.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use longarm::fs::{CopyOptions, FileSystem, LocalFileSystem, LocalFileSystemConfig, WriteOptions};

use crate::support::{Scratch, content, mode};

const CHILD: &str = "LONGARM_FS_TEST_KILLED";
const NAME: &str = "killed::a_writer_that_is_killed_leaves_the_old_content_or_the_new";

/// More than a pipe or a page takes at once.
const OLD: &[u8] = &[b'o'; 300_000];
const NEW: &[u8] = &[b'n'; 500_000];

/// What the kernel does not know, and what a traced program says by it.
const BEGIN: u64 = 0x6c6f_6e67;
const END: u64 = BEGIN + 1;

#[test]
fn a_writer_that_is_killed_leaves_the_old_content_or_the_new() {
    if let Some(job) = std::env::var_os(CHILD) {
        return write(job.to_str().unwrap());
    }
    for (job, has_old) in [("replace", true), ("sync", true), ("create", false), ("copy", true)] {
        let mut outcomes = [0; 2];
        let mut calls = 0;
        loop {
            let scratch = Scratch::new();
            let file = scratch.path("file");
            fs::write(scratch.path("source"), NEW).unwrap();
            if has_old {
                fs::write(&file, OLD).unwrap();
                fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
            }
            let ended = kill_at(job, scratch.root(), calls);
            let now = fs::read(&file).ok();
            let is_new = now.as_deref() == Some(NEW);
            assert!(
                is_new || now.as_deref() == has_old.then_some(OLD),
                "{job}, killed at call {calls}: {:?}",
                shown(now)
            );
            if has_old && job != "copy" {
                assert_eq!(mode(&file), 0o640, "{job}, killed at call {calls}");
            }
            let others = scratch.names("").into_iter().filter(|name| name != "file" && name != "source");
            let others: Vec<_> = others.collect();
            assert!(others.iter().all(|name| name.starts_with(".longarm-") && name.ends_with(".tmp")), "{others:?}");
            outcomes[usize::from(is_new)] += 1;
            if ended {
                assert!(is_new && others.is_empty(), "{job}: {others:?}");
                assert_eq!(content(scratch.path("source")), NEW);
                break;
            }
            calls += 1;
        }
        // It was killed before and after the moment that counts.
        assert!(outcomes[0] > 5 && outcomes[1] > 1, "{job}: {outcomes:?}");
    }
}

fn shown(content: Option<Vec<u8>>) -> Option<(usize, Option<u8>)> {
    content.map(|content| (content.len(), content.first().copied()))
}

/// What is done in the program that is killed.
fn write(job: &str) {
    let (job, root) = job.split_once(' ').unwrap();
    let root = Path::new(root);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let files = LocalFileSystem::new(LocalFileSystemConfig::from_host());
    runtime.block_on(async {
        say(BEGIN);
        let path = || root.join("file").into();
        match job {
            "copy" => files.copy(root.join("source").into(), path(), CopyOptions::new()).await,
            _ => files.write(path(), NEW.into(), WriteOptions::new().fsync(job == "sync")).await,
        }
        .unwrap();
        say(END);
    });
}

fn say(what: u64) {
    // SAFETY: the kernel refuses an option that it does not know, and reads nothing.
    let said = unsafe { libc::syscall(libc::SYS_prctl, what, 0_usize, 0_usize, 0_usize, 0_usize) };
    assert_eq!(said, -1);
}

/// Runs a job and kills it when it makes this call, counted from its begin. Returns whether it has ended before.
fn kill_at(job: &str, root: &Path, at: usize) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", NAME]).env(CHILD, format!("{job} {}", root.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // By its group, all of its threads can be waited for, and nobody else's children.
    command.process_group(0);
    let mut traced = Traced::spawn(command);
    let mut calls = None;
    while let Some(call) = traced.next_call() {
        match call {
            [number, BEGIN, ..] if number == libc::SYS_prctl as u64 => calls = Some(0),
            [number, END, ..] if number == libc::SYS_prctl as u64 => {
                traced.kill();
                return true;
            }
            _ => {
                let Some(calls) = &mut calls else { continue };
                if *calls == at {
                    traced.kill();
                    return false;
                }
                *calls += 1;
            }
        }
    }
    panic!("it ended without saying so");
}

/// A program all of whose system calls are seen before they happen. Only the thread that started it may ask.
struct Traced {
    child: Child,
    /// The thread that waits to be let go on.
    stopped: Option<libc::pid_t>,
}

impl Traced {
    fn spawn(mut command: Command) -> Self {
        // SAFETY: one system call, which allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize) {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let child = command.spawn().unwrap();
        let pid = child.id() as libc::pid_t;
        let traced = Self { child, stopped: Some(pid) };
        // The program stops when it has begun.
        assert_eq!(traced.wait(), Some((pid, libc::SIGTRAP)));
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
        // SAFETY: the process is stopped and traced by this thread; no memory is passed.
        let set = unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0_usize, options as usize) };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
        traced
    }

    /// The number and the first arguments of the next call of any thread. None if the program has ended.
    fn next_call(&mut self) -> Option<[u64; 2]> {
        const STOP_AT_CALL: i32 = libc::SIGTRAP | 0x80;
        let mut signal = 0;
        loop {
            if let Some(thread) = self.stopped.take() {
                go_on(thread, signal);
            }
            signal = 0;
            let (thread, stop) = self.wait()?;
            self.stopped = Some(thread);
            match stop {
                STOP_AT_CALL => {
                    if let Some(call) = call_of(thread) {
                        return Some(call);
                    }
                }
                // A thread was made, or begins.
                libc::SIGTRAP | libc::SIGSTOP => {}
                other => signal = other,
            }
        }
    }

    /// The thread that stops next, and by which signal; or None at the end of the program.
    fn wait(&self) -> Option<(libc::pid_t, i32)> {
        let pid = self.child.id() as libc::pid_t;
        loop {
            let mut status = 0;
            // SAFETY: the status is a valid place.
            let thread = unsafe { libc::waitpid(-pid, &mut status, libc::__WALL) };
            if thread < 0 {
                let error = io::Error::last_os_error();
                assert_eq!(error.raw_os_error(), Some(libc::ECHILD), "{error}");
                return None;
            }
            if libc::WIFSTOPPED(status) {
                return Some((thread, libc::WSTOPSIG(status)));
            }
            if thread == pid {
                return None;
            }
        }
    }

    /// Ends the program as if the power had gone from it.
    fn kill(&self) {
        let pid = self.child.id() as libc::pid_t;
        // SAFETY: it was not waited for to its end, so that the id is still its own.
        let killed = unsafe { libc::kill(pid, libc::SIGKILL) };
        assert_eq!(killed, 0);
        while self.wait().is_some() {}
    }
}

fn go_on(thread: libc::pid_t, signal: i32) {
    // SAFETY: no memory is passed. A thread that died meanwhile is none to go on.
    let gone_on = unsafe { libc::ptrace(libc::PTRACE_SYSCALL, thread, 0_usize, signal as usize) };
    if gone_on != 0 {
        let error = io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH), "{error}");
    }
}

/// The call that a thread is about to make, if it does not come back from one.
fn call_of(thread: libc::pid_t) -> Option<[u64; 2]> {
    // SAFETY: all zeros are a value of it.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    let size = size_of_val(&info);
    // SAFETY: at most as many bytes are written as there is room for.
    let got = unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size, &raw mut info) };
    if got <= 0 || info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return None;
    }
    // SAFETY: this is what is there at the entry of a call.
    let entry = unsafe { info.u.entry };
    Some([entry.nr, entry.args[0]])
}
