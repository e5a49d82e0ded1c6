//! Every limit and every time-out, with its default and the reason for it.

use std::time::Duration;

/// What to do when the retained output is full of bytes that nobody has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// Stop reading, so that the process waits. Nothing is lost.
    #[default]
    Pause,
    /// Drop the oldest chunks, counted, while no connection is attached. The process goes on.
    DropOldest,
}

/// Bounds on the output that is held for one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputLimits {
    /// Bytes held. 1 MiB, as the reference.
    pub retained_bytes: usize,
    /// Chunks held. 50,000, as the reference.
    pub retained_chunks: usize,
    /// Bytes in one chunk at most. 64 KiB: any peer takes events up to 1 MiB, and larger pieces gain nothing.
    pub chunk_bytes: usize,
    /// What happens at the bound while no connection is attached.
    pub when_full: WhenFull,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self { retained_bytes: 1 << 20, retained_chunks: 50_000, chunk_bytes: 64 << 10, when_full: WhenFull::Pause }
    }
}

/// Bounds on messages from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageLimits {
    /// Bytes in one message. 64 MiB, as the reference accepts.
    pub max_message_bytes: usize,
    /// JSON values in one message. 262,144, as the reference accepts.
    pub max_json_values: usize,
    /// Nested containers, the message object included. 127, as the reference accepts.
    pub max_json_depth: usize,
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self { max_message_bytes: 64 << 20, max_json_values: 262_144, max_json_depth: 127 }
    }
}

/// When to ask for a sign of life, and when to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keepalive {
    /// Time between pings. 30 s, as the reference.
    pub ping_interval: Duration,
    /// Silence after which the peer is taken for gone. Any byte from it counts as life. 60 s.
    pub silence_limit: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { ping_interval: Duration::from_secs(30), silence_limit: Duration::from_secs(60) }
    }
}

/// Time between attempts to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryDelay {
    /// After the first failed attempt. 100 ms.
    pub first: Duration,
    /// The longest one. Where it is longer than the first, delays double until they reach it, and get up to half of their
    /// length on top at random.
    pub max: Duration,
}

impl RetryDelay {
    /// Always the same.
    pub const fn constant(delay: Duration) -> Self {
        Self { first: delay, max: delay }
    }

    /// Doubling from `first` to `max`.
    pub const fn growing(first: Duration, max: Duration) -> Self {
        Self { first, max }
    }
}

impl Default for RetryDelay {
    fn default() -> Self {
        Self::constant(Duration::from_millis(100))
    }
}

/// How a client that can dial comes to a connection, and back to one when it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// How long the attempts of one outage may take together. 45 s, as the reference, whose server keeps a session for 80 s.
    ///
    /// A connection that was made in time has longer, as long as it tells what happened meanwhile: at least 10 s, and 10 s more
    /// after each answer. A process of which nothing is told by then fails alone, and is ended on the executor.
    pub deadline: Duration,
    /// Time between attempts, and the least time between two connections.
    pub retry: RetryDelay,
    /// The least time between two new sessions, after the former one was lost. 1 s.
    pub new_session_delay: Duration,
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(45),
            retry: RetryDelay::default(),
            new_session_delay: Duration::from_secs(1),
        }
    }
}

