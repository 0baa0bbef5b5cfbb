//! What the testbed tells while it works: one line per step, to whoever wants to see it.

use std::{fmt, sync::Arc};

/// Receives one line for each step.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(&str) + Send + Sync>);

impl Progress {
    /// Calls `sink` for each line.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    /// Tells nobody.
    pub fn silent() -> Self {
        Self::new(|_| ())
    }

    /// Writes to standard error.
    #[expect(
        clippy::print_stderr,
        reason = "progress for people, beside results on stdout"
    )]
    pub fn stderr() -> Self {
        Self::new(|line| eprintln!("{line}"))
    }

    /// Tells one line.
    pub fn say(&self, line: impl AsRef<str>) {
        (self.0)(line.as_ref());
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}
