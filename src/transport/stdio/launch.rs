//! A server as a child process: launched, spoken to over its standard streams, ended as a whole.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::framing::{LineReader, LineWriter};
#[cfg(unix)]
use super::unix as os;
#[cfg(windows)]
use super::windows as os;
use crate::config::MessageLimits;
use crate::env_policy::ReservedNames;
use crate::error::{ConnectError, TransportError};
use crate::transport::{Connector, Incoming, Outgoing, Transport};

type StderrSink = Arc<dyn Fn(&str) + Send + Sync>;
type Ended = Pin<Box<dyn Future<Output = Option<EndOfServer>> + Send>>;

/// How to launch a server that speaks over its standard streams. Each connection is a new child process.
///
/// The child gets the environment of this process without the [credentials of an executor](#credentials), runs in a
/// process group of its own (a job object on Windows), and is ended with its group: when the connection is closed or
/// dropped its input ends, after a second it is asked to end, after the [stop grace](Self::stop_grace) it is killed.
/// What a child that ends by itself leaves in its group is killed too.
///
/// # Credentials
///
/// The variables with [`ReservedNames`] do not reach the child unless they are set here by [`env`](Self::env). The
/// names can be replaced by [`reserved_names`](Self::reserved_names).
#[derive(Clone)]
#[must_use = "a server is not launched until it is connected to"]
pub struct StdioServer {
    program: OsString,
    /// For the shell that is the program.
    script: Option<OsString>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    reserved_names: ReservedNames,
    current_dir: Option<PathBuf>,
    stderr: Option<StderrSink>,
    limits: MessageLimits,
    stop_grace: Duration,
}

