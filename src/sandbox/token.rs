//! Sandboxes of Windows, as far as they can be planned: which intents a restricted token can enforce, and what it consists of.
//! Pure functions, the same on every system.
//!
//! A *write-restricted* token may write only where an access control entry lets one of its restricting identities do so, besides
//! its user. It reads what its user reads. So what it enforces, without changing anything on the machine, is that nothing is
//! written; and not even that of what everyone may write to.
//!
//! None of it has been run on the system that it is for.

#[cfg(any(windows, test))]
mod plan;

#[cfg(any(windows, test))]
pub(crate) use self::plan::{Sid, TokenPlan, admit};

use super::error::SandboxError;
use super::intent::{SandboxIntent, WindowsSandboxLevel};

/// Refuses levels that this version does not have, and an intent that restricts something without a level.
///
/// # Errors
///
/// [`SandboxError::Unavailable`].
pub(super) fn check_level(intent: &SandboxIntent) -> Result<(), SandboxError> {
    let remedy = "send the level `restricted-token`";
    match intent.windows_sandbox_level {
        WindowsSandboxLevel::RestrictedToken => Ok(()),
        WindowsSandboxLevel::Disabled if intent.restricts_nothing() => Ok(()),
        WindowsSandboxLevel::Disabled => Err(SandboxError::unavailable(
            "the level `disabled` enforces nothing, and the intent restricts something",
            remedy,
        )),
        WindowsSandboxLevel::Elevated => Err(SandboxError::unavailable(
            "the level `elevated` needs accounts and filters of the network that an elevated set-up makes, which this version does \
             not have",
            remedy,
        )),
        WindowsSandboxLevel::Mxc => Err(SandboxError::unavailable(
            "the level `mxc` is not one that this version can make containers of",
            remedy,
        )),
    }
}

#[cfg(test)]
mod tests;
