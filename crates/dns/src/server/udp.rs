//! One UDP socket: reads what is there, answers it in fair order, sends the answers, in batches
//! where several packets wait.
//!
//! Reading comes first and is cheap, so that under a flood the newest queries are in the queue and
//! the oldest are shed, where the kernel would drop the newest.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::queue::{FairQueue, Slot};
use crate::metrics::Event;
use crate::wire::{Outcome, PacketContext, Transport, handle_packet};

/// Packets that one system call moves.
const BATCH_LEN: usize = 32;

/// Batches read before answering: a queue's worth of packets, so that reading cannot starve
/// answering.
const READS_PER_ROUND: usize = 8;

/// Packets read one by one before a batch is tried: a batch costs more to prepare than it saves
/// for a packet or two.
const SINGLE_READS: usize = 2;

/// Rounds of reading and answering at shutdown: what a full socket buffer holds.
const DRAIN_ROUNDS: usize = 64;

/// How long a socket is quiet before it counts as drained.
const DRAIN_WAIT: Duration = Duration::from_millis(10);

/// A forwarded query's answer.
type Forwarded = (Vec<u8>, SocketAddr, Instant);

/// Serves one socket.
pub(super) struct UdpWorker {
    socket: UdpSocket,
    shared: Arc<Shared>,
    queue: FairQueue,
    /// Answers of one round: buffers that are used again, and how many are filled.
    answers: Vec<(Vec<u8>, SocketAddr, Instant)>,
    filled: usize,
    /// Whether several packets came last time: then a batch is tried first.
    busy: bool,
    seed: u64,
    forwards: FuturesUnordered<BoxFuture<'static, Forwarded>>,
}

impl UdpWorker {
    pub(super) fn new(socket: UdpSocket, shared: Arc<Shared>, seed: u64) -> Self {
        let now = Instant::now();
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        Self {
            socket,
            queue: FairQueue::new(
                shared.limits.udp_queue_len_max,
                shared.limits.udp_source_len_max,
            ),
            answers: std::iter::repeat_with(|| (Vec::new(), nobody, now))
                .take(BATCH_LEN)
                .collect(),
            filled: 0,
            busy: false,
            seed: seed | 1,
            forwards: FuturesUnordered::new(),
            shared,
        }
    }

    /// Serves until `shutdown`, then answers what is in hand.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            if self.queue.is_empty() {
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => break,
                    Some((mut answer, to, arrived)) = self.forwards.next() => {
                        self.keep_answer(&mut answer, to, arrived);
                        self.send().await;
                        continue;
                    }
                    ready = self.socket.readable() => note_error("wait for", ready),
                }
            } else {
                // More waits than one round answers: let other tasks have their turn.
                tokio::task::yield_now().await;
                if let Some(Some((mut answer, to, arrived))) = self.forwards.next().now_or_never() {
                    self.keep_answer(&mut answer, to, arrived);
                }
            }
            self.read();
            self.answer_round();
            self.send().await;
        }
        let deadline = self.shared.limits.drain_max;
        if timeout(deadline, self.drain()).await.is_err() {
            tracing::debug!("not all queries in hand were answered in time");
        }
    }

    async fn drain(&mut self) {
        for _ in 0..DRAIN_ROUNDS {
            // What has arrived may not have been noticed yet.
            let is_quiet = timeout(DRAIN_WAIT, self.socket.readable()).await.is_err();
            if is_quiet && self.queue.is_empty() {
                break;
            }
            self.read();
            self.answer_round();
            self.send().await;
        }
        while let Some((mut answer, to, arrived)) = self.forwards.next().await {
            self.keep_answer(&mut answer, to, arrived);
            self.send().await;
        }
    }

    /// Reads what is there, up to a bound.
    fn read(&mut self) {
        let mut total = 0;
        for attempt in 0..READS_PER_ROUND {
            let wanted = if self.busy || attempt >= SINGLE_READS {
                BATCH_LEN
            } else {
                1
            };
            let read = match self.read_batch(wanted) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => {
                    note_error("read from", Err(error));
                    0
                }
            };
            total += read;
            if read < wanted {
                break;
            }
        }
        self.busy = total > SINGLE_READS;
    }

    /// Reads at most `wanted` packets into the queue; how many came.
    fn read_batch(&mut self, wanted: usize) -> io::Result<usize> {
        let now = Instant::now();
        let mut slots = Vec::with_capacity(wanted);
        let mut shed = 0;
        while slots.len() < wanted
            && let Some((slot, has_shed)) = self.queue.take(now)
        {
            shed += u64::from(has_shed);
            slots.push(slot);
        }
        let read = match &mut slots[..] {
            [] => Ok(0),
            [slot] => {
                let read = self.socket.try_recv_from(&mut slot.bytes[..]);
                read.map(|(len, from)| {
                    (slot.len, slot.from) = (len, from);
                    1
                })
            }
            slots => receive(&self.socket, slots),
        };
        let count = *read.as_ref().unwrap_or(&0);
        for (index, mut slot) in slots.into_iter().enumerate() {
            if index < count {
                slot.arrived = now;
                shed += u64::from(self.queue.push(slot));
            } else {
                self.queue.give_back(slot);
            }
        }
        self.shared.metrics.count(Event::Shed, shed);
        read
    }

    /// Answers a batch.
    fn answer_round(&mut self) {
        let shared = Arc::clone(&self.shared);
        let snapshot = shared.live.load();
        while self.filled < BATCH_LEN
            && let Some(slot) = self.queue.pop()
        {
            let context = PacketContext {
                transport: Transport::Udp,
                udp_len_max: shared.limits.udp_len_max,
                forwards: shared.forward.is_some(),
                seed: super::next_random(&mut self.seed),
            };
            let (out, to, arrived) = &mut self.answers[self.filled];
            (*to, *arrived) = (slot.from, slot.arrived);
            match handle_packet(&snapshot, &slot.bytes[..slot.len], context, out) {
                Outcome::Silent => shared.metrics.count(Event::Silent, 1),
                Outcome::Answered(answered) => {
                    shared.metrics.answered(&answered, Transport::Udp);
                    self.filled += 1;
                }
                Outcome::Forward(answered) => {
                    shared.metrics.answered(&answered, Transport::Udp);
                    self.forward(&slot);
                }
            }
            self.queue.give_back(slot);
        }
    }

    /// Starts to forward a query, unless too many are under way.
    fn forward(&mut self, slot: &Slot) {
        let (fallback, to, arrived) = &self.answers[self.filled];
        let (fallback, to, arrived) = (fallback.clone(), *to, *arrived);
        let query = slot.bytes[..slot.len].to_vec();
        match self.shared.forward(query, Transport::Udp, fallback) {
            Ok(answer) => self
                .forwards
                .push(Box::pin(async move { (answer.await, to, arrived) })),
            Err(failure) => {
                self.answers[self.filled].0 = failure;
                self.filled += 1;
            }
        }
    }

    /// Takes an answer that came from elsewhere among those to send.
    fn keep_answer(&mut self, answer: &mut Vec<u8>, to: SocketAddr, arrived: Instant) {
        let kept = &mut self.answers[self.filled];
        std::mem::swap(&mut kept.0, answer);
        (kept.1, kept.2) = (to, arrived);
        self.filled += 1;
    }

    /// Sends the filled answers.
    async fn send(&mut self) {
        let mut sent = 0;
        while sent < self.filled {
            match transmit(&self.socket, &self.answers[sent..self.filled]) {
                Ok(count) => sent += count.max(1),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = self.socket.writable().await;
                    note_error("wait for", ready);
                }
                Err(error) => {
                    // One client that cannot be reached; the others can.
                    tracing::debug!(%error, to = %self.answers[sent].1, "answer not sent");
                    self.shared.metrics.count(Event::Unsent, 1);
                    sent += 1;
                }
            }
        }
        let now = Instant::now();
        for (_, _, arrived) in &self.answers[..self.filled] {
            let took = now.saturating_duration_since(*arrived);
            self.shared.metrics.took(took, 1);
        }
        self.filled = 0;
    }
}

