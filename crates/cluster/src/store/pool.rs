//! Maps that objects of several clusters of a process hold in common, each kept once: of all that
//! an import brings, the labels are the same in every cluster.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_model::record::Labels;

/// So many maps may be known before those that nobody uses are looked for.
const SWEEP_AT_MIN: usize = 1_024;

/// Labels and annotations, each map once. Clones are the same pool.
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    maps: HashSet<Arc<Labels>>,
    sweep_at: usize,
}

impl Pool {
    /// The one copy of this map.
    pub(super) fn share(&self, map: &Arc<Labels>) -> Arc<Labels> {
        let mut known = self.0.lock();
        if let Some(known) = known.maps.get(map) {
            return Arc::clone(known);
        }
        if known.maps.len() >= known.sweep_at.max(SWEEP_AT_MIN) {
            known.maps.retain(|map| Arc::strong_count(map) > 1);
            known.sweep_at = 2 * known.maps.len();
        }
        known.maps.insert(Arc::clone(map));
        Arc::clone(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(number: usize) -> Arc<Labels> {
        Arc::new([("app".into(), number.to_string().into())].into())
    }

    #[test]
    fn equal_maps_are_one_and_unused_ones_go() {
        let pool = Pool::default();
        let first = pool.share(&map(0));
        let same = pool.clone();
        assert!(Arc::ptr_eq(&first, &same.share(&map(0))));
        for number in 1..10 * SWEEP_AT_MIN {
            pool.share(&map(number));
        }
        assert!(pool.0.lock().maps.len() <= SWEEP_AT_MIN);
        assert!(Arc::ptr_eq(&first, &pool.share(&map(0))));
    }
}
