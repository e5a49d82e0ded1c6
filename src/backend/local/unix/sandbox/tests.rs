//! Sandboxes on this kernel, by every way that it allows: commands in them, and their ends.

use std::future::poll_fn;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use super::probe::{Kernel, Mode};
use super::*;
use crate::backend::local::config::LocalConfig;
use crate::backend::local::os::{Child, ExitWatch, Launched, OutputReader};
use crate::backend::local::spawn::LaunchPlan;
use crate::backend::local::spawner::Spawner;
use crate::error::SpawnError;
use crate::request::{ExecRequest, Signal};
use crate::sandbox::{Access, BoundEntry, Class, Existing, Level, NetworkPolicy, Origin};
use crate::status::ExitStatus;
use crate::testing::patience::within;

mod held;
mod limits;
mod notices;
mod scenes;
mod siblings;
mod spares;
mod walls;

const PATIENCE: Duration = Duration::from_secs(60);

/// A workspace outside of `/tmp`, where everybody may write.
struct Workspace {
    directory: tempfile::TempDir,
}

impl Workspace {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
        for name in ["w/.git", "w/secret/open", "w/deep/er", "outside"] {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        for name in ["w/.git/config", "w/secret/f", "w/deep/er/s", "w/file", "outside/f"] {
            std::fs::write(directory.path().join(name), "text\n").unwrap();
        }
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }
}

/// What an intent would be bound to.
pub(super) fn bound(root: Option<Access>, network: NetworkPolicy, entries: &[(PathBuf, Access)]) -> Arc<Bound> {
    let mut entries: Vec<BoundEntry> = entries
        .iter()
        .map(|(path, access)| BoundEntry {
            path: path.clone(),
            lexical: path.clone(),
            access: *access,
            kind: match std::fs::symlink_metadata(path) {
                Ok(found) if found.is_dir() => Existing::Directory,
                Ok(_) => Existing::File,
                Err(_) => Existing::Missing,
            },
            skip_missing: false,
            origin: Origin::Entry,
        })
        .collect();
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Arc::new(Bound {
        class: if root.is_some() { Class::FullRead } else { Class::RestrictedRead },
        root,
        entries,
        aliases: Vec::new(),
        network,
        workspace_roots: Vec::new(),
        cwd: None,
        globs: Vec::new(),
        glob_scan_max_depth: None,
        protected: Vec::new(),
        minimal: false,
    })
}

fn read_only() -> Arc<Bound> {
    bound(Some(Access::Read), NetworkPolicy::Restricted, &[])
}

/// What the kernel allows, and lesser versions of it. Only [`Mode::Bare`] where there are no namespaces.
fn kernels() -> Vec<Kernel> {
    let best = probe::kernel().unwrap().clone();
    let mut kernels = vec![best.clone()];
    if best.mode == Mode::Bare {
        assert!(best.no_namespaces.is_some(), "and why is known");
        return kernels;
    }
    kernels.push(Kernel { fresh_proc: false, ..best.clone() });
    kernels.push(Kernel { network: false, ..best.clone() });
    kernels.push(Kernel { landlock: None, ..best.clone() });
    if best.mode == Mode::User && may_mount() {
        kernels.push(Kernel { mode: Mode::Mount, ..best });
    }
    kernels
}

/// The kernels on which mounts are possible: those that enforce every shape.
fn kernels_with_mounts() -> Vec<Kernel> {
    kernels().into_iter().filter(|kernel| kernel.mode != Mode::Bare).collect()
}

fn may_mount() -> bool {
    const SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    u64::from_str_radix(effective, 16).unwrap() >> SYS_ADMIN & 1 == 1
}

fn settings() -> SandboxSettings {
    SandboxSettings::default().accept_partial(true)
}

/// By itself, as the first one on that kernel.
fn prepared_on(
    kernel: &Kernel,
    bound: &Arc<Bound>,
    settings: &SandboxSettings,
    managed: Option<&ManagedNetworkFacts>,
    without: Walls,
) -> Result<SandboxPlan, SandboxError> {
    prepare_on((kernel, &Plans::new()), bound, settings, managed, without)
}

fn prepared(kernel: &Kernel, bound: &Arc<Bound>, without: Walls) -> SandboxPlan {
    prepared_on(kernel, bound, &settings(), None, without).unwrap()
}

