//! Processes on this machine.
//!
//! Each process has one supervisor, a task of the runtime in which it was spawned: the only owner of the child. It reads
//! the output, writes what input could not be taken at once, notices the exit, carries limits and stops out, and reaps
//! the child. Children are made by threads that do nothing else.
//!
//! # Exit, end of output, end of the tree
//!
//! A child leads its own session and process group. Its exit is reported when it happens; the output streams go on
//! until their last holder has closed them, which may be a descendant. A stop reaches the process group, also members
//! that outlive the leader. After [`Closed`](crate::event::Event::Closed), those that are left can still be ended, with
//! [`Terminate::descendants`] or by closing the place, until the last handle on the process is dropped. On systems without
//! a safe name for a group whose leader is gone (Unix systems other than Linux, Linux before 6.9) such a request is
//! [`Unsupported`](crate::error::SignalError::Unsupported) if somebody may be left. A descendant that started a session of its own is not reached;
//! after a kill its hold on the streams is ignored, and `Closed` says that output was cut.
//!
//! A process that is [contained](ExecRequest::contain) has such descendants in its tree too: on Linux it runs in a cgroup
//! or a PID namespace of its own ([`Containment`]); on Windows every process runs in a job that holds all of them; on other
//! systems the start is [`Unsupported`](SpawnError::Unsupported).
//!
//! # Dropping
//!
//! Dropping [`Local`] kills all processes that were not detached; their supervisors still reap them.
//! [`ExecBackend::close`] gives them time to end, and waits, but not for ever: a process that took another user's rights
//! may be beyond our signals, and one that hangs in the kernel beyond any. [`Local::unfinished`] names what is left. When the runtime goes first, its supervisors go with it: they
//! kill their processes and leave the reaping to the spawner threads; a detached process is left alone.

mod buffers;
mod config;
mod control;
pub(crate) mod enforcer;
mod gather;
mod info;
mod input;
mod names;
mod output;
mod registry;
mod sandbox;
mod shared;
mod spawn;
mod spawner;
mod stop;
mod supervisor;
#[cfg(all(test, unix))]
mod tests;
#[cfg(unix)]
mod unix;
#[cfg(any(not(target_os = "linux"), test))]
mod watched;
#[cfg(any(windows, test))]
mod windows;

/// The operating system layer: `windows/mod.rs` has the names of `unix/mod.rs`.
#[cfg(unix)]
use self::unix as os;
#[cfg(windows)]
use self::windows as os;

use std::path::Path;
use std::sync::Arc;

use tokio::sync::OnceCell;

use self::buffers::Buffers;
pub use self::config::{Containment, LocalConfig};
use self::control::LocalControl;
use self::input::Input;
use self::os::Launched;
use self::output::{EventQueue, EventReader};
use self::registry::Registry;
use self::sandbox::{Attempt, Sandboxed};
use self::shared::Shared;
use self::spawn::LaunchPlan;
use self::spawner::{Preparer, Spawner, not_run};
use self::supervisor::Supervisor;
use super::{ExecBackend, Features, Spawned, Terminate};
use crate::blocking::{self, NotRun};
use crate::error::{CallError, OsError, SpawnError};
use crate::fs::{FileSystem, LocalFileSystem, LocalFileSystemConfig};
use crate::http::HttpClient;
#[cfg(feature = "http")]
use crate::http::{LocalHttpClient, LocalHttpConfig};
use crate::info::EnvironmentInfo;
use crate::request::{ExecRequest, ProcessId};
use crate::sandbox::{Bindings, Enforcement};

/// Runs processes on this machine. See the [module documentation](self).
///
/// Process ids are not checked for uniqueness here: several sessions may share one place.
#[derive(Debug)]
pub struct Local {
    config: Arc<LocalConfig>,
    spawner: Arc<Spawner>,
    registry: Arc<Registry>,
    buffers: Arc<Buffers>,
    placeholders: os::sandbox::Placeholders,
    bindings: Arc<Bindings>,
    info: OnceCell<EnvironmentInfo>,
    login_shell: OnceCell<Option<std::ffi::OsString>>,
    fs: Arc<LocalFileSystem>,
    http: Option<Arc<dyn HttpClient>>,
    /// Its own one, which is closed with it.
    #[cfg(feature = "http")]
    own_http: Arc<LocalHttpClient>,
}

