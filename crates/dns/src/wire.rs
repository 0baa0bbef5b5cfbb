//! Writes answers straight into packets: names as pointers into the question, no allocation but
//! the caller's buffer growing once.
//!
//! A record's owner is the question's name, so it is two octets. The target of an SRV record is
//! written in full (RFC 2782 forbids a pointer there), and the addresses beside it point at it.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::answer::numbers;
use crate::find::{Found, Located, Order, Wanted, find};
use crate::name::NAME_LEN_MAX;
use crate::packet::{Edns, HEADER_LEN, Head, Parsed, Request, UDP_LEN_MIN, parse};
use crate::record::{Rcode, RecordType};
use crate::snapshot::{ClusterSetIp, Headless, Snapshot};

/// The version of the DNS schema (KEP-1645, DNS specification §2.2).
pub(crate) const DNS_VERSION: &str = mcs_api::well_known::DNS_VERSION;

/// What ANY gets (RFC 8482 §4.2).
pub(crate) const HINFO_CPU: &str = "RFC8482";

/// The zone's name server, below the zone.
pub(crate) const NAME_SERVER_LABELS: &[u8] = b"\x02ns\x03dns";

/// The zone's mailbox, below the zone.
const HOSTMASTER_LABELS: &[u8] = b"\x0ahostmaster";

/// Timers of the SOA: no secondary server takes part, so these are only customary values.
const SOA_REFRESH_RETRY_EXPIRE_SECS: [u32; 3] = [7_200, 1_800, 86_400];

/// All SRV records are alike (RFC 2782: a weight above zero where there are several).
const SRV_PRIORITY: u16 = 0;
const SRV_WEIGHT: u16 = 100;

/// The largest packet that we send over UDP by default, and say so in EDNS: what passes common
/// links without fragments (DNS flag day 2020).
pub const UDP_LEN_DEFAULT: u16 = 1_232;

/// The largest message over TCP.
pub(crate) const TCP_LEN_MAX: usize = 65_535;

/// Pointers have 14 bits.
const POINTER_MAX: usize = 0x3fff;

/// Octets of a record besides its owner and data.
const RECORD_FIXED_LEN: usize = 10;

/// Octets of the OPT record of an answer.
const OPT_LEN: usize = 11;

/// Bits of an answer's header.
const BIT_QR: u8 = 0x80;
const BIT_AA: u8 = 0x04;
const BIT_TC: u8 = 0x02;
const BIT_RA: u8 = 0x80;

/// How a packet came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// In a datagram: short answers, or TC.
    Udp,
    /// In a stream: as much as fits a message.
    Tcp,
}

/// What an answer depends on besides the snapshot and the packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketContext {
    /// How the packet came.
    pub transport: Transport,
    /// The largest answer over UDP, whatever the client offers.
    pub udp_len_max: u16,
    /// Whether names outside the zones are forwarded: sets RA.
    pub forwards: bool,
    /// What the order of the answers depends on; another for each packet.
    pub seed: u64,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It gets no answer.
    Silent,
    /// The answer is in the buffer.
    Answered(Answered),
    /// Outside the zones, to be forwarded; the buffer holds the refusal for when it cannot be.
    Forward(Answered),
}

/// What an answer was, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The zone, by its index in [`crate::Zones::names`].
    pub zone: Option<usize>,
    /// The type asked for; `None` where the question could not be read.
    pub record_type: Option<RecordType>,
    /// The response code.
    pub rcode: Rcode,
    /// Whether TC is set.
    pub truncated: bool,
}

/// Answers a packet into `out`, which is cleared first. Never panics, whatever the packet; never
/// writes more than the transport takes.
pub fn handle_packet(
    snapshot: &Snapshot,
    packet: &[u8],
    context: PacketContext,
    out: &mut Vec<u8>,
) -> Outcome {
    out.clear();
    match parse(packet) {
        Parsed::Silent => Outcome::Silent,
        Parsed::Failed(head, rcode) => {
            write_header(out, head, rcode, context);
            Outcome::Answered(Answered {
                zone: None,
                record_type: None,
                rcode,
                truncated: false,
            })
        }
        Parsed::Declined(request, rcode) => {
            let mut writer = Writer::start(snapshot, &request, context, out);
            writer.finish(rcode, false);
            Outcome::Answered(writer.answered(None, rcode))
        }
        Parsed::Request(request) => {
            let located = find(snapshot, &request.name, request.record_type);
            let outside = context.forwards && matches!(located.found, Found::Outside);
            let mut writer = Writer::start(snapshot, &request, context, out);
            let answered = writer.answer(&located);
            if outside {
                Outcome::Forward(answered)
            } else {
                Outcome::Answered(answered)
            }
        }
    }
}

