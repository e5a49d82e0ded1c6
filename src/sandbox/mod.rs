//! The shape of sandboxing: what a host asks for, who enforces it, and what is reported.
//!
//! No enforcer ships in this version. A request that carries a [`SandboxIntent`] is refused with
//! [`SandboxError::Unsupported`] by every backend that has no [`SandboxEnforcer`]; it never runs without its sandbox.

use std::fmt;

/// A portable statement of what a process may do, in the JSON form of the wire's `sandbox` member.
///
/// The executor binds it to its own paths and operating system, or refuses it.
#[derive(Clone, PartialEq, Eq)]
pub struct SandboxIntent {
    json: String,
}

impl SandboxIntent {
    /// Takes the JSON object of the wire's `sandbox` member.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Invalid`] if the text is not a JSON object.
    pub fn from_json(json: impl Into<String>) -> Result<Self, SandboxError> {
        let json = json.into();
        match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&json) {
            Ok(_) => Ok(Self { json }),
            Err(error) => Err(SandboxError::Invalid { reason: error.to_string() }),
        }
    }

    /// The JSON object.
    pub fn as_json(&self) -> &str {
        &self.json
    }
}

impl fmt::Debug for SandboxIntent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxIntent").field("json_bytes", &self.json.len()).finish()
    }
}

/// Whether and how far an intent would be enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Enforcement {
    /// Everything that the intent asks for is enforced.
    Full,
    /// A part is enforced; each text names something that is not.
    Partial(Vec<String>),
    /// Nothing is enforced.
    None,
}

/// Enforces sandbox intents on one operating system.
///
/// The trait has its final role but not yet its final methods: it tells what an enforcer could do, and the methods that
/// prepare a process come with the first enforcer.
pub trait SandboxEnforcer: fmt::Debug + Send + Sync + 'static {
    /// The wire name of the sandbox type, such as `linuxSeccomp`.
    fn sandbox_type(&self) -> &'static str;

    /// What this enforcer would do for `intent`, without doing it.
    ///
    /// # Errors
    ///
    /// A [`SandboxError`] that says why the intent cannot be enforced at all.
    fn assess(&self, intent: &SandboxIntent) -> Result<Enforcement, SandboxError>;
}

/// Why a sandboxed request was refused. Nothing was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The executor has no enforcer.
    #[error("this executor cannot enforce a sandbox")]
    Unsupported,
    /// The intent is malformed.
    #[error("sandbox intent is invalid: {reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// The executor has an enforcer that cannot enforce this intent.
    #[error("sandbox cannot be enforced: {reason}")]
    Unavailable {
        /// What is missing.
        reason: String,
    },
}
