//! Processes, rights, terminals.

use super::{EACCES, EPERM, EROFS, script};
use crate::dirs::Dirs;
use crate::policy::{Policy, full, ro, unr, ww, wwn};
use crate::row::Action::OnTerminal;
use crate::row::Expect::{Exits, Fails, Prints, Works};
use crate::row::Row;

fn denied(dirs: &Dirs) -> Policy {
    full(dirs).path(&dirs.s, "deny")
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        script(89, "the tracing of a process", ro, "$PROBE ptrace", Fails(&[EPERM])),
        script(89, "calls that reach others, or the kernel", ro, "$PROBE reach-others", Prints("ok")),
        script(
            89,
            "calls that reach others, or the kernel, with the network",
            wwn,
            "$PROBE reach-others",
            Prints("ok"),
        ),
        script(90, "a user namespace and a mount in it", ro, "$PROBE userns", Fails(&["os error"])),
        script(
            91,
            "the sets of rights",
            ro,
            "grep -h -e ^CapInh -e ^CapPrm -e ^CapEff -e ^CapBnd -e ^CapAmb /proc/self/status | grep -v 0000000000000000 || echo none",
            Prints("none"),
        ),
        script(
            91,
            "the same where only the network is restricted",
            unr,
            "grep -h -e ^CapInh -e ^CapPrm -e ^CapEff -e ^CapBnd -e ^CapAmb /proc/self/status | grep -v 0000000000000000 || echo none",
            Prints("none"),
        ),
        script(91, "no new rights", ro, "grep -c '^NoNewPrivs:.1' /proc/self/status", Prints("1")),
        script(91, "the mode of the null device on standard input", ro, "$PROBE mode-of-stdin", Fails(&[EROFS, EPERM])),
        script(91, "the same, all but something allowed", denied, "$PROBE mode-of-stdin", Fails(&[EROFS, EPERM])),
        script(91, "standard input is the null device", ro, "test /dev/fd/0 -ef /dev/null && ! read line", Works),
        script(93, "a child of the executor", ro, "$PROBE sibling", Fails(&[EPERM])),
        script(93, "a child of the executor, all but something allowed", denied, "$PROBE sibling", Fails(&[EPERM])),
        script(91, "a device is made", ww, "$PROBE mknod $W/device", Fails(&[EPERM, EACCES]))
            .after("test ! -e $W/device"),
        script(91, "a mount", ro, "$PROBE mount", Fails(&[EPERM])),
        Row::new(94, "a terminal", ro, OnTerminal("test -t 0 && : >/dev/tty && set -m && echo ok"), Prints("ok")),
        Row::new(
            97,
            "input is not stuffed into a terminal",
            ro,
            OnTerminal("$PROBE tiocsti | grep -c 'code: 1,'"),
            Prints("2"),
        ),
        script(98, "the name that it sees", ro, "tr '\\0' '\\n' </proc/$$/cmdline | head -n 1", Prints("renamed"))
            .arg0("renamed"),
        script(9, "settings of the kernel", ro, "$PROBE write-settings", Prints("ok")),
        script(9, "settings of the kernel, where the workspace is written", ww, "$PROBE write-settings", Prints("ok")),
        script(
            99,
            "no path of the policy is told",
            |dirs| ww(dirs).path(dirs.base.join("told/nobody"), "deny"),
            "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c 'tol[d]/nobody'",
            Exits(1, false),
        )
        .setup("mkdir -p $BASE/told/nobody"),
        script(
            99,
            "nothing tells of the policy",
            ro,
            "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c -e 'permission[s]' -e 'file_syste[m]' -e 'landloc[k]'",
            Fails(&["0"]),
        ),
        script(100, "descriptors", ro, "$PROBE fds", Prints("[0, 1, 2]\nok")),
        script(
            9,
            "mounts and processes of its own are seen",
            ro,
            "test -r /proc/self/status && test -d /proc/self/fd",
            Works,
        ),
    ]
}
