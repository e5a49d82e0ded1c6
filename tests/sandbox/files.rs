//! Calls about the files of a place, and the ways in which they are refused.

use std::path::Path;
use std::sync::Arc;

use longarm::fs::{CopyOptions, CreateDirectoryOptions, FileSystem, FsError, ReadOptions, RemoveOptions, WriteOptions};

use crate::row::Stage;

pub(crate) struct Files(pub(crate) Arc<dyn FileSystem>);

impl Files {
    /// Under the policy of the row.
    pub(crate) fn under(stage: &Stage<'_>) -> Self {
        Self(stage.files().unwrap())
    }

    /// Under none.
    pub(crate) fn free(stage: &Stage<'_>) -> Self {
        Self(stage.place.environment.fs())
    }

    pub(crate) async fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, FsError> {
        Ok(self.0.read(path.as_ref().into(), ReadOptions::new()).await?.to_vec())
    }

    pub(crate) async fn write(&self, path: impl AsRef<Path>, text: &'static str) -> Result<(), FsError> {
        self.0.write(path.as_ref().into(), text.into(), WriteOptions::new()).await
    }

    pub(crate) async fn mkdir(&self, path: impl AsRef<Path>, recursive: bool) -> Result<(), FsError> {
        self.0.create_directory(path.as_ref().into(), CreateDirectoryOptions::new().recursive(recursive)).await
    }

    pub(crate) async fn remove(&self, path: impl AsRef<Path>) -> Result<(), FsError> {
        self.0.remove(path.as_ref().into(), RemoveOptions::new().force(false)).await
    }

    pub(crate) async fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), FsError> {
        self.0.copy(from.as_ref().into(), to.as_ref().into(), CopyOptions::new().recursive(true)).await
    }
}

#[track_caller]
pub(crate) fn read_only<T: std::fmt::Debug>(result: Result<T, FsError>) {
    system_error(result, libc::EROFS);
}

#[track_caller]
pub(crate) fn busy<T: std::fmt::Debug>(result: Result<T, FsError>) {
    system_error(result, libc::EBUSY);
}

#[track_caller]
pub(crate) fn denied<T: std::fmt::Debug>(result: Result<T, FsError>) {
    let error = result.unwrap_err();
    assert!(matches!(error, FsError::PermissionDenied { .. }), "{error:?}");
}

#[track_caller]
pub(crate) fn hidden<T: std::fmt::Debug>(result: Result<T, FsError>) {
    let error = result.unwrap_err();
    assert!(matches!(error, FsError::NotFound { .. }), "{error:?}");
}

/// A system error that has no variant of its own. Of another machine its number is in the text.
#[track_caller]
fn system_error<T: std::fmt::Debug>(result: Result<T, FsError>, number: i32) {
    let error = result.unwrap_err();
    let FsError::Os { source, .. } = &error else { panic!("{error:?}") };
    let right = source.raw_os_error() == Some(number) || source.to_string().ends_with(&format!("(os error {number})"));
    assert!(right, "{error:?}");
}
