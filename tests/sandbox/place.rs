//! Where rows run.

use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use longarm::config::ClientConfig;
use longarm::sandbox::{SandboxSettings, Violation, ViolationSink, Wall};
use longarm::server::Server;
use longarm::transport::memory;
use longarm::transport::stdio::from_io;
use longarm::{Environment, Local, LocalConfig};

use crate::dirs::{Dirs, own_uid};
use crate::executor;
use crate::machine::ordinary;

/// A kind of place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This process.
    Local,
    /// A server in this process, behind a connection.
    Remote,
    /// A server of an ordinary user, behind its standard streams.
    Ordinary,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Local, Self::Remote, Self::Ordinary];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
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
}

/// What an executor is deprived of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cripple {
    NoUserNamespaces,
    NoMoreLayers,
}

impl Settings {
    pub(crate) fn sandbox(self) -> SandboxSettings {
        let mut settings = SandboxSettings::default();
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
        let cripple = match (has("NoUserNamespaces"), has("NoMoreLayers")) {
            (true, _) => Some(Cripple::NoUserNamespaces),
            (_, true) => Some(Cripple::NoMoreLayers),
            _ => None,
        };
        let walls = [Wall::Mounts, Wall::Landlock, Wall::NetworkNamespace, Wall::Filter];
        let without = walls.into_iter().find(|wall| has(&format!("without: {:?}", Some(wall))));
        let (accept_partial, private_loopback) = (has("accept_partial: true"), has("private_loopback: true"));
        Self { accept_partial, private_loopback, cripple, without }
    }
}

/// A place, until it is closed.
pub(crate) struct Place {
    pub(crate) environment: Environment,
    /// What its executor was told of, if that is this process.
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
                Environment::connect(near, ClientConfig::default()).await.unwrap()
            }
            Kind::Ordinary => return Self::ordinary(settings, dirs).await,
        };
        Self { environment, violations, executor: None }
    }

    async fn ordinary(settings: Settings, dirs: &Dirs) -> Self {
        // By this name, since the user may not enter the directories that the program lies in.
        let mut command = std::process::Command::new("/proc/self/exe");
        command
            .arg(executor::FLAG)
            .current_dir("/")
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("TMPDIR", &dirs.t)
            .env("HOME", &dirs.t)
            .env(executor::SETTINGS, settings.to_text())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if own_uid() == 0 {
            command.uid(ordinary()).gid(ordinary());
        }
        let mut executor = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
        let (output, input) = (executor.stdout.take().unwrap(), executor.stdin.take().unwrap());
        let config = ClientConfig::default();
        let transport = from_io(output, input, config.messages);
        let environment = Environment::connect(transport, config).await.unwrap();
        Self { environment, violations: Arc::default(), executor: Some(executor) }
    }

    /// The process of the executor, if it is not this one.
    pub(crate) fn executor_pid(&self) -> Option<u32> {
        self.executor.as_ref().and_then(tokio::process::Child::id)
    }

    pub(crate) async fn close(self) {
        self.environment.close().await;
        if let Some(mut executor) = self.executor {
            let ended = tokio::time::timeout(std::time::Duration::from_secs(20), executor.wait()).await;
            ended.expect("the executor ends with its connection").unwrap();
        }
    }
}

fn local(settings: Settings, dirs: &Dirs, violations: &Arc<Recorder>) -> Local {
    let mut config = LocalConfig::from_host();
    config.base_env.insert("TMPDIR".into(), dirs.t.clone().into());
    config.sandbox = settings.sandbox().violations(Arc::clone(violations) as _);
    Local::new(config)
}

/// Keeps what it is told.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Vec<Violation>>);

impl Recorder {
    pub(crate) fn all(&self) -> Vec<Violation> {
        self.0.lock().unwrap().clone()
    }
}

impl ViolationSink for Recorder {
    fn violation(&self, violation: Violation) {
        self.0.lock().unwrap().push(violation);
    }
}
