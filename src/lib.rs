//! Run processes behind one [`Environment`] handle, on this machine or on a remote executor, with the same events, the
//! same bytes and the same errors in every place.
//!
//! # What it does not do
//!
//! It is no shell: a request names a program and its arguments. It decides nothing about what may run: approval and
//! policy are the host's. It does not start executors on other machines, and it encrypts nothing by itself. It reads no
//! configuration, sets up no logging and installs no signal handler, with one exception: where the system has no pidfds
//! (macOS, Linux before 5.10), launching a [server as a child process](transport::stdio::StdioServer) has tokio install its handler for
//! `SIGCHLD`.
//!
//! # The parts
//!
//! ```text
//!          host (agent, IDE, test)
//!                   │
//!             Environment            one place, local or remote
//!       ┌───────────┴───────────┐
//!  dyn ExecBackend: Local  dyn ExecBackend: Remote ── one task a connection
//!       │                                │
//!  child processes                 dyn Transport
//!                                        │   websocket | stdio | memory | your own
//!                                     Server ── one task a session
//!                                        │
//!                                 dyn ExecBackend (usually Local)
//! ```
//!
//! A host may replace each `dyn`: see [`ExecBackend`], [`Transport`] and [`EnvPolicy`].
//!
//! # A command on this machine
//!
//! ```
//! use longarm::{CollectLimits, Environment, ExecRequest};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let environment = Environment::local();
//! let process = environment.spawn(ExecRequest::new(["sh", "-c", "echo hi; exit 3"])).await?;
//! let output = process.output(CollectLimits::default()).await?;
//! assert_eq!(output.stdout.to_text(), "hi\n");
//! assert_eq!(output.status.code(), Some(3));
//! environment.close().await;
//! # Ok(()) }
//! ```
//!
//! # The same on another machine
//!
//! Only the way to the environment differs: a transport, and a connection over it. Here the events are followed one by
//! one instead of being collected; that too is the same in every place.
//!
//! ```no_run
//! // Not run: it needs a server, such as `longarm serve --listen ws://127.0.0.1:4500`.
//! use longarm::{Environment, Event, ExecRequest, config::ClientConfig};
//! # #[cfg(feature = "websocket")]
//! use longarm::transport::websocket;
//!
//! # #[cfg(feature = "websocket")]
//! # async fn remote() -> Result<(), Box<dyn std::error::Error>> {
//! let transport = websocket::connect("ws://127.0.0.1:4500", &Default::default()).await?;
//! let environment = Environment::connect(transport, ClientConfig::default()).await?;
//! let mut process = environment.spawn(ExecRequest::new(["make"]).cwd("/srv/project")).await?;
//! while let Some(event) = process.next_event().await? {
//!     match event {
//!         Event::Output(output) => print!("{}", String::from_utf8_lossy(&output.bytes)),
//!         Event::Exited(exited) => println!("{}", exited.status),
//!         Event::Gap(_) | Event::Closed(_) | _ => {}
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # A test with the in-memory transport
//!
//! Client, server and wire as they are, without a socket:
//!
//! ```
//! use std::sync::Arc;
//! use longarm::{CollectLimits, Environment, ExecRequest, Local, LocalConfig};
//! use longarm::{config::ClientConfig, server::Server, transport::memory};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, far) = memory::pair();
//! let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
//! let serving = tokio::spawn(async move { server.serve(Box::new(far)).await });
//!
//! let environment = Environment::connect(near, ClientConfig::default()).await?;
//! let process = environment.spawn(ExecRequest::new(["echo", "hi"])).await?;
//! assert_eq!(process.output(CollectLimits::default()).await?.stdout.to_text(), "hi\n");
//! environment.close().await;
//! serving.await??;
//! # Ok(()) }
//! ```
//!
//! Without any process, `testing::fake` (feature `testing`) runs async functions in place of programs.
//!
//! # Features
//!
//! | feature | default | adds |
//! | --- | --- | --- |
//! | (always) | | local processes over pipes, client, server, memory and stdio transports |
//! | `websocket` | yes | WebSocket client and server |
//! | `pty` | yes | terminal processes |
//! | `http` | no | HTTP requests made by this machine: [`Local`], and servers of it, offer them |
//! | `tls` | no | `https` in those requests, and `wss` URLs; it compiles C |
//! | `cli` | no | the `longarm` program: `serve` and `exec`; with `http` |
//! | `toml` | no | [environments by name](environment) from a TOML file |
//! | `axum` | no | WebSockets that an axum handler has accepted, as [transports](transport) |
//! | `tracing`, `metrics` | no | [spans and measurements](telemetry) of calls |
//! | `testing` | no | a fake place, faults in the in-memory transport, the contract suite for backends |
//!
//! # What dropping does
//!
//! - A [`Process`] that still runs is killed with its whole tree, at once and without blocking, unless it was detached.
//!   One that has exited is left alone, with what it left behind.
//! - A future of this crate may be dropped at any time; its documentation says what happens to what it had begun.
//! - Dropping the last clone of an [`Environment`] ends its processes in the background; [`Environment::close`] waits.
#![cfg_attr(doc, doc = "")]
#![cfg_attr(
    doc,
    doc = "The guide has [a page on it](guide::drop_and_cancel), one on [writing an executor](guide::executor),"
)]
#![cfg_attr(doc, doc = "one on [broken connections](guide::recovery)")]
#![cfg_attr(doc, doc = "and one on [the extension of the wire](guide::extension).")]
//!
//! # How strong the sandbox is
//!
//! A request that asks for a [sandbox](sandbox) runs in it, or is refused with a typed error; it never runs without it. On
//! Linux, what is outside the workspace and a network that is restricted stand behind two walls each; the report of each
//! process says what is enforced. On macOS and Windows a sandbox is partial, and the executor's owner has to accept that; what it cannot enforce
//! there is refused. What it does not protect against is on a page of the guide.
#![cfg_attr(doc, doc = "[That page](guide::sandbox) also has the fall-backs of older kernels.")]
//!
//! Everything else runs with the rights of its executor: a command can do all that the executor's user can. Ending a
//! process reaches its process group, or the session of its terminal; a descendant that has started a session of its own
//! survives, unless the request asks for [containment](ExecRequest::contain), or for a sandbox.
//!
//! # Compatibility on the wire
//!
//! The wire is that of Codex's `codex exec-server` 0.171.0 (processes, files, HTTP) in both directions: this client drives
//! that server, and that client drives this server. What the wire lacks is an [extension](backend::Features) that both ends
//! announce; towards a peer without it, a call that needs it ends in [`Unsupported`](error::Unsupported) before anything
//! is sent. Between `longarm` peers, no byte is lost while the session lives. Towards a reference peer: none is lost while
//! at most 1 MiB per process falls into one outage; more shows as an explicit gap (size known or unknown) and fails that
//! process.

