//! From denied patterns to the paths that match them now.

use std::path::PathBuf;

use super::bound::{Bound, BoundEntry, Existing, Origin};
use super::error::SandboxError;
use super::facts::{Found, PathIdentity};
use super::glob::BoundGlob;
use super::intent::Access;

impl Bound {
    /// Adds an entry for each path that a denied pattern matches now, for mechanisms that know paths and no patterns. What
    /// appears later is not covered by those. A link that matches is passed over: what it leads to is denied, or not, by its
    /// own path. Looks at the file system, and so may block.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Preparation`] if a directory cannot be listed, or there are too many matches or too much to look at:
    /// never fewer entries than matches. [`SandboxError::Changed`] if a pattern's beginning is not what it was bound to.
    pub fn expand_globs(&mut self, identity: &dyn PathIdentity) -> Result<(), SandboxError> {
        let mut scan = Scan { identity, looked: 0, work: 0, matches: Vec::new() };
        for glob in &self.globs {
            scan.run(glob, self)?;
        }
        // On the same path, deny goes first.
        let mut entries: Vec<_> = scan.matches.into_iter().map(|(path, kind)| denied(path, kind)).collect();
        entries.append(&mut self.entries);
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        entries.dedup_by(|later, earlier| later.path == earlier.path);
        self.entries = entries;
        Ok(())
    }
}

impl Bound {
    /// What was found to match a pattern may be gone when it is looked at again: as with what appears later, nothing is said of it
    /// then.
    pub(crate) fn let_matches_go(&mut self) {
        let matches = self.entries.iter_mut().filter(|entry| entry.origin == Origin::Glob);
        matches.for_each(|entry| entry.skip_missing = true);
    }
}

fn denied(path: PathBuf, kind: Existing) -> BoundEntry {
    let (lexical, origin) = (path.clone(), Origin::Glob);
    BoundEntry { path, lexical, access: Access::Deny, kind, skip_missing: false, origin }
}

struct Scan<'a> {
    identity: &'a dyn PathIdentity,
    looked: usize,
    work: u64,
    matches: Vec<(PathBuf, Existing)>,
}

impl Scan<'_> {
    fn run(&mut self, glob: &BoundGlob, bound: &Bound) -> Result<(), SandboxError> {
        let failed = |reason: String| SandboxError::preparation(format!("pattern `{}`: {reason}", glob.text));
        let depth_limit = bound.glob_scan_max_depth.unwrap_or(u32::MAX);
        let denied = bound.nearest(&glob.base).is_some_and(|entry| entry.access == Access::Deny);
        let mut directories = vec![(glob.base.clone(), glob.pattern.start(), 0, denied)];
        while let Some((directory, states, depth, denied)) = directories.pop() {
            let names = match self.identity.list(&directory) {
                Ok(names) => names,
                Err(error)
                    if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
                {
                    // What is away for a moment would come back with all that matches.
                    if directory == glob.base && glob.has_base {
                        let what = format!("{} has changed while the sandbox was prepared", directory.display());
                        return Err(SandboxError::changed(format!("pattern `{}`: {what}", glob.text)));
                    }
                    continue;
                }
                Err(error) => return Err(failed(format!("{} cannot be listed: {error}", directory.display()))),
            };
            for (name, found) in names {
                self.looked += 1;
                if self.looked > MAX_LOOKED_AT {
                    return Err(failed(format!("there are more than {MAX_LOOKED_AT} files to look at")));
                }
                let next = glob.pattern.step(&states, &name, &mut self.work);
                if self.work > MAX_WORK {
                    return Err(failed(format!("there are more than {MAX_WORK} characters to compare with patterns")));
                }
                let kind = match found {
                    Found::Directory => Existing::Directory,
                    Found::File => Existing::File,
                    Found::Other => Existing::Other,
                    Found::Link(_) | Found::Missing => continue,
                };
                let path = directory.join(name);
                // Below what is denied already, only what is open again is of interest.
                let denied = bound.entry(&path).map_or(denied, |entry| entry.access == Access::Deny);
                let matched = !denied && glob.pattern.accepts(&next);
                let denied = denied || matched;
                let worthwhile = next.contains(&true) && (!denied || bound.opens_below(&path));
                if kind == Existing::Directory && worthwhile && depth + 1 < depth_limit {
                    directories.push((path.clone(), next, depth + 1, denied));
                }
                if matched {
                    if self.matches.len() == MAX_MATCHES {
                        return Err(failed(format!("more than {MAX_MATCHES} paths match")));
                    }
                    self.matches.push((path, kind));
                }
            }
        }
        Ok(())
    }
}

/// As many as the reference takes.
const MAX_MATCHES: usize = 8192;
/// A walk that does not end in time would hold up every start.
const MAX_LOOKED_AT: usize = 1_000_000;
/// Names can be long, and patterns as slow to compare with them as there are characters in both. Seconds.
const MAX_WORK: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
