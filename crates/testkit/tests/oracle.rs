//! One engine under random steps, held to the oracle.

use proptest::prelude::*;
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
        ops in ops::sequence(60),
    ) {
        let mut config = config();
        config.slices = slice_mode(mode);
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
