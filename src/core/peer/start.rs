//! `process/start`: its checks, in their order, and the request that the backend gets.

use std::time::Duration;

use super::fault::Fault;
use crate::env_policy::ShellEnvPolicy;
use crate::error::{InvalidRequest, SpawnError};
use crate::info::Features;
use crate::request::{ExecRequest, Stdin, TerminalSize};
use crate::sandbox::{ManagedNetworkFacts, SandboxError, SandboxIntent, WindowsSandboxLevel};
use crate::wire::extension::StartExtension;
use crate::wire::process::StartParams;

/// Longest process id. The reference has no limit; but every event of a process names it, and for each process that is
/// kept it is kept several times.
const MAX_PROCESS_ID_BYTES: usize = 1 << 10;

/// Checks what can be said without the session's processes, in the order of the specification (8.1.1), and makes the
/// request. `os` is the operating system of the place, if known; `features` are those that the client may use.
pub(super) fn exec_request(params: StartParams, os: Option<&str>, features: Features) -> Result<ExecRequest, Fault> {
    if params.network_proxy.is_some() {
        return Err(unavailable(
            "this executor has no network proxy (networkProxy); send the ports of one that runs (managedNetwork)",
        ));
    }
    if let Some(os) = os {
        let cwd = params.cwd.to_native(os).map_err(|error| SpawnError::from(InvalidRequest::from(error)))?;
        if cwd.contains_nul() {
            return Err(SpawnError::from(InvalidRequest::Nul { element: "cwd".into() }).into());
        }
    }
    let sandbox = params.sandbox.as_ref().map(|sandbox| intent(sandbox.as_json())).transpose()?.flatten();
    let managed_network = match &params.managed_network {
        Some(facts) => Some(
            serde_json::from_str::<ManagedNetworkFacts>(facts.as_json())
                .map_err(|error| Fault::invalid_params(format!("managedNetwork is invalid: {error}")))?,
        ),
        None => None,
    };
    if params.enforce_managed_network {
        let lacks = match &managed_network {
            _ if sandbox.is_none() => Some("a sandbox that restricts something"),
            None => Some("managedNetwork"),
            Some(facts) if !facts.has_ports() => Some("a port in managedNetwork.loopbackPorts"),
            Some(_) => None,
        };
        if let Some(lacks) = lacks {
            let message =
                format!("a managed network (enforceManagedNetwork) cannot be enforced without {lacks}; send it");
            return Err(unavailable(&message));
        }
    }
    if params.process_id.as_str().len() > MAX_PROCESS_ID_BYTES {
        return Err(Fault::invalid_params(format!("processId is longer than {MAX_PROCESS_ID_BYTES} bytes")));
    }
    if params.argv.is_empty() {
        return Err(Fault::invalid_params("argv must not be empty"));
    }
    let extension = params.longarm.unwrap_or_default();
    check_features(&extension, features)?;

    // Without its id: that is the session's, and another session of the same backend may use it too.
    let mut request = ExecRequest::new(params.argv).cwd(params.cwd).envs(params.env).stdin(if params.pipe_stdin {
        Stdin::Piped
    } else {
        Stdin::Null
    });
    request = match params.env_policy {
        Some(policy) => request.env_policy(ShellEnvPolicy::from(policy)),
        None => request.env_clear(),
    };
    if params.tty {
        let size = extension
            .terminal
            .map_or_else(TerminalSize::default, |size| TerminalSize { rows: size.rows, cols: size.cols });
        request = request.terminal(size);
    }
    if let Some(arg0) = params.arg0 {
        request = request.arg0(arg0);
    }
    if let Some(metadata) = params.metadata {
        request = request.metadata(metadata.into());
    }
    if let Some(limit) = extension.time_limit_ms {
        request = request.time_limit(Duration::from_millis(limit));
    }
    if let Some(limit) = extension.output_limit_bytes {
        request = request.output_limit_bytes(limit);
    }
    if let Some(grace) = extension.stop_grace_ms {
        request = request.stop_grace(Duration::from_millis(grace));
    }
    if extension.contain {
        request = request.contain(true);
    }
    if let Some(sandbox) = sandbox {
        request = request.sandbox(sandbox).enforce_managed_network(params.enforce_managed_network);
        if let Some(facts) = managed_network {
            request = request.managed_network(facts);
        }
    }
    request.validate().map_err(|error| Fault::invalid_params(error.to_string()))?;
    Ok(request)
}

/// A member whose feature the client did not ask for, or the place does not have, is refused: to run without a limit that
/// was asked for is worse.
fn check_features(extension: &StartExtension, features: Features) -> Result<(), Fault> {
    let needs = [
        ("terminal", extension.terminal.is_some(), features.resize),
        ("timeLimitMs", extension.time_limit_ms.is_some(), features.limits),
        ("outputLimitBytes", extension.output_limit_bytes.is_some(), features.limits),
        ("stopGraceMs", extension.stop_grace_ms.is_some(), features.terminate),
        ("contain", extension.contain, features.containment),
    ];
    if let Some((name, ..)) = needs.iter().find(|(_, wanted, has)| *wanted && !*has) {
        return Err(not_agreed(name));
    }
    match extension.terminal {
        Some(size) if size.rows == 0 || size.cols == 0 => {
            Err(Fault::invalid_params(InvalidRequest::TerminalSize { rows: size.rows, cols: size.cols }.to_string()))
        }
        _ => Ok(()),
    }
}

/// The client uses a member of the extension that both sides did not agree on.
pub(super) fn not_agreed(member: &str) -> Fault {
    Fault::invalid_params(format!("member longarm.{member} needs a feature that was not agreed on"))
}

fn unavailable(message: &str) -> Fault {
    Fault::invalid_params(message).with_kind("sandboxUnavailable")
}

/// What the sandbox asks for, or nothing if it asks for no restriction at all. Whether it can be enforced is the
/// backend's to say: one that cannot refuses the start.
fn intent(json: &str) -> Result<Option<SandboxIntent>, Fault> {
    let intent = match SandboxIntent::from_json(json) {
        Ok(intent) => intent,
        // In the same words as for any other member.
        Err(SandboxError::Invalid { reason }) => return Err(Fault::invalid_params(reason)),
        Err(other) => return Err(SpawnError::from(other).into()),
    };
    // Of a container the backend has to say that it has none.
    let nothing = intent.restricts_nothing() && intent.windows_sandbox_level != WindowsSandboxLevel::Mxc;
    Ok((!nothing).then_some(intent))
}
