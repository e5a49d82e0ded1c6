//! Which writes a process has already accepted, so that none is applied twice.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// The last write ids that one process accepted.
///
/// Every remembered write was *accepted*, so the answer to a repeated one needs no memory of its own. (Invariant 3 of
/// the house: a write id takes effect at most once, however often it is sent, while it is among the last
/// [`ServerConfig::remembered_write_ids`](crate::config::ServerConfig::remembered_write_ids).)
#[derive(Debug)]
pub(crate) struct AcceptedWrites {
    max_ids: usize,
    ids: HashSet<Arc<str>>,
    oldest_first: VecDeque<Arc<str>>,
    text_bytes: usize,
}

impl AcceptedWrites {
    pub(crate) fn new(max_ids: usize) -> Self {
        Self { max_ids, ids: HashSet::new(), oldest_first: VecDeque::new(), text_bytes: 0 }
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Remembers `id`; says false, and changes nothing, if it is known.
    pub(crate) fn insert(&mut self, id: &str) -> bool {
        if self.contains(id) {
            return false;
        }
        let id: Arc<str> = id.into();
        self.text_bytes += id.len();
        self.ids.insert(Arc::clone(&id));
        self.oldest_first.push_back(id);
        while self.oldest_first.len() > self.max_ids || self.text_bytes > MAX_TEXT_BYTES {
            let Some(oldest) = self.oldest_first.pop_front() else { break };
            self.text_bytes -= oldest.len();
            self.ids.remove(&oldest);
        }
        true
    }

    #[cfg(test)]
    fn text_bytes(&self) -> usize {
        self.text_bytes
    }
}

/// Ids are of any length; together they stay within this, which is room for seven times the usual UUIDs.
const MAX_TEXT_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests;