/// A header with all counts zero.
fn write_header(out: &mut Vec<u8>, head: Head, rcode: Rcode, context: PacketContext) {
    let rcode = u8::try_from(rcode.number() & 0x0f).unwrap_or_default();
    let recursion = if context.forwards { BIT_RA } else { 0 };
    out.extend_from_slice(&head.id);
    out.push(BIT_QR | head.operation | head.recursion_desired);
    out.push(recursion | head.checking_disabled | rcode);
    out.extend_from_slice(&[0; HEADER_LEN - 4]);
}

/// Writes one answer.
struct Writer<'a> {
    snapshot: &'a Snapshot,
    request: &'a Request<'a>,
    context: PacketContext,
    out: &'a mut Vec<u8>,
    /// How long the answer may become, room for the OPT record left aside.
    limit: usize,
    ttl: [u8; 4],
    answers: u16,
    authority: u16,
    additional: u16,
    truncated: bool,
}

impl<'a> Writer<'a> {
    /// Starts with the header and the question as it came.
    fn start(
        snapshot: &'a Snapshot,
        request: &'a Request<'a>,
        context: PacketContext,
        out: &'a mut Vec<u8>,
    ) -> Self {
        let limit = match (context.transport, request.edns) {
            (Transport::Tcp, _) => TCP_LEN_MAX,
            (Transport::Udp, None) => UDP_LEN_MIN,
            (Transport::Udp, Some(edns)) => {
                let own = usize::from(context.udp_len_max).max(UDP_LEN_MIN);
                edns.udp_len.min(own)
            }
        };
        write_header(out, request.head, Rcode::NoError, context);
        out.extend_from_slice(request.question);
        Self {
            snapshot,
            request,
            context,
            out,
            limit: limit - request.edns.map_or(0, |_| OPT_LEN),
            ttl: snapshot.zones().ttl_secs().to_be_bytes(),
            answers: 0,
            authority: 0,
            additional: 0,
            truncated: false,
        }
    }

    /// Writes the answer to what was found.
    fn answer(&mut self, located: &Located<'_>) -> Answered {
        let rcode = match located.found {
            Found::Outside | Found::Transfer => Rcode::Refused,
            Found::Unsynced => Rcode::ServFail,
            Found::NoName => Rcode::NxDomain,
            _ => Rcode::NoError,
        };
        let apex = located.zone.map_or(0, |(_, apex)| apex);
        match located.found {
            Found::Outside | Found::Transfer | Found::Unsynced => {}
            Found::NoName | Found::NoData => {
                let owner = self.pointer_to(apex);
                self.authority += self.soa(owner);
            }
            Found::Soa => {
                let owner = self.pointer_to(apex);
                self.answers += self.soa(owner);
            }
            Found::Any => self.hinfo(),
            Found::Ns => self.name_server(),
            Found::Version => self.version(),
            Found::V4(ips) => self.all_v4(ips),
            Found::V6(ips) => self.all_v6(ips),
            Found::Ports(service, wanted) => self.ports(service, wanted, located.service),
            Found::HostPorts(service, wanted) => self.host_ports(service, wanted, located.service),
        }
        let authoritative = matches!(rcode, Rcode::NoError | Rcode::NxDomain);
        self.finish(rcode, authoritative);
        self.answered(located.zone.map(|(zone, _)| zone), rcode)
    }

    fn answered(&self, zone: Option<usize>, rcode: Rcode) -> Answered {
        Answered {
            zone,
            record_type: Some(self.request.record_type),
            rcode,
            truncated: self.truncated,
        }
    }

