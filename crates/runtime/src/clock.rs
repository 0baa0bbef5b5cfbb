//! The border at which the clock is read; everything behind it takes the time as an argument.

use jiff::Timestamp;

/// The time now.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the clock"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
