//! The contract of [`ExecBackend`], as cases that a host can run on its own.
//!
//! A case starts the helper program `longarm-test-child` (a binary of this crate behind the feature `testing`) and checks
//! one behaviour. It fails by a panic. Cases that need what a place does not have are left out with
//! [`Suite::without`]:
//!
//! ```no_run
//! // Not run: it needs the path of the built helper program.
//! use std::sync::Arc;
//! use longarm::testing::contract::{Need, Suite};
//! use longarm::{ExecBackend, Local, LocalConfig};
//!
//! let suite = Suite::new("target/debug/longarm-test-child", || async {
//!     Arc::new(Local::new(LocalConfig::from_host())) as Arc<dyn ExecBackend>
//! })
//! .without(Need::Resize);
//! for case in suite.cases() {
//!     println!("{}", case.name());
//!     suite.run_blocking(case);
//! }
//! ```

/// Lists the cases of one file.
macro_rules! cases {
    ($group:literal: $($name:ident $([$($need:ident),+])?),+ $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[$(super::Case {
            name: concat!($group, "::", stringify!($name)),
            needs: &[$($(super::Need::$need),+)?],
            run: |context| Box::pin($name(context)),
        }),+];
    };
}

mod close;
mod concurrency;
mod context;
mod cwd;
mod env;
mod errors;
mod exit;
mod files;
mod large_output;
mod late_output;
mod limits;
mod output_order;
mod pty;
mod signals;
mod stdin;
mod stop;

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::ExecBackend;

use self::context::Context;

/// Something that not every place has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Need {
    /// Terminals.
    Terminal,
    /// Terminals that can be resized, and started with a size.
    Resize,
    /// Standard input that can be closed.
    CloseStdin,
    /// Signals other than interrupt.
    Signals,
    /// Stops with a grace time, and of descendants.
    GracefulStop,
    /// Exits that tell a signal from a code, and byte totals.
    ExitFacts,
    /// Time and output limits.
    Limits,
    /// A slow reader pauses its own process, and loses nothing.
    Backpressure,
    /// Spawn errors that name what is wrong.
    PreciseErrors,
    /// Processes that outlive the closing of their place.
    Detach,
    /// Children that inherit nothing: no descriptor, no blocked and no ignored signal; each leads its own group.
    CleanChildren,
    /// Environment policies, metadata and reserved names.
    EnvPolicies,
    /// Access to files.
    Files,
    /// Files that are updated, and private directories.
    FileExtensions,
    /// Whole-file writes and copies that leave the former content when they fail.
    SafeFiles,
    /// Watches for missing paths.
    FileWatches,
    /// Symbolic links, which any user may make.
    Symlinks,
}

/// One behaviour.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    needs: &'static [Need],
    run: fn(Context) -> Running,
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Case {
    /// The name: a group, and a sentence.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What a place must have for this case.
    pub fn needs(&self) -> &'static [Need] {
        self.needs
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("needs", &self.needs).finish_non_exhaustive()
    }
}

/// Every case.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [
        close::CASES,
        concurrency::CASES,
        cwd::CASES,
        env::CASES,
        errors::CASES,
        exit::CASES,
        files::CASES,
        large_output::CASES,
        late_output::CASES,
        limits::CASES,
        output_order::CASES,
        pty::CASES,
        signals::CASES,
        stdin::CASES,
        stop::CASES,
    ]
    .into_iter()
    .flatten()
}

/// A place under test: how to make it, and what it lacks.
#[derive(Clone)]
#[must_use = "a suite does nothing until a case is run"]
pub struct Suite {
    child: PathBuf,
    make: Arc<Make>,
    lacks: Vec<Need>,
}

type Make = dyn Fn() -> Pin<Box<dyn Future<Output = Arc<dyn ExecBackend>> + Send>> + Send + Sync;

impl Suite {
    /// A suite whose cases each get a fresh place from `make`, on which `child` is the path of the helper program. The
    /// place has to share a file system with this program.
    pub fn new<F, R>(child: impl Into<PathBuf>, make: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Arc<dyn ExecBackend>> + Send + 'static,
    {
        Self { child: child.into(), make: Arc::new(move || Box::pin(make())), lacks: Vec::new() }
    }

    /// Leaves out the cases that need this.
    pub fn without(mut self, need: Need) -> Self {
        self.lacks.push(need);
        self
    }

    /// The cases that the place can be expected to pass.
    pub fn cases(&self) -> impl Iterator<Item = &'static Case> {
        all().filter(|case| !case.needs.iter().any(|need| self.lacks.contains(need)))
    }

    /// Runs one case within the present tokio runtime, which needs its I/O and time drivers.
    ///
    /// # Panics
    ///
    /// If the place breaks the contract, or the case takes longer than a minute.
    pub async fn run(&self, case: &Case) {
        let context = Context::new(self.child.clone(), Arc::clone(&self.make)).await;
        let environment = context.environment().clone();
        let whole = async {
            (case.run)(context).await;
            environment.close().await;
        };
        if tokio::time::timeout(CASE_LIMIT, whole).await.is_err() {
            panic!("{} takes longer than {} s", case.name, CASE_LIMIT.as_secs());
        }
    }

    /// Runs one case in a runtime of its own.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run), and if no runtime can be made.
    pub fn run_blocking(&self, case: &Case) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap_or_else(|error| panic!("no runtime: {error}")).block_on(self.run(case));
    }
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite").field("child", &self.child).field("lacks", &self.lacks).finish_non_exhaustive()
    }
}

/// Generous: a case takes milliseconds, but the machine may be busy.
const CASE_LIMIT: Duration = Duration::from_secs(60);
