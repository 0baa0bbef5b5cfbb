//! The log: to standard error, as text or JSON.

use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::EnvFilter;

use crate::controller::settings::{AdminArgs, LogFormat};
use crate::input::Refusal;

/// Begins to log.
///
/// # Errors
/// When the level cannot be understood.
pub(crate) fn init(args: &AdminArgs) -> Result<(), Refusal> {
    // What the client says of failed calls is said by whoever called, who knows what it means.
    let client = ",kube_client=off";
    let quiet = if args.log.contains("kube_client") {
        ""
    } else {
        client
    };
    let filter = EnvFilter::try_new(format!("{}{quiet}", args.log))
        .map_err(|error| Refusal::usage(vec![format!("--log {}: {error}", args.log)]))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr);
    let result = match args.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    result.map_err(|error| Refusal::failed(format!("cannot log: {error}")))
}
