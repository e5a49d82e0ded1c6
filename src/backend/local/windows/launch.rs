//! From a plan to a running child with our ends of its streams.

use std::ffi::OsStr;
use std::io;
use std::os::windows::io::OwnedHandle;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windows::Win32::Foundation::{ERROR_LOCK_VIOLATION, ERROR_SHARING_VIOLATION};
use windows::Win32::System::Console::GetConsoleCP;
use windows::Win32::System::Threading::{ResumeThread, TerminateProcess};

use super::command_line::{self, Fault};
use super::create::{self, Creation, StandardHandles};
use super::environment::{self, Variable};
use super::job::Job;
use super::pipe::{self, Direction};
use super::process::Child;
use super::search::{candidates, extended, is_batch_file, plain_directory};
use super::stream::{InputWriter, OutputReader};
use super::system::{os_string, raw, system_directory, wide};
use super::terminal::Console;
use crate::backend::local::spawn::LaunchPlan;
use crate::request::Stdin;

/// A child that runs.
#[derive(Debug)]
pub(in crate::backend::local) struct Launched {
    pub(in crate::backend::local) child: Child,
    /// Our end of standard input, or of the terminal's input.
    pub(in crate::backend::local) stdin: Option<InputWriter>,
    /// Our end of standard output, or of the terminal's output.
    pub(in crate::backend::local) stdout: OutputReader,
    /// Our end of standard error; none with a terminal.
    pub(in crate::backend::local) stderr: Option<OutputReader>,
}

/// Why no child runs.
#[derive(Debug)]
pub(in crate::backend::local) struct LaunchFailure(pub(super) Failure);

/// What went wrong.
#[derive(Debug)]
pub(super) enum Failure {
    /// No file has the program's name.
    NotFound {
        /// The `PATH` that was searched.
        searched: Option<String>,
        /// A place that may not be looked at, where it might be.
        denied: Option<PathBuf>,
    },
    /// The arguments have no form.
    CommandLine(Fault),
    /// This element contains a NUL, which would cut it short. The request was checked for them; a policy's own variables
    /// were not, nor was what a URI stands for.
    Nul(String),
    /// The name that the program is to see does not reach a batch file.
    NameOfBatchFile,
    /// `cmd.exe` does not work in a directory on the network: it takes another one.
    NetworkDirectoryOfBatchFile,
    /// The system refused to execute this file, or to do so in the working directory.
    Execute { program: PathBuf, error: io::Error },
    /// Something else failed.
    Other { op: &'static str, error: io::Error },
}

impl LaunchFailure {
    /// Whether the program's file was open for writing, which a moment later it may not be.
    pub(in crate::backend::local) fn is_text_busy(&self) -> bool {
        matches!(&self.0, Failure::Execute { error, .. } if is_sharing_violation(error))
    }
}

impl Failure {
    fn other(op: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Other { op, error }
    }
}

/// Whether somebody has the file open and shares it with nobody.
pub(super) fn is_sharing_violation(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(i32::cast_unsigned);
    code == Some(ERROR_SHARING_VIOLATION.0) || code == Some(ERROR_LOCK_VIOLATION.0)
}

/// What the launchers of one pool have in common: nothing.
#[derive(Debug, Default)]
pub(in crate::backend::local) struct Common;

impl Common {
    /// Nobody comes next.
    #[allow(clippy::unused_self, reason = "the signature is that of other systems")]
    pub(in crate::backend::local) fn close(&self) {}
}

/// Makes children, one at a time.
#[derive(Debug)]
pub(in crate::backend::local) struct Launcher {
    system_directory: PathBuf,
}

impl Launcher {
    /// Looks at the system.
    pub(in crate::backend::local) fn new(_common: &Common) -> io::Result<Self> {
        Ok(Self { system_directory: system_directory()? })
    }

    /// Starts a child. Blocks until the process is made or cannot be.
    pub(in crate::backend::local) fn launch(&mut self, plan: &LaunchPlan) -> Result<Launched, LaunchFailure> {
        self.try_launch(plan).map_err(LaunchFailure)
    }

