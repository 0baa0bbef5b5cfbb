//! All objects of a kind, then every change: a list and a watch that start again by themselves.
//!
//! ```text
//! Empty ──list, or streaming list──► Watching(revision) ──┐
//!   ▲                                  ▲     │ │           │ the stream ended, the server is away
//!   └── 410, the kind went away ───────┼─────┘ └───────────┘
//! ```
//!
//! Each listing is told as one ([`Input::ListBegan`] … [`Input::ListEnded`]), so that what was
//! missed comes out of the difference. Failures wait longer each time, up to half a minute.

use std::time::Duration;

use futures::AsyncBufReadExt as _;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tombolo_model::io::{Input, Source};
use tombolo_model::object::Kind;
use tracing::debug;

use super::call::{Call, CallError, Server};
use super::crds::find_version;
use super::decode::{Decoder, Line, ListPage, Read, Unreadable, bookmark};
use super::exports::Resource;
use super::report::{Report, WatchState};
use super::resource::is_custom;

/// Objects of a page: what `client-go` takes, a few MiB of slices.
pub(super) const PAGE_LEN: usize = 500;

/// The first wait after a failure.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// The longest: short enough that an API server that is back is heard within half a minute.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How often a missing CRD is looked for.
const MISSING_POLL: Duration = Duration::from_secs(2);
/// A server ends watches after a while, so that load spreads when servers come and go. A part is
/// added for each kind, so that not all end together.
const WATCH_SECS: u64 = 240;
/// Bookmarks come every minute: a stream that is silent for longer is dead.
const IDLE_MAX: Duration = Duration::from_secs(100);

/// Reports all objects of a kind and every change, until nobody listens any more.
pub async fn watch(server: Server, kind: Kind, reports: mpsc::Sender<Report>) {
    follow(server, kind, Which::All, reports).await;
}

/// The same for the objects that a label selector matches.
pub async fn watch_selected(
    server: Server,
    kind: Kind,
    selector: &str,
    reports: mpsc::Sender<Report>,
) {
    follow(server, kind, Which::Selected(selector), reports).await;
}

/// The same for objects of a kind that are another resource of the API.
pub(super) async fn watch_resource(
    server: Server,
    kind: Kind,
    resource: Option<Resource>,
    reports: mpsc::Sender<Report>,
) {
    follow(
        server,
        kind,
        resource.map_or(Which::All, Which::Of),
        reports,
    )
    .await;
}

/// Which objects of a kind.
enum Which<'a> {
    /// All, in the place of their kind.
    All,
    /// Those that this label selector matches.
    Selected(&'a str),
    /// Those of another resource.
    Of(Resource),
}

async fn follow(server: Server, kind: Kind, which: Which<'_>, reports: mpsc::Sender<Report>) {
    let (selector, resource) = match which {
        Which::All => (String::new(), None),
        Which::Selected(selector) => (format!("&labelSelector={}", escape(selector)), None),
        Which::Of(resource) => (String::new(), Some(resource)),
    };
    let mut watch = Watch {
        resource,
        decoder: Decoder::new(kind),
        path: String::new(),
        selector,
        server,
        kind,
        reports,
        state: State::Empty,
        streams_lists: true,
        told: None,
        highest: 0,
        regressed: false,
    };
    let mut failures = 0;
    while !watch.reports.is_closed() {
        match watch.step().await {
            Ok(()) => failures = 0,
            Err(Stop::Closed) => return,
            Err(Stop::Failed(error)) => {
                let wait = watch.failed(&error).await.unwrap_or_else(|| {
                    failures += 1;
                    backoff(kind, failures)
                });
                debug!(
                    kind = kind.as_str(),
                    error = &error as &dyn std::error::Error,
                    ?wait,
                    "watch stopped"
                );
                tokio::select! {
                    biased;
                    () = watch.reports.closed() => return,
                    () = sleep(wait) => {}
                }
            }
        }
    }
}

/// Doubling, with a part that differs from kind to kind.
fn backoff(kind: Kind, failures: u32) -> Duration {
    let doubled = RETRY_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
    let base = doubled.min(RETRY_MAX);
    base.saturating_mul(8 + kind as u32) / 10
}

struct Watch {
    server: Server,
    /// Where the objects are, if not in the place of their kind.
    resource: Option<Resource>,
    kind: Kind,
    path: String,
    /// As a part of a query, with its `&`; empty for all.
    selector: String,
    decoder: Decoder,
    reports: mpsc::Sender<Report>,
    state: State,
    /// Whether the server has streaming lists; assumed until it refuses one.
    streams_lists: bool,
    /// The state that was reported last.
    told: Option<WatchState>,
    /// The highest revision of a full listing so far.
    highest: u64,
    /// Whether the listing under way is of an older state than one before: the server's data were
    /// restored from a backup. Then nothing that is known is newer than what it says now.
    regressed: bool,
}

