//! What holds a process and all that it starts, wherever they go: a cgroup, or a PID namespace.
//!
//! A process group loses a member that starts a session of its own, as daemons do. Neither of these loses anybody: a
//! cgroup keeps all who do not have themselves moved by somebody with the right to, a PID namespace keeps all.

use std::io;
use std::path::PathBuf;

use super::cgroup::Cgroup;
use super::namespace::PidNamespace;
use crate::backend::local::config::Containment;
use crate::request::Signal;

/// How a process is to be held.
#[derive(Clone, Debug)]
pub(in crate::backend::local) struct ContainerPlan {
    pub(in crate::backend::local) by: Containment,
    /// The cgroup to make others in, if not that of this process.
    pub(in crate::backend::local) parent_cgroup: Option<PathBuf>,
    /// Stands for a host that may not make PID namespaces.
    #[cfg(test)]
    pub(in crate::backend::local) no_namespaces: bool,
}

impl ContainerPlan {
    /// The ways to try, in their order.
    pub(super) fn ways(&self) -> Vec<Containment> {
        match self.by {
            Containment::Any => vec![Containment::Cgroup, Containment::PidNamespace],
            by => vec![by],
        }
    }
}

/// What holds one process.
#[derive(Debug)]
pub(super) enum Container {
    Cgroup(Cgroup),
    PidNamespace(PidNamespace),
}

impl Container {
    /// Kills everybody.
    pub(super) fn kill(&self) -> io::Result<()> {
        match self {
            Self::Cgroup(cgroup) => cgroup.kill(),
            Self::PidNamespace(namespace) => namespace.kill(),
        }
    }

    /// Sends a signal to everybody, save the members of the process group `told`, who have it already. An error means that
    /// nobody could be told.
    pub(super) fn signal(&self, signal: Signal, told: Option<libc::pid_t>) -> io::Result<()> {
        match self {
            Self::Cgroup(cgroup) => cgroup.signal(signal.number(), told),
            Self::PidNamespace(namespace) => namespace.signal(signal.number()),
        }
    }

    /// Whether [`signal`](Self::signal) reaches everybody at one moment, so that the group needs none of its own.
    pub(super) fn signals_at_once(&self) -> bool {
        matches!(self, Self::PidNamespace(_))
    }

    /// Whether anybody is left, once the process itself was reaped. Nothing is left of the container itself when the
    /// answer is no.
    pub(super) fn has_members(&self) -> bool {
        match self {
            Self::Cgroup(cgroup) => cgroup.has_members(),
            Self::PidNamespace(namespace) => namespace.has_members(),
        }
    }

    /// Ends everybody, and blocks until that is so: for the moment before a program runs.
    pub(super) fn end(&self) {
        match self {
            Self::Cgroup(cgroup) => cgroup.end(),
            Self::PidNamespace(namespace) => namespace.end(),
        }
    }
}