impl StdioServer {
    /// A server program, looked up on `PATH` if it has no separator.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            script: None,
            args: Vec::new(),
            env: Vec::new(),
            reserved_names: ReservedNames::default(),
            current_dir: None,
            stderr: None,
            limits: MessageLimits::default(),
            stop_grace: Duration::from_secs(2),
        }
    }

    /// A command line for the system's shell: `/bin/sh`, or `cmd.exe` on Windows. Arguments that are added come after it.
    pub fn shell(script: impl Into<OsString>) -> Self {
        Self { script: Some(script.into()), ..Self::new(os::SHELL) }
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args<I>(mut self, args: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets one variable of the child.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Replaces the names that the child does not inherit.
    pub fn reserved_names(mut self, names: ReservedNames) -> Self {
        self.reserved_names = names;
        self
    }

    /// The directory in which the child starts. By default that of this process.
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.current_dir = Some(dir.into());
        self
    }

    /// Who gets the child's standard error, line by line without the line's end. Longer lines come in pieces of 8 KiB;
    /// bytes that are not UTF-8 are replaced. `sink` must not block. By default the lines are dropped.
    pub fn on_stderr(mut self, sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.stderr = Some(Arc::new(sink));
        self
    }

    /// Bounds on its messages.
    pub fn limits(mut self, limits: MessageLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How long it may take to end after it was asked to. By default 2 s.
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// Launches it. Must be called within a tokio runtime, in which a task then ends the child.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Launch`].
    pub fn launch(&self) -> Result<StdioChild, ConnectError> {
        self.try_launch()
            .map_err(|source| ConnectError::Launch { program: self.program.clone().into(), source: Arc::new(source) })
    }

    fn try_launch(&self) -> io::Result<StdioChild> {
        let mut command = match &self.script {
            Some(script) => os::shell(script),
            None => Command::new(&self.program),
        };
        command.args(&self.args);
        for (name, _) in std::env::vars_os().filter(|(name, _)| self.reserved_names.contains(name)) {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &self.current_dir {
            command.current_dir(dir);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        os::prepare(&mut command);
        let mut child = command.spawn()?;
        let group = os::Group::of(&child)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the child has no standard streams"));
        };
        let (release, released) = oneshot::channel();
        let (tell_end, end) = watch::channel(None);
        let grace = self.stop_grace;
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        let log = StderrLog { sink: self.stderr.clone(), last_words: Arc::clone(&last_words) };
        // The task ends itself: it waits for nothing but the child, and that for a bounded time once released.
        drop(tokio::spawn(async move {
            let status = supervise(child, group, released, log.forward(stderr), grace).await;
            let last_words = Vec::from(std::mem::take(&mut *last_words.lock().unwrap_or_else(PoisonError::into_inner)));
            tell_end.send_replace(Some(EndOfServer { status, last_words }));
        }));
        let lifeline = Arc::new(Lifeline { release: Mutex::new(Some(release)), end });
        Ok(StdioChild {
            peer: self.program.to_string_lossy().into_owned(),
            writer: ChildWriter {
                writer: LineWriter::new(stdin),
                ended: None,
                failure: WriterFailure::None,
                lifeline: Arc::clone(&lifeline),
            },
            reader: ChildReader {
                reader: LineReader::new(stdout, self.limits.max_message_bytes),
                state: ReaderState::Open,
                lifeline,
            },
        })
    }
}

/// Shows the names of the variables, never their values.
impl fmt::Debug for StdioServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioServer")
            .field("program", &self.program)
            .field("script", &self.script)
            .field("args", &self.args)
            .field("env_names", &self.env.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("current_dir", &self.current_dir)
            .field("stop_grace", &self.stop_grace)
            .finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Connector for StdioServer {
    async fn connect(&self) -> Result<Box<dyn Transport>, ConnectError> {
        Ok(Box::new(self.launch()?))
    }

    /// A session ends with the process that holds it.
    fn can_reconnect(&self) -> bool {
        false
    }
}

/// A launched server, connected. Dropping it ends the process, in the background.
#[derive(Debug)]
#[must_use = "dropping it ends the server"]
pub struct StdioChild {
    peer: String,
    writer: ChildWriter,
    reader: ChildReader,
}

impl Transport for StdioChild {
    fn split(self: Box<Self>) -> (Box<dyn Outgoing>, Box<dyn Incoming>) {
        (Box::new(self.writer), Box::new(self.reader))
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }
}

/// Holds the child; letting go of it starts the end.
struct Lifeline {
    release: Mutex<Option<oneshot::Sender<()>>>,
    end: watch::Receiver<Option<EndOfServer>>,
}

impl Lifeline {
    fn release(&self) {
        drop(self.release.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The end, if it comes soon.
    fn ended_soon(&self) -> Ended {
        let ended = self.ended();
        Box::pin(async move { timeout(LAST_WORDS_TIME, ended).await.ok().flatten() })
    }

    fn ended(&self) -> Ended {
        let mut end = self.end.clone();
        Box::pin(async move { end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone()) })
    }
}

impl fmt::Debug for Lifeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lifeline").field("end", &*self.end.borrow()).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
struct EndOfServer {
    status: Option<ExitStatus>,
    last_words: Vec<String>,
}

impl EndOfServer {
    /// What to tell the user, unless the server ended well.
    fn fault(&self) -> Option<String> {
        let status = self.status.filter(|status| !status.success())?;
        let mut text = format!("the server ended with {status}");
        if !self.last_words.is_empty() {
            text = format!("{text}: {}", self.last_words.join(" / "));
        }
        Some(text)
    }
}

struct ChildWriter {
    writer: LineWriter<ChildStdin>,
    ended: Option<Ended>,
    failure: WriterFailure,
    lifeline: Arc<Lifeline>,
}

/// What became of a write that found the server gone.
enum WriterFailure {
    None,
    /// Its status and last words say more than a broken pipe.
    Asking(Ended),
    Known(TransportError),
}

impl ChildWriter {
    fn poll_explained(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut LineWriter<ChildStdin>>, &mut Context<'_>) -> Poll<Result<(), TransportError>>,
    ) -> Poll<Result<(), TransportError>> {
        if matches!(self.failure, WriterFailure::None) {
            match ready!(poll(Pin::new(&mut self.writer), cx)) {
                Err(TransportError::Closed(None)) => self.failure = WriterFailure::Asking(self.lifeline.ended_soon()),
                result => return Poll::Ready(result),
            }
        }
        if let WriterFailure::Asking(ended) = &mut self.failure {
            let fault = ready!(ended.as_mut().poll(cx)).and_then(|end| end.fault());
            self.failure = WriterFailure::Known(TransportError::Closed(fault));
        }
        match &self.failure {
            WriterFailure::Known(error) => Poll::Ready(Err(error.clone())),
            WriterFailure::None | WriterFailure::Asking(_) => Poll::Ready(Ok(())),
        }
    }
}

impl Sink<Bytes> for ChildWriter {
    type Error = TransportError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.poll_explained(cx, LineWriter::poll_ready)
    }

    fn start_send(mut self: Pin<&mut Self>, message: Bytes) -> Result<(), TransportError> {
        Pin::new(&mut self.writer).start_send(message)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.poll_explained(cx, LineWriter::poll_flush)
    }

    /// Ready once the process has ended.
    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        if self.ended.is_none() {
            let closed = ready!(Pin::new(&mut self.writer).poll_close(cx));
            self.lifeline.release();
            self.ended = Some(self.lifeline.ended());
            // A server that is already gone cannot be told that its input ends.
            if let Err(error) = closed
                && !matches!(error, TransportError::Closed(_))
            {
                return Poll::Ready(Err(error));
            }
        }
        if let Some(ended) = &mut self.ended {
            ready!(ended.as_mut().poll(cx));
            self.ended = Some(Box::pin(std::future::ready(None)));
        }
        Poll::Ready(Ok(()))
    }
}

impl Outgoing for ChildWriter {}

impl fmt::Debug for ChildWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildWriter").field("writer", &self.writer).field("lifeline", &self.lifeline).finish()
    }
}

