//! `tombolo registry get` and `watch`: what stands in the registry, decoded.

use clap::Args;
use futures::StreamExt as _;
use tombolo_registry::event::Event;
use tombolo_registry::key::Layout;
use tombolo_registry::registry::Registry as _;

use super::document::Document;
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
            for document in &shown {
                let value = match document.state {
                    "present" => document.line(),
                    state => format!("{state}: {}", document.line()),
                };
                table.row([document.key.clone(), document.revision.to_string(), value]);
            }
            table.show("")
        }
        Format::Json => failed(print::json_text(&shown))?,
        Format::Yaml => failed(print::yaml_text(&shown))?,
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
                let (revision, state) = (shown.revision, shown.state);
                format!("{revision}  {state:8}  {}  {}\n", shown.key, shown.line())
            }
            // One document a line, for tools that read lines.
            Format::Json => {
                failed(serde_json::to_string(&shown).map_err(print::PrintError::Json))? + "\n"
            }
            Format::Yaml => format!("---\n{}", failed(print::yaml_text(&shown))?),
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

fn one(layout: &Layout, filter: &Filter, event: &Event) -> Option<Document> {
    let document = Document::of(layout, event)?;
    let (cluster, namespace) = (document.cluster.as_deref(), document.namespace.as_deref());
    filter.takes(cluster, namespace).then_some(document)
}
