//! A registry that was set back (DESIGN §2.2, regress): what stands there of sessions may be a
//! backup's, and what that says was published is not what was published since.
//!
//! A writer that lives notices, and opens a new session: that one is believed at once. One that is
//! dead keeps its lease no longer. So the sessions that are still there some time later are right,
//! as are those of a region that was copied anew and was never set back itself.

use super::{Fleet, Partition};

impl Fleet {
    /// At the end of a listing: under the sessions that it showed no absence is trusted, if the
    /// registry was set back before.
    pub(super) fn doubt(&mut self) {
        if !std::mem::take(&mut self.is_regressed) {
            return;
        }
        for partition in self.partitions() {
            let session = partition.session.as_ref().filter(|held| held.present);
            partition.doubted = session.map(|held| held.value.epoch);
        }
    }

    /// Every session that is there is believed.
    pub(super) fn believe(&mut self) {
        for partition in self.partitions() {
            partition.doubted = None;
        }
        self.touched.extend(self.clusters.keys().cloned());
    }

    fn partitions(&mut self) -> impl Iterator<Item = &mut Partition> {
        let regions = self.clusters.values_mut();
        regions.flat_map(|regions| regions.values_mut())
    }
}
