//! Hands queries for names outside the zones to resolvers, and their answers back as they came.
//!
//! It is built on hickory's client transports, which pick ports and match answers to queries, and
//! not on a resolver: a resolver follows aliases and keeps a cache, while this is one hop that
//! changes nothing but the message id. An answer that UDP cut off goes to the client with its TC
//! bit; the client comes again over TCP, and so does the forwarder.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use hickory_net::NetError;
use hickory_net::runtime::TokioRuntimeProvider;
use hickory_net::tcp::TcpClientStream;
use hickory_net::udp::UdpClientStream;
use hickory_net::xfer::{DnsExchange, DnsHandle, DnsMultiplexer, DnsRequestSender};
use hickory_proto::op::{DnsRequest, DnsRequestOptions, DnsResponse, Message};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::wire::{TCP_LEN_MAX, Transport};

/// Queries under way by default: each holds a socket.
pub const FORWARDS_DEFAULT: usize = 256;

/// How long a resolver may take by default; then the next is asked. A client asks again after
/// five seconds, so that two can be tried in that time.
pub const FORWARD_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

/// Where names outside the zones are looked up.
#[derive(Debug)]
pub struct Forwarder {
    resolvers: Vec<SocketAddr>,
    timeout: Duration,
    permits: Arc<Semaphore>,
    /// Which resolver is asked first: they take turns.
    next: AtomicUsize,
}

impl Forwarder {
    /// Forwards to these resolvers, `in_flight_max` queries at once. `None` without a resolver.
    pub fn new(
        resolvers: Vec<SocketAddr>,
        timeout: Duration,
        in_flight_max: usize,
    ) -> Option<Self> {
        (!resolvers.is_empty()).then(|| Self {
            resolvers,
            timeout,
            permits: Arc::new(Semaphore::new(in_flight_max.min(Semaphore::MAX_PERMITS))),
            next: AtomicUsize::new(0),
        })
    }

    /// A place for one more query, if there is one.
    pub(crate) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// The answer of the first resolver that gives one, with the id of the query.
    pub(crate) async fn exchange(&self, query: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let mut message = Message::from_vec(query).ok()?;
        let udp_len = usize::from(message.max_payload());
        let limit = match transport {
            Transport::Udp => udp_len,
            Transport::Tcp => TCP_LEN_MAX,
        };
        // Nobody who cannot see the query may guess what its answer looks like.
        message.metadata.id = rand::random();
        let first = self.next.fetch_add(1, Relaxed);
        for turn in 0..self.resolvers.len() {
            let resolver = self.resolvers[(first.wrapping_add(turn)) % self.resolvers.len()];
            let request = DnsRequest::new(message.clone(), DnsRequestOptions::default());
            let asked = async {
                match transport {
                    Transport::Udp => ask_udp(resolver, request, self.timeout).await,
                    Transport::Tcp => ask_tcp(resolver, request, self.timeout).await,
                }
            };
            match timeout(self.timeout, asked).await {
                Ok(Ok(response)) => {
                    let mut answer = response.into_buffer();
                    if answer.len() <= limit && answer.len() >= 2 && query.len() >= 2 {
                        answer[..2].copy_from_slice(&query[..2]);
                        return Some(answer);
                    }
                }
                Ok(Err(error)) => tracing::debug!(%resolver, %error, "resolver failed"),
                Err(_elapsed) => tracing::debug!(%resolver, "resolver took too long"),
            }
        }
        None
    }
}

async fn ask_udp(
    resolver: SocketAddr,
    request: DnsRequest,
    limit: Duration,
) -> Result<DnsResponse, NetError> {
    let mut stream = UdpClientStream::builder(resolver, TokioRuntimeProvider::default())
        .with_timeout(Some(limit))
        .with_max_retries(1)
        .with_os_port_selection(true)
        .build();
    first(stream.send_message(request).next().await)
}

async fn ask_tcp(
    resolver: SocketAddr,
    request: DnsRequest,
    limit: Duration,
) -> Result<DnsResponse, NetError> {
    let provider = TokioRuntimeProvider::default();
    let (stream, handle) = TcpClientStream::new(resolver, None, Some(limit), provider);
    let multiplexer = DnsMultiplexer::new(stream.await?, handle).with_timeout(limit);
    let (exchange, background) = DnsExchange::<TokioRuntimeProvider>::from_stream(multiplexer);
    let mut answers = exchange.send(request);
    match select(answers.next(), background).await {
        Either::Left((answer, _)) => first(answer),
        Either::Right(((), answer)) => first(answer.await),
    }
}

fn first(answer: Option<Result<DnsResponse, NetError>>) -> Result<DnsResponse, NetError> {
    answer.unwrap_or_else(|| Err("the connection was closed".into()))
}
