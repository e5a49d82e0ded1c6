//! Few descriptors; no namespaces and an old Landlock; shapes of which little is restricted.

use std::os::fd::AsRawFd;

use super::*;

/// Runs a test of this module again, by itself and with this soft and this hard limit of descriptors.
fn again_with_limits(test: &str, soft: libc::rlim_t, hard: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the call reads a structure of its own.
    again(
        module_path!(),
        test,
        &hard.to_string(),
        move || unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0,
    );
}

/// The same with one of `module`, in a process that is set up in another way, and is told this.
pub(super) fn again(module: &str, test: &str, told: &str, set_up: impl Fn() -> bool + Send + Sync + 'static) {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let module = module.split_once("::").unwrap().1;
    command.args([&format!("{module}::{test}"), "--exact"]).env(TOLD, told);
    // SAFETY: what is set up takes one system call.
    unsafe { command.pre_exec(move || if set_up() { Ok(()) } else { Err(io::Error::last_os_error()) }) };
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(" 1 passed"), "{text}");
}

/// Tells a test how it was set up.
pub(super) const TOLD: &str = "LONGARM_SANDBOX_TEST_TOLD";

/// More places than descriptors, unless the soft limit is raised.
fn many(workspace: &Workspace) -> Arc<Bound> {
    let mut entries = vec![(workspace.path("w"), Access::Write)];
    for number in 0..700 {
        let directory = workspace.path(&format!("w/many/{number}"));
        std::fs::create_dir_all(&directory).unwrap();
        entries.push((directory, Access::Read));
    }
    bound(Some(Access::Read), NetworkPolicy::Restricted, &entries)
}

#[tokio::test]
async fn more_places_than_descriptors_take_a_higher_limit_that_the_command_does_not_get() {
    let Ok(hard) = std::env::var(TOLD) else {
        return again_with_limits(
            "more_places_than_descriptors_take_a_higher_limit_that_the_command_does_not_get",
            256,
            1_024,
        );
    };
    assert_eq!(hard, "1024");
    for kernel in kernels_with_mounts() {
        let workspace = Workspace::new();
        let script = "ulimit -Sn; ulimit -Hn; touch many/699/x && echo made; touch x && echo root";
        let (_, output) = run(&kernel, &many(&workspace), &workspace.path("w"), script).await;
        assert!(output.starts_with("256\n1024\n") && output.ends_with("root\n"), "{kernel:?}: {output}");
        assert!(!output.contains("made"), "{output}");
    }
}

#[tokio::test]
async fn too_few_descriptors_are_the_error_that_they_are_without_a_sandbox() {
    if std::env::var(TOLD).is_err() {
        return again_with_limits("too_few_descriptors_are_the_error_that_they_are_without_a_sandbox", 256, 300);
    }
    for kernel in kernels_with_mounts() {
        let workspace = Workspace::new();
        let sandbox = prepared(&kernel, &many(&workspace), Walls::default());
        let error = Running::start(launch_plan("true", Path::new("/tmp"), sandbox)).await.err().unwrap();
        assert!(matches!(error, SpawnError::DescriptorLimit { limit: Some(300) }), "{error}");
        assert!(error.is_retryable());
    }
}

/// Without namespaces, on a kernel with this version of Landlock, or a later one that is told that it is that.
fn bare_with(landlock: u32) -> Option<Kernel> {
    let kernel = bare()?;
    Some(Kernel { landlock: Some(landlock), ..kernel })
}

#[tokio::test]
async fn without_namespaces_and_scopes_signals_stay_in_the_group() {
    for version in [3, 4, 5, 6] {
        let Some(kernel) = bare_with(version) else { return };
        let mut victim = std::process::Command::new("sleep").arg("300").spawn().unwrap();
        let script = format!(
            "kill -9 {0} && echo killed; kill -0 {0} && echo seen; trap 'echo group' TERM; kill -TERM 0; \
             touch file && echo wrote; cat file && echo read; sleep 300 & kill -9 $! && echo child; exec true",
            victim.id()
        );
        let workspace = Workspace::new();
        let plan = launch_plan(&format!("exec 2>&1; {script}"), &workspace.path("w"), {
            prepared(&kernel, &read_only(), Walls::default())
        });
        let mut running = Running::start(plan).await.unwrap();
        running.read_until("read").await;
        running.child().signal_tree(Signal::Kill).unwrap();
        let (_, output) = running.end().await;
        let ended = victim.try_wait().unwrap();
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert_eq!(ended, None, "{output}");
        assert!(output.contains("group\n") && output.contains("read\n"), "version {version}: {output}");
        assert!(!output.contains("killed") && !output.contains("wrote"), "version {version}: {output}");
    }
}

