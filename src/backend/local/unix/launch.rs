//! From a plan to a running child with our ends of its streams.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use super::platform;
use super::process::Child;
use super::search::{Candidates, candidates};
use super::{InputWriter, OutputReader, open_null, pipe, set_nonblocking, terminal};
use crate::backend::local::spawn::LaunchPlan;
use crate::request::Stdin;

/// A child that runs.
#[derive(Debug)]
pub(in crate::backend::local) struct Launched {
    pub(in crate::backend::local) child: Child,
    /// Our end of standard input, or of the terminal.
    pub(in crate::backend::local) stdin: Option<InputWriter>,
    /// Our end of standard output, or of the terminal.
    pub(in crate::backend::local) stdout: OutputReader,
    /// Our end of standard error; none with a terminal.
    pub(in crate::backend::local) stderr: Option<OutputReader>,
}

/// Why no child runs.
#[derive(Debug)]
pub(in crate::backend::local) struct LaunchFailure {
    pub(super) stage: Stage,
    pub(super) error: io::Error,
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Making the streams.
    Streams,
    /// Making the process.
    Fork,
    /// Making what holds the process and all that it starts, or putting it there.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing of the kind is made there"))]
    Contain,
    /// Building the sandbox of the process.
    Sandbox,
    /// Setting the new process up: session, terminal, descriptors, limits.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "not told from the execution there"))]
    Setup,
    /// Entering the working directory.
    Cwd,
    /// Executing the program.
    Exec,
}

impl LaunchFailure {
    pub(super) fn new(stage: Stage, error: io::Error) -> Self {
        Self { stage, error }
    }

    /// The process cannot be contained, for this reason.
    #[cfg(target_os = "linux")]
    pub(super) fn containment(reason: String) -> Self {
        Self { stage: Stage::Contain, error: io::Error::other(reason) }
    }

    /// The sandbox of the process cannot be built.
    pub(super) fn sandbox(error: crate::sandbox::SandboxError) -> Self {
        Self { stage: Stage::Sandbox, error: io::Error::other(error) }
    }

    /// Whether the program's file was open for writing, which a moment later it may not be.
    pub(in crate::backend::local) fn is_text_busy(&self) -> bool {
        self.stage == Stage::Exec && self.error.raw_os_error() == Some(libc::ETXTBSY)
    }
}

/// Makes children, one at a time. Belongs to one thread for ever: the system can tie the life of a child to the
/// *thread* that made it.
#[derive(Debug)]
pub(in crate::backend::local) struct Launcher {
    platform: platform::Launcher,
}

/// What the launchers of one pool have in common.
#[derive(Debug, Default)]
pub(in crate::backend::local) struct Common {
    /// What a sandbox leaves serves the next one, whichever thread starts that: else there would be as much again for each.
    #[cfg(target_os = "linux")]
    spares: Arc<super::sandbox::Spares>,
}

impl Common {
    /// Nothing is kept any more: nobody comes next.
    pub(in crate::backend::local) fn close(&self) {
        #[cfg(target_os = "linux")]
        self.spares.close();
    }
}

/// Everything that the system's calls need, in their form: nothing is allocated between fork and exec.
pub(super) struct Prepared {
    pub(super) candidates: Vec<CString>,
    pub(super) argv: Vec<CString>,
    pub(super) envp: Vec<CString>,
    pub(super) cwd: CString,
    /// What it is without links, if those may not be seen.
    #[cfg(target_os = "linux")]
    pub(super) real_cwd: Option<CString>,
    pub(super) child_ends: [Arc<OwnedFd>; 3],
    pub(super) terminal: bool,
    /// Whether the first of the ends is the null device.
    #[cfg(target_os = "linux")]
    pub(super) null_stdin: bool,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no parent-death signal"))]
    pub(super) end_with_executor: bool,
    pub(super) descriptor_limit: Option<(u64, u64)>,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no other way"))]
    pub(super) exit_by_thread: bool,
    #[cfg(target_os = "linux")]
    pub(super) container: Option<super::container::ContainerPlan>,
    pub(super) sandbox: Option<super::sandbox::SandboxPlan>,
}

