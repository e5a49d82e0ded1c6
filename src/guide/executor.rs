//! Write an executor, in three steps.
//!
//! An executor is an [`ExecBackend`](crate::ExecBackend): it starts a process and hands out its events and the means to
//! act on it. Everything else (the handle, collecting, the server that makes it reachable from afar) comes with the
//! library.
//!
//! # Step 1: events
//!
//! [`channel`](crate::backend::channel) makes the events: it numbers and counts them, holds a bounded number of them, and
//! closes the streams when the last sender is dropped. This first executor runs nothing. It answers every request with a
//! greeting.
//!
//! ```
//! use std::sync::Arc;
//! use bytes::Bytes;
//! use longarm::backend::{EventSender, ExecBackend, ProcessControl, Spawned, Terminate, channel};
//! use longarm::error::{CallError, SignalError, SpawnError, WriteError};
//! use longarm::info::{EnvironmentInfo, Shell};
//! use longarm::request::{ExecRequest, ProcessId, Signal};
//! use longarm::{CollectLimits, Environment, ExitStatus, OutputStream};
//!
//! #[derive(Debug)]
//! struct Greeter;
//!
//! #[async_trait::async_trait]
//! impl ExecBackend for Greeter {
//!     async fn spawn(&self, request: ExecRequest) -> Result<Spawned, SpawnError> {
//!         // Names every fault that any place would find.
//!         request.validate()?;
//!         let (sender, events) = channel(16);
//!         tokio::spawn(async move {
//!             sender.output(OutputStream::Stdout, "hello\n").await;
//!             sender.exited(ExitStatus::exited(0)).await;
//!         });
//!         let process_id = request.requested_id().cloned().unwrap_or_else(ProcessId::random);
//!         Ok(Spawned { process_id, control: Arc::new(NoControl), events, sandbox_type: None })
//!     }
//!
//!     async fn info(&self) -> Result<EnvironmentInfo, CallError> {
//!         Ok(EnvironmentInfo::new(Shell { name: "sh".into(), path: "/bin/sh".into() }))
//!     }
//!
//!     async fn close(&self) {}
//! }
//!
//! /// There is nothing to act on.
//! #[derive(Debug)]
//! struct NoControl;
//!
//! #[async_trait::async_trait]
//! impl ProcessControl for NoControl {
//!     async fn write(&self, _data: Bytes) -> Result<(), WriteError> {
//!         Err(WriteError::StdinClosed)
//!     }
//!     async fn close_stdin(&self) -> Result<(), WriteError> {
//!         Err(WriteError::StdinClosed)
//!     }
//!     async fn signal(&self, _signal: Signal) -> Result<(), SignalError> {
//!         Ok(())
//!     }
//!     async fn terminate(&self, _how: Terminate) -> Result<bool, SignalError> {
//!         Ok(false)
//!     }
//!     fn kill_now(&self) {}
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let environment = Environment::with_backend(Arc::new(Greeter));
//! let output = environment.spawn(ExecRequest::new(["anything"])).await?.output(CollectLimits::default()).await?;
//! assert_eq!(output.stdout.to_text(), "hello\n");
//! # Ok(()) }
//! ```
//!
//! # Step 2: a process, and the mistake that everybody makes
//!
//! The obvious way to run a program is to read its output to the end and then report its exit. It works until a program
//! leaves something behind that holds its streams, such as a server in the background. Then the end of the output does
//! not come, and the exit, which happened long ago, is not told.
//!
//! ```
//! # #[cfg(unix)]
//! # mod unix {
//! use std::process::Stdio;
//! use std::time::Duration;
//! use longarm::backend::{EventSender, channel};
//! use longarm::{Event, ExitStatus, OutputStream};
//! use tokio::io::AsyncReadExt;
//! # use futures_util::StreamExt;
//!
//! async fn mistaken(mut child: tokio::process::Child, events: EventSender) -> std::io::Result<()> {
//!     let mut pipe = child.stdout.take().expect("it is piped");
//!     let mut buffer = [0; 8192];
//!     while let count @ 1.. = pipe.read(&mut buffer).await? {
//!         events.output(OutputStream::Stdout, buffer[..count].to_vec()).await;
//!     }
//!     // Reached only when the last holder of the pipe is gone.
//!     let status = child.wait().await?;
//!     events.exited(ExitStatus::exited(status.code().unwrap_or(-1))).await;
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The shell exits at once; the sleep that it leaves behind holds the pipe.
//! let mut command = tokio::process::Command::new("sh");
//! let child = command.args(["-c", "sleep 3 & echo hi"]).stdout(Stdio::piped()).spawn()?;
//! let (sender, mut events) = channel(16);
//! tokio::spawn(mistaken(child, sender));
//! assert!(matches!(events.next().await, Some(Ok(Event::Output(_)))));
//! let exit = tokio::time::timeout(Duration::from_millis(300), events.next()).await;
//! assert!(exit.is_err(), "nobody is told that the shell has exited");
//! # Ok(()) }
//! # }
//! # fn main() {
//! #     #[cfg(unix)]
//! #     unix::main().unwrap();
//! # }
//! ```
//!
//! # Step 3: the fix
//!
//! The exit and the end of the streams are two facts, so two tasks watch for them. Each has a sender of its own, and the
//! streams are closed when both are done. While nobody reads the events, the queue fills up, the task stops reading the
//! pipe, and the program waits: no byte is lost and nothing grows.
//!
//! ```
//! # #[cfg(unix)]
//! # mod unix {
//! # use std::process::Stdio;
//! use longarm::backend::{EventSender, channel};
//! use longarm::{Event, ExitStatus, OutputStream};
//! # use futures_util::StreamExt;
//!
//! async fn report_exit(mut child: tokio::process::Child, events: EventSender) -> std::io::Result<()> {
//!     let status = child.wait().await?;
//!     events.exited(ExitStatus::exited(status.code().unwrap_or(-1))).await;
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut command = tokio::process::Command::new("sh");
//! let mut child = command.args(["-c", "sleep 3 & echo hi"]).stdout(Stdio::piped()).spawn()?;
//! let (sender, mut events) = channel(16);
//! let pipe = child.stdout.take().expect("it is piped");
//! // Reads the pipe to its end, and waits while too much is held.
//! tokio::spawn(sender.clone().forward(OutputStream::Stdout, pipe));
//! tokio::spawn(report_exit(child, sender));
//! loop {
//!     if let Some(Ok(Event::Exited(exited))) = events.next().await {
//!         assert!(exited.status.success(), "told while the sleep still holds the pipe");
//!         break;
//!     }
//! }
//! # Ok(()) }
//! # }
//! # fn main() {
//! #     #[cfg(unix)]
//! #     unix::main().unwrap();
//! # }
//! ```
//!
//! # What is left
//!
//! The example `custom_executor` of the repository has the rest in about a hundred lines: standard input with writes that
//! are applied once even if their future is dropped ([`InputQueue`](crate::backend::InputQueue)), a process group that is
//! ended as a whole, the environment from [`host_env`](crate::ExecRequest::host_env), and the close of the
//! place. Check your own with the
//! contract suite (`testing::contract`, feature `testing`): it is the definition of the trait.
