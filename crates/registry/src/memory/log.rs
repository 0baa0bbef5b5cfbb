//! The last changes of the store, so that a reader goes on from where it is.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::registry::KeyValue;

/// How much the log keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Changes at most.
    pub len_max: usize,
    /// Bytes of keys and values at most.
    pub bytes_max: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            // A clusterset of 200 clusters with 1,000 records each appears at once without that
            // its readers list twice.
            len_max: 262_144,
            // Most values are those of the store itself, so that this much is hardly ever used.
            bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// One change of a key.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) key: Arc<[u8]>,
    /// `None`: deleted.
    pub(super) value: Option<Arc<KeyValue>>,
    pub(super) revision: u64,
}

impl Change {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, |kv| kv.value.len())
    }
}

/// The log. Changes have consecutive numbers; a cursor is the number of the next one to read.
#[derive(Debug)]
pub(super) struct Log {
    limits: LogLimits,
    /// The number of the first change that is kept.
    first: u64,
    changes: VecDeque<Change>,
    bytes: usize,
}

// === impl Log ===

impl Log {
    pub(super) const fn new(limits: LogLimits) -> Self {
        Self {
            limits,
            first: 0,
            changes: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) fn push(&mut self, change: Change) {
        self.bytes += change.bytes();
        self.changes.push_back(change);
        while self.changes.len() > self.limits.len_max || self.bytes > self.limits.bytes_max {
            self.drop_first();
        }
    }

    /// The cursor of one who has read everything.
    pub(super) fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// Up to `limit` changes from `cursor` on; `None` where the first of them is no longer kept.
    pub(super) fn read(&self, cursor: u64, limit: usize) -> Option<Vec<Change>> {
        let skip = usize::try_from(cursor.checked_sub(self.first)?).ok()?;
        Some(
            self.changes
                .iter()
                .skip(skip)
                .take(limit)
                .cloned()
                .collect(),
        )
    }

    pub(super) fn compact(&mut self) {
        while !self.changes.is_empty() {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(change) = self.changes.pop_front() {
            self.bytes -= change.bytes();
            self.first += 1;
        }
    }
}