fn launch_plan(script: &str, cwd: &Path, sandbox: SandboxPlan) -> LaunchPlan {
    let request = ExecRequest::new(["sh", "-c", script]).cwd(cwd.to_str().unwrap());
    let mut plan = LaunchPlan::new(&request, &config()).unwrap();
    plan.sandbox = Some(sandbox);
    plan
}

fn config() -> LocalConfig {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    LocalConfig { base_env: [("PATH".into(), path)].into_iter().collect(), ..LocalConfig::default() }
}

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    within(PATIENCE, future).await.expect("it does not hang")
}

/// A command that runs.
struct Running {
    launched: Launched,
    output: String,
}

impl Running {
    async fn start(plan: LaunchPlan) -> Result<Self, SpawnError> {
        let spawner = Spawner::new(PATIENCE);
        let launched = patiently(spawner.start(plan)).await;
        patiently(spawner.shut_down()).await;
        let mut launched = launched?;
        launched.stdout.watch().unwrap();
        Ok(Self { launched, output: String::new() })
    }

    fn child(&self) -> &Child {
        &self.launched.child
    }

    async fn read_until(&mut self, text: &str) {
        patiently(async {
            while !self.output.contains(text) {
                let more = read(&mut self.launched.stdout, &mut self.output).await;
                assert!(more, "the output ends in {:?}", self.output);
            }
        })
        .await;
    }

    /// The status and all output, once nobody holds the output any more.
    async fn end(self) -> (ExitStatus, String) {
        let Self { mut launched, mut output } = self;
        let mut watch = ExitWatch::new(&launched.child).unwrap();
        let ended = async {
            poll_fn(|cx| watch.poll_exited(cx)).await.unwrap();
            let status = launched.child.exit_status().unwrap().expect("it has ended");
            launched.child.release().unwrap();
            if launched.child.needs_clean_up() {
                assert_eq!(launched.child.tree_has_members(), Some(false), "nobody is left when the exit is told");
            }
            status
        };
        let read = async { while read(&mut launched.stdout, &mut output).await {} };
        let (status, ()) = patiently(async { tokio::join!(ended, read) }).await;
        (status, output)
    }
}

/// Reads a piece; false at the end.
async fn read(from: &mut OutputReader, output: &mut String) -> bool {
    let mut buffer = Vec::with_capacity(4096);
    let count = poll_fn(|cx| from.poll_read(cx, &mut buffer)).await.unwrap();
    output.push_str(&String::from_utf8_lossy(&buffer));
    count > 0
}

async fn run(kernel: &Kernel, bound: &Arc<Bound>, cwd: &Path, script: &str) -> (ExitStatus, String) {
    let plan = launch_plan(&format!("exec 2>&1; {script}"), cwd, prepared(kernel, bound, Walls::default()));
    Running::start(plan).await.unwrap().end().await
}

#[tokio::test]
async fn a_command_ends_as_it_would_without_a_sandbox() {
    let cwd = Path::new("/tmp");
    for kernel in kernels() {
        let (status, output) = run(&kernel, &read_only(), cwd, "echo out; pwd; exit 3").await;
        assert_eq!((status.code(), output.as_str()), (Some(3), "out\n/tmp\n"), "{kernel:?}");
        assert_eq!(run(&kernel, &read_only(), cwd, "kill -9 $$").await.0.signal(), Some(Signal::Kill));
        assert_eq!(run(&kernel, &read_only(), cwd, "kill -15 $$").await.0.signal(), Some(Signal::Terminate));
        let (_, output) = run(&kernel, &read_only(), cwd, "umask; ls /proc/self/fd | wc -l; ls /proc/self/fd").await;
        if kernel.fresh_proc || kernel.mode == Mode::Bare {
            // The list itself is the fourth.
            assert_eq!(output.lines().skip(1).collect::<Vec<_>>().join(" ").trim(), "4 0 1 2 3", "{kernel:?}");
        }
    }
}

