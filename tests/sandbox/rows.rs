//! The rows.

/// A row that looks itself at what comes of it.
macro_rules! custom {
    ($number:literal, $what:expr, $policy:expr, $action:path $(, $argument:expr)*) => {
        crate::row::Row::new(
            $number,
            $what,
            $policy,
            crate::row::Action::Custom(|stage| Box::pin($action(stage $(, $argument)*))),
            crate::row::Expect::Looked,
        )
    };
}

mod calls;
mod custom;
mod denied;
mod ends;
mod evidence;
mod files;
mod keys;
mod managed;
mod more;
mod mounts;
mod network;
mod orders;
mod others;
mod own;
mod peers;
mod process;
mod refused;
mod tools;
mod walls;

use crate::dirs::Dirs;
use crate::policy::Policy;
use crate::row::{Action, Expect, Row};

pub(crate) fn all() -> Vec<Row> {
    let parts = [
        files::rows(),
        denied::rows(),
        refused::rows(),
        network::rows(),
        process::rows(),
        walls::rows(),
        custom::rows(),
        keys::rows(),
        ends::rows(),
        managed::rows(),
        others::rows(),
        orders::rows(),
        calls::rows(),
        peers::rows(),
        evidence::rows(),
        own::rows(),
        more::rows(),
        mounts::rows(),
    ];
    parts.into_iter().flatten().collect()
}

/// A row that is a script.
fn script(
    number: u32,
    what: impl Into<String>,
    policy: impl Fn(&Dirs) -> Policy + Send + Sync + 'static,
    script: &'static str,
    expect: Expect,
) -> Row {
    Row::new(number, what, policy, Action::Script(script), expect)
}

/// The words of the errors.
const EROFS: &str = "Read-only file system";
const EPERM: &str = "Operation not permitted";
const EACCES: &str = "Permission denied";
const ENOENT: &str = "No such file or directory";
const EBUSY: &str = "Device or resource busy";
const EXDEV: &str = "cross-device link";