fn note_error(what: &'static str, result: io::Result<()>) {
    if let Err(error) = result {
        // An unreachable client of an earlier answer shows here; the socket stays good.
        tracing::debug!(%error, "could not {what} the socket");
    }
}

/// Reads into the slots; how many were filled.
fn receive(socket: &UdpSocket, slots: &mut [Slot]) -> io::Result<usize> {
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(slots.len(), None);
    let mut received = [(0, None); BATCH_LEN];
    let count = socket.try_io(Interest::READABLE, || {
        let mut buffers: Vec<[IoSliceMut<'_>; 1]> = slots
            .iter_mut()
            .map(|slot| [IoSliceMut::new(&mut slot.bytes[..])])
            .collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        let messages = recvmmsg(
            socket.as_raw_fd(),
            &mut headers,
            buffers.iter_mut(),
            flags,
            None,
        )?;
        let mut count = 0;
        for (place, message) in received.iter_mut().zip(messages) {
            *place = (message.bytes, message.address.and_then(to_std));
            count += 1;
        }
        Ok(count)
    })?;
    for (slot, (len, from)) in slots.iter_mut().zip(&received[..count]) {
        slot.len = *len;
        // Without an address there is nobody to answer: an empty query gets none.
        match from {
            Some(from) => slot.from = *from,
            None => slot.len = 0,
        }
    }
    Ok(count)
}

/// Sends as many of the answers as the socket takes now.
fn transmit(socket: &UdpSocket, answers: &[(Vec<u8>, SocketAddr, Instant)]) -> io::Result<usize> {
    if let [(answer, to, _)] = answers {
        return socket.try_send_to(answer, *to).map(|_| 1);
    }
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(answers.len(), None);
    let to: Vec<Option<SockaddrStorage>> = answers
        .iter()
        .map(|(_, to, _)| Some(SockaddrStorage::from(*to)))
        .collect();
    let buffers: Vec<[IoSlice<'_>; 1]> = answers
        .iter()
        .map(|(answer, _, _)| [IoSlice::new(answer)])
        .collect();
    socket.try_io(Interest::WRITABLE, || {
        let sent = sendmmsg(
            socket.as_raw_fd(),
            &mut headers,
            buffers.iter(),
            &to,
            [],
            MsgFlags::MSG_DONTWAIT,
        )?;
        Ok(sent.count())
    })
}

fn to_std(address: SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddr::from((v4.ip(), v4.port())));
    }
    let v6 = address.as_sockaddr_in6()?;
    Some(SocketAddr::V6(std::net::SocketAddrV6::new(
        v6.ip(),
        v6.port(),
        v6.flowinfo(),
        v6.scope_id(),
    )))
}
