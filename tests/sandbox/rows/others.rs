//! Other processes, other users, and what a command is where nothing is enforced.

use longarm::error::SpawnError;
use longarm::request::TerminalSize;
use longarm::sandbox::{SandboxError, Wall};

use super::tools::{Outcome, ensure, not_root};
use crate::machine::ORDINARY;
use crate::place::{Cripple, Kind, Settings};
use crate::policy::{ext, full, ro, unr, ww};
use crate::row::{Row, Stage};

pub(super) fn rows() -> Vec<Row> {
    let without = |wall| Settings { without: Some(wall), ..Settings::default() };
    // The walls against other processes are the PID namespace and Landlock.
    let no_namespaces =
        Settings { cripple: Some(Cripple::UserNamespaces), accept_partial: true, ..Settings::default() };
    vec![
        custom!(86, "everything is allowed, managed: as the executor is", |dirs| unr(dirs).enabled(), as_the_executor),
        custom!(86, "everything is allowed, external: as the executor is", |dirs| ext(dirs).enabled(), as_the_executor),
        custom!(86, "everything is allowed, entry: as the executor is", |dirs| full(dirs).enabled(), as_the_executor),
        custom!(
            26,
            "a root that a command has exchanged for a link",
            |dirs| ww(dirs).path(dirs.w.join("sub"), "write"),
            exchanged_root
        )
        .after("test ! -e $O/new"),
        custom!(98, "all that it sees of itself is as without a sandbox", ro, as_without),
        custom!(98, "the same on a terminal", ro, as_without_on_a_terminal),
        custom!(88, "a process of the host", ro, host_process),
        custom!(88, "without Landlock: a process of the host", ro, host_process).settings(without(Wall::Landlock)),
        custom!(88, "without namespaces: a process of the host", ro, host_process)
            .settings(no_namespaces)
            .at(Kind::ALONE),
        custom!(88, "namespaces of its own", ro, own_spaces),
        custom!(91, "a program of another user that runs as that one", ro, another_user).needs(|| {
            not_root()
                .or_else(|| keeps_no_users("/var/tmp").then(|| "/var/tmp lets no program run as its owner".into()))
        }),
    ]
}

/// What the kernel says of the rights and namespaces of a process.
const STATE: &str = "grep -E '^(Cap...|NoNewPrivs|Seccomp|Seccomp_filters):' /proc/$P/status; \
     for name in cgroup ipc mnt net pid user uts; do readlink /proc/$P/ns/$name; done";

async fn as_the_executor(stage: &Stage<'_>) -> Outcome {
    let own = stage.must(&format!("P=self; {STATE}")).await?;
    let executor = stage.freely(&format!("P={}; {STATE}", stage.place.executor_pid())).await?;
    ensure(executor.lines().count() == 15, || executor.clone())?;
    ensure(own == executor, || format!("{own} instead of {executor}"))
}

/// What one command does is not to let the next one do more.
async fn exchanged_root(stage: &Stage<'_>) -> Outcome {
    stage.must("echo x >$W/sub/f && rm -r $W/sub && ln -s $O $W/sub").await?;
    match stage.start_error(stage.sh("echo x >$W/sub/new")).await? {
        SpawnError::Sandbox(SandboxError::Preparation { .. }) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Signals, variables, directory, mask, numbers, streams, limits and name.
const ITSELF: &str = "env | sort; pwd; pwd -P; umask; id -u; id -g; echo \"$0 $#\"; ulimit -n; ulimit -c; \
     grep -E '^(Sig(Blk|Ign|Cgt)|ShdPnd):' /proc/self/status; test -t 0 && stty -a; \
     readlink /proc/self/fd/0 >/dev/null && echo input; echo error >&2; exit 0";

async fn as_without(stage: &Stage<'_>) -> Outcome {
    let own = stage.must(ITSELF).await?;
    let without = stage.freely(ITSELF).await?;
    ensure(own == without && own.lines().count() > 20, || format!("{own}\ninstead of\n{without}"))
}

async fn as_without_on_a_terminal(stage: &Stage<'_>) -> Outcome {
    let request = || stage.sh(ITSELF).terminal(TerminalSize::default());
    let own = stage.run(request()).await.map_err(|refused| format!("{refused:?}"))?.text();
    let without = stage.place.environment.output(request()).await.map_err(|error| error.to_string())?.pty.to_bytes();
    let without = String::from_utf8_lossy(&without).into_owned();
    ensure(own == without && own.contains("speed"), || format!("{own}\ninstead of\n{without}"))
}

/// Of the same user, so that nothing but the sandbox keeps it out of reach.
async fn host_process(stage: &Stage<'_>) -> Outcome {
    let process = stage.place.executor_pid();
    let (signal, look) = (format!("kill -0 {process}"), format!("cat /proc/{process}/environ"));
    let way_round = format!("cat /proc/{process}/root/etc/passwd");
    for (script, reasons) in [
        (&signal, ["No such process", super::EPERM]),
        (&look, [super::ENOENT, super::EACCES]),
        (&way_round, [super::ENOENT, super::EACCES]),
    ] {
        stage.freely(script).await?;
        let ran = stage.run(stage.sh(script)).await.map_err(|refused| format!("{refused:?}"))?;
        let says = reasons.iter().any(|reason| ran.text().contains(reason));
        ensure(!ran.output.status.success() && says, || format!("{script}: {ran:?}"))?;
    }
    Ok(())
}

async fn own_spaces(stage: &Stage<'_>) -> Outcome {
    let script = "for name in ipc mnt net pid; do readlink /proc/self/ns/$name; done";
    let (own, others) = (stage.must(script).await?, stage.freely(script).await?);
    ensure(own.lines().count() == 4 && others.lines().count() == 4, || format!("{own}, {others}"))?;
    ensure(own.lines().zip(others.lines()).all(|(own, other)| own != other), || format!("{own}, {others}"))
}

async fn another_user(stage: &Stage<'_>) -> Outcome {
    let own = stage.place.kind.uid();
    let other = if own == 0 { ORDINARY } else { 0 };
    let make = format!("set -- $PROBE; cp $1 $O/other; chown {other}:{other} $O/other; chmod 6755 $O/other");
    stage.dirs.host("make it", &make)?;
    let script = "set -- $PROBE; $O/other $2 identity";
    let free = stage.freely(script).await?;
    ensure(free.contains(&format!("effective {other} ")), || format!("not even freely: {free}"))?;
    let held = stage.must(script).await?;
    let expected = format!("real {own} effective {own} saved {own} rights 0000000000000000\nok\n");
    ensure(held == expected, || format!("{held} instead of {expected}"))
}

/// Whether programs there run as who starts them, whoever owns them.
fn keeps_no_users(path: &str) -> bool {
    let path = std::ffi::CString::new(path).unwrap();
    // SAFETY: the call fills a structure; the path is a C string.
    unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        assert_eq!(libc::statvfs(path.as_ptr(), &raw mut found), 0);
        found.f_flag & libc::ST_NOSUID != 0
    }
}
