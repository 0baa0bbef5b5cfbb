//! Kubernetes Events: best effort, never more than a cluster bears. The same Event again is
//! counted on the first; what comes too fast is dropped and counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tombolo_model::io::Event;
use tombolo_model::object::Kind;
use tombolo_model::own::FIELD_MANAGER;
use tracing::debug;

use super::call::{Call, CallError, Server};
use super::clock::Clock;
use super::lease::Fence;
use super::patch::MERGE_PATCH;

/// Events that wait to be sent; more at once than anybody reads.
const QUEUE_LEN: usize = 1_000;
/// The least time between two calls: Events must not take the API server's time from anything.
const PACE: Duration = Duration::from_millis(50);
/// How long an Event is remembered, so that the same again is counted on it.
const REMEMBERED: Duration = Duration::from_mins(10);
/// How many are remembered; beyond that, all are forgotten.
const REMEMBERED_MAX: usize = 4_096;
/// A count is written this often at most.
const COUNT_EVERY: Duration = Duration::from_mins(1);
/// The most Events for one object within [`REMEMBERED`].
const PER_OBJECT_MAX: u32 = 25;
/// The longest note that the API takes.
const NOTE_LEN_MAX: usize = 1_024;
/// Who reports.
const CONTROLLER: &str = "tombolo.dev/controller";

/// Takes Events in without ever waiting.
#[derive(Clone, Debug)]
pub struct EventSender {
    queue: mpsc::Sender<Event>,
    dropped: EventsDropped,
}

/// How many Events were dropped because they came too fast.
#[derive(Clone, Debug, Default)]
pub struct EventsDropped(Arc<AtomicU64>);

impl EventsDropped {
    /// The number since the start.
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl EventSender {
    /// Takes an Event in, or drops it where too many wait.
    pub fn send(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            self.dropped.add();
        }
    }

    /// The counter of dropped Events.
    pub fn dropped(&self) -> EventsDropped {
        self.dropped.clone()
    }
}

