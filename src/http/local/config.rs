//! Settings of requests made by this machine.

use std::ffi::{OsStr, OsString};
use std::fmt;

use bytes::Bytes;

use crate::env_policy::{EnvMap, ReservedNames};

/// Settings of a [`LocalHttpClient`](super::LocalHttpClient).
///
/// [`LocalHttpConfig::default`] knows no variables, and so no proxies.
#[derive(Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct LocalHttpConfig {
    /// The variables that headers may ask for, and that name the proxies. By default none.
    pub variables: EnvMap,
    /// Names of variables that no header may ask for, besides those that commonly hold an executor's own credentials.
    pub reserved_names: ReservedNames,
    /// By which proxies requests go.
    pub proxies: Proxies,
    /// Roots, as DER, that certificates may have besides those that the platform trusts.
    pub extra_roots: Vec<Bytes>,
}

/// By which proxies requests go.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proxies {
    /// Those that the variables `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY` name, in upper or lower case, save for what
    /// `NO_PROXY` lists. `HTTP_PROXY` in upper case has no effect where `REQUEST_METHOD` is set, since there a request's
    /// header could have set it.
    #[default]
    Variables,
    /// None.
    None,
    /// This one, an `http`, `https` or `socks5` URL.
    Url(String),
}

impl LocalHttpConfig {
    /// Sets the variables that headers may ask for, and that name the proxies.
    pub fn variables(mut self, variables: EnvMap) -> Self {
        self.variables = variables;
        self
    }

    /// Sets the names of variables that no header may ask for.
    pub fn reserved_names(mut self, names: ReservedNames) -> Self {
        self.reserved_names = names;
        self
    }

    /// Sets by which proxies requests go.
    pub fn proxies(mut self, proxies: Proxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// Adds a root, as DER, that certificates may have.
    pub fn extra_root(mut self, der: impl Into<Bytes>) -> Self {
        self.extra_roots.push(der.into());
        self
    }

    /// Whether no header may have the value of this variable.
    pub(super) fn is_protected(&self, name: &str) -> bool {
        self.reserved_names.contains(OsStr::new(name))
            || PROTECTED.iter().any(|protected| protected.eq_ignore_ascii_case(name))
    }

    /// The value of a variable, by the rules of this system.
    pub(super) fn variable(&self, name: &str) -> Option<&OsString> {
        let same = |known: &OsStr| if cfg!(windows) { known.eq_ignore_ascii_case(name) } else { known == name };
        self.variables.iter().find(|(known, _)| same(known)).map(|(_, value)| value)
    }

    /// The value of the first of these variables that is there and not empty.
    pub(super) fn first_variable(&self, names: &[&'static str]) -> Option<(&'static str, String)> {
        names.iter().find_map(|name| {
            let value = self.variable(name)?.to_string_lossy().into_owned();
            (!value.is_empty()).then_some((*name, value))
        })
    }
}

/// Shows the names of variables, never their values.
impl fmt::Debug for LocalHttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalHttpConfig")
            .field("variable_names", &self.variables.keys().collect::<Vec<_>>())
            .field("reserved_names", &self.reserved_names)
            .field("proxies", &self.proxies)
            .field("extra_roots", &self.extra_roots.len())
            .finish()
    }
}

/// Without the URL's credentials.
impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variables => f.write_str("Variables"),
            Self::None => f.write_str("None"),
            Self::Url(url) => f.debug_tuple("Url").field(&crate::http::error::origin_of(url)).finish(),
        }
    }
}

/// Variables that commonly hold an executor's own credentials. A client that may use them in a header could send them
/// anywhere.
const PROTECTED: &[&str] = &[
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "CODEX_ACCESS_TOKEN",
    "CODEX_CONNECTORS_TOKEN",
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS",
];