#[tokio::test]
async fn signals_reach_the_command_and_its_group() {
    let cwd = Path::new("/tmp");
    for kernel in kernels() {
        let script = "trap 'exit 7' INT; echo r; while :; do sleep 1; done";
        let mut running =
            Running::start(launch_plan(script, cwd, prepared(&kernel, &read_only(), Walls::default()))).await.unwrap();
        running.read_until("r\n").await;
        running.child().signal_group(Signal::Interrupt).unwrap();
        assert_eq!(running.end().await.0.code(), Some(7), "{kernel:?}");

        let plan = launch_plan("echo r; exec sleep 300", cwd, prepared(&kernel, &read_only(), Walls::default()));
        let mut running = Running::start(plan).await.unwrap();
        running.read_until("r\n").await;
        running.child().signal_tree(Signal::Interrupt).unwrap();
        assert_eq!(running.end().await.0.signal(), Some(Signal::Interrupt), "the default is not ignored");
    }
}

#[tokio::test]
async fn everybody_ends_with_the_command() {
    let cwd = Path::new("/tmp");
    for kernel in kernels_with_mounts() {
        // They hold the output, which would never end.
        let script = "setsid sleep 300 & sleep 300 & (trap '' TERM INT HUP; exec sleep 300) & echo $$; exit 5";
        let (status, output) = run(&kernel, &read_only(), cwd, script).await;
        assert_eq!((status.code(), output.as_str()), (Some(5), "2\n"), "{kernel:?}");

        let plan = launch_plan(
            "setsid sleep 300 & echo r; exec sleep 300",
            cwd,
            prepared(&kernel, &read_only(), Walls::default()),
        );
        let mut running = Running::start(plan).await.unwrap();
        running.read_until("r\n").await;
        running.child().signal_tree(Signal::Kill).unwrap();
        assert_eq!(running.end().await.0.signal(), Some(Signal::Kill));
    }
}

#[tokio::test]
async fn nobody_in_it_reaches_its_first_process_or_the_outside() {
    for kernel in kernels_with_mounts().into_iter().filter(|kernel| kernel.fresh_proc) {
        // Without the scope of Landlock the first process is sent signals, which it ignores.
        let kill =
            if kernel.landlock.is_some_and(|version| version >= 6) { "kill -9 1 && echo killed" } else { "kill -9 1" };
        let script = format!(
            "{kill}; cat /proc/1/environ && echo read; echo > /proc/1/mem && echo wrote; \
             kill -0 {} && echo seen; set -- /proc/[0-9]*; echo $#",
            std::process::id()
        );
        let (_, output) = run(&kernel, &read_only(), Path::new("/tmp"), &script).await;
        for word in ["killed", "read\n", "wrote", "seen"] {
            assert!(!output.contains(word), "{kernel:?}: {output}");
        }
        assert!(output.ends_with("\n2\n"), "the first and the shell: {output}");
    }
}

