//! Why a sandboxed request was refused.

/// Why a sandboxed request was refused. Nothing was started, and nothing was touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The place has nothing that enforces sandboxes.
    #[error("this executor cannot enforce a sandbox")]
    Unsupported,
    /// The intent is malformed, or lacks what its own content needs.
    #[error("sandbox intent is invalid: {reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// The executor enforces sandboxes, but cannot enforce this one.
    #[error("sandbox cannot be enforced here: {cause}{}", Remedy(.remedy))]
    Unavailable {
        /// What is missing.
        cause: String,
        /// What the executor's owner, or the sender, can do about it, if that is known.
        remedy: Option<String>,
    },
    /// The intent is well formed, and cannot be applied to the paths of this executor.
    #[error("sandbox cannot be prepared: {reason}")]
    Preparation {
        /// Which part of the intent, and why.
        reason: String,
    },
    /// What the intent is about was another thing at one look than at the next: files come and go. The executor has tried more than
    /// once by then. The same request may be carried out a moment later.
    #[error("sandbox cannot be prepared: {reason}; try again")]
    Changed {
        /// What has changed.
        reason: String,
    },
}

impl SandboxError {
    /// A malformed intent.
    pub fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid { reason: reason.into() }
    }

    /// Something that is missing here, and what can be done about it.
    pub fn unavailable(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unavailable { cause: cause.into(), remedy: Some(remedy.into()) }
    }

    /// An intent that cannot be applied here.
    pub fn preparation(reason: impl Into<String>) -> Self {
        Self::Preparation { reason: reason.into() }
    }

    /// Something that was found to be another thing than a moment before.
    pub fn changed(reason: impl Into<String>) -> Self {
        Self::Changed { reason: reason.into() }
    }
}

struct Remedy<'a>(&'a Option<String>);

impl std::fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}
