//! Waiting: the only place of this crate that reads a clock or sleeps.
//!
//! The testbed drives other processes with plain threads, so it may block; callers in an async
//! test use `tokio::task::spawn_blocking` or a multi-threaded runtime.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::cancel::Cancel;

/// How often a condition is looked at while waiting for it.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A stopwatch, for reports of how long something took.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(tokio::time::Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self(tokio::time::Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "plain threads: there is no runtime to block"
)]
pub(crate) fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Calls `condition` until it gives a value, for at most `timeout`.
///
/// `Ok(None)` means "not yet"; an error ends the wait at once.
///
/// # Errors
/// When the time is over (the message says that `what` did not come), when the testbed was
/// cancelled, or when `condition` fails.
pub fn wait_for<T>(
    what: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let watch = Stopwatch::start();
    loop {
        Cancel::check()?;
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if watch.elapsed() >= timeout {
            bail!("{what}: not within {} s", timeout.as_secs_f32());
        }
        sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_until_there_is_a_value() {
        let mut calls = 0;
        let value = wait_for("third call", Duration::from_secs(5), || {
            calls += 1;
            Ok((calls == 3).then_some(calls))
        });
        assert_eq!(value.unwrap(), 3);
    }

    #[test]
    fn says_what_did_not_come() {
        let error = wait_for::<()>("the moon", Duration::ZERO, || Ok(None)).unwrap_err();
        assert_eq!(error.to_string(), "the moon: not within 0 s");
    }
}