impl Local {
    /// A place with these settings. Nothing runs until the first process is spawned. What the sandboxes of a place that was
    /// killed have left ([`SandboxSettings::state_dir`](crate::sandbox::SandboxSettings::state_dir)) is removed.
    pub fn new(config: LocalConfig) -> Self {
        #[cfg(feature = "http")]
        let own_http = {
            let http = LocalHttpConfig::default();
            let http = http.variables(config.base_env.clone()).reserved_names(config.reserved_names.clone());
            Arc::new(LocalHttpClient::new(http))
        };
        // Also if the host goes to another directory, and where it is that sandboxes are to be kept out.
        let state_dir = config.sandbox.state_dir.clone().map(|path| std::path::absolute(&path).unwrap_or(path));
        let placeholders = os::sandbox::Placeholders::new(state_dir);
        placeholders.recover();
        let mut fs = LocalFileSystemConfig::default().temp_dir(os::temporary_directories(&config.base_env).1);
        fs.protected_names.clone_from(&config.sandbox.extra_protected_names);
        Self {
            buffers: Arc::new(Buffers::new(config.output.chunk_bytes)),
            fs: Arc::new(LocalFileSystem::new(fs).keeping(Arc::new(placeholders.clone()))),
            spawner: Arc::new(Spawner::new(config.start_limit)),
            placeholders,
            bindings: Arc::default(),
            config: Arc::new(config),
            registry: Arc::default(),
            info: OnceCell::new(),
            login_shell: OnceCell::new(),
            #[cfg(feature = "http")]
            http: Some(Arc::clone(&own_http) as Arc<dyn HttpClient>),
            #[cfg(not(feature = "http"))]
            http: None,
            #[cfg(feature = "http")]
            own_http,
        }
    }

    /// The same place with other HTTP requests, or with none. By default, with the feature `http`, they are those of a
    /// `LocalHttpClient` with the place's variables.
    #[must_use]
    pub fn with_http(mut self, http: Option<Arc<dyn HttpClient>>) -> Self {
        self.http = http;
        self
    }

    /// What the sandbox of a request would enforce here, as [`Process::enforcement`](crate::Process::enforcement) would report it:
    /// [`Enforcement::NONE`] if it asks for none, or for one that restricts nothing. Nothing is started or made. The first
    /// call tries what the kernel allows; the result is kept for as long as this program runs. Dropping the future gives the
    /// answer up.
    ///
    /// A name that cannot be [held](crate::sandbox::MissingProtected::Placeholder) shows at a start only.
    ///
    /// # Errors
    ///
    /// Why the request would be refused: [`SpawnError::Sandbox`], what is wrong with the request, or with its working directory.
    pub async fn assess_sandbox(&self, request: &ExecRequest) -> Result<Enforcement, SpawnError> {
        let plan = LaunchPlan::new(request, &self.config)?;
        let work = self.work(request, &plan.cwd, sandbox::Hold::Nothing)?;
        let Some(work) = work else { return Ok(Enforcement::NONE) };
        let asked = Arc::new(());
        let asker = Arc::downgrade(&asked);
        let prepare = move || {
            let mut attempt = Attempt::FIRST;
            loop {
                let outcome = work.carry_out(attempt, &asker);
                attempt = match attempt.after(&outcome) {
                    Some(next) => next,
                    None => return outcome,
                };
            }
        };
        let prepared = blocking::run(prepare).await.map_err(|why| not_run("prepare a sandbox", why))??;
        Ok(prepared.map_or(Enforcement::NONE, |prepared| prepared.sandboxed.enforcement().clone()))
    }

