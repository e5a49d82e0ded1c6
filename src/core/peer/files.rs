//! Files: the requests about them, the handles of a connection, its watch, and what is on its way.
//!
//! ```text
//!   handle:  (free) ─ open ─▶ opening ─ opened ─▶ open ─ close, failed read, end of the connection ─▶ (free)
//!                                └─ failed ─▶ (free)
//!   watch:   (none) ─ ask ─▶ asking ─ watching ─▶ watching ─ changed ─▶ told ─▶ (none)
//!                                └─ no ─▶ (none)       a new ask ends it at any point
//! ```
//!
//! Rules beyond those of the [session](super):
//!
//! - Requests that name one handle are carried out one after another, in the order in which they came. All others go on
//!   side by side.
//! - A bounded number of jobs is under way at a time; others wait for their turn.
//! - What is read counts towards a bound from before it is read until its answer leaves; reads above it wait, in order.
//!   A read may exceed it alone, when nothing else is on its way. A whole file whose size is not known is read with a
//!   small limit first, and again with a larger one if it needs that. The entries of directories are counted when they
//!   are there.
//! - Answers with more than a little leave in turn with the events of processes, byte for byte: after one, as much
//!   output goes first as it had bytes. So an event waits for at most one such answer that has not left yet. That is at
//!   most as large as a message may be: see [`fit`].

mod watch;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use self::watch::Watch;
use super::Peer;
use super::action::{Action, FileJob, FileKey, FileResult, Ticket};
use super::fault::Fault;
use super::fit;
use super::reply::Reply;
use super::request::{Call, FileRequest};
use crate::fs::{
    CopyOptions, CreateDirectoryOptions, FsError, InvalidFsRequest, MAX_BLOCK_BYTES, OpenMode, ReadOptions,
    RemoveOptions, Symlinks, WriteOptions,
};
use crate::path_uri::PathUri;
use crate::sandbox::{SandboxError, SandboxIntent};
use crate::wire::fs::{self, MAX_HANDLE_ID_BYTES};
use crate::wire::method::{self, Method};
use crate::wire::{Base64, RequestId, fs_error, symlinks};

/// What a connection has of files.
#[derive(Debug, Default)]
pub(super) struct Files {
    handles: HashMap<String, Handle>,
    /// Files that are open, or being opened.
    open: usize,
    running: HashMap<Ticket, Running>,
    /// What waits for its turn.
    waiting: VecDeque<(Ticket, FileJob)>,
    /// How many jobs the place was asked to do and has not done.
    begun: usize,
    /// Bytes that are being read, or in answers that wait to leave.
    held_bytes: usize,
    /// Answers with many bytes.
    answers: VecDeque<(RequestId, Reply)>,
    /// Jobs that were begun and whose end concerns nobody.
    given_up: HashSet<Ticket>,
    /// As much output goes before the next of them.
    owed_bytes: usize,
    last_watch: Option<u64>,
    watch: Option<Watch>,
}

/// An id of a handle that is in use.
#[derive(Debug, Default)]
struct Handle {
    file: Option<FileKey>,
    /// Whether something is being done on it.
    busy: bool,
    queue: VecDeque<(Call, FileRequest)>,
}

#[derive(Debug)]
struct Running {
    call: Call,
    method: &'static str,
    /// The bytes that are set aside for it.
    reserved: usize,
    handle: Option<String>,
    /// Whether it has left for the place.
    begun: bool,
    /// Whether it changes something.
    changes: bool,
    /// What it says of links.
    symlinks: Symlinks,
    /// Towards a whole file that is read: how to read it again with a larger limit.
    whole: Option<WholeRead>,
    /// What limits it.
    sandbox: Option<Arc<SandboxIntent>>,
}

#[derive(Clone, Debug)]
struct WholeRead {
    path: PathUri,
    /// With the limit that the place is asked to keep now.
    options: ReadOptions,
    /// The limit of the call.
    largest: u64,
}

impl WholeRead {
    /// The same with a larger limit, if that is why it failed.
    fn again(self, error: &FsError) -> Option<Self> {
        let asked = self.options.max_bytes.unwrap_or(u64::MAX);
        match error {
            // A limit below is the place's own.
            FsError::TooLarge { size, limit, .. } if asked < self.largest && *limit >= asked => {
                // A file that grows, or does not know its size, gets all that there is.
                let size = size.filter(|size| *size > asked).unwrap_or(self.largest);
                let options = self.options.max_bytes(size);
                (size <= self.largest).then_some(Self { options, ..self })
            }
            _ => None,
        }
    }