    /// Adds the OPT record and fills in the header.
    fn finish(&mut self, rcode: Rcode, authoritative: bool) {
        if let Some(edns) = self.request.edns {
            self.opt(edns, rcode);
        }
        if authoritative {
            self.out[2] |= BIT_AA;
        }
        if self.truncated {
            self.out[2] |= BIT_TC;
        }
        self.out[3] |= u8::try_from(rcode.number() & 0x0f).unwrap_or_default();
        let counts = [1, self.answers, self.authority, self.additional];
        for (index, count) in counts.into_iter().enumerate() {
            let at = 4 + 2 * index;
            self.out[at..at + 2].copy_from_slice(&count.to_be_bytes());
        }
    }

    fn opt(&mut self, edns: Edns, rcode: Rcode) {
        let extended = u8::try_from(rcode.number() >> 4).unwrap_or_default();
        let udp_len = self.context.udp_len_max.to_be_bytes();
        let flags = if edns.dnssec_ok { 0x80 } else { 0 };
        self.out
            .extend_from_slice(&[0, 0, 41, udp_len[0], udp_len[1]]);
        self.out.extend_from_slice(&[extended, 0, flags, 0, 0, 0]);
        self.additional += 1;
    }

    /// A pointer to the question's name from label `index` on.
    fn pointer_to(&self, index: usize) -> [u8; 2] {
        pointer(HEADER_LEN + self.request.name.start(index))
    }

    /// Writes what stands before a record's data. False, with nothing written, if it does not fit.
    fn record(&mut self, owner: [u8; 2], record_type: RecordType, data_len: usize) -> bool {
        let len = owner.len() + RECORD_FIXED_LEN + data_len;
        if self.out.len() + len > self.limit {
            return false;
        }
        let [type_high, type_low] = record_type.0.to_be_bytes();
        let [t0, t1, t2, t3] = self.ttl;
        let data_len = u16::try_from(data_len).unwrap_or(u16::MAX).to_be_bytes();
        self.out.extend_from_slice(&[
            owner[0],
            owner[1],
            type_high,
            type_low,
            0,
            1,
            t0,
            t1,
            t2,
            t3,
            data_len[0],
            data_len[1],
        ]);
        true
    }

    fn v4(&mut self, owner: [u8; 2], ip: Ipv4Addr) -> bool {
        let fits = self.record(owner, RecordType::A, 4);
        if fits {
            self.out.extend_from_slice(&ip.octets());
        }
        fits
    }

    fn v6(&mut self, owner: [u8; 2], ip: Ipv6Addr) -> bool {
        let fits = self.record(owner, RecordType::AAAA, 16);
        if fits {
            self.out.extend_from_slice(&ip.octets());
        }
        fits
    }

    /// Counts an answer, or notes that it did not fit. Over TCP what fits is the answer.
    fn counted(&mut self, fits: bool) -> bool {
        if fits {
            self.answers += 1;
        } else {
            self.truncated = self.context.transport == Transport::Udp;
        }
        fits
    }

    fn all_v4(&mut self, ips: &[Ipv4Addr]) {
        let owner = self.pointer_to(0);
        for index in Order::new(self.context.seed, ips.len()) {
            let fits = self.v4(owner, ips[index]);
            if !self.counted(fits) {
                break;
            }
        }
    }

    fn all_v6(&mut self, ips: &[Ipv6Addr]) {
        let owner = self.pointer_to(0);
        for index in Order::new(self.context.seed, ips.len()) {
            let fits = self.v6(owner, ips[index]);
            if !self.counted(fits) {
                break;
            }
        }
    }

    /// Adds the addresses of a name in the answer section, as far as they fit.
    fn beside(&mut self, owner: [u8; 2], v4: &[Ipv4Addr], v6: &[Ipv6Addr]) -> bool {
        for &ip in v4 {
            if !self.v4(owner, ip) {
                return false;
            }
            self.additional += 1;
        }
        for &ip in v6 {
            if !self.v6(owner, ip) {
                return false;
            }
            self.additional += 1;
        }
        true
    }

    /// Writes a SOA; how many were written.
    fn soa(&mut self, zone: [u8; 2]) -> u16 {
        let data_len = NAME_SERVER_LABELS.len() + HOSTMASTER_LABELS.len() + 2 * 2 + 5 * 4;
        if !self.record(zone, RecordType::SOA, data_len) {
            return 0;
        }
        self.out.extend_from_slice(NAME_SERVER_LABELS);
        self.out.extend_from_slice(&zone);
        self.out.extend_from_slice(HOSTMASTER_LABELS);
        self.out.extend_from_slice(&zone);
        self.out
            .extend_from_slice(&self.snapshot.serial().to_be_bytes());
        for secs in SOA_REFRESH_RETRY_EXPIRE_SECS {
            self.out.extend_from_slice(&secs.to_be_bytes());
        }
        self.out.extend_from_slice(&self.ttl);
        1
    }

