//! `tombolo registry check`: what should not be there, and what to do about it.

use std::collections::BTreeMap;

use clap::Args;
use futures::StreamExt as _;
use serde::Serialize;
use tombolo_model::names::Region;
use tombolo_model::record::{Origin, Record, RecordKey, Settings};
use tombolo_registry::event::{Event, State};
use tombolo_registry::key::KeyRange;
use tombolo_registry::registry::Registry as _;

use super::{RegistryArgs, failed};
use crate::args::Format;
use crate::exit::Exit;
use crate::input::Refusal;
use crate::print;
use crate::table::Table;

/// Where to look, and what is printed of it.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// What is printed.
    #[arg(short, long, value_enum, default_value_t = Format::Table, env = "TOMBOLO_OUTPUT")]
    pub(crate) output: Format,

    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

/// What was found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    etcd: String,
    size_bytes: u64,
    clusters: usize,
    findings: Vec<FindingView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FindingView {
    #[serde(rename = "where")]
    place: String,
    what: String,
    what_to_do: String,
}

/// What a partition has of what each should have.
#[derive(Debug, Default)]
struct Partition {
    has_owner: bool,
    has_left: bool,
    session: Option<u64>,
    synced: Option<u64>,
    is_blind: bool,
    others: usize,
}

/// Something that should not be so: where, what, and what to do.
type Finding = [String; 3];

pub(super) async fn run(args: CheckArgs) -> Result<Exit, Refusal> {
    let registry = args.registry.reader()?;
    let operator = args.registry.operator()?;
    let root = KeyRange::of_prefix(&registry.layout().root_prefix());
    // Finds out at once whether it can be read; a subscription would wait.
    failed(registry.scan(root, 1).await)?;
    let mut findings = Vec::new();
    let mut partitions: BTreeMap<Origin, Partition> = BTreeMap::new();
    let mut settings: BTreeMap<Region, Settings> = BTreeMap::new();
    let mut events = registry.subscribe();
    while let Some(event) = events.next().await {
        if matches!(event, Event::ListEnded { .. }) {
            break;
        }
        if let Event::Settings {
            region,
            state: State::Present(found),
            ..
        } = &event
        {
            settings.insert(region.clone(), *found);
        }
        findings.extend(look(&event, &mut partitions));
    }
    findings.extend(
        partitions
            .iter()
            .flat_map(|(origin, found)| found.findings(origin)),
    );
    findings.extend(names_in_two_regions(&partitions));
    findings.extend(settings_that_differ(&settings));
    let status = failed(operator.status().await)?;
    for alarm in &status.alarms {
        findings.push([
            "etcd".to_owned(),
            format!("alarm {alarm}"),
            "compact, defragment, then etcdctl alarm disarm".to_owned(),
        ]);
    }
    let findings = findings.into_iter();
    let findings = findings.map(|[place, what, what_to_do]| FindingView {
        place,
        what,
        what_to_do,
    });
    let checked = Checked {
        etcd: status.version,
        size_bytes: status.size_bytes,
        clusters: partitions.len(),
        findings: findings.collect(),
    };
    let text = match args.output {
        Format::Table => checked.table(),
        Format::Json => failed(print::json_text(&checked))?,
        Format::Yaml => failed(print::yaml_text(&checked))?,
    };
    failed(print::out(&text))?;
    Ok(if checked.findings.is_empty() {
        Exit::Well
    } else {
        Exit::NotWell
    })
}

// === impl Checked ===

impl Checked {
    fn table(&self) -> String {
        let Self {
            etcd,
            size_bytes,
            clusters,
            findings,
        } = self;
        let size = size_bytes / 1024 / 1024;
        let mut text = format!("etcd {etcd}, {size} MiB, {clusters} clusters\n");
        if findings.is_empty() {
            text.push_str("nothing is wrong\n");
            return text;
        }
        let mut table = Table::new(["WHERE", "WHAT", "WHAT TO DO"]);
        for finding in findings {
            let FindingView {
                place,
                what,
                what_to_do,
            } = finding;
            table.row([place.clone(), what.clone(), what_to_do.clone()]);
        }
        text + &table.show("")
    }
}

