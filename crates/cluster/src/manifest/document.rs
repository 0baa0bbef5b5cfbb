//! The documents of a file as JSON values.
//!
//! A YAML file is cut at its document markers first, so that a document that does not parse leaves
//! the others alone. That is safe: a line that begins with `---` ends a document wherever it stands
//! (YAML 1.2.2, rule c-forbidden).

use serde_json::Value;

use super::{Place, words};

/// Aliases may repeat this many nodes of a document: room for every honest use of anchors, an end
/// to those that multiply.
const ALIAS_NODES_MAX: usize = 100_000;

/// A document, or why it cannot be read.
pub(super) struct Document {
    /// Where it begins, or where it is wrong.
    pub(super) place: Place,
    /// Its content.
    pub(super) value: Result<Value, String>,
}

/// All documents of a YAML file that are not empty.
pub(super) fn yaml(text: &str) -> Vec<Document> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    for (first_line, part) in split(text) {
        let number = documents.len() + 1;
        let mut place = Place {
            document: number,
            line: first_line + leading_lines(part),
        };
        let value = match serde_saphyr::from_str_with_options::<Value>(part, options(part)) {
            Ok(Value::Null) => continue,
            Ok(value) => Ok(value),
            Err(error) => {
                if let Some(location) = error.location() {
                    let line = usize::try_from(location.line()).unwrap_or(1);
                    place.line = first_line + line.saturating_sub(1);
                }
                Err(format!("YAML: {}", one_line(&error)))
            }
        };
        documents.push(Document { place, value });
    }
    documents
}

/// The text of an error without the place, which [`Place`] tells better as it knows the file.
fn one_line(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    let cut = first.find(" at line ").unwrap_or(first.len());
    words::yaml(&first[..cut])
}

/// The parts between document markers with the number of their first line, those without content
/// left out. Directives and comments before a marker belong to the document that it begins.
fn split(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut start_line) = (0, 1);
    let (mut has_content, mut has_marker) = (false, false);
    let mut offset = 0;
    for (i, line) in text.split_inclusive('\n').enumerate() {
        let end = offset + line.len();
        if let Some(marker) = Marker::of(line) {
            if has_content {
                parts.push((start_line, &text[start..offset]));
            }
            if has_content || has_marker {
                (start, start_line) = (offset, i + 1);
            }
            has_content = marker == Marker::BeginWithContent;
            has_marker = marker != Marker::End;
            if marker == Marker::End {
                (start, start_line) = (end, i + 2);
            }
        } else {
            let is_directive = !has_content && line.starts_with('%');
            has_content |= !is_directive && !is_blank(line);
        }
        offset = end;
    }
    if has_content {
        parts.push((start_line, &text[start..]));
    }
    parts
}

/// A line that separates documents.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marker {
    /// `---`
    Begin,
    /// `--- {…}`
    BeginWithContent,
    /// `...`
    End,
}

impl Marker {
    fn of(line: &str) -> Option<Self> {
        let is_end = line.starts_with("...");
        let rest = line.strip_prefix(if is_end { "..." } else { "---" })?;
        if rest.starts_with(|c: char| !c.is_ascii_whitespace()) {
            return None;
        }
        Some(match (is_end, is_blank(rest)) {
            (true, _) => Self::End,
            (false, true) => Self::Begin,
            (false, false) => Self::BeginWithContent,
        })
    }
}

/// Whether a line says nothing.
fn is_blank(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// How many lines go by before a document's content.
fn leading_lines(part: &str) -> usize {
    part.lines()
        .take_while(|line| {
            is_blank(line) || line.starts_with('%') || Marker::of(line) == Some(Marker::Begin)
        })
        .count()
}

fn options(text: &str) -> serde_saphyr::Options {
    // Nodes that stand in the text are bounded by its length, which is bounded; it is aliases that
    // could make more of them.
    let nodes_max = 1_000 + 2 * text.len();
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: nodes_max,
            max_nodes: nodes_max,
            // A small file may repeat a few labels often; a bomb meets the limit of replays first.
            max_total_scalar_bytes: (1 << 20) + 2 * text.len(),
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: ALIAS_NODES_MAX,
        },
        emit_comments: false,
        with_snippet: false,
    }
}

/// All documents of a JSON file, which may hold several, one after the other. After one that does
/// not parse nothing can be told of the rest.
pub(super) fn json(text: &str) -> Vec<Document> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let (mut line, mut counted) = (1, 0);
    loop {
        let begin = stream.byte_offset();
        let begin = begin + text[begin..].len() - text[begin..].trim_start().len();
        line += text[counted..begin].matches('\n').count();
        counted = begin;
        let document = documents.len() + 1;
        match stream.next() {
            None => return documents,
            Some(Ok(Value::Null)) => {}
            Some(Ok(value)) => documents.push(Document {
                place: Place { document, line },
                value: Ok(value),
            }),
            Some(Err(error)) => {
                let text = error.to_string();
                let cut = text.find(" at line ").unwrap_or(text.len());
                documents.push(Document {
                    place: Place {
                        document,
                        line: error.line().max(1),
                    },
                    value: Err(format!("JSON: {}", &text[..cut])),
                });
                return documents;
            }
        }
    }
}
