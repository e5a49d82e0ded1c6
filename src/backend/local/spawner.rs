//! The threads that make children.
//!
//! A start suspends its thread until the program is executed, which a slow file system can draw out, and on Linux a
//! child can be tied to the life of the thread that made it. So starts run on threads of their own that stay until the
//! last process has ended: one, and more, up to a bound, while starts wait for one that is stuck.
//!
//! What has to be looked up before a start, which can block as well, is done by the thread that then starts it, if that has
//! nothing else to do: to hand it from one thread to the next takes longer than most looks. One at a time, so that looks that
//! hang keep no more than one thread from its work; others are for the blocking threads of the runtime. So is code of a host's,
//! which may want a runtime, a larger stack, or the signals that these threads block.
//!
//! Children whose owner is gone are reaped by one more thread, which exists only while there are any: one that cannot be
//! killed holds nobody up.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use super::names::{Names, Parting};
use super::os::sandbox::Held;
use super::os::{self, Child, Launched, Launcher};
use super::spawn::LaunchPlan;
use crate::blocking::{self, NotRun};
use crate::error::{OsError, SpawnError};
use crate::request::Signal;
use crate::sandbox::ViolationSink;
use crate::time::{Instant, now};

#[cfg(all(test, unix))]
mod tests;

/// A pool of spawner threads. They end with it.
#[derive(Debug)]
pub(super) struct Spawner {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    start_limit: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// What the threads have in common.
    common: os::Common,
    graves: Mutex<Graves>,
    /// There is one more child to reap.
    dug: Condvar,
    /// Looks at names whose outcome is told, and that are not over.
    partings: AtomicUsize,
}

/// Children whose owner is gone.
#[derive(Debug, Default)]
struct Graves {
    /// Those that are killed.
    children: Vec<Buried>,
    /// Those that live on, and are reaped when they have ended.
    detached: Vec<Buried>,
    /// Names of processes that are no more.
    names: Vec<Parting>,
    /// How many are killed, or let go, that the thread is looking at.
    looked_at: usize,
    /// A thread looks after them.
    tended: bool,
}

/// A child, and the names that are held until it has ended.
type Buried = (Child, Option<Names>);

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: usize,
    /// A thread prepares a start, or is about to.
    preparing: bool,
    /// When a thread last took a job.
    last_taken: Option<Instant>,
    closed: bool,
}

#[derive(Debug)]
enum Job {
    Start(Start),
    Prepare(Preparation),
    /// Stands for a start that a file system holds up.
    #[cfg(test)]
    Stuck(std::sync::mpsc::Receiver<()>),
    /// Stands for a defect.
    #[cfg(test)]
    Panics,
}

/// What is started, and who waits for it.
type Start = (Arc<LaunchPlan>, oneshot::Sender<Delivery>);

/// Who prepares a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preparer {
    /// The thread that makes the process, if it has nothing else to do.
    Spawner,
    /// A blocking thread of the runtime.
    Runtime,
}

/// What is done before a start, which is none if that has failed.
struct Preparation(Box<dyn FnOnce() -> Option<Start> + Send>);

impl fmt::Debug for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Preparation")
    }
}

/// The right to prepare a start on one of the threads.
#[derive(Debug)]
struct Turn(Arc<Queue>);

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.0.state).preparing = false;
    }
}

/// Why a start failed, and whether the same may succeed a moment later.
#[derive(Debug)]
struct Failed {
    text_busy: bool,
    error: SpawnError,
}

/// The outcome of a start on its way to the caller. If the caller is gone, the child ends.
#[derive(Debug)]
struct Delivery {
    outcome: Option<Result<Launched, Failed>>,
    names: Option<Names>,
    queue: Arc<Queue>,
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(Ok(launched)) = self.outcome.take() {
            self.queue.bury(launched.child, self.names.take());
        }
    }
}

#[derive(Debug)]
struct CountedParting(Arc<Queue>);

