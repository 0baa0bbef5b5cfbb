//! Questions of the command line: `--query 'NAME TYPE'`, and what each cluster answers.

use serde::Serialize;
use tombolo_dns::{Answer, Query, RecordType, WireName};

use crate::table::Table;

/// A question as it was typed, and what it asks.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    name: String,
    query: Query,
}

/// The answer of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct QueryView {
    pub(crate) cluster: String,
    /// As it was typed.
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) rcode: &'static str,
    /// Addresses as text, SRV as `port target`.
    pub(crate) answers: Vec<String>,
}

impl Question {
    /// Reads all of them, or says all that is wrong.
    pub(crate) fn parse_all(texts: &[String]) -> Result<Vec<Self>, Vec<String>> {
        let mut wrong = Vec::new();
        let mut questions = Vec::new();
        for text in texts {
            match Self::parse(text) {
                Ok(question) => questions.push(question),
                Err(message) => wrong.push(format!("--query {text:?}: {message}")),
            }
        }
        if wrong.is_empty() {
            Ok(questions)
        } else {
            Err(wrong)
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[name, kind] = words.as_slice() else {
            return Err(
                "it has the form 'NAME TYPE', as in 'web.shop.svc.clusterset.local A'".to_owned(),
            );
        };
        let wire = WireName::parse(name).map_err(|error| error.to_string())?;
        let kind: RecordType = kind.parse().map_err(|error| format!("{error}"))?;
        Ok(Self {
            name: name.to_owned(),
            query: Query::new(wire, kind),
        })
    }

    /// What is asked.
    pub(crate) const fn query(&self) -> &Query {
        &self.query
    }

    /// What a cluster answers to it, in an order of its own that is the same each time.
    pub(crate) fn view(&self, cluster: &impl ToString, answer: Answer) -> QueryView {
        let mut answers: Vec<_> = answer.answers.into_iter().map(|r| r.data).collect();
        answers.sort();
        QueryView {
            cluster: cluster.to_string(),
            name: self.name.clone(),
            kind: self.query.record_type.to_string(),
            rcode: answer.rcode.as_str(),
            answers: answers.iter().map(ToString::to_string).collect(),
        }
    }
}

/// All answers for people: a line for each record.
pub(crate) fn table(queries: &[QueryView]) -> String {
    let mut table = Table::new(["QUERY", "TYPE", "CLUSTER", "RCODE", "ANSWERS"]);
    for query in queries {
        let mut cells = [
            query.name.clone(),
            query.kind.clone(),
            query.cluster.clone(),
            query.rcode.to_owned(),
            "-".to_owned(),
        ];
        if query.answers.is_empty() {
            table.row(cells);
            continue;
        }
        for answer in &query.answers {
            cells[4].clone_from(answer);
            table.row(cells);
            cells = Default::default();
        }
    }
    if table.is_empty() {
        String::new()
    } else {
        table.show("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_questions_are_all_told() {
        let texts = ["", "a", "a b c", "a..b A", "a X1", " a\tsrv "].map(str::to_owned);
        let wrong = Question::parse_all(&texts).unwrap_err();
        assert_eq!(wrong.len(), 5, "{wrong:?}");
        let good = Question::parse_all(&texts[5..]).unwrap();
        assert_eq!(good[0].query.record_type, RecordType::SRV);
    }
}
