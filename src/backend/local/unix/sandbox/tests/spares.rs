//! What a launcher keeps for the sandboxes that come next.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use super::limits::{TOLD, again};
use super::spare::{Program, Spare, Spares};
use super::*;
use crate::backend::local::unix::namespace::above;
use crate::backend::local::unix::platform::{Launcher, send, wait_target};
use crate::backend::local::unix::process::wait;

/// The kernels whose sandboxes have a network namespace.
fn kernels_with_networks() -> Vec<Kernel> {
    kernels_with_mounts().into_iter().filter(|kernel| kernel.network).collect()
}

fn everything() -> Arc<Bound> {
    bound(Some(Access::Write), NetworkPolicy::Restricted, &[])
}

/// A command that waits to be killed, and its network namespace, which is no other one's number as long as this is held.
async fn waiting(spawner: &Spawner, plan: &SandboxPlan) -> (Running, File) {
    let (running, [network, _]) = waiting_in(spawner, plan).await;
    (running, network)
}

/// The same, and its user namespace.
async fn waiting_in(spawner: &Spawner, plan: &SandboxPlan) -> (Running, [File; 2]) {
    let plan = launch_plan("echo runs; sleep 1000", Path::new("/tmp"), plan.clone());
    let mut launched = patiently(spawner.start(plan)).await.unwrap();
    launched.stdout.watch().unwrap();
    let mut running = Running { launched, output: String::new() };
    running.read_until("runs").await;
    let namespaces =
        ["net", "user"].map(|kind| File::open(format!("/proc/{}/ns/{kind}", running.child().id())).unwrap());
    (running, namespaces)
}

async fn kill(running: Running) {
    running.child().signal_tree(Signal::Kill).unwrap();
    let (status, _) = running.end().await;
    assert_eq!(status.signal(), Some(Signal::Kill));
}

fn number(namespace: &File) -> u64 {
    namespace.metadata().unwrap().ino()
}

#[tokio::test]
async fn a_network_that_nobody_can_change_is_used_again_by_one_command_at_a_time() {
    for kernel in kernels_with_networks() {
        let spawner = Spawner::new(PATIENCE);
        let plan = prepared(&kernel, &read_only(), Walls::default());
        let (one, first) = waiting(&spawner, &plan).await;
        let (other, second) = waiting(&spawner, &plan).await;
        let own = File::open("/proc/self/ns/net").unwrap();
        assert_ne!(number(&first), number(&second), "two that run have nothing in common: {kernel:?}");
        assert!(![number(&first), number(&second)].contains(&number(&own)), "it is not the executor's");
        kill(one).await;
        let (one, third) = waiting(&spawner, &plan).await;
        assert_eq!(number(&third), number(&first), "nobody is in it any more: {kernel:?}");
        kill(other).await;
        kill(one).await;
        patiently(spawner.shut_down()).await;
    }
}

#[tokio::test]
async fn what_is_kept_serves_whichever_thread_starts_the_next_one() {
    for kernel in kernels_with_networks() {
        let spawner = Spawner::new(PATIENCE);
        let plan = prepared(&kernel, &read_only(), Walls::default());
        let (one, first) = waiting(&spawner, &plan).await;
        kill(one).await;
        let held_up = spawner.hold_up();
        let (other, second) = waiting(&spawner, &plan).await;
        assert_eq!(number(&first), number(&second), "{kernel:?}");
        kill(other).await;
        drop(held_up);
        patiently(spawner.shut_down()).await;
    }
}

#[tokio::test]
async fn with_the_network_of_the_executor_the_user_namespace_is_used_again_by_one_command_at_a_time() {
    let open = bound(Some(Access::Read), NetworkPolicy::Enabled, &[]);
    for kernel in kernels_with_networks().into_iter().filter(|kernel| kernel.mode == Mode::User) {
        let spawner = Spawner::new(PATIENCE);
        let plan = prepared(&kernel, &open, Walls::default());
        let (one, [network, first]) = waiting_in(&spawner, &plan).await;
        assert_eq!(number(&network), number(&File::open("/proc/self/ns/net").unwrap()));
        let (other, [_, second]) = waiting_in(&spawner, &plan).await;
        assert_ne!(number(&first), number(&second), "two that run have nothing in common: {kernel:?}");
        kill(one).await;
        // It belongs to no network: this one wants both.
        let (closed, [_, apart]) = waiting_in(&spawner, &prepared(&kernel, &read_only(), Walls::default())).await;
        assert_ne!(number(&apart), number(&first), "{kernel:?}");
        let (one, [_, third]) = waiting_in(&spawner, &plan).await;
        assert_eq!(number(&third), number(&first), "nobody is in it any more: {kernel:?}");
        for running in [one, other, closed] {
            kill(running).await;
        }
        patiently(spawner.shut_down()).await;
    }
}

