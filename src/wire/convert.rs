//! From the public types to those of the wire and back.

use super::environment::{self, Capabilities};
use super::extension::{ClosedExtension, ExitedExtension, Limit, Offer, ReadExtension, Size, TotalBytes};
use super::process::{self, EnvPolicy};
use crate::env_policy::{self, ShellEnvPolicy};
use crate::event::{Closed, Totals};
use crate::info::{EnvironmentInfo, Features, Shell};
use crate::request::{Metadata, Signal, TerminalSize};
use crate::status::{ExitStatus, LimitExceeded};

impl Offer {
    /// What a side with these features offers.
    pub fn of(features: Features) -> Self {
        Self { version: Self::VERSION, features: features.names().map(Into::into).collect() }
    }

    /// The features that are known here.
    pub fn known(&self) -> Features {
        Features::from_names(self.features.iter().map(String::as_str))
    }

    /// The version of the extension that this crate speaks.
    pub const VERSION: u64 = 1;
}

impl environment::EnvironmentInfo {
    /// The wire form of `info`, with an offer of extensions, if there is one to make.
    pub fn of(info: EnvironmentInfo, offer: Option<Offer>) -> Self {
        Self {
            shell: environment::Shell { name: info.shell.name, path: info.shell.path },
            executor_version: info.executor_version,
            provider_id: info.provider_id,
            cwd: info.cwd,
            user_home_dir: info.home_dir,
            platform_os: info.platform_os,
            prepend_path_dirs: info.prepend_path_dirs,
            temporary_directories: info.temporary_directories,
            temp_dir: info.temp_dir,
            capabilities: Capabilities {
                flags: info.capabilities.into_iter().map(|name| (name, true)).collect(),
                longarm: offer,
            },
        }
    }

    /// The features that the place offers beyond the plain wire.
    pub fn features(&self) -> Features {
        self.capabilities.longarm.as_ref().map(Offer::known).unwrap_or_default()
    }
}

impl From<environment::EnvironmentInfo> for EnvironmentInfo {
    fn from(info: environment::EnvironmentInfo) -> Self {
        let flags = info.capabilities.flags.into_iter();
        Self {
            shell: Shell { name: info.shell.name, path: info.shell.path },
            executor_version: info.executor_version,
            provider_id: info.provider_id,
            cwd: info.cwd,
            home_dir: info.user_home_dir,
            platform_os: info.platform_os,
            prepend_path_dirs: info.prepend_path_dirs,
            temporary_directories: info.temporary_directories,
            temp_dir: info.temp_dir,
            capabilities: flags.filter(|(_, value)| *value).map(|(name, _)| name).collect(),
            hostname: None,
        }
    }
}

impl ExitedExtension {
    /// What of a status the exit code does not say. None if it says everything.
    pub fn of(status: ExitStatus) -> Option<Self> {
        let limit = status.limit_exceeded().map(Limit::from);
        let extension = Self { signal: status.signal(), timed_out: limit == Some(Limit::Time), limit, denial: None };
        (extension != Self::default()).then_some(extension)
    }

    /// The status that an exit code and these members stand for.
    pub fn status(&self, exit_code: i32) -> ExitStatus {
        exit_status(exit_code, self.signal, self.timed_out, self.limit)
    }
}

impl ReadExtension {
    /// The status that an exit code and these members stand for.
    pub fn status(&self, exit_code: i32) -> ExitStatus {
        exit_status(exit_code, self.signal, self.timed_out, self.limit)
    }
}

fn exit_status(exit_code: i32, signal: Option<Signal>, timed_out: bool, limit: Option<Limit>) -> ExitStatus {
    let limit = limit.or_else(|| timed_out.then_some(Limit::Time));
    signal.map_or_else(|| ExitStatus::from_wire(exit_code), ExitStatus::signaled).with_limit(limit.map(Into::into))
}

impl From<Limit> for LimitExceeded {
    fn from(limit: Limit) -> Self {
        match limit {
            Limit::Time => Self::Time,
            Limit::Output => Self::Output,
        }
    }
}

impl From<LimitExceeded> for Limit {
    fn from(limit: LimitExceeded) -> Self {
        match limit {
            LimitExceeded::Time => Self::Time,
            LimitExceeded::Output => Self::Output,
        }
    }
}

impl ClosedExtension {
    /// What of the event goes beyond the plain wire. None if the totals are not known.
    pub fn of(closed: &Closed) -> Option<Self> {
        closed.totals.map(|totals| Self { total_bytes: totals.into(), cut: closed.cut })
    }
}

impl From<Totals> for TotalBytes {
    fn from(Totals { stdout, stderr, pty }: Totals) -> Self {
        Self { stdout, stderr, pty }
    }
}

impl From<TotalBytes> for Totals {
    fn from(TotalBytes { stdout, stderr, pty }: TotalBytes) -> Self {
        Self { stdout, stderr, pty }
    }
}

impl From<TerminalSize> for Size {
    fn from(TerminalSize { rows, cols }: TerminalSize) -> Self {
        Self { rows, cols }
    }
}

impl From<Size> for TerminalSize {
    fn from(Size { rows, cols }: Size) -> Self {
        Self { rows, cols }
    }
}

impl From<Metadata> for process::Metadata {
    fn from(Metadata { thread_id, tool_call_id }: Metadata) -> Self {
        Self { thread_id, tool_call_id }
    }
}

impl From<process::Metadata> for Metadata {
    fn from(process::Metadata { thread_id, tool_call_id }: process::Metadata) -> Self {
        Self { thread_id, tool_call_id }
    }
}

impl From<ShellEnvPolicy> for EnvPolicy {
    fn from(policy: ShellEnvPolicy) -> Self {
        Self {
            inherit: match policy.inherit {
                env_policy::Inherit::All => process::Inherit::All,
                env_policy::Inherit::Core => process::Inherit::Core,
                env_policy::Inherit::None => process::Inherit::None,
            },
            ignore_default_excludes: policy.ignore_default_excludes,
            exclude: policy.exclude,
            set: policy.set,
            include_only: policy.include_only,
        }
    }
}

impl From<EnvPolicy> for ShellEnvPolicy {
    fn from(policy: EnvPolicy) -> Self {
        Self {
            inherit: match policy.inherit {
                process::Inherit::All => env_policy::Inherit::All,
                process::Inherit::Core => env_policy::Inherit::Core,
                process::Inherit::None => env_policy::Inherit::None,
            },
            ignore_default_excludes: policy.ignore_default_excludes,
            exclude: policy.exclude,
            set: policy.set,
            include_only: policy.include_only,
        }
    }
}

#[cfg(test)]
mod tests;
