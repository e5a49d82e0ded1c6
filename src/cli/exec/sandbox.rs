//! The sandbox of `longarm exec`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use longarm::Environment;
use longarm::path_uri::{PathConvention, PathUri};
use longarm::sandbox::{Denial, Evidence, SandboxIntent, WindowsSandboxLevel};

use super::{Failure, explain};
use crate::cli::names;

/// The intent that `policy` names. Workspace roots are paths of the place; without any, the directory of the command is one.
pub(super) async fn intent(
    environment: &Environment,
    policy: &OsStr,
    roots: &[PathBuf],
    cwd: Option<&Path>,
) -> Result<SandboxIntent, Failure> {
    let info = environment.info().await.map_err(|error| Failure::Reason(explain(&error)))?;
    let convention = info.platform_os.as_deref().map_or(PathConvention::HOST, PathConvention::of_os);
    let uri = |path: &Path| {
        let uri = match path.to_str() {
            Some(text) => PathUri::from_native_text(text, convention),
            // Here it is as it would be there.
            None if convention == PathConvention::HOST => PathUri::from_host_native_path(path),
            None => return Err(Failure::Reason(format!("{path:?} is not Unicode text"))),
        };
        uri.map_err(|error| Failure::Reason(explain(&error)))
    };
    let roots = roots.iter().map(|root| uri(root)).collect::<Result<Vec<_>, _>>()?;
    let cwd = match cwd {
        Some(cwd) => Some(uri(cwd)?),
        None => info.cwd,
    };
    let or_cwd = |roots: Vec<PathUri>| if roots.is_empty() { cwd.clone().into_iter().collect() } else { roots };
    let level = match convention {
        PathConvention::Windows => WindowsSandboxLevel::RestrictedToken,
        PathConvention::Posix => WindowsSandboxLevel::Disabled,
    };
    let intent = match policy.to_str() {
        Some("read-only") if !roots.is_empty() => {
            let reason =
                "--root means nothing with --sandbox read-only, under which nothing is writable: say workspace-write";
            return Err(Failure::Reason(reason.into()));
        }
        Some("read-only") => SandboxIntent::read_only().windows_level(level),
        Some("workspace-write") => SandboxIntent::workspace_write(or_cwd(roots)).windows_level(level),
        _ => {
            let text = std::fs::read_to_string(policy).map_err(|error| {
                let not = "it is neither read-only nor workspace-write, so it should be a file with an intent as JSON";
                Failure::Reason(format!("cannot read the sandbox {policy:?}: {error}; {not}"))
            })?;
            let intent = SandboxIntent::from_json(&text)
                .map_err(|error| Failure::Reason(format!("{policy:?}{}: {}", place_in(&text), explain(&error))))?;
            // What the file says counts, unless there is something to add.
            roots.into_iter().fold(intent, SandboxIntent::workspace_root)
        }
    };
    Ok(match (intent.effective_cwd(), cwd) {
        (None, Some(cwd)) => intent.cwd(cwd),
        _ => intent,
    })
}

/// Where a text stops being JSON, for a person who has it in a file. Nothing of one that is JSON.
fn place_in(text: &str) -> String {
    let json = serde_json::from_str::<serde::de::IgnoredAny>(text);
    json.err().map(|error| format!(", line {} column {}", error.line(), error.column())).unwrap_or_default()
}

/// What to tell of protected names, each in a line: they changed, whether or not something was denied.
pub(super) fn changed_names(denial: Option<&Denial>) -> impl Iterator<Item = String> {
    let evidence = denial.into_iter().flat_map(|denial| &denial.evidence);
    evidence.filter_map(|evidence| match evidence {
        Evidence::ProtectedName { path, change, moved_to } => {
            Some(names::line(path.display(), *change, moved_to.as_ref().map(|to| to.display())))
        }
        Evidence::NamesUnchecked => Some(
            "the protected names in the workspace could not be looked at in time: do so before a program uses them"
                .into(),
        ),
        _ => None,
    })
}

/// What to tell of a denial.
pub(super) fn report(denial: Option<&Denial>) -> String {
    let is_denied =
        |evidence: &&Evidence| !matches!(evidence, Evidence::ProtectedName { .. } | Evidence::NamesUnchecked);
    let evidence: Vec<_> = denial.into_iter().flat_map(|denial| &denial.evidence).filter(is_denied).collect();
    if evidence.is_empty() {
        return "the sandbox seems to have denied something".into();
    }
    let sure = evidence.iter().any(|evidence| !evidence.is_guess());
    let verb = if sure { "has denied" } else { "seems to have denied" };
    let evidence: Vec<_> = evidence.iter().map(ToString::to_string).collect();
    format!("the sandbox {verb} something: {}", evidence.join(", "))
}
