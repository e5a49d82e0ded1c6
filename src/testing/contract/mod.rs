//! The contract of [`ExecBackend`], as cases that a host can run on its own.
//!
//! A case starts a child and checks one behaviour; it fails by a panic. The child is the program with the suite itself,
//! which so has to let the suite in first, and has a `main` of its own (a test with `harness = false`). Cases that need
//! what a place does not have are left out with [`Suite::without`]:
//!
//! ```no_run
//! use std::sync::Arc;
//! use longarm::testing::contract::{self, Need, Suite};
//! use longarm::{ExecBackend, Local, LocalConfig};
//!
//! fn main() {
//!     contract::be_child_if_asked();
//!     let suite = Suite::new(|| async { Arc::new(Local::new(LocalConfig::from_host())) as Arc<dyn ExecBackend> });
//!     let suite = suite.without(Need::Terminal);
//!     for case in suite.cases().filter(|case| case.name().starts_with("exit")) {
//!         println!("{}", case.name());
//!         suite.run_blocking(case);
//!     }
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

mod child;
mod close;
mod concurrency;
mod containment;
mod context;
mod cwd;
mod env;
mod errors;
mod exit;
mod files;
mod files_at_work;
mod http;
mod info;
mod large_output;
mod late_output;
mod limits;
mod output_order;
mod pty;
mod signals;
mod stdin;
mod stop;

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::ExecBackend;

pub use self::child::be_child_if_asked;
use self::context::Context;
use super::patience::within;

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
    /// Process trees that nobody leaves.
    Containment,
    /// Children that inherit nothing: no descriptor, no blocked and no ignored signal; each leads its own group.
    CleanChildren,
    /// Environment policies, metadata and reserved names.
    EnvPolicies,
    /// Access to files.
    Files,
    /// Files that are updated, and private directories.
    FileExtensions,
    /// Whole-file writes and copies that leave the former content when they fail, and never wait for a reader.
    SafeFiles,
    /// Watches for missing paths.
    FileWatches,
    /// Calls about files under an intent.
    SandboxedFiles,
    /// Symbolic links, which any user may make.
    Symlinks,
    /// HTTP requests.
    Http,
    /// HTTP errors that tell their causes apart.
    HttpCauses,
    /// HTTP bodies that are slowed down by their readers, and requests that end when they are given up.
    HttpFlow,
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
        containment::CASES,
        cwd::CASES,
        env::CASES,
        errors::CASES,
        exit::CASES,
        files::CASES,
        files_at_work::CASES,
        http::CASES,
        info::CASES,
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
    child: Helper,
    make: Arc<Make>,
    lacks: Vec<Need>,
}

/// How the child is started.
#[derive(Clone, Debug)]
struct Helper {
    program: PathBuf,
    args: Vec<OsString>,
}

type Make = dyn Fn() -> Pin<Box<dyn Future<Output = Arc<dyn ExecBackend>> + Send>> + Send + Sync;

impl Suite {
    /// A suite whose cases each get a fresh place from `make`. The place has to share a file system with this program, and
    /// be able to run it: its `main` begins with [`be_child_if_asked`].
    ///
    /// # Panics
    ///
    /// If the system does not tell the path of this program.
    pub fn new<F, R>(make: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Arc<dyn ExecBackend>> + Send + 'static,
    {
        let program = std::env::current_exe().unwrap_or_else(|error| panic!("no path of this program: {error}"));
        let child = Helper { program, args: vec![child::MARK.into()] };
        Self { child, make: Arc::new(move || Box::pin(make())), lacks: Vec::new() }
    }

    /// Uses another program as the child, such as one that was built for the place: its `main` begins with
    /// [`be_child_if_asked`].
    pub fn child(mut self, program: impl Into<PathBuf>) -> Self {
        self.child.program = program.into();
        self
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
    /// If the place breaks the contract, or the case takes longer than a minute. Time in which the machine is too busy to run
    /// this program does not count.
    pub async fn run(&self, case: &Case) {
        let context = Context::new(self.child.clone(), Arc::clone(&self.make)).await;
        let environment = context.environment().clone();
        let whole = async {
            (case.run)(context).await;
            environment.close().await;
        };
        if within(CASE_LIMIT, whole).await.is_err() {
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