    fn hinfo(&mut self) {
        let owner = self.pointer_to(0);
        let fits = self.record(owner, RecordType::HINFO, 1 + HINFO_CPU.len() + 1);
        if fits {
            self.text(HINFO_CPU);
            self.text("");
        }
        self.counted(fits);
    }

    fn version(&mut self) {
        let owner = self.pointer_to(0);
        let fits = self.record(owner, RecordType::TXT, 1 + DNS_VERSION.len());
        if fits {
            self.text(DNS_VERSION);
        }
        self.counted(fits);
    }

    /// A character string; ours are short.
    fn text(&mut self, text: &str) {
        self.out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.out.extend_from_slice(text.as_bytes());
    }

    fn name_server(&mut self) {
        let zone = self.pointer_to(0);
        let fits = self.record(zone, RecordType::NS, NAME_SERVER_LABELS.len() + zone.len());
        let at = self.out.len();
        if fits {
            self.out.extend_from_slice(NAME_SERVER_LABELS);
            self.out.extend_from_slice(&zone);
        }
        if self.counted(fits) {
            let zones = self.snapshot.zones();
            self.beside(pointer(at), zones.server_v4(), zones.server_v6());
        }
    }

    /// Writes an SRV record.
    fn srv(&mut self, number: u16, target: [&[u8]; 3]) -> bool {
        let target_len = target.iter().map(|part| part.len()).sum::<usize>();
        let fits = self.record(self.pointer_to(0), RecordType::SRV, 6 + target_len);
        if fits {
            for field in [SRV_PRIORITY, SRV_WEIGHT, number] {
                self.out.extend_from_slice(&field.to_be_bytes());
            }
            for part in target {
                self.out.extend_from_slice(part);
            }
        }
        self.counted(fits)
    }

    fn ports(&mut self, service: &ClusterSetIp, wanted: Wanted, service_label: usize) {
        let request = self.request;
        let target = request.name.suffix(service_label);
        let one;
        let numbers: &[u16] = match wanted {
            Wanted::All => &service.numbers,
            Wanted::Port(port) => {
                one = [service.ports[usize::from(port)].number];
                &one
            }
        };
        for &number in numbers {
            if !self.srv(number, [target, &[], &[]]) {
                return;
            }
        }
        let owner = self.pointer_to(service_label);
        self.beside(owner, &service.v4, &service.v6);
    }

    fn host_ports(&mut self, service: &Headless, wanted: Wanted, service_label: usize) {
        let request = self.request;
        let suffix = request.name.suffix(service_label);
        let order = Order::new(self.context.seed, service.host_count());
        let start = self.out.len();
        // A host whose name would be too long has no name, and no record that leads to it.
        let hosts = order
            .map(|index| service.host(index))
            .filter(|host| host.label.len() + host.cluster.len() + suffix.len() <= NAME_LEN_MAX);
        'answers: for host in hosts.clone() {
            for number in numbers(host, wanted) {
                if !self.srv(number, [host.label, host.cluster, suffix]) {
                    break 'answers;
                }
            }
        }
        if self.truncated {
            return;
        }
        // The same walk again finds where each target stands.
        let mut at = start;
        let end = self.out.len();
        for host in hosts {
            let target_len = host.label.len() + host.cluster.len() + suffix.len();
            let target_at = at + 2 + RECORD_FIXED_LEN + 6;
            let count = numbers(host, wanted).count();
            at += count * (2 + RECORD_FIXED_LEN + 6 + target_len);
            let is_there = count > 0 && target_at < end.min(POINTER_MAX);
            if at > end || is_there && !self.beside(pointer(target_at), host.v4, host.v6) {
                break;
            }
        }
    }
}

/// A pointer to an offset of at most 14 bits.
fn pointer(offset: usize) -> [u8; 2] {
    debug_assert!(offset <= POINTER_MAX, "a pointer has 14 bits");
    let offset = u16::try_from(offset & POINTER_MAX).unwrap_or_default();
    (0xc000 | offset).to_be_bytes()
}