    fn job(&self) -> FileJob {
        FileJob::Read { path: self.path.clone(), options: self.options }
    }
}

impl Files {
    /// Whether the driver may hold something for it.
    pub(super) fn is_used(&self) -> bool {
        !self.handles.is_empty() || !self.running.is_empty() || self.watch.is_some()
    }

    /// Bytes that are being read, or in answers that wait to leave.
    pub(super) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether something is being changed.
    pub(super) fn is_changing(&self) -> bool {
        self.running.values().any(|running| running.begun && running.changes)
    }

    pub(super) fn has_answer(&self) -> bool {
        !self.answers.is_empty() || self.watch.as_ref().is_some_and(Watch::has_changed)
    }

    /// Whether a large answer may leave before output.
    pub(super) const fn is_owed(&self) -> bool {
        self.owed_bytes > 0
    }

    /// Output of this many bytes has left.
    pub(super) const fn note_output(&mut self, bytes: usize) {
        self.owed_bytes = self.owed_bytes.saturating_sub(bytes);
    }
}

impl Peer {
    pub(super) fn file(&mut self, call: Call, request: FileRequest) {
        let sandbox = match sandbox(&request) {
            Ok(sandbox) => sandbox,
            Err(fault) => return self.answer(call, Reply::Fault(fault)),
        };
        let method = request.method();
        let job = match request {
            FileRequest::Open(_) | FileRequest::ReadBlock(_) | FileRequest::WriteBlock(_) | FileRequest::Close(_) => {
                return self.on_handle(call, request);
            }
            FileRequest::WatchMissing(params) => return self.watch_missing(call, params, sandbox),
            FileRequest::ReadFile(params) => {
                let largest = self.config.max_read_file_bytes.min(fs::whole_file_bytes(self.config.max_answer_bytes));
                let asked = params.longarm.and_then(|extension| extension.max_bytes).filter(|_| self.features().fs);
                let largest = asked.map_or(largest, |asked| asked.min(largest));
                let at_first = (self.config.max_file_bytes_in_flight / 4) as u64;
                let options =
                    ReadOptions::new().symlinks(symlinks(params.follow_symlinks)).max_bytes(largest.min(at_first));
                let whole = WholeRead { path: params.path, options, largest };
                let job = whole.job();
                self.run_job(Running { whole: Some(whole), sandbox, ..Running::new(call, method, None) }, job);
                return;
            }
            FileRequest::WriteFile(params) => match params.data_base64.0 {
                Ok(Base64(data)) => {
                    let fsync = params.longarm.is_some_and(|extension| extension.fsync) && self.features().fs;
                    let options = WriteOptions::new().symlinks(symlinks(params.follow_symlinks)).fsync(fsync);
                    FileJob::Write { path: params.path, data, options }
                }
                Err(fault) => {
                    let text = format!("fs/writeFile requires valid base64 dataBase64: {fault}");
                    return self.answer(call, Reply::Fault(Fault::invalid_request(text)));
                }
            },
            FileRequest::Canonicalize(params) => FileJob::Canonicalize { path: params.path },
            FileRequest::CreateDirectory(params) => FileJob::CreateDirectory {
                path: params.path,
                options: CreateDirectoryOptions::new()
                    .recursive(params.recursive.unwrap_or(true))
                    .symlinks(symlinks(params.follow_symlinks)),
            },
            FileRequest::GetMetadata(params) => {
                FileJob::Metadata { path: params.path, symlinks: symlinks(params.follow_symlinks) }
            }
            FileRequest::ReadDirectory(params) => FileJob::ReadDirectory { path: params.path },
            FileRequest::Walk(params) => FileJob::Walk { path: params.path, options: params.options.into() },
            FileRequest::Remove(params) => {
                let recursive = params.recursive.unwrap_or(true);
                if recursive && params.follow_symlinks == Some(false) && !self.features().fs {
                    // The reference cannot, and its clients know no better.
                    return self.answer(call, Reply::Fault(Fault::internal(NO_FOLLOW_REMOVAL)));
                }
                let options = RemoveOptions::new()
                    .recursive(recursive)
                    .force(params.force.unwrap_or(true))
                    .symlinks(symlinks(params.follow_symlinks));
                FileJob::Remove { path: params.path, options }
            }
            FileRequest::Copy(params) => FileJob::Copy {
                source: params.source_path,
                destination: params.destination_path,
                options: CopyOptions::new().recursive(params.recursive),
            },
            FileRequest::PrivateDirectory => FileJob::PrivateDirectory,
        };
        self.run_job(Running { sandbox, ..Running::new(call, method, None) }, job);
    }