#[tokio::test]
async fn failed_starts_leave_nothing_and_say_what_is_wrong() {
    for kernel in kernels() {
        let sandbox = || prepared(&kernel, &read_only(), Walls::default());
        let plan = |argv: &[&str], cwd: &str| {
            let mut plan = LaunchPlan::new(&ExecRequest::new(argv.iter().copied()).cwd(cwd), &config()).unwrap();
            plan.sandbox = Some(sandbox());
            plan
        };
        let error = Running::start(plan(&["/nowhere/at/all"], "/tmp")).await.err().unwrap();
        assert!(matches!(error, SpawnError::ProgramNotFound { .. }), "{error}");
        let error = Running::start(plan(&["/etc/passwd"], "/tmp")).await.err().unwrap();
        assert!(matches!(error, SpawnError::PermissionDenied { .. }), "{error}");
        let error = Running::start(plan(&["true"], "/nowhere/at/all")).await.err().unwrap();
        assert!(matches!(error, SpawnError::CwdNotFound { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_place_that_changes_before_the_start_refuses_it() {
    for kernel in kernels_with_mounts() {
        let workspace = Workspace::new();
        let root = workspace.path("w");
        let bound = bound(Some(Access::Read), NetworkPolicy::Restricted, &[(root.clone(), Access::Write)]);
        for replace in [
            (|root: &Path| std::fs::create_dir(root).unwrap()) as fn(&Path),
            |root| std::os::unix::fs::symlink("/etc", root).unwrap(),
            |_| {},
        ] {
            let sandbox = prepared(&kernel, &bound, Walls::default());
            let aside = workspace.path("aside");
            std::fs::rename(&root, &aside).unwrap();
            replace(&root);
            let error = Running::start(launch_plan("true", Path::new("/tmp"), sandbox)).await.err().unwrap();
            assert!(
                matches!(&error, SpawnError::Sandbox(SandboxError::Changed { reason }) if reason.contains("/w")),
                "{error}"
            );
            // A name, whatever it is.
            drop(std::fs::remove_dir(&root).or_else(|_| std::fs::remove_file(&root)));
            std::fs::rename(&aside, &root).unwrap();
        }
    }
}

#[tokio::test]
async fn a_part_of_proc_that_was_taken_away_before_the_start_is_not_missed() {
    let cwd = Path::new("/tmp");
    for kernel in kernels_with_mounts() {
        let mut plan = prepared(&kernel, &read_only(), Walls::default());
        let shape = Arc::get_mut(&mut plan.shape).unwrap();
        let Some(namespaces) = &mut shape.namespaces else { panic!("it has some") };
        if let shape::Proc::Fresh { read_only, .. } = &mut namespaces.proc {
            read_only.insert(0, c"/proc/of-a-module".into());
        }
        let (status, _) = Running::start(launch_plan("true", cwd, plan)).await.unwrap().end().await;
        assert!(status.success(), "{kernel:?}");
    }
}

#[cfg(feature = "pty")]
#[tokio::test]
async fn terminals_have_job_control_and_the_interrupt_key() {
    let cwd = Path::new("/tmp");
    for kernel in kernels() {
        let script = "test -t 0 || echo no-terminal; echo > /dev/tty || echo no-device; set -m; sleep 0 & wait; set +m; \
                      trap 'exit 7' INT; echo ready; while :; do sleep 1; done";
        let mut plan = launch_plan(script, cwd, prepared(&kernel, &read_only(), Walls::default()));
        plan.terminal = Some(crate::request::TerminalSize { rows: 24, cols: 80 });
        let mut running = Running::start(plan).await.unwrap();
        running.read_until("ready").await;
        assert!(!running.output.contains("no-") && !running.output.contains("job control"), "{}", running.output);
        let input = running.launched.stdin.as_ref().expect("a terminal takes input");
        running.child().interrupt(Some(input)).unwrap();
        let mut watch = ExitWatch::new(running.child()).unwrap();
        patiently(poll_fn(|cx| watch.poll_exited(cx))).await.unwrap();
        assert_eq!(running.child().exit_status().unwrap().unwrap().code(), Some(7), "{kernel:?}");
        running.child().release().unwrap();
        running.child().tree_has_members();
    }
}

/// A kernel without namespaces, where that is enough for a sandbox.
fn bare() -> Option<Kernel> {
    let cause = probe::Cause { cause: "user namespaces are switched off".into(), remedy: "switch them on".into() };
    let kernel = Kernel { mode: Mode::Bare, no_namespaces: Some(cause), ..probe::kernel().unwrap().clone() };
    kernel.landlock.is_some_and(|version| version >= 6).then_some(kernel)
}

#[tokio::test]
async fn without_namespaces_a_process_ends_with_its_executor_and_is_not_said_to_be_contained() {
    let cwd = Path::new("/tmp");
    let Some(kernel) = bare() else { return };
    let plan = || launch_plan("exec sleep 300", cwd, prepared(&kernel, &read_only(), Walls::default()));
    // The helper ends the thread that made it, as the end of the executor would.
    let running = Running::start(LaunchPlan { end_with_executor: true, ..plan() }).await.unwrap();
    assert_eq!(running.end().await.0.signal(), Some(Signal::Kill));

    let config = LocalConfig::default();
    let container =
        crate::backend::local::os::ContainerPlan { by: config.containment, parent_cgroup: None, no_namespaces: false };
    let error = Running::start(LaunchPlan { container: Some(container), ..plan() }).await.err().unwrap();
    assert!(matches!(error, SpawnError::ContainmentUnavailable { .. }), "{error}");
}

#[tokio::test]
async fn without_namespaces_metadata_changes_where_everything_may_be_written() {
    let workspace = Workspace::new();
    let root = workspace.path("w");
    let Some(kernel) = bare() else { return };
    let open = bound(Some(Access::Write), NetworkPolicy::Restricted, &[]);
    let script = "chmod 640 file && touch -d @0 file && stat -c '%a %Y' file";
    let (_, output) = run(&kernel, &open, &root, script).await;
    assert_eq!(output, "640 0\n");
}

#[tokio::test]
async fn without_namespaces_only_reading_is_allowed_and_only_if_the_owner_accepts_it() {
    let workspace = Workspace::new();
    let root = workspace.path("w");
    let cause = probe::Cause { cause: "user namespaces are switched off".into(), remedy: "switch them on".into() };
    let kernel = Kernel { mode: Mode::Bare, no_namespaces: Some(cause), ..probe::kernel().unwrap().clone() };
    let writable = bound(Some(Access::Read), NetworkPolicy::Restricted, &[(root.clone(), Access::Write)]);
    let error = prepared_on(&kernel, &writable, &settings(), None, Walls::default()).unwrap_err();
    let SandboxError::Unavailable { cause, remedy } = &error else { panic!("{error}") };
    assert_eq!((cause.as_str(), remedy.as_deref()), ("user namespaces are switched off", Some("switch them on")));
    let refused = prepared_on(&kernel, &read_only(), &SandboxSettings::default(), None, Walls::default());
    assert!(matches!(refused, Err(SandboxError::Unavailable { .. })), "not accepted");
    if kernel.landlock.is_none_or(|version| version < 3) {
        assert!(prepared_on(&kernel, &read_only(), &settings(), None, Walls::default()).is_err());
        return;
    }
    let plan = prepared(&kernel, &read_only(), Walls::default());
    assert!(matches!(&plan.enforcement().level, Level::Partial(gaps) if !gaps.is_empty()));
    let script = "echo x > file && echo wrote; chmod 700 file && echo changed; truncate -s 0 file && echo cut; \
                  touch new && echo made; cat file; echo > /dev/null && echo null";
    let (status, output) = run(&kernel, &read_only(), &root, script).await;
    assert!(status.success(), "{output}");
    for word in ["wrote", "changed", "cut", "made"] {
        assert!(!output.contains(word), "{output}");
    }
    assert!(output.ends_with("text\nnull\n"), "{output}");
}

#[test]
fn a_sandbox_behind_sixteen_others_is_refused() {
    let kernel = probe::kernel().unwrap();
    // Rulesets about files would forbid mounts, which is another reason.
    if kernel.landlock.is_none_or(|version| version < 4) {
        return;
    }
    let plan = launch_plan("true", Path::new("/tmp"), prepared(kernel, &read_only(), Walls::default()));
    let outcome = std::thread::spawn(move || {
        let mut launcher =
            crate::backend::local::os::Launcher::new(&crate::backend::local::os::Common::default()).unwrap();
        let handled = raw::RulesetAttributes { files: 0, network: 1, scopes: 0 };
        // SAFETY: the calls change this thread alone, which ends soon.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            for _ in 0..16 {
                let ruleset = raw::create_ruleset(&handled, 16).unwrap();
                raw::restrict_self(ruleset).unwrap();
                libc::close(ruleset);
            }
        }
        let failure = launcher.launch(&plan).expect_err("it is refused");
        crate::backend::local::os::classify(failure, &plan)
    });
    let error = outcome.join().unwrap();
    let SpawnError::Sandbox(SandboxError::Unavailable { cause, .. }) = &error else { panic!("{error}") };
    assert!(cause.contains("Landlock rulesets"), "{cause}");
}

/// The same again as somebody without rights, who has no others to lose.
#[test]
fn ordinary_users_get_the_same() {
    use std::os::unix::process::CommandExt;
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = directory.path().join("tests");
    // By another process: what a child of some other test inherited from this one would keep the copy busy.
    let copied = std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    let module = module_path!().split_once("::").unwrap().1;
    let output = std::process::Command::new(&program)
        .args([module, "--skip", "ordinary_users_get_the_same"])
        .current_dir("/tmp")
        .uid(31_415)
        .gid(31_415)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("test result: ok.") && !text.contains(" 0 passed"), "{text}");
}

/// The number of an ordinary user.
pub(super) const NOBODY: libc::uid_t = 65_534;

/// Does something as an ordinary user, if this one is none.
pub(super) fn by_an_ordinary_user<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    if !rustix::process::geteuid().is_root() {
        return act();
    }
    let become_one_and_act = || {
        const SAME: libc::uid_t = libc::uid_t::MAX;
        // SAFETY: takes numbers. Without the C library it is of this thread only, which ends.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, SAME, NOBODY, SAME) }, 0);
        act()
    };
    std::thread::scope(|threads| threads.spawn(become_one_and_act).join().unwrap())
}
