//! What a session's connection has of the place's files, and what is being done with them.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::stream::FuturesUnordered;

use crate::core::peer::{Completion, FileJob, FileKey, FileResult, Ticket};
use crate::fs::{FileHandle, FileSystem, FsError, MissingWatch, RequestPath};
use crate::sandbox::SandboxIntent;

/// The files of one connection. It is emptied when the connection ends, which closes what is open.
#[derive(Debug)]
pub(super) struct Files {
    fs: Option<Arc<dyn FileSystem>>,
    open: HashMap<FileKey, Arc<dyn FileHandle>>,
    running: FuturesUnordered<Job>,
    /// At most one, as the wire has it.
    watch: Option<(u64, MissingWatch)>,
    /// The watch that is asked for last. Others that are still being set up are not wanted any more.
    wanted_watch: Option<u64>,
}

type Job = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// How a job ended.
enum Ended {
    Opened { ticket: Ticket, file: FileKey, result: Result<Box<dyn FileHandle>, FsError> },
    Watch { ticket: Ticket, watch: u64, result: Result<Option<MissingWatch>, FsError> },
    Other { ticket: Ticket, result: Result<FileResult, FsError> },
}

impl Files {
    pub(super) fn new(fs: Option<Arc<dyn FileSystem>>) -> Self {
        Self { fs, open: HashMap::new(), running: FuturesUnordered::new(), watch: None, wanted_watch: None }
    }

    /// Begins a job. Returns how it ended, if it did so at once.
    pub(super) fn begin(
        &mut self,
        cx: &mut Context<'_>,
        ticket: Ticket,
        job: FileJob,
        sandbox: Option<Arc<SandboxIntent>>,
    ) -> Option<Completion> {
        let Some(fs) = self.fs.clone() else {
            return Some(Completion::File { ticket, result: Err(FsError::Closed) });
        };
        // Whoever carries it out decides whether and how; without an intent, all is allowed.
        let fs = match sandbox {
            Some(intent) => fs.with_sandbox(SandboxIntent::clone(&intent)),
            None => Ok(fs),
        };
        let fs = match fs {
            Ok(fs) => fs,
            Err(error) => return Some(Completion::File { ticket, result: Err(error) }),
        };
        let mut job = self.future(fs, ticket, job);
        match job.as_mut().poll(cx) {
            Poll::Ready(ended) => Some(self.end(ended)),
            Poll::Pending => {
                self.running.push(job);
                None
            }
        }
    }

    /// The next job that has ended, or the end of the watch.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion> {
        if let Poll::Ready(Some(ended)) = Pin::new(&mut self.running).poll_next(cx) {
            return Poll::Ready(self.end(ended));
        }
        if let Some((id, watch)) = &mut self.watch {
            let id = *id;
            // One that cannot go on is a false alarm: the client looks again.
            if let Poll::Ready(Ok(()) | Err(_)) = Pin::new(watch).poll(cx) {
                self.watch = None;
                return Poll::Ready(Completion::MissingChanged { watch: id });
            }
        }
        Poll::Pending
    }

    /// Drops an open file.
    pub(super) fn forget(&mut self, file: FileKey) {
        self.open.remove(&file);
    }

    pub(super) fn unwatch(&mut self) {
        self.watch = None;
        self.wanted_watch = None;
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.running = FuturesUnordered::new();
        self.unwatch();
    }

    fn end(&mut self, ended: Ended) -> Completion {
        let (ticket, result) = match ended {
            Ended::Opened { ticket, file, result } => {
                let opened = result.map(|handle| {
                    self.open.insert(file, Arc::from(handle));
                    FileResult::Opened(file)
                });
                (ticket, opened)
            }
            Ended::Watch { ticket, watch, result } => {
                let result = result.map(|found| {
                    let found = found.filter(|_| self.wanted_watch == Some(watch));
                    let watching = found.is_some();
                    if let Some(found) = found {
                        self.watch = Some((watch, found));
                    }
                    FileResult::Watching(watching)
                });
                (ticket, result)
            }
            Ended::Other { ticket, result } => (ticket, result),
        };
        Completion::File { ticket, result }
    }

    fn future(&mut self, fs: Arc<dyn FileSystem>, ticket: Ticket, job: FileJob) -> Job {
        match job {
            FileJob::Open { file, path, mode } => {
                Box::pin(async move { Ended::Opened { ticket, file, result: fs.open(path.into(), mode).await } })
            }
            FileJob::Watch { watch, missing, present } => {
                self.watch = None;
                self.wanted_watch = Some(watch);
                let missing = missing.into_iter().map(RequestPath::from).collect();
                let present = present.map(RequestPath::from);
                Box::pin(
                    async move { Ended::Watch { ticket, watch, result: fs.watch_missing(missing, present).await } },
                )
            }
            FileJob::ReadBlock { file, offset, length } => self.on_handle(ticket, file, move |handle| async move {
                handle.read_block(offset, length).await.map(FileResult::Block)
            }),
            FileJob::WriteBlock { file, offset, data } => self.on_handle(ticket, file, move |handle| async move {
                handle.write_block(offset, data).await.map(|()| FileResult::Done)
            }),
            FileJob::Close { file } => {
                let closing = self.on_handle(ticket, file, move |handle| async move {
                    handle.close().await.map(|()| FileResult::Done)
                });
                self.open.remove(&file);
                closing
            }
            job => Box::pin(async move { Ended::Other { ticket, result: run(&*fs, job).await } }),
        }
    }

    fn on_handle<F>(&self, ticket: Ticket, file: FileKey, call: impl FnOnce(Arc<dyn FileHandle>) -> F) -> Job
    where
        F: Future<Output = Result<FileResult, FsError>> + Send + 'static,
    {
        let Some(handle) = self.open.get(&file).cloned() else {
            // The session names files that are open.
            return Box::pin(std::future::ready(Ended::Other { ticket, result: Err(FsError::Closed) }));
        };
        let call = call(handle);
        Box::pin(async move { Ended::Other { ticket, result: call.await } })
    }
}

/// Carries out what names no open file.
async fn run(fs: &dyn FileSystem, job: FileJob) -> Result<FileResult, FsError> {
    let done = |()| FileResult::Done;
    match job {
        FileJob::Read { path, options } => fs.read(path.into(), options).await.map(FileResult::Bytes),
        FileJob::Write { path, data, options } => fs.write(path.into(), data, options).await.map(done),
        FileJob::Canonicalize { path } => fs.canonicalize(path.into()).await.map(FileResult::Path),
        FileJob::CreateDirectory { path, options } => fs.create_directory(path.into(), options).await.map(done),
        FileJob::Metadata { path, symlinks } => fs.metadata(path.into(), symlinks).await.map(FileResult::Metadata),
        FileJob::ReadDirectory { path } => fs.read_directory(path.into()).await.map(FileResult::Entries),
        FileJob::Walk { path, options } => fs.walk(path.into(), options).await.map(FileResult::Walk),
        FileJob::Remove { path, options } => fs.remove(path.into(), options).await.map(done),
        FileJob::Copy { source, destination, options } => {
            fs.copy(source.into(), destination.into(), options).await.map(done)
        }
        FileJob::PrivateDirectory => fs.private_directory().await.map(FileResult::Path),
        FileJob::Open { .. }
        | FileJob::Watch { .. }
        | FileJob::ReadBlock { .. }
        | FileJob::WriteBlock { .. }
        | FileJob::Close { .. } => {
            debug_assert!(false, "a job about an open file or the watch");
            Err(FsError::Closed)
        }
    }
}
