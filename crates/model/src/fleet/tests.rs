//! What counts as known, and what as gone (DESIGN §2.2).

use std::net::IpAddr;

use jiff::Timestamp;

use super::*;
use crate::endpoint::{Entry, EntryProtocol};
use crate::names::{Namespace, ObjectName};
use crate::presence::{Peer, PeerSession};
use crate::record::{Labels, Session};
use crate::service::{Affinity, ImportType, InternalTrafficPolicy, IpFamily};

/// A reader and what is there to read.
#[derive(Default)]
struct Reader {
    fleet: Fleet,
}

fn service() -> ServiceKey {
    ServiceKey::new(
        Namespace::try_new("shop").unwrap(),
        ObjectName::new("search"),
    )
}

fn origin(region: &str, cluster: &str) -> Origin {
    Origin {
        region: Region::try_new(region).unwrap(),
        cluster: ClusterName::try_new(cluster).unwrap(),
    }
}

fn export(uid: &str) -> Record {
    Record::Export(Arc::new(ExportRecord {
        created: Timestamp::UNIX_EPOCH,
        uid: uid.into(),
        kind: ImportType::Headless,
        ports: Vec::new(),
        families: vec![IpFamily::V4],
        affinity: Affinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
        labels: Labels::new(),
        annotations: Labels::new(),
    }))
}

fn session(epoch: u64) -> Record {
    Record::Session(Session {
        holder: "pod".into(),
        epoch,
        started: Timestamp::UNIX_EPOCH,
        software: "test".into(),
        schema: 1,
        families: vec![IpFamily::V4],
        service_cidrs: Vec::new(),
        blind_since: None,
    })
}

impl Reader {
    /// A reader that has listed an empty registry.
    fn new() -> Self {
        let mut reader = Self::default();
        reader.list(|_| ());
        reader
    }

    /// A reader of a cluster `k` that is synced and exports the service.
    fn with_k() -> Self {
        let mut reader = Self::new();
        let k = origin("local", "k");
        reader.put(&k, RecordKey::Session, session(1));
        reader.put(&k, RecordKey::Export(service()), export("k"));
        reader.put(&k, RecordKey::Synced, Record::Synced(1));
        reader
    }

    fn put(&mut self, origin: &Origin, key: RecordKey, record: Record) {
        self.set(origin, key, Some(record));
    }

    fn delete(&mut self, origin: &Origin, key: RecordKey) {
        self.set(origin, key, None);
    }

    fn set(&mut self, origin: &Origin, key: RecordKey, record: Option<Record>) {
        self.fleet.observe(FleetInput::Record {
            origin: origin.clone(),
            key,
            record,
        });
    }

    fn list(&mut self, show: impl FnOnce(&mut Self)) {
        self.fleet.observe(FleetInput::ListBegan);
        show(self);
        self.fleet.observe(FleetInput::ListEnded);
    }

    /// The UIDs of the exports of the service that are in use.
    fn exports(&mut self) -> Vec<String> {
        self.fleet.drain();
        let state = self.fleet.services.get(&service());
        let clusters = state
            .into_iter()
            .flat_map(|state| state.clusters().values());
        clusters.map(|c| c.export.uid.to_string()).collect()
    }

