//! What to tell of protected names that changed while a command ran.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use longarm::sandbox::{NameChange, Violation, ViolationSink};
use tokio::sync::oneshot;

use super::complain;

/// One line about a name.
pub(super) fn line(path: impl Display, change: NameChange, moved_to: Option<impl Display>) -> String {
    let what = match change {
        NameChange::Appeared => "appeared while a sandboxed command ran",
        NameChange::Replaced => "was replaced while a sandboxed command ran",
        _ => "cannot be told from what it was before a sandboxed command ran",
    };
    match moved_to {
        Some(to) => format!("{path} {what}, and was moved to {to}"),
        None => format!("{path} {what}: look at it before a program uses it"),
    }
}

/// Tells of them on standard error, in a thread of its own: whoever reads that may be slow.
#[derive(Debug)]
pub(super) struct Report {
    lines: SyncSender<Line>,
    /// How many lines found no room.
    lost: AtomicU64,
}

#[derive(Debug)]
enum Line {
    Text(String),
    /// All before it have been written.
    End(oneshot::Sender<()>),
}

impl Report {
    pub(super) fn start() -> Self {
        let (lines, receiver) = sync_channel(ROOM);
        // Without the thread nobody takes the lines.
        drop(std::thread::Builder::new().name("report".into()).spawn(move || {
            receiver.iter().for_each(|line| match line {
                Line::Text(text) => complain(&text),
                // Who has lost patience is not there any more.
                Line::End(told) => drop(told.send(())),
            });
        }));
        Self { lines, lost: AtomicU64::new(0) }
    }

    /// Waits until all that was told is written, or nobody reads it.
    pub(super) async fn finish(&self) {
        let (told, is_told) = oneshot::channel();
        let lines = self.lines.clone();
        let lost = self.lost.swap(0, Ordering::Relaxed);
        // There may be no room yet. Where there can be no thread, nothing is waited for.
        drop(std::thread::Builder::new().name("report-end".into()).spawn(move || {
            if lost > 0 {
                // Nobody takes it if there is no thread that writes.
                let _ = lines.send(Line::Text(format!("{lost} more lines like these found no room")));
            }
            let _ = lines.send(Line::End(told));
        }));
        // Whoever reads it has had his time then.
        let _ = tokio::time::timeout(PATIENCE, is_told).await;
    }
}

impl ViolationSink for Report {
    fn violation(&self, violation: Violation) {
        let Violation::File(file) = violation else { return };
        let Some(change) = file.name_change else { return };
        let mut line = line(file.path.unwrap_or_default(), change, file.moved_to);
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            line = format!("{line} ({lost} lines like this one before it found no room)");
        }
        if self.lines.try_send(Line::Text(line)).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

const ROOM: usize = 256;
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use longarm::sandbox::{FileViolation, SandboxBackend, ViolationReason};

    use super::*;

    fn tell(report: &Report, number: usize) {
        let file = FileViolation::new(SandboxBackend::Linux, ViolationReason::PolicyDenied);
        report.violation(Violation::File(file.path(number.to_string()).name_change(NameChange::Appeared)));
    }

    fn unread() -> (Report, Receiver<Line>) {
        let (lines, receiver) = sync_channel(ROOM);
        (Report { lines, lost: AtomicU64::new(0) }, receiver)
    }

    #[tokio::test]
    async fn the_end_comes_after_all_that_was_told_also_if_there_is_no_room_for_it() {
        let (report, receiver) = unread();
        (0..ROOM + 44).for_each(|number| tell(&report, number));
        let reader = async {
            // It waits first, since this one polls it first.
            tokio::task::spawn_blocking(move || {
                let mut texts = Vec::new();
                loop {
                    match receiver.recv().unwrap() {
                        Line::Text(text) => texts.push(text),
                        Line::End(told) => return (texts, told.send(())),
                    }
                }
            })
            .await
            .unwrap()
        };
        let ((), (texts, told)) = tokio::join!(report.finish(), reader);
        assert_eq!((texts.len(), told), (ROOM + 1, Ok(())));
        assert!(texts[0].starts_with("0 appeared") && texts[ROOM].starts_with("44 more lines"), "{texts:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_waited_for_for_long() {
        let (report, _receiver) = unread();
        let began = tokio::time::Instant::now();
        report.finish().await;
        assert_eq!(began.elapsed().as_secs(), PATIENCE.as_secs());
    }
}
