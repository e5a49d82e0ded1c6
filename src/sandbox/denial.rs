//! Whether a sandbox seems to have denied something to a process, and on which evidence.
//!
//! The rule is the reference's, so that its controllers behave the same; but the output is searched as it streams through,
//! so that nothing that has been let go of can hide a match. All of it is a report: output is in the hands of the process, and a denial
//! by itself must never grant anything.

use std::fmt;
use std::path::PathBuf;

use memchr::memmem;

use super::violation::{FileViolation, NameChange, SandboxBackend, ViolationReason};
use crate::event::OutputStream;
use crate::request::Signal;
use crate::status::ExitStatus;

/// Whether a sandbox seems to have denied something, and why it seems so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    /// What goes over the wire as `sandboxDenied`. It follows from the exit code and the output only.
    pub denied: bool,
    /// All that is known, guesses last. There may be some without a denial: a program that goes on where a call was refused, or
    /// a protected name that changed.
    pub evidence: Vec<Evidence>,
}

impl Denial {
    /// A report.
    pub const fn new(denied: bool, evidence: Vec<Evidence>) -> Self {
        Self { denied, evidence }
    }
}

/// One reason to think that a sandbox denied something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// The filter of system calls refused to make a socket. Only on Linux, and where the report on what is enforced has the
    /// mechanism `seccomp notification`.
    Seccomp {
        /// By its name: `socket` or `socketpair`.
        syscall: String,
        /// How often, by all processes of the sandbox.
        count: u64,
    },
    /// The signal of a forbidden system call ended the process.
    Signal {
        /// Its number.
        number: i32,
    },
    /// A protected name appeared or changed while the process ran, by it or by somebody outside of the sandbox. Programs
    /// execute what they find under such names.
    ProtectedName {
        /// Which.
        path: PathBuf,
        /// What became of it.
        change: NameChange,
        /// Where what appeared is now, if it was [moved](super::MissingProtected::SetAside).
        moved_to: Option<PathBuf>,
    },
    /// The protected names could not be looked at in time, since the file system did not answer. If they changed, a
    /// [violation](super::Violation) tells it later.
    NamesUnchecked,
    /// A phrase in the output. This is a guess: the process writes what it likes.
    Text {
        /// The phrase, in lower case.
        keyword: String,
        /// Where it was.
        stream: OutputStream,
    },
}

impl Evidence {
    /// Whether it comes from the process itself, and so proves nothing.
    pub const fn is_guess(&self) -> bool {
        matches!(self, Self::Text { .. })
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seccomp { syscall, count } => write!(f, "system call {syscall} refused {count} times"),
            Self::Signal { number } => write!(f, "ended by signal {number} (SIGSYS)"),
            Self::ProtectedName { path, change, moved_to } => {
                let what = match change {
                    NameChange::Appeared => "appeared",
                    NameChange::Replaced => "was replaced",
                    NameChange::Unknown => "changed",
                };
                write!(f, "protected name {} {what}", path.display())?;
                match moved_to {
                    Some(to) => write!(f, ", and was moved to {}", to.display()),
                    None => Ok(()),
                }
            }
            Self::NamesUnchecked => write!(f, "protected names could not be looked at in time"),
            Self::Text { keyword, stream } => {
                let stream = match stream {
                    OutputStream::Stdout => "standard output",
                    OutputStream::Stderr => "standard error",
                    OutputStream::Pty => "the terminal",
                };
                write!(f, "text {keyword:?} on {stream}")
            }
        }
    }
}

/// Watches the output of one sandboxed process.
#[derive(Clone, Debug)]
pub struct DenialWatch {
    backend: SandboxBackend,
    /// The first match.
    found: Option<(usize, OutputStream)>,
    /// The first path that a line with a match names.
    path: Option<String>,
    streams: [Line; 3],
    /// The end of the output of all streams together, in lower case, and the stream of its last byte.
    merged: Vec<u8>,
    last: Option<OutputStream>,
    /// How much has come since the stream was last another one.
    since_switch: usize,
    /// The beginning of the output, if it is wanted.
    snippet: Option<Vec<u8>>,
}

/// The end of a stream: the beginning of a line that is not complete.
#[derive(Clone, Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    /// Whether the beginning of the line is lost.
    cut: bool,
}

impl DenialWatch {
    /// A watch for a process in a sandbox of this kind; `snippets` is whether a violation is to carry a piece of the output.
    pub fn new(backend: SandboxBackend, snippets: bool) -> Self {
        Self {
            backend,
            found: None,
            path: None,
            streams: Default::default(),
            merged: Vec::new(),
            last: None,
            since_switch: 0,
            snippet: snippets.then(Vec::new),
        }
    }

    /// Takes the next output of a stream, in the order in which it was read.
    pub fn feed(&mut self, stream: OutputStream, bytes: &[u8]) {
        if let Some(snippet) = &mut self.snippet {
            let room = SNIPPET_BYTES.saturating_sub(snippet.len());
            snippet.extend(bytes.iter().take(room));
        }
        // Nothing that could still come would change the answer.
        if bytes.is_empty() || self.found.is_some() && self.path.is_some() {
            return;
        }
        self.look_at_seam(stream, bytes);
        let line = &mut self.streams[stream as usize];
        let carried = line.bytes.len();
        line.bytes.extend_from_slice(bytes);
        let lower = line.bytes.to_ascii_lowercase();
        if self.found.is_none() {
            let from = carried.saturating_sub(LONGEST - 1);
            self.found = first_keyword(lower.get(from..).unwrap_or_default()).map(|keyword| (keyword, stream));
        }
        let complete = memchr::memrchr(b'\n', &lower).map_or(0, |newline| newline + 1);
        if self.path.is_none() {
            self.path = denied_path(&line.bytes[..complete], &lower[..complete], line.cut);
        }
        line.cut = line.cut && complete == 0;
        line.bytes.drain(..complete);
        let excess = line.bytes.len().saturating_sub(LINE_BYTES);
        line.cut |= excess > 0;
        line.bytes.drain(..excess);
    }

