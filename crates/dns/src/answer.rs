//! The answer to a question as data: for `tombolo plan --query`, and for tests.
//!
//! The server itself writes answers straight into packets ([`crate::handle_packet`]); both use the
//! same lookup.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::find::{Found, Order, Wanted, find};
use crate::name::{QueryName, WireName, to_text};
use crate::record::{Rcode, Record, RecordData, RecordType};
use crate::snapshot::{ClusterSetIp, Headless, Host, Snapshot};
use crate::wire::{DNS_VERSION, HINFO_CPU, NAME_SERVER_LABELS};

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The name asked about.
    pub name: WireName,
    /// The type asked for.
    pub record_type: RecordType,
    /// What the order of the answers depends on; any number.
    pub seed: u64,
}

impl Query {
    /// A question with the seed 0.
    pub const fn new(name: WireName, record_type: RecordType) -> Self {
        Self {
            name,
            record_type,
            seed: 0,
        }
    }
}

/// An answer, in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How it went.
    pub rcode: Rcode,
    /// Whether it comes from one of the zones (AA).
    pub authoritative: bool,
    /// What was asked for.
    pub answers: Vec<Record>,
    /// The zone's SOA where there is no answer.
    pub authority: Vec<Record>,
    /// The addresses of the names in `answers`.
    pub additional: Vec<Record>,
}

/// Answers a question from a snapshot. `REFUSED` and not authoritative outside its zones.
pub fn answer(snapshot: &Snapshot, query: &Query) -> Answer {
    let Some(name) = QueryName::read(query.name.as_bytes()) else {
        return Answer::without_records(Rcode::FormErr, false);
    };
    let located = find(snapshot, &name, query.record_type);
    let Some((_, apex)) = located.zone else {
        return Answer::without_records(Rcode::Refused, false);
    };
    let rcode = match located.found {
        Found::Outside | Found::Transfer => Rcode::Refused,
        Found::Unsynced => Rcode::ServFail,
        Found::NoName => Rcode::NxDomain,
        _ => Rcode::NoError,
    };
    let authoritative = matches!(rcode, Rcode::NoError | Rcode::NxDomain);
    let filler = Filler {
        snapshot,
        zone: name.suffix(apex),
        service: name.suffix(located.service),
        owner: name.suffix(0),
        seed: query.seed,
        answer: Answer::without_records(rcode, authoritative),
    };
    filler.fill(&located.found)
}

impl Answer {
    const fn without_records(rcode: Rcode, authoritative: bool) -> Self {
        Self {
            rcode,
            authoritative,
            answers: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
        }
    }
}

/// Fills in an answer.
struct Filler<'a> {
    snapshot: &'a Snapshot,
    zone: &'a [u8],
    service: &'a [u8],
    owner: &'a [u8],
    seed: u64,
    answer: Answer,
}

impl Filler<'_> {
    fn fill(mut self, found: &Found<'_>) -> Answer {
        match *found {
            Found::Outside | Found::Transfer | Found::Unsynced => {}
            Found::NoName | Found::NoData => {
                let soa = self.record(self.zone, self.soa());
                self.answer.authority.push(soa);
            }
            Found::Any => self.push(RecordData::Hinfo(HINFO_CPU.to_owned())),
            Found::Soa => self.push(self.soa()),
            Found::Ns => self.name_server(),
            Found::Version => self.push(RecordData::Txt(DNS_VERSION.to_owned())),
            Found::V4(ips) => {
                for index in Order::new(self.seed, ips.len()) {
                    self.push(RecordData::A(ips[index]));
                }
            }
            Found::V6(ips) => {
                for index in Order::new(self.seed, ips.len()) {
                    self.push(RecordData::Aaaa(ips[index]));
                }
            }
            Found::Ports(service, wanted) => self.ports(service, wanted),
            Found::HostPorts(service, wanted) => self.host_ports(service, wanted),
        }
        self.answer
    }

    fn record(&self, owner: &[u8], data: RecordData) -> Record {
        Record {
            name: to_text(owner),
            ttl_secs: self.snapshot.zones().ttl_secs(),
            data,
        }
    }

    fn push(&mut self, data: RecordData) {
        let record = self.record(self.owner, data);
        self.answer.answers.push(record);
    }

    fn soa(&self) -> RecordData {
        RecordData::Soa {
            serial: self.snapshot.serial(),
            minimum_secs: self.snapshot.zones().ttl_secs(),
        }
    }

    fn name_server(&mut self) {
        let name = [NAME_SERVER_LABELS, self.zone].concat();
        self.push(RecordData::Ns(to_text(&name)));
        let zones = self.snapshot.zones();
        self.additional(&name, zones.server_v4(), zones.server_v6());
    }

    fn additional(&mut self, owner: &[u8], v4: &[Ipv4Addr], v6: &[Ipv6Addr]) {
        let v4 = v4.iter().map(|ip| RecordData::A(*ip));
        for data in v4.chain(v6.iter().map(|ip| RecordData::Aaaa(*ip))) {
            let record = self.record(owner, data);
            self.answer.additional.push(record);
        }
    }

    fn ports(&mut self, service: &ClusterSetIp, wanted: Wanted) {
        let numbers = match wanted {
            Wanted::All => service.numbers.to_vec(),
            Wanted::Port(port) => vec![service.ports[usize::from(port)].number],
        };
        for port in numbers {
            let target = to_text(self.service);
            self.push(RecordData::Srv { port, target });
        }
        self.additional(self.service, &service.v4, &service.v6);
    }

    fn host_ports(&mut self, service: &Headless, wanted: Wanted) {
        for index in Order::new(self.seed, service.host_count()) {
            let host = service.host(index);
            let target = [host.label, host.cluster, self.service].concat();
            if target.len() > crate::name::NAME_LEN_MAX {
                continue;
            }
            let before = self.answer.answers.len();
            for port in numbers(host, wanted) {
                let target = to_text(&target);
                self.push(RecordData::Srv { port, target });
            }
            if self.answer.answers.len() > before {
                self.additional(&target, host.v4, host.v6);
            }
        }
    }
}

/// The numbers of the wanted ports of a host, each once.
pub(crate) fn numbers(host: Host<'_>, wanted: Wanted) -> impl Iterator<Item = u16> {
    let (all, one): (&[u16], &[(u16, u16)]) = match wanted {
        Wanted::All => (host.numbers(), &[]),
        Wanted::Port(port) => (&[], host.numbers_of(port)),
    };
    all.iter()
        .copied()
        .chain(one.iter().map(|&(_, number)| number))
}
