//! ServiceExports of several APIs as one kind, for fleets that are moving over from another
//! implementation (`--export-gvr`): of two exports of one name the standard one counts.
//!
//! ```text
//! standard ──watch─┐
//! other ────watch──┼─► Merger ─► reports, as if there were one kind
//! other ────watch──┘      └────► where the status of each is written
//! ```

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tombolo_model::io::{Input, Source};
use tombolo_model::names::ServiceKey;
use tombolo_model::object::{Kind, Object, ObjectRef};

use super::call::Server;
use super::report::{Report, WatchState};
use super::watch::{watch, watch_resource};

/// Reports of one source that wait to be merged.
const QUEUE_LEN: usize = 16;

/// A resource of the API: group, version and the plural by which it is called in paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    group: String,
    version: String,
    plural: String,
}

/// Why a text names no resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no resource: give group/version/plural, such as net.gke.io/v1/serviceexports")]
pub struct ResourceError(String);

impl FromStr for Resource {
    type Err = ResourceError;

    fn from_str(text: &str) -> Result<Self, ResourceError> {
        let is_good = |part: &str| {
            let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
            !part.is_empty() && part.bytes().all(ok)
        };
        match text.split('/').collect::<Vec<_>>()[..] {
            [group, version, plural] if [group, version, plural].into_iter().all(is_good) => {
                Ok(Self {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    plural: plural.to_owned(),
                })
            }
            _ => Err(ResourceError(text.to_owned())),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (group, version, plural) = (&self.group, &self.version, &self.plural);
        write!(f, "{group}/{version}/{plural}")
    }
}

impl Resource {
    /// `apiVersion` of its objects.
    pub(super) fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Where the server says what its group and version have.
    pub(super) fn group_path(&self) -> String {
        format!("/apis/{}", self.api_version())
    }

    /// As it is called in paths.
    pub(super) fn plural(&self) -> &str {
        &self.plural
    }

    /// All objects of it.
    pub(super) fn everywhere(&self) -> String {
        format!("/apis/{self}")
    }

    /// One object.
    pub(super) fn object(&self, key: &ServiceKey) -> String {
        let (group, version, plural) = (&self.group, &self.version, &self.plural);
        let (namespace, name) = (&key.namespace, &key.name);
        format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}")
    }
}

/// Reports all ServiceExports and every change, those of other resources too.
pub async fn watch_exports(server: Server, others: Vec<Resource>, reports: mpsc::Sender<Report>) {
    if others.is_empty() {
        return watch(server, Kind::ServiceExport, reports).await;
    }
    let mut watches = FuturesUnordered::new();
    let (merged, mut inbox) = mpsc::channel::<(usize, Report)>(QUEUE_LEN);
    let sources = std::iter::once(None).chain(others.iter().cloned().map(Some));
    let mut forwards = Vec::new();
    for (source, resource) in sources.enumerate() {
        let (tx, mut rx) = mpsc::channel(QUEUE_LEN);
        watches.push(watch_resource(
            server.clone(),
            Kind::ServiceExport,
            resource,
            tx,
        ));
        let merged = merged.clone();
        forwards.push(async move {
            while let Some(report) = rx.recv().await {
                if merged.send((source, report)).await.is_err() {
                    return;
                }
            }
        });
    }
    drop(merged);
    let mut forwards = std::pin::pin!(join_all(forwards));
    let mut merger = Merger::new(others.len() + 1);
    loop {
        tokio::select! {
            biased;
            Some((source, report)) = inbox.recv() => {
                for report in merger.take(source, report) {
                    if reports.send(report).await.is_err() {
                        return;
                    }
                }
                for (key, source) in merger.moved.drain(..) {
                    let resource = source.and_then(|source| others.get(source.checked_sub(1)?));
                    server.versions().set_place(key, resource.cloned());
                }
            }
            Some(()) = watches.next() => {}
            _ = &mut forwards => return,
        }
    }
}

