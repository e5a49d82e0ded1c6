//! What is refused before anything is started.

use longarm::error::SpawnError;
use longarm::sandbox::SandboxError;
use serde_json::json;

use super::script;
use super::tools::{Outcome, ensure};
use crate::place::Cripple::{MoreLayers, UserNamespaces};
use crate::place::{Kind, Settings};
use crate::policy::{deny, empty, minr, ro, ww};
use crate::row::Expect::{Denied, Prints, Refused, Works};
use crate::row::Refusal::{Any, Invalid, Preparation, Unavailable};
use crate::row::{Row, Stage};

pub(super) fn rows() -> Vec<Row> {
    let crippled = Settings { cripple: Some(UserNamespaces), ..Settings::default() };
    let partial = Settings { accept_partial: true, ..crippled };
    let layers = Settings { cripple: Some(MoreLayers), ..Settings::default() };
    vec![
        script(51, "a malformed pattern", |dirs| ww(dirs).glob("**/["), "true", Refused(Preparation)),
        script(52, "a pattern of too many files", |dirs| ww(dirs).glob("**/*.pem"), "true", Refused(Preparation))
            .setup("mkdir $W/many; cd $W/many; seq -f %g.pem 8200 | xargs touch"),
        script(
            53,
            "an entry across a link in a root",
            |dirs| ww(dirs).path(dirs.w.join("link/f"), "deny"),
            "true",
            Refused(Preparation),
        )
        .setup("ln -s $O $W/link"),
        script(59, "no entries", empty, "true", Refused(Any)),
        script(
            61,
            "a denied subpath that leaves",
            |dirs| ww(dirs).below_roots("../x", "deny"),
            "true",
            Refused(Preparation),
        ),
        script(
            64,
            "an encoded separator",
            |dirs| ww(dirs).raw_path("file:///var%2Ftmp", "write"),
            "true",
            Refused(Any),
        ),
        script(64, "an encoded NUL", |dirs| ww(dirs).raw_path("file:///var/%00tmp", "write"), "true", Refused(Any)),
        script(
            65,
            "a path of another host",
            |dirs| ww(dirs).raw_path("file://host/x", "read"),
            "true",
            Refused(Preparation),
        ),
        script(
            65,
            "a path with a drive",
            |dirs| ww(dirs).raw_path("file:///C:/x", "read"),
            "true",
            Refused(Preparation),
        ),
        script(66, "a bare path", |dirs| ww(dirs).raw_path("/x", "read"), "true", Refused(Invalid)),
        script(66, "another scheme", |dirs| ww(dirs).raw_path("https://host/x", "read"), "true", Refused(Invalid)),
        script(67, "no windowsSandboxLevel", |dirs| ww(dirs).level(None), "true", Refused(Invalid)),
        script(68, "mxc", |dirs| ww(dirs).level(Some("mxc")), "true", Refused(Unavailable)),
        script(
            69,
            "members that are not known",
            |dirs| {
                let ww = ww(dirs).path(&dirs.s, "deny").with_unknown_members();
                ww.member("windowsSandboxPrivateDesktop", json!(true))
            },
            "echo x >$W/new && ! { echo x >$O/new; } 2>/dev/null && ! cat $S/f 2>/dev/null",
            Works,
        ),
        script(102, "S06, no user namespaces: workspace write", ww, "true", Refused(Unavailable))
            .settings(crippled)
            .at(Kind::ALONE),
        script(102, "S06, no user namespaces: read only", ro, "true", Refused(Unavailable))
            .settings(crippled)
            .at(Kind::ALONE),
        script(102, "S06, no user namespaces, partial accepted: workspace write", ww, "true", Refused(Unavailable))
            .settings(partial)
            .at(Kind::ALONE),
        script(102, "S06, no user namespaces, partial accepted: deny", deny, "true", Refused(Unavailable))
            .settings(partial)
            .at(Kind::ALONE),
        script(102, "S06, no user namespaces, partial accepted: minimal", minr, "true", Refused(Unavailable))
            .settings(partial)
            .at(Kind::ALONE),
        script(103, "S06, no user namespaces, partial accepted: a file", ro, "echo x >$W/new", Denied(ANY))
            .settings(partial)
            .at(Kind::ALONE)
            .after("test ! -e $W/new"),
        script(103, "S06, no user namespaces, partial accepted: a mode", ro, "$PROBE chmod $O/f", Denied(ANY))
            .settings(partial)
            .at(Kind::ALONE),
        script(103, "S06, no user namespaces, partial accepted: an attribute", ro, "$PROBE setxattr $O/f", Denied(ANY))
            .settings(partial)
            .at(Kind::ALONE),
        script(103, "S06, no user namespaces, partial accepted: an owner", ro, "$PROBE chown $O/f", Denied(ANY))
            .settings(partial)
            .at(Kind::ALONE),
        script(103, "S06, no user namespaces, partial accepted: the times", ro, "$PROBE utime $O/f", Denied(ANY))
            .settings(partial)
            .at(Kind::ALONE)
            .setup("touch -d @1000 $O/f")
            .after("test $(stat -c %Y $O/f) = 1000"),
        script(
            103,
            "S06, no user namespaces, partial accepted: a public address",
            ro,
            "$PROBE tcp 192.0.2.1:80",
            Denied(ANY),
        )
        .settings(partial)
        .at(Kind::ALONE),
        script(
            103,
            "S06, no user namespaces, partial accepted: the network",
            ro,
            "$PROBE tcp 127.0.0.1:$PORT",
            Denied(ANY),
        )
        .settings(partial)
        .unreached()
        .at(Kind::ALONE),
        script(103, "S06, no user namespaces, partial accepted: what is allowed", ro, "cat $O/f", Prints("outside"))
            .settings(partial)
            .at(Kind::ALONE),
        custom!(102, "S06, no user namespaces: the cause and the remedy", ww, says_why)
            .settings(crippled)
            .at(Kind::ALONE),
        custom!(102, "S06, no user namespaces, partial accepted: the cause and the remedy", ww, says_why)
            .settings(partial)
            .at(Kind::ALONE),
        script(104, "no more layers", ww, "true", Refused(Unavailable)).settings(layers).at(Kind::ALONE),
    ]
}

const ANY: &[&str] = &[super::EROFS, super::EPERM, super::EACCES];

/// A refusal tells whoever owns the executor what is missing, and what can be done.
async fn says_why(stage: &Stage<'_>) -> Outcome {
    let error = stage.start_error(stage.sh("true")).await?;
    let SpawnError::Sandbox(SandboxError::Unavailable { cause, remedy: Some(remedy) }) = &error else {
        return Err(format!("{error:?}"));
    };
    ensure(cause.contains("namespaces cannot be made") && remedy.contains("user namespaces"), || format!("{error:?}"))
}