#[test]
fn a_network_that_is_always_new_is_made_ahead() {
    let thread = std::thread::spawn(|| {
        for kernel in kernels_with_networks() {
            let mut launcher = Launcher::new().unwrap();
            let settings = settings().private_loopback(true);
            let plan = prepared_on(&kernel, &read_only(), &settings, None, Walls::default()).unwrap();
            let namespaces = plan.shape.namespaces().unwrap();
            launcher.with_stacks(|stacks, spares| {
                assert!(spares.take(namespaces).is_none() && spares.lacks_new(namespaces));
                // SAFETY: the launcher blocks all signals and lends its stacks.
                unsafe { start::make_ahead(&plan.shape, stacks[0], spares) }.unwrap();
                assert!(!spares.lacks_new(namespaces), "{kernel:?}");
                let spare = spares.take(namespaces).unwrap();
                let made = File::from(spare.network.as_ref().unwrap().try_clone().unwrap());
                spares.keep_new(spare);
                let report = Report::default();
                let command = Some((sleep as extern "C" fn(*mut c_void) -> _, std::ptr::null_mut()));
                // SAFETY: as above; the command's function needs nothing.
                let started = unsafe { start::run(&plan.shape, stacks, spares, command, &report) };
                let started = started.unwrap().expect("it was made");
                let network = File::open(format!("/proc/{}/ns/net", started.pid)).unwrap();
                assert_eq!(number(&network), number(&made), "{kernel:?}");
                assert!(started.lent.is_none() && spares.lacks_new(namespaces), "it is no other one's: {kernel:?}");
                send(&started.pidfd, libc::SIGKILL).unwrap();
                let target = wait_target(started.pidfd.as_raw_fd()).unwrap();
                assert_eq!(wait(target, libc::WEXITED).unwrap().unwrap().signal(), Some(Signal::Kill));
                started.namespace.expect("it has one").end();
            });
        }
    });
    thread.join().unwrap();
}

#[tokio::test]
async fn a_network_that_works_is_always_a_new_one() {
    for kernel in kernels_with_networks() {
        let spawner = Spawner::new(PATIENCE);
        let settings = settings().private_loopback(true);
        let plan = prepared_on(&kernel, &read_only(), &settings, None, Walls::default()).unwrap();
        let mut seen = Vec::new();
        for _ in 0..3 {
            let (running, network) = waiting(&spawner, &plan).await;
            assert!(!seen.iter().any(|before| number(before) == number(&network)), "{kernel:?}");
            seen.push(network);
            kill(running).await;
        }
        patiently(spawner.shut_down()).await;
    }
}

/// One command in a kept network, and then another one: what the first changes is not there for the second.
#[tokio::test]
async fn nothing_stays_in_what_is_used_again() {
    const SCRIPT: &str = "{ echo 7 9 1 > /proc/self/projid_map; } 2> /dev/null && echo said; \
                          for f in /proc/self/net/* /proc/meminfo; do chmod 640 $f 2> /dev/null && echo $f; done; \
                          for f in /proc/sys/net/ipv4/*; do { cat $f > $f; } 2> /dev/null && echo $f; done; \
                          cat /proc/self/projid_map; ls -l --time-style=+ /proc/self/net/tcp; readlink /proc/self/ns/net";
    for kernel in kernels_with_networks().into_iter().filter(|kernel| kernel.fresh_proc) {
        let spawner = Spawner::new(PATIENCE);
        let plan = prepared(&kernel, &read_only(), Walls::default());
        let mut seen = Vec::new();
        for _ in 0..2 {
            let output = said(&spawner, &plan, SCRIPT).await;
            assert!(
                !output.contains("said") && !output.lines().any(|line| line.starts_with("/proc")),
                "{kernel:?}: {output}"
            );
            seen.push(output);
        }
        assert_eq!(seen[0], seen[1], "{kernel:?}: the same namespace, as it was");
        patiently(spawner.shut_down()).await;
    }
}

