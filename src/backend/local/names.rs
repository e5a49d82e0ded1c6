//! Names that are held for a process in a sandbox, and who looks at them at the end and lets them go.
//!
//! Both take the file system, which can take long: it is nothing for a task. They are held by whatever could still run the
//! process: a start that is under way, its supervisor, the reaper of a child that nobody owns any more. Whoever comes to it,
//! the violations are told once.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use super::os::sandbox::Held;
use super::spawner::Queue;
use crate::blocking;
use crate::sandbox::{Evidence, FileViolation, NameChange, SandboxBackend, Violation, ViolationReason, ViolationSink};
use crate::time::Instant;

/// Shares in the names of one process. The last one has the reaper let them go.
#[derive(Clone, Debug)]
pub(super) struct Names(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    held: Mutex<Option<Held>>,
    /// The process ran.
    started: AtomicBool,
    sink: Option<Arc<dyn ViolationSink>>,
    reaper: Arc<Queue>,
}

/// A name that is not what it was when the process was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangedName {
    pub(super) path: PathBuf,
    pub(super) change: NameChange,
    pub(super) moved_to: Option<PathBuf>,
}

/// Why nothing stands for a name that a process could make.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing stands for names there"))]
pub(super) enum Unheld {
    /// The executor's owner wants nothing to be made.
    Chosen,
    /// In a larger repository, programs would take what stands there for a repository of its own.
    LargerRepository,
    /// We may not write there, but a process with our rights could change that.
    Unwritable,
    /// The file system has no call for it.
    Unsupported,
    /// It should have been possible.
    Failed(String),
}

impl Unheld {
    pub(super) const fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

impl fmt::Display for Unheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chosen => "the executor makes no placeholders",
            Self::LargerRepository => "no placeholder is made within a larger repository",
            Self::Unwritable => "the directory that it is in cannot be written to",
            Self::Unsupported => "its file system cannot give a directory a name without taking that of another one",
            Self::Failed(why) => why,
        })
    }
}

impl Names {
    pub(super) fn new(held: Held, sink: Option<Arc<dyn ViolationSink>>, reaper: Arc<Queue>) -> Self {
        let (held, started) = (Mutex::new(Some(held)), AtomicBool::new(false));
        Self(Arc::new(Kept { held, started, sink, reaper }))
    }

    /// The process has been started: what becomes of the names is told.
    pub(super) fn started(&self) {
        self.0.started.store(true, Ordering::Relaxed);
    }

    /// If the process has ended, tells which of them appeared or changed, and lets all of them go. Blocks.
    fn finish(&self, has_ended: bool, tell: oneshot::Sender<Look>) {
        // Whoever has given it up does not need to know.
        let told = |look| drop(tell.send(look));
        if !has_ended {
            return told(Look::GivenUp);
        }
        let Some(mut parting) = self.0.take() else { return told(Look::Done(Vec::new())) };
        let changed = parting.carry_out();
        told(Look::Done(changed));
        // Nobody has to wait for the rest but who closes the place.
        drop(parting);
    }

    /// Finishes in a thread of the runtime, or here if there is none: the process has ended. Must be called within a runtime.
    fn look(&self) -> oneshot::Receiver<Look> {
        let (tell, told) = oneshot::channel();
        if let Err(look) = blocking::spawn(self.finishing(|| true, tell)) {
            look();
        }
        told
    }

    /// Finishes in a thread of the runtime, which first waits for the end of the process for a while: `ended` returns whether it
    /// has ended. Given up if there is no thread. Must be called within a runtime.
    fn look_when(&self, ended: impl FnOnce() -> bool + Send + 'static) -> oneshot::Receiver<Look> {
        let (tell, told) = oneshot::channel();
        match blocking::spawn(self.finishing(ended, tell)) {
            Ok(()) => told,
            Err(_) => {
                let (tell, told) = oneshot::channel();
                drop(tell.send(Look::GivenUp));
                told
            }
        }
    }

    /// What finishes, and counts until its end.
    fn finishing<F>(&self, ended: F, tell: oneshot::Sender<Look>) -> impl FnOnce() + Send + use<F>
    where
        F: FnOnce() -> bool + Send + 'static,
    {
        let (names, counted) = (self.clone(), self.0.reaper.count_parting());
        move || {
            names.finish(ended(), tell);
            drop(names);
            drop(counted);
        }
    }

    /// The process is no more: the reaper looks at them and lets them go, unless somebody is about it already. Does not block.
    pub(super) fn leave(&self) {
        if let Some(parting) = self.0.take() {
            self.0.reaper.let_go(parting);
        }
    }
}

impl Kept {
    fn take(&self) -> Option<Parting> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let started = self.started.load(Ordering::Relaxed);
        Some(Parting { held, sink: self.sink.clone(), started })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(parting) = self.take() {
            self.reaper.let_go(parting);
        }
    }
}

/// What became of a look.
#[derive(Debug)]
enum Look {
    Done(Vec<ChangedName>),
    /// The process had not ended for a while.
    GivenUp,
}

/// The look at the names of a process that has ended.
#[derive(Debug)]
pub(super) struct Check {
    names: Names,
    told: oneshot::Receiver<Look>,
    until: Instant,
}

impl Check {
    /// Begins to look. Must be called within a runtime.
    pub(super) fn begin(names: Names, now: Instant) -> Self {
        let told = names.look();
        Self { names, told, until: now + CHECK_LIMIT }
    }

    /// The same, as soon as the process has ended: `ended` waits for that for a while, and returns whether it has. So nobody has
    /// to wait until a thread has woken up as well.
    pub(super) fn begin_early(names: Names, now: Instant, ended: impl FnOnce() -> bool + Send + 'static) -> Self {
        let told = names.look_when(ended);
        Self { names, told, until: now + CHECK_LIMIT }
    }

