//! Clocks. Leadership is measured by one that goes on while the machine is suspended, and never
//! jumps when somebody sets the time.

use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// What time it is.
pub trait Clock: Send + Sync {
    /// Time since some fixed moment, suspended time included.
    fn since_boot(&self) -> Duration;

    /// The time of day.
    fn wall(&self) -> Timestamp;
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn since_boot(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        Duration::new(
            u64::try_from(time.tv_sec).unwrap_or_default(),
            u32::try_from(time.tv_nsec).unwrap_or_default(),
        )
    }

    #[expect(clippy::disallowed_methods, reason = "the place where time comes in")]
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}
