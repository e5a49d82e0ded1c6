//! The processes that share the executor's memory while a sandbox is built: what fails in them, and who is killed meanwhile.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Instant;

use super::limits::{TOLD, again};
use super::*;
use crate::backend::local::tests::needs;
use crate::backend::local::unix::namespace::executable;
use crate::backend::local::unix::platform::{Launcher, pidfd_of, send, wait_target};
use crate::backend::local::unix::process::wait;
use crate::testing::patience::Patience;

extern "C" fn end(_: *mut c_void) -> std::ffi::c_int {
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(7) }
}

extern "C" fn sleep(_: *mut c_void) -> std::ffi::c_int {
    let argv = [c"sleep".as_ptr(), c"1000".as_ptr(), std::ptr::null()];
    // SAFETY: the strings and their list are terminated; if that fails, the process ends.
    unsafe {
        libc::execv(c"/bin/sleep".as_ptr(), argv.as_ptr());
        libc::_exit(1)
    }
}

/// Starts a command of this shape with this launcher.
fn start(launcher: &mut Launcher, shape: &Shape, command: start::Entry, report: &Report) -> Result<Started, Refusal> {
    launcher.with_stacks(|stacks, spares| {
        // SAFETY: the launcher blocks all signals and lends its stacks; the functions of these commands need no more than what
        // they get.
        unsafe { start::run(shape, stacks, spares, Some(command), report) }.map(|started| started.expect("it was made"))
    })
}

/// How it ended, with all that it had.
fn ended(started: Started) -> ExitStatus {
    let target = wait_target(started.pidfd.as_raw_fd()).unwrap();
    let status = wait(target, libc::WEXITED).unwrap().expect("it has ended");
    started.namespace.expect("it has one").end();
    status
}

fn on_a_thread(run: impl FnOnce() + Send + 'static) {
    std::thread::spawn(run).join().unwrap();
}

const END: start::Entry = (end, std::ptr::null_mut());

#[test]
fn what_fails_in_the_first_process_is_told_with_its_step() {
    type Spoil = fn(&mut Shape, &Spares);
    const FILTER: fn(&mut Shape) = |shape| {
        let none: filter::Program = Arc::from([]);
        (shape.filter, shape.telling_filter) = (none.clone(), none);
    };
    const PROC: fn(&mut Shape) = |shape| match &mut shape.namespaces.as_mut().unwrap().proc {
        shape::Proc::Fresh { read_only, .. } => read_only.insert(0, c"/proc/version/below".into()),
        shape::Proc::Masked => panic!("it has a new one"),
    };
    let spoils: [(Spoil, Stage, usize, i32); 6] = [
        (|shape, _| PROC(shape), Stage::Proc, 1, libc::ENOTDIR),
        // The builder fails as well, beside it.
        (|shape, _| (PROC(shape), FILTER(shape)).1, Stage::Proc, 1, libc::ENOTDIR),
        (
            |shape, _| {
                let landlock = shape.landlock.as_mut().unwrap();
                landlock.first = raw::RulesetAttributes { files: 0, network: 0, scopes: 0 };
            },
            Stage::Landlock,
            4,
            libc::ENOMSG,
        ),
        (
            |shape, _| {
                shape.landlock = None;
                FILTER(shape);
            },
            Stage::Filter,
            1,
            libc::EINVAL,
        ),
        // Here it is the builder alone.
        (|shape, _| FILTER(shape), Stage::Filter, 0, libc::EINVAL),
        // A script that nobody could open.
        (
            |_, spares| {
                let script = executable(b"#!/bin/sh\n").unwrap();
                spares.set_program(spare::Program::Made(Arc::new(script)));
            },
            Stage::Init,
            child::EXECUTION,
            libc::ENOENT,
        ),
    ];
    on_a_thread(move || {
        for kernel in kernels_with_mounts().into_iter().filter(|kernel| kernel.fresh_proc && kernel.landlock.is_some())
        {
            for (spoil, stage, index, errno) in spoils {
                let mut launcher = Launcher::new().unwrap();
                let mut sandbox = prepared(&kernel, &read_only(), Walls::default());
                launcher.with_stacks(|_, spares| spoil(Arc::get_mut(&mut sandbox.shape).unwrap(), spares));
                let refused = start(&mut launcher, &sandbox.shape, END, &Report::default());
                let Err(Refusal::Step(failure)) = refused else { panic!("{stage:?}: {refused:?}") };
                assert_eq!(failure, Failure { stage, index, errno }, "{kernel:?}");

                launcher.with_stacks(|_, spares| spares.set_program(spare::Program::Unmade));
                let sandbox = prepared(&kernel, &read_only(), Walls::default());
                let started = start(&mut launcher, &sandbox.shape, END, &Report::default()).unwrap();
                assert_eq!(ended(started), ExitStatus::exited(7), "{kernel:?}");
            }
        }
    });
}

