//! How much one intent may ask for. Whoever sends more than anybody needs is refused at once, before it costs time and memory
//! that others want.

use super::error::SandboxError;

/// Entries as they are sent, and paths that they stand for.
pub(super) const ENTRIES: usize = 4096;
/// Workspace roots, and so many listed directories for temporary files.
pub(super) const ROOTS: usize = 256;
/// One path. No system that has such intents has longer ones.
pub(super) const PATH_BYTES: usize = if cfg!(windows) { 32 << 10 } else { 4095 };
/// All paths, what is on the way to them, and the links there.
pub(super) const ALL_PATHS_BYTES: usize = 2 << 20;
/// Patterns below all that they are relative to.
pub(super) const PATTERNS: usize = 1024;
/// Characters of all patterns. Each is compared with each of every path that is asked about.
pub(super) const PATTERN_CHARACTERS: usize = 16 << 10;

/// The refusal of more than so many of something.
pub(super) fn exceeded(limit: usize, of: &str) -> SandboxError {
    SandboxError::preparation(format!("it comes to more than {limit} {of}, which is as much as one intent may"))
}

/// Refuses more than so many.
pub(super) fn check(count: usize, limit: usize, of: &str) -> Result<(), SandboxError> {
    if count > limit { Err(exceeded(limit, of)) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
