//! A resolver that answers by a script, on one port of loopback over UDP and TCP.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, PTR};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use parking_lot::Mutex;

use super::Transport;

/// How often it is looked whether the resolver has ended.
const POLL: Duration = Duration::from_millis(50);
/// Ports tried until UDP and TCP have the same.
const TRIES: usize = 100;

/// The address in its answers.
pub const RESOLVED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// What its PTR records say.
pub const REVERSED: &str = "host.example.";

/// Names that begin with these labels are special; all others have [`RESOLVED`], and those below
/// `in-addr.arpa` have [`REVERSED`].
pub mod label {
    /// Never answered.
    pub const SLOW: &str = "slow";
    /// Cut off over UDP.
    pub const BIG: &str = "big";
    /// NXDOMAIN.
    pub const MISSING: &str = "missing";
}

/// A resolver; it ends with this value.
#[derive(Debug)]
pub struct ScriptedResolver {
    /// Where it listens.
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, Transport)>>>,
    has_ended: Arc<AtomicBool>,
}

impl ScriptedResolver {
    /// Starts one.
    pub fn start() -> Result<Self> {
        let (udp, tcp) = sockets()?;
        let resolver = Self {
            address: udp.local_addr()?,
            asked: Arc::default(),
            has_ended: Arc::default(),
        };
        udp.set_read_timeout(Some(POLL))?;
        tcp.set_nonblocking(true)?;
        let of_udp = resolver.thread();
        thread::spawn(move || of_udp.serve_udp(&udp));
        let of_tcp = resolver.thread();
        thread::spawn(move || of_tcp.serve_tcp(&tcp));
        Ok(resolver)
    }

    /// All that it was asked, in order.
    pub fn asked(&self) -> Vec<(String, Transport)> {
        self.asked.lock().clone()
    }

    fn thread(&self) -> Thread {
        Thread {
            asked: Arc::clone(&self.asked),
            has_ended: Arc::clone(&self.has_ended),
        }
    }
}

impl Drop for ScriptedResolver {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
    }
}

fn sockets() -> Result<(UdpSocket, TcpListener)> {
    for _ in 0..TRIES {
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        if let Ok(tcp) = TcpListener::bind(udp.local_addr()?) {
            return Ok((udp, tcp));
        }
    }
    anyhow::bail!("no port is free for UDP and TCP")
}

/// What its threads share with it.
struct Thread {
    asked: Arc<Mutex<Vec<(String, Transport)>>>,
    has_ended: Arc<AtomicBool>,
}

impl Thread {
    fn serve_udp(&self, socket: &UdpSocket) {
        let mut buffer = [0; 4_096];
        while !self.has_ended.load(Relaxed) {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                continue;
            };
            if let Ok(Some(answer)) = self.answer(&buffer[..length], Transport::Udp) {
                // Whoever asked may have gone.
                let _gone = socket.send_to(&answer, from);
            }
        }
    }

    fn serve_tcp(&self, listener: &TcpListener) {
        while !self.has_ended.load(Relaxed) {
            match listener.accept() {
                // A connection at a time; one that fails is over.
                Ok((stream, _)) => drop(self.serve_connection(stream)),
                Err(_nobody) => thread::park_timeout(POLL),
            }
        }
    }

    fn serve_connection(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        loop {
            let mut length = [0; 2];
            stream.read_exact(&mut length)?;
            let mut packet = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut packet)?;
            if let Some(answer) = self.answer(&packet, Transport::Tcp)? {
                let length = u16::try_from(answer.len())?.to_be_bytes();
                stream.write_all(&[&length[..], &answer].concat())?;
            }
        }
    }

    fn answer(&self, packet: &[u8], transport: Transport) -> Result<Option<Vec<u8>>> {
        let query = Message::from_vec(packet)?;
        let question = query.queries.first().context("no question")?;
        let name = question.name().to_ascii();
        self.asked.lock().push((name.clone(), transport));
        let first = name.split('.').next().unwrap_or_default();
        let mut message = query.clone();
        message.metadata.message_type = MessageType::Response;
        message.metadata.recursion_available = true;
        match first {
            label::SLOW => return Ok(None),
            label::BIG if transport == Transport::Udp => message.metadata.truncation = true,
            label::MISSING => message.metadata.response_code = ResponseCode::NXDomain,
            _ => {
                let data = match question.query_type() {
                    RecordType::PTR => RData::PTR(PTR(Name::from_ascii(REVERSED)?)),
                    _ => RData::A(A(RESOLVED)),
                };
                let record = Record::from_rdata(question.name().clone(), 60, data);
                message.add_answer(record);
            }
        }
        Ok(Some(message.to_vec()?))
    }
}