    /// The process has ended: it has its time from now on.
    pub(super) fn go_on(self, now: Instant) -> Self {
        Self { until: now + CHECK_LIMIT, ..self }
    }

    /// When it is given up.
    pub(super) const fn until(&self) -> Instant {
        self.until
    }

    /// What was seen, or that nothing could be seen in time. Not to be asked again after that.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<io::Result<Vec<Evidence>>> {
        let mut polled = Pin::new(&mut self.told).poll(cx);
        if matches!(polled, Poll::Ready(Ok(Look::GivenUp))) {
            self.told = self.names.look();
            polled = Pin::new(&mut self.told).poll(cx);
        }
        Poll::Ready(match polled {
            Poll::Ready(Ok(Look::Done(changed))) => Ok(changed.into_iter().map(ChangedName::into_evidence).collect()),
            Poll::Ready(Ok(Look::GivenUp) | Err(_)) => Err(io::Error::other("the look has failed")),
            Poll::Pending if now < self.until => return Poll::Pending,
            // A file system can hang for ever. If nobody has come to it yet, no thread of the runtime needs to.
            Poll::Pending => {
                self.names.leave();
                Ok(vec![Evidence::NamesUnchecked])
            }
        })
    }
}

/// Names for which nobody runs any more, to be looked at and let go.
#[derive(Debug)]
pub(super) struct Parting {
    held: Held,
    sink: Option<Arc<dyn ViolationSink>>,
    started: bool,
}

impl Parting {
    /// Tells what became of them, moves out of the way what the owner wants moved, and lets them go. Blocks, as does the drop:
    /// a file system can take its time to give back what was removed.
    pub(super) fn carry_out(&mut self) -> Vec<ChangedName> {
        if !self.started {
            return Vec::new();
        }
        let changed = self.held.part();
        if let Some(sink) = &self.sink {
            for name in &changed {
                // A panic of the host's was reported where it happened, and is no reason to leave the others to themselves.
                let _told = catch_unwind(AssertUnwindSafe(|| sink.violation(Violation::File(name.violation()))));
            }
        }
        changed
    }
}

impl ChangedName {
    fn into_evidence(self) -> Evidence {
        let Self { path, change, moved_to } = self;
        Evidence::ProtectedName { path, change, moved_to }
    }

    fn violation(&self) -> FileViolation {
        let violation = FileViolation::new(SandboxBackend::NATIVE, ViolationReason::PolicyDenied);
        let violation = violation.path(self.path.to_string_lossy()).name_change(self.change);
        match &self.moved_to {
            Some(to) => violation.moved_to(to.to_string_lossy()),
            None => violation,
        }
    }
}

/// How long the look may hold the exit up.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::future::poll_fn;
    use std::sync::mpsc;

    use super::*;
    use crate::backend::local::os::sandbox::Placeholders;
    use crate::sandbox::{Access, Existing, MissingProtected, ProtectedName};
    use crate::time::now;

    /// Names that are held, and where `.git` would be.
    fn held() -> (tempfile::TempDir, Names, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let git = root.join(".git");
        let name = ProtectedName {
            root: root.clone(),
            path: git.clone(),
            state: Existing::Missing,
            access: Access::Read,
            git_dir: None,
            placeholder: true,
            required: true,
        };
        let placeholders = Placeholders::new(Some(root.join("state")));
        let names = Names::new(placeholders.hold(&[name], MissingProtected::Placeholder), None, Arc::default());
        names.started();
        assert!(git.is_dir());
        (dir, names, git)
    }

    #[tokio::test]
    async fn a_look_that_begins_early_waits_for_the_end() {
        let (_dir, names, git) = held();
        let (wait, waits) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let check = Check::begin_early(names, now(), move || {
            wait.send(()).unwrap();
            ended.recv().is_ok()
        });
        waits.recv().unwrap();
        assert!(git.is_dir(), "as long as it has not ended");
        end.send(()).unwrap();
        let mut check = check.go_on(now());
        assert_eq!(poll_fn(|cx| check.poll(cx, now())).await.unwrap(), []);
        assert!(!git.exists());
    }

    #[tokio::test]
    async fn one_that_fails_is_no_good_news() {
        let (_dir, names, _git) = held();
        let mut check = Check::begin_early(names, now(), || panic!("as a sink of the host's would"));
        assert!(poll_fn(|cx| check.poll(cx, now())).await.is_err());
    }

    #[tokio::test]
    async fn one_that_has_given_up_is_made_up_for() {
        let (_dir, names, git) = held();
        let (given_up, is_given_up) = mpsc::channel::<()>();
        let check = Check::begin_early(names, now(), move || {
            drop(given_up);
            false
        });
        is_given_up.recv().unwrap_err();
        assert!(git.is_dir(), "nobody knows that it has ended");
        let mut check = check.go_on(now());
        assert_eq!(poll_fn(|cx| check.poll(cx, now())).await.unwrap(), []);
        assert!(!git.exists());
    }

    #[test]
    fn where_there_is_no_thread_an_early_look_is_given_up_and_the_last_one_is_made_all_the_same() {
        let (_dir, names, git) = held();
        blocking::runtime_without_threads().block_on(async {
            let check = Check::begin_early(names.clone(), now(), || unreachable!("it would hold the runtime up"));
            assert!(git.is_dir(), "nobody knows that it has ended");
            let mut check = check.go_on(now());
            assert_eq!(poll_fn(|cx| check.poll(cx, now())).await.unwrap(), []);
            assert!(!git.exists());
        });
    }
}
