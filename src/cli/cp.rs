//! `longarm cp`.

mod file;
mod location;
mod plan;
mod progress;

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use longarm::Environment;
use longarm::fs::{CopyOptions, CreateDirectoryOptions, FsError};
use tokio::runtime::Builder;

use self::location::{Ends, Location};
use self::plan::Plan;
use self::progress::Progress;
use super::args::CpArgs;
use super::{CLOSE_TIME, INTERRUPTED, complain, explain, os, place};

/// The exit code when something was not copied.
const NOT_COPIED: u8 = 1;
/// How often the progress is drawn.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Files and directories that are under way at a time.
const AT_A_TIME: usize = 8;

/// Why the rest is not copied either.
enum Failure {
    /// A reason for the user.
    Reason(String),
    /// The user gave up.
    Interrupted,
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Reason(reason)
    }
}

pub(super) fn run(args: CpArgs) -> ExitCode {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&explain(&error));
            return ExitCode::from(NOT_COPIED);
        }
    };
    let result = runtime.block_on(cp(args));
    // A call on a file system that hangs must not keep the program.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(Failure::Reason(reason)) => {
            if !reason.is_empty() {
                complain(&reason);
            }
            ExitCode::from(NOT_COPIED)
        }
    }
}

async fn cp(args: CpArgs) -> Result<(), Failure> {
    let mut signals = os::Signals::new().map_err(|error| explain(&error))?;
    let (environment, _) = tokio::select! {
        connected = place::connect(&args.place) => connected?,
        () = signals.stop() => return Err(Failure::Interrupted),
    };
    let progress = Progress::new(!args.quiet);
    let result = {
        let mut work = pin!(copy(&environment, &args, &progress));
        let mut ticks = tokio::time::interval(DRAW_INTERVAL);
        loop {
            tokio::select! {
                result = &mut work => break result,
                _ = ticks.tick() => progress.draw(),
                () = signals.stop() => break Err(Failure::Interrupted),
            }
        }
    };
    progress.finish();
    // All is done or given up; an end that does not come changes nothing.
    let _ = signals.bound(CLOSE_TIME, environment.close()).await;
    result
}

/// Copies everything. What fails for itself is told at once, and the rest goes on.
async fn copy(environment: &Environment, args: &CpArgs, progress: &Progress) -> Result<(), Failure> {
    let ends = Ends::new(environment, &args.place).await?;
    let destination = ends.locate(&args.destination)?;
    let into = destination.is_directory().await.map_err(|error| explain(&error))?;
    if !into && (args.sources.len() > 1 || destination.must_be_directory()) {
        return Err(format!("{destination} is not a directory").into());
    }
    let mut plan = Plan::default();
    let mut beside = Vec::new();
    for source in &args.sources {
        let from = ends.locate(source)?;
        let to = if into { destination.below(&from)? } else { destination.clone() };
        if from.is_on_the_side_of(&to) {
            // Directories of one name become one.
            let is_directory = from.is_directory().await.unwrap_or(false);
            if is_directory || plan.claim(&from, &to, progress) {
                beside.push((from, to));
            }
        } else if let Err(error) = plan.add(&from, &to, progress).await {
            progress.failed(&from, &to, &error)?;
        }
    }
    progress.expect(plan.files.len() as u64, plan.files.iter().map(|file| file.size).sum());
    for (from, to) in &beside {
        if let Err(error) = copy_beside(from, to).await {
            progress.failed(from, to, &error)?;
        }
    }
    let directories = stream::iter(&plan.directories).map(async |to: &Location| {
        let made = to.files().create_directory(to.path(), CreateDirectoryOptions::new()).await;
        (to, made)
    });
    let mut directories = pin!(directories.buffer_unordered(AT_A_TIME));
    while let Some((to, made)) = directories.next().await {
        if let Err(error) = made {
            progress.failed_to_create(to, &error)?;
        }
    }
    let files = stream::iter(&plan.files).map(async |file| (file, file.copy(args.resume, progress).await));
    let mut files = pin!(files.buffer_unordered(AT_A_TIME));
    while let Some((file, copied)) = files.next().await {
        match copied {
            Ok(()) => progress.file_done(),
            Err(error) => progress.failed(&file.from, &file.to, &error)?,
        }
    }
    // Each failure was told.
    if progress.failures() > 0 { Err(Failure::Reason(String::new())) } else { Ok(()) }
}

/// Copies within one place, which does it by itself.
async fn copy_beside(from: &Location, to: &Location) -> Result<(), FsError> {
    // The reference empties a file that is copied onto itself.
    from.refuse_same(to).await?;
    from.files().copy(from.path(), to.path(), CopyOptions::new().recursive(true)).await
}

/// Whether nothing else can be copied either.
fn is_fatal(error: &FsError) -> bool {
    matches!(error, FsError::Disconnected(_) | FsError::Peer(_) | FsError::Closed)
}
