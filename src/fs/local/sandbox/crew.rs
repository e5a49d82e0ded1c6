//! Threads that have put the second wall on themselves, and so can serve one plan only.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::super::pool::Pool;
use super::landlock::{Ruleset, Wall};
use crate::fs::FsError;
use crate::sandbox::SandboxError;

/// The threads of one plan. They are made as they are needed, and end when they are not for a while, or nobody has the
/// crew any more, or many of others' are idle as well.
#[derive(Debug)]
pub(super) struct Crew {
    shared: Arc<Shared>,
    most: usize,
}

#[derive(Debug)]
struct Shared {
    /// None on a machine without a second wall.
    ruleset: Option<Ruleset>,
    state: Mutex<State>,
    wake: Condvar,
    /// Those of all crews.
    idle: Arc<Idle>,
}

/// How many threads wait for something to do.
#[derive(Debug, Default)]
pub(super) struct Idle(AtomicUsize);

impl Idle {
    /// Counts one more, unless there are as many as may be.
    fn enter(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |idle| (idle < MOST_IDLE).then_some(idle + 1)).is_ok()
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// What a thread does, once it knows whether it stands behind the wall.
type Job = Box<dyn FnOnce(Result<(), Arc<io::Error>>) + Send>;

impl Crew {
    /// A crew behind this wall, of at most so many threads.
    pub(super) fn new(wall: &Wall, most: usize, idle: &Arc<Idle>) -> io::Result<Self> {
        let idle = Arc::clone(idle);
        let shared = Shared { ruleset: wall.build()?, state: Mutex::default(), wake: Condvar::new(), idle };
        Ok(Self { shared: Arc::new(shared), most: most.max(1) })
    }

    /// How many threads it has, and how many of them wait for something to do.
    #[cfg(test)]
    pub(super) fn threads(&self) -> (usize, usize) {
        let state = self.shared.state();
        (state.threads, state.idle)
    }

    /// Runs a call on one of its threads. It counts as one of the pool's.
    pub(super) async fn run<T, F>(&self, pool: &Pool, call: F) -> Result<T, FsError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, FsError> + Send + 'static,
    {
        let slot = pool.slot().await?;
        let (tell, told) = oneshot::channel();
        self.submit(Box::new(move |wall| {
            let result = match wall {
                Ok(()) => call(),
                Err(error) => Err(cannot_restrict(&error).into()),
            };
            drop(slot);
            // Nobody may wait any more.
            drop(tell.send(result));
        }));
        told.await.unwrap_or_else(|_| {
            let source = io::Error::other("the call panicked");
            Err(FsError::Os { op: "use", path: "".into(), source: Arc::new(source) })
        })
    }

    /// Whoever waits is told, also if there is no thread for it.
    fn submit(&self, job: Job) {
        let mut state = self.shared.state();
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < self.most {
            state.threads += 1;
            drop(state);
            let shared = Arc::clone(&self.shared);
            let spawned = std::thread::Builder::new().name("longarm-files".into()).spawn(move || shared.work());
            if let Err(error) = spawned {
                let mut state = self.shared.state();
                state.threads -= 1;
                // Another thread will do it, if there is one.
                let stranded = if state.threads == 0 { std::mem::take(&mut state.jobs) } else { VecDeque::new() };
                drop(state);
                let error = Arc::new(error);
                stranded.into_iter().for_each(|job| job(Err(Arc::clone(&error))));
            }
            return;
        }
        drop(state);
        self.shared.wake.notify_one();
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        self.serve(&self.ruleset.as_ref().map_or(Ok(()), Ruleset::restrict_this_thread).map_err(Arc::new));
    }

    fn serve(&self, wall: &Result<(), Arc<io::Error>>) {
        while let Some(job) = self.next() {
            // One call is not to end whoever made others; who waits for it hears that it is gone.
            drop(catch_unwind(AssertUnwindSafe(|| job(wall.clone()))));
            if wall.is_err() && self.leave() {
                return;
            }
        }
    }

    /// A thread that can only refuse leaves the rest to others, if there are any, or to those that come.
    fn leave(&self) -> bool {
        let mut state = self.state();
        let leaves = state.threads > 1 || state.jobs.is_empty();
        state.threads -= usize::from(leaves);
        leaves
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed || !self.idle.enter() {
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            let (woken, timed_out) = self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            self.idle.leave();
            if timed_out.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return None;
            }
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("threads", &self.threads).field("idle", &self.idle).finish_non_exhaustive()
    }
}

fn cannot_restrict(error: &io::Error) -> SandboxError {
    SandboxError::unavailable(
        format!("a thread of the executor cannot restrict itself: {error}"),
        "see how many threads the executor may have, and how many sandboxes it runs in itself",
    )
}

/// How long a thread waits for something to do. 10 s.
const IDLE: Duration = Duration::from_secs(10);

/// As many as calls run at a time by default, for all policies together.
const MOST_IDLE: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(threads: usize, jobs: usize) -> (Shared, Arc<Mutex<Vec<bool>>>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let job = |told: &Arc<Mutex<Vec<bool>>>| -> Job {
            let told = Arc::clone(told);
            Box::new(move |wall| told.lock().unwrap().push(wall.is_ok()))
        };
        let state = State { jobs: (0..jobs).map(|_| job(&told)).collect(), threads, idle: 0, closed: true };
        (Shared { ruleset: None, state: Mutex::new(state), wake: Condvar::new(), idle: Arc::default() }, told)
    }

    fn failed() -> Result<(), Arc<io::Error>> {
        Err(Arc::new(io::Error::from(io::ErrorKind::OutOfMemory)))
    }

    #[test]
    fn a_thread_that_cannot_restrict_itself_refuses_one_call_and_leaves_the_rest_to_others() {
        let (shared, told) = shared(2, 3);
        shared.serve(&failed());
        assert_eq!((&told.lock().unwrap()[..], shared.state().threads), (&[false][..], 1));
        shared.serve(&Ok(()));
        assert_eq!((&told.lock().unwrap()[..], shared.state().threads), (&[false, true, true][..], 0));
    }

    #[test]
    fn the_last_thread_leaves_nobody_without_an_answer() {
        let (shared, told) = shared(1, 3);
        shared.serve(&failed());
        assert_eq!((&told.lock().unwrap()[..], shared.state().threads), (&[false; 3][..], 0));
    }
}
