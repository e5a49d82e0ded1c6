//! What a controller says of a network proxy that runs on the executor.

use serde::{Deserialize, Serialize};

/// Facts about a proxy on the executor through which a sandboxed process may reach the network: the wire's member
/// `managedNetwork`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ManagedNetworkFacts {
    /// The loopback ports of the executor that answer; nothing else is reachable.
    pub loopback_ports: Vec<u16>,
    /// Whether the process may listen on loopback itself. On Linux it always may: its loopback interface is its own, and
    /// nobody else reaches what it listens on.
    pub allow_local_binding: bool,
    /// Paths of local sockets that it may use. On Linux it reaches none of them: only
    /// [all of them](Self::dangerously_allow_all_unix_sockets) can be allowed.
    pub allow_unix_sockets: Vec<String>,
    /// Whether it may use any local socket.
    pub dangerously_allow_all_unix_sockets: bool,
}

impl ManagedNetworkFacts {
    /// A proxy that listens on these loopback ports.
    pub fn ports(ports: impl IntoIterator<Item = u16>) -> Self {
        Self { loopback_ports: ports.into_iter().collect(), ..Self::default() }
    }

    /// Whether there is a port at all: the number 0 is none.
    pub fn has_ports(&self) -> bool {
        self.loopback_ports.iter().any(|port| *port != 0)
    }
}