    fn refuse_file(&mut self, call: Call, method: &str, error: &FsError) {
        let detailed = self.features().fs;
        self.answer(call, Reply::Fault(fs_error::to_rpc(error, method, Symlinks::Follow, detailed).into()));
    }

    fn run_job(&mut self, running: Running, job: FileJob) -> Option<Ticket> {
        let ticket = Ticket(self.next_ticket());
        let reserved = reservation(&job);
        let files = &mut self.connection.as_mut()?.files;
        let again = running.reserved > 0;
        files.held_bytes -= running.reserved;
        files.running.insert(
            ticket,
            Running { reserved, begun: false, changes: job.changes(), symlinks: job.symlinks(), ..running },
        );
        if again {
            // It has had its turn.
            files.waiting.push_front((ticket, job));
        } else {
            files.waiting.push_back((ticket, job));
        }
        self.admit_files();
        Some(ticket)
    }

    /// Begins what has room.
    fn admit_files(&mut self) {
        let limit = self.config.max_file_bytes_in_flight;
        let most = self.config.max_file_jobs.max(1);
        let Some(files) = self.connection.as_mut().map(|connection| &mut connection.files) else { return };
        let mut full = false;
        let mut index = 0;
        while files.begun < most
            && let Some((ticket, _)) = files.waiting.get(index)
        {
            let Some(running) = files.running.get_mut(ticket) else {
                // It was given up.
                files.waiting.remove(index);
                continue;
            };
            let (reserved, sandbox) = (running.reserved, running.sandbox.clone());
            let fits = files.held_bytes == 0 || files.held_bytes.saturating_add(reserved) <= limit;
            if reserved > 0 && (full || !fits) {
                // Nothing that reads goes before it, so that it gets its turn.
                full = true;
                index += 1;
                continue;
            }
            running.begun = true;
            files.begun += 1;
            files.held_bytes += reserved;
            if let Some((ticket, job)) = files.waiting.remove(index) {
                self.actions.push_back(Action::File { ticket, job, sandbox });
            }
        }
    }

    fn on_handle(&mut self, call: Call, request: FileRequest) {
        let method = request.method();
        let (id, refusal) = match &request {
            FileRequest::Open(params) => {
                let too_long = params.handle_id.len() > MAX_HANDLE_ID_BYTES;
                let refusal = too_long.then(|| {
                    InvalidFsRequest::Other(format!("file handle ID must not exceed {MAX_HANDLE_ID_BYTES} bytes"))
                });
                (&params.handle_id, refusal)
            }
            FileRequest::ReadBlock(params) => (&params.handle_id, block_length(params.len)),
            FileRequest::WriteBlock(params) => {
                let length = params.chunk.0.len();
                let range = params.offset.checked_add(length as u64).is_none_or(|end| i64::try_from(end).is_err());
                let range = range.then_some(InvalidFsRequest::BlockRange { offset: params.offset, length });
                (&params.handle_id, block_length(length as u64).or(range))
            }
            FileRequest::Close(params) => (&params.handle_id, None),
            _ => return debug_assert!(false, "{method} names no handle"),
        };
        if let Some(refusal) = refusal {
            return self.refuse_file(call, method, &refusal.into());
        }
        let id = id.clone();
        if let Some(connection) = &mut self.connection {
            connection.files.handles.entry(id.clone()).or_default().queue.push_back((call, request));
            self.pump_handle(&id);
        }
    }

    /// Carries out what waits for a handle, one after another.
    fn pump_handle(&mut self, id: &str) {
        loop {
            let Some(files) = self.connection.as_mut().map(|connection| &mut connection.files) else { return };
            let Some(handle) = files.handles.get_mut(id) else { return };
            if handle.busy {
                return;
            }
            let Some((call, request)) = handle.queue.pop_front() else {
                if handle.file.is_none() {
                    files.handles.remove(id);
                }
                return;
            };
            self.do_on_handle(id, call, request);
        }
    }

