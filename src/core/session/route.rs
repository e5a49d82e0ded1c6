//! What a session knows of one process.

use std::path::PathBuf;

use bytes::Bytes;

use super::inbox::Inbox;
use super::input::Input;
use super::op::Token;
use crate::config::ClientConfig;
use crate::request::ProcessId;
use crate::time::Instant;

/// One process on this connection.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) process_id: ProcessId,
    pub(super) inbox: Inbox,
    pub(super) input: Input,
    pub(super) start: Start,
    /// Unknown for a process that was attached to.
    pub(super) tty: Option<bool>,
    pub(super) detached: bool,
    /// Nobody can act on the process any more.
    pub(super) released: bool,
    /// Nobody waits for its start any more.
    pub(super) abandoned: bool,
    /// The events have ended in an error; the process may live.
    pub(super) failed: bool,
    /// A stop of ours waits or is on its way.
    pub(super) stopping: bool,
    /// Its place is being closed, which waits for its end.
    pub(super) closing: bool,
    pub(super) input_queued: bool,
    pub(super) read_queued: bool,
    pub(super) time_limit: Option<std::time::Duration>,
    pub(super) deadline: Option<Instant>,
    pub(super) output_limit: Option<u64>,
    pub(super) timer: Option<Instant>,
    /// The reader was given time to make room.
    pub(super) was_full: bool,
    pub(super) acked_seq: u64,
    pub(super) acked_bytes: u64,
    pub(super) acked_events: u64,
}

/// How far the start is.
#[derive(Debug)]
pub(super) enum Start {
    /// It waits for what the peer says of itself.
    Held,
    /// The request is in the table of calls.
    Called(i64),
    /// The process was attached to; this call waits for the first read.
    Attaching(Token),
    Done,
}

/// What names a start in errors.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) program: PathBuf,
    pub(super) cwd: PathBuf,
}

impl Route {
    pub(super) fn starting(process_id: ProcessId, config: &ClientConfig) -> Self {
        let inbox = Inbox::new(process_id.clone(), config);
        Self::new(process_id, inbox, Start::Held)
    }

    pub(super) fn attaching(process_id: ProcessId, after_seq: u64, token: Token, config: &ClientConfig) -> Self {
        let inbox = Inbox::attached(process_id.clone(), after_seq, config);
        let mut route = Self::new(process_id, inbox, Start::Attaching(token));
        route.acked_seq = after_seq;
        route
    }

    const fn new(process_id: ProcessId, inbox: Inbox, start: Start) -> Self {
        Self {
            process_id,
            inbox,
            input: Input::new(),
            start,
            tty: None,
            detached: false,
            released: false,
            abandoned: false,
            failed: false,
            stopping: false,
            closing: false,
            input_queued: false,
            read_queued: false,
            time_limit: None,
            deadline: None,
            output_limit: None,
            timer: None,
            was_full: false,
            acked_seq: 0,
            acked_bytes: 0,
            acked_events: 0,
        }
    }

    /// All has been told, and the process is gone.
    pub(super) const fn is_closed(&self) -> bool {
        self.inbox.is_over() && !self.failed
    }

    /// When something is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let deadline = self.deadline.filter(|_| !self.inbox.has_exited() && !self.stopping);
        deadline.into_iter().chain(self.inbox.poll_timeout()).min()
    }
}

/// A message on its way to the transport.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) kind: Kind,
    pub(super) bytes: Bytes,
}

/// What a message does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It begins the handshake.
    Initialize,
    /// It ends the handshake.
    Initialized,
    /// It makes this call.
    Call(i64),
    /// It answers a request of the peer.
    Reply,
    /// It acknowledges.
    Ack,
    /// It says something that has no answer.
    Notice,
}
