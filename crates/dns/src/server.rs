//! The listeners: UDP and TCP on each address, all bounded.
//!
//! ```text
//!            ┌ socket ─► fair queue ─► handle_packet ─► socket     (one task per socket)
//! clients ──►┤
//!            └ listener ─► connection ─► handle_packet ─► …        (one task per connection)
//! ```
//!
//! The kernel spreads clients over the UDP sockets of an address (`SO_REUSEPORT`). Nothing waits for
//! anything but its own socket; a query that is forwarded waits beside the others.

mod queue;
mod tcp;
mod udp;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::forward::Forwarder;
use crate::metrics::{Event, Metrics};
use crate::record::Rcode;
use crate::snapshot::Live;
use crate::wire::{Transport, UDP_LEN_DEFAULT};

/// Connections that the kernel holds until they are accepted.
const TCP_BACKLOG: i32 = 1_024;

/// Octets that the kernel may hold for a UDP socket: a burst of some thousand queries. It gives
/// less where `net.core.rmem_max` says so.
const UDP_BUFFER_LEN: usize = 4 << 20;

/// How often another port is tried where any will do: UDP and TCP must have the same.
const PORT_TRIES: usize = 16;

/// The bounds of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// UDP sockets per address: one per core that may serve.
    pub udp_sockets: usize,
    /// The largest UDP answer, whatever a client offers.
    pub udp_len_max: u16,
    /// UDP queries that wait at one socket; past them the oldest of the busiest source are shed.
    pub udp_queue_len_max: usize,
    /// UDP queries of one source that wait at one socket; past them its oldest are shed.
    pub udp_source_len_max: usize,
    /// TCP connections per address.
    pub tcp_connections_max: usize,
    /// TCP connections of one source. A cluster's DNS server is one source for all its pods.
    pub tcp_source_connections_max: usize,
    /// How long a connection may be idle, or not read its answers.
    pub tcp_idle: Duration,
    /// How long a connection may last.
    pub tcp_lifetime: Duration,
    /// How long the queries in hand may take at shutdown.
    pub drain_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            udp_sockets: 1,
            udp_len_max: UDP_LEN_DEFAULT,
            // Slots of 2 KiB: 4 MiB per socket at most. At 200,000 answers a second the whole
            // queue is 10 ms.
            udp_queue_len_max: 2_048,
            udp_source_len_max: 1_024,
            tcp_connections_max: 1_024,
            tcp_source_connections_max: 256,
            // RFC 7766 §6.2.3 wants some seconds.
            tcp_idle: Duration::from_secs(10),
            tcp_lifetime: Duration::from_mins(10),
            drain_max: Duration::from_secs(5),
        }
    }
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {transport} {address}")]
pub struct BindError {
    address: SocketAddr,
    transport: &'static str,
    source: io::Error,
}

/// What all listeners use.
pub(crate) struct Shared {
    live: Arc<Live>,
    metrics: Arc<Metrics>,
    limits: Limits,
    forward: Option<Arc<Forwarder>>,
}