/// Makes several sources look like one.
#[derive(Debug)]
struct Merger {
    sources: Vec<Exports>,
    /// Whether all sources have been listed, so that the whole was told.
    told: bool,
    /// The source that each export was told from.
    shown: HashMap<ServiceKey, usize>,
    /// Exports that now come from another source, or from none.
    moved: Vec<(ServiceKey, Option<usize>)>,
}

/// The exports of one source.
#[derive(Debug, Default)]
struct Exports {
    objects: HashMap<ServiceKey, Object>,
    /// What a listing under way has seen.
    listing: Option<HashSet<ServiceKey>>,
    /// Whether it was listed, or is known to have nothing.
    listed: bool,
}

impl Merger {
    fn new(sources: usize) -> Self {
        Self {
            sources: (0..sources).map(|_| Exports::default()).collect(),
            told: false,
            shown: HashMap::new(),
            moved: Vec::new(),
        }
    }

    fn take(&mut self, source: usize, report: Report) -> Vec<Report> {
        let mut inputs = Vec::new();
        let mut reports = Vec::new();
        match report {
            Report::Inputs(all) => {
                for input in all {
                    self.input(source, input, &mut inputs);
                }
            }
            // Another API that is not there has no exports, and is missed by nobody.
            Report::Watch { state, .. } if source > 0 => match state {
                WatchState::Missing | WatchState::Forbidden(_) => {
                    self.sources[source].listed = true;
                }
                WatchState::Listing | WatchState::Live | WatchState::Away(_) => {}
            },
            other => reports.push(other),
        }
        self.tell_all(&mut inputs);
        if !inputs.is_empty() {
            reports.insert(0, Report::Inputs(inputs));
        }
        reports
    }

    fn input(&mut self, source: usize, input: Input, out: &mut Vec<Input>) {
        let exports = &mut self.sources[source];
        match input {
            Input::Applied(object) => {
                let key = object.reference().key;
                if let Some(seen) = &mut exports.listing {
                    seen.insert(key.clone());
                }
                exports.objects.insert(key.clone(), object);
                self.show(key, out);
            }
            Input::Deleted { object, .. } => {
                exports.objects.remove(&object.key);
                self.show(object.key, out);
            }
            Input::ListBegan(_) => exports.listing = Some(HashSet::new()),
            Input::ListEnded { .. } => {
                let seen = exports.listing.take().unwrap_or_default();
                let gone: BTreeSet<ServiceKey> = exports
                    .objects
                    .keys()
                    .filter(|key| !seen.contains(*key))
                    .cloned()
                    .collect();
                exports.listed = true;
                for key in gone {
                    self.sources[source].objects.remove(&key);
                    self.show(key, out);
                }
            }
            other => out.push(other),
        }
    }

    /// Tells how an export stands now: the one of the first source that has it.
    fn show(&mut self, key: ServiceKey, out: &mut Vec<Input>) {
        if !self.told {
            return;
        }
        let found = self.sources.iter().enumerate();
        let found =
            found.filter_map(|(source, exports)| Some((source, exports.objects.get(&key)?)));
        let chosen = found.min_by_key(|(source, _)| *source);
        let before = self.shown.get(&key).copied();
        if before.is_some() && before != chosen.map(|(source, _)| source) {
            out.push(Input::Deleted {
                object: ObjectRef {
                    kind: Kind::ServiceExport,
                    key: key.clone(),
                },
                resource_version: "".into(),
            });
        }
        out.extend(chosen.map(|(_, object)| Input::Applied(object.clone())));
        match chosen.map(|(source, _)| source) {
            now if now == before => {}
            Some(source) => {
                self.shown.insert(key.clone(), source);
                self.moved.push((key, Some(source)));
            }
            None => {
                self.shown.remove(&key);
                self.moved.push((key, None));
            }
        }
    }

