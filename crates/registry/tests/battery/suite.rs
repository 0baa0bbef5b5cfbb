//! One battery of tests for every backend: what a registry promises, whatever it is made of.
//!
//! A test is a function over any [`Backend`], listed in `battery!`, which a test crate expands for
//! its backend. What only one backend can do is tested in that backend's test crate.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use tombolo_model::endpoint::{Conditions, Entry, EntryPort, EntryProtocol};
use tombolo_model::io::RecordWrite;
use tombolo_model::names::{ClusterName, Namespace, ObjectName, Region, ServiceKey};
use tombolo_model::record::{ExportRecord, Labels, Origin, Owner, Record, RecordKey};
use tombolo_model::service::{
    Affinity, ImportType, InternalTrafficPolicy, IpFamily, Port, Protocol,
};
use tombolo_registry::event::{Event, State};
use tombolo_registry::registry::Registry;
use tombolo_registry::session::{Claim, NewSession, Opening, TakeOver};

pub(crate) mod batches;
pub(crate) mod sessions;
pub(crate) mod single;
pub(crate) mod subscriptions;

pub(crate) const TCP: EntryProtocol = EntryProtocol::Some(Protocol::Tcp);
pub(crate) const UDP: EntryProtocol = EntryProtocol::Some(Protocol::Udp);

/// How long a test waits for what must come: long for a machine that does other things too.
const PATIENCE: Duration = Duration::from_mins(2);

/// An empty registry of its own for one test.
pub(crate) trait Backend {
    /// One cluster's access to it.
    type Registry: Registry + 'static;

    fn start() -> impl Future<Output = Self>;

    fn registry(&self, origin: &Origin) -> Self::Registry;

    /// Writes as a stranger; `None` deletes.
    fn put_raw(&self, key: &str, value: Option<&[u8]>) -> impl Future<Output = ()>;

    /// Forgets all past changes.
    fn compact(&self) -> impl Future<Output = ()>;

    /// Lets the lease of a cluster's session run out.
    fn expire(&self, origin: &Origin) -> impl Future<Output = ()>;
}

/// Expands to all tests, for a backend and a test attribute.
macro_rules! battery {
    ($backend:ty, #[$test:meta]) => {
        crate::battery::battery! {
            @modules $backend, #[$test],
            batches: [
                a_batch_is_written_in_its_order,
                a_batch_over_the_limits_is_written_whole,
                a_record_that_cannot_be_stored_refuses_the_whole_batch,
                a_batch_cannot_write_what_belongs_to_the_session,
                an_empty_batch_changes_nothing,
                ten_thousand_keys,
            ],
            sessions: [
                nothing_is_written_without_a_session,
                a_name_belongs_to_its_owner,
                a_name_is_taken_over_on_purpose,
                a_changed_owner_stops_the_writer,
                the_leader_replaces_the_session_of_its_cluster,
                a_follower_opens_only_where_no_session_stands,
                an_expired_session_is_opened_again,
                a_session_is_amended_under_its_epoch,
                synced_is_only_that_of_the_own_session,
                a_cluster_that_left_takes_everything_with_it,
                the_name_of_a_cluster_that_left_is_free_for_another,
                a_closed_registry_refuses_and_ends_its_streams,
                a_revoked_session_goes_and_a_lapsing_one_stays,
            ],
            single: [
                endpoints_are_registered_listed_and_unregistered,
                many_endpoints_are_unregistered_over_all_protocols,
                all_endpoints_of_a_protocol_are_listed,
                exports_are_set_listed_and_unset,
                configuration_is_kept_to_the_byte,
                deleting_what_is_not_there_is_no_error,
                each_cluster_writes_its_own_partition,
                the_own_prefix_is_that_of_the_keys,
                lists_go_on_past_what_does_not_decode,
                regions_are_listed_together,
            ],
            subscriptions: [
                a_listing_comes_first_then_changes,
                a_subscription_and_the_lists_agree,
                what_does_not_decode_is_told_and_stops_nothing,
                members_and_settings_are_told,
                a_reader_that_was_too_slow_misses_nothing,
                many_changes_make_one_signal,
                keys_outside_the_root_are_nothing,
            ]
        }
    };
    (@modules $backend:ty, #[$test:meta], $($module:ident: [$($name:ident,)*]),*) => {$(
        mod $module {
            $(
                #[$test]
                async fn $name() {
                    let backend = <$backend as crate::battery::Backend>::start().await;
                    crate::battery::$module::$name(&backend).await;
                }
            )*
        }
    )*};
}
pub(crate) use battery;

pub(crate) fn origin(region: &str, cluster: &str) -> Origin {
    Origin {
        region: Region::try_new(region).unwrap(),
        cluster: ClusterName::try_new(cluster).unwrap(),
    }
}

