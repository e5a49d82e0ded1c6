//! From a request to the parameters of a start.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::op::Failure;
use super::route::Names;
use crate::error::{InvalidRequest, Unsupported};
use crate::info::{EnvironmentInfo, Features};
use crate::path_uri::{PathConvention, PathUri, PathUriError};
use crate::request::{ExecRequest, ProcessId, RequestPath, Stdin, TerminalSize};
use crate::wire::extension::StartExtension;
use crate::wire::process::{RawObject, StartParams};

/// Whether the request can only be judged, or turned into a start, with what the peer says of itself.
pub(super) fn needs_answer(request: &ExecRequest) -> bool {
    let cwd = match request.requested_cwd() {
        Some(RequestPath::Uri(_)) => false,
        // Only one convention has such paths, and only with this meaning.
        Some(RequestPath::Native(path)) => !path.as_os_str().as_encoded_bytes().starts_with(b"/"),
        None => true,
    };
    let terminal = request.requested_terminal().is_some_and(|size| size != TerminalSize::default());
    let limits = request.requested_time_limit().is_some() || request.requested_output_limit_bytes().is_some();
    cwd || terminal || limits || request.requested_containment()
}

/// The parameters of the start that `request` asks for, towards a peer of these features.
pub(super) fn params(
    request: &ExecRequest,
    process_id: &ProcessId,
    info: Option<&EnvironmentInfo>,
    features: Features,
) -> Result<StartParams, Failure> {
    request.validate()?;
    let argv = request.argv().iter().enumerate();
    let argv = argv.map(|(index, arg)| text(arg, || format!("argv[{index}]"))).collect::<Result<_, _>>()?;
    let arg0 = request.requested_arg0().map(|arg0| text(arg0, || "arg0".into())).transpose()?;
    let env_policy = match request.requested_env_policy() {
        Some(policy) => Some(policy.portable().ok_or(InvalidRequest::PolicyNotPortable)?.into()),
        None => None,
    };
    Ok(StartParams {
        process_id: process_id.clone(),
        argv,
        cwd: cwd(request, info)?,
        env: variables(request)?,
        tty: request.requested_terminal().is_some(),
        pipe_stdin: request.requested_terminal().is_none() && request.requested_stdin() == Stdin::Piped,
        arg0,
        env_policy,
        metadata: request.requested_metadata().cloned().map(Into::into),
        sandbox: request.requested_sandbox().map(|intent| raw(&intent.to_json())).transpose()?,
        enforce_managed_network: request.requires_managed_network(),
        managed_network: managed_network(request)?,
        network_proxy: None,
        shell_snapshot: None,
        longarm: extension(request, features)?,
    })
}

fn managed_network(request: &ExecRequest) -> Result<Option<RawObject>, Failure> {
    let Some(facts) = request.requested_managed_network() else { return Ok(None) };
    let json = serde_json::to_string(facts).map_err(|error| InvalidRequest::Other(error.to_string()))?;
    raw(&json).map(Some)
}

fn raw(json: &str) -> Result<RawObject, Failure> {
    RawObject::from_json(json).map_err(|reason| Failure::InvalidRequest(InvalidRequest::Other(reason)))
}

/// Limits that this end must keep, since the peer cannot.
pub(super) fn limits_kept_here(request: &ExecRequest, features: Features) -> (Option<Duration>, Option<u64>) {
    if features.limits {
        return (None, None);
    }
    (request.requested_time_limit(), request.requested_output_limit_bytes())
}

/// What names the program and the working directory in errors.
pub(super) fn names(request: &ExecRequest, params: &StartParams) -> Names {
    let program = request.argv().first().map(PathBuf::from).unwrap_or_default();
    let cwd = match request.requested_cwd() {
        Some(RequestPath::Native(path)) => path.clone(),
        Some(RequestPath::Uri(_)) | None => {
            let native = params.cwd.convention().and_then(|convention| {
                let os = if convention == PathConvention::Windows { "windows" } else { "linux" };
                params.cwd.to_native(os).ok()
            });
            native.map_or_else(|| params.cwd.as_str().to_owned(), |native| native.to_string()).into()
        }
    };
    Names { program, cwd }
}

fn cwd(request: &ExecRequest, info: Option<&EnvironmentInfo>) -> Result<PathUri, Failure> {
    match request.requested_cwd() {
        Some(RequestPath::Uri(uri)) => Ok(uri.clone()),
        Some(RequestPath::Native(path)) => native_cwd(path, info),
        None => Ok(info.and_then(|info| info.cwd.clone()).ok_or(InvalidRequest::NoCwd)?),
    }
}

fn native_cwd(path: &Path, info: Option<&EnvironmentInfo>) -> Result<PathUri, Failure> {
    let text = text(path.as_os_str(), || "cwd".into())?;
    let convention = match info.and_then(|info| info.platform_os.as_deref()) {
        Some(os) => PathConvention::of_os(os),
        None if text.starts_with('/') => PathConvention::Posix,
        None => PathConvention::Windows,
    };
    PathUri::from_native_text(&text, convention).map_err(|error| {
        Failure::InvalidRequest(match error {
            PathUriError::NotAbsolute(_) => InvalidRequest::RelativeCwd { path: path.into() },
            other => other.into(),
        })
    })
}

fn variables(request: &ExecRequest) -> Result<BTreeMap<String, String>, Failure> {
    let convert = |(name, value): (&std::ffi::OsString, &std::ffi::OsString)| {
        let shown = || format!("env[{:?}]", name.to_string_lossy());
        let name = text(name, || format!("the name {}", shown()))?;
        let value = text(value, || format!("the value of {}", shown()))?;
        Ok((name, value))
    };
    request.requested_env().iter().map(convert).collect()
}

fn extension(request: &ExecRequest, features: Features) -> Result<Option<StartExtension>, Failure> {
    let mut extension = StartExtension::default();
    if let Some(size) = request.requested_terminal() {
        check_size(size)?;
        if size != TerminalSize::default() {
            require(features.resize, "a terminal of another size than 24x80")?;
            extension.terminal = Some(size.into());
        }
    }
    if request.requested_containment() {
        require(features.containment, "containing a process")?;
        extension.contain = true;
    }
    if features.limits {
        extension.time_limit_ms = request.requested_time_limit().map(millis);
        extension.output_limit_bytes = request.requested_output_limit_bytes();
        extension.stop_grace_ms = extension.time_limit_ms.map(|_| millis(request.requested_stop_grace()));
    }
    Ok((extension != StartExtension::default()).then_some(extension))
}

/// A terminal needs rows and columns.
pub(super) const fn check_size(size: TerminalSize) -> Result<(), InvalidRequest> {
    let TerminalSize { rows, cols } = size;
    if rows == 0 || cols == 0 { Err(InvalidRequest::TerminalSize { rows, cols }) } else { Ok(()) }
}

/// Refuses what the peer does not have.
pub(super) fn require(present: bool, feature: &'static str) -> Result<(), Unsupported> {
    if present { Ok(()) } else { Err(Unsupported { feature, place: "the peer".into() }) }
}

/// Milliseconds, rounded up: no limit becomes shorter than it was asked for.
pub(super) fn millis(duration: Duration) -> u64 {
    duration.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(u64::MAX)
}

fn text(text: &OsStr, element: impl FnOnce() -> String) -> Result<String, InvalidRequest> {
    text.to_str().map(str::to_owned).ok_or_else(|| InvalidRequest::NotUnicode { element: element() })
}