/// Runs a script in a sandbox of this plan; returns what it has written.
async fn said(spawner: &Spawner, plan: &SandboxPlan, script: &str) -> String {
    let mut launched = patiently(spawner.start(launch_plan(script, Path::new("/tmp"), plan.clone()))).await.unwrap();
    launched.stdout.watch().unwrap();
    let (status, output) = Running { launched, output: String::new() }.end().await;
    assert!(status.success(), "{output}");
    output
}

#[tokio::test]
async fn the_memory_file_system_is_used_again_and_nothing_stays_in_it() {
    const SCRIPT: &str = "stat -c %d /dev; ls -lA --time-style=+ /dev /dev/shm; stat -f -c %t /dev/shm; exec 2> /dev/null;                           echo x > /dev/shm/mine && echo shared; for f in /dev /dev/pts /dev/null; do chmod 700 $f && echo $f;                           done; mkdir /dev/new && echo new; touch /dev/null && echo touched; exit 0";
    for kernel in kernels_with_networks() {
        let spawner = Spawner::new(PATIENCE);
        let plan = prepared(&kernel, &read_only(), Walls::default());
        let first = said(&spawner, &plan, SCRIPT).await;
        assert!(first.contains("shared") && !first.contains("\n/dev/null") && !first.contains("\nnew"), "{first}");
        assert_eq!(said(&spawner, &plan, SCRIPT).await, first, "{kernel:?}: the same, as it was");
        assert_eq!(said(&spawner, &plan, SCRIPT).await, first, "{kernel:?}: and once more");
        // What needs something else in it has its own.
        let denied = bound(
            Some(Access::Read),
            NetworkPolicy::Restricted,
            &[("/etc".into(), Access::Deny), ("/etc/ssl".into(), Access::Read)],
        );
        let other = said(&spawner, &prepared(&kernel, &denied, Walls::default()), "stat -c %d /dev").await;
        assert_ne!(Some(other.trim()), first.lines().next(), "{kernel:?}");
        let (running, _) = waiting(&spawner, &plan).await;
        let at_once = said(&spawner, &plan, "stat -c %d /dev").await;
        assert_ne!(Some(at_once.trim()), first.lines().next(), "two that run have nothing in common: {kernel:?}");
        kill(running).await;
        patiently(spawner.shut_down()).await;
    }
}

/// Also by who may write everything, for whom one is made ahead, and the mounts of which are not made read-only for each sandbox.
#[tokio::test]
async fn nobody_changes_the_devices_of_a_memory_file_system_that_was_made_ahead() {
    const SCRIPT: &str = "exec 2>&1; for f in null zero tty; do chmod a-s /dev/$f && echo $f; done; touch /dev/new && echo new; \
                          echo x > /dev/null && echo written";
    for kernel in kernels_with_networks() {
        let spawner = Spawner::new(PATIENCE);
        let plan = prepared(&kernel, &everything(), Walls::default());
        // The first has its own, those after it mostly not.
        for _ in 0..4 {
            let said = said(&spawner, &plan, SCRIPT).await;
            assert_eq!(said.matches("Read-only file system").count(), 4, "{kernel:?}: {said}");
            assert_eq!(said.lines().last(), Some("written"), "{kernel:?}: {said}");
        }
        patiently(spawner.shut_down()).await;
    }
}

