//! Maps that objects of several clusters of a process hold in common, each kept once: of all that
//! an import brings, the labels are the same in every cluster.

use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_model::record::Labels;

use crate::known::Known;

/// So many maps may be known before those that nobody uses are looked for.
const SWEEP_AT_MIN: usize = 1_024;

/// Labels and annotations, each map once. Clones are the same pool.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Mutex<Known<Labels>>>);

impl Default for Pool {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Known::new(SWEEP_AT_MIN))))
    }
}

impl Pool {
    /// The one copy of this map.
    pub(super) fn share(&self, map: &Arc<Labels>) -> Arc<Labels> {
        self.0.lock().share(map, || Arc::clone(map))
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
        assert!(pool.0.lock().len() <= SWEEP_AT_MIN);
        assert!(Arc::ptr_eq(&first, &pool.share(&map(0))));
    }
}
