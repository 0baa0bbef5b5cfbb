//! What the registry says, as inputs of the engines of this process: one fleet for all of them.

use tombolo_model::fleet::{Fleet, FleetInput};
use tombolo_model::io::{Input, Source};
use tombolo_model::record::{Origin, Record, RecordKey};
use tombolo_registry::event::{Event, ListCause, State};
use tracing::warn;

/// Who is told of something by itself, and not by what the fleet makes of it.
pub(crate) enum Audience {
    /// All clusters of this process.
    Everyone,
    /// This one, if it is of this process.
    Cluster(Origin),
}

/// Reads a subscription.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) fleet: Fleet,
    revision: u64,
    has_listed: bool,
    is_silent: bool,
}

impl Reader {
    /// Takes an event in. Returns what clusters are told of it by itself.
    pub(crate) fn take(&mut self, event: Event) -> Option<(Audience, Input)> {
        self.revision = self.revision.max(event.revision().unwrap_or(0));
        let own = Source::OwnRecords;
        match event {
            Event::ListBegan(ListCause::Regress) => {
                self.revision = 0;
                self.fleet.observe(FleetInput::Regressed);
                Some((Audience::Everyone, Input::Regressed))
            }
            Event::ListBegan(_) => {
                self.fleet.observe(FleetInput::ListBegan);
                Some((Audience::Everyone, Input::ListBegan(own)))
            }
            Event::ListEnded { revision } => {
                self.has_listed = true;
                self.fleet.observe(FleetInput::ListEnded);
                let revision = revision.to_string().into();
                let ended = Input::ListEnded {
                    source: own,
                    revision,
                };
                Some((Audience::Everyone, ended))
            }
            Event::Record {
                origin,
                key,
                state,
                revision,
            } => self.record(origin, key, state, revision),
            Event::Stray { rejection, .. } => {
                if let Some(rejection) = rejection {
                    warn!(reason = %rejection.reason, "stray key in the registry");
                }
                None
            }
            Event::Member { origin, state, .. } => {
                let member = match state {
                    State::Present(member) => Some(member),
                    State::Gone => None,
                    State::Rejected(rejection) => {
                        warn!(cluster = %origin.cluster, reason = %rejection.reason, "member refused");
                        return None;
                    }
                };
                self.fleet.observe(FleetInput::Member { origin, member });
                None
            }
            Event::Heard(is_heard) => {
                self.is_silent = !is_heard;
                Some((Audience::Everyone, Input::Heard(is_heard)))
            }
            Event::Believed => {
                self.fleet.observe(FleetInput::Believed);
                None
            }
            Event::Settings { .. } => None,
        }
    }

    fn record(
        &mut self,
        origin: Origin,
        key: RecordKey,
        state: State<Record>,
        revision: u64,
    ) -> Option<(Audience, Input)> {
        let record = match state {
            State::Present(record) => Some(record),
            State::Gone => None,
            State::Rejected(rejection) => {
                warn!(cluster = %origin.cluster, reason = %rejection.reason, "record refused");
                self.fleet.observe(FleetInput::Unreadable { origin, key });
                return None;
            }
        };
        let input = Input::OwnRecord {
            key: key.clone(),
            record: record.clone(),
            revision,
        };
        self.fleet.observe(FleetInput::Record {
            origin: origin.clone(),
            key,
            record,
        });
        Some((Audience::Cluster(origin), input))
    }

    /// What has changed for all clusters.
    pub(crate) fn drain(&mut self) -> Vec<Input> {
        let mut inputs = self.fleet.drain();
        // Nobody is woken for it.
        if !inputs.is_empty() {
            inputs.push(Input::Revision(self.revision));
        }
        inputs
    }

    /// Whether everything was listed once.
    pub(crate) fn has_listed(&self) -> bool {
        self.has_listed
    }

    /// Whether changes are not heard of at present.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }
}
