//! The files of this machine under an intent.
//!
//! Two walls, where the kernel has both. The first is a walk along the path that asks the policy about each step
//! ([`resolve`]) and uses what it has checked. The second is Landlock, on threads that serve one policy only ([`crew`]): it
//! knows the coarse shape, and holds even if the first has a hole. Calls that the policy leaves alone go straight to the
//! system.
//!
//! The intent is bound to paths when it is first needed. Every later call first looks whether that still holds.

mod crew;
mod files;
mod guard;
mod landlock;
mod plan;
mod resolve;
mod system;
mod trees;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

pub(super) use self::plan::Plans;

use self::guard::Guard;
use self::plan::{Plan, Purpose};
use super::handle::LocalHandle;
use super::path::resolve as native;
use super::pool::{Pool, Wanted, wanted};
use super::{LocalFileSystem, directory};
use crate::fs::{
    CopyOptions, CreateDirectoryOptions, DirectoryEntry, FileHandle, FileSystem, FsError, Metadata, MissingWatch,
    OpenMode, ReadOptions, RemoveOptions, RequestPath, Symlinks, Walk, WalkOptions, WriteOptions,
};
use crate::path_uri::PathUri;
use crate::sandbox::{SandboxError, SandboxIntent};

/// The files of this machine, as far as an intent allows.
#[derive(Debug)]
pub(super) struct Sandboxed {
    fs: LocalFileSystem,
    intent: Arc<SandboxIntent>,
    /// The last plan that held.
    plan: Mutex<Option<Arc<Plan>>>,
}

/// A view of the files under an intent.
pub(super) fn view(fs: LocalFileSystem, intent: SandboxIntent) -> Arc<dyn FileSystem> {
    Arc::new(Sandboxed { fs, intent: Arc::new(intent), plan: Mutex::default() })
}

/// What becomes of a call: it is given back if it was not begun because its plan does not hold any more.
type Tried<T, F> = Result<Result<T, FsError>, F>;

impl Sandboxed {
    async fn plan(&self) -> Result<Arc<Plan>, FsError> {
        let known = self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known.or_else(|| self.fs.plans.known(&self.intent)) {
            Some(plan) => Ok(plan),
            None => self.new_plan().await,
        }
    }

    async fn new_plan(&self) -> Result<Arc<Plan>, FsError> {
        let (fs, intent) = (self.fs.clone(), Arc::clone(&self.intent));
        let plan = self.fs.pool.run(move || Ok(fs.plans.make(&intent, &fs)?)).await?;
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&plan));
        Ok(plan)
    }

    /// The plan that decides about a call. None where the intent restricts nothing of it, and the system decides alone.
    async fn strict(&self, purpose: Purpose) -> Result<Option<Arc<Plan>>, FsError> {
        let mut plan = self.plan().await?;
        for attempt in 1..=ATTEMPTS {
            if !plan.leaves_to_system() {
                return Ok(Some(plan));
            }
            let last = Arc::clone(&plan);
            if attempt == ATTEMPTS
                || plan.is_settled(purpose)
                || self.fs.pool.run(move || Ok(last.holds(purpose))).await?
            {
                break;
            }
            plan = self.new_plan().await?;
        }
        Ok(None)
    }

    /// Makes a call on a thread behind the second wall, under a plan that holds.
    async fn run<T, F>(&self, pool: &Pool, mut plan: Arc<Plan>, purpose: Purpose, mut call: F) -> Result<T, FsError>
    where
        T: Send + 'static,
        F: FnOnce(&Guard, &Wanted) -> Result<T, FsError> + Send + 'static,
    {
        let (wanted, _unwanted_when_dropped) = wanted();
        for attempt in 0..ATTEMPTS {
            let (for_call, wanted, check) = (Arc::clone(&plan), wanted.clone(), attempt + 1 < ATTEMPTS);
            let job = move || -> Result<Tried<T, F>, FsError> {
                wanted.check()?;
                if check && !for_call.holds(purpose) {
                    return Ok(Err(call));
                }
                Ok(Ok(call(&for_call.guard, &wanted)))
            };
            let tried = match &plan.crew {
                Some(crew) => crew.run(pool, job).await?,
                None => pool.run(job).await?,
            };
            match tried {
                Ok(done) => return done,
                Err(unused) => {
                    call = unused;
                    plan = self.new_plan().await?;
                }
            }
        }
        Err(FsError::Closed)
    }
}

/// A plan that never holds, since its paths change all the time, is used as soon as it is made.
const ATTEMPTS: usize = 8;

#[async_trait::async_trait]
impl FileSystem for Sandboxed {
    async fn read(&self, path: RequestPath, options: ReadOptions) -> Result<Bytes, FsError> {
        let Some(plan) = self.strict(Purpose::Read).await? else { return self.fs.read(path, options).await };
        let path = native(&path)?;
        let limit = options.max_bytes.unwrap_or(self.fs.config.max_read_bytes);
        let call = move |guard: &Guard, _: &Wanted| files::read(guard, &path, options.symlinks, limit);
        self.run(&self.fs.pool, plan, Purpose::Read, call).await
    }

    async fn write(&self, path: RequestPath, data: Bytes, options: WriteOptions) -> Result<(), FsError> {
        let Some(plan) = self.strict(Purpose::Change).await? else { return self.fs.write(path, data, options).await };
        let path = native(&path)?;
        let call = move |guard: &Guard, _: &Wanted| files::write(guard, &path, &data, options);
        self.run(&self.fs.pool, plan, Purpose::Change, call).await
    }