impl Drop for CountedParting {
    fn drop(&mut self) {
        self.0.partings.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Spawner {
    /// A pool without a thread; the first start makes one. No start takes longer than `start_limit`.
    pub(super) fn new(start_limit: Duration) -> Self {
        Self { queue: Arc::default(), threads: Mutex::default(), start_limit }
    }

    /// Starts a process.
    ///
    /// # Cancel safety
    ///
    /// A child whose start was under way when the future was dropped is killed.
    pub(super) async fn start(&self, plan: LaunchPlan) -> Result<Launched, SpawnError> {
        let limit = self.start_limit;
        tokio::time::timeout(limit, self.start_in_time(Arc::new(plan), None))
            .await
            .unwrap_or(Err(SpawnError::TimedOut { limit }))
    }

    /// Starts a process whose plan is made by `prepare`, which may block, and returns what that has made besides.
    ///
    /// # Cancel safety
    ///
    /// As for [`start`](Self::start). What was prepared by then is dropped.
    pub(super) async fn start_prepared<T: Send + 'static>(
        &self,
        by: Preparer,
        prepare: impl FnOnce() -> Result<(LaunchPlan, T), SpawnError> + Send + 'static,
    ) -> Result<(Launched, T), SpawnError> {
        let limit = self.start_limit;
        let start = async {
            let turn = if by == Preparer::Spawner { self.queue.turn() } else { None };
            let Some(turn) = turn else {
                let prepared = blocking::run(prepare).await;
                let (plan, besides) = prepared.map_err(|why| not_run("prepare a start", why))??;
                return Ok((self.start_in_time(Arc::new(plan), None).await?, besides));
            };
            let (tell, mut told) = oneshot::channel();
            let (reply, answer) = oneshot::channel();
            let preparation = move || {
                if tell.is_closed() {
                    return None;
                }
                // What it has panicked in is gone with it. The end of this thread would be that of its children, where that is wanted
                // for the end of the executor.
                let prepared = catch_unwind(AssertUnwindSafe(prepare));
                let prepared = prepared.unwrap_or_else(|_| {
                    Err(OsError::new("prepare a start", io::Error::other("it has panicked")).into())
                });
                let prepared = prepared.map(|(plan, besides)| (Arc::new(plan), besides));
                drop(turn);
                let plan = prepared.as_ref().ok().map(|(plan, _)| Arc::clone(plan));
                tell.send(prepared).ok()?;
                Some((plan?, reply))
            };
            self.queue.push(Job::Prepare(Preparation(Box::new(preparation))))?;
            let first = self.answer(answer).await;
            match told.try_recv() {
                Ok(Ok((plan, besides))) => Ok((self.start_in_time(plan, Some(first?)).await?, besides)),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(first.err().unwrap_or(SpawnError::Closed)),
            }
        };
        tokio::time::timeout(limit, start).await.unwrap_or(Err(SpawnError::TimedOut { limit }))
    }

    /// `first` is what became of it the first time, if it was tried already.
    async fn start_in_time(
        &self,
        plan: Arc<LaunchPlan>,
        mut first: Option<Result<Launched, Failed>>,
    ) -> Result<Launched, SpawnError> {
        let mut pause = TEXT_BUSY_FIRST_PAUSE;
        loop {
            let started = match first.take() {
                Some(first) => first,
                None => self.start_once(&plan).await?,
            };
            match started {
                Ok(launched) => return Ok(launched),
                // Somebody who forked while the file was written holds it open for a moment.
                Err(failed) if failed.text_busy && pause <= TEXT_BUSY_LAST_PAUSE => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(failed) => return Err(failed.error),
            }
        }
    }

    async fn start_once(&self, plan: &Arc<LaunchPlan>) -> Result<Result<Launched, Failed>, SpawnError> {
        let (reply, answer) = oneshot::channel();
        self.queue.push(Job::Start((Arc::clone(plan), reply)))?;
        self.answer(answer).await
    }

    /// What became of a start that is in the queue.
    async fn answer(&self, mut answer: oneshot::Receiver<Delivery>) -> Result<Result<Launched, Failed>, SpawnError> {
        self.add_thread_if(|threads, _| threads == 0)?;
        loop {
            match tokio::time::timeout(STUCK_AFTER, &mut answer).await {
                Ok(Ok(mut delivery)) => return delivery.outcome.take().ok_or(SpawnError::Closed),
                // The pool ended before a thread took the job, or the thread has panicked.
                Ok(Err(_)) if lock(&self.queue.state).closed => return Err(SpawnError::Closed),
                Ok(Err(_)) => {
                    return Err(OsError::new("start a process", io::Error::other("the thread is gone")).into());
                }
                // Many starts at once are no reason: only if none of them has come to its turn meanwhile.
                Err(_) => {
                    self.add_thread_if(|threads, queue| threads == 0 || queue.is_stuck() && threads < MAX_THREADS)?
                }
            }
        }
    }

    /// Has a child that nobody owns any more killed and reaped; its names go when it has ended.
    pub(super) fn bury(&self, child: Child, names: Option<Names>) {
        self.queue.bury(child, names);
    }

    /// Has a child that nobody owns any more reaped when it ends by itself; then its names go.
    pub(super) fn outlive(&self, child: Child, names: Option<Names>) {
        let mut graves = lock(&self.queue.graves);
        graves.detached.push((child, names));
        self.queue.tend(graves);
    }

    /// Who keeps names.
    pub(super) fn keeper(&self) -> Keeper {
        Keeper(Arc::clone(&self.queue))
    }

    /// Ends the threads, and waits for them and for what they have under way. Later starts fail.
    pub(super) async fn shut_down(&self) {
        self.queue.close();
        let threads = mem::take(&mut *lock(&self.threads));
        for thread in threads {
            while !thread.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // It has finished, so this does not block. A panic was reported where it happened.
            let outcome = thread.join();
            debug_assert!(outcome.is_ok(), "a spawner thread panicked");
        }
        while lock(&self.queue.graves).holds_killed() || self.queue.partings.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Keeps a thread from all else until what it returns is dropped.
    #[cfg(test)]
    pub(super) fn hold_up(&self) -> std::sync::mpsc::Sender<()> {
        let (end, until) = std::sync::mpsc::channel();
        self.queue.push(Job::Stuck(until)).unwrap();
        end
    }

    fn add_thread_if(&self, wanted: impl FnOnce(usize, &State) -> bool) -> Result<(), SpawnError> {
        let mut threads = lock(&self.threads);
        // One that has panicked takes no more jobs. The panic was reported where it happened.
        threads.retain(|thread| !thread.is_finished());
        if wanted(threads.len(), &lock(&self.queue.state)) {
            let queue = Arc::clone(&self.queue);
            let thread = std::thread::Builder::new()
                .name("longarm-spawn".into())
                .stack_size(THREAD_STACK_BYTES)
                .spawn(move || run(&queue))
                .map_err(|error| match error.kind() {
                    io::ErrorKind::WouldBlock => os::no_thread(),
                    _ => OsError::new("make a spawner thread", error).into(),
                })?;
            threads.push(thread);
        }
        Ok(())
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The error of a start, or of what comes before one, for which a call on a thread of the runtime has no result.
pub(super) fn not_run(op: &'static str, why: NotRun) -> SpawnError {
    match why {
        NotRun::NoThread => os::no_thread(),
        NotRun::Panicked | NotRun::RuntimeEnds => OsError::new(op, why.into()).into(),
    }
}

/// Keeps names for processes of a pool, also from its threads.
#[derive(Debug)]
pub(super) struct Keeper(Arc<Queue>);

impl Keeper {
    /// Keeps names until the last who shares in them is gone. If the process was started, `sink` is told what became of them.
    pub(super) fn keep(&self, held: Held, sink: Option<Arc<dyn ViolationSink>>) -> Names {
        Names::new(held, sink, Arc::clone(&self.0))
    }
}

impl Graves {
    fn holds_killed(&self) -> bool {
        self.looked_at > 0 || !self.children.is_empty() || !self.names.is_empty()
    }
}

impl State {
    /// Whether jobs wait and every thread has been busy with one for too long.
    fn is_stuck(&self) -> bool {
        !self.jobs.is_empty()
            && self.last_taken.is_none_or(|taken| now().saturating_duration_since(taken) >= STUCK_AFTER)
    }
}

impl Queue {
    fn push(&self, job: Job) -> Result<(), SpawnError> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(SpawnError::Closed);
        }
        state.jobs.push_back(job);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// The right to prepare a start here, if a thread waits for something to do.
    fn turn(self: &Arc<Self>) -> Option<Turn> {
        let mut state = lock(&self.state);
        let is_free = state.idle > state.jobs.len() && !state.preparing && !state.closed;
        is_free.then(|| {
            state.preparing = true;
            Turn(Arc::clone(self))
        })
    }

    /// Takes a child over, to be killed and reaped. Never blocks.
    fn bury(self: &Arc<Self>, child: Child, names: Option<Names>) {
        let refused = child.signal_tree(Signal::Kill).err();
        let mut graves = lock(&self.graves);
        graves.children.push((child, names));
        self.tend(graves);
        // It is tried again.
        drop(refused);
    }

    /// Takes names over, to be let go. Never blocks.
    pub(super) fn let_go(self: &Arc<Self>, names: Parting) {
        let mut graves = lock(&self.graves);
        graves.names.push(names);
        self.tend(graves);
    }

    /// Has whoever closes the place wait until what it returns is dropped.
    pub(super) fn count_parting(self: &Arc<Self>) -> impl Drop + Send + use<> {
        self.partings.fetch_add(1, Ordering::Relaxed);
        CountedParting(Arc::clone(self))
    }

    /// Has somebody look after the children.
    fn tend(self: &Arc<Self>, mut graves: MutexGuard<'_, Graves>) {
        if !graves.tended {
            let queue = Arc::clone(self);
            let thread = std::thread::Builder::new().name("longarm-reap".into()).stack_size(THREAD_STACK_BYTES);
            // Without a thread the next burial tries again.
            graves.tended = thread.spawn(move || queue.tend_graves()).is_ok();
        }
        drop(graves);
        self.dug.notify_one();
    }

    /// Reaps until nobody is left.
    fn tend_graves(&self) {
        let mut pause = REAP_FIRST_PAUSE;
        let mut graves = lock(&self.graves);
        loop {
            let (mut children, mut detached) = (mem::take(&mut graves.children), mem::take(&mut graves.detached));
            let names = mem::take(&mut graves.names);
            graves.looked_at = children.len() + names.len();
            // Nobody who brings another one has to wait for the looks, which can take the file system some time.
            drop(graves);
            for mut names in names {
                // Whoever wanted to know of it has gone; the owner is told.
                drop(names.carry_out());
            }
            let before = children.len() + detached.len();
            detached.retain(|(child, _)| is_left(child));
            children.retain(|(child, _)| {
                let left = is_left(child);
                if left {
                    // It may have been refused before: the process may have had the rights of another user.
                    drop(child.signal_tree(Signal::Kill));
                }
                left
            });
            let mut progress = children.len() + detached.len() != before;
            graves = lock(&self.graves);
            progress |= !graves.children.is_empty() || !graves.detached.is_empty() || !graves.names.is_empty();
            graves.looked_at = 0;
            graves.children.append(&mut children);
            graves.detached.append(&mut detached);
            if graves.children.is_empty() && graves.detached.is_empty() && graves.names.is_empty() {
                graves.tended = false;
                return;
            }
            // Whoever was brought meanwhile has told nobody who waited.
            if !progress {
                let (next, waited) = self.dug.wait_timeout(graves, pause).unwrap_or_else(PoisonError::into_inner);
                graves = next;
                progress = !waited.timed_out();
            }
            pause = if progress { REAP_FIRST_PAUSE } else { (pause * 2).min(REAP_LAST_PAUSE) };
        }
    }

    fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let given_up = mem::take(&mut state.jobs);
        drop(state);
        self.changed.notify_all();
        self.common.close();
        // Not under the lock, which what they hold may take.
        drop(given_up);
    }

    /// The next job; none when the pool is closed.
    fn next(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            match state.jobs.pop_front() {
                Some(job) => {
                    state.last_taken = Some(now());
                    return Some(job);
                }
                None if state.closed => return None,
                None => {
                    state.idle += 1;
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.idle -= 1;
                }
            }
        }
    }
}

/// Whether a child or, where that holds more, its tree is still there. If not, nothing is left of it.
fn is_left(child: &Child) -> bool {
    if matches!(child.exit_status(), Ok(None)) {
        return true;
    }
    if child.ends_as_a_whole() {
        // The next look tells whether it worked.
        drop(child.signal_tree(Signal::Kill));
    }
    // The only error is that somebody else has reaped it.
    drop(child.release());
    child.needs_clean_up() && child.tree_has_members() == Some(true)
}

/// A spawner thread.
fn run(queue: &Arc<Queue>) {
    let mut launcher = Launcher::new(&queue.common);
    while let Some(job) = queue.next() {
        let start = match job {
            #[cfg(test)]
            Job::Stuck(until) => {
                // Its end is enough.
                let _ = until.recv();
                None
            }
            #[cfg(test)]
            Job::Panics => panic!("as a test wants it"),
            Job::Start(start) => Some(start),
            Job::Prepare(Preparation(prepare)) => prepare(),
        };
        // A caller that is gone wants nothing to be started.
        let Some((plan, reply)) = start.filter(|(_, reply)| !reply.is_closed()) else { continue };
        let outcome = match &mut launcher {
            Ok(launcher) => launcher
                .launch(&plan)
                .map_err(|failure| Failed { text_busy: failure.is_text_busy(), error: os::classify(failure, &plan) }),
            Err(error) => {
                let source = io::Error::new(error.kind(), error.to_string());
                let error = SpawnError::Os(OsError::new("prepare a spawner thread", source));
                launcher = Launcher::new(&queue.common);
                Err(Failed { text_busy: false, error })
            }
        };
        // Until the child has ended, whoever takes it.
        let names = plan.names.clone();
        if let Some(names) = names.as_ref().filter(|_| outcome.is_ok()) {
            names.started();
        }
        let delivery = Delivery { outcome: Some(outcome), names, queue: Arc::clone(queue) };
        // A caller that is gone leaves the delivery to its destructor.
        drop(reply.send(delivery));
        if let Ok(launcher) = &mut launcher {
            launcher.settle();
        }
    }
}

/// Nothing that can panic runs under these locks, so that a poisoned one is still consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A start that waited this long behind another one gets a thread of its own.
const STUCK_AFTER: Duration = Duration::from_millis(50);
/// No more threads than this: a file system on which even more starts are stuck at a time will not be helped by them.
const MAX_THREADS: usize = 16;
const THREAD_STACK_BYTES: usize = 256 << 10;
/// Pauses between looks at children that were killed, doubling.
const REAP_FIRST_PAUSE: Duration = Duration::from_millis(1);
const REAP_LAST_PAUSE: Duration = Duration::from_secs(1);
/// Pauses before a busy program is tried again, doubling: 62 ms in all.
const TEXT_BUSY_FIRST_PAUSE: Duration = Duration::from_millis(2);
const TEXT_BUSY_LAST_PAUSE: Duration = Duration::from_millis(32);
