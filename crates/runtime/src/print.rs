//! Standard output and standard error: the only place that writes to them.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::args::Format;
use crate::view::View;

/// Why something cannot be printed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrintError {
    /// Standard output is closed or full.
    #[error("cannot write to standard output")]
    Write(#[source] io::Error),
    /// It has no form in JSON; a fault of this program.
    #[error("the state cannot be shown as JSON")]
    Json(#[source] serde_json::Error),
    /// It has no form in YAML; a fault of this program.
    #[error("the state cannot be shown as YAML")]
    Yaml(#[source] serde_saphyr::ser::Error),
}

/// Prints a view in a form.
pub(crate) fn view(view: &View, format: Format) -> Result<(), PrintError> {
    let text = match format {
        Format::Table => view.table(),
        Format::Json => return json(view),
        Format::Yaml => yaml_text(view)?,
    };
    out(&text)
}

/// Prints a view as JSON, bit by bit: that of a large fleet is long.
fn json(view: &View) -> Result<(), PrintError> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    match serde_json::to_writer_pretty(&mut stdout, view) {
        Err(error) if error.io_error_kind() == Some(io::ErrorKind::BrokenPipe) => return Ok(()),
        result => result.map_err(PrintError::Json)?,
    }
    written(stdout.write_all(b"\n").and_then(|()| stdout.flush()))
}

/// A document as JSON over several lines.
pub(crate) fn json_text(document: &impl Serialize) -> Result<String, PrintError> {
    let text = serde_json::to_string_pretty(document);
    text.map(|text| text + "\n").map_err(PrintError::Json)
}

/// A document as YAML.
pub(crate) fn yaml_text(document: &impl Serialize) -> Result<String, PrintError> {
    serde_saphyr::to_string(document).map_err(PrintError::Yaml)
}

/// Writes to standard output.
pub(crate) fn out(text: &str) -> Result<(), PrintError> {
    let mut stdout = io::stdout().lock();
    let result = stdout.write_all(text.as_bytes());
    written(result.and_then(|()| stdout.flush()))
}

/// A reader that has gone away (`| head`) is no failure.
fn written(result: io::Result<()>) -> Result<(), PrintError> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(PrintError::Write),
    }
}

/// Tells the user on standard output what was done.
pub(crate) fn say(message: &str) {
    // Where standard output is closed there is nobody to tell.
    let _nobody = writeln!(io::stdout().lock(), "{message}");
}

/// Tells the user on standard error what is wrong.
pub(crate) fn complain(message: &str) {
    // Where standard error is closed there is nobody to tell.
    let _nobody = writeln!(io::stderr().lock(), "tombolo: {message}");
}
