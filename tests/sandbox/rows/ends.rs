//! The end of a sandbox, however it comes about: nothing of it is left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use longarm::Process;
use longarm::event::Event;
use longarm::sandbox::{ManagedNetworkFacts, Violation, ViolationReason};

use super::tools::{Outcome, begin, ensure, has_ended, not_root, processes_with, read_until, unique, until};
use crate::place::{Kind, Place, Settings};
use crate::policy::{ro, ww};
use crate::row::{Row, Stage};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![
        custom!(34, "no placeholder is left", ww, no_leftovers).setup("rm -r $W/.git"),
        custom!(42, "a placeholder is taken away from outside", ww, placeholder_removed),
        custom!(92, "a process in the background", ro, background),
        custom!(93, "no descriptor is left", ro, no_descriptors).at(Kind::ALONE),
        custom!(101, "two commands on one root", ww, two_at_once).setup("rm -r $W/.git"),
    ];
    for row in [
        custom!(34, "nothing is left of a command that was stopped", ww, nothing_left, Blow::Stop),
        custom!(34, "nothing is left of one that was killed", ww, nothing_left, Blow::Kill),
        custom!(34, "nothing is left when its group was killed", ww, nothing_left, Blow::Group),
        custom!(34, "nothing is left when the first process was killed", ww, nothing_left, Blow::First),
        custom!(
            34,
            "nothing is left when the group of the first process was killed",
            ww,
            nothing_left,
            Blow::FirstGroup
        ),
        custom!(93, "everything ends by a stop", ro, nothing_left, Blow::Stop),
        custom!(93, "everything ends with the group of the command", ro, nothing_left, Blow::Group),
        custom!(93, "everything ends with the first process", ro, nothing_left, Blow::First),
        custom!(93, "everything ends with the group of the first process", ro, nothing_left, Blow::FirstGroup),
    ] {
        rows.push(row.setup("rm -r $W/.git").needs(not_root));
    }
    for row in [
        custom!(34, "the next executor removes what a killed one left", ww, nothing_left, Blow::Executor),
        custom!(93, "everything ends with the executor", ro, nothing_left, Blow::Executor),
    ] {
        rows.push(row.setup("rm -r $W/.git").needs(not_root).at(Kind::ALONE));
    }
    rows
}

fn leftovers(stage: &Stage<'_>) -> Vec<&'static str> {
    [".git", ".agents", ".codex", ".aws"].into_iter().filter(|name| stage.dirs.w.join(name).exists()).collect()
}

/// What strikes a sandbox.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Blow {
    Stop,
    Kill,
    /// A signal to the group of the command.
    Group,
    /// A signal to the first process of its PID namespace.
    First,
    /// A signal to the group of that one.
    FirstGroup,
    /// A signal to the executor.
    Executor,
}

/// A sandbox, as the host sees it while it runs.
#[derive(Debug)]
struct Seen {
    command: u32,
    first: u32,
    /// The namespaces that are not the host's.
    spaces: BTreeSet<PathBuf>,
}

impl Seen {
    /// The sandbox that this process is in.
    fn of(command: u32) -> Result<Self, String> {
        let spaces: BTreeSet<PathBuf> = spaces(command).difference(&spaces(std::process::id())).cloned().collect();
        let space = link(command, "pid").ok_or("the command has ended")?;
        ensure(spaces.contains(&space), || format!("{command} is in no PID namespace of its own: {spaces:?}"))?;
        let first = numbers().into_iter().find(|number| {
            let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
            let own = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
            link(*number, "pid").as_ref() == Some(&space) && own.split_whitespace().last() == Some("1")
        });
        Ok(Self { command, first: first.ok_or("there is no first process")?, spaces })
    }

    /// What is left of it: processes, also those that nobody has asked for yet, and whoever is in its namespaces, which live
    /// as long as somebody is.
    fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = [self.command, self.first]
            .into_iter()
            .filter(|number| Path::new(&format!("/proc/{number}")).exists())
            .map(|number| format!("process {number}"))
            .collect();
        for number in numbers() {
            for space in spaces(number).intersection(&self.spaces) {
                left.push(format!("process {number} in {}", space.display()));
            }
        }
        left
    }
}

