//! The border at which clocks are read; everything behind it takes the time as an argument.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// How far the time of day moves before that is news.
const NEWS: SignedDuration = SignedDuration::from_secs(1);

/// The time of day. It may jump: somebody sets the clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the clock"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// A time that goes on evenly, and not while the machine is suspended. It begins as the time of
/// day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steady {
    began: Timestamp,
    since: Instant,
    /// How far the time of day was ahead when that was last told.
    ahead: SignedDuration,
}

impl Steady {
    /// One that begins at this time of day.
    pub(crate) fn new(began: Timestamp) -> Self {
        Self {
            began,
            since: Instant::now(),
            ahead: SignedDuration::ZERO,
        }
    }

    /// The time now.
    pub(crate) fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.since.elapsed()).unwrap_or(SignedDuration::MAX);
        self.began.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// How long it is until then.
    pub(crate) fn until(&self, due: Timestamp) -> Duration {
        let wait = due.duration_since(self.now());
        Duration::try_from(wait).unwrap_or(Duration::ZERO)
    }

    /// How far the time of day is ahead, if that is news.
    pub(crate) fn news(&mut self, time_of_day: Timestamp) -> Option<SignedDuration> {
        let ahead = time_of_day.duration_since(self.now());
        if (ahead - self.ahead).abs() < NEWS {
            return None;
        }
        self.ahead = ahead;
        Some(ahead)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_evenly_whatever_the_clock_says() {
        let began = Timestamp::UNIX_EPOCH;
        let after = |secs| began + SignedDuration::from_secs(secs);
        let mut steady = Steady::new(began);
        advance(Duration::from_secs(10)).await;
        assert_eq!(steady.now(), after(10));
        assert_eq!(steady.news(after(10)), None);
        let hour = SignedDuration::from_hours(1);
        assert_eq!(steady.news(after(10) + hour), Some(hour));
        assert_eq!(steady.now(), after(10));
        advance(Duration::from_secs(5)).await;
        assert_eq!(steady.now(), after(15));
        assert_eq!(steady.news(after(15) + hour), None);
        assert_eq!(steady.news(after(15) - hour), Some(-hour));
        assert_eq!(steady.now(), after(15));
    }
}
