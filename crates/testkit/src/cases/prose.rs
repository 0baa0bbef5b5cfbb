//! What a case says in words: each text has a check of its own here, found by case, field and
//! exact text, so that a text that is added or changed fails until somebody has read it.
//!
//! Not in here: `why`, which says where the other fields come from, though some whys ask for
//! something that no field has; and `do`, `title`, `requires`, which ask for nothing.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::Case;
use super::dns::Reply;
use super::expect::Expect;
use super::world::World;
use crate::command::Finished;

mod checks;
mod names;
mod table;

use table::TABLE;

/// Asks for a name and a type; answered by cluster.
pub type Ask<'a> = dyn Fn(&str, &str) -> Result<BTreeMap<String, Reply>> + 'a;

/// What a prose check can look at: a run of the product over a stage of a case.
pub struct Seen<'a> {
    /// The case.
    pub case: &'a Case,
    /// The stage.
    pub stage: usize,
    /// What the run wrote.
    pub world: &'a World,
    /// The run.
    pub run: &'a Finished,
    /// The run over all clusters, where some of them must be refused.
    pub refusal: Option<&'a Finished>,
    /// Runs the product with other arguments: sources and what `--out` is to hold.
    pub launch: &'a dyn Fn(&[&Path], &Path) -> Result<Finished>,
    /// Asks every cluster's DNS server for a name and a type.
    pub ask: &'a Ask<'a>,
    /// An empty directory.
    pub scratch: &'a Path,
}

/// Says what is wrong.
type Check = fn(&Seen<'_>) -> Vec<String>;

/// Runs the checks of everything that the stage of a case says in words. A text without one is
/// a problem too.
pub fn check_prose(seen: &Seen<'_>) -> Vec<String> {
    let id = seen.case.id();
    let mut problems = Vec::new();
    let mut texts = said(seen.case.said(seen.stage));
    if seen.stage == 0 && find(id, "why", &seen.case.file.why).is_some() {
        texts.push(("why", &seen.case.file.why));
    }
    for (field, text) in texts {
        match find(id, field, text) {
            Some(check) => {
                let found = check(seen).into_iter();
                problems.extend(found.map(|problem| format!("{field}: {text}: {problem}")));
            }
            None => problems.push(format!("nobody checks {field}: {text:?}")),
        }
    }
    problems
}

/// The checks whose text no case has any more.
pub fn unmatched_prose(cases: &[Case]) -> Vec<String> {
    let has = |id: &str, field: &str, text: &str| {
        cases.iter().filter(|case| case.id() == id).any(|case| {
            let stages = (0..case.stages()).flat_map(|stage| said(case.said(stage)));
            let why = ("why", case.file.why.as_str());
            stages.chain([why]).any(|one| one == (field, text))
        })
    };
    let rows = TABLE
        .iter()
        .filter(|(id, field, text, _)| !has(id, field, text));
    rows.map(|(id, field, text, _)| format!("{id} {field}: {text}"))
        .collect()
}

fn find(id: &str, field: &str, text: &str) -> Option<Check> {
    let row = TABLE
        .iter()
        .find(|row| (row.0, row.1, row.2) == (id, field, text));
    row.map(|row| row.3)
}

/// Every text of a stage, with the name of its field.
fn said(expect: &Expect) -> Vec<(&'static str, &str)> {
    let mut all = Vec::new();
    let lists = [
        ("untouched", &expect.untouched),
        ("forbidden", &expect.forbidden),
        ("alsoCheck", &expect.also_check),
    ];
    for (field, texts) in lists {
        all.extend(texts.iter().map(|text| (field, text.as_str())));
    }
    for (field, text) in [("either", &expect.either), ("settles", &expect.settles)] {
        all.extend(text.iter().map(|text| (field, text.as_str())));
    }
    let notes = expect
        .services
        .iter()
        .filter_map(|service| service.slices_note.as_deref());
    all.extend(notes.map(|text| ("slicesNote", text)));
    all.extend(
        expect
            .gone
            .iter()
            .map(|gone| ("gone.what", gone.what.as_str())),
    );
    all.extend(
        expect
            .refused
            .iter()
            .map(|refused| ("refused.error", refused.error.as_str())),
    );
    if let Some(blocked) = &expect.blocked {
        all.push(("blocked.what", &blocked.what));
        all.extend(
            blocked
                .dns_rule
                .iter()
                .map(|rule| ("blocked.dnsRule", rule.as_str())),
        );
    }
    all
}