enum State {
    /// Nothing is known.
    Empty,
    /// Everything up to this revision is known.
    Watching(String),
}

/// Why a step ended early.
enum Stop {
    /// Nobody listens.
    Closed,
    Failed(CallError),
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

/// What a line of a watch was.
enum Told {
    Change,
    ListEnded,
}

// === impl Watch ===

impl Watch {
    /// One list or one watch.
    async fn step(&mut self) -> Result<(), Stop> {
        match &self.state {
            State::Empty => {
                self.path = self.place().await?;
                if self.streams_lists {
                    self.stream_all().await
                } else {
                    self.list().await
                }
            }
            State::Watching(revision) => {
                let query = format!("resourceVersion={revision}");
                self.watch(&query, false).await
            }
        }
    }

    /// The path of all objects.
    async fn place(&self) -> Result<String, CallError> {
        if let Some(resource) = &self.resource {
            return Ok(resource.everywhere());
        }
        let versions = self.server.versions();
        if is_custom(self.kind) {
            versions.set(self.kind, find_version(&self.server, self.kind).await?);
        }
        Ok(versions.everywhere(self.kind))
    }

    /// What a failure means; a wait of its own where it is no failure of the server.
    async fn failed(&mut self, error: &CallError) -> Option<Duration> {
        let text = || chain(error).into();
        let (state, wait) = match error.code() {
            // Too old a revision: everything is listed again, at once.
            Some(410) => {
                self.state = State::Empty;
                (WatchState::Listing, Some(Duration::ZERO))
            }
            Some(404) => {
                self.state = State::Empty;
                (WatchState::Missing, Some(MISSING_POLL))
            }
            Some(401 | 403) => (WatchState::Forbidden(text()), None),
            // A revision that the server has not reached: it was restored from a backup.
            Some(504) if matches!(error, CallError::Refused(status) if is_too_large(status)) => {
                self.state = State::Empty;
                (WatchState::Listing, None)
            }
            Some(_) | None => (WatchState::Away(text()), None),
        };
        // That nobody listens is noticed by the caller.
        self.tell(state).await.ok();
        wait
    }

    async fn send(&self, report: Report) -> Result<(), Stop> {
        self.reports.send(report).await.map_err(|_| Stop::Closed)
    }

    async fn tell(&mut self, state: WatchState) -> Result<(), Stop> {
        if self.told.as_ref() == Some(&state) {
            return Ok(());
        }
        self.told = Some(state.clone());
        let kind = self.kind;
        self.send(Report::Watch { kind, state }).await
    }

    async fn list_began(&mut self) -> Result<(), Stop> {
        self.tell(WatchState::Listing).await?;
        self.regressed = false;
        let began = Input::ListBegan(Source::Objects(self.kind));
        self.send(Report::Inputs(vec![began])).await
    }

    async fn list_ended(&mut self, revision: String) -> Result<(), Stop> {
        self.highest = revision.parse().unwrap_or_default();
        let ended = Input::ListEnded {
            source: Source::Objects(self.kind),
            // After a restore nothing is kept for being newer.
            revision: if self.regressed {
                ""
            } else {
                revision.as_str()
            }
            .into(),
        };
        self.state = State::Watching(revision);
        self.send(Report::Inputs(vec![ended])).await?;
        self.tell(WatchState::Live).await
    }

    /// A list in pages.
    async fn list(&mut self) -> Result<(), Stop> {
        let mut token: Option<String> = None;
        loop {
            let mut path = format!("{}?limit={PAGE_LEN}{}", self.path, self.selector);
            if let Some(token) = &token {
                path.push_str("&continue=");
                path.push_str(&escape(token));
            }
            let body = self.server.call(Call::get(&path)).await?;
            let ListPage { metadata, items } =
                serde_json::from_slice(&body).map_err(|source| CallError::Answer { source })?;
            if token.is_none() {
                self.list_began().await?;
                self.regressed = is_lower(&metadata.resource_version, self.highest);
            }
            let mut inputs = Vec::new();
            for raw in items.unwrap_or_default() {
                self.take(raw.get(), &mut inputs).await?;
            }
            self.send(Report::Inputs(inputs)).await?;
            token = metadata.token.filter(|token| !token.is_empty());
            if token.is_none() {
                return self.list_ended(metadata.resource_version).await;
            }
        }
    }

