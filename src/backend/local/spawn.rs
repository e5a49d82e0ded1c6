//! From a request to a plan that the operating system layer carries out.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use super::config::LocalConfig;
use super::names::Names;
use super::os;
#[cfg(target_os = "linux")]
use super::os::ContainerPlan;
use crate::env_policy::EnvMap;
use crate::error::{InvalidRequest, SpawnError, Unsupported};
use crate::request::{ExecRequest, Stdin, TerminalSize};

/// All that a launch needs, checked and computed: nothing of the host's is read after this.
pub(super) struct LaunchPlan {
    /// The program as asked for.
    pub(super) program: OsString,
    /// Its arguments, with the name that it sees first.
    pub(super) argv: Vec<OsString>,
    /// Its whole environment.
    pub(super) env: EnvMap,
    /// Its working directory, absolute.
    pub(super) cwd: PathBuf,
    /// The same without links, for a process that may not see them.
    pub(super) real_cwd: Option<PathBuf>,
    pub(super) stdin: Stdin,
    pub(super) terminal: Option<TerminalSize>,
    pub(super) end_with_executor: bool,
    #[cfg_attr(windows, expect(dead_code, reason = "handles have no limit there"))]
    pub(super) descriptor_limit: Option<(u64, u64)>,
    #[cfg_attr(windows, expect(dead_code, reason = "processes can always be waited for there"))]
    pub(super) exit_by_thread: bool,
    #[cfg(target_os = "linux")]
    pub(super) container: Option<ContainerPlan>,
    /// The sandbox that it runs in, once it is prepared.
    pub(super) sandbox: Option<os::sandbox::SandboxPlan>,
    /// What is held for it, at least as long as the start is under way.
    pub(super) names: Option<Names>,
}

impl LaunchPlan {
    /// The plan for a request.
    ///
    /// # Errors
    ///
    /// What is wrong with the request, before anything was started.
    pub(super) fn new(request: &ExecRequest, config: &LocalConfig) -> Result<Self, SpawnError> {
        request.validate()?;
        if request.contain && !CONTAINS {
            return Err(Unsupported { feature: "containing a process", place: "this system".into() }.into());
        }
        if let Some(size) = request.terminal {
            check_terminal(size)?;
        }
        let program = request.argv.first().ok_or(InvalidRequest::EmptyArgv)?.clone();
        let mut argv = request.argv.clone();
        if let (Some(arg0), Some(first)) = (&request.arg0, argv.first_mut()) {
            first.clone_from(arg0);
        }
        let env = request.host_env(&config.base_env, &config.reserved_names)?;
        Ok(Self {
            program,
            argv,
            env,
            cwd: request.host_cwd(config.default_cwd.as_deref())?,
            real_cwd: None,
            stdin: request.stdin,
            terminal: request.terminal,
            end_with_executor: config.end_with_executor,
            descriptor_limit: config.child_descriptor_limit,
            exit_by_thread: config.exit_by_thread,
            #[cfg(target_os = "linux")]
            container: request.contain.then(|| ContainerPlan {
                by: config.containment,
                parent_cgroup: config.parent_cgroup.clone(),
                #[cfg(test)]
                no_namespaces: config.no_namespaces,
            }),
            sandbox: None,
            names: None,
        })
    }

    /// Whether the user's login shell belongs into the environment: programs on a terminal expect it there.
    pub(super) fn wants_shell(&self) -> bool {
        self.terminal.is_some() && !cfg!(windows) && !self.env.contains_key(OsStr::new("SHELL"))
    }
}

/// Whether this system has something that holds a process and all that it starts. Windows always uses it.
pub(super) const CONTAINS: bool = cfg!(any(target_os = "linux", windows));

/// Values of variables stay out.
impl fmt::Debug for LaunchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchPlan").field("argv", &self.argv).field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

/// Refuses sizes that no terminal has, and terminals where the crate is built without them.
fn check_terminal(size: TerminalSize) -> Result<(), SpawnError> {
    if !cfg!(feature = "pty") {
        return Err(
            Unsupported { feature: "a terminal", place: "this build, made without the feature `pty`".into() }.into()
        );
    }
    check_terminal_size(size)?;
    Ok(())
}

/// Refuses sizes that no terminal has.
pub(super) fn check_terminal_size(size: TerminalSize) -> Result<(), InvalidRequest> {
    if size.rows == 0 || size.cols == 0 {
        return Err(InvalidRequest::TerminalSize { rows: size.rows, cols: size.cols });
    }
    Ok(())
}