pub mod backend;
mod blocking;
pub mod collect;
pub mod config;
pub mod core;
pub mod env_policy;
pub mod environment;
pub mod error;
pub mod event;
pub mod fs;
#[cfg(any(doc, doctest))]
pub mod guide;
pub mod http;
pub mod info;
pub mod path_uri;
pub mod process;
pub mod request;
pub mod sandbox;
pub mod server;
pub mod status;
pub mod telemetry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
mod time;
#[cfg(feature = "tls")]
mod tls;
pub mod transport;
pub mod wire;

pub use crate::backend::ExecBackend;
pub use crate::backend::local::{Local, LocalConfig};
pub use crate::backend::remote::Remote;
pub use crate::collect::{CollectLimits, CollectedOutput};
pub use crate::env_policy::{EnvPolicy, ShellEnvPolicy};
pub use crate::environment::Environment;
pub use crate::event::{Event, OutputStream};
pub use crate::path_uri::PathUri;
pub use crate::process::{Process, ProcessHandle};
pub use crate::request::{ExecRequest, Signal, Stdin, TerminalSize};
pub use crate::status::ExitStatus;
pub use crate::transport::Transport;

/// Compiles and runs the code blocks of the README.
#[cfg(all(doctest, feature = "websocket"))]
#[doc = include_str!("../README.md")]
struct Readme;