    /// A streaming list, then the watch that it goes on as.
    async fn stream_all(&mut self) -> Result<(), Stop> {
        let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        match self.watch(query, true).await {
            Err(Stop::Failed(error)) if matches!(error.code(), Some(400 | 422)) => {
                debug!(
                    kind = self.kind.as_str(),
                    "the server has no streaming lists"
                );
                self.streams_lists = false;
                Ok(())
            }
            result => result,
        }
    }

    /// Reads a watch until it ends.
    async fn watch(&mut self, query: &str, mut lists: bool) -> Result<(), Stop> {
        let secs = WATCH_SECS + 10 * self.kind as u64;
        let (path, selector) = (&self.path, &self.selector);
        let path = format!(
            "{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds={secs}&{query}{selector}"
        );
        let mut stream = std::pin::pin!(self.server.stream(&path).await?);
        if lists {
            self.list_began().await?;
        } else {
            self.tell(WatchState::Live).await?;
        }
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = timeout(IDLE_MAX, stream.read_until(b'\n', &mut line))
                .await
                .map_err(|_| CallError::Deadline(IDLE_MAX))?
                .map_err(|error| CallError::from(kube::Error::ReadEvents(error)))?;
            if read == 0 {
                return Ok(());
            }
            if let Told::ListEnded = self.line(&line, lists).await? {
                lists = false;
            }
        }
    }

    async fn line(&mut self, line: &[u8], lists: bool) -> Result<Told, Stop> {
        let line: Line<'_> =
            serde_json::from_slice(line).map_err(|source| CallError::Answer { source })?;
        match &*line.kind {
            "ADDED" | "MODIFIED" => {
                let mut inputs = Vec::with_capacity(1);
                self.take(line.object.get(), &mut inputs).await?;
                self.advance(&inputs, lists);
                self.send(Report::Inputs(inputs)).await?;
            }
            "DELETED" => {
                // Without a name there is nothing to be told; a listing will show it.
                if let Ok((object, resource_version)) = self.decoder.which(line.object.get()) {
                    let inputs = vec![Input::Deleted {
                        object,
                        resource_version,
                    }];
                    self.advance(&inputs, lists);
                    self.send(Report::Inputs(inputs)).await?;
                }
            }
            "BOOKMARK" => {
                let mark = bookmark(line.object).map_err(|source| CallError::Answer { source })?;
                if lists && mark.ends_list {
                    self.list_ended(mark.revision).await?;
                    return Ok(Told::ListEnded);
                }
                if !lists {
                    self.state = State::Watching(mark.revision);
                }
            }
            "ERROR" => {
                let status = serde_json::from_str(line.object.get())
                    .map_err(|source| CallError::Answer { source })?;
                return Err(CallError::Refused(Box::new(status)).into());
            }
            _ => {}
        }
        Ok(Told::Change)
    }

    /// The watch goes on from the revision of what it told last.
    fn advance(&mut self, inputs: &[Input], lists: bool) {
        let revision = inputs.iter().rev().find_map(|input| match input {
            Input::Applied(object) => Some(object.resource_version()),
            Input::Deleted {
                resource_version, ..
            } => Some(resource_version),
            _ => None,
        });
        if let Some(revision) = revision.filter(|revision| !lists && !revision.is_empty()) {
            self.state = State::Watching(revision.to_string());
        }
    }

    /// Reads an object; one that cannot be used counts as not there.
    async fn take(&mut self, raw: &str, inputs: &mut Vec<Input>) -> Result<(), Stop> {
        let kind = self.kind;
        let rejected = match self.decoder.object(raw) {
            Ok(Read { object, problem }) => {
                if self.regressed {
                    inputs.push(Input::Deleted {
                        object: object.reference(),
                        resource_version: "".into(),
                    });
                }
                inputs.push(Input::Applied(object));
                problem
            }
            Err(unreadable) => {
                let Unreadable { which, rejected } = *unreadable;
                inputs.extend(which.map(|(object, resource_version)| Input::Deleted {
                    object,
                    resource_version,
                }));
                Some(rejected)
            }
        };
        match rejected {
            Some(rejected) => self.send(Report::Rejected { kind, rejected }).await,
            None => Ok(()),
        }
    }
}

fn is_lower(revision: &str, highest: u64) -> bool {
    revision
        .parse::<u64>()
        .is_ok_and(|revision| revision < highest)
}

fn is_too_large(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.reason == "ResourceVersionTooLarge")
}

/// A query value: continue tokens are base64, of which three characters mean something there.
pub(super) fn escape(token: &str) -> String {
    token
        .replace('%', "%25")
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D")
        .replace('&', "%26")
}

/// An error with all its causes, on one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        // Some libraries repeat the cause in their own words.
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}
