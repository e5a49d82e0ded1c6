//! Rows of policies that allow much, of patterns over several commands, and of places that processes have of their own.

use longarm::sandbox::ManagedNetworkFacts;

use super::tools::not_root;
use super::{EACCES, EBUSY, EROFS, script};
use crate::dirs::Dirs;
use crate::place::Settings;
use crate::policy::{Policy, full, unr, ww};
use crate::row::Expect::{Denied, Fails, Works};
use crate::row::{Row, Stage};

pub(super) fn rows() -> Vec<Row> {
    let loopback = Settings { private_loopback: true, ..Settings::default() };
    vec![
        script(9, "a setting of the machine, all but something allowed", denied, SETTING, Fails(&[EROFS, EACCES]))
            .needs(not_root),
        script(9, "a setting of the machine, by an entry for it", named, SETTING, Fails(&[EROFS, EACCES]))
            .needs(not_root),
        script(9, "a control group, all but something allowed", denied, GROUP, Fails(&[EROFS, EACCES])).needs(not_root),
        script(43, "the network enabled and all but something allowed", |dirs| denied(dirs).enabled(), "cat $S/f", {
            Denied(&[EACCES])
        }),
        script(
            43,
            "the rest of that",
            |dirs| denied(dirs).enabled(),
            "echo x >$O/new; $PROBE tcp 127.0.0.1:$PORT",
            Works,
        ),
        custom!(49, "a matching file is moved with its directory, and read by the next command", keys, moved_twice)
            .setup("mkdir -p $W/keys/in $W/none; echo secret >$W/keys/in/a.key"),
        script(49, "a directory of matching files", keys, "mv $W/keys $W/other", Fails(&[EBUSY]))
            .setup("mkdir -p $W/keys/in; echo secret >$W/keys/in/a.key"),
        script(49, "a directory of files that may match later", keys, "mv $W/keys $W/other", Fails(&[EBUSY]))
            .setup("mkdir $W/keys"),
        script(49, "what else is in it", keys, "ln $W/keys/f $W/hard && mv $W/keys/f $W/g && mkdir $W/keys/d", Works)
            .setup("mkdir $W/keys; echo x >$W/keys/f; echo secret >$W/keys/a.key"),
        script(80, "a private loopback server, all writable", unr, "$PROBE loopback", Works).settings(loopback),
        custom!(81, "a managed port, all writable", unr, managed_port),
    ]
}

/// Its owner may write to it without a capability.
const SETTING: &str = "cat /sys/kernel/mm/ksm/run >/dev/null && exec 3<>/sys/kernel/mm/ksm/run";
const GROUP: &str = "for group in /sys/fs/cgroup /sys/fs/cgroup/*/; do mkdir $group/longarm-rows && exit; done; false";

fn denied(dirs: &Dirs) -> Policy {
    full(dirs).path(&dirs.s, "deny")
}

fn named(dirs: &Dirs) -> Policy {
    ww(dirs).path("/sys/kernel/mm/ksm", "write")
}

fn keys(dirs: &Dirs) -> Policy {
    ww(dirs).glob("keys/**/*.key")
}

async fn managed_port(stage: &Stage<'_>) -> Result<(), String> {
    let ports = ManagedNetworkFacts::ports([stage.dirs.port()]);
    let request = stage.sh("echo x >$O/new && $PROBE tcp 127.0.0.1:$PORT").managed_network(ports);
    let ran = stage.run(request).await.map_err(|refused| format!("{refused:?}"))?;
    if ran.output.status.success() { Ok(()) } else { Err(format!("{ran:?}")) }
}

async fn moved_twice(stage: &Stage<'_>) -> Result<(), String> {
    let first = "cat keys/in/a.key; mv keys k2; mv keys/in in2; mv none n2 && mkdir new && echo free";
    let (first, second) = (stage.must(first).await?, stage.must("cat */*.key */*/*.key; echo end").await?);
    let said = format!("{first}{second}");
    let right = first.contains("free") && second.contains("end") && !said.contains("secret\n");
    if right { Ok(()) } else { Err(said) }
}
