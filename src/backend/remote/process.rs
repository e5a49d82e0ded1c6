//! The means to act on a process on the other side.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::command::{Command, Link};
use super::failure::mismatch;
use crate::backend::{ProcessControl, Terminate};
use crate::core::session::{Answer, Op, RouteKey};
use crate::error::{Sent, SignalError, WriteError};
use crate::request::{Signal, TerminalSize};
use crate::sandbox::{Denial, Enforcement};

/// Acts on one process over its connection.
#[derive(Debug)]
pub(super) struct RemoteProcess {
    link: Arc<Link>,
    route: RouteKey,
    /// What the sandbox enforces, if the peer has said so.
    enforcement: Option<Enforcement>,
    /// The evidence of a denial, which the connection's task puts there before it hands out the exit.
    denial: Arc<OnceLock<Denial>>,
}

impl RemoteProcess {
    pub(super) const fn new(link: Arc<Link>, route: RouteKey, denial: Arc<OnceLock<Denial>>) -> Self {
        Self { link, route, enforcement: None, denial }
    }

    pub(super) fn set_enforcement(&mut self, enforcement: Option<Enforcement>) {
        self.enforcement = enforcement;
    }
}

#[async_trait::async_trait]
impl ProcessControl for RemoteProcess {
    fn enforcement(&self) -> Option<Enforcement> {
        self.enforcement.clone()
    }

    fn denial(&self) -> Option<Denial> {
        self.denial.get().cloned()
    }

    async fn write(&self, data: Bytes) -> Result<(), WriteError> {
        match self.link.call_on(self.route, Op::Write { data }).await? {
            Answer::Done => Ok(()),
            other => Err(mismatch(&other).into()),
        }
    }

    async fn close_stdin(&self) -> Result<(), WriteError> {
        match self.link.call_on(self.route, Op::CloseStdin).await? {
            Answer::Done => Ok(()),
            other => Err(mismatch(&other).into()),
        }
    }

    async fn resize(&self, size: TerminalSize) -> Result<(), SignalError> {
        match self.link.call_on(self.route, Op::Resize { size }).await? {
            Answer::Done => Ok(()),
            other => Err(mismatch(&other).into()),
        }
    }

    async fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        match self.link.call_on(self.route, Op::Signal { signal }).await? {
            Answer::Done => Ok(()),
            other => Err(mismatch(&other).into()),
        }
    }

    async fn terminate(&self, how: Terminate) -> Result<bool, SignalError> {
        match self.link.call_on(self.route, Op::Terminate { grace: how.grace, descendants: how.descendants }).await? {
            Answer::Running(running) => Ok(running),
            other => Err(mismatch(&other).into()),
        }
    }

    fn kill_now(&self) {
        self.link.send(Command::Kill(self.route));
    }

    async fn detach(&self) -> Result<(), SignalError> {
        let (answer, answered) = oneshot::channel();
        if !self.link.send(Command::Detach(self.route, answer)) {
            return Err(self.link.disconnected(Sent::NotSent).into());
        }
        match answered.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(SignalError::Ending),
            Err(_) => Err(self.link.disconnected(Sent::NotSent).into()),
        }
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        self.link.send(Command::Release(self.route));
    }
}

/// Gives up a start, or the attaching to a process, whose future is dropped before it has ended.
#[derive(Debug)]
pub(super) struct AbandonOnDrop {
    link: Arc<Link>,
    route: RouteKey,
    armed: bool,
}

impl AbandonOnDrop {
    pub(super) const fn new(link: Arc<Link>, route: RouteKey) -> Self {
        Self { link, route, armed: true }
    }

    /// It has ended well, and the process has an owner.
    pub(super) fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        if self.armed {
            self.link.send(Command::Abandon(self.route));
        }
    }
}
