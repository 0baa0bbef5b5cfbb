//! What `up` shows: a table that is drawn in place on a terminal, lines for what changed
//! elsewhere.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};

use crate::print::{self, PrintError};
use crate::view::View;

/// Where `up` shows its state.
#[derive(Debug)]
pub(crate) enum Screen {
    /// A terminal.
    Table,
    /// A pipe or a file, with what was said last of each thing.
    Lines(BTreeMap<String, String>),
}

/// Leaves wrapping off while the table is drawn, so that a long row stays one line.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";
const CLEAR: &str = "\x1b[2J";
const HOME: &str = "\x1b[H";
/// Clears from the cursor to the end of the line, and to the end of the screen.
const END_LINE: &str = "\x1b[K";
const END_SCREEN: &str = "\x1b[J";

impl Screen {
    /// The screen that standard output is.
    pub(crate) fn of_stdout() -> Self {
        if io::stdout().is_terminal() {
            Self::Table
        } else {
            Self::Lines(BTreeMap::new())
        }
    }

    /// Begins.
    pub(crate) fn open(&self) -> Result<(), PrintError> {
        match self {
            Self::Table => print::out(CLEAR),
            Self::Lines(_) => Ok(()),
        }
    }

    /// Shows a state.
    pub(crate) fn show(&mut self, view: &View) -> Result<(), PrintError> {
        match self {
            Self::Table => print::out(&drawn(view)),
            Self::Lines(told) => {
                let lines = view.lines();
                let text = news(told, &lines);
                for error in lines.keys().filter(|key| key.starts_with(ERROR)) {
                    if !told.contains_key(error) {
                        print::complain(error.trim_start_matches(ERROR));
                    }
                }
                *told = lines;
                print::out(&text)
            }
        }
    }

    /// Ends, so that the last state stays to be read.
    pub(crate) fn close(&self) -> Result<(), PrintError> {
        match self {
            Self::Table => print::out(WRAP),
            Self::Lines(_) => Ok(()),
        }
    }
}

/// Marks the keys of errors, which go to standard error.
const ERROR: &str = "error ";

/// The table over what was there.
fn drawn(view: &View) -> String {
    let errors = view.errors.iter().map(|error| format!("ERROR {error}\n"));
    let text: String = std::iter::once(view.table()).chain(errors).collect();
    let mut rows = String::with_capacity(2 * text.len());
    for line in text.lines() {
        rows.extend([line, END_LINE, "\r\n"]);
    }
    format!("{NO_WRAP}{HOME}{rows}Ctrl-C ends it.{END_LINE}{END_SCREEN}")
}

/// A line for each thing that is new, other than it was, or gone.
fn news(told: &BTreeMap<String, String>, lines: &BTreeMap<String, String>) -> String {
    let is_shown = |key: &&String| !key.starts_with(ERROR);
    let gone = told
        .keys()
        .filter(is_shown)
        .filter(|key| !lines.contains_key(*key));
    let gone = gone.map(|key| format!("{key} gone\n"));
    let changed = lines.iter().filter(|(key, _)| is_shown(key));
    let changed = changed.filter(|(key, text)| told.get(*key) != Some(text));
    let changed = changed.map(|(key, text)| format!("{key} {text}\n"));
    gone.chain(changed).collect()
}

impl View {
    /// Everything as lines: what each is about, and what there is to say of it.
    fn lines(&self) -> BTreeMap<String, String> {
        let mut lines = BTreeMap::new();
        for cluster in &self.clusters {
            for export in &cluster.exports {
                let key = format!(
                    "{} export {}/{}",
                    cluster.name, export.namespace, export.name
                );
                let conditions: Vec<String> = export
                    .conditions
                    .iter()
                    .map(|c| format!("{}={} ({})", c.kind, c.status, c.reason))
                    .collect();
                lines.insert(key, conditions.join(" "));
            }
            for import in &cluster.imports {
                let key = format!(
                    "{} import {}/{}",
                    cluster.name, import.namespace, import.name
                );
                lines.insert(
                    key,
                    import
                        .cells()
                        .into_iter()
                        .skip(1)
                        .collect::<Vec<_>>()
                        .join("  "),
                );
            }
        }
        for conflict in &self.conflicts {
            let key = format!(
                "conflict {}/{} {}",
                conflict.namespace, conflict.name, conflict.reason
            );
            lines.insert(key, conflict.message.clone());
        }
        for warning in &self.warnings {
            let key = format!("{} warning {}", warning.cluster, warning.object);
            lines.insert(key, format!("{}: {}", warning.reason, warning.message));
        }
        for error in &self.errors {
            lines.insert(format!("{ERROR}{error}"), String::new());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|&(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    }

    #[test]
    fn only_news_are_told() {
        let before = lines(&[("a", "1"), ("b", "1"), ("c", "1"), ("error x", "")]);
        let after = lines(&[("a", "1"), ("b", "2"), ("d", "1")]);
        assert_eq!(news(&before, &after), "c gone\nb 2\nd 1\n");
    }
}
