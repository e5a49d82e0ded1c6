//! The executor's own directory, where that is in what is writable.

use super::{EACCES, EBUSY, script};
use crate::dirs::Dirs;
use crate::place::Settings;
use crate::policy::{Policy, ro, ww};
use crate::row::Expect::{Fails, Refused, Works};
use crate::row::{Refusal, Row};

pub(super) fn rows() -> Vec<Row> {
    let rows = vec![
        script(31, "a new file in the executor's state", ww, "echo x >$W/state/new", Fails(&[EACCES]))
            .after("test -d $W/state && ! test -e $W/state/new"),
        script(31, "the executor's state is listed", ww, "ls $W/state", Fails(&[EACCES])),
        script(31, "the executor's state is listed, with a deny entry", denied, "ls $W/state", Fails(&[EACCES]))
            .setup("mkdir -m 700 $W/state"),
        script(32, "the executor's state is moved", ww, "mv $W/state $W/other", Fails(&[EBUSY]))
            .after("test -d $W/state && ! test -e $W/other"),
        script(32, "the executor's state is exchanged for a link", ww, "rm -rf $W/state; ln -sT $O $W/state", {
            Fails(&[EACCES, EBUSY])
        })
        .after("test -d $W/state && ! test -L $W/state"),
        script(35, "what is called the same", ww, "mkdir $W/sub/state && echo x >$W/new", Works),
        script(38, "an entry for the executor's state", asked, "true", Refused(Refusal::Preparation))
            .setup("mkdir -m 700 $W/state"),
        script(38, "an entry for the executor's state, which is yet to be made", asked, "echo x >$W/state/new", {
            Fails(&[EACCES])
        })
        .after("! test -e $W/state/new"),
    ];
    let settings = Settings { state_in_workspace: true, ..Settings::default() };
    rows.into_iter().map(|row| row.settings(settings)).collect()
}

fn denied(dirs: &Dirs) -> Policy {
    ro(dirs).path(&dirs.s, "deny")
}

fn asked(dirs: &Dirs) -> Policy {
    ww(dirs).path(dirs.state(), "write")
}
