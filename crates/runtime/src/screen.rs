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
    Lines(Told),
}

/// What was said last, by what it is about.
type Told = BTreeMap<String, Line>;

/// What there is to say of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    text: String,
    /// Tells two states apart that read the same.
    print: u64,
}

impl From<String> for Line {
    fn from(text: String) -> Self {
        Self { text, print: 0 }
    }
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
            Self::Table => print::out(&drawn(view, terminal_rows())),
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

/// The table over what was there, as much of it as fits in so many rows.
fn drawn(view: &View, rows_max: usize) -> String {
    let errors = view.errors.iter().map(|error| format!("ERROR {error}\n"));
    let text: String = std::iter::once(view.table()).chain(errors).collect();
    let lines: Vec<&str> = text.lines().collect();
    // The last row is for the closing words.
    let shown = lines.len().min(rows_max.saturating_sub(1));
    let mut drawn = format!("{NO_WRAP}{HOME}");
    for line in lines.iter().take(shown) {
        drawn.extend([line, END_LINE, "\r\n"]);
    }
    let closing = match lines.len() - shown {
        0 => "Ctrl-C ends it.".to_owned(),
        more => format!("{more} more lines do not fit. Ctrl-C ends it."),
    };
    drawn.extend([&closing, END_LINE, END_SCREEN]);
    drawn
}

/// The rows of the terminal; where it does not say, those that every terminal has.
fn terminal_rows() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    size.map(|size| usize::from(size.ws_row))
        .filter(|rows| *rows > 0)
        .unwrap_or(24)
}

/// A line for each thing that is new, other than it was, or gone.
fn news(told: &Told, lines: &Told) -> String {
    let is_shown = |key: &&String| !key.starts_with(ERROR);
    let gone = told
        .keys()
        .filter(is_shown)
        .filter(|key| !lines.contains_key(*key));
    let gone = gone.map(|key| format!("{key} gone\n"));
    let changed = lines.iter().filter(|(key, _)| is_shown(key));
    let changed = changed.filter(|(key, line)| told.get(*key) != Some(line));
    let changed = changed.map(|(key, line)| format!("{key} {}\n", line.text));
    gone.chain(changed).collect()
}

impl View {
    /// Everything as lines: what each is about, and what there is to say of it.
    fn lines(&self) -> Told {
        let mut lines = Told::new();
        for cluster in &self.clusters {
            if let Some(dns) = cluster.dns {
                lines.insert(format!("{} dns", cluster.name), dns.to_string().into());
            }
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
                lines.insert(key, conditions.join(" ").into());
            }
            for import in &cluster.imports {
                let key = format!(
                    "{} import {}/{}",
                    cluster.name, import.namespace, import.name
                );
                let cells: Vec<String> = import.cells().into_iter().skip(1).collect();
                let (text, print) = (cells.join("  "), import.endpoints_print);
                lines.insert(key, Line { text, print });
            }
        }
        for conflict in &self.conflicts {
            let key = format!(
                "conflict {}/{} {}",
                conflict.namespace, conflict.name, conflict.reason
            );
            lines.insert(key, conflict.message.clone().into());
        }
        for warning in &self.warnings {
            let key = format!("{} warning {}", warning.cluster, warning.object);
            lines.insert(
                key,
                format!("{}: {}", warning.reason, warning.message).into(),
            );
        }
        for error in &self.errors {
            lines.insert(format!("{ERROR}{error}"), String::new().into());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::ClusterView;

    fn lines(pairs: &[(&str, &str)]) -> Told {
        pairs
            .iter()
            .map(|&(k, v)| (k.to_owned(), v.to_owned().into()))
            .collect()
    }

    #[test]
    fn a_table_that_does_not_fit_says_how_much_is_missing() {
        let cluster = |name: &str| ClusterView {
            name: name.to_owned(),
            families: vec!["IPv4"],
            dns: None,
            exports: Vec::new(),
            imports: Vec::new(),
        };
        let view = View {
            clusters: vec![cluster("oslo"), cluster("rome")],
            conflicts: Vec::new(),
            warnings: Vec::new(),
            queries: Vec::new(),
            errors: Vec::new(),
        };
        let plain = |rows_max| {
            let text = drawn(&view, rows_max);
            [NO_WRAP, HOME, END_LINE, END_SCREEN]
                .iter()
                .fold(text, |t, code| t.replace(code, ""))
        };
        assert_eq!(
            plain(2),
            "CLUSTER oslo (IPv4)\r\n3 more lines do not fit. Ctrl-C ends it."
        );
        assert!(plain(24).ends_with("CLUSTER rome (IPv4)\r\n\r\nCtrl-C ends it."));
    }

    #[test]
    fn only_news_are_told() {
        let before = lines(&[("a", "1"), ("b", "1"), ("c", "1"), ("error x", "")]);
        let after = lines(&[("a", "1"), ("b", "2"), ("d", "1")]);
        assert_eq!(news(&before, &after), "c gone\nb 2\nd 1\n");
    }

    #[test]
    fn endpoints_that_change_are_news_though_their_number_is_the_same() {
        let import = |print| Line {
            text: "2".to_owned(),
            print,
        };
        let before = Told::from([("a".to_owned(), import(1)), ("b".to_owned(), import(1))]);
        let after = Told::from([("a".to_owned(), import(1)), ("b".to_owned(), import(2))]);
        assert_eq!(news(&before, &after), "b 2\n");
    }
}
