//! What dropping a handle or a future does.
//!
//! # Handles
//!
//! | dropped | what happens |
//! | --- | --- |
//! | [`Process`](crate::Process), still running | its tree is killed at once, without blocking |
//! | [`Process`](crate::Process), exited | nothing: what it left behind lives on until its place is closed |
//! | [`Process`](crate::Process), detached | nothing |
//! | [`ProcessHandle`](crate::ProcessHandle), [`ProcessStdin`](crate::process::ProcessStdin) | nothing; standard input stays open |
//! | [`Events`](crate::process::Events) | the events go back to their process; if that is gone, output is discarded from then on |
//! | the last clone of an [`Environment`](crate::Environment) | its processes are ended in the background |
//! | a transport's halves | the connection ends; the session is kept by the server for a while |
//!
//! A tree is the process group of the process; of a process that is [contained](crate::ExecRequest::contain) it is all that
//! descends from it.
//!
//! A process is not ended because nobody reads its output: it waits. That is the reason why dropped events are read and
//! discarded rather than left in the pipe.
//!
//! ```
//! # #[cfg(unix)]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use longarm::{Environment, ExecRequest};
//!
//! let environment = Environment::local();
//! let mut process = environment.spawn(ExecRequest::new(["sh", "-c", "seq 1 1000000; exit 4"])).await?;
//! let events = process.take_events();
//! assert!(process.take_events().is_none(), "there is one stream of events");
//! drop(events);
//! // The events are back, and waiting for the end discards the output that is in the way.
//! assert_eq!(process.wait().await?.code(), Some(4));
//! # environment.close().await;
//! # Ok(()) }
//! # #[cfg(not(unix))]
//! # fn main() {}
//! ```
//!
//! # Futures
//!
//! | dropped before it is done | what happens |
//! | --- | --- |
//! | [`Environment::spawn`](crate::Environment::spawn) | the process was not started, or is ended |
//! | [`Process::next_event`](crate::Process::next_event), [`Process::wait`](crate::Process::wait) | nothing is lost; call again |
//! | [`Process::write`](crate::Process::write) | once polled, the bytes are written exactly once all the same |
//! | [`Process::collect`](crate::Process::collect) | what was collected so far is lost; the process goes on |
//! | [`Process::output`](crate::Process::output) | it owns the process, so the process is killed |
//! | `terminate`, `signal`, `resize`, `close_stdin` | done, or not begun |
//! | [`Environment::close`](crate::Environment::close) | the end has begun and goes on |
//!
//! So a `select!` around any of them is safe:
//!
//! ```
//! # #[cfg(unix)]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use longarm::{Environment, Event, ExecRequest, Stdin};
//!
//! let environment = Environment::local();
//! let mut process = environment.spawn(ExecRequest::new(["cat"]).stdin(Stdin::Piped)).await?;
//! let mut ticks = tokio::time::interval(Duration::from_millis(1));
//! let mut echoed = Vec::new();
//! for _ in 0..3 {
//!     process.write("tick\n").await?;
//! }
//! process.close_stdin().await?;
//! loop {
//!     tokio::select! {
//!         // This future is dropped at every tick, and no event is lost.
//!         event = process.next_event() => match event? {
//!             Some(Event::Output(output)) => echoed.extend_from_slice(&output.bytes),
//!             Some(_) => {}
//!             None => break,
//!         },
//!         _ = ticks.tick() => {}
//!     }
//! }
//! assert_eq!(echoed, b"tick\ntick\ntick\n");
//! # environment.close().await;
//! # Ok(()) }
//! # #[cfg(not(unix))]
//! # fn main() {}
//! ```
