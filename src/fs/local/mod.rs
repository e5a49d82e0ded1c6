//! The files of this machine.
//!
//! Calls run on the blocking threads of the runtime, a bounded number at a time, those on trees apart from the others; one
//! on a tree stops when nobody waits for it any more. On Unix systems, where links are not to
//! be followed, paths are resolved by descriptors, so that what was checked is what is used; on Linux in one system call.
//!
//! # Under a sandbox
//!
//! What an intent does not restrict goes straight to the system. Elsewhere than on Linux the rest is refused, with the cause:
//! there, calls that read are made under an intent that lets everything be read, and no others. On Linux,
//! each step of a path is asked about, links are read by hand, and what was checked is what is used, so that exchanging
//! something meanwhile gains nothing; where the kernel has Landlock, the calls run on threads that restrict themselves
//! besides. Errors are those of the equivalent mounts: what may only be read is a read-only file system, what is denied is a
//! permission that is denied, and what cannot be seen does not exist.
//!
//! It decides by paths. A file that is denied and has another name, by a hard link or a mount, can be reached by that; and
//! a directory that ignores case has several spellings of a name, of which it knows one.

mod config;
mod copy;
mod directory;
mod handle;
mod path;
mod pool;
mod read;
mod remove;
mod rules;
#[cfg(target_os = "linux")]
mod sandbox;
mod tree;
#[cfg(unix)]
mod unix;
#[cfg(any(not(target_os = "linux"), test))]
mod unwalked;
mod walk;
mod watch;
#[cfg(windows)]
mod windows;
mod write;

/// The operating system layer: `windows.rs` has the names of `unix.rs`.
#[cfg(unix)]
use self::unix as os;
#[cfg(windows)]
use self::windows as os;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

pub use self::config::LocalFileSystemConfig;
use self::handle::LocalHandle;
use self::path::resolve;
use self::pool::Pool;
use super::{
    CopyOptions, CreateDirectoryOptions, DirectoryEntry, FileHandle, FileSystem, FsError, Metadata, MissingWatch,
    OpenMode, ReadOptions, RemoveOptions, RequestPath, Symlinks, Walk, WalkOptions, WriteOptions,
};
use crate::error::Unsupported;
use crate::path_uri::PathUri;
use crate::sandbox::{Bound, KeepsOwn, MissingOwn, SandboxError, SandboxIntent};

/// The files of this machine. See the [module documentation](self). All calls must be made within a tokio runtime with its
/// I/O and time drivers enabled.
///
/// # Platform notes
///
/// Elsewhere than on Linux, missing paths are looked for every 2 s. On Windows, that a path has no links is checked before
/// it is used, and another program can change it in between.
#[derive(Clone, Debug)]
pub struct LocalFileSystem {
    config: LocalFileSystemConfig,
    pool: Pool,
    /// Calls on whole trees have their own threads: they take long, and many of them are not to hold up the others.
    trees: Pool,
    #[cfg(target_os = "linux")]
    plans: Arc<sandbox::Plans>,
    /// What calls under a sandbox may not write to.
    own: Option<Arc<dyn KeepsOwn>>,
}

impl LocalFileSystem {
    /// The files of this machine, with these settings.
    pub fn new(config: LocalFileSystemConfig) -> Self {
        let pool = Pool::new(config.blocking_calls);
        let trees = Pool::new(config.blocking_calls / 4);
        Self {
            config,
            pool,
            trees,
            #[cfg(target_os = "linux")]
            plans: Arc::default(),
            own: None,
        }
    }

    /// Keeps calls under a sandbox out of the executor's own directories.
    pub(crate) fn keeping(mut self, own: Arc<dyn KeepsOwn>) -> Self {
        self.own = Some(own);
        self
    }

    /// Takes the executor's own directories out of what an intent allows. May block.
    fn keep_own(&self, bound: &mut Bound) -> Result<(), SandboxError> {
        self.own.as_ref().map_or(Ok(()), |own| own.keep_own(bound, MissingOwn::Make))
    }

    /// Waits until no call runs.
    pub(crate) async fn idle(&self) {
        self.pool.idle().await;
        self.trees.idle().await;
    }

    fn configured_temp_dir(&self) -> Result<PathBuf, FsError> {
        match &self.config.temp_dir {
            Some(path) => Ok(resolve(&path.into())?),
            None => {
                Err(Unsupported { feature: "a temporary directory", place: "this machine's settings".into() }.into())
            }
        }
    }
}

