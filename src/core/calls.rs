//! The calls that wait for an answer.
//!
//! ```text
//!  admit ──▶ queued ──mark_sent──▶ sent ──settle──▶ gone
//!              └────── cancel_unsent ──────────────▶ gone
//!                            (both) ──── drain ────▶ gone: NotSent or Unknown
//! ```
//!
//! Invariants:
//! 1. At most `limit` regular calls are on their way, and one more for cleaning up. Calls that were made while there was no
//!    connection are `parked`: they count against new ones, and leave the places to what has to be asked before them.
//! 2. An id is used once; ids count from 1.
//! 3. Only a call that was sent can be answered: an answer that is guessed, late or unknown changes nothing, so it does
//!    not free capacity either.
//! 4. Every call leaves the table exactly once.

use std::collections::BTreeMap;

use crate::error::{Busy, Sent};

/// The table. `T` says what to do with the answer.
#[derive(Debug)]
pub(crate) struct Calls<T> {
    // By id, so in the order in which they were made.
    table: BTreeMap<i64, Call<T>>,
    last_id: i64,
    limit: usize,
    cleanup: Option<i64>,
    parked: usize,
}

#[derive(Debug)]
struct Call<T> {
    sent: Sent,
    parked: bool,
    what: T,
}

/// What a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A regular place.
    Regular,
    /// A regular place, before the calls that are parked.
    Ahead,
    /// The same, or else the one reserved for cleaning up.
    Cleanup,
}

impl<T> Calls<T> {
    /// A table for `limit` regular calls.
    pub(crate) const fn new(limit: usize) -> Self {
        Self { table: BTreeMap::new(), last_id: 0, limit, cleanup: None, parked: 0 }
    }

    /// Changes the limit. Calls above a lower one stay.
    pub(crate) const fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// How many regular calls there may be.
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Whether a regular call would be admitted.
    pub(crate) fn has_room(&self) -> bool {
        self.regular() < self.limit
    }

    /// Whether a call of this class would be admitted.
    pub(crate) fn admits(&self, class: Class) -> bool {
        self.has_place(class) || (class == Class::Cleanup && self.cleanup.is_none())
    }

    fn has_place(&self, class: Class) -> bool {
        match class {
            Class::Regular => self.has_room(),
            Class::Ahead | Class::Cleanup => self.regular() - self.parked < self.limit,
        }
    }

    /// The error for a call that is not admitted.
    pub(crate) const fn busy(&self) -> Busy {
        Busy { limit: self.limit }
    }

    /// Makes a call.
    pub(crate) fn admit(&mut self, class: Class, what: T) -> Result<i64, Busy> {
        let regular = self.has_place(class);
        if !regular && !self.admits(class) {
            return Err(self.busy());
        }
        self.last_id += 1;
        let id = self.last_id;
        if !regular {
            self.cleanup = Some(id);
        }
        self.table.insert(id, Call { sent: Sent::NotSent, parked: false, what });
        Ok(id)
    }

    /// Lets a call wait behind others.
    pub(crate) fn park(&mut self, id: i64) {
        if self.cleanup == Some(id) {
            return;
        }
        if let Some(call) = self.table.get_mut(&id) {
            self.parked += usize::from(!std::mem::replace(&mut call.parked, true));
        }
    }

    /// Gives a call that was parked its place, if there is one.
    pub(crate) fn unpark(&mut self, id: i64) -> bool {
        let room = self.has_place(Class::Ahead);
        match self.table.get_mut(&id) {
            Some(call) if call.parked && room => {
                call.parked = false;
                self.parked -= 1;
                true
            }
            Some(call) => !call.parked,
            None => true,
        }
    }

    /// Whether the call is still wanted.
    pub(crate) fn contains(&self, id: i64) -> bool {
        self.table.contains_key(&id)
    }

    /// What the call is about.
    pub(crate) fn get(&self, id: i64) -> Option<&T> {
        self.table.get(&id).map(|call| &call.what)
    }

    /// Whether the call's request was handed to the transport.
    pub(crate) fn is_sent(&self, id: i64) -> bool {
        self.table.get(&id).is_some_and(|call| call.sent == Sent::Unknown)
    }

    /// The call's request was handed to the transport.
    pub(crate) fn mark_sent(&mut self, id: i64) {
        if let Some(call) = self.table.get_mut(&id) {
            call.sent = Sent::Unknown;
        }
    }

    /// An answer has come. None if no sent call has this id.
    pub(crate) fn settle(&mut self, id: i64) -> Option<T> {
        match self.table.get(&id) {
            Some(Call { sent: Sent::Unknown, .. }) => self.remove(id),
            Some(_) | None => None,
        }
    }

    /// Takes back a call that was not sent yet. None if it was sent, or is unknown.
    pub(crate) fn cancel_unsent(&mut self, id: i64) -> Option<T> {
        match self.table.get(&id) {
            Some(Call { sent: Sent::NotSent, .. }) => self.remove(id),
            Some(_) | None => None,
        }
    }

    fn remove(&mut self, id: i64) -> Option<T> {
        let call = self.table.remove(&id)?;
        self.parked -= usize::from(call.parked);
        if self.cleanup == Some(id) {
            self.cleanup = None;
        }
        Some(call.what)
    }

    /// The number of a request that is not kept in the table.
    pub(crate) const fn take_id(&mut self) -> i64 {
        self.last_id += 1;
        self.last_id
    }

    /// The highest number that was given.
    pub(crate) const fn last_id(&self) -> i64 {
        self.last_id
    }

    /// Takes the calls that are `wanted`, the oldest first.
    pub(crate) fn take(&mut self, wanted: impl Fn(&T, Sent) -> bool) -> Vec<(T, Sent)> {
        let ids: Vec<_> =
            self.table.iter().filter(|(_, call)| wanted(&call.what, call.sent)).map(|(id, _)| *id).collect();
        let mut taken = Vec::with_capacity(ids.len());
        for id in ids {
            let sent = self.table.get(&id).map_or(Sent::NotSent, |call| call.sent);
            taken.extend(self.remove(id).map(|what| (what, sent)));
        }
        taken
    }

    /// Ends all calls, the oldest first.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (T, Sent)> + use<T> {
        self.cleanup = None;
        self.parked = 0;
        std::mem::take(&mut self.table).into_values().map(|call| (call.what, call.sent))
    }

    /// Whether the place for cleaning up is taken.
    #[cfg(test)]
    pub(crate) const fn cleanup_taken(&self) -> bool {
        self.cleanup.is_some()
    }

    /// What the calls are about.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.table.values().map(|call| &call.what)
    }

    fn regular(&self) -> usize {
        self.table.len() - usize::from(self.cleanup.is_some())
    }
}

#[cfg(test)]
mod tests;