/// Limits of a server.
///
/// What they add up to, in bytes held for a peer:
///
/// - A session holds ([`max_processes`](Self::max_processes) + twice the larger of it and
///   [`max_closed_processes`](Self::max_closed_processes)) × ([`output.retained_bytes`](OutputLimits::retained_bytes) +
///   [`output.chunk_bytes`](OutputLimits::chunk_bytes)) of output at most, beside what its backend holds; for each of its
///   [`max_processes`](Self::max_processes), [`stdin_queue_bytes`](Self::stdin_queue_bytes) of input that is not written
///   yet; and [`max_request_bytes_in_flight`](Self::max_request_bytes_in_flight) of further input for all of them.
/// - A connection holds one message of [`messages.max_message_bytes`](MessageLimits::max_message_bytes) that is being
///   received and one of 64 MiB that is being sent, 4 MiB of answers that its peer does not take and one more, and
///   [`max_request_bytes_in_flight`](Self::max_request_bytes_in_flight) of requests without an answer, with 1 MiB more for
///   those that wait for nothing; and of files that are read, [`max_file_bytes_in_flight`](Self::max_file_bytes_in_flight),
///   or if that is larger, one whole file of [`max_read_file_bytes`](Self::max_read_file_bytes). The entries of a directory
///   that is being read are held whole, however many they are.
/// - A server holds [`max_sessions`](Self::max_sessions) and [`max_connections`](Self::max_connections) of them.
///
/// With the defaults the sums are larger than any machine (12.75 GiB of output for a session, 1,024 sessions): they protect
/// from one process, one request and one connection that misbehave, not from a client that is let in and means harm. A
/// server for such clients lowers the counts. With 16 sessions and connections, 32 processes and closed processes, and
/// 8 MiB for a message and for the requests in flight, a session holds 102 MiB of output and 40 MiB of input, a connection
/// 85 MiB, and the server 3.6 GiB. Processes hold what they themselves allocate; that bound is the system's to set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerConfig {
    /// How long a session without a connection is kept. 80 s, as measured on the reference.
    pub session_ttl: Duration,
    /// How long a closed process stays readable and its id taken. 80 s, as measured on the reference.
    ///
    /// The time does not run while the session is detached and the client has not seen everything of the process, nor
    /// before a client that acknowledges has acknowledged the end: between two peers of this library nothing is lost while
    /// the session lives.
    pub closed_retention: Duration,
    /// Output held for each process.
    pub output: OutputLimits,
    /// Accepted write ids remembered for each process. 4,096, as the reference.
    pub remembered_write_ids: usize,
    /// Writes queued for each process before further ones wait for their answer. 128, as the reference.
    pub stdin_queue_writes: usize,
    /// Bytes of accepted writes that a process has not taken yet, before further writes wait for their answer; a single
    /// write may be larger. 1 MiB. Input within it never counts against others, so that a process that does not read its
    /// input holds up its own writes only.
    pub stdin_queue_bytes: usize,
    /// Processes in one session that are not closed. 4,096; one more is refused.
    pub max_processes: usize,
    /// Closed processes that one session retains. 4,096. Beyond it, the one that closed first among those whose end was
    /// seen is forgotten before its time; if none was seen, one more process is refused.
    pub max_closed_processes: usize,
    /// Sessions, attached and detached. 1,024; one more is refused.
    pub max_sessions: usize,
    /// Connections at a time. 1,024; one more is refused.
    pub max_connections: usize,
    /// Requests of one connection that have no answer yet. 4,096; one more is refused.
    pub max_requests_in_flight: usize,
    /// Bytes of requests of one connection that have no answer yet; and, as much again, of writes of one session beyond
    /// [`stdin_queue_bytes`](Self::stdin_queue_bytes). 128 MiB; more is refused. A write that is refused so is missing in
    /// what its process reads, so that towards a client with extensions, which sends on before it is answered, later writes
    /// to that process fail too.
    pub max_request_bytes_in_flight: usize,
    /// Files that one connection may have open. 128, as the reference; one more is refused.
    pub max_file_handles: usize,
    /// Calls about files that the place carries out for one connection at a time; others wait. 8, so that one client whose
    /// calls take long leaves others their turn.
    pub max_file_jobs: usize,
    /// Bytes of a file that is read in one call; never more than fit into an answer. 48 MiB. The reference reads 512 MiB,
    /// which neither its own client nor this one accepts.
    pub max_read_file_bytes: u64,
    /// Bytes of files that are being read for one connection, or wait to leave. 8 MiB, which are eight blocks; further
    /// reads wait. A whole file that is larger is read when nothing else is on its way. What directories hold counts as 1
    /// MiB until it is there.
    pub max_file_bytes_in_flight: usize,
    /// Bytes in one answer about files, or to an HTTP request. 64 MiB, which is what clients accept. A walk that has more to
    /// say is cut, and says so; other calls are refused with size and limit.
    pub max_answer_bytes: usize,
    /// HTTP requests of one connection that are under way, bodies included. 256; one more is refused.
    pub max_http_requests: usize,
    /// Bytes of a body that is not streamed. 32 MiB, which fit into a message that any client takes; a larger one is an
    /// error.
    pub max_http_body_bytes: u64,
    /// Bytes of all such bodies that are collected for one connection, or wait to leave. 128 MiB; beyond it, the request
    /// whose body has grown ends in an error.
    pub max_http_bytes_in_flight: usize,
    /// Bounds on messages.
    pub messages: MessageLimits,
    /// How long a connection may take from its beginning until it has a session. 30 s.
    pub initialize_timeout: Duration,
    /// Signs of life.
    pub keepalive: Keepalive,
    /// How long the connection of a session may stay silent, though it is pinged, when another one asks for the session: then
    /// it is given up, and the next one that asks has the session. 2 s. Whoever asks before that is refused, and has to ask
    /// again; a connection that cannot be pinged is never given up so. The reference waits until the system gives the connection
    /// up.
    pub takeover_patience: Duration,
    /// Grace time of processes when the server stops. 2 s. The running processes of an expired session are killed at
    /// once, and what its exited ones left behind is left alone.
    pub shutdown_grace: Duration,
    /// What ties the spans of requests to the traces of the host, if those are kept by other means than the spans' fields.
    /// None.
    #[cfg(feature = "tracing")]
    pub propagation: Option<crate::telemetry::Propagation>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            session_ttl: Duration::from_secs(80),
            closed_retention: Duration::from_secs(80),
            output: OutputLimits::default(),
            remembered_write_ids: 4_096,
            stdin_queue_writes: 128,
            stdin_queue_bytes: 1 << 20,
            max_processes: 4_096,
            max_closed_processes: 4_096,
            max_sessions: 1_024,
            max_connections: 1_024,
            max_requests_in_flight: 4_096,
            max_request_bytes_in_flight: 128 << 20,
            max_file_handles: 128,
            max_file_jobs: 8,
            max_read_file_bytes: 48 << 20,
            max_file_bytes_in_flight: 8 << 20,
            max_answer_bytes: 64 << 20,
            max_http_requests: 256,
            max_http_body_bytes: 32 << 20,
            max_http_bytes_in_flight: 128 << 20,
            messages: MessageLimits::default(),
            initialize_timeout: Duration::from_secs(30),
            keepalive: Keepalive::default(),
            takeover_patience: Duration::from_secs(2),
            shutdown_grace: Duration::from_secs(2),
            #[cfg(feature = "tracing")]
            propagation: None,
        }
    }
}

