//! Watching for paths that do not exist.
//!
//! Linux tells; elsewhere, and when no more can be watched so, everything is looked at again every
//! [`INTERVAL`](poll::INTERVAL).

#[cfg(target_os = "linux")]
mod inotify;
mod poll;

use std::path::{Path, PathBuf};

use super::pool::Pool;
use crate::fs::{FsError, MAX_MISSING_PATHS, MissingWatch};

#[cfg(target_os = "linux")]
use self::inotify as system;
#[cfg(not(target_os = "linux"))]
use self::poll as system;

/// What is watched.
#[derive(Debug)]
struct Watched {
    /// Paths that do not exist.
    missing: Vec<PathBuf>,
    /// A path that does.
    present: Option<PathBuf>,
}

/// Starts a watch. None if that is not possible.
pub(super) async fn watch(
    pool: &Pool,
    missing: Vec<PathBuf>,
    present: Option<PathBuf>,
) -> Result<Option<MissingWatch>, FsError> {
    if missing.is_empty() || missing.len() > MAX_MISSING_PATHS {
        return Ok(None);
    }
    system::watch(pool, Watched { missing, present }).await
}

/// The directories above a path, from the root on, with the name of the next component in each.
fn steps(path: &Path) -> Vec<(&Path, &Path)> {
    let mut paths: Vec<&Path> = path.ancestors().collect();
    paths.reverse();
    paths.iter().copied().zip(paths.iter().copied().skip(1)).collect()
}
