//! Facts about this machine.

use std::path::Path;

use super::config::LocalConfig;
use super::os;
use crate::info::EnvironmentInfo;
use crate::path_uri::PathUri;

/// Looks at the host. May block on the file system and the user database.
pub(super) fn gather(config: &LocalConfig) -> EnvironmentInfo {
    let env = &config.base_env;
    let mut info = EnvironmentInfo::new(os::host_shell(env));
    info.executor_version = env!("CARGO_PKG_VERSION").into();
    info.cwd = config.default_cwd.as_deref().and_then(uri);
    info.home_dir = os::home_dir(env).as_deref().and_then(uri);
    info.platform_os = Some(std::env::consts::OS.into());
    let (named, native) = os::temporary_directories(env);
    info.temporary_directories = Some(named.iter().filter_map(|path| uri(path)).collect());
    info.temp_dir = uri(&native);
    info.hostname = os::hostname(env);
    info
}

/// A path that is not absolute has no form on the wire, and is left out.
fn uri(path: &Path) -> Option<PathUri> {
    PathUri::from_host_native_path(path).ok()
}
