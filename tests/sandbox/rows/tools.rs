//! What rows that are no scripts have in common.

use std::time::Duration;

use longarm::Process;
use longarm::collect::CollectLimits;
use longarm::event::Event;
use longarm::request::TerminalSize;

use crate::row::{PATIENCE, Stage};

pub(super) type Outcome = Result<(), String>;

pub(super) fn ensure(condition: bool, what: impl FnOnce() -> String) -> Outcome {
    if condition { Ok(()) } else { Err(what()) }
}

pub(super) async fn begin(stage: &Stage<'_>, script: &str) -> Result<Process, String> {
    stage.start(stage.sh(script)).await.map_err(|refused| format!("{refused:?}"))
}

pub(super) async fn begin_on_terminal(stage: &Stage<'_>, script: &str) -> Result<Process, String> {
    let request = stage.sh(script).terminal(TerminalSize::default());
    stage.start(request).await.map_err(|refused| format!("{refused:?}"))
}

/// Reads until the output holds a text.
pub(super) async fn read_until(process: &mut Process, text: &str) -> Outcome {
    let mut all = Vec::new();
    while !String::from_utf8_lossy(&all).contains(text) {
        match process.next_event().await.map_err(|error| error.to_string())? {
            Some(Event::Output(output)) => all.extend_from_slice(&output.bytes),
            other => return Err(format!("{other:?} before {text:?}, after {:?}", String::from_utf8_lossy(&all))),
        }
    }
    Ok(())
}

/// Waits for something that is about to happen on the host.
pub(super) async fn until(what: &str, mut happened: impl FnMut() -> bool) -> Outcome {
    let deadline = tokio::time::Instant::now() + PATIENCE / 2;
    while !happened() {
        ensure(tokio::time::Instant::now() < deadline, || format!("not in time: {what}"))?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

pub(super) async fn ended(process: Process) -> Result<longarm::ExitStatus, String> {
    Ok(process.output(CollectLimits::default()).await.map_err(|error| error.to_string())?.status)
}

/// The processes that have this text among their arguments, by all that `/proc` shows.
pub(super) fn processes_with(text: &str) -> Vec<u32> {
    let numbers = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let number: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let arguments = std::fs::read(format!("/proc/{number}/cmdline")).ok()?;
        String::from_utf8_lossy(&arguments).contains(text).then_some(number)
    });
    numbers.filter(|number| *number != std::process::id()).collect()
}

/// What a process, or a thread, is doing, as `/proc` has it.
pub(super) fn state(pid: libc::pid_t) -> Option<char> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    status.rsplit_once(") ")?.1.chars().next()
}

/// Whether all threads of a process have ended: the first may have before the others, which still have what is open, or wait for
/// something.
pub(super) fn has_ended(pid: libc::pid_t) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(|entry| entry.ok());
    let mut threads = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    threads.all(|thread| matches!(state(thread), None | Some('Z' | 'X')))
}

/// An argument of `sleep` that no other process has.
pub(super) fn unique(stage: &Stage<'_>) -> String {
    format!("1{:05}.{}", stage.dirs.port(), std::process::id())
}

/// Why something cannot be done that only root can.
pub(super) fn not_root() -> Option<String> {
    (crate::dirs::own_uid() != 0).then(|| "these tests do not run as root".into())
}
