//! Watches for missing paths: any number of watchers over the one watch that a connection has on the wire.
//!
//! The watch on the wire is for all that the watchers wait for, together. When it ends, all of them are told: a false
//! alarm costs a look, a missed one would be for ever. A new watcher makes a new watch on the wire, which replaces the
//! former one; if that cannot be made, something may have appeared meanwhile, so those who waited are told, and the new
//! one asks again for itself.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::path_uri::PathUri;
use crate::wire::process::RawObject;

/// The watchers of one connection.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Held while a watch is being made on the wire, so that one is made at a time.
    making: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    watchers: Vec<Watcher>,
    ended: bool,
}

#[derive(Debug)]
struct Watcher {
    wanted: Wanted,
    /// Told by a message that something changed; dropped when that can no longer be known.
    changed: oneshot::Sender<()>,
}

/// What a watcher waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) missing: Vec<PathUri>,
    pub(crate) present: Option<PathUri>,
    /// What the watch may see.
    pub(crate) sandbox: Option<RawObject>,
}

impl Wanted {
    /// Both together. None if that is more than one watch can hold.
    fn with(mut self, other: &Self, max_missing: usize) -> Option<Self> {
        if self.sandbox != other.sandbox {
            return None;
        }
        for path in &other.missing {
            if !self.missing.contains(path) {
                self.missing.push(path.clone());
            }
        }
        match (&self.present, &other.present) {
            (Some(one), Some(another)) if one != another => return None,
            (None, present) => self.present.clone_from(present),
            (Some(_), _) => {}
        }
        (self.missing.len() <= max_missing).then_some(self)
    }
}

impl Watches {
    /// Adds a watcher; `ask` makes a watch on the wire of this number. None if it cannot be watched. The receiver gets a
    /// message when something may have changed, and an error if the connection ends.
    pub(crate) async fn add<E, F>(
        &self,
        wanted: Wanted,
        max_missing: usize,
        mut ask: impl FnMut(u64, Wanted) -> F,
    ) -> Result<Option<oneshot::Receiver<()>>, E>
    where
        F: Future<Output = Result<bool, E>>,
    {
        let _making = self.making.lock().await;
        let Some((id, all, others)) = self.begin(&wanted, max_missing) else { return Ok(None) };
        let (changed, receiver) = oneshot::channel();
        // Before it is asked for: the end of the watch may be told right behind the answer.
        self.state().watchers.push(Watcher { wanted: wanted.clone(), changed });
        // Whatever the answer would have been, the former watch is gone at the peer.
        let unanswered = Unanswered { watches: self, id };
        let answer = ask(id, all).await;
        std::mem::forget(unanswered);
        match answer {
            Ok(true) => return Ok(Some(receiver)),
            // Something that others wait for may be there now.
            Ok(false) if others => {}
            refused => {
                self.state().watchers.pop_if(|watcher| watcher.wanted == wanted);
                return refused.map(|_| None);
            }
        }
        self.changed(id);
        // The receiver was told with the others.
        let (changed, receiver) = oneshot::channel();
        let id = {
            let mut state = self.state();
            state.watchers.push(Watcher { wanted: wanted.clone(), changed });
            state.next()
        };
        let watching = ask(id, wanted.clone()).await;
        if !matches!(watching, Ok(true)) {
            self.state().watchers.pop_if(|watcher| watcher.wanted == wanted);
        }
        watching.map(|watching| watching.then_some(receiver))
    }

    /// The number of the next watch, and what it has to be for. None if that is too much for one watch.
    fn begin(&self, wanted: &Wanted, max_missing: usize) -> Option<(u64, Wanted, bool)> {
        let mut state = self.state();
        if state.ended {
            // The call will say so.
            return Some((state.next(), wanted.clone(), false));
        }
        state.watchers.retain(|watcher| !watcher.changed.is_closed());
        let others = !state.watchers.is_empty();
        let all = state.watchers.iter().try_fold(wanted.clone(), |all, watcher| all.with(&watcher.wanted, max_missing));
        let all = all.filter(|all| all.missing.len() <= max_missing)?;
        Some((state.next(), all, others))
    }

    /// The watch of this number has ended. An earlier one than the last may have ended before it was replaced.
    pub(crate) fn changed(&self, id: u64) {
        let watchers = {
            let mut state = self.state();
            if id > state.last_id {
                return;
            }
            std::mem::take(&mut state.watchers)
        };
        for watcher in watchers {
            // Whoever does not wait any more misses nothing.
            let _ = watcher.changed.send(());
        }
    }

    /// The connection broke, and with it the watch. There may be another one.
    pub(crate) fn interrupt(&self) {
        self.state().watchers.clear();
    }

    /// The connection has ended.
    pub(crate) fn end(&self) {
        self.interrupt();
        self.state().ended = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch on the wire of which nobody will learn whether it was made: those who wait may wait for nothing.
struct Unanswered<'a> {
    watches: &'a Watches,
    id: u64,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.watches.changed(self.id);
    }
}

impl State {
    const fn next(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

#[cfg(test)]
mod tests;