    /// The processes whose end was not seen yet. After [`close`](ExecBackend::close) they are those that were detached, and
    /// those that could not be ended.
    pub fn unfinished(&self) -> Vec<ProcessId> {
        self.registry.live().iter().map(|shared| shared.process_id.clone()).collect()
    }

    fn work(
        &self,
        request: &ExecRequest,
        cwd: &Path,
        hold: sandbox::Hold,
    ) -> Result<Option<sandbox::Work>, SpawnError> {
        sandbox::work(request, &self.config, (&self.placeholders, &self.bindings), cwd, hold)
    }

    /// Makes the process, with its sandbox if it has one, and that one's type.
    async fn start(&self, request: &ExecRequest) -> Result<(Launched, Option<Sandboxed>, String), SpawnError> {
        let mut attempt = Attempt::FIRST;
        loop {
            let outcome = self.start_once(request, attempt).await;
            attempt = match attempt.after(&outcome) {
                Some(next) => next,
                None => return outcome,
            };
        }
    }

    /// The same, once.
    async fn start_once(
        &self,
        request: &ExecRequest,
        attempt: Attempt,
    ) -> Result<(Launched, Option<Sandboxed>, String), SpawnError> {
        let mut plan = LaunchPlan::new(request, &self.config)?;
        if plan.wants_shell()
            && let Some(shell) = self.login_shell().await?
        {
            plan.env.insert("SHELL".into(), shell.clone());
        }
        let Some(work) = self.work(request, &plan.cwd, sandbox::Hold::Names)? else {
            return Ok((self.spawner.start(plan).await?, None, NO_SANDBOX.to_owned()));
        };
        let (keeper, config) = (self.spawner.keeper(), Arc::clone(&self.config));
        // Goes with this future.
        let asked = Arc::new(());
        let asker = Arc::downgrade(&asked);
        let prepare = move || {
            let Some(prepared) = work.carry_out(attempt, &asker)? else { return Ok((plan, None)) };
            plan.names = prepared.held.map(|held| keeper.keep(held, config.sandbox.violations.clone()));
            plan.real_cwd = Some(prepared.cwd);
            prepared.plan.apply(&mut plan, &config.base_env)?;
            let mut sandboxed = prepared.sandboxed;
            sandboxed.hold(plan.names.clone());
            Ok((plan, Some((sandboxed, prepared.sandbox_type))))
        };
        let by = match enforcer::is_native(&self.config.enforcer) {
            true => Preparer::Spawner,
            false => Preparer::Runtime,
        };
        let (launched, prepared) = self.spawner.start_prepared(by, prepare).await?;
        let (sandboxed, sandbox_type) = prepared.unzip();
        Ok((launched, sandboxed, sandbox_type.unwrap_or_else(|| NO_SANDBOX.to_owned())))
    }

    async fn gather_info(&self) -> Result<EnvironmentInfo, CallError> {
        let config = Arc::clone(&self.config);
        let facts = blocking::run(move || info::gather(&config)).await;
        Ok(facts.map_err(|why| OsError::new("look at the host", why.into()))?)
    }

    /// The user's login shell, which the user database may take a while to tell.
    async fn login_shell(&self) -> Result<Option<&std::ffi::OsString>, SpawnError> {
        let shell = self.login_shell.get_or_try_init(|| async {
            match blocking::run(os::login_shell).await {
                Err(NotRun::NoThread) => Err(os::no_thread()),
                // A panic means that there is no answer.
                shell => Ok(shell.unwrap_or(None)),
            }
        });
        Ok(shell.await?.as_ref())
    }
}

