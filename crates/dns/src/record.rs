//! Types, response codes and records as people read them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A record type, as a number; the ones with a meaning here have names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordType(pub u16);

impl RecordType {
    /// IPv4 address.
    pub const A: Self = Self(1);
    /// Name server.
    pub const NS: Self = Self(2);
    /// Start of a zone of authority.
    pub const SOA: Self = Self(6);
    /// Host information, the answer to ANY (RFC 8482).
    pub const HINFO: Self = Self(13);
    /// Text.
    pub const TXT: Self = Self(16);
    /// IPv6 address.
    pub const AAAA: Self = Self(28);
    /// Service location (RFC 2782).
    pub const SRV: Self = Self(33);
    /// EDNS0 (RFC 6891); no type to ask for.
    pub const OPT: Self = Self(41);
    /// Incremental zone transfer.
    pub const IXFR: Self = Self(251);
    /// Zone transfer.
    pub const AXFR: Self = Self(252);
    /// All types.
    pub const ANY: Self = Self(255);
}

/// The types that have names in text.
const TYPE_NAMES: [(u16, &str); 18] = [
    (1, "A"),
    (2, "NS"),
    (5, "CNAME"),
    (6, "SOA"),
    (12, "PTR"),
    (13, "HINFO"),
    (15, "MX"),
    (16, "TXT"),
    (28, "AAAA"),
    (33, "SRV"),
    (35, "NAPTR"),
    (43, "DS"),
    (48, "DNSKEY"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (251, "IXFR"),
    (252, "AXFR"),
    (255, "ANY"),
];

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TYPE_NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            // RFC 3597 §5.
            None => write!(f, "TYPE{}", self.0),
        }
    }
}

impl fmt::Debug for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that names no record type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no record type: give one such as A, AAAA, SRV or TXT")]
pub struct RecordTypeError(String);

impl FromStr for RecordType {
    type Err = RecordTypeError;

    fn from_str(text: &str) -> Result<Self, RecordTypeError> {
        let upper = text.to_ascii_uppercase();
        TYPE_NAMES
            .iter()
            .find(|(_, name)| *name == upper)
            .map(|(number, _)| *number)
            .or_else(|| upper.strip_prefix("TYPE")?.parse().ok())
            .map(Self)
            .ok_or_else(|| RecordTypeError(text.to_owned()))
    }
}

/// A response code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rcode {
    /// Answered, perhaps with nothing.
    NoError,
    /// The query could not be read.
    FormErr,
    /// Not able to answer now.
    ServFail,
    /// There is no such name.
    NxDomain,
    /// An operation that is not supported.
    NotImp,
    /// Not answered here.
    Refused,
    /// An EDNS version that is not supported.
    BadVers,
}

impl Rcode {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::NoError,
        Self::FormErr,
        Self::ServFail,
        Self::NxDomain,
        Self::NotImp,
        Self::Refused,
        Self::BadVers,
    ];

    /// As tools write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoError => "NOERROR",
            Self::FormErr => "FORMERR",
            Self::ServFail => "SERVFAIL",
            Self::NxDomain => "NXDOMAIN",
            Self::NotImp => "NOTIMP",
            Self::Refused => "REFUSED",
            Self::BadVers => "BADVERS",
        }
    }

    /// The number on the wire; above 15 it takes an OPT record.
    pub const fn number(self) -> u16 {
        match self {
            Self::NoError => 0,
            Self::FormErr => 1,
            Self::ServFail => 2,
            Self::NxDomain => 3,
            Self::NotImp => 4,
            Self::Refused => 5,
            Self::BadVers => 16,
        }
    }
}

impl fmt::Display for Rcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The data of a record. As text: addresses as such, SRV as `port target`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordData {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// A port at a name.
    Srv {
        /// The port's number.
        port: u16,
        /// The name, with a dot at its end.
        target: String,
    },
    /// A text.
    Txt(String),
    /// The zone's name server, with a dot at its end.
    Ns(String),
    /// The zone's serial and its negative TTL.
    Soa {
        /// Grows with every change of an answer.
        serial: u32,
        /// How long a negative answer may be kept.
        minimum_secs: u32,
    },
    /// What ANY gets.
    Hinfo(String),
}

impl RecordData {
    /// Its type.
    pub const fn record_type(&self) -> RecordType {
        match self {
            Self::A(_) => RecordType::A,
            Self::Aaaa(_) => RecordType::AAAA,
            Self::Srv { .. } => RecordType::SRV,
            Self::Txt(_) => RecordType::TXT,
            Self::Ns(_) => RecordType::NS,
            Self::Soa { .. } => RecordType::SOA,
            Self::Hinfo(_) => RecordType::HINFO,
        }
    }
}

impl fmt::Display for RecordData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::A(ip) => write!(f, "{ip}"),
            Self::Aaaa(ip) => write!(f, "{ip}"),
            Self::Srv { port, target } => write!(f, "{port} {target}"),
            Self::Txt(text) | Self::Ns(text) | Self::Hinfo(text) => f.write_str(text),
            Self::Soa {
                serial,
                minimum_secs,
            } => write!(f, "{serial} {minimum_secs}"),
        }
    }
}

/// A record of an [`crate::Answer`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record {
    /// Whose it is, with a dot at its end.
    pub name: String,
    /// How long it may be kept.
    pub ttl_secs: u32,
    /// What it says.
    pub data: RecordData,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_round_trip_as_text() {
        for text in ["A", "AAAA", "SRV", "ANY", "TYPE1234"] {
            assert_eq!(text.parse::<RecordType>().unwrap().to_string(), text);
        }
        assert_eq!("srv".parse(), Ok(RecordType::SRV));
        for bad in ["", "B", "TYPE", "TYPE70000"] {
            assert!(bad.parse::<RecordType>().is_err(), "{bad}");
        }
    }
}
