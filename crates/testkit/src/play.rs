//! Plays random steps on a site and holds it to the oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tombolo_model::config::Config;
use tombolo_model::io::Effect;
use tombolo_model::names::{ClusterName, Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{Kind, NamespaceObject, Object, ObjectRef};
use tombolo_model::record::{RecordKey, Settings};
use tombolo_model::service::{IpFamily, Port};

use crate::apiserver::{namespace, namespace_ref};
use crate::ops::{CLUSTERS, Key, NAMESPACES, NamespaceState, Op, PeerSession, SERVICES};
use crate::oracle::{Truth, differences, expect};
use crate::registry::{Registry, origin, stated};
use crate::shapes::SliceShape;
use crate::site::{KINDS, Site};

mod hands;
mod look;
mod mail;
mod peers;

pub use hands::slice_mode;

/// The place of the site's own name in [`CLUSTERS`].
const OWN: u8 = 1;

/// A site, the registry, and what is remembered about both.
#[derive(Debug)]
pub struct Play {
    /// The cluster at work.
    pub site: Site,
    /// The registry.
    pub registry: Registry,
    /// The clusterset IPs of each import, while it exists and nobody takes them away.
    addresses: BTreeMap<Arc<str>, BTreeMap<IpFamily, IpAddr>>,
    /// Services whose addresses a hand has made free to go.
    excused: BTreeSet<ServiceKey>,
    /// Whether the registry was set back since all peers opened sessions: what was said under
    /// those that are there counts no more.
    is_restored: bool,
    /// Whether the watches have lost something since everything was listed.
    has_lost: bool,
}

/// Networks of Services in which some endpoints of the pool are.
const SERVICE_CIDRS: [&str; 2] = ["10.9.0.4/31", "fd00:9::4/127"];

/// A cluster name of the pool.
pub fn cluster(at: usize) -> ClusterName {
    ClusterName::try_new(CLUSTERS[at]).expect("the pool holds good names")
}

/// A service of the pool.
pub fn service(key: Key) -> ServiceKey {
    let namespace = Namespace::try_new(NAMESPACES[key.0]).expect("the pool holds good names");
    ServiceKey::new(namespace, ObjectName::new(SERVICES[key.1]))
}

/// The configuration of the site.
pub fn config() -> Config {
    let mut config = Config::new(cluster(OWN as usize));
    config.foreign_slice_managers = vec!["mesh.example.org".into()];
    config.known_distributions = vec!["PreferClose", "PreferSameNode"];
    config
}

impl Play {
    /// A site with its namespaces, and peers that have published everything.
    pub fn new(config: Config, families: Vec<IpFamily>) -> Self {
        let mut play = Self {
            site: Site::new(config, families),
            registry: Registry::default(),
            addresses: BTreeMap::new(),
            excused: BTreeSet::new(),
            is_restored: false,
            has_lost: false,
        };
        for at in [0, 2, 3] {
            play.peer_session(at, PeerSession::Synced);
        }
        for name in NAMESPACES {
            play.site.api.put(namespace(name));
        }
        play.site.restart(&mut play.registry, 0);
        play
    }

    /// Plays one step.
    pub fn step(&mut self, op: &Op) {
        match op {
            Op::Namespace(at, state) => self.namespace(*at, state),
            Op::Service(key, shape) => {
                let object = shape.object(service(*key));
                self.put(Object::Service(Arc::new(object)));
            }
            Op::Export(key, shape) => {
                let object = shape.object(service(*key));
                self.put(Object::ServiceExport(Arc::new(object)));
            }
            Op::Slice(key, slot, shape) => self.slice(*key, *slot, shape),
            Op::NoService(key) => self.remove(Kind::Service, service(*key)),
            Op::NoExport(key) => self.remove(Kind::ServiceExport, service(*key)),
            Op::NoSlice(key, slot) => self.remove(Kind::EndpointSlice, slot_key(*key, *slot)),
            Op::Peer(at, key, body, export) => self.peer(*at, *key, body, export),
            Op::PeerEndpoints(at, key, shape) => self.peer_endpoints(*at, *key, shape),
            Op::NoPeer(at, key) => self.no_peer(*at, *key),
            Op::PeerSession(at, state) => self.peer_session(*at, *state),
            Op::Drain(at, out) => self.registry.drain(&origin(&cluster(*at)), *out),
            Op::Grant(at, grant) => self.grant(*at, *grant),
            Op::FromJoin(precedence_from_join) => {
                let precedence_from_join = *precedence_from_join;
                let settings = Settings {
                    precedence_from_join,
                };
                self.registry.settings.push(settings);
            }
            Op::Heard(is_heard) => self.site.hear(*is_heard),
            Op::Stranger(key) => self.stranger(*key),
            Op::NoStranger(key) => self.no_stranger(*key),
            Op::ForeignImport(key) => self.foreign_import(*key),
            Op::Hand(at, edit) => self.hand(*at, *edit),
            Op::Families(families) => self.families(families),
            Op::ServiceCidrs(are_known) => self.service_cidrs(*are_known),
            Op::Deliver(count) => self.site.deliver(&self.registry, *count),
            Op::Lose(at) => self.lose(*at),
            Op::Double(at) => self.double(*at),
            Op::Shuffle(seed) => self.shuffle(*seed),
            Op::Relist(kind) => self.site.relist(KINDS[*kind], &self.registry),
            Op::RelistRegistry => self.site.relist_registry(&self.registry),
            Op::Restore(changes) => {
                self.site.pump(&self.registry);
                self.registry.restore(*changes);
                self.site.regress(&self.registry);
                self.is_restored = true;
            }
            Op::Perform(fate, count) => {
                for _ in 0..*count {
                    self.site.perform(&mut self.registry, *fate);
                }
            }
            Op::Overtake(count) => self.site.overtake(*count),
            Op::Run => self.site.run(&mut self.registry),
            Op::Wait(secs) => self.site.wait(&self.registry, *secs),
            Op::Restart(rotation) => self.site.restart(&mut self.registry, *rotation),
            Op::Disconnect => self.site.disconnect(),
            Op::Connect => self.site.connect(&mut self.registry),
            Op::Settle => self.settle(),
        }
    }

    fn put(&mut self, object: Object) {
        let namespace = namespace_ref(&object.reference().key.namespace);
        if self.site.api.get(&namespace).is_some() {
            self.site.api.put(object);
        }
    }

    fn remove(&mut self, kind: Kind, key: ServiceKey) {
        self.site.api.remove(&ObjectRef { kind, key });
    }

    fn namespace(&mut self, at: usize, state: &NamespaceState) {
        let name = Namespace::try_new(NAMESPACES[at]).expect("the pool holds good names");
        let reference = namespace_ref(&name);
        let is_terminating = matches!(
            self.site.api.get(&reference),
            Some(Object::Namespace(object)) if object.terminating
        );
        match state {
            NamespaceState::Gone => self.site.api.remove_namespace(&name),
            // A namespace that is going away never comes back but as a new one.
            NamespaceState::There(_) if is_terminating => self.site.api.remove_namespace(&name),
            NamespaceState::There(mark) => {
                self.site
                    .api
                    .put(Object::Namespace(Arc::new(NamespaceObject {
                        name,
                        labels: Arc::default(),
                        global: mark.clone(),
                        terminating: false,
                        resource_version: "".into(),
                    })));
            }
            NamespaceState::Terminating => {
                if let Some(Object::Namespace(object)) = self.site.api.get(&reference) {
                    let mut object = (**object).clone();
                    object.terminating = true;
                    self.site.api.put(Object::Namespace(Arc::new(object)));
                }
            }
        }
    }

    fn slice(&mut self, key: Key, slot: u8, shape: &SliceShape) {
        let of = service(key);
        let reference = ObjectRef {
            kind: Kind::Service,
            key: of.clone(),
        };
        let ports: Vec<Port> = match self.site.api.get(&reference) {
            Some(Object::Service(object)) => object.ports.clone(),
            _ => Vec::new(),
        };
        let object = shape.object(slot_key(key, slot), of.name.as_str(), &ports, OWN);
        self.put(Object::EndpointSlice(Arc::new(object)));
    }

    fn families(&mut self, families: &[IpFamily]) {
        self.site.api.set_families(families.to_vec());
        self.site.tell_network();
    }

    fn service_cidrs(&mut self, are_known: bool) {
        let cidrs = SERVICE_CIDRS.iter().filter(|_| are_known);
        let cidrs = cidrs.map(|cidr| cidr.parse().expect("the pool holds networks"));
        self.site.api.service_cidrs = cidrs.collect();
        self.site.tell_network();
    }

    /// Brings everything to rest and compares it with the oracle: with all clusters heard of, and
    /// with those missing that were.
    pub fn settle(&mut self) {
        let missing = self.registry.missing();
        for at in [0, 2, 3] {
            self.heal(at);
        }
        if std::mem::take(&mut self.is_restored) {
            self.site.believe();
        }
        if !std::mem::take(&mut self.has_lost) {
            self.site.follow(&mut self.registry);
            self.verify();
        }
        self.site.settle(&mut self.registry);
        self.verify();
        let missing: Vec<usize> = [0, 2, 3]
            .into_iter()
            .filter(|at| missing.contains(&cluster(*at)))
            .collect();
        if missing.is_empty() {
            return;
        }
        for at in missing {
            self.peer_session(at, PeerSession::Gone);
        }
        // Until nothing is due: the holds have ended.
        self.site.settle(&mut self.registry);
        self.verify();
    }

    /// Everything that is so, whatever the engine makes of it.
    pub fn truth(&self) -> Truth {
        let mut truth = Truth::new(
            self.site.config().clone(),
            self.site.api.families().to_vec(),
        );
        truth.service_cidrs.clone_from(&self.site.api.service_cidrs);
        for object in self.site.api.objects() {
            truth.put(object);
        }
        truth.peers = self.registry.stated();
        truth.missing = self.registry.missing();
        truth.drained = self.registry.drained();
        truth.members = self.registry.recorded();
        truth.settings = self.registry.settings_now();
        truth
    }

    fn verify(&mut self) {
        let truth = self.truth();
        let expected = expect(&truth);
        let mut lines = differences(&expected, &truth);
        let partition = self.registry.partition(&self.site.origin());
        let there = stated(&partition);
        if there != expected.records {
            lines.push(format!("records: {there:?}, wanted {:?}", expected.records));
        }
        let strays = partition.keys().filter(|key| {
            matches!(key, RecordKey::Endpoint { service, .. } if !there.contains_key(service))
        });
        lines.extend(strays.map(|key| format!("{key:?} belongs to no export")));
        lines.extend(self.moved_addresses(&truth));
        lines.extend(self.site.violations.lines().iter().cloned());
        assert!(lines.is_empty(), "{}", lines.join("\n"));
        self.verify_rest();
    }

    /// A site at rest stays at rest: told the same again, and in a new process.
    fn verify_rest(&mut self) {
        let before = self.site.actions_total;
        for kind in KINDS {
            self.site.relist(kind, &self.registry);
        }
        self.site.relist_registry(&self.registry);
        self.site.deliver(&self.registry, usize::MAX);
        let asked: Vec<_> = self.site.pending().collect();
        assert!(
            asked.is_empty() && self.site.actions_total == before,
            "told the same again, it acts: {asked:?}"
        );
        let mut twin = self.site.twin(&mut self.registry);
        twin.deliver(&self.registry, usize::MAX);
        let asked: Vec<_> = twin
            .pending()
            .filter(|action| !matches!(action.effect, Effect::Synced(_)))
            .collect();
        assert!(asked.is_empty(), "a new process acts: {asked:?}");
    }

    /// The clusterset IP does not change while the import exists.
    fn moved_addresses(&mut self, truth: &Truth) -> Vec<String> {
        let mut lines = Vec::new();
        let mut now = BTreeMap::new();
        for (key, import) in &truth.imports {
            let uid = &import.meta.uid;
            let mut known = self.addresses.remove(uid).unwrap_or_default();
            let ips = import.spec.as_ref().map_or(&[][..], |spec| &spec.ips);
            for ip in ips {
                let old = known.insert(IpFamily::of(*ip), *ip);
                if old.is_some_and(|old| old != *ip) && !self.excused.contains(key) {
                    lines.push(format!("{key}: the address moved from {old:?} to {ip}"));
                }
            }
            now.insert(Arc::clone(uid), known);
        }
        self.addresses = now;
        self.excused.clear();
        lines
    }
}

fn slot_key(key: Key, slot: u8) -> ServiceKey {
    let key = service(key);
    let name = format!("{}-{slot}", key.name);
    key.sibling(&ObjectName::new(&name))
}