/// The sockets, open and not yet served.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpListener>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Opens UDP and TCP sockets on each address; port 0 means any, the same for both. An
    /// unspecified IPv6 address is for IPv6 only. Must run inside a tokio runtime.
    ///
    /// Where a host has several addresses, listen on the ones to be reached at: an answer from an
    /// unspecified address leaves by the one that the kernel routes by.
    pub fn bind(
        addresses: &[SocketAddr],
        limits: Limits,
        live: Arc<Live>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, BindError> {
        let mut server = Self {
            shared: Arc::new(Shared {
                live,
                metrics,
                limits,
                forward: None,
            }),
            addresses: Vec::new(),
            udp: Vec::new(),
            tcp: Vec::new(),
        };
        for &address in addresses {
            server.bind_address(address)?;
        }
        Ok(server)
    }

    /// Forwards names outside the zones.
    #[must_use]
    pub fn with_forwarder(self, forwarder: Forwarder) -> Self {
        let shared = Shared {
            live: Arc::clone(&self.shared.live),
            metrics: Arc::clone(&self.shared.metrics),
            limits: self.shared.limits.clone(),
            forward: Some(Arc::new(forwarder)),
        };
        Self {
            shared: Arc::new(shared),
            ..self
        }
    }

    fn bind_address(&mut self, address: SocketAddr) -> Result<(), BindError> {
        let tries = if address.port() == 0 { PORT_TRIES } else { 1 };
        let mut tried = 0;
        loop {
            tried += 1;
            let error = |transport| {
                move |source| BindError {
                    address,
                    transport,
                    source,
                }
            };
            let first = udp_socket(address).map_err(error("UDP"))?;
            let local = first.local_addr().map_err(error("UDP"))?;
            let listener = match tcp_listener(local) {
                Ok(listener) => listener,
                Err(_taken) if tried < tries => continue,
                Err(source) => return Err(error("TCP")(source)),
            };
            self.udp.push(first);
            self.tcp.push(listener);
            self.addresses.push(local);
            for _ in 1..self.shared.limits.udp_sockets {
                self.udp.push(udp_socket(local).map_err(error("UDP"))?);
            }
            return Ok(());
        }
    }

    /// The addresses it listens on, with their ports.
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// One future per socket, each with a name, for a supervisor to run: on tasks of their own
    /// they use as many cores. Each ends after `shutdown`, once what was in hand is answered; one
    /// that ends before is a failure.
    pub fn tasks(self, shutdown: &CancellationToken) -> Vec<(String, BoxFuture<'static, ()>)> {
        let mut tasks: Vec<(String, BoxFuture<'static, ()>)> = Vec::new();
        for (index, socket) in self.udp.into_iter().enumerate() {
            let worker = udp::UdpWorker::new(socket, Arc::clone(&self.shared), rand::random());
            let task = Box::pin(worker.run(shutdown.clone()));
            tasks.push((format!("dns-udp-{index}"), task));
        }
        for (index, listener) in self.tcp.into_iter().enumerate() {
            let (shared, shutdown) = (Arc::clone(&self.shared), shutdown.clone());
            let task = Box::pin(tcp::run(listener, shared, rand::random(), shutdown));
            tasks.push((format!("dns-tcp-{index}"), task));
        }
        tasks
    }

    /// Runs all tasks, for a caller without a supervisor of its own. A panic of one is passed on.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut tasks = JoinSet::new();
        for (_, task) in self.tasks(&shutdown) {
            tasks.spawn(task);
        }
        while let Some(done) = tasks.join_next().await {
            if let Err(error) = done
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }
}

impl Shared {
    /// Forwards a query. At once, or after it failed, the failure made of `fallback`, an answer
    /// without records to the same question.
    fn forward(
        &self,
        query: Vec<u8>,
        transport: Transport,
        mut fallback: Vec<u8>,
    ) -> Result<impl Future<Output = Vec<u8>> + Send + use<>, Vec<u8>> {
        if let Some(flags) = fallback.get_mut(3) {
            *flags = (*flags & 0xf0) | u8::try_from(Rcode::ServFail.number()).unwrap_or_default();
        }
        let permit = self
            .forward
            .as_ref()
            .and_then(|forwarder| Some((Arc::clone(forwarder), forwarder.permit()?)));
        let metrics = Arc::clone(&self.metrics);
        let Some((forwarder, permit)) = permit else {
            metrics.count(Event::ForwardFailed, 1);
            return Err(fallback);
        };
        Ok(async move {
            let answer = forwarder.exchange(&query, transport).await;
            drop(permit);
            let event = match answer {
                Some(_) => Event::Forwarded,
                None => Event::ForwardFailed,
            };
            metrics.count(event, 1);
            answer.unwrap_or(fallback)
        })
    }
}

fn udp_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    if let Err(error) = socket.set_recv_buffer_size(UDP_BUFFER_LEN) {
        tracing::debug!(%error, "UDP receive buffer left as it is");
    }
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

fn tcp_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(TCP_BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// The next of a sequence of numbers that look random (xorshift): for the order of answers, where
/// nothing depends on nobody guessing them.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