    /// Whether the process that ended so seems to have been denied something. To be asked when the output that came with the
    /// end has been fed.
    pub fn classify(&self, status: ExitStatus) -> Denial {
        let code = status.wire_code();
        if code == 0 {
            return Denial::default();
        }
        let mut evidence = Vec::new();
        if let Some((keyword, stream)) = self.found {
            evidence.push(Evidence::Text { keyword: KEYWORDS[keyword].0.into(), stream });
        }
        let mut denied = self.found.is_some();
        // Elsewhere there are no such filters, and the number means another signal, or none.
        if self.backend == SandboxBackend::Linux {
            // The code alone counts as it does for the reference, and proves nothing: any program can end with it.
            denied |= code == 128 + SIGSYS;
            if status.signal() == Some(Signal::from_number(SIGSYS)) {
                evidence.push(Evidence::Signal { number: SIGSYS });
            }
        }
        Denial { denied, evidence }
    }

    /// The event that tells of `denial`, if it is one.
    pub fn violation(&self, denial: &Denial) -> Option<FileViolation> {
        if !denial.denied {
            return None;
        }
        let reason = match self.found {
            Some((keyword, _)) => KEYWORDS[keyword].1,
            // Nothing else counts without a phrase.
            None => ViolationReason::Sigsys,
        };
        let mut violation = FileViolation::new(self.backend, reason);
        violation.path = self.path.clone().or_else(|| {
            // A line that the end of the output completes.
            self.streams.iter().find_map(|line| denied_path(&line.bytes, &line.bytes.to_ascii_lowercase(), line.cut))
        });
        if let Some(snippet) = &self.snippet {
            violation = violation.snippet(&String::from_utf8_lossy(snippet));
        }
        Some(violation)
    }

    /// A match may begin in the output of one stream and end in that of another, as they were read.
    fn look_at_seam(&mut self, stream: OutputStream, bytes: &[u8]) {
        if self.last.is_some_and(|last| last != stream) {
            self.since_switch = 0;
        }
        if self.found.is_none() && self.since_switch < LONGEST - 1 {
            let mut seam = self.merged.clone();
            seam.extend(bytes.iter().take(LONGEST - 1).map(u8::to_ascii_lowercase));
            self.found = first_keyword(&seam).map(|keyword| (keyword, stream));
        }
        self.last = Some(stream);
        self.since_switch = self.since_switch.saturating_add(bytes.len());
        let kept = bytes.len().min(LONGEST - 1);
        self.merged.extend(bytes[bytes.len() - kept..].iter().map(u8::to_ascii_lowercase));
        let excess = self.merged.len().saturating_sub(LONGEST - 1);
        self.merged.drain(..excess);
    }
}

/// The keyword that is found first in a text of lower case.
fn first_keyword(lower: &[u8]) -> Option<usize> {
    let found = KEYWORDS.iter().enumerate();
    let found = found.filter_map(|(at, (keyword, _))| Some((memmem::find(lower, keyword.as_bytes())?, at)));
    found.min().map(|(_, keyword)| keyword)
}

/// The path of the first line that ends with an error of the system, as `cat: /etc/shadow: Permission denied`.
fn denied_path(text: &[u8], lower: &[u8], cut: bool) -> Option<String> {
    let phrases = KEYWORDS.iter().take(ERRNO_PHRASES).map(|(phrase, _)| phrase.as_bytes());
    let ends = phrases.flat_map(|phrase| memmem::find_iter(lower, phrase).map(move |at| (at, at + phrase.len())));
    let mut ends: Vec<_> =
        ends.filter(|(_, end)| matches!(text.get(*end..), Some([] | [b'\n', ..] | [b'\r', b'\n', ..]))).collect();
    ends.sort_unstable();
    ends.into_iter().find_map(|(at, _)| {
        let start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |newline| newline + 1);
        let before = text[start..at].strip_suffix(b": ")?;
        let path = match memmem::rfind(before, b": ") {
            Some(colon) => &before[colon + 2..],
            // The beginning of the line may be missing.
            None if start == 0 && cut => return None,
            None => before,
        };
        let path = std::str::from_utf8(path).ok()?;
        ["/", "./", "../"].iter().any(|start| path.starts_with(start)).then(|| path.into())
    })
}

/// What is looked for, and what an event calls it.
const KEYWORDS: [(&str, ViolationReason); 7] = [
    ("operation not permitted", ViolationReason::OperationNotPermitted),
    ("permission denied", ViolationReason::PermissionDenied),
    ("read-only file system", ViolationReason::ReadOnlyFileSystem),
    ("failed to write file", ViolationReason::FailedToWriteFile),
    ("seccomp", ViolationReason::PolicyDenied),
    ("sandbox", ViolationReason::PolicyDenied),
    ("landlock", ViolationReason::PolicyDenied),
];
/// How many of them are the system's own texts.
const ERRNO_PHRASES: usize = 3;
const LONGEST: usize = "operation not permitted".len();
/// Longer than most lines that name a path.
const LINE_BYTES: usize = 1024;
/// Enough for 512 characters.
const SNIPPET_BYTES: usize = 2048;
/// Its number on Linux, where alone filters send it.
const SIGSYS: i32 = 31;

#[cfg(test)]
mod tests;
