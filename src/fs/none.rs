//! The files of a place that offers none.

use bytes::Bytes;

use super::{
    CopyOptions, CreateDirectoryOptions, DirectoryEntry, FileHandle, FileSystem, FsError, Metadata, MissingWatch,
    OpenMode, ReadOptions, RemoveOptions, RequestPath, Symlinks, Walk, WalkOptions, WriteOptions,
};
use crate::error::Unsupported;
use crate::path_uri::PathUri;

/// Refuses every call.
#[derive(Debug)]
pub(crate) struct NoFileSystem;

fn refused<T>() -> Result<T, FsError> {
    Err(Unsupported { feature: "access to files", place: "this place".into() }.into())
}

#[async_trait::async_trait]
impl FileSystem for NoFileSystem {
    async fn read(&self, _path: RequestPath, _options: ReadOptions) -> Result<Bytes, FsError> {
        refused()
    }

    async fn write(&self, _path: RequestPath, _data: Bytes, _options: WriteOptions) -> Result<(), FsError> {
        refused()
    }

    async fn open(&self, _path: RequestPath, _mode: OpenMode) -> Result<Box<dyn FileHandle>, FsError> {
        refused()
    }

    async fn create_directory(&self, _path: RequestPath, _options: CreateDirectoryOptions) -> Result<(), FsError> {
        refused()
    }

    async fn metadata(&self, _path: RequestPath, _symlinks: Symlinks) -> Result<Metadata, FsError> {
        refused()
    }

    async fn canonicalize(&self, _path: RequestPath) -> Result<PathUri, FsError> {
        refused()
    }

    async fn read_directory(&self, _path: RequestPath) -> Result<Vec<DirectoryEntry>, FsError> {
        refused()
    }

    async fn walk(&self, _path: RequestPath, _options: WalkOptions) -> Result<Walk, FsError> {
        refused()
    }

    async fn remove(&self, _path: RequestPath, _options: RemoveOptions) -> Result<(), FsError> {
        refused()
    }

    async fn copy(&self, _from: RequestPath, _to: RequestPath, _options: CopyOptions) -> Result<(), FsError> {
        refused()
    }

    async fn watch_missing(
        &self,
        _missing: Vec<RequestPath>,
        _present: Option<RequestPath>,
    ) -> Result<Option<MissingWatch>, FsError> {
        refused()
    }

    async fn temp_dir(&self) -> Result<PathUri, FsError> {
        refused()
    }

    async fn private_directory(&self) -> Result<PathUri, FsError> {
        refused()
    }
}
