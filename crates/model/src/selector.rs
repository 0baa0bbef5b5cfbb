//! Label selectors, as `kubectl -l` reads them: which namespaces take part (BEHAVIOUR §7).

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use crate::record::Labels;

/// Requirements that must all hold; none selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(Arc<str>),
    Absent(Arc<str>),
    In(Arc<str>, BTreeSet<Arc<str>>),
    NotIn(Arc<str>, BTreeSet<Arc<str>>),
}

/// A selector that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no label selector: use key, !key, key=value, key!=value, key in (a,b), key notin (a,b)"
)]
pub struct SelectorError(String);

impl Selector {
    /// Whether these labels fulfil all requirements.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements
            .iter()
            .all(|requirement| match requirement {
                Requirement::Exists(key) => labels.contains_key(key),
                Requirement::Absent(key) => !labels.contains_key(key),
                Requirement::In(key, values) => labels.get(key).is_some_and(|v| values.contains(v)),
                Requirement::NotIn(key, values) => {
                    labels.get(key).is_none_or(|v| !values.contains(v))
                }
            })
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let requirements = split_top_level(text)
            .into_iter()
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| requirement(part).ok_or_else(|| SelectorError(text.to_owned())))
            .collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }
}

/// Splits at the commas that are not in parentheses.
fn split_top_level(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(part: &str) -> Option<Requirement> {
    if let Some(key) = part.strip_prefix('!') {
        return Some(Requirement::Absent(word(key)?));
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Some(Requirement::NotIn(word(key)?, [value_of(value)?].into()));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(Requirement::In(word(key)?, [value_of(value)?].into()));
    }
    let Some((head, list)) = part.split_once('(') else {
        return Some(Requirement::Exists(word(part)?));
    };
    let list = list.trim_end().strip_suffix(')')?;
    let values = list
        .split(',')
        .map(value_of)
        .collect::<Option<BTreeSet<_>>>()?;
    let (key, operator) = head.trim().split_once(char::is_whitespace)?;
    match operator.trim() {
        "in" => Some(Requirement::In(word(key)?, values)),
        "notin" => Some(Requirement::NotIn(word(key)?, values)),
        _ => None,
    }
}

/// A key.
fn word(text: &str) -> Option<Arc<str>> {
    value_of(text).filter(|text| !text.is_empty())
}

/// A value, which may be empty.
fn value_of(text: &str) -> Option<Arc<str>> {
    let text = text.trim();
    let good = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    text.chars().all(good).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|&(k, v)| (k.into(), v.into())).collect();
        selector.parse::<Selector>().unwrap().matches(&labels)
    }

    #[test]
    fn every_form_is_read_as_kubectl_reads_it() {
        let labels = [("team", "shop"), ("env", "prod")];
        for yes in [
            "",
            "team",
            "team=shop",
            "team==shop",
            "team!=web",
            "other!=x",
            "!other",
        ] {
            assert!(matches(yes, &labels), "{yes}");
        }
        for yes in [
            "env in (test, prod),team",
            "env notin (test)",
            "other notin (x)",
        ] {
            assert!(matches(yes, &labels), "{yes}");
        }
        for no in [
            "other",
            "team=web",
            "team!=shop",
            "!team",
            "env in (test)",
            "team,other",
        ] {
            assert!(!matches(no, &labels), "{no}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for bad in ["a b", "a=b c", "in (a)", "a in (b", "=x", "a like (b)"] {
            assert!(bad.parse::<Selector>().is_err(), "{bad}");
        }
    }
}
