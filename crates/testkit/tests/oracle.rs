//! One engine under random steps, held to the oracle.

use proptest::bool::weighted;
use proptest::prelude::*;
use tombolo_model::names::DerivedNaming;
use tombolo_testkit::ops::{self, Op};
use tombolo_testkit::play::{Play, config, slice_mode};
use tombolo_testkit::tries;

proptest! {
    #![proptest_config(tries(400))]

    /// Whatever is lost, doubled, late or refused: after a full listing, everything is as it must
    /// be, and before it nothing was done that must never be.
    #[test]
    fn a_full_listing_repairs_everything(
        families in ops::families(),
        mode in 0..4_usize,
        (by_suffix, by_mark, has_pod_cidr) in (weighted(0.2), weighted(0.1), weighted(0.2)),
        ops in ops::sequence(60),
    ) {
        let mut config = config();
        config.slices = slice_mode(mode);
        config.global_by_default = !by_mark;
        if by_suffix {
            config.naming = DerivedNaming::Suffix;
        }
        if has_pod_cidr {
            // Some addresses that clusters of the pool have.
            config.pod_cidrs = vec!["10.9.0.0/29".parse().unwrap(), "fd00:9::/125".parse().unwrap()];
            config.shared_cidrs = vec!["10.9.0.2/31".parse().unwrap()];
        }
        let mut play = Play::new(config, families);
        for op in &ops {
            play.step(op);
        }
        play.step(&Op::Settle);
    }

    /// The same where events of one object overtake each other.
    #[test]
    fn no_order_of_events_matters(families in ops::families(), ops in ops::sequence(60)) {
        let mut play = Play::new(config(), families);
        play.site.is_orderly = false;
        for op in &ops {
            play.step(op);
        }
        play.step(&Op::Settle);
    }
}