/// Limits of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientConfig {
    /// How the client names itself.
    pub client_name: String,
    /// How long the handshake may take. 10 s.
    pub initialize_timeout: Duration,
    /// Calls in flight towards a plain peer. 64; one more ends at once in `Busy`. About a thousand stop the reference
    /// for ever (measured).
    pub max_calls: usize,
    /// Calls in flight towards a peer with the `longarm` extension. 1,024.
    pub max_calls_extended: usize,
    /// Grace time of processes when the environment is closed, towards a peer with the feature `terminate`. 2 s. When all
    /// clones are dropped instead, and towards a plain peer, they are killed at once.
    pub close_grace: Duration,
    /// How long the one call that is reserved for cleaning up may be waited for by another one, while no regular call is
    /// answered either. Then the peer is taken for stuck and the connection is closed. 10 s.
    pub cleanup_patience: Duration,
    /// Writes of one process that wait for earlier ones. 4,096; one more ends at once in `Busy`. A process that does not
    /// read its input takes few calls in flight, however many writes wait.
    pub max_queued_writes: usize,
    /// Events of one process that came too early and are held back. 256.
    pub reorder_events: usize,
    /// Bytes of output of one process that came too early and are held back, and the largest single event. 1 MiB.
    pub reorder_bytes: usize,
    /// Output held for each process whose events are not read.
    pub output: OutputLimits,
    /// Bytes of a streamed HTTP body that are held for its reader, towards a peer with the feature `http`. 1 MiB; the peer
    /// sends no more until they are read.
    pub http_window_bytes: usize,
    /// Bytes of all streamed HTTP bodies that are held for their readers, towards a plain peer, which cannot be slowed down.
    /// 16 MiB; beyond it, the body that has come ends in `Overflow`.
    pub http_buffer_bytes: usize,
    /// Bounds on messages.
    pub messages: MessageLimits,
    /// Signs of life.
    pub keepalive: Keepalive,
    /// How it comes back after its connection broke, where it can dial again.
    pub recovery: Recovery,
    /// What ties the spans of calls to the traces of the host, if those are kept by other means than the spans' fields. None.
    #[cfg(feature = "tracing")]
    pub propagation: Option<crate::telemetry::Propagation>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            client_name: "longarm".into(),
            initialize_timeout: Duration::from_secs(10),
            max_calls: 64,
            max_calls_extended: 1_024,
            close_grace: Duration::from_secs(2),
            cleanup_patience: Duration::from_secs(10),
            max_queued_writes: 4_096,
            reorder_events: 256,
            reorder_bytes: 1 << 20,
            output: OutputLimits::default(),
            http_window_bytes: 1 << 20,
            http_buffer_bytes: 16 << 20,
            // Results are larger than requests: the bound on values protects a server, not us.
            messages: MessageLimits { max_json_values: 16 << 20, ..MessageLimits::default() },
            keepalive: Keepalive::default(),
            recovery: Recovery::default(),
            #[cfg(feature = "tracing")]
            propagation: None,
        }
    }
}
