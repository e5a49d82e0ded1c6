//! The files of this machine under an intent, where no walk can decide about single paths: what the intent leaves to the system
//! as a whole is left to it, and the rest is refused.
//!
//! The walk that Linux has decides by the text of canonical paths. Other systems have several texts for one file: they ignore
//! the case and the composition of letters, and show a volume under two directories. What would have to be asked of the system
//! about that has not been proven on any of them.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::LocalFileSystem;
use crate::fs::{
    CopyOptions, CreateDirectoryOptions, DirectoryEntry, FileHandle, FileSystem, FsError, Metadata, MissingWatch,
    OpenMode, ReadOptions, RemoveOptions, RequestPath, Symlinks, Walk, WalkOptions, WriteOptions,
};
use crate::path_uri::PathUri;
use crate::sandbox::{Class, Facts, SandboxError, SandboxIntent, SandboxSettings};

/// The files of this machine, as far as an intent leaves them to the system.
#[derive(Debug)]
pub(super) struct Unwalked {
    fs: LocalFileSystem,
    intent: Arc<SandboxIntent>,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Read,
    Change,
}

/// Whether a call may be left to the system.
///
/// # Errors
///
/// Why it is refused.
fn decide(class: Class, purpose: Purpose) -> Result<(), SandboxError> {
    match (class, purpose) {
        (Class::Nothing | Class::FullWrite, _) | (Class::FullRead, Purpose::Read) => Ok(()),
        (Class::FullRead | Class::RestrictedRead, _) => {
            let system = std::env::consts::OS;
            Err(SandboxError::unavailable(
                format!("calls about files that an intent allows by their paths are not decided about on {system}"),
                "read under an intent that lets everything be read, and make changes without an intent, where they may be made so",
            ))
        }
    }
}

impl Unwalked {
    pub(super) fn new(fs: LocalFileSystem, intent: SandboxIntent) -> Self {
        Self { fs, intent: Arc::new(intent) }
    }

    /// Binds the intent, since what its paths lead to can change between two calls.
    async fn check(&self, purpose: Purpose) -> Result<(), FsError> {
        let (intent, fs) = (Arc::clone(&self.intent), self.fs.clone());
        let bind = move || {
            let config = &fs.config;
            let settings = config
                .protected_names
                .iter()
                .fold(SandboxSettings::default(), |settings, name| settings.protect_name(name));
            let temp_dir = config.temp_dir.as_deref().unwrap_or_else(|| Path::new(""));
            let mut bound = intent.bind(&Facts::host(&settings, temp_dir))?;
            fs.keep_own(&mut bound)?;
            Ok(decide(bound.class, purpose)?)
        };
        self.fs.pool.run(bind).await
    }
}

#[async_trait::async_trait]
impl FileSystem for Unwalked {
    async fn read(&self, path: RequestPath, options: ReadOptions) -> Result<Bytes, FsError> {
        self.check(Purpose::Read).await?;
        self.fs.read(path, options).await
    }

    async fn write(&self, path: RequestPath, data: Bytes, options: WriteOptions) -> Result<(), FsError> {
        self.check(Purpose::Change).await?;
        self.fs.write(path, data, options).await
    }

    async fn open(&self, path: RequestPath, mode: OpenMode) -> Result<Box<dyn FileHandle>, FsError> {
        let reads = mode == OpenMode::Read;
        self.check(if reads { Purpose::Read } else { Purpose::Change }).await?;
        self.fs.open(path, mode).await
    }

    async fn create_directory(&self, path: RequestPath, options: CreateDirectoryOptions) -> Result<(), FsError> {
        self.check(Purpose::Change).await?;
        self.fs.create_directory(path, options).await
    }

    async fn metadata(&self, path: RequestPath, symlinks: Symlinks) -> Result<Metadata, FsError> {
        self.check(Purpose::Read).await?;
        self.fs.metadata(path, symlinks).await
    }

    async fn canonicalize(&self, path: RequestPath) -> Result<PathUri, FsError> {
        self.check(Purpose::Read).await?;
        self.fs.canonicalize(path).await
    }

    async fn read_directory(&self, path: RequestPath) -> Result<Vec<DirectoryEntry>, FsError> {
        self.check(Purpose::Read).await?;
        self.fs.read_directory(path).await
    }

    async fn walk(&self, path: RequestPath, options: WalkOptions) -> Result<Walk, FsError> {
        self.check(Purpose::Read).await?;
        self.fs.walk(path, options).await
    }

    async fn remove(&self, path: RequestPath, options: RemoveOptions) -> Result<(), FsError> {
        self.check(Purpose::Change).await?;
        self.fs.remove(path, options).await
    }

    async fn copy(&self, source: RequestPath, destination: RequestPath, options: CopyOptions) -> Result<(), FsError> {
        self.check(Purpose::Change).await?;
        self.fs.copy(source, destination, options).await
    }

    async fn watch_missing(
        &self,
        missing: Vec<RequestPath>,
        present: Option<RequestPath>,
    ) -> Result<Option<MissingWatch>, FsError> {
        self.check(Purpose::Read).await?;
        self.fs.watch_missing(missing, present).await
    }

    async fn temp_dir(&self) -> Result<PathUri, FsError> {
        self.fs.temp_dir().await
    }

    async fn private_directory(&self) -> Result<PathUri, FsError> {
        self.check(Purpose::Change).await?;
        self.fs.private_directory().await
    }

    fn with_sandbox(self: Arc<Self>, intent: SandboxIntent) -> Result<Arc<dyn FileSystem>, FsError> {
        drop(intent);
        Err(SandboxError::invalid("these files are under a sandbox already; begin with those of the place").into())
    }
}

#[cfg(test)]
mod tests;
