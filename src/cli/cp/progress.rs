//! What was copied so far, and the line that shows it.

use std::cell::Cell;
use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use longarm::fs::FsError;

use super::location::Location;
use super::{Failure, is_fatal};
use crate::cli::{complain, explain, os};

pub(super) struct Progress {
    shown: bool,
    begun: Instant,
    counts: Cell<Counts>,
    failures: Cell<u64>,
    /// Whether there is a line to take away before anything else is written.
    drawn: Cell<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    files: u64,
    files_done: u64,
    bytes: u64,
    bytes_done: u64,
}

impl Progress {
    /// Shown only on a terminal.
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            shown: wanted && std::io::stderr().is_terminal(),
            begun: Instant::now(),
            counts: Cell::default(),
            failures: Cell::default(),
            drawn: Cell::default(),
        }
    }

    /// Sets how much there is to copy.
    pub(super) fn expect(&self, files: u64, bytes: u64) {
        self.counts.set(Counts { files, bytes, ..self.counts.get() });
    }

    pub(super) fn bytes_done(&self, bytes: u64) {
        let counts = self.counts.get();
        self.counts.set(Counts { bytes_done: counts.bytes_done.saturating_add(bytes), ..counts });
    }

    pub(super) fn file_done(&self) {
        let counts = self.counts.get();
        self.counts.set(Counts { files_done: counts.files_done + 1, ..counts });
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// Tells of a copy that failed; an error if nothing else can be copied either.
    pub(super) fn failed(&self, from: &Location, to: &Location, error: &FsError) -> Result<(), Failure> {
        self.fail(format!("cannot copy {from} to {to}: {}", explain(error)), error)
    }

    pub(super) fn failed_to_create(&self, to: &Location, error: &FsError) -> Result<(), Failure> {
        self.fail(format!("cannot create {to}: {}", explain(error)), error)
    }

    /// The same within a tree whose copy is planned; the error that ends all is left to the caller.
    pub(super) fn failed_in_tree(&self, from: &Location, to: &Location, error: FsError) -> Result<(), FsError> {
        self.failed(from, to, &error).map_err(|_| error)
    }

    fn fail(&self, reason: String, error: &FsError) -> Result<(), Failure> {
        if is_fatal(error) {
            return Err(Failure::Reason(reason));
        }
        self.failures.set(self.failures.get() + 1);
        self.say(&reason);
        Ok(())
    }

    /// Tells of what should have been copied.
    pub(super) fn not_copied(&self, what: &dyn Display, why: &str) {
        self.failures.set(self.failures.get() + 1);
        self.say(&format!("cannot copy {what}: {why}"));
    }

    /// Tells of what is not copied, and never is.
    pub(super) fn passed_over(&self, what: &dyn Display, why: &str) {
        self.say(&format!("passed over {what}: {why}"));
    }

    fn say(&self, text: &str) {
        self.erase();
        complain(text);
    }

    pub(super) fn draw(&self) {
        let counts = self.counts.get();
        if !self.shown || counts.files == 0 {
            return;
        }
        let width = os::terminal_size().map_or(80, |size| usize::from(size.cols));
        let line = counts.line(self.begun.elapsed(), width.saturating_sub(1));
        // There is nobody to show it to if the terminal is gone.
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        self.drawn.set(true);
    }

    /// Draws it for the last time, and leaves it there.
    pub(super) fn finish(&self) {
        self.draw();
        if self.drawn.replace(false) {
            let _ = writeln!(std::io::stderr());
        }
    }

    fn erase(&self) {
        if self.drawn.replace(false) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Counts {
    /// The line, at most so many characters long.
    fn line(self, elapsed: Duration, width: usize) -> String {
        let (share, total) =
            if self.bytes == 0 { (self.files_done, self.files) } else { (self.bytes_done, self.bytes) };
        // A file may have grown since it was counted.
        let percent = (share.min(total).saturating_mul(100)).checked_div(total).unwrap_or(100);
        let rate = self.bytes_done as f64 / elapsed.as_secs_f64().max(0.001);
        let mut text =
            format!(" {percent:>3}%  {} of {}  {}/s", size(self.bytes_done), size(self.bytes), size(rate as u64));
        if self.files > 1 {
            text.push_str(&format!("  {} of {} files", self.files_done, self.files));
        }
        let room = width.saturating_sub(text.len() + 2).min(40);
        let line = if room >= 10 {
            let filled = usize::try_from(percent).unwrap_or(100) * room / 100;
            format!("[{}{}]{text}", "#".repeat(filled), " ".repeat(room - filled))
        } else {
            text.trim_start().to_owned()
        };
        line.chars().take(width).collect()
    }
}

/// Bytes as a number of at most four digits and a unit.
fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].into_iter();
    let mut unit = units.next();
    while value >= 1000.0
        && let Some(larger) = units.next()
    {
        value /= 1024.0;
        unit = Some(larger);
    }
    let digits = usize::from(bytes >= 1000 && value < 100.0);
    format!("{value:.digits$} {}", unit.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (200 << 10, "200 KiB"),
            (3 << 20, "3.0 MiB"),
            (1 << 40, "1.0 TiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn the_line_fits_and_says_how_far_it_is() {
        let counts = Counts { files: 4, files_done: 1, bytes: 200 << 20, bytes_done: 50 << 20 };
        let second = Duration::from_secs(1);
        let line = counts.line(second, 100);
        assert_eq!(
            line,
            format!("[{}{}]  25%  50.0 MiB of 200 MiB  50.0 MiB/s  1 of 4 files", "#".repeat(10), " ".repeat(30))
        );
        for width in 0..100 {
            assert!(counts.line(second, width).len() <= width);
        }
        assert_eq!(counts.line(second, 55), "25%  50.0 MiB of 200 MiB  50.0 MiB/s  1 of 4 files");
        let empty = Counts { files: 2, files_done: 1, ..Counts::default() };
        assert!(empty.line(second, 80).contains(" 50%"));
        let grown = Counts { files: 1, bytes: 10, bytes_done: 20, ..Counts::default() };
        assert!(grown.line(Duration::ZERO, 80).contains("100%"));
    }
}
