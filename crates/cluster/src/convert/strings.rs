//! Shared strings: a million endpoints repeat a few zones, nodes and port names.

use std::collections::HashSet;
use std::sync::Arc;

/// Below this size, looking for strings that nobody uses any more is not worth it.
const SWEEP_AT_MIN: usize = 4_096;

/// Strings that objects share. What no object uses any more is dropped as the set grows, so that it
/// stays within a constant factor of what is in use.
#[derive(Debug)]
pub struct Strings {
    known: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Default for Strings {
    fn default() -> Self {
        Self {
            known: HashSet::new(),
            sweep_at: SWEEP_AT_MIN,
        }
    }
}

impl Strings {
    /// The one copy of this text.
    pub fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = SWEEP_AT_MIN.max(2 * self.known.len());
        }
        let new: Arc<str> = text.into();
        self.known.insert(Arc::clone(&new));
        new
    }

    /// The same for what may be absent; empty text counts as absent.
    pub(crate) fn share_some(&mut self, text: Option<&str>) -> Option<Arc<str>> {
        text.filter(|text| !text.is_empty())
            .map(|text| self.share(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_are_one_and_unused_ones_go() {
        let mut strings = Strings::default();
        let zone = strings.share("zone-a");
        assert!(Arc::ptr_eq(&zone, &strings.share("zone-a")));
        for i in 0..10 * SWEEP_AT_MIN {
            strings.share(&format!("pod-{i}"));
        }
        assert!(strings.known.len() <= SWEEP_AT_MIN);
        assert!(Arc::ptr_eq(&zone, &strings.share("zone-a")));
    }
}