/// Else what the host has mounted would be in use for as long as there is an executor.
#[test]
fn nothing_of_the_host_is_kept() {
    // Only the system's root can look.
    if probe::kernel().unwrap().is_root {
        let thread = std::thread::spawn(|| {
            for kernel in kernels_with_networks() {
                let mut launcher = Launcher::new().unwrap();
                let plan = prepared(&kernel, &everything(), Walls::default());
                let passed = prepared(&kernel, &read_only(), Walls::default());
                let memories = launcher.with_stacks(|stacks, spares| {
                    // SAFETY: the launcher blocks all signals and lends its stacks.
                    unsafe { start::make_ahead(&plan.shape, stacks[0], spares) }.unwrap();
                    let ahead = spares.take(plan.shape.namespaces().unwrap()).unwrap();
                    let report = Report::default();
                    // SAFETY: as above; the command's function needs nothing.
                    let started = unsafe {
                        start::run(&passed.shape, stacks, spares, Some((end, std::ptr::null_mut())), &report)
                    };
                    let started = started.unwrap().expect("it was made");
                    let target = wait_target(started.pidfd.as_raw_fd()).unwrap();
                    assert_eq!(wait(target, libc::WEXITED).unwrap(), Some(ExitStatus::exited(7)));
                    started.namespace.expect("it has one").end();
                    started.lent.expect("they are kept").give_back();
                    [ahead, spares.take(passed.shape.namespaces().unwrap()).unwrap()].map(|spare| spare.memory.unwrap())
                });
                for memory in memories {
                    let looked = std::thread::spawn(move || {
                        // SAFETY: the calls take numbers, and concern this thread only, which ends.
                        unsafe {
                            assert_eq!(libc::unshare(libc::CLONE_FS), 0);
                            assert_eq!(libc::setns(memory.as_raw_fd(), libc::CLONE_NEWNS), 0);
                        }
                        let names = std::fs::read_dir("/").unwrap().map(|entry| entry.unwrap().file_name());
                        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
                        names.sort();
                        (names, std::fs::write("/new", "").unwrap_err().raw_os_error())
                    });
                    let (names, error) = looked.join().unwrap();
                    assert_eq!(names, ["closed", "closed-file", "dev", "proc", "shm"], "{kernel:?}");
                    assert_eq!(error, Some(libc::EROFS), "{kernel:?}");
                }
            }
        });
        thread.join().unwrap();
    }
}

/// As in a container: the root of its mount namespace is out of its reach, and has to stay out of that of its commands.
#[tokio::test]
async fn an_executor_with_a_root_of_its_own_keeps_nothing_that_is_above_it() {
    if !may_mount() {
        return;
    }
    if std::env::var(TOLD).is_err() {
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = std::ffi::CString::new(root.path().to_str().unwrap()).unwrap();
        let test = "an_executor_with_a_root_of_its_own_keeps_nothing_that_is_above_it";
        return again(module_path!(), test, "", move || {
            let (none, everything) = (std::ptr::null(), c"/".as_ptr());
            // SAFETY: the strings are terminated, and the other pointers may be null.
            unsafe {
                libc::unshare(libc::CLONE_NEWNS) == 0
                    && libc::mount(none, everything, none, libc::MS_REC | libc::MS_PRIVATE, std::ptr::null()) == 0
                    && libc::mount(everything, at.as_ptr(), none, libc::MS_REC | libc::MS_BIND, std::ptr::null()) == 0
                    && libc::chroot(at.as_ptr()) == 0
                    && libc::chdir(everything) == 0
            }
        });
    }
    let kernel = probe::kernel().unwrap();
    assert_eq!(kernel.mode, Mode::Mount, "there are no user namespaces for it");
    let spawner = Spawner::new(PATIENCE);
    let plan = prepared(kernel, &read_only(), Walls::default());
    let first = said(&spawner, &plan, "ls -A /dev").await;
    for _ in 0..3 {
        assert_eq!(said(&spawner, &plan, "ls -A /dev").await, first);
    }
    patiently(spawner.shut_down()).await;
}

#[tokio::test]
async fn who_may_not_come_back_keeps_no_memory_file_system() {
    const SYS_CHROOT: u32 = 18;
    if !may_mount() {
        return;
    }
    if std::env::var(TOLD).is_err() {
        // SAFETY: the call takes numbers.
        let set_up = || unsafe { libc::prctl(libc::PR_CAPBSET_DROP, SYS_CHROOT, 0, 0, 0) } == 0;
        return again(module_path!(), "who_may_not_come_back_keeps_no_memory_file_system", "", set_up);
    }
    for kernel in kernels_with_networks() {
        let spawner = Spawner::new(PATIENCE);
        let plan = prepared(&kernel, &read_only(), Walls::default());
        for _ in 0..3 {
            assert_eq!(said(&spawner, &plan, "echo runs").await, "runs\n", "{kernel:?}");
        }
        patiently(spawner.shut_down()).await;
    }
}

#[test]
fn those_of_one_kind_leave_the_others_their_room() {
    for kernel in kernels_with_networks().into_iter().filter(|kernel| kernel.mode == Mode::User) {
        let null = || Some(File::open("/dev/null").unwrap().into());
        let spares = Arc::new(Spares::default());
        for _ in 0..100 {
            spares.lend(Spare { user: null(), network: None, memory: None }).give_back();
        }
        spares.lend(Spare { user: null(), network: null(), memory: None }).give_back();
        let plan = prepared(&kernel, &read_only(), Walls::default());
        assert!(spares.take(plan.shape.namespaces().unwrap()).is_some());
        assert!(spares.let_go() && !spares.let_go(), "there were others");
    }
}