fn numbers() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn link(number: u32, space: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{number}/ns/{space}")).ok()
}

fn spaces(number: u32) -> BTreeSet<PathBuf> {
    ["pid", "mnt", "net", "ipc", "user"].into_iter().filter_map(|space| link(number, space)).collect()
}

/// Strikes a sandbox whose processes have left its group and its session, and looks what remains.
async fn nothing_left(stage: &Stage<'_>, blow: Blow) -> Outcome {
    let time = unique(stage);
    let before = names(&stage.dirs.base);
    ensure(leftovers(stage).is_empty(), || format!("there before: {before:?}"))?;
    let script = format!("trap '' TERM INT; sleep {time} & setsid sleep {time} & echo ready; while :; do wait; done");
    let mut process = begin(stage, &script).await?;
    read_until(&mut process, "ready").await?;
    until("they run", || processes_with(&format!("sleep\0{time}")).len() == 2).await?;
    let shell = processes_with(&format!("sleep {time}"));
    let [shell] = shell[..] else { return Err(format!("the command is one of {shell:?}")) };
    let seen = Seen::of(shell)?;
    let holds = stage.policy.writes_to_roots();
    ensure(leftovers(stage).len() == if holds { 4 } else { 0 }, || format!("held: {:?}", leftovers(stage)))?;
    let number = |number: u32| number.cast_signed();
    match blow {
        Blow::Stop => {
            ensure(process.terminate().await.map_err(|error| error.to_string())?, || "it did not run".into())?;
        }
        Blow::Kill => ensure(process.kill().await.map_err(|error| error.to_string())?, || "it did not run".into())?,
        Blow::Group => kill(-number(seen.command))?,
        Blow::First => kill(number(seen.first))?,
        Blow::FirstGroup => kill(-number(seen.first))?,
        Blow::Executor => kill(number(stage.place.executor_pid()))?,
    }
    if blow != Blow::Executor {
        ended_by_signal(&mut process).await?;
    }
    let left = || (processes_with(&time), seen.left());
    until("nothing runs", || left() == (Vec::new(), Vec::new()))
        .await
        .map_err(|error| format!("{error}: {:?}", left()))?;
    if blow == Blow::Executor {
        // Its processes end with one of its threads; what it has locked is locked until all of them have ended.
        until("the executor ends", || has_ended(number(stage.place.executor_pid()))).await?;
        // Nobody else is needed for the rest.
        Place::open(stage.place.kind, Settings::default(), stage.dirs).await.close().await;
    }
    as_before(stage, &before).await?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    let base = stage.dirs.base.to_string_lossy();
    ensure(!mounts.contains(&*base), || format!("mounted: {mounts}"))
}

/// All that is below a directory.
fn names(directory: &Path) -> BTreeSet<PathBuf> {
    let (mut names, mut rest) = (BTreeSet::new(), vec![directory.to_owned()]);
    while let Some(path) = rest.pop() {
        if std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
            // One that goes just now is gone.
            let entries = std::fs::read_dir(&path).into_iter().flatten();
            rest.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
        }
        names.insert(path);
    }
    names
}

/// Nothing was made, or what was is gone.
async fn as_before(stage: &Stage<'_>, before: &BTreeSet<PathBuf>) -> Outcome {
    let now = || names(&stage.dirs.base);
    until("nothing is left", || now() == *before)
        .await
        .map_err(|error| format!("{error}: {:?}", now().symmetric_difference(before).collect::<Vec<_>>()))
}

/// The end is told, and that it was by a signal.
async fn ended_by_signal(process: &mut Process) -> Outcome {
    let status = process.wait().await.map_err(|error| error.to_string())?;
    ensure(status.signal().is_some(), || format!("it has ended with {status}"))?;
    while process.next_event().await.map_err(|error| error.to_string())?.is_some() {}
    Ok(())
}

fn kill(target: i32) -> Outcome {
    // SAFETY: the call takes numbers. The process, or the group, is one that the test has seen run.
    let killed = unsafe { libc::kill(target, libc::SIGKILL) };
    ensure(killed == 0, || format!("kill {target}: {}", std::io::Error::last_os_error()))
}