/// Sends Events.
pub struct Recorder {
    server: Server,
    fence: Arc<Fence>,
    clock: Arc<dyn Clock>,
    /// The name of this process.
    instance: String,
    queue: mpsc::Receiver<Event>,
    dropped: EventsDropped,
    sent: HashMap<Identity, Sent>,
    per_object: HashMap<Arc<str>, u32>,
    forgotten_at: Duration,
    /// Whether Events are written as those of the core API: where the newer one is not served, or
    /// not allowed.
    is_core: bool,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

/// What makes an Event the same as another.
type Identity = (Arc<str>, &'static str, Arc<str>);

/// An Event that is in the cluster.
struct Sent {
    path: String,
    count: u32,
    /// When its count was last written.
    written: Duration,
}

/// A sender, and the recorder to be driven.
pub fn recorder(
    server: Server,
    fence: Arc<Fence>,
    clock: Arc<dyn Clock>,
    instance: &str,
) -> (EventSender, Recorder) {
    let (tx, rx) = mpsc::channel(QUEUE_LEN);
    let dropped = EventsDropped::default();
    let sender = EventSender {
        queue: tx,
        dropped: dropped.clone(),
    };
    let forgotten_at = clock.since_boot();
    let recorder = Recorder {
        server,
        fence,
        clock,
        instance: instance.chars().take(128).collect(),
        queue: rx,
        dropped,
        sent: HashMap::new(),
        per_object: HashMap::new(),
        forgotten_at,
        is_core: false,
    };
    (sender, recorder)
}

impl Recorder {
    /// Sends what comes in until there is no sender any more.
    pub async fn run(mut self) {
        while let Some(event) = self.queue.recv().await {
            if !self.fence.stands() {
                continue;
            }
            match self.record(&event).await {
                Ok(false) => {}
                Ok(true) => sleep(PACE).await,
                Err(error) => {
                    debug!(error = &error as &dyn std::error::Error, "event not sent");
                    sleep(PACE).await;
                }
            }
        }
    }

    /// Sends an Event or counts it; says whether the server was called.
    async fn record(&mut self, event: &Event) -> Result<bool, CallError> {
        let now = self.clock.since_boot();
        if now.saturating_sub(self.forgotten_at) > REMEMBERED || self.sent.len() >= REMEMBERED_MAX {
            self.sent.clear();
            self.per_object.clear();
            self.forgotten_at = now;
        }
        let identity = (
            Arc::clone(&event.uid),
            event.reason,
            Arc::clone(&event.message),
        );
        if let Some(sent) = self.sent.get_mut(&identity) {
            sent.count += 1;
            if sent.count > 2 && now.saturating_sub(sent.written) < COUNT_EVERY {
                return Ok(false);
            }
            sent.written = now;
            let series = json!({"series": {
                "count": sent.count,
                "lastObservedTime": micro_time(&*self.clock),
            }});
            let path = format!("{}?fieldManager={FIELD_MANAGER}", sent.path);
            let mut call = Call::with_body(Method::PATCH, &path, &series);
            call.content_type = MERGE_PATCH;
            self.server.call(call).await?;
            return Ok(true);
        }
        let of_object = self.per_object.entry(Arc::clone(&event.uid)).or_default();
        if *of_object >= PER_OBJECT_MAX {
            self.dropped.add();
            return Ok(false);
        }
        *of_object += 1;
        let path = match self.create(event, now).await {
            Err(error) if matches!(error.code(), Some(403 | 404)) && !self.is_core => {
                self.is_core = true;
                let created = self.create(event, now).await;
                // The older API is no better: the next Event tries the newer one again.
                self.is_core = created.is_ok();
                created?
            }
            created => created?,
        };
        let sent = Sent {
            path,
            count: 1,
            written: now,
        };
        self.sent.insert(identity, sent);
        Ok(true)
    }

    /// Creates an Event; returns its path.
    async fn create(&self, event: &Event, now: Duration) -> Result<String, CallError> {
        let (name, body) = self.body(event, now);
        let namespace = &event.about.key.namespace;
        let group = if self.is_core {
            "/api/v1"
        } else {
            "/apis/events.k8s.io/v1"
        };
        let events = format!("{group}/namespaces/{namespace}/events");
        let path = format!("{events}?fieldManager={FIELD_MANAGER}");
        self.server
            .call(Call::with_body(Method::POST, &path, &body))
            .await?;
        Ok(format!("{events}/{name}"))
    }

    fn body(&self, event: &Event, now: Duration) -> (String, Value) {
        let key = &event.about.key;
        // Names are unique in time; the head of a long one is enough to find it.
        let head: String = key.name.as_str().chars().take(200).collect();
        let name = format!("{head}.{:x}", now.as_nanos());
        let kind = event.about.kind;
        let action = match kind {
            Kind::ServiceExport => "Export",
            Kind::ServiceImport => "Import",
            Kind::Namespace | Kind::Service | Kind::EndpointSlice => "Sync",
        };
        // The core API calls three of the fields otherwise.
        let [version, note, regarding, controller] = if self.is_core {
            ["v1", "message", "involvedObject", "reportingComponent"]
        } else {
            [
                "events.k8s.io/v1",
                "note",
                "regarding",
                "reportingController",
            ]
        };
        let body = json!({
            "apiVersion": version,
            "kind": "Event",
            "metadata": {"name": name, "namespace": key.namespace.as_str()},
            "eventTime": micro_time(&*self.clock),
            "type": if event.warning { "Warning" } else { "Normal" },
            "reason": event.reason,
            "action": action,
            note: cut(&event.message),
            controller: CONTROLLER,
            "reportingInstance": self.instance,
            regarding: {
                "apiVersion": self.server.versions().api_version(kind),
                "kind": kind.as_str(),
                "namespace": key.namespace.as_str(),
                "name": key.name.as_str(),
                "uid": event.uid,
            },
        });
        (name, body)
    }
}

/// A time with microseconds, as Events have them.
fn micro_time(clock: &dyn Clock) -> String {
    format!("{:.6}", clock.wall())
}

fn cut(text: &str) -> String {
    if text.len() <= NOTE_LEN_MAX {
        return text.to_owned();
    }
    let mut end = NOTE_LEN_MAX - "…".len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}
