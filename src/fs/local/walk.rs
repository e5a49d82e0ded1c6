//! The bounded walk.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::directory::{self, Listed};
use super::os::{self, Kind};
use super::pool::Wanted;
use crate::fs::{FsError, InvalidFsRequest, SkipReason, Skipped, Walk, WalkEntry, WalkFailure, WalkKind, WalkOptions};
use crate::path_uri::PathUri;

/// Walks through what lies below a directory.
pub(super) fn walk(root: &Path, options: WalkOptions, wanted: &Wanted) -> Result<Walk, FsError> {
    walk_with(&Whole, root, options, wanted)
}

/// The same of what there is to see.
pub(super) fn walk_with(view: &dyn View, root: &Path, options: WalkOptions, wanted: &Wanted) -> Result<Walk, FsError> {
    check(options)?;
    let (is_directory, is_symlink) = view.look(root).map_err(|error| FsError::from_io("examine", root, error))?;
    let (walk, skipped, seen) = (Walk::default(), Vec::new(), HashSet::new());
    let mut walker = Walker { view, options, wanted, walk, skipped, examined: 0, seen };
    if is_directory && (options.follow_directory_symlinks || !is_symlink) {
        walker.run(root)?;
    }
    Ok(Walk { skipped: Some(walker.skipped), ..walker.walk })
}

fn check(options: WalkOptions) -> Result<(), InvalidFsRequest> {
    if options.max_directories == 0 || options.max_entries == 0 {
        return Err(InvalidFsRequest::WalkLimitZero);
    }
    let (depth, directories, entries) =
        (WalkOptions::MAX_DEPTH, WalkOptions::MAX_DIRECTORIES, WalkOptions::MAX_ENTRIES);
    if options.max_depth > depth || options.max_directories > directories || options.max_entries > entries {
        return Err(InvalidFsRequest::WalkLimitTooLarge { depth, directories, entries });
    }
    Ok(())
}

/// Whether this is said of a link whose target does not exist, or that leads to itself.
fn leads_nowhere(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) || os::is_link_loop(error)
}

/// What there is to see.
pub(super) trait View {
    /// Whether a path leads to a directory, and whether it is a link itself.
    fn look(&self, path: &Path) -> io::Result<(bool, bool)>;

    /// The entries of a directory.
    fn list(&self, directory: &Path) -> io::Result<Vec<Listed>>;

    /// The same path without links.
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf>;
}

/// All that the system shows.
struct Whole;

impl View for Whole {
    fn look(&self, path: &Path) -> io::Result<(bool, bool)> {
        Ok((fs::metadata(path)?.is_dir(), fs::symlink_metadata(path)?.is_symlink()))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Listed>> {
        directory::list(directory)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }
}

struct Walker<'a> {
    view: &'a dyn View,
    options: WalkOptions,
    wanted: &'a Wanted,
    walk: Walk,
    skipped: Vec<Skipped>,
    examined: u64,
    /// The canonical paths of directories that were entered or will be. Only links lead to one twice, so that it remains
    /// empty while they are not followed.
    seen: HashSet<PathBuf>,
}

impl Walker<'_> {
    fn run(&mut self, root: &Path) -> Result<(), FsError> {
        let mut queue = VecDeque::from([(root.to_path_buf(), 0)]);
        if self.options.follow_directory_symlinks {
            let canonical = self.view.canonicalize(root);
            self.seen.insert(canonical.map_err(|error| FsError::from_io("resolve", root, error))?);
        }
        let mut entered = 0;
        while let Some((directory, depth)) = queue.pop_front() {
            if entered == self.options.max_directories {
                self.walk.truncated = true;
                return Ok(());
            }
            entered += 1;
            let mut listed = match self.view.list(&directory) {
                Ok(listed) => listed,
                Err(error) => {
                    self.fail(&directory, &error)?;
                    continue;
                }
            };
            listed.sort_unstable_by(|one, other| one.name.as_encoded_bytes().cmp(other.name.as_encoded_bytes()));
            for entry in listed {
                self.wanted.check()?;
                let path = directory.join(&entry.name);
                let target = match &entry.target {
                    Ok(target) => *target,
                    Err(error) if entry.is_symlink && leads_nowhere(error) => {
                        self.skip(&path, SkipReason::DanglingSymlink)?;
                        continue;
                    }
                    // It went meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => {
                        self.fail(&path, error)?;
                        continue;
                    }
                };
                if self.examined == self.options.max_entries {
                    self.walk.truncated = true;
                    return Ok(());
                }
                self.examined += 1;
                if self.report(&path, &entry, target)?
                    && depth < self.options.max_depth
                    && self.enters(&path, &entry.name)?
                {
                    queue.push_back((path, depth + 1));
                }
            }
        }
        Ok(())
    }

    /// Reports an entry; returns whether it is a directory that was reported.
    fn report(&mut self, path: &Path, entry: &Listed, target: Kind) -> Result<bool, FsError> {
        let kind = match target {
            Kind::Directory if !entry.is_symlink || self.options.follow_directory_symlinks => WalkKind::Directory,
            _ if entry.is_symlink => {
                self.skip(path, SkipReason::Symlink)?;
                return Ok(false);
            }
            Kind::File => WalkKind::File,
            _ => {
                self.skip(path, SkipReason::Special)?;
                return Ok(false);
            }
        };
        self.walk.entries.push(WalkEntry::new(directory::uri(path)?, kind));
        Ok(kind == WalkKind::Directory)
    }

    /// Whether a directory is to be entered, as far as it does not depend on the depth.
    fn enters(&mut self, path: &Path, name: &OsString) -> Result<bool, FsError> {
        if self.options.prune_hidden_directories && name.as_encoded_bytes().starts_with(b".") {
            return Ok(false);
        }
        if !self.options.follow_directory_symlinks {
            return Ok(true);
        }
        match self.view.canonicalize(path) {
            Ok(canonical) => {
                let first = self.seen.insert(canonical);
                if !first {
                    self.skip(path, SkipReason::AlreadyEntered)?;
                }
                Ok(first)
            }
            Err(error) => {
                self.fail(path, &error)?;
                Ok(false)
            }
        }
    }

    fn fail(&mut self, path: &Path, error: &io::Error) -> Result<(), FsError> {
        self.walk.errors.push(WalkFailure::new(directory::uri(path)?, error.to_string()));
        Ok(())
    }

    fn skip(&mut self, path: &Path, reason: SkipReason) -> Result<(), FsError> {
        // Links that lead nowhere do not count as entries, of which there would be a bound.
        if (self.skipped.len() as u64) < self.options.max_entries {
            let path: PathUri = directory::uri(path)?;
            self.skipped.push(Skipped::new(path, reason));
        }
        Ok(())
    }
}