#[async_trait::async_trait]
impl ExecBackend for Local {
    /// Starts a process. Must be called within a tokio runtime with its I/O and time drivers enabled.
    async fn spawn(&self, request: ExecRequest) -> Result<Spawned, SpawnError> {
        // Declared first, and so dropped last: closing waits until a child that came too late is in the hands of the reaper.
        let _starting = self.registry.begin().ok_or(SpawnError::Closed)?;
        let has_terminal = request.terminal.is_some();
        let limit = self.config.start_limit;
        let starting = tokio::time::timeout(limit, self.start(&request));
        let (launched, sandboxed, sandbox_type) = starting.await.unwrap_or(Err(SpawnError::TimedOut { limit }))?;
        let mut enforcement = sandboxed.as_ref().map_or(Enforcement::NONE, |sandboxed| sandboxed.enforcement().clone());
        launched.child.correct(&mut enforcement);
        // Nothing below waits: from here on the process is owned.
        let process_id = request.process_id.clone().unwrap_or_else(ProcessId::random);
        let input = Input::new(launched.stdin);
        let events = EventQueue::new(self.config.output);
        let shared =
            Arc::new(Shared::new(process_id.clone(), launched.child, input, has_terminal, enforcement, events));
        let supervisor = Supervisor::new(
            Arc::clone(&shared),
            Arc::clone(&self.spawner),
            Arc::clone(&self.buffers),
            (launched.stdout, launched.stderr),
            &request,
            sandboxed,
            self.config.close_streams_after_exit,
        );
        let mut supervisor = supervisor.map_err(|error| OsError::new("watch a process", error))?;
        let registration = self.registry.add(&shared).ok_or(SpawnError::Closed)?;
        supervisor.own(registration);
        // The registration counts the task until its end; closing waits for all of them.
        drop(tokio::spawn(supervisor));
        Ok(Spawned {
            process_id,
            control: Arc::new(LocalControl::new(Arc::clone(&shared), Arc::clone(&self.registry))),
            events: Box::pin(EventReader::new(shared)),
            sandbox_type: Some(sandbox_type),
        })
    }

    async fn info(&self) -> Result<EnvironmentInfo, CallError> {
        if self.registry.is_closed() {
            return Err(CallError::Closed);
        }
        Ok(self.info.get_or_try_init(|| self.gather_info()).await?.clone())
    }

    async fn fresh_info(&self) -> Result<EnvironmentInfo, CallError> {
        if self.registry.is_closed() {
            return Err(CallError::Closed);
        }
        self.gather_info().await
    }

    fn features(&self) -> Features {
        // How bodies come and end is up to their receiver.
        Features { containment: spawn::CONTAINS, http: self.http.is_some(), ..Features::all() }
    }

    fn fs(&self) -> Option<Arc<dyn FileSystem>> {
        Some(Arc::clone(&self.fs) as Arc<dyn FileSystem>)
    }

    fn http(&self) -> Option<Arc<dyn HttpClient>> {
        self.http.clone()
    }

    /// Asks all processes to end, kills them after [`LocalConfig::close_grace`], and waits for their ends, and those of all
    /// threads, up to 2 s more. What cannot be ended is left to its supervisor; see [`Local::unfinished`].
    async fn close(&self) {
        #[cfg(feature = "http")]
        self.own_http.close();
        for process in self.registry.close() {
            if !process.control().detached {
                // What cannot be signalled cannot be ended either; its supervisor goes on until it ends.
                drop(process.terminate(Terminate::graceful(self.config.close_grace).with_descendants()));
            }
        }
        let all_ended = async {
            if self.registry.ended().await {
                self.spawner.shut_down().await;
                let placeholders = self.placeholders.clone();
                // If the runtime ends first, they go when the last of the place does.
                if blocking::run(move || placeholders.close()).await == Err(NotRun::NoThread) {
                    self.placeholders.close();
                }
            }
            // A write that has begun is whole when it has ended, and leaves nothing beside the file.
            self.fs.idle().await;
        };
        let limit = self.config.close_grace.saturating_add(CLOSE_MARGIN);
        // What is left then can be asked for.
        drop(tokio::time::timeout(limit, all_ended).await);
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        #[cfg(feature = "http")]
        self.own_http.close();
        for process in self.registry.close() {
            process.kill();
        }
    }
}

/// The wire's name for the absence of a sandbox.
const NO_SANDBOX: &str = "none";

/// How long killed processes may take to be gone when a place is closed.
const CLOSE_MARGIN: std::time::Duration = std::time::Duration::from_secs(2);