pub(crate) fn east() -> Origin {
    origin("local", "east")
}

pub(crate) fn west() -> Origin {
    origin("local", "west")
}

pub(crate) fn service(name: &str) -> ServiceKey {
    ServiceKey::new(Namespace::try_new("shop").unwrap(), ObjectName::new(name))
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(crate) fn owner(uid: &str) -> Owner {
    Owner { uid: uid.into() }
}

pub(crate) fn opening(uid: &str, holder: &str) -> Opening {
    Opening {
        owner: owner(uid),
        session: NewSession {
            holder: holder.into(),
            started: at(1_000),
            software: "0.1.0".into(),
            families: vec![IpFamily::V4],
            service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
            blind_since: None,
        },
        claim: Claim::Leader,
        take_over: TakeOver::Refuse,
    }
}

/// A cluster's registry with a session open.
pub(crate) async fn opened<B: Backend>(backend: &B, origin: &Origin) -> B::Registry {
    let registry = backend.registry(origin);
    let uid = format!("uid-of-{}", origin.cluster);
    registry.open(opening(&uid, "holder-1")).await.unwrap();
    registry
}

pub(crate) fn export(uid: &str) -> Arc<ExportRecord> {
    Arc::new(ExportRecord {
        created: at(500),
        uid: uid.into(),
        kind: ImportType::ClusterSetIp,
        ports: vec![Port {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
            app_protocol: None,
        }],
        families: vec![IpFamily::V4],
        affinity: Affinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
        labels: Labels::new(),
        annotations: Labels::new(),
    })
}

pub(crate) fn entries(port: u16) -> Arc<[Entry]> {
    Arc::new([Entry {
        ports: Arc::new([EntryPort {
            name: "http".into(),
            port,
        }]),
        hostname: None,
        zone: Some("zone-a".into()),
        conditions: Conditions::READY,
    }])
}

pub(crate) fn endpoint_key(name: &str, protocol: EntryProtocol, address: &str) -> RecordKey {
    RecordKey::Endpoint {
        service: service(name),
        protocol,
        address: ip(address),
    }
}

pub(crate) fn put(key: RecordKey, record: Record) -> RecordWrite {
    let record = Some(record);
    RecordWrite { key, record }
}

pub(crate) fn delete(key: RecordKey) -> RecordWrite {
    RecordWrite { key, record: None }
}

/// What a subscriber knows: what it was told, as [`Event`] says it has to be kept.
pub(crate) struct View {
    events: BoxStream<'static, Event>,
    pub(crate) records: BTreeMap<(Origin, RecordKey), Record>,
    /// What the listing under way has told.
    listing: Option<BTreeMap<(Origin, RecordKey), Record>>,
    /// How many listings were complete.
    pub(crate) listings: usize,
}

impl View {
    pub(crate) fn new(events: BoxStream<'static, Event>) -> Self {
        Self {
            events,
            records: BTreeMap::new(),
            listing: None,
            listings: 0,
        }
    }

    /// The next event, which must come.
    pub(crate) async fn next(&mut self) -> Event {
        let next = tokio::time::timeout(PATIENCE, self.events.next()).await;
        let event = next
            .expect("an event comes in time")
            .expect("the stream goes on");
        self.learn(&event);
        event
    }

    /// Reads on until all is told that stands at this key.
    pub(crate) async fn until(
        &mut self,
        origin: &Origin,
        key: &RecordKey,
        record: Option<&Record>,
    ) {
        let place = (origin.clone(), key.clone());
        while self.listing.is_some() || self.records.get(&place) != record {
            self.next().await;
        }
    }

    /// Reads on to the end of the listing that has begun or is to begin.
    pub(crate) async fn listed(&mut self) {
        let before = self.listings;
        while self.listings == before {
            self.next().await;
        }
    }

    fn learn(&mut self, event: &Event) {
        match event {
            Event::ListBegan(_) => self.listing = Some(BTreeMap::new()),
            Event::ListEnded { .. } => {
                self.records = self.listing.take().expect("a listing that ends has begun");
                self.listings += 1;
            }
            Event::Record {
                origin, key, state, ..
            } => {
                let known = self.listing.as_mut().unwrap_or(&mut self.records);
                let place = (origin.clone(), key.clone());
                match state {
                    State::Present(record) => known.insert(place, record.clone()),
                    State::Gone => known.remove(&place),
                    State::Rejected(_) => None,
                };
            }
            Event::Member { .. }
            | Event::Settings { .. }
            | Event::Heard(_)
            | Event::Believed
            | Event::Stray { .. } => {}
        }
    }
}
