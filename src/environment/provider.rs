//! Where the entries of [`Environments`](super::Environments) come from.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Environment;
use super::named::{EnvironmentId, EnvironmentsError};
use crate::config::ClientConfig;
use crate::transport::stdio::StdioServer;

/// Says which environments there are: a file, a variable, or whatever the host knows them from.
pub trait EnvironmentProvider: fmt::Debug + Send + Sync {
    /// What there is now. It is asked on the thread of [`Environments::from_provider`](super::Environments::from_provider):
    /// a provider that has to wait for an answer gets it beforehand.
    ///
    /// # Errors
    ///
    /// An [`EnvironmentsError`].
    fn snapshot(&self) -> Result<Snapshot, EnvironmentsError>;
}

/// What an [`EnvironmentProvider`] says.
#[derive(Debug)]
pub struct Snapshot {
    /// The entries, in order. None may be called `local`, and no two the same.
    pub entries: Vec<(EnvironmentId, Place)>,
    /// Which one is the default.
    pub default: DefaultEnvironment,
    /// Whether this machine is one of them, as `local` and as the first one.
    pub include_local: bool,
}

/// Which environment is the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultEnvironment {
    /// `local`, if it is included, else none.
    Unset,
    /// None.
    None,
    /// This one.
    Id(EnvironmentId),
}

/// Where an environment is.
#[derive(Debug)]
#[non_exhaustive]
pub enum Place {
    /// Behind a WebSocket.
    Url {
        /// Its URL.
        url: String,
        /// How long it may take to connect.
        connect_timeout: Duration,
        /// How long the handshake may take.
        initialize_timeout: Duration,
    },
    /// Behind a server program that is started here when it is first needed, and speaks over its standard streams. Its
    /// connection does not come back: a session ends with its program.
    Program {
        /// The program.
        program: OsString,
        /// Its arguments.
        args: Vec<OsString>,
        /// Variables of its own.
        env: Vec<(OsString, OsString)>,
        /// Where it starts.
        cwd: Option<PathBuf>,
        /// How long the handshake may take.
        initialize_timeout: Duration,
    },
    /// A ready one, such as one with a token, or behind a socket that the host has accepted.
    Environment(Environment),
}

impl Place {
    /// A WebSocket with the usual time limits: 10 s each.
    pub fn url(url: impl Into<String>) -> Self {
        Self::Url { url: url.into(), connect_timeout: TIMEOUT, initialize_timeout: TIMEOUT }
    }

    /// The environment, which connects when it is first used.
    pub(super) fn into_environment(
        self,
        id: &EnvironmentId,
        config: &ClientConfig,
    ) -> Result<Environment, EnvironmentsError> {
        match self {
            Self::Environment(environment) => Ok(environment),
            Self::Program { program, args, env, cwd, initialize_timeout } => {
                let mut server = StdioServer::new(program).args(args);
                for (name, value) in env {
                    server = server.env(name, value);
                }
                if let Some(cwd) = cwd {
                    server = server.current_dir(cwd);
                }
                let config = ClientConfig { initialize_timeout, ..config.clone() };
                Ok(Environment::with_connector(server, config))
            }
            Self::Url { url, connect_timeout, initialize_timeout } => {
                let config = ClientConfig { initialize_timeout, ..config.clone() };
                by_url(id, url, connect_timeout, config)
            }
        }
    }
}

#[cfg(feature = "websocket")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature it fails")]
fn by_url(
    _: &EnvironmentId,
    url: String,
    connect_timeout: Duration,
    config: ClientConfig,
) -> Result<Environment, EnvironmentsError> {
    use crate::transport::websocket::{ConnectOptions, WebSocketConnector};

    let options = ConnectOptions::new().timeout(connect_timeout).limits(config.messages);
    Ok(Environment::with_connector(WebSocketConnector::new(url, options), config))
}

#[cfg(not(feature = "websocket"))]
fn by_url(id: &EnvironmentId, _: String, _: Duration, _: ClientConfig) -> Result<Environment, EnvironmentsError> {
    let reason = "a url needs the feature `websocket`".into();
    Err(EnvironmentsError::InvalidEntry { id: id.to_string(), reason })
}