    /// Tells everything as one listing once all sources have been listed.
    fn tell_all(&mut self, out: &mut Vec<Input>) {
        if self.told || !self.sources.iter().all(|exports| exports.listed) {
            return;
        }
        self.told = true;
        let kind = Source::Objects(Kind::ServiceExport);
        out.push(Input::ListBegan(kind));
        let keys = self
            .sources
            .iter()
            .flat_map(|exports| exports.objects.keys());
        let keys: BTreeSet<ServiceKey> = keys.cloned().collect();
        for key in keys {
            self.show(key, out);
        }
        out.push(Input::ListEnded {
            source: kind,
            revision: "".into(),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tombolo_model::names::{Namespace, ObjectName};
    use tombolo_model::object::{ExportObject, Meta};
    use tombolo_model::record::Labels;

    use super::*;

    fn key() -> ServiceKey {
        ServiceKey::new(Namespace::try_new("shop").unwrap(), ObjectName::new("web"))
    }

    fn export(version: &str) -> Input {
        let mut meta = Meta::to_create(key());
        meta.resource_version = version.into();
        Input::Applied(Object::ServiceExport(Arc::new(ExportObject {
            meta,
            labels: Labels::new(),
            annotations: Labels::new(),
            conditions: Vec::new(),
        })))
    }

    fn listing(inputs: Vec<Input>) -> Report {
        let source = Source::Objects(Kind::ServiceExport);
        let ended = Input::ListEnded {
            source,
            revision: "9".into(),
        };
        let all = std::iter::once(Input::ListBegan(source)).chain(inputs);
        Report::Inputs(all.chain([ended]).collect())
    }

    fn words(reports: &[Report]) -> Vec<String> {
        let word = |input: &Input| match input {
            Input::Applied(object) => object.resource_version().to_string(),
            Input::Deleted { .. } => "gone".to_owned(),
            Input::ListBegan(_) => "list".to_owned(),
            Input::ListEnded { .. } => "listed".to_owned(),
            other => format!("{other:?}"),
        };
        let inputs = reports.iter().flat_map(|report| match report {
            Report::Inputs(inputs) => inputs.iter().map(word).collect(),
            other => vec![format!("{other:?}")],
        });
        inputs.collect()
    }

    #[test]
    fn nothing_is_told_before_all_are_listed_and_the_standard_export_counts() {
        let mut merger = Merger::new(2);
        assert_eq!(words(&merger.take(1, listing(vec![export("5")]))), [""; 0]);
        let told = merger.take(0, listing(vec![]));
        assert_eq!(words(&told), ["list", "5", "listed"]);
        assert_eq!(merger.moved.pop(), Some((key(), Some(1))));

        let told = merger.take(0, Report::Inputs(vec![export("7")]));
        assert_eq!(words(&told), ["gone", "7"]);
        assert_eq!(merger.moved.pop(), Some((key(), Some(0))));
        let told = merger.take(1, Report::Inputs(vec![export("8")]));
        assert_eq!(words(&told), ["7"], "the other one does not count");

        let told = merger.take(0, listing(vec![]));
        assert_eq!(words(&told), ["gone", "8"]);
        assert_eq!(words(&merger.take(1, listing(vec![]))), ["gone"]);
    }

    #[test]
    fn an_api_that_is_missing_holds_nothing_up() {
        let mut merger = Merger::new(2);
        merger.take(0, listing(vec![export("5")]));
        let missing = Report::Watch {
            kind: Kind::ServiceExport,
            state: WatchState::Missing,
        };
        assert_eq!(words(&merger.take(1, missing)), ["list", "5", "listed"]);
    }

    #[test]
    fn a_resource_is_group_version_and_plural() {
        let resource: Resource = "net.gke.io/v1/serviceexports".parse().unwrap();
        let path = "/apis/net.gke.io/v1/namespaces/shop/serviceexports/web";
        assert_eq!(resource.object(&key()), path);
        for bad in ["serviceexports", "a/b", "a/b/c/d", "a//c", "A/b/c"] {
            assert!(bad.parse::<Resource>().is_err(), "{bad}");
        }
    }
}