    fn do_on_handle(&mut self, id: &str, call: Call, request: FileRequest) {
        let method = request.method();
        let sandbox = match sandbox(&request) {
            Ok(sandbox) => sandbox,
            Err(fault) => return self.answer(call, Reply::Fault(fault)),
        };
        let extended = self.features().fs;
        let limit = self.config.max_file_handles;
        let new_key = FileKey(self.next_ticket());
        let Some(files) = self.connection.as_mut().map(|connection| &mut connection.files) else { return };
        let Some(handle) = files.handles.get_mut(id) else { return };
        let unknown = || FsError::UnknownHandle { handle: id.into() };
        let job = match (request, handle.file) {
            (FileRequest::Open(_), Some(_)) => Err(FsError::HandleExists { handle: id.into() }),
            (FileRequest::Open(_), None) if files.open >= limit => Err(FsError::TooManyHandles { limit }),
            (FileRequest::Open(params), None) => {
                files.open += 1;
                let keep = extended && params.longarm.is_some_and(|extension| extension.keep_content);
                let mode = match params.mode {
                    fs::OpenMode::Read => OpenMode::Read,
                    fs::OpenMode::Replace if keep => OpenMode::Update,
                    fs::OpenMode::Replace => OpenMode::Replace,
                };
                Ok(FileJob::Open { file: new_key, path: params.path, mode })
            }
            (FileRequest::ReadBlock(params), Some(file)) => {
                // Its range was checked.
                let length = usize::try_from(params.len).unwrap_or(MAX_BLOCK_BYTES);
                Ok(FileJob::ReadBlock { file, offset: params.offset, length })
            }
            (FileRequest::WriteBlock(params), Some(file)) => {
                Ok(FileJob::WriteBlock { file, offset: params.offset, data: params.chunk.into() })
            }
            (FileRequest::Close(_), Some(file)) => {
                handle.file = None;
                files.open -= 1;
                Ok(FileJob::Close { file })
            }
            (FileRequest::Close(_), None) => return self.answer(call, Reply::Empty),
            _ => Err(unknown()),
        };
        match job {
            Ok(job) => {
                handle.busy = true;
                self.run_job(Running { sandbox, ..Running::new(call, method, Some(id.into())) }, job);
            }
            Err(error) => self.refuse_file(call, method, &error),
        }
    }

    /// What was asked of the place's files has ended.
    pub(super) fn file_done(&mut self, ticket: Ticket, mut result: Result<FileResult, FsError>) {
        let Some(files) = self.connection.as_mut().map(|connection| &mut connection.files) else { return };
        let Some(mut running) = files.running.remove(&ticket) else {
            // One that was given up has taken a place until now.
            if files.given_up.remove(&ticket) {
                files.begun -= 1;
                self.admit_files();
            }
            return;
        };
        files.begun -= 1;
        if let (Some(whole), Err(error)) = (running.whole.take(), &mut result) {
            let (asked, largest) = (whole.options.max_bytes, whole.largest);
            if let Some(again) = whole.again(error) {
                let job = again.job();
                self.run_job(Running { whole: Some(again), ..running }, job);
                return;
            }
            // Nobody asked for the smaller limit.
            if let FsError::TooLarge { limit, .. } = error
                && Some(*limit) == asked
            {
                *limit = largest;
            }
        }
        let Running { call, method, reserved, handle, symlinks: of_links, .. } = running;
        if let Some(id) = &handle
            && let Some(handle) = files.handles.get_mut(id)
        {
            handle.busy = false;
            match &result {
                Ok(FileResult::Opened(file)) => handle.file = Some(*file),
                Err(_) if method == method::OpenFile::NAME => files.open -= 1,
                Err(error) if method == method::ReadBlock::NAME && !matches!(error, FsError::InvalidRequest(_)) => {
                    if let Some(file) = handle.file.take() {
                        files.open -= 1;
                        self.actions.push_back(Action::ForgetFile { file });
                    }
                }
                _ => {}
            }
        }
        if method == method::WatchMissing::NAME {
            let watching = matches!(result, Ok(FileResult::Watching(true)));
            files.watch_answered(ticket, watching);
            self.answer(call, Reply::Watching(watching));
            return;
        }
        if let (Err(FsError::UnknownHandle { handle: named }), Some(id)) = (&mut result, &handle) {
            // The place has its own names.
            named.clone_from(id);
        }
        let reply = self.file_reply(result, method, of_links, handle.as_deref());
        let reply = fit::fitting(reply, &call.id, method, self.config.max_answer_bytes);
        if let Some(connection) = &mut self.connection {
            connection.files.held_bytes -= reserved;
        }
        self.answer_bulky(call, reply);
        if let Some(id) = handle {
            self.pump_handle(&id);
        }
        self.admit_files();
    }

