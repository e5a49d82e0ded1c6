//! What goes beyond the plain wire, with an example of each.
//!
//! The wire of the reference cannot close standard input, resize a terminal, send a signal other than interrupt, stop a
//! process politely, tell a signal from an exit code, or make a server wait for a slow reader. Here all of that exists on
//! this machine and between `longarm` peers, as an extension of the wire that both ends announce.
//! [`Environment::features`](crate::Environment::features) says what a place has; towards a peer without a feature, a call
//! that needs it ends in [`Unsupported`](crate::error::Unsupported) before anything is sent.
//!
//! | [feature](crate::backend::Features) | what it gives | without it |
//! | --- | --- | --- |
//! | `credits` | a slow reader pauses its own process, and loses nothing | bounded buffer, then catching up, then an explicit gap |
//! | `close_stdin` | [`Process::close_stdin`](crate::Process::close_stdin) | `Unsupported` |
//! | `resize` | [`Process::resize`](crate::Process::resize), terminals of any initial size | `Unsupported`; 24 rows of 80 columns |
//! | `signal` | [`Process::signal`](crate::Process::signal) by name | interrupt only |
//! | `terminate` | a grace time; the descendants of an exited process | killed at once; `Unsupported` |
//! | `exit` | signal and exceeded limit (`timedOut`, `limit`) in the status; byte totals | 128 + *n* as an exit code; no totals |
//! | `limits` | time and output limits kept by the executor | kept by the client |
//! | `list` | the session's processes | `Unsupported` |
//! | `containment` | [`ExecRequest::contain`](crate::ExecRequest::contain): daemons end with the process that started them | `Unsupported` |
//! | `http` | a slow reader of a body slows its sender down; a body or a request that is given up ends; exact errors | bounded buffer, then [`Overflow`](crate::http::HttpError::Overflow); it goes on unseen; few causes |
//!
//! The examples run over the in-memory transport; over any other they are the same.
//!
//! ```
//! # #[cfg(unix)]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use std::time::Duration;
//! use longarm::backend::Terminate;
//! use longarm::{CollectLimits, Environment, Event, ExecRequest, Local, LocalConfig, Signal, Stdin, TerminalSize};
//! use longarm::{config::ClientConfig, server::Server, transport::memory};
//!
//! let (near, far) = memory::pair();
//! let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
//! tokio::spawn(async move { server.serve(Box::new(far)).await });
//! let environment = Environment::connect(near, ClientConfig::default()).await?;
//! assert!(environment.features().close_stdin);
//! let sh = |script: &str| ExecRequest::new(["sh", "-c", script]);
//! let limits = CollectLimits::default();
//!
//! // Closing standard input, after all that was written.
//! let process = environment.spawn(ExecRequest::new(["wc", "-c"]).stdin(Stdin::Piped)).await?;
//! process.write(vec![b'x'; 1000]).await?;
//! process.close_stdin().await?;
//! assert_eq!(process.output(limits).await?.stdout.to_text().trim(), "1000");
//!
//! // A terminal with a size of its own, and its change.
//! let script = "stty size; trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.1; done";
//! let request = sh(script).terminal(TerminalSize { rows: 10, cols: 40 });
//! let mut process = environment.spawn(request).await?;
//! let mut seen = String::new();
//! while let Some(event) = process.next_event().await? {
//!     if let Event::Output(output) = event {
//!         seen.push_str(std::str::from_utf8(&output.bytes)?);
//!         if seen.ends_with("ready\r\n") {
//!             process.resize(TerminalSize { rows: 50, cols: 120 }).await?;
//!         }
//!     }
//! }
//! assert_eq!(seen, "10 40\r\nready\r\n50 120\r\n");
//!
//! // Signals by name, and exits that tell a signal from a code.
//! let mut process = environment.spawn(ExecRequest::new(["sleep", "60"])).await?;
//! process.signal(Signal::Hangup).await?;
//! let status = process.wait().await?;
//! assert_eq!((status.code(), status.signal()), (None, Some(Signal::Hangup)));
//!
//! // A polite stop with a grace time.
//! let mut process = environment.spawn(sh("trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done")).await?;
//! process.next_event().await?;
//! assert!(process.terminate_with(Terminate::graceful(Duration::from_secs(20))).await?);
//! assert_eq!(process.wait().await?.code(), Some(9));
//!
//! // The end of what an exited process left behind.
//! let mut process = environment.spawn(sh("sleep 60 & exit 0")).await?;
//! process.wait().await?;
//! assert!(!process.terminate_with(Terminate::kill().with_descendants()).await?, "it was not running");
//! assert!(!process.output(limits).await?.still_open);
//!
//! // Limits that the executor keeps.
//! let request = ExecRequest::new(["sleep", "60"]).time_limit(Duration::from_millis(50));
//! assert!(environment.spawn(request).await?.wait().await?.timed_out());
//! let request = ExecRequest::new(["yes"]).output_limit_bytes(10_000);
//! assert!(environment.spawn(request).await?.output(limits).await?.status.limit_exceeded().is_some());
//!
//! // Credits: the reader is slow, the process waits, and every byte arrives.
//! let process = environment.spawn(sh("seq 1 500000")).await?;
//! let output = process.output(limits).await?;
//! assert_eq!((output.stdout.total_bytes, output.missing), (3_388_895, None));
//!
//! // The session's processes, for a client that comes back.
//! let process = environment.spawn(ExecRequest::new(["sleep", "60"])).await?;
//! let remote = environment.remote().expect("it is behind a connection");
//! assert!(remote.list_processes().await?.iter().any(|listed| listed.process_id == *process.id()));
//!
//! environment.close().await;
//! # Ok(()) }
//! # #[cfg(not(unix))]
//! # fn main() {}
//! ```
//!
//! # On the wire
//!
//! The server announces `environmentInfo.capabilities.longarm`, the client the member `longarm` of `initialize`, both as
//! `{"version": 1, "features": ["credits", …]}`; what both name is in force. Methods are called `longarm/…`. Additional
//! members appear only inside an object `longarm` of a known message, which a peer without the extension ignores.
//! [`wire::extension`](crate::wire::extension) has all of them.
