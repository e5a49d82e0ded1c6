//! What a broken connection means, and what goes on.
//!
//! A place that is made with [`Environment::with_connector`](crate::Environment::with_connector) connects when it is first
//! used. When its connection breaks, it dials again, resumes its session, and asks for what has happened meanwhile, for all
//! processes at once. Process handles, event streams, waits and writes go on: the same ids, every event once and in order.
//! `examples/reconnect.rs` cuts a link at random while a command streams in both directions.
//!
//! ```
//! use std::sync::Arc;
//!
//! use longarm::backend::remote::{ConnectionState, Readiness};
//! use longarm::config::ClientConfig;
//! use longarm::error::ConnectError;
//! use longarm::server::Server;
//! use longarm::transport::{Connector, Transport, memory};
//! use longarm::{Environment, ExecRequest, Local, LocalConfig};
//!
//! /// Any way to the server will do that can be gone again: `WebSocketConnector` is one.
//! #[derive(Debug)]
//! struct Within(Server);
//!
//! #[async_trait::async_trait]
//! impl Connector for Within {
//!     async fn connect(&self) -> Result<Box<dyn Transport>, ConnectError> {
//!         let (near, far) = memory::pair();
//!         let server = self.0.clone();
//!         tokio::spawn(async move { server.serve(Box::new(far)).await });
//!         Ok(Box::new(near))
//!     }
//!
//!     fn can_reconnect(&self) -> bool {
//!         true
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
//! let place = Environment::with_connector(Within(server), ClientConfig::default());
//! assert_eq!(place.readiness(), Readiness::Unknown, "nothing has needed a connection yet");
//! place.wait_until_ready().await?;
//! let connection = place.connection().expect("a place with a connection");
//! assert_eq!(connection.state(), ConnectionState::Connected { generation: 1, session: 1 });
//! # #[cfg(unix)]
//! assert!(place.status(ExecRequest::new(["true"])).await?.success());
//! place.close().await;
//! # Ok(()) }
//! ```
//!
//! # What a break does to each kind of call
//!
//! "In flight" means that the request had left when the connection broke: it may or may not have run, and the error says so
//! ([`Sent::Unknown`](crate::error::Sent)). What had not left, and what is called while there is no connection, waits for the
//! next one. "May retry" is for the host: the library itself repeats only what is marked so.
//!
//! | call | in flight | may retry |
//! | --- | --- | --- |
//! | start of a process | `Disconnected`; if it did start, it is ended after the recovery, never adopted | yes, under another id at once, under the same one after the recovery |
//! | write to standard input, its closing | goes on: repeated by the library under the same id, applied once | not needed |
//! | events, `wait`, `output` | go on from the last event that was handed out | not needed |
//! | signal, resize | `Disconnected` | a resize yes; a signal only if twice does no harm |
//! | terminate, kill | `Disconnected`; the kill of a dropped handle is repeated by the library | yes |
//! | attach | `Disconnected`; the process is not followed | yes |
//! | info, status, list of processes | `Disconnected` | yes |
//! | whole files, directories, metadata, walk: reading | `Disconnected` | yes |
//! | whole files, directories, copy, remove: changing | `Disconnected` | only if twice does no harm |
//! | an open file: blocks, close | `Disconnected`, also when called later: an open file belongs to its connection | after opening it again |
//! | a watch for missing paths | ends | yes, after a look |
//! | an HTTP request, its body | `Disconnected`; a body is never resumed | only if the request is safe to repeat |
//!
//! What waits is still the caller's: a call, a start or an HTTP request whose future is dropped meanwhile is not made, and
//! leaves its place to others; only a write, a closing of input and a stop are made all the same. Closing the place takes back
//! the starts that wait. A file system that [fails fast](crate::fs::FileSystem::fail_fast) waits for nothing.
//!
//! # What is lost
//!
//! Between `longarm` peers, no byte is lost while the session lives. Towards a reference peer: none is lost while at most
//! 1 MiB per process falls into one outage; more shows as an explicit gap (size known or unknown) and fails that process: its
//! events end in [`WaitError::OutputLost`](crate::error::WaitError::OutputLost), and it is ended on the executor. All others
//! go on. The same becomes of a process of which a peer that is there again does not tell what happened to it meanwhile: neither
//! within the deadline, nor within 10 s of the last that it told.
//!
//! # When it does not come back
//!
//! The attempts of one outage have one deadline, 45 s by default ([`config::Recovery`](crate::config::Recovery)); a server
//! keeps a session without a connection for 80 s. An error that cannot get better by itself ends the recovery at once: a
//! refused upgrade, a session that the server does not know any more, a peer that breaks the protocol again and again. Then
//! everything that waited ends in `Disconnected`, with the end of the connection and the last error in its text.
//!
//! | state | what the next call does |
//! | --- | --- |
//! | [`SessionLost`](crate::backend::remote::ConnectionState::SessionLost) | begins a new session; the processes of the former one are gone |
//! | `Failed`, after a connection had stood, or for a reason that may pass | begins a new session |
//! | `Failed`, for a reason that does not pass, before any connection stood | fails with the same error, until [`refresh`](crate::Environment::refresh) |
//! | `Closed` | fails |
//!
//! New sessions are begun with a pause between them; all who call meanwhile share one attempt.
//!
//! # A connection that only seems to be there
//!
//! Both ends ping; a link over which nothing came for 60 s counts as broken ([`config::Keepalive`](crate::config::Keepalive)).
//! Any byte counts as life, also within one huge message. [`refresh`](crate::Environment::refresh) does not wait for that: it
//! wants an answer within 10 s. And when a client asks for its session while the server still believes in its former
//! connection, the server pings that one, and gives it up after 2 s without an answer
//! ([`takeover_patience`](crate::config::ServerConfig::takeover_patience)); the reference does not. Until then the client is
//! refused: a place that recovers asks again by itself, and whoever resumes over a connection of their own has to come again
//! with another one. A connection that cannot be pinged, such as one over pipes, stays until it ends.
//!
//! # Connections that the host makes
//!
//! [`Environment::accepted`](crate::Environment::accepted) takes a socket that the host has accepted and authenticated;
//! [`transport::from_parts`](crate::transport::from_parts) makes a transport of any sink and stream of messages, such as the
//! WebSocket of a web framework, and the feature `axum` has an extractor that does so for axum. Such a place cannot dial. When its connection breaks, it waits, within the same deadline, for
//! the next one: [`Remote::replace`](crate::Remote::replace), which may also be called while the present one stands.
