//! What a session asks of its driver, and how it hears of the end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::process::ProcessKey;
use super::record::Number;
use super::request::Call;
use crate::error::{CallError, SignalError, SpawnError, WriteError};
use crate::fs::{
    Block, CopyOptions, CreateDirectoryOptions, DirectoryEntry, FsError, Metadata, OpenMode, ReadOptions,
    RemoveOptions, Symlinks, Walk, WalkOptions, WriteOptions,
};
use crate::http::{Headers, HttpError, HttpRequest};
use crate::info::EnvironmentInfo;
use crate::path_uri::PathUri;
use crate::request::{ExecRequest, Signal, TerminalSize};
use crate::sandbox::{Enforcement, SandboxIntent};

/// Something for the driver to do, in the order in which it is handed out. Each with a matching [`Completion`] is
/// reported back by it.
#[derive(Debug)]
pub(crate) enum Action {
    /// Start a process. Ends in [`Completion::Started`].
    Start { process: ProcessKey, request: Box<ExecRequest>, asked: Number },
    /// Give up a start, and with it whatever was started. Ends in nothing.
    CancelStart { process: ProcessKey },
    /// Write to standard input. Ends in [`Completion::StdinDone`].
    Write { process: ProcessKey, data: Bytes },
    /// Close standard input. Ends in [`Completion::StdinDone`].
    CloseStdin { process: ProcessKey },
    /// Set the size of the terminal. Ends in [`Completion::Acted`].
    Resize { process: ProcessKey, size: TerminalSize, call: Call },
    /// Send a signal. Ends in [`Completion::Acted`].
    Signal { process: ProcessKey, signal: Signal, call: Call },
    /// End the process tree. Ends in [`Completion::Terminated`].
    Terminate { process: ProcessKey, grace: Duration, descendants: bool, call: Option<Call> },
    /// Ask for the facts of the place. Ends in [`Completion::Info`].
    Info { call: Call },
    /// Drop all that there is of a process. Ends in nothing.
    Forget { process: ProcessKey },
    /// Do something with the place's files, as far as the intent allows. Ends in [`Completion::File`].
    File { ticket: Ticket, job: FileJob, sandbox: Option<Arc<SandboxIntent>> },
    /// Drop an open file. Ends in nothing.
    ForgetFile { file: FileKey },
    /// Drop the watch for missing paths. Ends in nothing.
    Unwatch,
    /// Drop all open files, the watch, and what is being done with files: their connection is gone. Ends in nothing.
    ForgetFiles,
    /// Make an HTTP request. Ends in [`Completion::HttpHead`].
    Http { exchange: HttpKey, request: Box<HttpRequest> },
    /// Get the next bytes of the body of a response. Ends in [`Completion::HttpBody`].
    PullBody { exchange: HttpKey },
    /// Drop a request, or what is left of its response. Ends in nothing.
    ForgetHttp { exchange: HttpKey },
    /// Drop all of them. Ends in nothing.
    ForgetAllHttp,
}

/// What a backend says of a process that it has started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StartFacts {
    pub(crate) sandbox_type: Option<String>,
    pub(crate) enforcement: Option<Enforcement>,
}

/// Names an HTTP request and its response; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HttpKey(pub(super) u64);

/// The head of a response.
#[derive(Debug)]
pub(crate) struct HttpHead {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
}

/// Names a job on files; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(pub(super) u64);

/// Names an open file; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileKey(pub(super) u64);

/// Something to do with the place's files.
#[derive(Debug)]
pub(crate) enum FileJob {
    Read {
        path: PathUri,
        options: ReadOptions,
    },
    Write {
        path: PathUri,
        data: Bytes,
        options: WriteOptions,
    },
    Open {
        file: FileKey,
        path: PathUri,
        mode: OpenMode,
    },
    ReadBlock {
        file: FileKey,
        offset: u64,
        length: usize,
    },
    WriteBlock {
        file: FileKey,
        offset: u64,
        data: Bytes,
    },
    Close {
        file: FileKey,
    },
    Canonicalize {
        path: PathUri,
    },
    CreateDirectory {
        path: PathUri,
        options: CreateDirectoryOptions,
    },
    Metadata {
        path: PathUri,
        symlinks: Symlinks,
    },
    ReadDirectory {
        path: PathUri,
    },
    Walk {
        path: PathUri,
        options: WalkOptions,
    },
    Remove {
        path: PathUri,
        options: RemoveOptions,
    },
    Copy {
        source: PathUri,
        destination: PathUri,
        options: CopyOptions,
    },
    /// Replaces the former watch. Its end is a [`Completion::MissingChanged`].
    Watch {
        watch: u64,
        missing: Vec<PathUri>,
        present: Option<PathUri>,
    },
    PrivateDirectory,
}

impl FileJob {
    /// Whether half of a job would be worse than none or all of it.
    pub(super) const fn changes(&self) -> bool {
        match self {
            Self::Write { .. }
            | Self::WriteBlock { .. }
            | Self::Open { mode: OpenMode::Replace | OpenMode::Update, .. }
            | Self::Close { .. }
            | Self::CreateDirectory { .. }
            | Self::Remove { .. }
            | Self::Copy { .. }
            | Self::PrivateDirectory => true,
            Self::Open { mode: OpenMode::Read, .. }
            | Self::Read { .. }
            | Self::ReadBlock { .. }
            | Self::Canonicalize { .. }
            | Self::Metadata { .. }
            | Self::ReadDirectory { .. }
            | Self::Walk { .. }
            | Self::Watch { .. } => false,
        }
    }

    /// What it says of links.
    pub(super) const fn symlinks(&self) -> Symlinks {
        match self {
            Self::Read { options: ReadOptions { symlinks, .. }, .. }
            | Self::Write { options: WriteOptions { symlinks, .. }, .. }
            | Self::CreateDirectory { options: CreateDirectoryOptions { symlinks, .. }, .. }
            | Self::Remove { options: RemoveOptions { symlinks, .. }, .. }
            | Self::Metadata { symlinks, .. } => *symlinks,
            _ => Symlinks::Follow,
        }
    }
}

/// What a job on files yields.
#[derive(Debug)]
pub(crate) enum FileResult {
    Done,
    Bytes(Bytes),
    Block(Block),
    Opened(FileKey),
    Path(PathUri),
    Metadata(Metadata),
    Entries(Vec<DirectoryEntry>),
    Walk(Walk),
    Watching(bool),
}

/// How an [`Action`] ended.
#[derive(Debug)]
pub(crate) enum Completion {
    /// The process runs, with this sandbox, or could not be started.
    Started { process: ProcessKey, result: Result<StartFacts, SpawnError> },
    /// A write or the closing of standard input is done.
    StdinDone { process: ProcessKey, result: Result<(), WriteError> },
    /// A resize or a signal is done.
    Acted { call: Call, result: Result<(), SignalError> },
    /// The process is being ended; true if it was running.
    Terminated { call: Option<Call>, result: Result<bool, SignalError> },
    /// The facts of the place.
    Info { call: Call, result: Box<Result<EnvironmentInfo, CallError>> },
    /// A job on files is done.
    File { ticket: Ticket, result: Result<FileResult, FsError> },
    /// The paths of a watch may exist now.
    MissingChanged { watch: u64 },
    /// The head of a response has come; its body is to be pulled or dropped.
    HttpHead { exchange: HttpKey, result: Result<HttpHead, HttpError> },
    /// Bytes of a body; none at its end.
    HttpBody { exchange: HttpKey, result: Result<Option<Bytes>, HttpError> },
}