/// One server by its URL, under the name `remote` and as the default, and without this machine; for a host that wants to be
/// told by a variable. The value `none`, in any case, means that there is no environment at all; a blank one, this machine
/// alone.
///
/// Nothing is read behind the host's back: [`from_env`](Self::from_env) reads the variable, once, when it is called.
///
/// ```
/// use longarm::Environment;
/// use longarm::config::ClientConfig;
/// use longarm::environment::{Environments, UrlVariable};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let variable = UrlVariable::new(UrlVariable::REFERENCE, Some("ws://127.0.0.1:4500".into()));
/// let environments = Environments::from_provider(&variable, Environment::local(), &ClientConfig::default())?;
/// assert_eq!(environments.default_id().map(|id| id.to_string()).as_deref(), Some("remote"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct UrlVariable {
    name: Arc<str>,
    value: Option<String>,
}

impl UrlVariable {
    /// The variable that the reference reads. A host may use it, or one with a name of its own.
    pub const REFERENCE: &'static str = "CODEX_EXEC_SERVER_URL";

    /// With this value of the variable `name`, which is for messages.
    pub fn new(name: &str, value: Option<String>) -> Self {
        Self { name: name.into(), value }
    }

    /// With the value that the variable `name` of this process has now.
    ///
    /// # Errors
    ///
    /// [`EnvironmentsError::Source`] if it is not Unicode.
    pub fn from_env(name: &str) -> Result<Self, EnvironmentsError> {
        match std::env::var(name) {
            Ok(value) => Ok(Self::new(name, Some(value))),
            Err(std::env::VarError::NotPresent) => Ok(Self::new(name, None)),
            Err(std::env::VarError::NotUnicode(_)) => {
                let reason = "its value is not Unicode".into();
                Err(EnvironmentsError::Source { origin: format!("variable {name}"), reason })
            }
        }
    }
}

/// Does not show the value, which may hold a token.
impl fmt::Debug for UrlVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlVariable")
            .field("name", &self.name)
            .field("value", &self.value.as_ref().map(|_| ".."))
            .finish()
    }
}

impl EnvironmentProvider for UrlVariable {
    fn snapshot(&self) -> Result<Snapshot, EnvironmentsError> {
        let value = self.value.as_deref().unwrap_or_default().trim();
        if value.is_empty() {
            return Ok(Snapshot { entries: Vec::new(), default: DefaultEnvironment::Unset, include_local: true });
        }
        if value.eq_ignore_ascii_case("none") {
            return Ok(Snapshot { entries: Vec::new(), default: DefaultEnvironment::None, include_local: false });
        }
        check_url(value)
            .map_err(|reason| EnvironmentsError::Source { origin: format!("variable {}", self.name), reason })?;
        let id = EnvironmentId::parse("remote")?;
        let default = DefaultEnvironment::Id(id.clone());
        Ok(Snapshot { entries: vec![(id, Place::url(value))], default, include_local: false })
    }
}

/// What is wrong with a URL, without its secrets.
#[cfg(feature = "websocket")]
pub(super) fn check_url(url: &str) -> Result<(), String> {
    crate::transport::websocket::check_url(url).map_err(|error| error.to_string())
}

/// That there are no URLs without the feature is told of the entry.
#[cfg(not(feature = "websocket"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature it fails")]
pub(super) const fn check_url(_: &str) -> Result<(), String> {
    Ok(())
}

pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::super::Environments;
    use super::*;

    fn local() -> Environment {
        Environment::from(crate::Local::new(crate::LocalConfig::from_host()))
    }

    fn by(value: Option<&str>) -> Result<Environments, EnvironmentsError> {
        let variable = UrlVariable::new("X_URL", value.map(str::to_owned));
        Environments::from_provider(&variable, local(), &ClientConfig::default())
    }

    #[tokio::test]
    async fn a_variable_names_one_server_or_none_or_leaves_this_machine() {
        for blank in [None, Some(""), Some("  ")] {
            assert!(by(blank).unwrap().default_id().is_some_and(|id| id.is_local()));
        }
        let none = by(Some("None")).unwrap();
        assert!(none.ids().is_empty() && none.default_environment().is_none());
        #[cfg(feature = "websocket")]
        {
            let remote = by(Some(" ws://127.0.0.1:1/ ")).unwrap();
            assert_eq!(remote.ids().len(), 1);
            assert!(remote.default_environment().is_some_and(|place| place.remote().is_some()));
        }
        #[cfg(feature = "websocket")]
        for wrong in ["http://secret@host", "ws://secret@host/", "ws://", "host:1"] {
            let error = by(Some(wrong)).unwrap_err().to_string();
            assert!(error.starts_with("variable X_URL: invalid address") && !error.contains("secret"), "{error}");
        }
        assert!(!format!("{:?}", UrlVariable::new("X", Some("ws://token".into()))).contains("token"));
    }
}