    fn trusted(&mut self) -> Vec<String> {
        self.fleet.drain();
        self.fleet.trusted.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn nothing_is_told_before_a_first_listing_is_complete() {
    let mut fleet = Fleet::default();
    fleet.observe(FleetInput::ListBegan);
    fleet.observe(FleetInput::Record {
        origin: origin("local", "k"),
        key: RecordKey::Export(service()),
        record: Some(export("k")),
    });
    assert!(fleet.drain().is_empty());
    fleet.observe(FleetInput::ListEnded);
    let inputs = fleet.drain();
    assert!(matches!(
        inputs[..],
        [
            Input::Fleet { state: Some(_), .. },
            Input::Claims(_),
            Input::Trusted(_),
            Input::Recorded(_),
            Input::Peers(_)
        ]
    ));
    assert!(fleet.drain().is_empty());
}

#[test]
fn a_record_that_a_synced_cluster_deleted_is_withdrawn() {
    let mut reader = Reader::with_k();
    assert_eq!(reader.exports(), ["k"]);
    reader.delete(&origin("local", "k"), RecordKey::Export(service()));
    assert!(reader.exports().is_empty());
}

#[test]
fn what_a_listing_does_not_show_is_withdrawn_if_the_cluster_is_synced() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    reader.list(|r| {
        r.put(&k, RecordKey::Session, session(1));
        r.put(&k, RecordKey::Synced, Record::Synced(1));
    });
    assert!(reader.exports().is_empty());
}

#[test]
fn the_records_of_an_emptied_registry_stay_in_use() {
    let mut reader = Reader::with_k();
    reader.list(|_| ());
    assert_eq!(reader.exports(), ["k"]);
    assert!(reader.trusted().is_empty());
}

#[test]
fn absence_is_trusted_again_once_the_new_session_has_published_all() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    reader.list(|r| {
        r.put(&k, RecordKey::Session, session(2));
        r.put(&k, RecordKey::Synced, Record::Synced(1));
    });
    assert_eq!(reader.exports(), ["k"]);
    reader.put(&k, RecordKey::Synced, Record::Synced(2));
    assert!(reader.exports().is_empty());
    assert_eq!(reader.trusted(), ["k"]);
}

#[test]
fn what_a_backup_says_was_published_is_not_what_was_published_since() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    assert_eq!(reader.exports(), ["k"]);
    // The backup is of before the export; the session of then still stands there.
    reader.fleet.observe(FleetInput::Regressed);
    reader.list(|r| {
        r.put(&k, RecordKey::Session, session(1));
        r.put(&k, RecordKey::Synced, Record::Synced(1));
    });
    assert_eq!(reader.exports(), ["k"]);
    assert!(reader.trusted().is_empty());
    // Its cluster has noticed.
    reader.put(&k, RecordKey::Session, session(2));
    assert_eq!(reader.exports(), ["k"]);
    reader.put(&k, RecordKey::Synced, Record::Synced(2));
    assert!(reader.exports().is_empty());
    assert_eq!(reader.trusted(), ["k"]);
}

#[test]
fn a_session_that_is_still_there_long_after_a_regress_is_believed() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    reader.fleet.observe(FleetInput::Regressed);
    // The listing is interrupted.
    reader.fleet.observe(FleetInput::ListBegan);
    for _ in 0..2 {
        reader.list(|r| {
            r.put(&k, RecordKey::Session, session(1));
            r.put(&k, RecordKey::Synced, Record::Synced(1));
        });
        assert_eq!(reader.exports(), ["k"]);
    }
    reader.fleet.observe(FleetInput::Believed);
    assert!(reader.exports().is_empty());
    assert_eq!(reader.trusted(), ["k"]);
}

#[test]
fn a_cluster_without_a_session_keeps_its_records() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    reader.delete(&k, RecordKey::Session);
    reader.delete(&k, RecordKey::Export(service()));
    assert_eq!(reader.exports(), ["k"]);
}

#[test]
fn left_takes_everything_out_without_a_session() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    reader.delete(&k, RecordKey::Session);
    reader.delete(&k, RecordKey::Export(service()));
    let owner = crate::record::Owner { uid: "uid".into() };
    reader.put(&k, RecordKey::Left, Record::Left(owner));
    assert!(reader.exports().is_empty());
    assert_eq!(reader.trusted(), ["k"]);
}

#[test]
fn a_new_value_counts_at_once_also_of_a_cluster_that_is_not_synced() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    reader.put(&k, RecordKey::Session, session(2));
    reader.put(&k, RecordKey::Export(service()), export("k2"));
    assert_eq!(reader.exports(), ["k2"]);
}