#[test]
fn an_empty_base_without_a_place_for_proc_fails_in_the_first_process() {
    on_a_thread(|| {
        for kernel in kernels_with_mounts().into_iter().filter(|kernel| kernel.fresh_proc) {
            let mut launcher = Launcher::new().unwrap();
            let bound = bound(None, NetworkPolicy::Restricted, &[(PathBuf::from("/usr"), Access::Read)]);
            let mut sandbox = prepared(&kernel, &bound, Walls::default());
            let namespaces = Arc::get_mut(&mut sandbox.shape).unwrap().namespaces.as_mut().unwrap();
            assert_eq!(namespaces.base, shape::Base::Empty);
            let before = namespaces.makes.len();
            namespaces
                .makes
                .retain(|make| !matches!(make, shape::Make::Directory(path, _) if path.as_bytes() == b"root/proc"));
            assert_eq!(namespaces.makes.len() + 1, before);
            let refused = start(&mut launcher, &sandbox.shape, END, &Report::default());
            let Err(Refusal::Step(failure)) = refused else { panic!("{refused:?}") };
            assert_eq!(failure, Failure { stage: Stage::Proc, index: 0, errno: libc::ENOENT }, "{kernel:?}");
        }
    });
}

/// The children of this process, by whatever thread.
fn children() -> Vec<libc::pid_t> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may have ended since it was listed.
    let lists =
        threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split(' ').filter_map(|number| number.trim().parse().ok()).collect::<Vec<_>>()).collect()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// No child is left, not even one that has ended.
fn has_no_child() -> bool {
    // SAFETY: the status is not asked for.
    let waited = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
    waited == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD)
}

#[test]
fn many_starts_at_once_leave_nothing() {
    if std::env::var(TOLD).is_err() {
        return again(module_path!(), "many_starts_at_once_leave_nothing", "", || true);
    }
    const THREADS: usize = 4;
    const STARTS: usize = 125;
    for kernel in kernels_with_mounts().into_iter().take(1) {
        let workspace = Workspace::new();
        let writable = [(workspace.path("w"), Access::Write)];
        let shapes = [
            prepared(&kernel, &read_only(), Walls::default()),
            prepared(&kernel, &bound(Some(Access::Read), NetworkPolicy::Restricted, &writable), Walls::default()),
            prepared(&kernel, &bound(None, NetworkPolicy::Restricted, &writable), Walls::default()),
        ];
        let before = descriptors();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let shapes = &shapes;
                scope.spawn(move || {
                    let mut launcher = Launcher::new().unwrap();
                    for number in 0..STARTS {
                        let shape = &shapes[(thread + number) % shapes.len()].shape;
                        let started = start(&mut launcher, shape, END, &Report::default());
                        let started = started.unwrap_or_else(|refusal| panic!("{thread} {number}: {refusal:?}"));
                        assert_eq!(ended(started), ExitStatus::exited(7), "{thread} {number}");
                    }
                });
            }
        });
        assert!(has_no_child() && children().is_empty());
        // The thread that listens to filters has its own. If it has begun to end by itself, nobody can wait for it.
        rest();
        let mut patience = Patience::new(PATIENCE);
        while descriptors() > before && patience.is_left() {
            patience.block(Duration::from_millis(1));
        }
        assert!(descriptors() <= before, "{before} before, and {} now", descriptors());
    }
}

#[test]
fn whoever_is_killed_during_a_start_leaves_nothing_that_hangs() {
    if std::env::var(TOLD).is_err() {
        return again(module_path!(), "whoever_is_killed_during_a_start_leaves_nothing_that_hangs", "", || true);
    }
    const STARTS: usize = 300;
    for kernel in kernels_with_mounts().into_iter().take(1) {
        let sandbox = prepared(&kernel, &read_only(), Walls::default());
        let over = AtomicBool::new(false);
        let (mut started, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut round: u64 = 1;
                while !over.load(Ordering::Relaxed) {
                    // Each time a little later, up to what a start takes.
                    round = round.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let until = Instant::now() + Duration::from_micros((round >> 33) % 1_500);
                    while Instant::now() < until {
                        std::hint::spin_loop();
                    }
                    let children = children();
                    let Some(child) = children.get(round as usize % children.len().max(1)) else { continue };
                    // It is still a child, so that the number means no other one.
                    if let Ok(pidfd) = pidfd_of(*child)
                        && self::children().contains(child)
                    {
                        send(&pidfd, libc::SIGKILL).unwrap();
                    }
                }
            });
            let _over = Over(&over);
            let mut launcher = Launcher::new().unwrap();
            for _ in 0..STARTS {
                match start(&mut launcher, &sandbox.shape, (sleep, std::ptr::null_mut()), &Report::default()) {
                    Ok(running) => {
                        started += 1;
                        send(&running.pidfd, libc::SIGKILL).unwrap();
                        assert_eq!(ended(running).signal(), Some(Signal::Kill));
                    }
                    Err(_) => refused += 1,
                }
                assert!(has_no_child());
            }
        });
        println!("{started} started, {refused} refused");
        let mut launcher = Launcher::new().unwrap();
        let started = start(&mut launcher, &sandbox.shape, END, &Report::default()).unwrap();
        assert_eq!(ended(started), ExitStatus::exited(7));
    }
}

