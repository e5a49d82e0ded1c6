//! Looking again and again.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::super::pool::Pool;
use super::{Watched, steps};
use crate::fs::{FsError, MissingWatch};

/// How often it is looked. 2 s: short for somebody who waits, and nothing for a machine.
pub(super) const INTERVAL: Duration = Duration::from_secs(2);

/// Starts a watch. None if that is not possible.
pub(super) async fn watch(pool: &Pool, watched: Watched) -> Result<Option<MissingWatch>, FsError> {
    let pool = pool.clone();
    let (watched, first) = pool
        .run(move || {
            let first = look(&watched);
            Ok((watched, first))
        })
        .await?;
    let Some(first) = first else { return Ok(None) };
    Ok(Some(MissingWatch::new(async move {
        let mut watched = watched;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let now;
            (watched, now) = pool
                .run(move || {
                    let now = look(&watched);
                    Ok((watched, now))
                })
                .await?;
            if now.as_ref() != Some(&first) {
                return Ok(());
            }
        }
    })))
}

/// What there is to see. None if a missing path is there, the present one is not, or there is a link on the way.
fn look(watched: &Watched) -> Option<Vec<Seen>> {
    let mut seen = Vec::new();
    for path in &watched.missing {
        look_at_missing(path, &mut seen)?;
    }
    if let Some(path) = &watched.present {
        for (directory, _) in steps(path) {
            seen.push(Seen::directory(directory, &fs::symlink_metadata(directory).ok().filter(Metadata::is_dir)?));
        }
        let found = fs::symlink_metadata(path).ok().filter(|found| !found.is_symlink())?;
        seen.push(Seen::present(path, &found));
    }
    Some(seen)
}

/// Adds the directories above a missing path, down to the nearest that exists.
fn look_at_missing(path: &Path, seen: &mut Vec<Seen>) -> Option<()> {
    for (directory, next) in steps(path) {
        let found = fs::symlink_metadata(directory).ok().filter(Metadata::is_dir)?;
        seen.push(Seen::directory(directory, &found));
        match fs::symlink_metadata(next) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(()),
            Err(_) => return None,
        }
    }
    // All of it exists.
    None
}

/// What is compared of one path.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    path: PathBuf,
    permissions: Permissions,
    created: Option<SystemTime>,
    /// Size and time of a file that is to be present.
    content: Option<(u64, Option<SystemTime>)>,
}

impl Seen {
    fn directory(path: &Path, found: &Metadata) -> Self {
        Self { path: path.into(), permissions: found.permissions(), created: found.created().ok(), content: None }
    }

    fn present(path: &Path, found: &Metadata) -> Self {
        let content = (!found.is_dir()).then(|| (found.len(), found.modified().ok()));
        Self { content, ..Self::directory(path, found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_missing_path_is_noticed_when_it_is_looked_for_again() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let pool = Pool::new(1);
        let watched = Watched { missing: vec![root.join("a/b")], present: None };
        let watch = watch(&pool, watched).await.unwrap().unwrap();
        fs::create_dir(root.join("other")).unwrap();
        let mut watch = Box::pin(watch);
        let early = tokio::time::timeout(INTERVAL * 3, &mut watch).await;
        assert!(early.is_err(), "another name is no reason");
        fs::create_dir(root.join("a")).unwrap();
        watch.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_present_file_is_noticed_when_it_changes_or_goes() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let present = root.join("present");
        let pool = Pool::new(1);
        let watched = || Watched { missing: vec![root.join("missing")], present: Some(present.clone()) };
        assert!(watch(&pool, watched()).await.unwrap().is_none(), "it does not exist");
        fs::write(&present, "1").unwrap();
        let modified = watch(&pool, watched()).await.unwrap().unwrap();
        fs::write(&present, "22").unwrap();
        modified.await.unwrap();
        let removed = watch(&pool, watched()).await.unwrap().unwrap();
        fs::remove_file(&present).unwrap();
        removed.await.unwrap();
    }
}