#[test]
fn endpoints_are_held_like_exports() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    let key = RecordKey::Endpoint {
        service: service(),
        protocol: EntryProtocol::None,
        address: IpAddr::from([10, 0, 0, 1]),
    };
    let entry = Entry {
        ports: [].into(),
        hostname: None,
        zone: None,
        conditions: crate::endpoint::Conditions::READY,
    };
    reader.put(&k, key.clone(), Record::Endpoint([entry].into()));
    let count = |reader: &mut Reader| {
        reader.fleet.drain();
        reader.fleet.services[&service()].clusters()["k"]
            .endpoints
            .len()
    };
    assert_eq!(count(&mut reader), 1);
    reader.put(&k, RecordKey::Session, session(2));
    reader.delete(&k, key);
    assert_eq!(count(&mut reader), 1);
    reader.put(&k, RecordKey::Synced, Record::Synced(2));
    assert_eq!(count(&mut reader), 0);
}

#[test]
fn of_two_regions_with_one_name_the_first_counts_alone() {
    let mut reader = Reader::new();
    let (east, west) = (origin("east", "k"), origin("west", "k"));
    reader.put(&west, RecordKey::Session, session(1));
    reader.put(&west, RecordKey::Export(service()), export("west"));
    assert_eq!(reader.exports(), ["west"]);
    reader.put(&east, RecordKey::Session, session(2));
    assert!(reader.exports().is_empty());
    reader.put(&east, RecordKey::Export(service()), export("east"));
    assert_eq!(reader.exports(), ["east"]);
    // Once the first is gone, by the rule, the other one counts.
    reader.put(&east, RecordKey::Synced, Record::Synced(2));
    reader.delete(&east, RecordKey::Export(service()));
    assert!(reader.exports().is_empty());
    reader.delete(&east, RecordKey::Synced);
    reader.delete(&east, RecordKey::Session);
    assert_eq!(reader.exports(), ["west"]);
}

#[test]
fn the_same_state_is_shared_not_made_again() {
    let mut reader = Reader::with_k();
    reader.fleet.drain();
    let before = Arc::clone(&reader.fleet.services[&service()]);
    let k = origin("local", "k");
    reader.put(&k, RecordKey::Export(service()), export("k2"));
    reader.put(&k, RecordKey::Export(service()), export("k"));
    let inputs = reader.fleet.drain();
    let [
        Input::Fleet {
            state: Some(state), ..
        },
    ] = &inputs[..]
    else {
        panic!("one service changed: {inputs:?}");
    };
    assert!(Arc::ptr_eq(state, &before));
}

#[test]
fn a_snapshot_is_what_was_told() {
    let mut reader = Reader::with_k();
    reader.fleet.drain();
    let told = reader.fleet.snapshot();
    let [
        Input::Fleet { .. },
        Input::Claims(_),
        Input::Trusted(trusted),
        Input::Recorded(_),
        Input::Peers(peers),
    ] = &told[..]
    else {
        panic!("one service, who is trusted, and who is there: {told:?}");
    };
    assert_eq!((trusted.len(), peers.len()), (1, 1));
}

#[test]
fn a_listing_that_begins_again_in_the_middle_voids_the_first() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    reader.fleet.observe(FleetInput::ListBegan);
    reader.put(&k, RecordKey::Session, session(1));
    reader.put(&k, RecordKey::Synced, Record::Synced(1));
    reader.put(&k, RecordKey::Export(service()), export("k"));
    // Meanwhile the export is withdrawn; the listing begins again.
    reader.list(|reader| {
        reader.put(&k, RecordKey::Session, session(1));
        reader.put(&k, RecordKey::Synced, Record::Synced(1));
    });
    assert_eq!(reader.exports(), Vec::<String>::new());
}

fn member(drained: bool) -> Member {
    Member {
        joined: Timestamp::UNIX_EPOCH,
        cidrs: Vec::new(),
        namespaces: Vec::new(),
        drained,
    }
}

impl Reader {
    fn peers(&mut self) -> Vec<(String, Peer)> {
        self.fleet.drain();
        let peers = self.fleet.peers.iter();
        peers
            .map(|(name, peer)| (name.to_string(), *peer))
            .collect()
    }

    fn drained(&mut self, origin: &Origin, member: Option<Member>) {
        let origin = origin.clone();
        self.fleet.observe(FleetInput::Member { origin, member });
    }
}

