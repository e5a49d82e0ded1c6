//! What was really enforced.

/// What a sandbox really enforces, as reported with a process that runs in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enforcement {
    /// How much of the intent.
    pub level: Level,
    /// By which means, such as `mount namespace`, `landlock` or `seccomp`. With `seccomp notification`, calls that were refused
    /// are [evidence](super::Evidence::Seccomp).
    pub mechanisms: Vec<String>,
    /// What the system offers that this rests on, such as `landlock abi 7`, and what it does not.
    pub kernel_facts: Vec<String>,
}

impl Enforcement {
    /// No sandbox.
    pub const NONE: Self = Self { level: Level::None, mechanisms: Vec::new(), kernel_facts: Vec::new() };

    /// A report.
    pub const fn new(level: Level, mechanisms: Vec<String>, kernel_facts: Vec<String>) -> Self {
        Self { level, mechanisms, kernel_facts }
    }
}

/// How much of an intent is enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// All of it.
    Full,
    /// A part; each text names something that is not, or that stands behind one wall where there should be two. Only the
    /// executor's owner can accept this, by [`SandboxSettings::accept_partial`](super::SandboxSettings::accept_partial). Only
    /// names that are checked at the end instead of held need nothing but the setting
    /// [`MissingProtected`](super::MissingProtected), which also says where that is so by default.
    Partial(Vec<String>),
    /// Nothing: there is no sandbox.
    None,
}
