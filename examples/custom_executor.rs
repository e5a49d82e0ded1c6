//! An executor from nothing: processes of this machine through tokio's own `Command`. It teaches what a backend owes its
//! callers: events that are pulled, an exit apart from the end of the streams, an end that reaches the whole group.
//! The public contract suite passes on it: `cargo test --all-features --test contract custom_executor`.

use bytes::Bytes;
use longarm::backend::{ExecBackend, InputQueue, ProcessControl, Spawned, Terminate, channel};
use longarm::env_policy::ReservedNames;
use longarm::error::{CallError, InvalidRequest, OsError, SignalError, SpawnError, Unsupported, WriteError};
use longarm::fs::{FileSystem, LocalFileSystem, LocalFileSystemConfig};
use longarm::info::{EnvironmentInfo, Shell};
use longarm::request::ProcessId;
use longarm::{CollectLimits, Environment, ExecRequest, ExitStatus, OutputStream, Signal, Stdin};
use std::io::{Error, ErrorKind};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// The processes that were started; none once the place is closed.
#[derive(Debug)]
pub(crate) struct Commands(pub(crate) Mutex<Option<Vec<Arc<Control>>>>);

#[async_trait::async_trait]
impl ExecBackend for Commands {
    async fn spawn(&self, request: ExecRequest) -> Result<Spawned, SpawnError> {
        request.validate()?;
        let (terminal, sandbox) = (request.requested_terminal(), request.requested_sandbox());
        if terminal.is_some() || sandbox.is_some() || request.requested_containment() {
            return Err(unsupported("a terminal, a sandbox or containment").into());
        }
        let mut started = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let started = started.as_mut().ok_or(SpawnError::Closed)?;
        let cwd = request.host_cwd(None)?;
        let env = request.host_env(&std::env::vars_os().collect(), &ReservedNames::default())?;
        let (program, args) = request.argv().split_first().ok_or(InvalidRequest::EmptyArgv)?;
        let mut command = tokio::process::Command::new(program);
        command.args(args).arg0(request.requested_arg0().unwrap_or(program)).current_dir(&cwd).process_group(0);
        command.env_clear().envs(env).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if request.requested_stdin() == Stdin::Piped { Stdio::piped() } else { Stdio::null() });
        let mut child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => SpawnError::ProgramOrCwdNotFound { program: program.into(), cwd: cwd.clone() },
            _ => OsError::new("start the program", error).into(),
        })?;
        // A bounded queue: when nobody reads the events, nobody reads the pipes, and the process waits.
        let (sender, events) = channel(16);
        child.stdout.take().map(|pipe| tokio::spawn(sender.clone().forward(OutputStream::Stdout, pipe)));
        child.stderr.take().map(|pipe| tokio::spawn(sender.clone().forward(OutputStream::Stderr, pipe)));
        let (exit, exited) = watch::channel(false);
        let control = Arc::new(Control { group: child.id(), exited, input: InputQueue::new(child.stdin.take()) });
        tokio::spawn(async move {
            let status = child.wait().await.map_or(ExitStatus::unknown(), ExitStatus::from);
            exit.send_replace(true);
            sender.exited(status).await;
        });
        started.push(Arc::clone(&control));
        let process_id = request.requested_id().cloned().unwrap_or_else(ProcessId::random);
        Ok(Spawned { process_id, control, events, sandbox_type: None })
    }
    fn fs(&self) -> Option<Arc<dyn FileSystem>> {
        Some(Arc::new(LocalFileSystem::new(LocalFileSystemConfig::from_host()))) // Those of this machine.
    }
    async fn info(&self) -> Result<EnvironmentInfo, CallError> {
        Ok(EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() }))
    }
    async fn close(&self) {
        let started = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        for control in started.into_iter().flatten() {
            control.kill_now();
            drop(control.exited.clone().wait_for(|exited| *exited).await);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Control {
    group: Option<u32>,
    exited: watch::Receiver<bool>,
    input: InputQueue,
}
#[async_trait::async_trait]
impl ProcessControl for Control {
    async fn write(&self, data: Bytes) -> Result<(), WriteError> {
        self.input.write(data).await
    }
    async fn close_stdin(&self) -> Result<(), WriteError> {
        self.input.close()
    }
    async fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        signal.name().ok_or_else(|| unsupported("a signal without a name"))?;
        self.send(signal).map(drop)
    }
    async fn terminate(&self, how: Terminate) -> Result<bool, SignalError> {
        if how == Terminate::kill() { self.send(Signal::Kill) } else { Err(unsupported("a polite stop").into()) }
    }
    fn kill_now(&self) {
        drop(self.send(Signal::Kill)); // It fails only if the group has just ended by itself.
    }
}

impl Control {
    /// Sends a signal to the group, unless its leader has exited: then its number may soon be another group's.
    fn send(&self, signal: Signal) -> Result<bool, SignalError> {
        let Some(group) = self.group.filter(|_| !*self.exited.borrow()) else { return Ok(false) };
        // SAFETY: the call takes two numbers and touches no memory of this process.
        let sent = unsafe { libc::killpg(group.cast_signed(), signal.number()) } == 0;
        sent.then_some(true).ok_or_else(|| OsError::new("signal the process group", Error::last_os_error()).into())
    }
}
fn unsupported(feature: &'static str) -> Unsupported {
    Unsupported { feature, place: "this executor".into() }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let environment = Environment::with_backend(Arc::new(Commands(Mutex::new(Some(Vec::new())))));
    let request = ExecRequest::new(["sh", "-c", "echo from a custom executor; exit 3"]).cwd("/");
    print!("{}", environment.spawn(request).await?.output(CollectLimits::default()).await?.stdout.to_text());
    environment.close().await;
    Ok(())
}