async fn no_leftovers(stage: &Stage<'_>) -> Outcome {
    let before = names(&stage.dirs.base);
    for script in ["true", "kill -9 $$", "kill -9 0", "mkdir $W/.agents"] {
        stage.run(stage.sh(script)).await.map_err(|refused| format!("{refused:?}"))?;
        as_before(stage, &before).await.map_err(|error| format!("{script}: {error}"))?;
    }
    Ok(())
}

const NAMESPACES: [&str; 3] = ["user", "net", "mnt"];

/// What the executor has open is the same after a sandbox as before, also after one with sockets of its own.
async fn no_descriptors(stage: &Stage<'_>) -> Outcome {
    let executor = stage.place.executor_pid();
    let open = || {
        let entries = std::fs::read_dir(format!("/proc/{executor}/fd")).unwrap();
        let links = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        // Of namespaces there are other ones each time, and as many.
        let kind = |link: PathBuf| match link.to_str().and_then(|link| link.split_once(":[")) {
            Some((kind, _)) if NAMESPACES.contains(&kind) => kind.into(),
            _ => link,
        };
        let mut links: Vec<PathBuf> = links.map(kind).collect();
        links.sort();
        links
    };
    let count = |links: &[PathBuf], link: &PathBuf| links.iter().filter(|other| *other == link).count();
    let run = async || {
        let managed = ManagedNetworkFacts::ports([stage.dirs.port()]);
        for request in [stage.sh("true"), stage.sh("$PROBE tcp 127.0.0.1:$PORT").managed_network(managed)] {
            let ran = stage.run(request).await.map_err(|refused| format!("{refused:?}"))?;
            ensure(ran.output.status.success(), || format!("{ran:?}"))?;
        }
        Ok::<_, String>(())
    };
    // What it makes once, and keeps.
    run().await?;
    let before = open();
    // Some of that may be about to be closed, but no more than what one makes.
    for _ in 0..5 {
        run().await?;
    }
    let closed = || {
        let now = open();
        now.iter().all(|link| {
            // Those for the next one are made after a start, and may not have been there before.
            let ahead = usize::from(NAMESPACES.iter().any(|kind| link == Path::new(kind)));
            count(&now, link) <= count(&before, link) + ahead
        })
    };
    until("they are closed", closed).await.map_err(|error| format!("{error}: {before:?}, {:?}", open()))
}

async fn placeholder_removed(stage: &Stage<'_>) -> Outcome {
    let name = stage.dirs.w.join(".agents");
    let mut process = begin(stage, "echo ready; until mkdir $W/.agents 2>/dev/null; do sleep 0.02; done").await?;
    read_until(&mut process, "ready").await?;
    std::fs::remove_dir(&name).map_err(|error| error.to_string())?;
    let status = process.wait().await.map_err(|error| error.to_string())?;
    ensure(status.success(), || format!("{status}"))?;
    let about = |violation: &Violation| {
        matches!(violation, Violation::File(file) if file.reason == ViolationReason::PolicyDenied
            && file.path.as_deref() == name.to_str())
    };
    until("an event", || stage.place.violations.all().iter().any(about)).await?;
    ensure(name.is_dir(), || "what was made is not taken away".into())
}

async fn background(stage: &Stage<'_>) -> Outcome {
    let time = unique(stage);
    let mut process = begin(stage, &format!("sleep {time} & setsid sleep {time} & echo $!")).await?;
    while !matches!(process.next_event().await, Ok(Some(Event::Exited(_)))) {}
    ensure(processes_with(&time).is_empty(), || "a process lives on".into())
}

async fn two_at_once(stage: &Stage<'_>) -> Outcome {
    let mut long = begin(stage, "echo ready; until test -e $W/go; do sleep 0.02; done; mkdir $W/.agents").await?;
    read_until(&mut long, "ready").await?;
    stage.must("! mkdir $W/.agents 2>/dev/null").await?;
    std::fs::write(stage.dirs.w.join("go"), "").map_err(|error| error.to_string())?;
    let status = long.wait().await.map_err(|error| error.to_string())?;
    ensure(status.code() == Some(1), || format!("the other one: {status}"))?;
    until("nothing is left", || leftovers(stage).is_empty()).await
}
