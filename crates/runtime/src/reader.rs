//! What the registry says, as inputs of the engines of this process: one fleet for all of them.

use std::collections::BTreeMap;

use tombolo_model::fleet::{Fleet, FleetInput, Refused, Rule};
use tombolo_model::io::{Input, Source};
use tombolo_model::names::{ClusterName, Region};
use tombolo_model::record::{Origin, Record, RecordKey, Settings};
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
    fleet: Fleet,
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
            Event::Settings { region, state, .. } => {
                self.settings(region, state);
                None
            }
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

    fn settings(&mut self, region: Region, state: State<Settings>) {
        let settings = match state {
            State::Present(settings) => Some(settings),
            State::Gone => None,
            State::Rejected(rejection) => {
                warn!(%region, reason = %rejection.reason, "settings refused");
                return;
            }
        };
        self.fleet
            .observe(FleetInput::Settings { region, settings });
        if self.fleet.settings_differ() {
            warn!("regions have different settings: those of the first region count");
        }
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

    /// What was refused for all clusters since the last call.
    pub(crate) fn take_refused(&mut self) -> Vec<Refused> {
        self.fleet.take_refused()
    }

    /// How often which rule refused something of which cluster, for all clusters.
    pub(crate) fn refused_total(&self) -> &BTreeMap<(ClusterName, Rule), u64> {
        self.fleet.refused_total()
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

/// Logs what was refused or doubted, but what cannot be read: that was told with the reason.
pub(crate) fn log_refused(refused: &[Refused]) {
    for Refused {
        cluster,
        rule,
        message,
    } in refused
    {
        let word = rule.as_str();
        match rule {
            Rule::Unreadable => {}
            rule if rule.is_doubt() => warn!(%cluster, rule = word, reason = %message, "doubtful"),
            _ => warn!(%cluster, rule = word, reason = %message, "refused"),
        }
    }
}
