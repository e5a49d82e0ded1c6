//! What may be written, and where.

use super::{EBUSY, ENOENT, EPERM, EROFS, EXDEV, script};
use crate::dirs::Dirs;
use crate::policy::{Policy, dis, ext, full, minr, minw, none, ro, unr, ww, ww_only};
use crate::row::Expect::{Denied, Exits, Fails, Prints, Refused, Works};
use crate::row::Refusal::Any;
use crate::row::Row;

const READ_ONLY: &[&str] = &[EROFS, EPERM];

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![
        script(1, "no sandbox, a file outside", none, "echo x >$O/new", Works).after("test -e $O/new"),
        script(2, "nothing is done", ro, "true", Works),
        script(
            3,
            "a file of the host is read",
            ro,
            "for file in /etc/hostname /etc/passwd; do test ! -e $file || cat $file >/dev/null || exit 1; done; cat $O/f",
            Prints("outside"),
        ),
        script(4, "a file is created in the workspace", ro, "echo x >$W/new", Denied(&[EROFS]))
            .after("test ! -e $W/new"),
        script(5, "a file is created in /tmp", ro, "echo x >/tmp/longarm-row-5", Denied(&[EROFS]))
            .after("test ! -e /tmp/longarm-row-5"),
        script(6, "devices", ro, "echo x >/dev/null && head -c 8 /dev/urandom >/dev/null", Works),
        script(7, "the mode of an own file", ro, "$PROBE chmod $O/f", Denied(READ_ONLY))
            .setup("chmod 600 $O/f")
            .after("test $(stat -c %a $O/f) = 600"),
        script(7, "the owner of an own file", ro, "$PROBE chown $O/f", Denied(READ_ONLY)),
        script(7, "the times of an own file", ro, "$PROBE utime $O/f", Denied(READ_ONLY))
            .setup("touch -d @1000 $O/f")
            .after("test $(stat -c %Y $O/f) = 1000"),
        script(7, "an attribute of an own file", ro, "$PROBE setxattr $O/f", Denied(READ_ONLY)),
        script(8, "truncation by path", ro, "$PROBE truncate $O/f", Denied(&[EROFS])).after("test -s $O/f"),
        script(
            17,
            "create, rename, remove, chmod in the workspace",
            ww,
            "echo x >$W/a && mv $W/a $W/b && chmod 700 $W/b && cat $W/b && rm $W/b",
            Prints("x"),
        ),
        script(18, "a file is created outside", ww, "echo x >$O/new", Denied(&[EROFS])).after("test ! -e $O/new"),
        script(19, "/tmp", ww, "echo x >/tmp/longarm-row-19-$PORT && rm /tmp/longarm-row-19-$PORT", Works),
        script(19, "the executor's temporary directory", ww, "echo x >$T/new", Works).after("test -e $T/new"),
        script(20, "/tmp without its entry", ww_only, "echo x >/tmp/longarm-row-20", Denied(&[EROFS]))
            .after("test ! -e /tmp/longarm-row-20"),
        script(20, "the temporary directory without its entry", ww_only, "echo x >$T/new", Denied(&[EROFS]))
            .after("test ! -e $T/new"),
        script(
            21,
            "the command's TMPDIR widens nothing",
            ww,
            "test \"$TMPDIR\" = $O && echo x >$TMPDIR/new",
            Denied(&[EROFS]),
        )
        .env(&[("TMPDIR", "${O}")])
        .after("test ! -e $O/new"),
        script(22, "no roots, and a cwd", |dirs| ww_only(dirs).roots([]), "echo x >$W/new", Denied(&[EROFS]))
            .after("test ! -e $W/new"),
        script(
            23,
            "two roots",
            |dirs| ww(dirs).roots([dirs.w.clone(), dirs.x.clone()]),
            "echo x >$W/a && echo y >$X/b && cat $W/a $X/b | tr -d '\\n'",
            Prints("xy"),
        ),
        script(
            23,
            "a rename between two roots",
            |dirs| ww(dirs).roots([dirs.w.clone(), dirs.x.clone()]),
            "echo x >$W/a; $PROBE rename $W/a $X/a 2>&1 | grep -e ok -e cross-device >/dev/null",
            Works,
        ),
        script(24, "the command's directory is outside", ww, "pwd", Prints("${O}")).cwd(|dirs| &dirs.o),
        script(24, "and is not writable", ww, "echo x >new", Denied(&[EROFS])).cwd(|dirs| &dirs.o),
        script(
            25,
            "one root is missing",
            |dirs| ww(dirs).roots([dirs.base.join("missing"), dirs.w.clone()]),
            "echo x >$W/new",
            Works,
        )
        .after("test ! -e $BASE/missing"),
        script(
            26,
            "a root is a link",
            |dirs| ww_only(dirs).roots([dirs.base.join("link")]),
            "echo x >$BASE/link/a && echo y >$X/b",
            Works,
        )
        .setup("ln -s $X $BASE/link")
        .after("test -e $X/a -a -e $X/b"),
        script(27, "a link from the workspace to the outside", ww, "echo x >$W/link/new", Denied(&[EROFS]))
            .setup("ln -s $O $W/link")
            .after("test ! -e $O/new"),
        script(28, "such a link is renamed and removed", ww, "mv $W/link $W/other && rm $W/other", Works)
            .setup("ln -s $O $W/link")
            .after("test ! -h $W/link -a ! -h $W/other -a -e $O/f"),
        script(29, "a hard link from the outside", ww, "ln $O/f $W/hard", Fails(&[EXDEV, EPERM]))
            .after("test ! -e $W/hard"),
        script(30, "the root itself is renamed", ww, "mv $W $BASE/moved", Fails(&[EROFS])).after("test -d $W"),
        script(30, "the root itself is removed", ww, "rm -rf $W", Fails(&[EROFS, EBUSY])).after("test -d $W"),
        script(
            30,
            "the root itself is renamed in a writable parent",
            |dirs| ww(dirs).roots([dirs.base.clone(), dirs.w.clone()]),
            "mv $W $BASE/moved",
            Fails(&[EBUSY]),
        )
        .after("test -d $W"),
        script(
            30,
            "the root itself is renamed in a writable parent, and nothing in it is protected",
            freed_in_writable,
            "mv $W $BASE/moved",
            Fails(&[EBUSY]),
        )
        .after("test -d $W"),
        script(
            30,
            "what it is in is renamed in a writable parent",
            |dirs| freed_in_writable(dirs).roots([dirs.w.join("sub")]),
            "mv $W $BASE/moved",
            Fails(&[EBUSY]),
        )
        .after("test -d $W/sub"),
        script(31, "below .git", ww, "echo x >>$W/.git/config", Denied(&[EROFS]))
            .after("test \"$(cat $W/.git/config)\" = '[core]'"),
        script(32, ".git is renamed", ww, "mv $W/.git $W/y", Fails(&[EBUSY])).after("test -d $W/.git -a ! -e $W/y"),
        script(35, ".git further down", ww, "mkdir $W/sub/.git && echo x >$W/sub/.git/config", Works),
        script(
            36,
            "the workspace is a part of a repository",
            ww_only,
            "git status --porcelain >/dev/null && test ! -e .git && git rev-parse --show-toplevel",
            Prints("${BASE}"),
        )
        .setup("rm -r $W/.git; git init -q $BASE")
        .after("test ! -e $W/.git")
        .tool("git"),
        script(
            36,
            "and that one is writable",
            in_writable,
            "mkdir -p .git/x 2>/dev/null || { git status --porcelain >/dev/null && git rev-parse --show-toplevel; }",
            Prints("${BASE}"),
        )
        .setup("rm -r $W/.git; git init -q $BASE")
        .after("test ! -e $W/.git")
        .tool("git"),
        script(37, ".git is a file", ww, "echo x >$W/.git", Denied(&[EROFS]))
            .setup("rm -r $W/.git; mkdir $W/store; echo \"gitdir: $W/store\" >$W/.git"),
        script(37, "and names a directory", ww, "echo x >$W/store/new", Denied(&[EROFS]))
            .setup("rm -r $W/.git; mkdir $W/store; echo \"gitdir: $W/store\" >$W/.git"),
        script(38, "S01, a commit without an entry for .git", ww, COMMIT, Denied(&[EROFS]))
            .setup("rm -r $W/.git; git init -q $W")
            .tool("git"),
        script(38, "S01, a commit with one", |dirs| ww(dirs).below_roots(".git", "write"), COMMIT, Works)
            .setup("rm -r $W/.git; git init -q $W")
            .after("git -c safe.directory='*' -C $W log -1 --format=%s | grep -qx x")
            .tool("git"),
        script(
            38,
            "S01, and nothing else is writable",
            |dirs| ww(dirs).below_roots(".git", "write"),
            "for path in $W/.agents/x $W/.codex $W/.aws $O/new; do ! { echo x >$path; } 2>/dev/null || exit 1; done; \
             ! mkdir $W/.agents/x 2>/dev/null",
            Works,
        )
        .after("cd $W; test ! -e $O/new -a ! -e .agents -a ! -e .codex -a ! -e .aws"),
        script(
            39,
            "S01, an entry for a part of .git",
            |dirs| ww(dirs).below_roots(".git/hooks", "write"),
            "echo x >$W/.git/hooks/hook",
            Works,
        )
        .setup("mkdir $W/.git/hooks"),
        script(
            39,
            "S01, and for no other part",
            |dirs| ww(dirs).below_roots(".git/hooks", "write"),
            "echo x >$W/.git/config",
            Denied(&[EROFS]),
        )
        .setup("mkdir $W/.git/hooks"),
        script(
            40,
            "no protected names where everything is writable",
            full,
            "mkdir $W/.agents && rm -r $W/.git && mkdir $W/.git && echo x >$W/.git/config",
            Works,
        )
        .after("test -d $W/.agents -a -e $W/.git/config"),
        script(41, "the workspace is not writable", ww, "true", Works).setup("rm -r $W/.git; chmod 555 $W"),
        script(56, "a program of the platform", minr, "test -x /usr/bin/env && cat $W/f", Prints("inside")),
        script(56, "what is outside is not there", minr, "cat $O/f", Fails(&[ENOENT])),
        script(57, "a file in the root directory", minr, "echo x >/longarm-row-57", Fails(&[EROFS, ENOENT]))
            .after("test ! -e /longarm-row-57"),
        script(57, "a file outside", minr, "echo x >$O/new", Fails(&[EROFS, ENOENT, "nonexistent"]))
            .after("test ! -e $O/new"),
        script(58, "the workspace", minw, "echo x >$W/new", Works).after("test -e $W/new"),
        script(58, "the platform", minw, "echo x >/usr/longarm-row-58", Denied(&[EROFS]))
            .after("test ! -e /usr/longarm-row-58"),
        script(
            60,
            "a subpath that leaves",
            |dirs| ww(dirs).below_roots("../x", "write"),
            "echo x >$X/new",
            Denied(&[EROFS]),
        )
        .after("test ! -e $X/new"),
        script(
            62,
            "a token that is not known, to write",
            |dirs| ww(dirs).entry(unknown(), "write"),
            "echo x >$W/new && ! { echo x >$O/new; } 2>/dev/null",
            Works,
        )
        .after("test -e $W/new -a ! -e $O/new"),
        script(
            62,
            "a token that is not known, to read",
            |dirs| minr(dirs).entry(unknown(), "read"),
            "cat $W/f && ! cat $O/f 2>/dev/null",
            Prints("inside"),
        ),
        script(
            62,
            "a token that is not known, to deny",
            |dirs| ww(dirs).entry(unknown(), "deny"),
            "true",
            Refused(Any),
        ),
        script(63, "an entry that is a file", |dirs| ro(dirs).path(dirs.o.join("f"), "write"), "echo new >$O/f", Works)
            .after("test $(cat $O/f) = new"),
        script(
            63,
            "and nothing beside it",
            |dirs| ro(dirs).path(dirs.o.join("f"), "write"),
            "echo new >$O/other",
            Denied(&[EROFS]),
        ),
        script(85, "everything is writable and the network is restricted: managed", unr, "echo x >$O/new", Works)
            .after("test -e $O/new"),
        script(85, "everything is writable and the network is restricted: external", ext, "echo x >$O/new", Works)
            .after("test -e $O/new"),
        script(85, "everything is writable and the network is restricted: entry", full, "echo x >$O/new", Works)
            .after("test -e $O/new"),
        script(86, "everything is allowed: managed", |dirs| unr(dirs).enabled(), "echo x >$O/new", Works),
        script(86, "everything is allowed: external", |dirs| ext(dirs).enabled(), "echo x >$O/new", Works),
        script(86, "everything is allowed: entry", |dirs| full(dirs).enabled(), "echo x >$O/new", Works),
        script(87, "disabled", dis, "echo permission denied; exit 1", Exits(1, false)),
    ];
    for (name, mkdir) in [
        (".agents", "mkdir $W/.agents"),
        (".codex", "mkdir $W/.codex"),
        (".aws", "mkdir $W/.aws"),
        (".git", "mkdir $W/.git"),
    ] {
        let row = script(33, format!("{name} is made"), ww, mkdir, Fails(&["File exists", EROFS]));
        rows.push(
            row.setup("rm -r $W/.git").after("cd $W; test ! -e .agents -a ! -e .codex -a ! -e .aws -a ! -e .git"),
        );
    }
    rows
}

/// A token of a later sender.
fn unknown() -> serde_json::Value {
    serde_json::json!({"type": "special", "value": {"kind": "unknown", "path": ":new"}})
}

const COMMIT: &str = "git -c user.name=x -c user.email=x@example.org commit -q --allow-empty -m x";

/// The workspace, in a directory that is writable too.
pub(super) fn in_writable(dirs: &Dirs) -> Policy {
    ww_only(dirs).path(&dirs.base, "write")
}

/// The same, and there is nothing that is not writable.
fn freed_in_writable(dirs: &Dirs) -> Policy {
    [".git", ".agents", ".codex", ".aws"]
        .into_iter()
        .fold(in_writable(dirs), |policy, name| policy.below_roots(name, "write"))
}
