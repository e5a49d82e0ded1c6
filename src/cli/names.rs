//! What to tell of protected names that changed while a command ran.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use longarm::sandbox::{NameChange, Violation, ViolationSink};

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
    End(SyncSender<()>),
}

impl Report {
    pub(super) fn start() -> Self {
        let (lines, receiver) = sync_channel(ROOM);
        // Without the thread nobody takes the lines.
        drop(std::thread::Builder::new().name("report".into()).spawn(move || {
            receiver.iter().for_each(|line| match line {
                Line::Text(text) => complain(&text),
                // Who has lost patience is not there any more.
                Line::End(told) => drop(told.try_send(())),
            });
        }));
        Self { lines, lost: AtomicU64::new(0) }
    }

    /// Waits until all that was told is written, or nobody reads it. Blocks for as long.
    pub(super) fn finish(&self) {
        let (told, is_told) = sync_channel(1);
        if self.lines.try_send(Line::End(told)).is_ok() {
            // Whoever reads it has had his time.
            let _ = is_told.recv_timeout(PATIENCE);
        }
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
