//! The log: to standard error, as text or JSON. What is logged can be changed while it runs.

use std::fmt;
use std::io::{IsTerminal as _, stderr};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;

use crate::controller::settings::{AdminArgs, LogFormat};
use crate::input::Refusal;

/// Puts another filter in place.
type Reload = dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync;

/// What is logged now, and how to change it.
#[derive(Clone)]
pub(crate) struct Level {
    text: Arc<Mutex<String>>,
    reload: Arc<Reload>,
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Level").field(&self.get()).finish()
    }
}

impl Level {
    pub(crate) fn get(&self) -> String {
        self.text.lock().clone()
    }

    /// Changes it.
    ///
    /// # Errors
    /// When it cannot be understood: then it stays as it was.
    pub(crate) fn set(&self, text: &str) -> Result<(), String> {
        (self.reload)(filter(text)?)?;
        text.clone_into(&mut self.text.lock());
        Ok(())
    }
}

#[cfg(test)]
impl Level {
    /// The level of a log that nobody writes.
    pub(crate) fn of_nothing(text: &str) -> Self {
        Self {
            text: Arc::new(Mutex::new(text.to_owned())),
            reload: Arc::new(|_| Ok(())),
        }
    }
}

/// Begins to log.
///
/// # Errors
/// When the level cannot be understood.
pub(crate) fn init(args: &AdminArgs) -> Result<Level, Refusal> {
    let filter = filter(&args.log)
        .map_err(|error| Refusal::usage(vec![format!("--log {}: {error}", args.log)]))?;
    let builder = tracing_subscriber::fmt()
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr);
    let (reload, result): (Arc<Reload>, _) = match args.log_format {
        LogFormat::Text => {
            let builder = builder.with_env_filter(filter).with_filter_reloading();
            let handle = builder.reload_handle();
            let reload = move |filter| handle.reload(filter).map_err(|e| e.to_string());
            (Arc::new(reload), builder.try_init())
        }
        LogFormat::Json => {
            let builder = builder.json().with_env_filter(filter);
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            let reload = move |filter| handle.reload(filter).map_err(|e| e.to_string());
            (Arc::new(reload), builder.try_init())
        }
    };
    result.map_err(|error| Refusal::failed(format!("cannot log: {error}")))?;
    let text = Arc::new(Mutex::new(args.log.clone()));
    Ok(Level { text, reload })
}

fn filter(text: &str) -> Result<EnvFilter, String> {
    // What the client says of failed calls is said by whoever called, who knows what it means.
    let quiet = if text.contains("kube_client") {
        ""
    } else {
        ",kube_client=off"
    };
    EnvFilter::try_new(format!("{text}{quiet}")).map_err(|error| error.to_string())
}
