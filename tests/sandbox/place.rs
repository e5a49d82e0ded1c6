//! Where rows run.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use longarm::config::ClientConfig;
use longarm::sandbox::{SandboxSettings, Violation, ViolationSink, Wall};
use longarm::server::Server;
use longarm::transport::memory;
use longarm::transport::stdio::from_io;
use longarm::{Environment, Local, LocalConfig};

use crate::dirs::{Dirs, own_uid};
use crate::machine::ordinary;
use crate::row::PATIENCE;
use crate::{executor, mounts, network};

/// A kind of place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This process.
    Local,
    /// A server in this process, behind a connection.
    Remote,
    /// A server of this user in a process of its own, behind its standard streams: for what happens to a whole executor.
    Apart,
    /// The same of an ordinary user.
    Ordinary,
}

impl Kind {
    pub(crate) const ALL: &[Self] = &[Self::Local, Self::Remote, Self::Ordinary];
    /// Those whose executor is a process of its own.
    pub(crate) const ALONE: &[Self] = &[Self::Apart, Self::Ordinary];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
            Self::Apart => "apart",
            Self::Ordinary => "ordinary_user",
        }
    }

    pub(crate) fn uid(self) -> u32 {
        if self == Self::Ordinary { ordinary() } else { own_uid() }
    }
}

/// What the owner of the executor, or its machine, makes different.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) accept_partial: bool,
    pub(crate) private_loopback: bool,
    pub(crate) cripple: Option<Cripple>,
    /// A wall that has another one behind it, and is left out.
    pub(crate) without: Option<Wall>,
    /// The executor has a network of its own, where it has an address besides loopback: see [`network`](crate::network).
    pub(crate) own_network: bool,
    /// The executor has mounts of its own, with more than the usual ones: see [`mounts`](crate::mounts).
    pub(crate) own_mounts: bool,
    /// The executor keeps its state in the workspace.
    pub(crate) state_in_workspace: bool,
}

/// What an executor is deprived of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cripple {
    /// Of user namespaces, and of the right to make others without them.
    UserNamespaces,
    MoreLayers,
    /// Of processes: it can make none.
    Processes,
    /// Of listeners to system calls: somebody else has the one that there can be.
    Listeners,
}

impl Settings {
    /// For an executor with this directory for its state, if it does not keep it where all do.
    pub(crate) fn sandbox(self, state: PathBuf) -> SandboxSettings {
        let mut settings = SandboxSettings::default();
        settings.state_dir = self.state_in_workspace.then_some(state);
        settings.accept_partial = self.accept_partial;
        settings.private_loopback = self.private_loopback;
        match self.without {
            Some(wall) => settings.without_wall(wall),
            None => settings,
        }
    }

    fn to_text(self) -> String {
        format!("{self:?}")
    }

    pub(crate) fn from_text(text: &str) -> Self {
        let has = |word: &str| text.contains(word);
        let cripples = [Cripple::UserNamespaces, Cripple::MoreLayers, Cripple::Processes, Cripple::Listeners];
        let cripple = cripples.into_iter().find(|cripple| has(&format!("{cripple:?}")));
        let walls = [Wall::Mounts, Wall::Landlock, Wall::NetworkNamespace, Wall::Filter];
        let without = walls.into_iter().find(|wall| has(&format!("without: {:?}", Some(wall))));
        let (accept_partial, private_loopback) = (has("accept_partial: true"), has("private_loopback: true"));
        let (own_network, state_in_workspace) = (has("own_network: true"), has("state_in_workspace: true"));
        let own_mounts = has("own_mounts: true");
        Self { accept_partial, private_loopback, cripple, without, own_network, own_mounts, state_in_workspace }
    }
}

/// A place, until it is closed.
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) environment: Environment,
    /// What its executor told of.
    pub(crate) violations: Arc<Recorder>,
    executor: Option<tokio::process::Child>,
}

impl Place {
    pub(crate) async fn open(kind: Kind, settings: Settings, dirs: &Dirs) -> Self {
        let violations = Arc::<Recorder>::default();
        let environment = match kind {
            Kind::Local => Environment::with_backend(Arc::new(local(settings, dirs, &violations))),
            Kind::Remote => {
                let (near, far) = memory::pair();
                let server = Server::new(Arc::new(local(settings, dirs, &violations)));
                tokio::spawn(async move { server.serve(Box::new(far)).await });
                Environment::connect(near, client()).await.unwrap()
            }
            Kind::Apart | Kind::Ordinary => return Self::apart(kind, settings, dirs).await,
        };
        Self { kind, environment, violations, executor: None }
    }

    async fn apart(kind: Kind, settings: Settings, dirs: &Dirs) -> Self {
        let violations = dirs.base.join("violations");
        // By this name, since the user may not enter the directories that the program lies in.
        let mut command = std::process::Command::new("/proc/self/exe");
        command
            .arg(if settings.own_network {
                network::FLAG
            } else if settings.own_mounts {
                mounts::FLAG
            } else {
                executor::FLAG
            })
            .current_dir("/")
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("TMPDIR", &dirs.t)
            .env("HOME", &dirs.t)
            .env(executor::SETTINGS, settings.to_text())
            .env(executor::VIOLATIONS, &violations)
            .env(executor::STATE, dirs.state())
            .env(mounts::BASE, &dirs.base)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        match (settings.own_network || settings.own_mounts, kind.uid() == own_uid()) {
            (_, true) => {}
            // It takes rights to make one.
            (true, false) => {
                command.env(network::USER, kind.uid().to_string());
            }
            (false, false) => {
                command.uid(kind.uid()).gid(kind.uid());
            }
        }
        let mut executor = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
        let (output, input) = (executor.stdout.take().unwrap(), executor.stdin.take().unwrap());
        let config = client();
        let transport = from_io(output, input, config.messages);
        let environment = Environment::connect(transport, config).await.unwrap();
        let violations = Arc::new(Recorder { file: Some(violations), ..Recorder::default() });
        Self { kind, environment, violations, executor: Some(executor) }
    }

    /// The process of the executor.
    pub(crate) fn executor_pid(&self) -> u32 {
        let apart = self.executor.as_ref().map(|executor| executor.id().expect("it was not waited for"));
        apart.unwrap_or_else(std::process::id)
    }

    pub(crate) async fn close(self) {
        self.environment.close().await;
        if let Some(mut executor) = self.executor {
            let ended = tokio::time::timeout(std::time::Duration::from_secs(20), executor.wait()).await;
            ended.expect("the executor ends with its connection").unwrap();
        }
    }
}

/// A busy machine takes its time to start a program.
fn client() -> ClientConfig {
    let mut config = ClientConfig::default();
    config.initialize_timeout = PATIENCE;
    config
}

fn local(settings: Settings, dirs: &Dirs, violations: &Arc<Recorder>) -> Local {
    let mut config = LocalConfig::from_host();
    config.base_env.insert("TMPDIR".into(), dirs.t.clone().into());
    config.sandbox = settings.sandbox(dirs.state()).violations(Arc::clone(violations) as _);
    Local::new(config)
}

/// Keeps what it is told, and what another process writes down that was told something.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    told: Mutex<Vec<Violation>>,
    file: Option<PathBuf>,
}

impl Recorder {
    pub(crate) fn all(&self) -> Vec<Violation> {
        let mut all = self.told.lock().unwrap().clone();
        let text = self.file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        all.extend(text.lines().map(executor::violation_from_line));
        all
    }
}

impl ViolationSink for Recorder {
    fn violation(&self, violation: Violation) {
        self.told.lock().unwrap().push(violation);
    }
}
