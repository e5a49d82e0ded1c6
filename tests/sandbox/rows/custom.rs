//! Rows that take more than one command, or a look from outside.

use longarm::error::SpawnError;
use longarm::request::Signal;
use longarm::sandbox::{Evidence, Level, Violation, ViolationReason};

use super::EROFS;
use super::tools::{Outcome, begin, ensure};
use crate::place::{Cripple, Kind, Settings};
use crate::policy::{dis, minr, minw, ro, unr};
use crate::row::{Row, Stage};

pub(super) fn rows() -> Vec<Row> {
    let crippled = Settings { cripple: Some(Cripple::UserNamespaces), accept_partial: true, ..Settings::default() };
    vec![
        custom!(2, "the report of a full sandbox", ro, reports_full),
        custom!(87, "the report of none", dis, reports_none),
        custom!(86, "the report of none where everything is allowed", |dirs| unr(dirs).enabled(), reports_none),
        custom!(103, "the report of a partial sandbox", ro, reports_partial).settings(crippled).at(Kind::ALONE),
        custom!(12, "words are evidence, and a guess", ro, text_evidence),
        custom!(16, "the signal is evidence", ro, signal_evidence),
        custom!(16, "its exit code is none", ro, code_is_no_evidence),
        custom!(4, "one event for a command", ro, one_event),
        custom!(14, "the program does not exist", ro, no_program),
        custom!(14, "the working directory does not exist", ro, no_directory),
        custom!(14, "the program is hidden", minr, hidden_program)
            .setup("printf 'secret\n' >$O/program; chmod 755 $O/program"),
        custom!(14, "the script is hidden", minr, hidden_program)
            .setup("printf '#!/longarm/secret\n' >$O/program; chmod 755 $O/program"),
        custom!(33, ".git is made after one above the root was", super::files::in_writable, git_after_one_above)
            .setup("rm -r $W/.git")
            .after("test ! -e $W/.git && rmdir $BASE/.git"),
        custom!(24, "the working directory, by a link that is hidden", minw, by_a_hidden_link).setup("ln -s $W $O/way"),
    ]
}

async fn reports_full(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "true").await?;
    let enforcement = process.enforcement();
    process.wait().await.map_err(|error| error.to_string())?;
    match enforcement {
        Some(enforcement) if enforcement.level == Level::Full && !enforcement.mechanisms.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn reports_partial(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "true").await?;
    let enforcement = process.enforcement();
    process.wait().await.map_err(|error| error.to_string())?;
    match enforcement.as_ref().map(|enforcement| &enforcement.level) {
        Some(Level::Partial(reasons)) if !reasons.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn reports_none(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "echo permission denied; exit 1").await?;
    let (enforcement, kind) = (process.enforcement(), process.sandbox_type().map(str::to_owned));
    process.wait().await.map_err(|error| error.to_string())?;
    let denial = process.denial();
    ensure(enforcement.as_ref().is_some_and(|enforcement| enforcement.level == Level::None), || {
        format!("{enforcement:?}")
    })?;
    ensure(kind.as_deref() == Some("none"), || format!("{kind:?}"))?;
    ensure(denial.is_none(), || format!("{denial:?}"))
}

async fn text_evidence(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "echo Permission denied >&2; exit 1").await?;
    process.wait().await.map_err(|error| error.to_string())?;
    let denial = process.denial().ok_or("no denial")?;
    let guess = denial.evidence.iter().any(|evidence| matches!(evidence, Evidence::Text { .. }));
    ensure(denial.denied && guess, || format!("{denial:?}"))?;
    ensure(denial.evidence.iter().all(Evidence::is_guess), || format!("{denial:?}"))
}

async fn signal_evidence(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "kill -SYS $$").await?;
    let status = process.wait().await.map_err(|error| error.to_string())?;
    ensure(status.signal() == Some(Signal::from_number(libc::SIGSYS)), || format!("{status}"))?;
    let denial = process.denial().ok_or("no denial")?;
    let sure = denial.evidence.iter().any(|evidence| !evidence.is_guess());
    ensure(denial.denied && sure, || format!("{denial:?}"))
}

async fn code_is_no_evidence(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "exit 159").await?;
    let status = process.wait().await.map_err(|error| error.to_string())?;
    let denial = process.denial();
    let sure = denial.iter().flat_map(|denial| &denial.evidence).any(|evidence| !evidence.is_guess());
    ensure(status.code() == Some(159) && !sure, || format!("{status}, {denial:?}"))
}

async fn one_event(stage: &Stage<'_>) -> Outcome {
    let ran = stage.run(stage.sh("for name in a b c; do (echo x >$W/$name); done; exit 1")).await;
    let ran = ran.map_err(|refused| format!("{refused:?}"))?;
    ensure(ran.output.sandbox_denied, || format!("{ran:?}"))?;
    let events = stage.place.violations.all();
    match events.as_slice() {
        [Violation::File(violation)] if violation.reason == ViolationReason::ReadOnlyFileSystem => {
            ensure(violation.output_snippet.is_none(), || format!("{violation:?}"))
        }
        other => Err(format!("{other:?}")),
    }
}

async fn no_program(stage: &Stage<'_>) -> Outcome {
    match stage.start_error(stage.request(["/longarm/no/such/program"])).await? {
        SpawnError::ProgramNotFound { .. } => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn hidden_program(stage: &Stage<'_>) -> Outcome {
    let program = stage.dirs.o.join("program");
    match stage.start_error(stage.request([&program.to_string_lossy()])).await? {
        SpawnError::ProgramNotFound { .. } => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn by_a_hidden_link(stage: &Stage<'_>) -> Outcome {
    let request = stage.sh("echo x >new; pwd -P").cwd(stage.dirs.o.join("way"));
    let ran = stage.run(request).await.map_err(|refused| format!("{refused:?}"))?;
    ensure(ran.text().trim() == stage.dirs.w.to_string_lossy(), || format!("{ran:?}"))?;
    ensure(stage.dirs.w.join("new").is_file(), || "it was not there".into())
}

async fn git_after_one_above(stage: &Stage<'_>) -> Outcome {
    stage.must("mkdir $BASE/.git").await?;
    let ran = stage.run(stage.sh("mkdir .git && echo x >.git/config")).await;
    let ran = ran.map_err(|refused| format!("{refused:?}"))?;
    let says = ["File exists", EROFS].iter().any(|text| ran.text().contains(text));
    ensure(ran.output.status.wire_code() != 0 && says, || format!("{ran:?}"))
}

async fn no_directory(stage: &Stage<'_>) -> Outcome {
    match stage.start_error(stage.request(["true"]).cwd("/longarm/no/such/directory")).await? {
        SpawnError::CwdNotFound { .. } => Ok(()),
        other => Err(format!("{other:?}")),
    }
}
