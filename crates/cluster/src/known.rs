//! Values that objects share, each kept once.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Values that are in use. What nobody uses any more is dropped as the set grows, so that it stays
/// within a constant factor of what is in use.
#[derive(Debug)]
pub(crate) struct Known<T: ?Sized> {
    values: HashSet<Arc<T>>,
    sweep_at: usize,
    /// Below this size, looking for values that nobody uses is not worth it.
    sweep_at_min: usize,
}

impl<T: ?Sized + Eq + Hash> Known<T> {
    pub(crate) fn new(sweep_at_min: usize) -> Self {
        Self {
            values: HashSet::new(),
            sweep_at: sweep_at_min,
            sweep_at_min,
        }
    }

    /// The one copy of this value; `new` makes it where there is none.
    pub(crate) fn share(&mut self, value: &T, new: impl FnOnce() -> Arc<T>) -> Arc<T> {
        if let Some(known) = self.values.get(value) {
            return Arc::clone(known);
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = self.sweep_at_min.max(2 * self.values.len());
        }
        let new = new();
        self.values.insert(Arc::clone(&new));
        new
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}