impl Launcher {
    /// Prepares the calling thread, which has to be one that only launches.
    pub(in crate::backend::local) fn new(common: &Common) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        let platform = platform::Launcher::sharing(Arc::clone(&common.spares))?;
        #[cfg(not(target_os = "linux"))]
        let (Common {}, platform) = (common, platform::Launcher::new()?);
        Ok(Self { platform })
    }

    /// Does what the last start has left to be done, once whoever waited for it goes on. Blocks for a moment.
    pub(in crate::backend::local) fn settle(&mut self) {
        #[cfg(target_os = "linux")]
        self.platform.settle();
    }

    /// Starts a child. Blocks until the program is executed or cannot be.
    pub(in crate::backend::local) fn launch(&mut self, plan: &LaunchPlan) -> Result<Launched, LaunchFailure> {
        let candidates = find(plan).paths;
        #[cfg(not(target_os = "linux"))]
        if plan.sandbox.is_some() {
            super::sandbox::check(plan, &candidates)?;
        }
        #[cfg_attr(target_os = "linux", allow(unused_mut, reason = "nothing is read of it here"))]
        let mut streams = Streams::open(plan).map_err(|error| LaunchFailure::new(Stage::Streams, error))?;
        let prepared = Prepared {
            candidates,
            argv: plan.argv.iter().map(|arg| c_string(arg)).collect::<Result<_, _>>()?,
            envp: plan.env.iter().map(|(name, value)| variable(name, value)).collect::<Result<_, _>>()?,
            cwd: c_string(plan.cwd.as_os_str())?,
            #[cfg(target_os = "linux")]
            real_cwd: plan.real_cwd.as_ref().map(|cwd| c_string(cwd.as_os_str())).transpose()?,
            child_ends: streams.child_ends.clone(),
            terminal: plan.terminal.is_some(),
            #[cfg(target_os = "linux")]
            null_stdin: plan.terminal.is_none() && matches!(plan.stdin, Stdin::Null),
            end_with_executor: plan.end_with_executor,
            descriptor_limit: plan.descriptor_limit,
            exit_by_thread: plan.exit_by_thread,
            #[cfg(target_os = "linux")]
            container: plan.container.clone(),
            sandbox: plan.sandbox.clone(),
        };
        let child = self.platform.start(&prepared)?;
        #[cfg(not(target_os = "linux"))]
        if plan.sandbox.is_some() {
            super::sandbox::await_command(&child, streams.stderr.as_mut().unwrap_or(&mut streams.stdout))?;
        }
        Ok(Launched { child, stdin: streams.stdin, stdout: streams.stdout, stderr: streams.stderr })
    }
}

/// Where the plan's program may be.
pub(super) fn find(plan: &LaunchPlan) -> Candidates {
    candidates(&plan.program, plan.env.get(OsStr::new("PATH")).map(OsString::as_os_str))
}

/// Both ends of a child's streams.
struct Streams {
    child_ends: [Arc<OwnedFd>; 3],
    stdin: Option<InputWriter>,
    stdout: OutputReader,
    stderr: Option<OutputReader>,
}

impl Streams {
    fn open(plan: &LaunchPlan) -> io::Result<Self> {
        if let Some(size) = plan.terminal {
            let pair = terminal::open(size)?;
            set_nonblocking(pair.master.as_fd())?;
            let slave = Arc::new(pair.slave);
            let stdin = InputWriter::terminal(super::duplicate(&pair.master)?);
            let stdout = OutputReader::terminal(pair.master, platform::HOLDS_SLAVE.then(|| Arc::clone(&slave)));
            let child_ends = [Arc::clone(&slave), Arc::clone(&slave), slave];
            return Ok(Self { child_ends, stdin: Some(stdin), stdout, stderr: None });
        }
        let (child_stdin, stdin) = match plan.stdin {
            Stdin::Null => (open_null()?, None),
            Stdin::Piped => {
                let (read, write) = pipe()?;
                set_nonblocking(write.as_fd())?;
                (read, Some(InputWriter::pipe(write)))
            }
        };
        let (stdout, child_stdout) = pipe()?;
        let (stderr, child_stderr) = pipe()?;
        set_nonblocking(stdout.as_fd())?;
        set_nonblocking(stderr.as_fd())?;
        Ok(Self {
            child_ends: [child_stdin, child_stdout, child_stderr].map(Arc::new),
            stdin,
            stdout: OutputReader::pipe(stdout),
            stderr: Some(OutputReader::pipe(stderr)),
        })
    }
}

/// The request was checked for NULs; a policy's own variables were not.
fn c_string(text: &OsStr) -> Result<CString, LaunchFailure> {
    CString::new(text.as_bytes()).map_err(|error| LaunchFailure::new(Stage::Exec, error.into()))
}

fn variable(name: &OsStr, value: &OsStr) -> Result<CString, LaunchFailure> {
    let mut pair = name.to_owned();
    pair.push("=");
    pair.push(value);
    CString::new(pair.into_vec()).map_err(|error| LaunchFailure::new(Stage::Exec, error.into()))
}