/// Who may write everything may write to `/proc/sys` as well: nobody else gets that network.
#[tokio::test]
async fn what_can_be_changed_is_not_used_again() {
    for kernel in kernels_with_networks() {
        let spawner = Spawner::new(PATIENCE);
        let plan = prepared(&kernel, &everything(), Walls::default());
        let (one, first) = waiting(&spawner, &plan).await;
        kill(one).await;
        let (other, second) = waiting(&spawner, &plan).await;
        assert_eq!(number(&first) == number(&second), !kernel.is_root, "{kernel:?}");
        kill(other).await;
        patiently(spawner.shut_down()).await;
    }
}

extern "C" fn end(_: *mut c_void) -> std::ffi::c_int {
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(7) }
}

/// Namespaces that nobody was in yet.
fn made(kernel: &Kernel) -> Spare {
    let mut launcher = Launcher::new().unwrap();
    let settings = settings().private_loopback(true);
    let plan = prepared_on(kernel, &read_only(), &settings, None, Walls::default()).unwrap();
    launcher.with_stacks(|[stack, ..], spares| {
        // SAFETY: the launcher blocks all signals and lends its stacks.
        unsafe { start::make_ahead(&plan.shape, stack, spares) }.unwrap();
        spares.take(plan.shape.namespaces().unwrap()).unwrap()
    })
}

extern "C" fn sleep(_: *mut c_void) -> std::ffi::c_int {
    let argv = [c"sleep".as_ptr(), c"1000".as_ptr(), std::ptr::null()];
    // SAFETY: the strings and their list are terminated; if that fails, the process ends.
    unsafe {
        libc::execv(c"/bin/sleep".as_ptr(), argv.as_ptr());
        libc::_exit(1)
    }
}

/// Starts a command by what `spoil` has left to it.
fn start_after(kernel: &Kernel, bound: &Arc<Bound>, spoil: impl FnOnce(&Arc<Spares>)) {
    let mut launcher = Launcher::new().unwrap();
    let sandbox = prepared(kernel, bound, Walls::default());
    let report = Report::default();
    let started = launcher.with_stacks(|stacks, spares| {
        spoil(spares);
        // SAFETY: the launcher blocks all signals and lends its stacks; the command's function needs nothing.
        unsafe { start::run(&sandbox.shape, stacks, spares, Some((end, std::ptr::null_mut())), &report) }
    });
    let started = started.unwrap_or_else(|refusal| panic!("{kernel:?}: {refusal:?}")).expect("it was made");
    let target = wait_target(started.pidfd.as_raw_fd()).unwrap();
    assert_eq!(wait(target, libc::WEXITED).unwrap(), Some(ExitStatus::exited(7)));
    started.namespace.expect("it has one").end();
}

#[test]
fn what_cannot_be_used_again_is_made_anew() {
    let thread = std::thread::spawn(|| {
        for kernel in kernels_with_networks() {
            // Out of the way of the numbers that the first process gets.
            let null = || above(&File::open("/dev/null").unwrap().into(), 5).unwrap();
            let user = || (kernel.mode == Mode::User).then(null);
            let bad = || Spare { user: user(), network: Some(null()), memory: None };
            start_after(&kernel, &read_only(), |spares| spares.lend(bad()).give_back());
            start_after(&kernel, &everything(), |spares| spares.keep_new(bad()));
            start_after(&kernel, &read_only(), |spares| {
                spares.lend(Spare { memory: Some(null()), ..made(&kernel) }).give_back();
            });
            start_after(&kernel, &read_only(), |spares| spares.set_program(Program::Made(Arc::new(null()))));
        }
    });
    thread.join().unwrap();
}

#[test]
fn the_program_can_be_neither_read_nor_changed() {
    let spares = Spares::default();
    let file = spares.program(b"\x7fELF").unwrap();
    assert!(Arc::ptr_eq(&file, &spares.program(b"\x7fELF").unwrap()), "there is one");
    let file = File::from(file.try_clone().unwrap());
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o100);
    assert!(file.set_len(0).is_err() && io::Write::write(&mut &file, b"x").is_err(), "it is sealed");
    spares.set_program(Program::Refused);
    assert!(spares.program(b"\x7fELF").is_none());
}