    /// A start leaves nothing to be done.
    pub(in crate::backend::local) fn settle(&mut self) {}

    fn try_launch(&self, plan: &LaunchPlan) -> Result<Launched, Failure> {
        if plan.cwd.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(Failure::Nul("cwd".into()));
        }
        let variables = variables(plan)?;
        let program = self.find(plan, &variables)?;
        let image = self.image(plan, &program)?;
        let cwd = plain_directory(&wide(plan.cwd.as_os_str()));
        // What is in a sandbox does not outlive the executor.
        let sandboxed = plan.sandbox.is_some();
        let job = Job::new(plan.end_with_executor || sandboxed).map_err(Failure::other("make a job object"))?;
        let job = Arc::new(job);
        let streams = Streams::open(plan, &job).map_err(Failure::other("open the streams of a process"))?;
        // Another one's console would be a way to its input.
        let shares_console = has_console() && !sandboxed;
        let token = plan.sandbox.as_ref().map(|sandbox| sandbox.token());
        let token = token.transpose().map_err(Failure::other("restrict the rights of a process"))?;
        let creation = Creation {
            program: &image.program,
            command_line: image.command_line,
            environment: &environment::block(&variables),
            cwd: &cwd,
            attachment: streams.attachment,
            shares_console,
            token: token.as_ref(),
        };
        let created = create::create(creation).map_err(|failure| match failure {
            create::Failure::Prepare(error) => Failure::Other { op: "prepare a process", error },
            create::Failure::Create(error) => Failure::Execute { program, error },
        })?;
        let suspended = Suspended { process: Some(created.process), thread: created.thread };
        let process = suspended.resume_in(&job)?;
        let child = Child::new(created.id, process, job, streams.console, shares_console, sandboxed);
        Ok(Launched { child, stdin: streams.stdin, stdout: streams.stdout, stderr: streams.stderr })
    }

    /// The file that the plan's program is.
    fn find(&self, plan: &LaunchPlan, variables: &[Variable]) -> Result<PathBuf, Failure> {
        let mut default_path = wide(self.system_directory.as_os_str());
        if let Some(parent) = self.system_directory.parent() {
            default_path.push(u16::from(b';'));
            default_path.extend(wide(parent.as_os_str()));
        }
        let found = candidates(
            &wide(&plan.program),
            &plain_directory(&wide(plan.cwd.as_os_str())),
            environment::lookup(variables, "PATH"),
            environment::lookup(variables, "PATHEXT"),
            &default_path,
        );
        let mut denied = None;
        for candidate in &found.paths {
            // Takes `.` and `..` out, and what the system ignores at the end of a name.
            let Ok(path) = std::path::absolute(os_string(candidate)) else { continue };
            match is_file(&path) {
                Ok(true) => return Ok(path),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    denied.get_or_insert(path);
                }
                // There is no such file, or there cannot be one.
                Err(_) => {}
            }
        }
        let searched = found.searched.map(|path| String::from_utf16_lossy(&path));
        Err(Failure::NotFound { searched, denied })
    }

    /// What to execute so that `program` runs.
    fn image(&self, plan: &LaunchPlan, program: &Path) -> Result<Image, Failure> {
        let path = wide(program.as_os_str());
        let argv: Vec<Vec<u16>> = plan.argv.iter().map(|arg| wide(arg)).collect();
        if !is_batch_file(&path) {
            let command_line = command_line::for_program(&argv).map_err(Failure::CommandLine)?;
            return Ok(Image { program: extended(&path), command_line });
        }
        if plan.argv.first() != Some(&plan.program) {
            return Err(Failure::NameOfBatchFile);
        }
        if plain_directory(&wide(plan.cwd.as_os_str())).starts_with(&wide(OsStr::new(r"\\"))) {
            return Err(Failure::NetworkDirectoryOfBatchFile);
        }
        let args = argv.get(1..).unwrap_or_default();
        let command_line = command_line::for_batch_file(&plain_directory(&path), args).map_err(Failure::CommandLine)?;
        // The system's own, never one that a variable names.
        Ok(Image { program: wide(self.system_directory.join("cmd.exe").as_os_str()), command_line })
    }
}

