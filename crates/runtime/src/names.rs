//! The names of one cluster: a snapshot that is fed with what is seen of its objects.
//!
//! Whoever watches the cluster gives every input here too; only ServiceImports and EndpointSlices
//! matter, and a change costs what the service that it touches holds.

use std::sync::Arc;

use jiff::Timestamp;
use tombolo_dns::{Answer, Change, Listing, Live, Query, SnapshotBuilder, Zones, answer};
use tombolo_model::io::{Input, Source};
use tombolo_model::object::{Kind, Object};

/// What a cluster's names lead to.
#[derive(Debug)]
pub(crate) struct Names {
    builder: SnapshotBuilder,
    live: Arc<Live>,
}

impl Names {
    /// Without any name yet: SERVFAIL until both kinds were listed.
    pub(crate) fn new(zones: Zones, now: Timestamp) -> Self {
        let builder = SnapshotBuilder::new(zones, serial(now));
        let live = Arc::new(Live::new(builder.current()));
        Self { builder, live }
    }

    /// Takes note of what was seen.
    pub(crate) fn observe(&mut self, input: &Input) {
        match input {
            Input::Applied(Object::ServiceImport(import)) => {
                self.builder.apply(Change::Import(import));
            }
            Input::Applied(Object::EndpointSlice(slice)) => {
                self.builder.apply(Change::Slice(slice));
            }
            Input::Deleted { object, .. } => match object.kind {
                Kind::ServiceImport => self.builder.apply(Change::ImportGone(&object.key)),
                Kind::EndpointSlice => self.builder.apply(Change::SliceGone(&object.key)),
                Kind::Namespace | Kind::Service | Kind::ServiceExport => {}
            },
            Input::ListBegan(source) => {
                if let Some(listing) = listing(*source) {
                    self.builder.apply(Change::ListBegins(listing));
                }
            }
            Input::ListEnded { source, .. } => {
                if let Some(listing) = listing(*source) {
                    self.builder.apply(Change::ListEnds(listing));
                }
            }
            Input::Applied(
                Object::Namespace(_) | Object::Service(_) | Object::ServiceExport(_),
            )
            | Input::Families(_)
            | Input::ServiceCidrs(_)
            | Input::Claims(_)
            | Input::Recorded(_)
            | Input::Fleet { .. }
            | Input::Trusted(_)
            | Input::Peers(_)
            | Input::Heard(_)
            | Input::Revision(_)
            | Input::Regressed
            | Input::OwnRecord { .. }
            | Input::Session(_)
            | Input::Outcome { .. }
            | Input::TimeOfDay(_)
            | Input::Tick => {}
        }
    }

    /// Answers from now on with what was seen until now.
    pub(crate) fn publish(&mut self, now: Timestamp) {
        if self.builder.is_dirty() {
            self.live.store(self.builder.publish(serial(now)));
        }
    }

    /// What is answered from; goes on being kept up to date.
    pub(crate) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live)
    }

    /// Answers a question as the cluster's DNS server would.
    pub(crate) fn answer(&self, query: &Query) -> Answer {
        answer(&self.live.load(), query)
    }
}

/// The serial of a zone at a time (RFC 1912 §2.2 allows seconds since the epoch).
fn serial(now: Timestamp) -> u32 {
    u32::try_from(now.as_second()).unwrap_or_default()
}

const fn listing(source: Source) -> Option<Listing> {
    match source {
        Source::Objects(Kind::ServiceImport) => Some(Listing::Imports),
        Source::Objects(Kind::EndpointSlice) => Some(Listing::Slices),
        Source::Objects(Kind::Namespace | Kind::Service | Kind::ServiceExport)
        | Source::OwnRecords => None,
    }
}
