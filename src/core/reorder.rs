//! A bounded window in which numbered items wait for the ones before them.
//!
//! ```text
//!            insert                     pop_next
//!  peer ───────────────▶ held, by number ─────────▶ in rising order, none twice
//!            │   │
//!            │   └─ old or known number: ignored
//!            └───── beyond the window:   Violation
//! ```
//!
//! Invariants:
//! 1. Items come out in strictly rising order; only [`Reorder::skip_to`] leaves one out.
//! 2. Each number comes out at most once; the first copy wins.
//! 3. Not counting the item that closes the gap and items inserted regardless, at most `max_items` and `max_bytes` are
//!    held.
//! 4. The item that closes the gap is always admitted, unless it is itself larger than `max_bytes`.

use std::collections::BTreeMap;
use std::ops::Range;

/// The window. `T` is what waits.
#[derive(Debug)]
pub(crate) struct Reorder<T> {
    next: u64,
    held: BTreeMap<u64, Held<T>>,
    held_bytes: usize,
    max_items: usize,
    max_bytes: usize,
}

#[derive(Debug)]
struct Held<T> {
    bytes: usize,
    item: T,
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    New,
    /// Its number has come out already, or is held.
    Duplicate,
}

/// An item that cannot be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// It is larger than the window.
    TooLarge,
    /// The window is full of items that wait for an earlier one.
    Full,
    /// The last number there is: none could follow it.
    LastNumber,
}

impl<T> Reorder<T> {
    /// A window that waits for the item of number `next`.
    pub(crate) const fn new(next: u64, max_items: usize, max_bytes: usize) -> Self {
        Self { next, held: BTreeMap::new(), held_bytes: 0, max_items, max_bytes }
    }

    /// The number of the item that comes out next.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Whether an item of this number is held.
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.held.contains_key(&number)
    }

    /// The lowest number held.
    pub(crate) fn first_held(&self) -> Option<u64> {
        self.held.first_key_value().map(|(number, _)| *number)
    }

    /// The lowest number held that is not below `number`.
    pub(crate) fn first_held_from(&self, number: u64) -> Option<u64> {
        self.held.range(number..).next().map(|(number, _)| *number)
    }

    /// The highest number held.
    pub(crate) fn last_held(&self) -> Option<u64> {
        self.held.last_key_value().map(|(number, _)| *number)
    }

    /// How many items are held of these numbers, and their bytes.
    pub(crate) fn held_between(&self, numbers: Range<u64>) -> (u64, u64) {
        let held = self.held.range(numbers).map(|(_, held)| held.bytes as u64);
        held.fold((0, 0), |(count, bytes), more| (count + 1, bytes + more))
    }

    /// Whether items are held that wait for an earlier one.
    pub(crate) fn has_hole(&self) -> bool {
        self.first_held().is_some_and(|first| first != self.next)
    }

    /// Admits an item that counts `bytes`, within the window.
    pub(crate) fn insert(&mut self, number: u64, bytes: usize, item: T) -> Result<Inserted, Violation> {
        if number < self.next || self.holds(number) {
            return Ok(Inserted::Duplicate);
        }
        if bytes > self.max_bytes {
            return Err(Violation::TooLarge);
        }
        let full = self.held.len() >= self.max_items || self.held_bytes.saturating_add(bytes) > self.max_bytes;
        if full && number != self.next {
            return Err(Violation::Full);
        }
        self.admit(number, bytes, item)
    }

    /// Admits an item whatever is held; for those whose number is bounded elsewhere.
    pub(crate) fn insert_regardless(&mut self, number: u64, bytes: usize, item: T) -> Result<Inserted, Violation> {
        if number < self.next || self.holds(number) {
            return Ok(Inserted::Duplicate);
        }
        self.admit(number, bytes, item)
    }

    fn admit(&mut self, number: u64, bytes: usize, item: T) -> Result<Inserted, Violation> {
        if number == u64::MAX {
            return Err(Violation::LastNumber);
        }
        self.held_bytes += bytes;
        self.held.insert(number, Held { bytes, item });
        Ok(Inserted::New)
    }

    /// The item that [`Self::pop_next`] would yield.
    pub(crate) fn peek_next(&self) -> Option<&T> {
        self.held.get(&self.next).map(|held| &held.item)
    }

    /// The same, to be changed in place.
    pub(crate) fn peek_next_mut(&mut self) -> Option<&mut T> {
        self.held.get_mut(&self.next).map(|held| &mut held.item)
    }

    /// Takes the next item, if it is there.
    pub(crate) fn pop_next(&mut self) -> Option<T> {
        let held = self.held.remove(&self.next)?;
        self.held_bytes -= held.bytes;
        // No item has the last number, so there always is a next one.
        self.next = self.next.saturating_add(1);
        Some(held.item)
    }

    /// Gives up all items before `number` that have not come out.
    pub(crate) fn skip_to(&mut self, number: u64) {
        while let Some(first) = self.held.first_entry().filter(|first| *first.key() < number) {
            self.held_bytes -= first.remove().bytes;
        }
        self.next = self.next.max(number);
    }

    /// Lets go of everything held.
    pub(crate) fn clear(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
    }

    #[cfg(test)]
    pub(crate) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    #[cfg(test)]
    pub(crate) fn held_items(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests;