#[async_trait::async_trait]
impl FileSystem for LocalFileSystem {
    async fn read(&self, path: RequestPath, options: ReadOptions) -> Result<Bytes, FsError> {
        let path = resolve(&path)?;
        let limit = options.max_bytes.unwrap_or(self.config.max_read_bytes);
        self.pool.run(move || read::read(&path, options.symlinks, limit)).await
    }

    async fn write(&self, path: RequestPath, data: Bytes, options: WriteOptions) -> Result<(), FsError> {
        let path = resolve(&path)?;
        self.pool.run(move || write::write(&path, &data, options)).await
    }

    async fn open(&self, path: RequestPath, mode: OpenMode) -> Result<Box<dyn FileHandle>, FsError> {
        let path = resolve(&path)?;
        let pool = self.pool.clone();
        let handle = self.pool.run(move || LocalHandle::open(pool, path, mode)).await?;
        Ok(Box::new(handle))
    }

    async fn create_directory(&self, path: RequestPath, options: CreateDirectoryOptions) -> Result<(), FsError> {
        let path = resolve(&path)?;
        self.pool.run(move || directory::create(&path, options)).await
    }

    async fn metadata(&self, path: RequestPath, symlinks: Symlinks) -> Result<Metadata, FsError> {
        let path = resolve(&path)?;
        self.pool.run(move || directory::metadata(&path, symlinks)).await
    }

    async fn canonicalize(&self, path: RequestPath) -> Result<PathUri, FsError> {
        let path = resolve(&path)?;
        self.pool.run(move || directory::canonicalize(&path)).await
    }

    async fn read_directory(&self, path: RequestPath) -> Result<Vec<DirectoryEntry>, FsError> {
        let path = resolve(&path)?;
        self.pool.run(move || directory::read(&path)).await
    }

    async fn walk(&self, path: RequestPath, options: WalkOptions) -> Result<Walk, FsError> {
        let path = resolve(&path)?;
        self.trees.run_until_dropped(move |wanted| walk::walk(&path, options, wanted)).await
    }

    async fn remove(&self, path: RequestPath, options: RemoveOptions) -> Result<(), FsError> {
        let path = resolve(&path)?;
        self.trees.run_until_dropped(move |wanted| remove::remove(&path, options, wanted)).await
    }

    async fn copy(&self, source: RequestPath, destination: RequestPath, options: CopyOptions) -> Result<(), FsError> {
        let (source, destination) = (resolve(&source)?, resolve(&destination)?);
        self.trees.run_until_dropped(move |wanted| copy::copy(&source, &destination, options, wanted)).await
    }

    async fn watch_missing(
        &self,
        missing: Vec<RequestPath>,
        present: Option<RequestPath>,
    ) -> Result<Option<MissingWatch>, FsError> {
        // A path that this machine cannot have is one that it cannot watch.
        let Ok(missing) = missing.iter().map(resolve).collect() else { return Ok(None) };
        let Ok(present) = present.as_ref().map(resolve).transpose() else { return Ok(None) };
        watch::watch(&self.pool, missing, present).await
    }

    async fn temp_dir(&self) -> Result<PathUri, FsError> {
        directory::uri(&self.configured_temp_dir()?)
    }

    async fn private_directory(&self) -> Result<PathUri, FsError> {
        let parent = self.configured_temp_dir()?;
        self.pool.run(move || directory::create_private(&parent)).await
    }

    fn with_sandbox(self: Arc<Self>, intent: SandboxIntent) -> Result<Arc<dyn FileSystem>, FsError> {
        if intent.is_dynamic() && intent.effective_cwd().is_none() {
            return Err(SandboxError::invalid("it names workspace roots or relative patterns, and has no cwd").into());
        }
        sandboxed(self, intent)
    }
}

#[cfg(target_os = "linux")]
fn sandboxed(fs: Arc<LocalFileSystem>, intent: SandboxIntent) -> Result<Arc<dyn FileSystem>, FsError> {
    Ok(sandbox::view(LocalFileSystem::clone(&fs), intent))
}

/// Only what can be left to the system.
#[cfg(not(target_os = "linux"))]
#[allow(clippy::unnecessary_wraps, reason = "it has the form of that of Linux")]
fn sandboxed(fs: Arc<LocalFileSystem>, intent: SandboxIntent) -> Result<Arc<dyn FileSystem>, FsError> {
    if !intent.restricts_files() {
        return Ok(fs);
    }
    Ok(Arc::new(unwalked::Unwalked::new(LocalFileSystem::clone(&fs), intent)))
}
