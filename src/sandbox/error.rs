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
}

impl SandboxError {
    /// Something was found to be another thing than a moment before.
    pub(crate) fn changed(reason: impl std::fmt::Display) -> Self {
        Self::preparation(format!("{reason}{TRY_AGAIN}"))
    }

    /// Whether it is one of those.
    pub(crate) fn is_change(&self) -> bool {
        matches!(self, Self::Preparation { reason } if reason.ends_with(TRY_AGAIN))
    }
}

/// What the sender can do about it.
const TRY_AGAIN: &str = "; try again";

struct Remedy<'a>(&'a Option<String>);

impl std::fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_told_from_what_stays_as_it_is() {
        let changed = SandboxError::changed("it has changed");
        assert_eq!(changed.to_string(), "sandbox cannot be prepared: it has changed; try again");
        assert!(changed.is_change());
        for lasting in [SandboxError::preparation("there are too many"), SandboxError::invalid("x; try again")] {
            assert!(!lasting.is_change(), "{lasting}");
        }
    }
}