    async fn open(&self, path: RequestPath, mode: OpenMode) -> Result<Box<dyn FileHandle>, FsError> {
        let readable = mode == OpenMode::Read;
        let purpose = if readable { Purpose::Read } else { Purpose::Change };
        let Some(plan) = self.strict(purpose).await? else { return self.fs.open(path, mode).await };
        let path = native(&path)?;
        let pool = self.fs.pool.clone();
        let call = move |guard: &Guard, _: &Wanted| {
            let file = files::open(guard, &path, mode)?;
            Ok(LocalHandle::of(pool, path, file, readable))
        };
        // It was checked now: what is done with it later needs no second check.
        Ok(Box::new(self.run(&self.fs.pool, plan, purpose, call).await?))
    }

    async fn create_directory(&self, path: RequestPath, options: CreateDirectoryOptions) -> Result<(), FsError> {
        let Some(plan) = self.strict(Purpose::Change).await? else {
            return self.fs.create_directory(path, options).await;
        };
        let path = native(&path)?;
        let call = move |guard: &Guard, _: &Wanted| files::create_directory(guard, &path, options);
        self.run(&self.fs.pool, plan, Purpose::Change, call).await
    }

    async fn metadata(&self, path: RequestPath, symlinks: Symlinks) -> Result<Metadata, FsError> {
        let Some(plan) = self.strict(Purpose::Read).await? else { return self.fs.metadata(path, symlinks).await };
        let path = native(&path)?;
        let call = move |guard: &Guard, _: &Wanted| files::metadata(guard, &path, symlinks);
        self.run(&self.fs.pool, plan, Purpose::Read, call).await
    }

    async fn canonicalize(&self, path: RequestPath) -> Result<PathUri, FsError> {
        let Some(plan) = self.strict(Purpose::Read).await? else { return self.fs.canonicalize(path).await };
        let path = native(&path)?;
        let call = move |guard: &Guard, _: &Wanted| files::canonicalize(guard, &path);
        self.run(&self.fs.pool, plan, Purpose::Read, call).await
    }

    async fn read_directory(&self, path: RequestPath) -> Result<Vec<DirectoryEntry>, FsError> {
        let Some(plan) = self.strict(Purpose::Read).await? else { return self.fs.read_directory(path).await };
        let path = native(&path)?;
        let call = move |guard: &Guard, _: &Wanted| files::read_directory(guard, &path);
        self.run(&self.fs.pool, plan, Purpose::Read, call).await
    }

    async fn walk(&self, path: RequestPath, options: WalkOptions) -> Result<Walk, FsError> {
        let Some(plan) = self.strict(Purpose::Read).await? else { return self.fs.walk(path, options).await };
        let path = native(&path)?;
        let call = move |guard: &Guard, wanted: &Wanted| trees::walk(guard, &path, options, wanted);
        self.run(&self.fs.trees, plan, Purpose::Read, call).await
    }

    async fn remove(&self, path: RequestPath, options: RemoveOptions) -> Result<(), FsError> {
        let Some(plan) = self.strict(Purpose::Change).await? else { return self.fs.remove(path, options).await };
        let path = native(&path)?;
        let call = move |guard: &Guard, wanted: &Wanted| trees::remove(guard, &path, options, wanted);
        self.run(&self.fs.trees, plan, Purpose::Change, call).await
    }

    async fn copy(&self, source: RequestPath, destination: RequestPath, options: CopyOptions) -> Result<(), FsError> {
        let Some(plan) = self.strict(Purpose::Change).await? else {
            return self.fs.copy(source, destination, options).await;
        };
        let (source, destination) = (native(&source)?, native(&destination)?);
        let call = move |guard: &Guard, wanted: &Wanted| trees::copy(guard, &source, &destination, options, wanted);
        self.run(&self.fs.trees, plan, Purpose::Change, call).await
    }

    async fn watch_missing(
        &self,
        missing: Vec<RequestPath>,
        present: Option<RequestPath>,
    ) -> Result<Option<MissingWatch>, FsError> {
        if let Some(plan) = self.strict(Purpose::Read).await? {
            let paths: Result<Vec<_>, _> = missing.iter().chain(&present).map(native).collect();
            let Ok(paths) = paths else { return Ok(None) };
            let call = move |guard: &Guard, _: &Wanted| Ok(paths.iter().all(|path| files::may_watch(guard, path)));
            if !self.run(&self.fs.pool, plan, Purpose::Read, call).await? {
                return Ok(None);
            }
        }
        self.fs.watch_missing(missing, present).await
    }

    async fn temp_dir(&self) -> Result<PathUri, FsError> {
        directory::uri(&self.fs.configured_temp_dir()?)
    }

    async fn private_directory(&self) -> Result<PathUri, FsError> {
        let Some(plan) = self.strict(Purpose::Change).await? else { return self.fs.private_directory().await };
        let parent = self.fs.configured_temp_dir()?;
        let call = move |guard: &Guard, _: &Wanted| files::create_private(guard, &parent);
        self.run(&self.fs.pool, plan, Purpose::Change, call).await
    }

    fn with_sandbox(self: Arc<Self>, intent: SandboxIntent) -> Result<Arc<dyn FileSystem>, FsError> {
        drop(intent);
        Err(SandboxError::invalid("these files are under a sandbox already; begin with those of the place").into())
    }
}

#[cfg(test)]
mod tests;
