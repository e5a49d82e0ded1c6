//! What a process or a call about files may do: the portable intent, what an executor makes of it, and what it reports.
//!
//! A controller says *what* is allowed, as a [`SandboxIntent`]; the executor alone chooses *how*. It binds the intent to its
//! own paths ([`Bound`]), and enforces the whole of it or refuses before anything is started ([`SandboxError`]). A request
//! without an intent has no sandbox.
//!
//! Nothing in this module enforces anything: it is the same on every system, and touches the file system only to learn
//! what paths mean.

mod bind;
mod bindings;
mod bound;
mod builder;
mod denial;
mod enforcement;
mod error;
mod expand;
mod facts;
#[cfg(test)]
mod fake;
mod glob;
mod host;
mod intent;
mod limits;
mod managed;
mod protect;
mod resolve;
#[cfg(all(test, target_os = "linux"))]
pub(crate) mod scene;
pub mod seatbelt;
mod settings;
pub(crate) mod token;
mod violation;

pub use crate::backend::local::enforcer::{NativeEnforcer, SandboxEnforcer, SandboxPlan, SandboxedStart};

pub(crate) use self::bindings::Bindings;
pub use self::bound::{Alias, Bound, BoundEntry, Change, Class, Existing, Origin, ProtectedName};
pub(crate) use self::bound::{KeepsOwn, MissingOwn};
pub use self::denial::{Denial, DenialWatch, Evidence};
pub use self::enforcement::{Enforcement, Level};
pub use self::error::SandboxError;
pub use self::facts::{Facts, Found, PathIdentity, Platform, Seen};
pub use self::glob::BoundGlob;
pub use self::host::HostPaths;
pub use self::intent::{
    Access, Entry, EntryPath, FileSystemPolicy, NetworkPolicy, PermissionProfile, PolicyContext, ProxySettingsMode,
    SandboxIntent, SandboxOverride, Special, WindowsSandboxLevel,
};
pub use self::managed::ManagedNetworkFacts;
pub use self::settings::{MissingProtected, SandboxSettings, Wall};
pub use self::violation::{
    FileViolation, NameChange, NetworkViolation, SandboxBackend, Violation, ViolationReason, ViolationSink,
};
