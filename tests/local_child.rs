//! What a child finds: descriptors, signals, session, environment, arguments.
#![cfg(target_os = "linux")]

mod local_support;

use std::collections::BTreeMap;

use local_support::{Run, local, run, sh, write_program};
use longarm::ExecRequest;
use longarm::backend::ExecBackend;
use longarm::backend::local::{Local, LocalConfig};
use longarm::env_policy::{ReservedNames, ShellEnvPolicy};
use longarm::request::{Metadata, Stdin, TerminalSize};

fn argv<const N: usize>(argv: [&str; N]) -> ExecRequest {
    ExecRequest::new(argv).cwd("/tmp")
}

async fn stdout(local: &Local, request: ExecRequest) -> String {
    let Run { stdout, pty, stderr, status, .. } = run(local, request).await;
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8([stdout, pty].concat()).unwrap().replace('\r', "")
}

/// The fields of `/proc/PID/status` of a child.
async fn status(local: &Local, request: ExecRequest) -> BTreeMap<String, String> {
    let text = stdout(local, request).await;
    text.lines().filter_map(|line| line.split_once(':')).map(|(k, v)| (k.into(), v.trim().into())).collect()
}

/// The host of these tests blocks one signal, ignores others and holds descriptors that are not closed on exec.
fn spoil_the_host() -> Vec<std::fs::File> {
    use std::os::fd::AsRawFd;
    let files: Vec<_> = (0..5).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    // SAFETY: valid arguments; the signals mean nothing to this program.
    unsafe {
        for file in &files {
            assert_ne!(libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0), -1);
        }
        for signal in [libc::SIGPIPE, libc::SIGHUP, libc::SIGUSR1, libc::SIGRTMIN() + 3] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, libc::SIGUSR2);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()), 0);
    }
    files
}

#[tokio::test]
async fn dispositions_are_default_and_the_mask_is_empty_whatever_the_host_has() {
    let _files = spoil_the_host();
    let local = local();
    for terminal in [false, true] {
        let mut request = argv(["cat", "/proc/self/status"]);
        if terminal {
            request = request.terminal(TerminalSize::default());
        }
        let status = status(&local, request).await;
        for field in ["SigBlk", "SigIgn", "SigCgt", "SigPnd"] {
            assert_eq!(status[field].trim_start_matches('0'), "", "{field}, terminal: {terminal}");
        }
    }
}

#[tokio::test]
async fn no_descriptor_beyond_the_standard_ones_is_inherited() {
    let _files = spoil_the_host();
    let local = local();
    // Another process's pipes are open at the same time.
    let other = local.spawn(argv(["cat"]).stdin(Stdin::Piped)).await.unwrap();
    for request in [argv(["ls", "/proc/self/fd"]), argv(["ls", "/proc/self/fd"]).terminal(TerminalSize::default())] {
        let listed = stdout(&local, request).await;
        let fds: Vec<&str> = listed.split_whitespace().collect();
        // The last one is the directory that is being listed.
        assert_eq!(fds, ["0", "1", "2", "3"]);
    }
    other.control.kill_now();
}

#[tokio::test]
async fn a_child_leads_its_own_session_and_group() {
    let local = local();
    for request in
        [argv(["cat", "/proc/self/stat"]), argv(["cat", "/proc/self/stat"]).terminal(TerminalSize::default())]
    {
        let has_terminal = request.requested_terminal().is_some();
        let stat = stdout(&local, request).await;
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let pid = stat.split(' ').next().unwrap();
        assert_eq!(fields[2], pid, "group");
        assert_eq!(fields[3], pid, "session");
        assert_eq!(fields[4] != "0", has_terminal, "controlling terminal");
    }
}

#[tokio::test]
async fn the_environment_is_what_policy_and_request_say() {
    let base = [("PATH", "/usr/bin:/bin"), ("HOME", "/h"), ("ODD", "1"), ("SECRET_OF_HOST", "x")];
    let base = base.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let config = LocalConfig::default().base_env(base).reserved_names(ReservedNames::none().with("secret_of_host"));
    let local = Local::new(config);
    let env = |text: String| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let set = |vars: &[&str]| vars.iter().map(|var| (*var).to_owned()).collect::<std::collections::BTreeSet<_>>();

    let exact = argv(["/usr/bin/env"]).env_clear().env("A", "1").env("EMPTY", "");
    assert_eq!(env(stdout(&local, exact).await), set(&["A=1", "EMPTY="]));

    let all = argv(["env"]).env("A", "1").env("HOME", "/other");
    assert_eq!(env(stdout(&local, all).await), set(&["PATH=/usr/bin:/bin", "HOME=/other", "ODD=1", "A=1"]));

    let core = argv(["env"]).env_policy(ShellEnvPolicy::inherit_core());
    assert_eq!(env(stdout(&local, core).await), set(&["PATH=/usr/bin:/bin", "HOME=/h"]));

    let metadata = Metadata::new(None, Some("call".into()));
    let tagged = argv(["/usr/bin/env"]).env_clear().metadata(metadata);
    assert_eq!(env(stdout(&local, tagged).await), set(&["CODEX_TOOL_CALL_ID=call"]));
}