#[test]
fn a_cluster_is_what_its_session_and_the_operator_say() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    let is = |session, drained| vec![("k".to_owned(), Peer { session, drained })];
    assert_eq!(reader.peers(), is(PeerSession::Live, false));
    reader.drained(&k, Some(member(true)));
    assert_eq!(reader.peers(), is(PeerSession::Live, true));
    let since = Timestamp::UNIX_EPOCH;
    let Record::Session(mut blind) = session(1) else {
        panic!("it is a session");
    };
    blind.blind_since = Some(since);
    reader.put(&k, RecordKey::Session, Record::Session(blind));
    assert_eq!(reader.peers(), is(PeerSession::Blind(since), true));
    reader.delete(&k, RecordKey::Session);
    assert_eq!(reader.peers(), is(PeerSession::Missing, true));
    // A member of another region is another cluster.
    reader.drained(&k, None);
    reader.drained(&origin("eu", "k"), Some(member(true)));
    assert_eq!(reader.peers(), is(PeerSession::Missing, false));
    reader.drained(&k, Some(member(true)));
    assert_eq!(reader.peers(), is(PeerSession::Missing, true));
    // What the operator has deleted is not listed any more.
    reader.list(|reader| {
        reader.put(&k, RecordKey::Export(service()), export("k"));
    });
    assert_eq!(reader.peers(), is(PeerSession::Missing, false));
}

#[test]
fn a_session_that_is_put_back_as_it_was_is_there() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    let live = |reader: &mut Reader| {
        let peers = reader.peers();
        let is_live = |(_, peer): &(String, Peer)| peer.session == PeerSession::Live;
        peers.iter().any(is_live)
    };
    assert!(live(&mut reader));
    reader.delete(&k, RecordKey::Session);
    assert!(!live(&mut reader));
    // As a replicator does when it is replaced: the same bytes, under another lease.
    reader.put(&k, RecordKey::Session, session(1));
    assert!(live(&mut reader));
}

#[test]
fn who_has_left_states_nothing_whatever_stands_there_yet() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    assert_eq!(reader.exports(), ["k"]);
    let left = Record::Left(crate::record::Owner { uid: "u".into() });
    reader.put(&k, RecordKey::Left, left);
    assert_eq!(reader.exports(), Vec::<String>::new());
    assert_eq!(reader.peers(), vec![]);
    reader.delete(&k, RecordKey::Left);
    assert_eq!(reader.exports(), ["k"]);
}

fn refused(reader: &mut Reader) -> Vec<(Rule, String)> {
    reader.fleet.drain();
    let refused = reader.fleet.take_refused().into_iter();
    refused
        .map(|refused| (refused.rule, refused.message))
        .collect()
}

fn endpoint_at(address: &str) -> RecordKey {
    RecordKey::Endpoint {
        service: service(),
        protocol: EntryProtocol::None,
        address: address.parse().unwrap(),
    }
}

fn endpoint() -> Record {
    let entry = Entry {
        ports: Arc::default(),
        hostname: None,
        zone: None,
        conditions: crate::endpoint::Conditions::READY,
    };
    Record::Endpoint(vec![entry].into())
}

fn addresses(reader: &mut Reader) -> Vec<String> {
    reader.fleet.drain();
    let state = reader.fleet.services.get(&service());
    let clusters = state
        .into_iter()
        .flat_map(|state| state.clusters().values());
    let endpoints = clusters.flat_map(|cluster| cluster.endpoints.iter());
    endpoints
        .map(|endpoint| endpoint.address.to_string())
        .collect()
}

#[test]
fn an_export_that_no_service_could_be_leaves_the_last_one_in_use() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    assert_eq!(reader.exports(), ["k"]);
    let Record::Export(good) = export("bad") else {
        panic!("it is an export");
    };
    let mut bad = (*good).clone();
    bad.families.clear();
    reader.put(
        &k,
        RecordKey::Export(service()),
        Record::Export(Arc::new(bad)),
    );
    assert_eq!(reader.exports(), ["k"]);
    let said = "export shop/search: it has no IP family".to_owned();
    assert_eq!(refused(&mut reader), [(Rule::Export, said)]);
    let key = RecordKey::Export(service());
    let origin = k;
    reader.fleet.observe(FleetInput::Unreadable { origin, key });
    assert_eq!(reader.exports(), ["k"]);
    assert_eq!(refused(&mut reader)[0].0, Rule::Unreadable);
    let total: u64 = reader.fleet.refused_total().values().sum();
    assert_eq!(total, 2);
}

