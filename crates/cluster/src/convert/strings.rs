//! Shared strings: a million endpoints repeat a few zones, nodes and port names.

use std::sync::Arc;

use crate::known::Known;

/// Below this size, looking for strings that nobody uses any more is not worth it.
const SWEEP_AT_MIN: usize = 4_096;

/// Strings that objects share.
#[derive(Debug)]
pub struct Strings(Known<str>);

impl Default for Strings {
    fn default() -> Self {
        Self(Known::new(SWEEP_AT_MIN))
    }
}

impl Strings {
    /// The one copy of this text.
    pub fn share(&mut self, text: &str) -> Arc<str> {
        self.0.share(text, || text.into())
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
        assert!(strings.0.len() <= SWEEP_AT_MIN);
        assert!(Arc::ptr_eq(&zone, &strings.share("zone-a")));
    }
}