/// A program and the command line that it gets.
struct Image {
    program: Vec<u16>,
    command_line: Vec<u16>,
}

/// A process that has not run yet, and never will unless it is resumed.
struct Suspended {
    process: Option<OwnedHandle>,
    thread: OwnedHandle,
}

impl Suspended {
    /// Lets it run as a member of the job.
    fn resume_in(mut self, job: &Job) -> Result<OwnedHandle, Failure> {
        if let Some(process) = &self.process {
            job.assign(process).map_err(Failure::other("assign a process to its job"))?;
        }
        // SAFETY: the handle is that of a thread and open.
        let before = unsafe { ResumeThread(raw(&self.thread)) };
        let result = if before == u32::MAX { Err(io::Error::last_os_error()) } else { Ok(()) };
        result.map_err(Failure::other("resume a process"))?;
        self.process.take().ok_or_else(|| Failure::other("resume a process")(io::ErrorKind::NotFound.into()))
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        if let Some(process) = &self.process {
            // SAFETY: the handle is that of a process and open.
            let ended = unsafe { TerminateProcess(raw(process), 1) };
            debug_assert!(ended.is_ok(), "a process of ours can be ended: {ended:?}");
        }
    }
}

/// Both ends of a child's streams.
struct Streams {
    attachment: create::Attachment,
    console: Option<Arc<Console>>,
    stdin: Option<InputWriter>,
    stdout: OutputReader,
    stderr: Option<OutputReader>,
}

impl Streams {
    fn open(plan: &LaunchPlan, job: &Arc<Job>) -> io::Result<Self> {
        if let Some(size) = plan.terminal {
            let input = pipe::pair(Direction::FromUs)?;
            let output = pipe::pair(Direction::ToUs)?;
            let console = Console::new(size, &input.theirs, &output.theirs)?;
            return Ok(Self {
                attachment: create::Attachment::Console {
                    console: Arc::clone(&console),
                    _ends: [input.theirs, output.theirs],
                },
                stdin: Some(InputWriter::terminal(input.ours, Arc::clone(&console))),
                stdout: OutputReader::terminal(output.ours, Arc::clone(&console), Arc::clone(job)),
                stderr: None,
                console: Some(console),
            });
        }
        let (child_stdin, stdin) = match plan.stdin {
            Stdin::Null => (pipe::open_null()?, None),
            Stdin::Piped => {
                let pair = pipe::pair(Direction::FromUs)?;
                (pair.theirs, Some(InputWriter::pipe(pair.ours)))
            }
        };
        let stdout = pipe::pair(Direction::ToUs)?;
        let stderr = pipe::pair(Direction::ToUs)?;
        Ok(Self {
            attachment: create::Attachment::Handles(StandardHandles {
                stdin: child_stdin,
                stdout: stdout.theirs,
                stderr: stderr.theirs,
            }),
            console: None,
            stdin,
            stdout: OutputReader::pipe(stdout.ours),
            stderr: Some(OutputReader::pipe(stderr.ours)),
        })
    }
}

fn variables(plan: &LaunchPlan) -> Result<Vec<Variable>, Failure> {
    let variable = |(name, value): (&std::ffi::OsString, &std::ffi::OsString)| {
        let pair = (wide(name), wide(value));
        if pair.0.contains(&0) || pair.1.contains(&0) {
            return Err(Failure::Nul(format!("env[{:?}]", name.to_string_lossy())));
        }
        Ok(pair)
    };
    plan.env.iter().map(variable).collect()
}

/// Whether there is something that is no directory. Links are followed, save those that only the system can follow, such
/// as the aliases of the store.
fn is_file(path: &Path) -> io::Result<bool> {
    let meta = std::fs::symlink_metadata(path)?;
    if meta.is_symlink() { Ok(!std::fs::metadata(path)?.is_dir()) } else { Ok(!meta.is_dir()) }
}

/// Whether this process has a console that its children can share.
fn has_console() -> bool {
    // SAFETY: the call has no arguments. It fails, with zero, only without a console.
    unsafe { GetConsoleCP() != 0 }
}
