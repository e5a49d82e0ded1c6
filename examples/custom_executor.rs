//! An executor from nothing: processes of this machine through tokio's own `Command`. It teaches what a backend owes its
//! callers: events that are pulled, an exit apart from the end of the streams, an end that reaches the whole group.
//! The public contract suite passes on it: `cargo test --all-features --test contract custom_executor`.

#[path = "custom_executor/control.rs"]
mod control;

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use longarm::backend::{EventSender, ExecBackend, Features, ProcessControl, Spawned, channel};
use longarm::env_policy::{EnvMap, ReservedNames, child_environment};
use longarm::error::{CallError, InvalidRequest, OsError, SpawnError};
use longarm::info::{EnvironmentInfo, Shell};
use longarm::request::ProcessId;
use longarm::{CollectLimits, Environment, ExecRequest, ExitStatus, OutputStream, Signal, Stdin};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

use control::{Control, unsupported};

/// The processes that were started; none once the place is closed.
#[derive(Debug)]
pub(crate) struct Commands(Mutex<Option<Vec<Arc<Control>>>>);

impl Commands {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

#[async_trait::async_trait]
impl ExecBackend for Commands {
    async fn spawn(&self, request: ExecRequest) -> Result<Spawned, SpawnError> {
        request.validate()?;
        if request.requested_terminal().is_some() || request.requested_sandbox().is_some() {
            return Err(unsupported("a terminal or a sandbox").into());
        }
        let mut started = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let started = started.as_mut().ok_or(SpawnError::Closed)?;
        let cwd = request.host_cwd(None)?;
        let (base, policy) = (std::env::vars_os().collect::<EnvMap>(), request.requested_env_policy());
        let (overlay, metadata) = (request.requested_env(), request.requested_metadata());
        let reserved = ReservedNames::default();
        let env = child_environment(&base, policy.map(AsRef::as_ref), overlay, metadata, &reserved, false);
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
        tokio::spawn(forward(OutputStream::Stdout, child.stdout.take(), sender.clone()));
        tokio::spawn(forward(OutputStream::Stderr, child.stderr.take(), sender.clone()));
        let (exit, exited) = watch::channel(false);
        let control = Arc::new(Control::new(&mut child, exited));
        tokio::spawn(async move {
            let status = child.wait().await.ok().and_then(|status| {
                let signaled = || status.signal().map(|number| ExitStatus::signaled(Signal::from_number(number)));
                status.code().map(ExitStatus::exited).or_else(signaled)
            });
            exit.send_replace(true);
            sender.exited(status.unwrap_or(ExitStatus::unknown())).await;
        });
        started.push(Arc::clone(&control));
        let process_id = request.requested_id().cloned().unwrap_or_else(ProcessId::random);
        Ok(Spawned { process_id, control, events, sandbox_type: None })
    }

    async fn info(&self) -> Result<EnvironmentInfo, CallError> {
        Ok(EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() }))
    }

    fn features(&self) -> Features {
        Features::default()
    }

    async fn close(&self) {
        let started = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        for control in started.into_iter().flatten() {
            control.kill_now();
            control.has_exited().await;
        }
    }
}

/// Passes on what comes from a pipe, to its end.
async fn forward(stream: OutputStream, pipe: Option<impl AsyncRead + Unpin>, events: EventSender) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        events.output(stream, Bytes::copy_from_slice(&buffer[..count])).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let environment = Environment::with_backend(Arc::new(Commands::new()));
    let request = ExecRequest::new(["sh", "-c", "echo from a custom executor; exit 3"]).cwd("/");
    let output = environment.spawn(request).await?.output(CollectLimits::default()).await?;
    print!("{}", output.stdout.to_text());
    println!("it ended with {}", output.status);
    environment.close().await;
    Ok(())
}