#[tokio::test]
async fn without_namespaces_what_processes_share_is_out_of_reach() {
    let Some(kernel) = bare_with(4) else { return };
    let mut victim = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    let script = format!(
        "renice -n 5 -p {0} && echo nice; prlimit --pid {0} --core=0 && echo limit; taskset -p 1 {0} && echo affinity; \
         ipcmk -S 1 && echo semaphores; ipcmk -M 64 && echo memory; ipcmk -Q && echo queue; nice -n 3 true && echo own; \
         ulimit -n 100 && echo own-limit",
        victim.id()
    );
    let (_, output) = run(&kernel, &read_only(), Path::new("/tmp"), &script).await;
    victim.kill().unwrap();
    victim.wait().unwrap();
    for word in ["nice", "limit", "affinity", "semaphores", "memory", "queue"] {
        assert!(!output.lines().any(|line| line == word), "{word}: {output}");
    }
    assert!(output.ends_with("own\nown-limit\n"), "{output}");
}

#[tokio::test]
async fn where_files_and_the_network_are_open_the_rest_is_enforced() {
    let workspace = Workspace::new();
    let root = workspace.path("w");
    let denied = [(workspace.path("w/secret"), Access::Deny)];
    let some_denied = bound(Some(Access::Write), NetworkPolicy::Enabled, &denied);
    let open = bound(Some(Access::Write), NetworkPolicy::Restricted, &[]);
    let ports = ManagedNetworkFacts::ports([9]);
    let loopback = settings().private_loopback(true);
    for kernel in kernels_with_mounts() {
        for (bound, settings, managed) in
            [(&some_denied, &settings(), None), (&open, &settings(), Some(&ports)), (&open, &loopback, None)]
        {
            if !kernel.network && bound.network == NetworkPolicy::Restricted {
                continue;
            }
            let sandbox = prepared_on(&kernel, bound, settings, managed, Walls::default()).unwrap();
            let script = "exec 2>&1; kill -9 1 && echo killed; touch file && echo file; ls secret && echo secret";
            let (_, output) = Running::start(launch_plan(script, &root, sandbox)).await.unwrap().end().await;
            let is_denied = bound.network == NetworkPolicy::Enabled;
            assert!(output.contains("file\n") && output.contains("secret\n") != is_denied, "{kernel:?}: {output}");
        }
    }
}

#[test]
fn whoever_is_gone_is_to_blame_and_not_the_memory() {
    let failure = Failure { stage: Stage::Command, index: 0, errno: libc::ENOMEM };
    let Refusal::Step(step) = start::blame(failure, || false) else { panic!("memory is short") };
    assert_eq!(step, failure);
    let probe::Cause { cause, remedy } = probe::explain(&start::blame(failure, || true));
    assert!(cause.contains("first process was killed") && !remedy.contains("memory"), "{cause}; {remedy}");
    let other = Failure { errno: libc::EAGAIN, ..failure };
    assert!(matches!(start::blame(other, || panic!("it is not asked")), Refusal::Step(_)));
}

/// What a command does that has ended before anybody looks at it.
extern "C" fn end(_: *mut c_void) -> std::ffi::c_int {
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

#[test]
fn a_command_that_the_system_has_reaped_was_started_all_the_same() {
    if std::env::var(TOLD).is_err() {
        let test = "a_command_that_the_system_has_reaped_was_started_all_the_same";
        // SAFETY: it is a disposition that executing a program does not change.
        return again(module_path!(), test, "", || unsafe {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN) != libc::SIG_ERR
        });
    }
    let mut launcher = crate::backend::local::unix::platform::Launcher::new().unwrap();
    for kernel in kernels_with_mounts().into_iter().chain(bare()) {
        let sandbox = prepared(&kernel, &read_only(), Walls::default());
        let report = Report::default();
        let started = launcher.with_stacks(|stacks, spares| {
            // SAFETY: the launcher blocks all signals and lends its stacks; the command's function needs nothing.
            unsafe { start::run(&sandbox.shape, stacks, spares, Some((end, std::ptr::null_mut())), &report) }
        });
        let started = started.unwrap_or_else(|refusal| panic!("{kernel:?}: {refusal:?}")).expect("it was made");
        assert_eq!(started.namespace.is_some(), kernel.mode != Mode::Bare);
        let mut ended = libc::pollfd { fd: started.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which the call fills.
        let count = unsafe { libc::poll(&raw mut ended, 1, PATIENCE.as_millis() as std::ffi::c_int) };
        assert_eq!(count, 1, "it tells of the end of the command, whoever has its number");
    }
}
