//! What must hold with either of its two walls left out.

use longarm::sandbox::Wall;

use super::{EACCES, EPERM, EROFS, EXDEV, script};
use crate::dirs::Dirs;
use crate::place::Settings;
use crate::policy::{Policy, ro, ww};
use crate::row::Expect::{Denied, Fails, Works};
use crate::row::Row;

pub(super) fn rows() -> Vec<Row> {
    let files = [Wall::Mounts, Wall::Landlock].into_iter().flat_map(files);
    files.chain([Wall::NetworkNamespace, Wall::Filter].into_iter().flat_map(network)).collect()
}

fn files(wall: Wall) -> Vec<Row> {
    let row = |number, what: &str, policy: fn(&Dirs) -> Policy, action, expect| {
        let settings = Settings { without: Some(wall), ..Settings::default() };
        script(number, format!("without {wall:?}: {what}"), policy, action, expect).settings(settings)
    };
    vec![
        row(4, "a file is created in the workspace", ro, "echo x >$W/new", Denied(REFUSED)).after("test ! -e $W/new"),
        row(5, "a file is created in /tmp", ro, "echo x >/tmp/longarm-row-5w", Denied(REFUSED))
            .after("test ! -e /tmp/longarm-row-5w"),
        row(8, "truncation by path", ro, "$PROBE truncate $O/f", Denied(REFUSED)).after("test -s $O/f"),
        row(17, "what is allowed", ww, "echo x >$W/a && mv $W/a $W/b && rm $W/b", Works),
        row(18, "a file is created outside", ww, "echo x >$O/new", Denied(REFUSED)).after("test ! -e $O/new"),
        row(27, "through a link", ww, "echo x >$W/link/new", Denied(REFUSED))
            .setup("ln -s $O $W/link")
            .after("test ! -e $O/new"),
        row(29, "a hard link of what is outside", ww, "ln $O/f $W/hard", Fails(&[EXDEV, EPERM, EACCES]))
            .after("test ! -e $W/hard"),
    ]
}

fn network(wall: Wall) -> Vec<Row> {
    let row = |number, what: &str, action, behind: &'static [&'static str]| {
        let settings = Settings { without: Some(wall), ..Settings::default() };
        // What the filter says, or what is behind it.
        let expect = if wall == Wall::Filter { Fails(behind) } else { Denied(&[EPERM]) };
        script(number, format!("without {wall:?}: {what}"), ro, action, expect).settings(settings).unreached()
    };
    vec![
        // Not that nobody answers: then it would have been asked.
        row(70, "a public address", "$PROBE tcp 192.0.2.1:80", &[EACCES, "unreachable"]),
        row(71, "a loopback server of the host", "$PROBE tcp 127.0.0.1:$PORT", &[EACCES, "unreachable"]),
        row(75, "an abstract name of the host", "$PROBE abstract $ABSTRACT", &[EPERM, "refused"]),
    ]
}

const REFUSED: &[&str] = &[EROFS, EACCES];
