//! A testbed and who may use it when.

use std::sync::OnceLock;

use anyhow::{Result, bail};
use parking_lot::{Condvar, Mutex, RwLock};

/// Something that is started for the first test that needs it.
pub(crate) struct Lane<T> {
    start: fn() -> Result<T>,
    started: OnceLock<Result<RwLock<T>, String>>,
    /// How many more tests may run beside each other.
    free: Mutex<usize>,
    freed: Condvar,
}

impl<T> Lane<T> {
    pub(crate) fn new(beside_max: usize, start: fn() -> Result<T>) -> Self {
        Self {
            start,
            started: OnceLock::new(),
            free: Mutex::new(beside_max),
            freed: Condvar::new(),
        }
    }

    fn started(&self) -> Result<&RwLock<T>> {
        /// One after another: ten API servers that start at once on two cores take minutes.
        static STARTING: Mutex<()> = Mutex::new(());
        let start = || {
            let _turn = STARTING.lock();
            let started = (self.start)().map_err(|error| format!("{error:#}"));
            started.map(RwLock::new)
        };
        match self.started.get_or_init(start) {
            Ok(started) => Ok(started),
            Err(error) => bail!("the testbed did not start: {error}"),
        }
    }

    /// Runs a test beside some others.
    pub(crate) fn beside(&self, test: impl FnOnce(&T) -> Result<()>) -> Result<()> {
        {
            let mut free = self.free.lock();
            while *free == 0 {
                self.freed.wait(&mut free);
            }
            *free -= 1;
        }
        let result = self.started().and_then(|started| test(&started.read()));
        *self.free.lock() += 1;
        self.freed.notify_one();
        result
    }

    /// Runs a test while no other one runs.
    pub(crate) fn alone(&self, test: impl FnOnce(&mut T) -> Result<()>) -> Result<()> {
        test(&mut self.started()?.write())
    }
}