struct ChildReader {
    reader: LineReader<ChildStdout>,
    state: ReaderState,
    lifeline: Arc<Lifeline>,
}

enum ReaderState {
    Open,
    /// The output has ended; the status says whether that was in order.
    Ending(Ended),
    Ended,
}

impl Stream for ChildReader {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let this = &mut *self;
            match &mut this.state {
                ReaderState::Open => match ready!(Pin::new(&mut this.reader).poll_next(cx)) {
                    None => {
                        this.state = ReaderState::Ending(this.lifeline.ended_soon());
                    }
                    Some(Err(error)) => {
                        this.state = ReaderState::Ended;
                        return Poll::Ready(Some(Err(error)));
                    }
                    message => return Poll::Ready(message),
                },
                ReaderState::Ending(ended) => {
                    let end = ready!(ended.as_mut().poll(cx));
                    this.state = ReaderState::Ended;
                    let fault = end.and_then(|end| end.fault());
                    return Poll::Ready(fault.map(|fault| Err(TransportError::Closed(Some(fault)))));
                }
                ReaderState::Ended => return Poll::Ready(None),
            }
        }
    }
}

impl Incoming for ChildReader {
    fn received_bytes(&self) -> u64 {
        self.reader.received_bytes()
    }
}

impl fmt::Debug for ChildReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildReader").field("reader", &self.reader).field("lifeline", &self.lifeline).finish()
    }
}

/// Waits for the end of the child, or brings it about once `released`; then kills what is left of its group.
async fn supervise(
    mut child: Child,
    group: os::Group,
    released: oneshot::Receiver<()>,
    stderr: impl Future<Output = ()>,
    grace: Duration,
) -> Option<ExitStatus> {
    let mut stderr = pin!(stderr);
    let mut stderr_ended = false;
    let status = {
        let mut end = pin!(end_of(&mut child, &group, released, grace));
        tokio::select! {
            status = &mut end => status,
            () = &mut stderr => {
                stderr_ended = true;
                end.await
            }
        }
    };
    group.kill();
    if !stderr_ended {
        // Someone who left the group may hold the stream for ever.
        let _ = timeout(STDERR_TIME, stderr).await;
    }
    status.ok()
}

async fn end_of(
    child: &mut Child,
    group: &os::Group,
    released: oneshot::Receiver<()>,
    grace: Duration,
) -> io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        // An error means that the sender was dropped, which is the message.
        _ = released => {}
    }
    if let Ok(status) = timeout(END_OF_INPUT_TIME, child.wait()).await {
        return status;
    }
    group.terminate();
    if let Ok(status) = timeout(grace, child.wait()).await {
        return status;
    }
    group.kill();
    child.wait().await
}

struct StderrLog {
    sink: Option<StderrSink>,
    last_words: Arc<Mutex<VecDeque<String>>>,
}

impl StderrLog {
    async fn forward(self, mut stderr: impl AsyncRead + Unpin) {
        let mut buffer = Vec::with_capacity(STDERR_LINE_BYTES);
        loop {
            let read = (&mut stderr).take((STDERR_LINE_BYTES - buffer.len()) as u64).read_buf(&mut buffer).await;
            let ended = !matches!(read, Ok(count) if count > 0);
            let mut start = 0;
            while let Some(length) = memchr::memchr(b'\n', &buffer[start..]) {
                self.line(&buffer[start..start + length]);
                start += length + 1;
            }
            buffer.drain(..start);
            if buffer.len() == STDERR_LINE_BYTES || (ended && !buffer.is_empty()) {
                self.line(&buffer);
                buffer.clear();
            }
            if ended {
                return;
            }
        }
    }

    fn line(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
        if let Some(sink) = &self.sink {
            sink(&text);
        }
        if text.trim().is_empty() {
            return;
        }
        let mut last_words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        if last_words.len() == LAST_LINES {
            last_words.pop_front();
        }
        last_words.push_back(text.trim().chars().take(LAST_LINE_CHARS).collect());
    }
}

/// How long the end of input may take to end a server before it is asked by signal.
const END_OF_INPUT_TIME: Duration = Duration::from_secs(1);
/// How long after the end of its output a server's status is waited for, to say why it ended.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);
/// How long after the end of a server the end of its standard error is waited for.
const STDERR_TIME: Duration = Duration::from_millis(500);
const STDERR_LINE_BYTES: usize = 8 << 10;
const LAST_LINES: usize = 3;
const LAST_LINE_CHARS: usize = 300;