#[tokio::test]
async fn a_terminal_has_the_login_shell_when_none_is_given_and_never_a_terminal_type() {
    let local = local();
    let bare = argv(["/usr/bin/env"]).env_clear().terminal(TerminalSize::default());
    let text = stdout(&local, bare.clone()).await;
    assert!(text.lines().all(|line| line.starts_with("SHELL=/")) && text.lines().count() == 1, "{text}");
    let given = stdout(&local, bare.env("SHELL", "/x")).await;
    assert_eq!(given, "SHELL=/x\n");
}

#[tokio::test]
async fn programs_are_looked_up_on_the_path_of_the_child() {
    let local = local();
    let dir = tempfile::tempdir().unwrap();
    let script = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_program(&path, format!("#!/bin/sh\necho {text}\n"));
    };
    script("a/tool", "from a");
    script("b/tool", "from b");
    script("tool", "from cwd");
    let request = |path: &str| ExecRequest::new(["tool"]).cwd(dir.path()).env_clear().env("PATH", path);
    for size in [None, Some(TerminalSize::default())] {
        let with = |request: ExecRequest| match size {
            Some(size) => request.terminal(size),
            None => request,
        };
        let absolute = format!("{}/b:/bin", dir.path().display());
        assert_eq!(stdout(&local, with(request(&absolute))).await, "from b\n");
        assert_eq!(stdout(&local, with(request("a:b"))).await, "from a\n", "relative to the working directory");
        assert_eq!(stdout(&local, with(request("/nowhere::b"))).await, "from cwd\n", "an empty element");
        assert!(local.spawn(with(request(""))).await.is_err(), "an empty path finds nothing");
        let default = ExecRequest::new(["echo", "x"]).cwd("/tmp").env_clear();
        assert_eq!(stdout(&local, with(default)).await, "x\n", "the default path of the system");
        let relative = ExecRequest::new(["a/tool"]).cwd(dir.path());
        assert_eq!(stdout(&local, with(relative)).await, "from a\n");
    }
    // A candidate that may not be executed is passed over.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir.path().join("a/tool"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(stdout(&local, request("a:b")).await, "from b\n");
}

#[tokio::test]
async fn arguments_arrive_as_they_are() {
    let local = local();
    let odd = ["a b", "", "$HOME", "'\"", "\u{20ac}", "-n"];
    let request = ExecRequest::new(["printf", "[%s]"]).cwd("/tmp");
    let request = odd.iter().fold(request, |request, arg| request.arg(*arg));
    assert_eq!(stdout(&local, request).await, "[a b][][$HOME]['\"][\u{20ac}][-n]");
    let arg0 = argv(["sh", "-c", "echo $0"]).arg0("another");
    assert_eq!(stdout(&local, arg0).await, "another\n");
    use std::os::unix::ffi::OsStringExt;
    let bytes = std::ffi::OsString::from_vec(vec![0xff, 0xfe]);
    let Run { stdout: raw, .. } = run(&local, ExecRequest::new(["printf", "%s"]).arg(bytes).cwd("/tmp")).await;
    assert_eq!(raw, [0xff, 0xfe]);
}

#[tokio::test]
async fn the_working_directory_is_the_request_s_or_the_place_s() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    let local = Local::new(LocalConfig::from_host().default_cwd(&path));
    assert_eq!(stdout(&local, ExecRequest::new(["pwd"])).await.trim(), path.to_str().unwrap());
    assert_eq!(stdout(&local, ExecRequest::new(["pwd"]).cwd("/usr")).await, "/usr\n");
    let uri = longarm::PathUri::parse("file:///usr/bin").unwrap();
    assert_eq!(stdout(&local, ExecRequest::new(["pwd"]).cwd(uri)).await.lines().count(), 1);
}

#[tokio::test]
async fn children_get_the_descriptor_limit_that_is_set_for_them() {
    let mut own: libc::rlimit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills the structure.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut own) }, 0);
    let local = Local::new(LocalConfig::from_host().child_descriptor_limit(200, own.rlim_max));
    assert_eq!(stdout(&local, sh("ulimit -Sn")).await, "200\n");
}

#[tokio::test]
async fn facts_about_the_place_are_usable() {
    let local = local();
    let info = local.info().await.unwrap();
    assert!(["bash", "zsh", "sh"].contains(&info.shell.name.as_str()), "{:?}", info.shell);
    assert_eq!(stdout(&local, argv([&info.shell.path, "-c", "echo usable"])).await, "usable\n");
    assert_eq!(info.platform_os.as_deref(), Some("linux"));
    let cwd = std::env::current_dir().unwrap();
    assert_eq!(info.cwd, longarm::PathUri::from_host_native_path(cwd).ok());
    assert!(info.home_dir.is_some() && info.temp_dir.is_some());
}
