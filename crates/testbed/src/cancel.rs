//! Ctrl-C: a flag that every wait of this process looks at, so that a start ends early and what
//! it had started so far is cleaned up on the way out.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Result, bail};

use crate::clock;

static CANCELLED: AtomicBool = AtomicBool::new(false);

/// The process-wide cancel flag.
#[derive(Debug, Clone, Copy)]
pub struct Cancel;

impl Cancel {
    /// Sets the flag: all waits of the testbed in this process fail from now on.
    pub fn set() {
        CANCELLED.store(true, Ordering::SeqCst);
    }

    /// Whether the flag is set.
    pub fn is_set() -> bool {
        CANCELLED.load(Ordering::SeqCst)
    }

    /// Waits until the flag is set.
    pub fn wait() {
        while !Self::is_set() {
            clock::sleep(Duration::from_millis(100));
        }
    }

    /// # Errors
    /// When the flag is set.
    pub fn check() -> Result<()> {
        if Self::is_set() {
            bail!("interrupted");
        }
        Ok(())
    }
}
