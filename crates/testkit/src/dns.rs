//! A DNS client for tests: one question, one answer, decoded by a library that the server under
//! test does not answer with.

pub mod resolver;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::cases::Reply;

/// Long enough on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// What may come back over UDP.
const UDP_LEN: u16 = 1232;

/// How a question travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A datagram, with EDNS0.
    Udp,
    /// A connection of its own.
    Tcp,
}

/// Asks a server.
pub fn ask(server: SocketAddr, name: &str, kind: &str, transport: Transport) -> Result<Message> {
    let query = question(name, kind)?;
    let packet = query.to_vec()?;
    let answer = match transport {
        Transport::Udp => over_udp(server, &packet)?,
        Transport::Tcp => over_tcp(server, &packet)?,
    };
    let answer = Message::from_vec(&answer).context("an answer that cannot be decoded")?;
    ensure!(
        answer.metadata.id == query.metadata.id && answer.queries == query.queries,
        "the answer to another question: {answer}"
    );
    Ok(answer)
}

/// A question as a message.
fn question(name: &str, kind: &str) -> Result<Message> {
    let mut name = Name::from_ascii(name)?;
    name.set_fqdn(true);
    let mut message = Message::new(0x7a7a, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(name, kind.parse::<RecordType>()?));
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_LEN);
    message.edns = Some(edns);
    Ok(message)
}

fn over_udp(server: SocketAddr, packet: &[u8]) -> Result<Vec<u8>> {
    let any: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(packet)?;
    let mut buffer = vec![0; 65_535];
    let length = socket
        .recv(&mut buffer)
        .with_context(|| server.to_string())?;
    buffer.truncate(length);
    Ok(buffer)
}

fn over_tcp(server: SocketAddr, packet: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = u16::try_from(packet.len())?.to_be_bytes();
    stream.write_all(&[&length, packet].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// The code and the answer section, in the words of a case.
pub fn reply(message: &Message) -> Reply {
    let code = u16::from(message.metadata.response_code);
    let words = [
        "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED",
    ];
    let rcode = words
        .get(usize::from(code))
        .map_or_else(|| format!("RCODE{code}"), |word| (*word).to_owned());
    let answers = message.answers.iter().map(text).collect();
    Reply { rcode, answers }
}

/// A record's data: addresses as text, SRV as port and target.
fn text(record: &Record) -> String {
    match &record.data {
        RData::SRV(srv) => format!("{} {}", srv.port, srv.target),
        data => data.to_string(),
    }
}

/// For how long the negative answer may be kept: the lesser of its SOA's TTL and minimum (RFC
/// 2308 §5).
pub fn negative_ttl(message: &Message) -> Option<u32> {
    message
        .authorities
        .iter()
        .find_map(|record| match &record.data {
            RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
            _ => None,
        })
}