fn look(event: &Event, partitions: &mut BTreeMap<Origin, Partition>) -> Option<Finding> {
    let rewritten = "its cluster writes it again when it next changes; else delete the key";
    match event {
        Event::Record {
            origin, key, state, ..
        } => {
            let partition = partitions.entry(origin.clone()).or_default();
            partition.learn(key, state);
            let State::Rejected(rejection) = state else {
                return None;
            };
            let place = format!("{}/{} {key:?}", origin.region, origin.cluster);
            Some([place, rejection.reason.to_string(), rewritten.to_owned()])
        }
        Event::Member {
            origin,
            state: State::Rejected(rejection),
            ..
        } => {
            let place = format!("member {}", origin.cluster);
            let advice = format!("tombolo registry grant --cluster {}", origin.cluster);
            Some([place, rejection.reason.to_string(), advice])
        }
        Event::Settings {
            region,
            state: State::Rejected(rejection),
            ..
        } => {
            let advice = "tombolo registry set-config".to_owned();
            Some([
                format!("settings of {region}"),
                rejection.reason.to_string(),
                advice,
            ])
        }
        Event::Stray {
            key,
            rejection: Some(rejection),
            ..
        } => {
            let advice = "no release wrote it: delete the key".to_owned();
            Some([key.to_string(), rejection.reason.to_string(), advice])
        }
        Event::Member { .. }
        | Event::Settings { .. }
        | Event::Stray { .. }
        | Event::Heard(_)
        | Event::Believed
        | Event::ListBegan(_)
        | Event::ListEnded { .. } => None,
    }
}

/// Only the settings of the region that sorts first count.
fn settings_that_differ(settings: &BTreeMap<Region, Settings>) -> Vec<Finding> {
    let Some((first, counts)) = settings.first_key_value() else {
        return Vec::new();
    };
    let others = settings.iter().filter(|(_, other)| *other != counts);
    others
        .map(|(region, _)| {
            [
                format!("settings of {region}"),
                format!("differ from those of {first}, which count"),
                format!("tombolo registry set-config --region {region}, as in {first}"),
            ]
        })
        .collect()
}

// === impl Partition ===

impl Partition {
    fn learn(&mut self, key: &RecordKey, state: &State<Record>) {
        let State::Present(record) = state else {
            return;
        };
        match (key, record) {
            (RecordKey::Owner, _) => self.has_owner = true,
            (RecordKey::Left, _) => self.has_left = true,
            (_, Record::Session(session)) => {
                self.session = Some(session.epoch);
                self.is_blind = session.blind_since.is_some();
            }
            (_, Record::Synced(epoch)) => self.synced = Some(*epoch),
            (_, _) => self.others += 1,
        }
    }

    fn findings(&self, origin: &Origin) -> Vec<Finding> {
        let cluster = &origin.cluster;
        let place = format!("{}/{cluster}", origin.region);
        let finding = |what: &str, advice: String| [place.clone(), what.to_owned(), advice];
        let mut findings = Vec::new();
        if self.has_left {
            if self.others > 0 {
                let advice = format!("tombolo registry remove-cluster {cluster}");
                findings.push(finding("has left, but records of it are there", advice));
            }
            return findings;
        }
        if !self.has_owner {
            let advice = "restart its controller, or delete what is there".to_owned();
            findings.push(finding("has no owner", advice));
        }
        if self.session.is_none() {
            let advice = format!(
                "look at its controller; if the cluster is gone for good: tombolo registry \
                 remove-cluster {cluster}"
            );
            findings.push(finding("has no session: it is not heard of", advice));
        } else if self.session != self.synced {
            let advice = "wait; if it stays so, look at its controller".to_owned();
            findings.push(finding("has not published everything yet", advice));
        }
        if self.is_blind {
            let advice = "look at its API server and its controller's permissions".to_owned();
            findings.push(finding("cannot list what it publishes from", advice));
        }
        findings
    }
}

/// Names are unique over regions; the region that sorts first is used.
fn names_in_two_regions(partitions: &BTreeMap<Origin, Partition>) -> Vec<Finding> {
    let mut first = BTreeMap::new();
    let mut findings = Vec::new();
    for origin in partitions.keys() {
        let used = first.entry(&origin.cluster).or_insert(&origin.region);
        if *used != &origin.region {
            findings.push([
                format!("{}/{}", origin.region, origin.cluster),
                format!("the same name is used in region {used}, whose records count"),
                "give one of the clusters another name".to_owned(),
            ]);
        }
    }
    findings
}
