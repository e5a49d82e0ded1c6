//! What of the kernel's is mounted elsewhere than usual.

use super::tools::{Outcome, ensure, not_root};
use crate::dirs::Dirs;
use crate::mounts::SETUP;
use crate::place::{Kind, Settings};
use crate::policy::{Policy, full, minw, ro, ww, wwn};
use crate::row::{Row, Stage};

pub(super) fn rows() -> Vec<Row> {
    let rows = vec![
        custom!(88, "a second procfs, with nothing writable", ro, processes),
        custom!(88, "a second procfs, with a workspace", ww, processes),
        custom!(88, "a second procfs, with the network", wwn, processes),
        custom!(88, "a second procfs, where all may be written", full, processes),
        custom!(88, "a second procfs, where little is seen", minw, processes),
        custom!(88, "a second procfs, with entries for what is in it", named, processes),
        custom!(88, "a second procfs that a command moves", ww, moved),
        custom!(9, "settings in a second place, with nothing writable", ro, settings),
        custom!(9, "settings in a second place, with a workspace", ww, settings),
        custom!(9, "settings in a second place, where little is seen", minw, settings),
        custom!(9, "settings in a second place, with entries for them", named, settings),
        custom!(9, "settings in a second place, where nearly all may be written", nearly_full, settings),
        custom!(9, "a network that is kept, by a second procfs", ww, kept_network),
    ];
    let own_mounts = Settings { own_mounts: true, ..Settings::default() };
    rows.into_iter().map(|row| row.settings(own_mounts).setup(SETUP).needs(not_root).at(Kind::ALONE)).collect()
}

fn nearly_full(dirs: &Dirs) -> Policy {
    full(dirs).path(&dirs.s, "deny")
}

fn named(dirs: &Dirs) -> Policy {
    let paths = [dirs.w.join("proc"), dirs.w.join("deep/proc/sys"), dirs.o.join("proc/sys/kernel"), dirs.o.join("sys")];
    let policy = paths.iter().fold(ww(dirs), |policy, path| policy.path(path, "write"));
    policy
        .path(dirs.o.join("sys/bus"), "write")
        .path(dirs.o.join("proc/version"), "read")
        .path(dirs.o.join("proc/1"), "deny")
}

/// A process finds nothing at all in it, whatever else it may read.
async fn processes(stage: &Stage<'_>) -> Outcome {
    const SEEN: &str = "for dir in $W/proc $W/deep/proc $O/proc; do ls $dir; cat $dir/1/comm; cat $dir/version; done";
    let host = stage.freely(SEEN).await?;
    ensure(host.matches("Linux version").count() == 3, || format!("it is there: {host}"))?;
    let seen = stage.must(&format!("({SEEN}) 2>/dev/null; ls $W/sys/bus >/dev/null && echo sys")).await?;
    ensure(seen == "sys\n", || seen.clone())
}

/// A directory above it can be renamed by whoever may write to that.
async fn moved(stage: &Stage<'_>) -> Outcome {
    stage.must("mv $W/deep $W/moved && mkdir -p $W/deep/proc").await?;
    let host = stage.freely("cat $W/moved/proc/version").await?;
    ensure(host.contains("Linux version"), || format!("it is there: {host}"))?;
    for _ in 0..2 {
        let seen = stage.must("ls $W/moved/proc 2>/dev/null; echo x >$W/deep/proc/f && cat $W/deep/proc/f").await?;
        ensure(seen == "x\n", || seen.clone())?;
    }
    Ok(())
}

/// None is opened for writing. Nothing is written to those that are.
async fn settings(stage: &Stage<'_>) -> Outcome {
    const OPENED: &str = "for dir in $W $W/deep $O; do for file in proc/sys/kernel/hostname sys/bus/platform/uevent; do \
         (exec 3>>$dir/$file) 2>/dev/null && echo $dir/$file; done; done; true";
    if stage.place.kind == Kind::Apart {
        let host = stage.freely(OPENED).await?;
        ensure(host.lines().count() == 5, || format!("they are there: {host}"))?;
    }
    let opened = stage.must(OPENED).await?;
    ensure(opened.is_empty(), || opened.clone())
}

/// What one command has there is there for the next one as it was.
async fn kept_network(stage: &Stage<'_>) -> Outcome {
    const READ: &str = "cat /proc/sys/net/ipv4/ip_default_ttl";
    let host = std::fs::read_link("/proc/self/ns/net").map_err(|error| error.to_string())?;
    let before = stage.must(READ).await?;
    // Never in the network of the host.
    let is_own = format!("test \"$(readlink /proc/self/ns/net)\" != '{}'", host.display());
    let change = "(echo 77 >$W/proc/sys/net/ipv4/ip_default_ttl) 2>/dev/null";
    let changed = stage.must(&format!("{is_own} && {change}; {READ}")).await?;
    let after = stage.must(READ).await?;
    ensure(before != "77\n" && changed == before && after == before, || format!("{before}{changed}{after}"))
}