    /// Answers a call. If there is much in the answer, it takes turns with output, and counts as bytes of files.
    pub(super) fn answer_bulky(&mut self, call: Call, reply: Reply) {
        let bytes = reply.content_bytes();
        if bytes <= SMALL_ANSWER_BYTES {
            return self.answer(call, reply);
        }
        let Some(connection) = &mut self.connection else { return };
        if connection.number == call.connection {
            connection.calls -= 1;
            connection.call_bytes -= call.bytes;
            connection.files.held_bytes += bytes;
            self.records.answered(call.number, !matches!(reply, Reply::Fault(_)));
            connection.files.answers.push_back((call.id, reply));
        }
    }

    fn file_reply(
        &self,
        result: Result<FileResult, FsError>,
        method: &str,
        of_links: Symlinks,
        handle: Option<&str>,
    ) -> Reply {
        let detailed = self.features().fs;
        match result {
            Ok(FileResult::Done) => Reply::Empty,
            Ok(FileResult::Bytes(bytes)) => Reply::File(bytes),
            Ok(FileResult::Block(block)) => Reply::Block(block),
            Ok(FileResult::Opened(_)) => Reply::Opened(handle.unwrap_or_default().into()),
            Ok(FileResult::Path(path)) => Reply::Path(path),
            Ok(FileResult::Metadata(metadata)) => Reply::Metadata(metadata.into()),
            Ok(FileResult::Entries(entries)) => Reply::Directory(fs::ReadDirectoryResult {
                entries: entries.into_iter().map(|entry| fs::DirectoryEntry::of(entry, detailed)).collect(),
            }),
            Ok(FileResult::Walk(walk)) => Reply::Walk(fs::WalkResult::of(walk, detailed)),
            Ok(FileResult::Watching(watching)) => Reply::Watching(watching),
            Err(error) => Reply::Fault(fs_error::to_rpc(&error, method, of_links, detailed).into()),
        }
    }

    /// The next answer with many bytes.
    pub(super) fn next_file_answer(&mut self) -> Option<Bytes> {
        let files = &mut self.connection.as_mut()?.files;
        let (id, reply) = files.answers.pop_front()?;
        files.held_bytes -= reply.content_bytes();
        let message = reply.encode(&id);
        files.owed_bytes = message.len();
        self.admit_files();
        Some(message)
    }
}

impl Running {
    fn new(call: Call, method: &'static str, handle: Option<String>) -> Self {
        Self {
            call,
            method,
            reserved: 0,
            handle,
            begun: false,
            changes: false,
            symlinks: Symlinks::Follow,
            whole: None,
            sandbox: None,
        }
    }
}

/// What limits a request, if its member says so. The text of an error is the decoder's, as the reference has it.
fn sandbox(request: &FileRequest) -> Result<Option<Arc<SandboxIntent>>, Fault> {
    let intent = request.sandbox().map(|raw| SandboxIntent::from_json(raw.as_json())).transpose();
    match intent {
        Ok(intent) => Ok(intent.map(Arc::new)),
        Err(SandboxError::Invalid { reason }) => Err(Fault::invalid_params(reason)),
        Err(error) => Err(Fault::invalid_params(error.to_string())),
    }
}

/// What a job may bring. That of a directory is known when it has ended.
fn reservation(job: &FileJob) -> usize {
    match job {
        FileJob::ReadBlock { length, .. } => *length,
        FileJob::Read { options, .. } => {
            options.max_bytes.map_or(0, |most| usize::try_from(most).unwrap_or(usize::MAX))
        }
        FileJob::ReadDirectory { .. } | FileJob::Walk { .. } => MAX_BLOCK_BYTES,
        _ => 0,
    }
}

fn block_length(length: u64) -> Option<InvalidFsRequest> {
    let max = MAX_BLOCK_BYTES;
    let good = (1..=max as u64).contains(&length);
    (!good).then(|| InvalidFsRequest::BlockLength { length: usize::try_from(length).unwrap_or(usize::MAX), max })
}

/// Larger answers take turns with output.
const SMALL_ANSWER_BYTES: usize = 64 << 10;

const NO_FOLLOW_REMOVAL: &str = "recursive no-follow removal is unsupported";
