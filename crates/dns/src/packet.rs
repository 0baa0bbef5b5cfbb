//! Reads a query off the wire, without an allocation.
//!
//! What cannot be a query is left without an answer; what is one but cannot be read gets the code
//! that says why.

use crate::name::QueryName;
use crate::record::{Rcode, RecordType};

/// Octets of the header (RFC 1035 §4.1.1).
pub(crate) const HEADER_LEN: usize = 12;

/// Octets of a question after its name.
const QUESTION_TAIL_LEN: usize = 4;

/// The largest UDP answer without EDNS (RFC 1035 §4.2.1), and the least that EDNS can mean (RFC
/// 6891 §6.2.3).
pub(crate) const UDP_LEN_MIN: usize = 512;

/// Class IN.
const CLASS_IN: u16 = 1;

/// Bits of the third octet of a header: response, operation, recursion desired.
const BIT_QR: u8 = 0x80;
const BITS_OPCODE: u8 = 0x78;
pub(crate) const BIT_RD: u8 = 0x01;
/// Of the fourth: checking disabled.
pub(crate) const BIT_CD: u8 = 0x10;

/// What can be said of any packet that has a header and is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) id: [u8; 2],
    /// The operation and the bits that are copied to the answer, each in its place.
    pub(crate) operation: u8,
    pub(crate) recursion_desired: u8,
    pub(crate) checking_disabled: u8,
}

/// The EDNS part of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edns {
    /// What the client can take over UDP.
    pub(crate) udp_len: usize,
    pub(crate) version: u8,
    /// Wants DNSSEC records; copied to the answer (RFC 3225 §3).
    pub(crate) dnssec_ok: bool,
}

/// A query.
pub(crate) struct Request<'p> {
    pub(crate) head: Head,
    /// The question as it came.
    pub(crate) question: &'p [u8],
    pub(crate) name: QueryName,
    pub(crate) record_type: RecordType,
    pub(crate) edns: Option<Edns>,
}

/// A packet as far as it could be read.
pub(crate) enum Parsed<'p> {
    /// Too short, or a response: no answer, so that two servers never talk in circles.
    Silent,
    /// Not to be answered with records.
    Failed(Head, Rcode),
    /// A query in full.
    Request(Request<'p>),
    /// One that is understood but not answered; its question is echoed.
    Declined(Request<'p>, Rcode),
}

/// Reads a packet.
pub(crate) fn parse(packet: &[u8]) -> Parsed<'_> {
    let Some((header, body)) = packet.split_first_chunk::<HEADER_LEN>() else {
        return Parsed::Silent;
    };
    if header[2] & BIT_QR != 0 {
        return Parsed::Silent;
    }
    let head = Head {
        id: [header[0], header[1]],
        operation: header[2] & BITS_OPCODE,
        recursion_desired: header[2] & BIT_RD,
        checking_disabled: header[3] & BIT_CD,
    };
    if head.operation != 0 {
        return Parsed::Failed(head, Rcode::NotImp);
    }
    let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    // One question and no more than a query can have of the rest: an IXFR has a SOA in its
    // authority section, and EDNS and a signature are additional.
    if count(4) != 1 || count(6) > 1 || count(8) > 1 || count(10) > 2 {
        return Parsed::Failed(head, Rcode::FormErr);
    }
    let records = count(6) + count(8);
    match read_body(head, body, records, count(10)) {
        Some((request, CLASS_IN)) => decline(request),
        Some((request, _)) => Parsed::Declined(request, Rcode::Refused),
        None => Parsed::Failed(head, Rcode::FormErr),
    }
}

/// Sorts out what is understood but not answered.
fn decline(request: Request<'_>) -> Parsed<'_> {
    if request.edns.is_some_and(|edns| edns.version > 0) {
        Parsed::Declined(request, Rcode::BadVers)
    } else if request.record_type == RecordType::OPT {
        Parsed::Declined(request, Rcode::FormErr)
    } else {
        Parsed::Request(request)
    }
}

/// Reads what follows the header: the request and the class of its question.
fn read_body(head: Head, body: &[u8], records: u16, additional: u16) -> Option<(Request<'_>, u16)> {
    let name = QueryName::read(body)?;
    let question = body.get(..name.len() + QUESTION_TAIL_LEN)?;
    let tail = &question[name.len()..];
    let record_type = RecordType(u16::from_be_bytes([tail[0], tail[1]]));
    let class = u16::from_be_bytes([tail[2], tail[3]]);
    let mut rest = &body[question.len()..];
    for _ in 0..records {
        (_, rest) = read_record(rest)?;
    }
    let mut edns = None;
    for _ in 0..additional {
        let (record, after) = read_record(rest)?;
        rest = after;
        if record.record_type == RecordType::OPT {
            // There is at most one, at the root (RFC 6891 §6.1.1).
            if edns.is_some() || !record.at_root || !are_options(record.data) {
                return None;
            }
            edns = Some(record.edns());
        }
    }
    let request = Request {
        head,
        question,
        name,
        record_type,
        edns,
    };
    Some((request, class))
}

/// A record of a query, as far as it matters.
struct RawRecord<'p> {
    at_root: bool,
    record_type: RecordType,
    class: u16,
    ttl: [u8; 4],
    data: &'p [u8],
}

impl RawRecord<'_> {
    /// An OPT record uses class and TTL for its own ends (RFC 6891 §6.1.3).
    fn edns(&self) -> Edns {
        Edns {
            udp_len: usize::from(self.class).max(UDP_LEN_MIN),
            version: self.ttl[1],
            dnssec_ok: self.ttl[2] & 0x80 != 0,
        }
    }
}

/// Reads a record; and what follows it.
fn read_record(wire: &[u8]) -> Option<(RawRecord<'_>, &[u8])> {
    let name_len = skip_name(wire)?;
    let (fixed, rest) = wire.get(name_len..)?.split_first_chunk::<10>()?;
    let data_len = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
    if rest.len() < data_len {
        return None;
    }
    let (data, rest) = rest.split_at(data_len);
    let record = RawRecord {
        at_root: name_len == 1,
        record_type: RecordType(u16::from_be_bytes([fixed[0], fixed[1]])),
        class: u16::from_be_bytes([fixed[2], fixed[3]]),
        ttl: [fixed[4], fixed[5], fixed[6], fixed[7]],
        data,
    };
    Some((record, rest))
}

/// How long the name at the start of `wire` is; a pointer ends it and is not followed.
fn skip_name(wire: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *wire.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            0xc0.. => return Some(at + 2),
            _ => return None,
        }
    }
}

/// Whether `data` is a list of EDNS options, which are not looked at further.
fn are_options(mut data: &[u8]) -> bool {
    while !data.is_empty() {
        let Some((fixed, rest)) = data.split_first_chunk::<4>() else {
            return false;
        };
        let length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let Some(rest) = rest.get(length..) else {
            return false;
        };
        data = rest;
    }
    true
}