#[test]
fn an_address_that_no_endpoint_can_have_is_not_there() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    for address in [
        "127.0.0.1",
        "169.254.0.1",
        "224.0.0.1",
        "::",
        "::ffff:10.0.0.1",
    ] {
        reader.put(&k, endpoint_at(address), endpoint());
        assert_eq!(addresses(&mut reader), Vec::<String>::new());
        assert_eq!(refused(&mut reader)[0].0, Rule::Address, "{address}");
    }
    reader.put(&k, endpoint_at("10.0.0.1"), endpoint());
    assert_eq!(addresses(&mut reader), ["10.0.0.1"]);
    assert_eq!(refused(&mut reader), []);
}

#[test]
fn what_is_outside_of_the_operators_limits_is_dropped_and_comes_back_with_them() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    for address in ["10.0.0.1", "10.1.0.1"] {
        reader.put(&k, endpoint_at(address), endpoint());
    }
    let limits = |cidrs: &[&str], namespaces: &[&str]| {
        let mut member = member(false);
        member.cidrs = cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect();
        let names = namespaces.iter();
        member.namespaces = names
            .map(|name| Namespace::try_new(name).unwrap())
            .collect();
        Some(member)
    };
    reader.drained(&k, limits(&["10.1.0.0/16"], &[]));
    assert_eq!(addresses(&mut reader), ["10.1.0.1"]);
    let said = refused(&mut reader);
    assert_eq!(said[0].0, Rule::Network);
    assert!(
        said[0]
            .1
            .starts_with("1 endpoints of shop/search, 10.0.0.1 the first"),
        "{said:?}"
    );
    reader.drained(&k, limits(&[], &["pay"]));
    assert_eq!(reader.exports(), Vec::<String>::new());
    assert_eq!(refused(&mut reader)[0].0, Rule::Namespace);
    reader.drained(&k, limits(&[], &["pay", "shop"]));
    assert_eq!(addresses(&mut reader), ["10.0.0.1", "10.1.0.1"]);
    assert_eq!(refused(&mut reader), []);
    reader.drained(&k, limits(&["10.1.0.0/16"], &[]));
    reader.drained(&k, None);
    assert_eq!(addresses(&mut reader), ["10.0.0.1", "10.1.0.1"]);
}

#[test]
fn the_settings_of_the_region_that_sorts_first_count() {
    let mut reader = Reader::with_k();
    let k = origin("local", "k");
    reader.drained(&k, Some(member(false)));
    let counts = |reader: &mut Reader| {
        reader.fleet.drain();
        let told = reader.fleet.recorded.settings.precedence_from_join;
        let service = &reader.fleet.services[&service()];
        let joined = service.clusters()["k"].joined.unwrap().counts;
        assert_eq!(joined, told);
        (joined, reader.fleet.settings_differ())
    };
    let set = |reader: &mut Reader, region: &str, from_join: Option<bool>| {
        reader.fleet.observe(FleetInput::Settings {
            region: Region::try_new(region).unwrap(),
            settings: from_join.map(|precedence_from_join| Settings {
                precedence_from_join,
            }),
        });
    };
    assert_eq!(counts(&mut reader), (false, false));
    set(&mut reader, "b", Some(true));
    assert_eq!(counts(&mut reader), (true, false));
    set(&mut reader, "a", Some(false));
    assert_eq!(counts(&mut reader), (false, true));
    set(&mut reader, "a", None);
    assert_eq!(counts(&mut reader), (true, false));
    // A listing that does not show them.
    reader.list(|r| {
        r.put(&k, RecordKey::Session, session(1));
        r.put(&k, RecordKey::Export(service()), export("k"));
        r.put(&k, RecordKey::Synced, Record::Synced(1));
        r.drained(&k, Some(member(false)));
    });
    assert_eq!(counts(&mut reader), (false, false));
}
