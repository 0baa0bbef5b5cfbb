//! `tombolo registry get` and `watch`: what stands in the registry, decoded.

use clap::Args;
use futures::StreamExt as _;
use serde::Serialize;
use tombolo_model::names::Namespace;
use tombolo_model::record::{Origin, Record, RecordKey};
use tombolo_registry::event::{Event, State};
use tombolo_registry::key::{Layout, Place};
use tombolo_registry::registry::Registry as _;

use super::{Filter, RegistryArgs, failed};
use crate::args::Format;
use crate::exit::Exit;
use crate::input::Refusal;
use crate::print;
use crate::table::Table;

/// Shows what stands in the registry.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Only of these clusters.
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',')]
    pub(crate) cluster: Vec<String>,

    /// Only of these namespaces.
    #[arg(short, long, value_name = "NAMESPACE", value_delimiter = ',')]
    pub(crate) namespace: Vec<String>,

    /// What is printed.
    #[arg(short, long, value_enum, default_value_t = Format::Table, env = "TOMBOLO_OUTPUT")]
    pub(crate) output: Format,

    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

/// A key and what stands there.
#[derive(Debug, Serialize)]
struct Shown {
    /// Below the root.
    key: String,
    revision: u64,
    /// `present`, `gone` or `rejected`.
    state: &'static str,
    value: String,
}

pub(super) async fn get(args: ShowArgs) -> Result<Exit, Refusal> {
    let registry = args.registry.reader()?;
    // Finds out at once whether it can be read; a subscription would wait.
    let layout = registry.layout().clone();
    let root = tombolo_registry::key::KeyRange::of_prefix(&layout.root_prefix());
    failed(registry.scan(root, 1).await)?;
    let filter = filter(&args);
    let mut events = registry.subscribe();
    let mut shown = Vec::new();
    while let Some(event) = events.next().await {
        if matches!(event, Event::ListEnded { .. }) {
            break;
        }
        shown.extend(one(&layout, &filter, &event));
    }
    let text = match args.output {
        Format::Table => {
            let mut table = Table::new(["KEY", "REVISION", "VALUE"]);
            for Shown {
                key,
                revision,
                state,
                value,
            } in &shown
            {
                let value = if *state == "present" {
                    value.clone()
                } else {
                    format!("{state}: {value}")
                };
                table.row([key.clone(), revision.to_string(), value]);
            }
            table.show("")
        }
        Format::Json => {
            let text = serde_json::to_string_pretty(&shown);
            failed(text.map_err(print::PrintError::Json))? + "\n"
        }
        Format::Yaml => failed(serde_saphyr::to_string(&shown).map_err(print::PrintError::Yaml))?,
    };
    failed(print::out(&text))?;
    Ok(Exit::Well)
}

pub(super) async fn watch(args: ShowArgs) -> Result<Exit, Refusal> {
    let registry = args.registry.reader()?;
    let layout = registry.layout().clone();
    let filter = filter(&args);
    let mut events = registry.subscribe();
    let mut listing = true;
    while let Some(event) = events.next().await {
        match &event {
            Event::ListBegan(_) => listing = true,
            Event::ListEnded { .. } => listing = false,
            Event::Record { .. }
            | Event::Member { .. }
            | Event::Settings { .. }
            | Event::Heard(_)
            | Event::Believed
            | Event::Stray { .. } => {}
        }
        let Some(shown) = one(&layout, &filter, &event).filter(|_| !listing) else {
            continue;
        };
        let text = match args.output {
            Format::Table => {
                let Shown {
                    key,
                    revision,
                    state,
                    value,
                } = shown;
                format!("{revision}  {state:8}  {key}  {value}\n")
            }
            Format::Json => {
                failed(serde_json::to_string(&shown).map_err(print::PrintError::Json))? + "\n"
            }
            Format::Yaml => {
                let text = serde_saphyr::to_string(&shown);
                format!("---\n{}", failed(text.map_err(print::PrintError::Yaml))?)
            }
        };
        failed(print::out(&text))?;
    }
    Ok(Exit::Well)
}

fn filter(args: &ShowArgs) -> Filter {
    Filter {
        clusters: args.cluster.iter().cloned().collect(),
        namespaces: args.namespace.iter().cloned().collect(),
    }
}

fn one(layout: &Layout, filter: &Filter, event: &Event) -> Option<Shown> {
    let shown = |place: &Place, origin: Option<&Origin>, ns: Option<&Namespace>| {
        let cluster = origin.map(|origin| origin.cluster.to_string());
        let ns = ns.map(ToString::to_string);
        let key = layout.key(place).ok()?;
        let key = key.strip_prefix(&layout.root_prefix())?.to_owned();
        filter
            .takes(cluster.as_deref(), ns.as_deref())
            .then_some(key)
    };
    let (key, revision, (state, value)) = match event {
        Event::Record {
            origin,
            key,
            state,
            revision,
        } => {
            let ns = namespace(key);
            let (origin, key) = (origin.clone(), key.clone());
            let place = Place::Record { origin, key };
            let Place::Record { origin, .. } = &place else {
                return None;
            };
            let key = shown(&place, Some(origin), ns.as_ref())?;
            (key, *revision, text(state, record))
        }
        Event::Member {
            origin,
            state,
            revision,
        } => {
            let place = Place::Member(origin.clone());
            let key = shown(&place, Some(origin), None)?;
            (key, *revision, text(state, |member| format!("{member:?}")))
        }
        Event::Settings {
            region,
            state,
            revision,
        } => {
            let key = shown(&Place::Settings(region.clone()), None, None)?;
            (
                key,
                *revision,
                text(state, |settings| format!("{settings:?}")),
            )
        }
        Event::Stray {
            key,
            rejection,
            revision,
        } => {
            let told = match rejection {
                Some(rejection) => ("rejected", rejection.reason.to_string()),
                None => ("gone", String::new()),
            };
            let key = filter.takes(None, None).then(|| key.to_string())?;
            (key, *revision, told)
        }
        Event::ListBegan(_) | Event::ListEnded { .. } | Event::Heard(_) | Event::Believed => {
            return None;
        }
    };
    Some(Shown {
        key,
        revision,
        state,
        value,
    })
}

fn namespace(key: &RecordKey) -> Option<Namespace> {
    match key {
        RecordKey::Export(service)
        | RecordKey::Endpoint { service, .. }
        | RecordKey::Config { service, .. } => Some(service.namespace.clone()),
        RecordKey::Owner
        | RecordKey::Session
        | RecordKey::Synced
        | RecordKey::Left
        | RecordKey::Report => None,
    }
}

fn text<T>(state: &State<T>, show: impl Fn(&T) -> String) -> (&'static str, String) {
    match state {
        State::Present(value) => ("present", show(value)),
        State::Gone => ("gone", String::new()),
        State::Rejected(rejection) => ("rejected", rejection.reason.to_string()),
    }
}

/// A record on one line.
fn record(record: &Record) -> String {
    match record {
        Record::Owner(owner) | Record::Left(owner) => owner.uid.to_string(),
        Record::Session(session) => format!("{session:?}"),
        Record::Synced(epoch) => epoch.to_string(),
        Record::Report(report) => format!("{report:?}"),
        Record::Export(export) => format!("{export:?}"),
        Record::Endpoint(entries) => format!("{entries:?}"),
        Record::Config(bytes) => format!("{} bytes", bytes.len()),
    }
}