/// The kernel tells of it only where somebody is to be made in its namespace.
#[test]
fn an_init_that_was_killed_before_its_program_is_noticed_where_nothing_is_to_run() {
    const TEST: &str = "an_init_that_was_killed_before_its_program_is_noticed_where_nothing_is_to_run";
    if !Path::new("/proc/thread-self/children").exists() {
        return needs::skipped(TEST, "this kernel does not list children (CONFIG_PROC_CHILDREN)");
    }
    if std::env::var(TOLD).is_err() {
        return again(module_path!(), TEST, "", || true);
    }
    let workspace = Workspace::new();
    let writable = [(workspace.path("w"), Access::Write)];
    for kernel in kernels_with_mounts().into_iter().take(1) {
        for bound in [read_only(), bound(None, NetworkPolicy::Restricted, &writable)] {
            let sandbox = prepared(&kernel, &bound, Walls::default());
            let (report, over) = (Report::default(), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let init = report.init.number.load(Ordering::Relaxed);
                        // It is still a child, so that the number means no other one.
                        if init != 0
                            && let Ok(pidfd) = pidfd_of(init)
                            && children().contains(&init)
                        {
                            send(&pidfd, libc::SIGKILL).unwrap();
                        }
                        std::thread::yield_now();
                    }
                });
                let _over = Over(&over);
                let mut launcher = Launcher::new().unwrap();
                let mut patience = Patience::new(PATIENCE);
                let mut noticed = 0;
                while noticed < 5 {
                    assert!(patience.is_left(), "it came too late each time");
                    report.clear();
                    let outcome = launcher.with_stacks(|stacks, spares| {
                        // SAFETY: the launcher blocks all signals and lends its stacks, and there is no command.
                        unsafe { start::run(&sandbox.shape, stacks, spares, None, &report) }
                    });
                    if report.is_ready.load(Ordering::Acquire) == 0 {
                        match &outcome {
                            Err(Refusal::Other(_, error)) => {
                                assert!(error.to_string().contains("was killed"), "{error}")
                            }
                            // Its end was not seen in time.
                            Err(Refusal::Step(failure)) => assert_eq!(failure.errno, libc::ENOMEM, "{failure:?}"),
                            _ => panic!("{outcome:?}"),
                        }
                        noticed += 1;
                    } else {
                        patience.block(Duration::from_millis(10));
                    }
                }
            });
        }
    }
    assert!(has_no_child());
}

/// Says that it is over, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a command waits for that is in the executor's memory, and that it is done with it.
#[derive(Default)]
struct Gate {
    is_open: AtomicI32,
    is_passed: AtomicI32,
}

extern "C" fn pass(gate: *mut c_void) -> std::ffi::c_int {
    // SAFETY: the test passes a valid value, which lives as long as this needs it.
    let gate = unsafe { &*gate.cast::<Gate>() };
    let end = Instant::now() + PATIENCE;
    // Nobody opens it if the test was killed.
    while gate.is_open.load(Ordering::Acquire) == 0 && Instant::now() < end {
        // SAFETY: the call has no arguments.
        unsafe { libc::sched_yield() };
    }
    gate.is_passed.store(1, Ordering::Release);
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(7) }
}

#[test]
fn who_shares_the_memory_is_waited_for_also_if_its_maker_was_killed() {
    if std::env::var(TOLD).is_err() {
        return again(module_path!(), "who_shares_the_memory_is_waited_for_also_if_its_maker_was_killed", "", || true);
    }
    for kernel in kernels_with_mounts() {
        let sandbox = prepared(&kernel, &read_only(), Walls::default());
        let (gate, report, is_back) = (Gate::default(), Report::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let made = || [&report.init, &report.command].map(|sibling| sibling.number.load(Ordering::Relaxed));
                while made()[1] == 0 {
                    std::thread::yield_now();
                }
                let builder: Vec<_> = children().into_iter().filter(|child| !made().contains(child)).collect();
                let [builder] = builder[..] else { panic!("{builder:?}") };
                let builder = pidfd_of(builder).unwrap();
                send(&builder, libc::SIGKILL).unwrap();
                let mut end = libc::pollfd { fd: builder.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one structure, which the call fills.
                assert_eq!(unsafe { libc::poll(&raw mut end, 1, PATIENCE.as_millis() as _) }, 1);
                // Time enough for whoever does not wait.
                let until = Instant::now() + Duration::from_millis(50);
                while Instant::now() < until && !is_back.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                gate.is_open.store(1, Ordering::Release);
            });
            let mut launcher = Launcher::new().unwrap();
            let argument = std::ptr::from_ref(&gate).cast_mut().cast();
            let refused = start(&mut launcher, &sandbox.shape, (pass, argument), &report);
            is_back.store(true, Ordering::Release);
            assert_eq!(gate.is_passed.load(Ordering::Acquire), 1, "it was waited for: {kernel:?}");
            let Err(Refusal::Other(_, error)) = refused else { panic!("{refused:?}") };
            assert!(error.to_string().contains("was killed"), "{error}");
        });
        assert!(has_no_child());
    }
}
