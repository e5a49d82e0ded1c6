//! Deny entries, and what counts as denied.

use super::{EACCES, EROFS, script};
use crate::policy::{deny, none, ro, ww};
use crate::row::Expect::{Denied, Exits, Fails, Prints, Works};
use crate::row::Row;

pub(super) fn rows() -> Vec<Row> {
    vec![
        script(10, "a failure", ro, "exit 3", Exits(3, false)),
        script(11, "the words with success", ro, "echo permission denied", Prints("permission denied")),
        script(12, "the words with a failure", ro, "echo permission denied; exit 2", Exits(2, true)),
        script(1, "no sandbox, and the words with a failure", none, "echo permission denied; exit 1", Exits(1, false)),
        script(13, "an unknown command", ro, "longarm-no-such-command", Exits(127, false)),
        script(
            15,
            "the words before much else",
            ro,
            "echo permission denied; head -c 2097152 /dev/zero | tr '\\0' x; exit 1",
            Exits(1, true),
        ),
        script(16, "the end by SIGSYS", ro, "kill -SYS $$", Exits(159, true)),
        script(43, "a denied directory is listed", deny, "ls $S", Denied(&[EACCES])),
        script(43, "a file in it is read", deny, "cat $S/f", Denied(&[EACCES])),
        script(44, "by a link", deny, "cat $O/link/f", Denied(&[EACCES])).setup("ln -s $S $O/link"),
        script(44, "by way of the parent", deny, "cat $W/sub/../secret/f", Denied(&[EACCES])),
        script(
            45,
            "a denied file is read",
            |dirs| ww(dirs).path(dirs.w.join("f"), "deny"),
            "cat $W/f",
            Denied(&[EACCES]),
        ),
        script(
            45,
            "and shows nothing of itself",
            |dirs| ww(dirs).path(dirs.w.join("f"), "deny"),
            "stat -c %s $W/f",
            Prints("0"),
        ),
        script(
            46,
            "a part is reopened",
            |dirs| deny(dirs).path(dirs.s.join("open"), "write"),
            "echo x >$S/open/new && ! ls $S 2>/dev/null",
            Works,
        )
        .setup("mkdir $S/open")
        .after("test -e $S/open/new"),
        script(
            47,
            "a denied name that is missing",
            |dirs| ww(dirs).path(dirs.w.join("missing"), "deny"),
            "echo x >$W/missing",
            Fails(&[EACCES, EROFS, "Is a directory"]),
        )
        .after("test ! -e $W/missing"),
        script(
            48,
            "the same with skip",
            |dirs| ww(dirs).skip_missing(dirs.w.join("missing"), "deny"),
            "echo x >$W/missing",
            Fails(&[EACCES, EROFS, "Is a directory"]),
        )
        .after("test ! -e $W/missing"),
        script(49, "a pattern", |dirs| ww(dirs).glob("**/*.pem"), "cat $W/sub/deep/a.pem", Denied(&[EACCES]))
            .setup("mkdir $W/sub/deep; echo x >$W/sub/deep/a.pem"),
        script(49, "and what it does not match", |dirs| ww(dirs).glob("**/*.pem"), "cat $W/sub/a.txt", Prints("x"))
            .setup("echo x >$W/sub/a.txt; echo x >$W/sub/a.pem"),
        script(
            50,
            "a pattern for a directory",
            |dirs| ww(dirs).glob("**/private"),
            "cat $W/sub/private/f",
            Denied(&[EACCES]),
        )
        .setup("mkdir $W/sub/private; echo x >$W/sub/private/f"),
        script(
            54,
            "an entry by a link",
            |dirs| ww(dirs).path(dirs.base.join("alias/f"), "deny"),
            "cat $O/f",
            Denied(&[EACCES]),
        )
        .setup("ln -s $O $BASE/alias"),
        script(
            55,
            "read in write, deny in that, write in that",
            |dirs| {
                let a = dirs.w.join("a");
                ww(dirs).path(&a, "read").path(a.join("b"), "deny").path(a.join("b/c"), "write")
            },
            "! echo x 2>/dev/null >$W/a/n && ! ls $W/a/b 2>/dev/null && echo x >$W/a/b/c/n && ls $W/a",
            Prints("b"),
        )
        .setup("mkdir -p $W/a/b/c"),
    ]
}
