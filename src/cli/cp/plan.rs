//! What there is to copy.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;

use futures_util::{StreamExt as _, stream};
use longarm::fs::{DirectoryEntry, FsError, Metadata, Symlinks};
use longarm::path_uri::PathUri;

use super::AT_A_TIME;
use super::file::FileCopy;
use super::location::Location;
use super::progress::Progress;

/// Directories to make, and files to copy into them.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) directories: Vec<Location>,
    pub(super) files: Vec<FileCopy>,
    /// Where files go, and whence.
    taken: HashMap<PathUri, Location>,
}

impl Plan {
    /// Adds a source. Links in a tree are not followed: they may lead out of it, or round in it.
    pub(super) async fn add(&mut self, from: &Location, to: &Location, progress: &Progress) -> Result<(), FsError> {
        let metadata = from.files().metadata(from.path(), Symlinks::Follow).await?;
        if !metadata.is_directory {
            if !metadata.is_file {
                return Err(FsError::NotAFile { path: from.path() });
            }
            self.add_file(from.clone(), to.clone(), metadata.size, progress);
            return Ok(());
        }
        let mut unread = vec![(from.clone(), to.clone())];
        while let Some((from, to)) = unread.pop() {
            self.directories.push(to.clone());
            if let Err(error) = self.add_entries(&from, &to, &mut unread, progress).await {
                progress.failed_in_tree(&from, &to, error)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, from: Location, to: Location, size: u64, progress: &Progress) {
        if self.claim(&from, &to, progress) {
            self.files.push(FileCopy { from, to, size });
        }
    }

    /// Takes a destination for a file. A second one for the same is a failure: they would become a mixture.
    pub(super) fn claim(&mut self, from: &Location, to: &Location, progress: &Progress) -> bool {
        match self.taken.entry(to.uri().clone()) {
            Entry::Vacant(free) => {
                free.insert(from.clone());
                true
            }
            Entry::Occupied(taken) => {
                progress.not_copied(&format_args!("{from} to {to}"), &format!("{} goes there", taken.get()));
                false
            }
        }
    }

    /// Adds what is in a directory.
    async fn add_entries(
        &mut self,
        from: &Location,
        to: &Location,
        unread: &mut Vec<(Location, Location)>,
        progress: &Progress,
    ) -> Result<(), FsError> {
        let entries = from.files().read_directory(from.path()).await?;
        let entries = stream::iter(entries).map(async |entry| {
            let metadata = examine(from, &entry).await;
            (entry, metadata)
        });
        let mut entries = pin!(entries.buffered(AT_A_TIME));
        while let Some((entry, metadata)) = entries.next().await {
            let (Ok(from), Ok(to)) = (from.entry(&entry), to.entry(&entry)) else {
                progress.not_copied(&format!("{:?} in {from}", entry.file_name), "its name has no path");
                continue;
            };
            match metadata {
                Err(FsError::NotFound { .. }) if entry.is_lossy() => {
                    progress.not_copied(&from, "its name is not Unicode, and the server cannot tell it");
                }
                Ok(metadata) if metadata.is_symlink => progress.passed_over(&from, "it is a link"),
                Ok(metadata) if metadata.is_directory => unread.push((from, to)),
                Ok(metadata) if metadata.is_file => self.add_file(from, to, metadata.size, progress),
                Ok(_) => progress.passed_over(&from, "it is neither a file nor a directory"),
                Err(error) => progress.failed_in_tree(&from, &to, error)?,
            }
        }
        Ok(())
    }
}

async fn examine(directory: &Location, entry: &DirectoryEntry) -> Result<Metadata, FsError> {
    match directory.entry(entry) {
        Ok(from) => from.files().metadata(from.path(), Symlinks::Follow).await,
        Err(_) => Ok(Metadata::default()),
    }
}
