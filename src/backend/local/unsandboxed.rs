//! Where no process can be sandboxed yet: what is asked for is refused. It has the names of the sandboxes of Linux.

use std::path::Path;
use std::sync::Arc;

use crate::sandbox::{Bound, Enforcement, ManagedNetworkFacts, SandboxError, SandboxSettings};

pub(super) use super::watched::{Held, Placeholders};

/// What a request adds to an intent.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "nobody reads it here")]
pub(super) struct Request<'a> {
    pub(super) cwd: &'a Path,
    pub(super) managed: Option<&'a ManagedNetworkFacts>,
}

/// There is none.
#[derive(Clone, Debug)]
pub(super) enum SandboxPlan {}

impl SandboxPlan {
    pub(super) fn enforcement(&self) -> &Enforcement {
        match *self {}
    }
}

/// Refuses.
pub(super) fn prepare(
    _bound: &Arc<Bound>,
    _settings: &SandboxSettings,
    _request: Request<'_>,
) -> Result<SandboxPlan, SandboxError> {
    Err(SandboxError::Unavailable {
        cause: format!("this version has no sandboxes for processes on {}", std::env::consts::OS),
        remedy: None,
    })
}
