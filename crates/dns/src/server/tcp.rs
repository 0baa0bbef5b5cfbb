//! TCP: connections of many queries each, bounded in number, in idleness and in life.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::metrics::Event;
use crate::wire::{Outcome, PacketContext, TCP_LEN_MAX, Transport, handle_packet};

/// Octets of the length before each message (RFC 1035 §4.2.2).
const PREFIX_LEN: usize = 2;

/// Answers are written once this much of them is ready, so that a pipeline of large answers does
/// not pile up.
const WRITE_LEN: usize = 65_536;

/// Octets that one read takes: a pipeline of some dozen queries.
const READ_LEN: usize = 2_048;

/// Octets of a buffer that a connection keeps while it waits: many are idle most of the time.
const KEPT_LEN_MAX: usize = 4 * READ_LEN;

/// After a failed accept (no file descriptors left, mostly): long enough for some to close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves one listener until `shutdown`, then waits for its connections.
pub(super) async fn run(
    listener: TcpListener,
    shared: Arc<Shared>,
    seed: u64,
    shutdown: CancellationToken,
) {
    let mut seed = seed | 1;
    let mut has_failed = false;
    let mut connections: JoinSet<IpAddr> = JoinSet::new();
    let mut by_source: HashMap<IpAddr, usize> = HashMap::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(done) = connections.join_next() => {
                forget(&mut by_source, done);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => {
                has_failed = false;
                let count = by_source.entry(from.ip()).or_default();
                let limits = &shared.limits;
                if *count >= limits.tcp_source_connections_max
                    || connections.len() >= limits.tcp_connections_max
                {
                    // Dropping it closes it; the client comes again or asks elsewhere.
                    shared.metrics.count(Event::TcpRefused, 1);
                    by_source.retain(|_, count| *count > 0);
                    continue;
                }
                *count += 1;
                shared.metrics.count(Event::TcpAccepted, 1);
                let connection =
                    Connection::new(stream, Arc::clone(&shared), super::next_random(&mut seed));
                let shutdown = shutdown.clone();
                connections.spawn(async move { connection.run(from, shutdown).await });
            }
            Err(error) => {
                // Once, as it may go on for long.
                if !has_failed {
                    tracing::warn!(%error, "connections cannot be accepted");
                }
                has_failed = true;
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    if timeout(shared.limits.drain_max, finish).await.is_err() {
        tracing::debug!("connections still open after the drain were closed");
    }
}

/// Counts one connection of a source less.
fn forget(by_source: &mut HashMap<IpAddr, usize>, done: Result<IpAddr, tokio::task::JoinError>) {
    match done {
        Ok(from) => {
            if let Some(count) = by_source.get_mut(&from) {
                *count -= 1;
                if *count == 0 {
                    by_source.remove(&from);
                }
            }
        }
        // A bug is a bug: it must not hide in a task.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_cancelled) => {}
    }
}

/// One connection.
struct Connection {
    stream: TcpStream,
    shared: Arc<Shared>,
    seed: u64,
    /// What was read and not yet answered: at most one message and what came with its end.
    input: Vec<u8>,
    /// Answers not yet written, with their lengths.
    output: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream, shared: Arc<Shared>, seed: u64) -> Self {
        Self {
            stream,
            shared,
            seed: seed | 1,
            input: Vec::new(),
            output: Vec::new(),
            answer: Vec::new(),
        }
    }

    /// Serves until the client closes, a limit is reached, or `shutdown`.
    async fn run(mut self, from: SocketAddr, shutdown: CancellationToken) -> IpAddr {
        // Answers are written whole: waiting for more would only delay them.
        if let Err(error) = self.stream.set_nodelay(true) {
            tracing::trace!(%error, "nodelay not set");
        }
        if let Err(error) = self.serve(shutdown).await {
            tracing::trace!(%error, %from, "connection ended");
        }
        from.ip()
    }

    async fn serve(&mut self, shutdown: CancellationToken) -> io::Result<()> {
        let begun = Instant::now();
        let end = begun + self.shared.limits.tcp_lifetime;
        let idle_max = self.shared.limits.tcp_idle;
        // Made once, and put off with each query, which costs no more than a comparison.
        let mut idle = pin!(sleep_until(end.min(begun + idle_max)));
        let mut cancelled = pin!(shutdown.cancelled());
        loop {
            self.input.reserve(READ_LEN);
            let read = tokio::select! {
                biased;
                () = &mut cancelled => return Ok(()),
                () = &mut idle => return Ok(()),
                read = self.stream.read_buf(&mut self.input) => read?,
            };
            if read == 0 {
                return Ok(());
            }
            let arrived = Instant::now();
            let answered = self.answer_all().await?;
            self.write().await?;
            let now = Instant::now();
            self.shared
                .metrics
                .took(now.duration_since(arrived), answered);
            idle.as_mut().reset(end.min(now + idle_max));
        }
    }

    /// Answers all messages that are there in full; how many.
    async fn answer_all(&mut self) -> io::Result<u64> {
        let mut at = 0;
        let mut answered = 0;
        while let Some((prefix, rest)) = self.input[at..].split_first_chunk::<PREFIX_LEN>() {
            let len = usize::from(u16::from_be_bytes(*prefix));
            if rest.len() < len {
                break;
            }
            let message = at + PREFIX_LEN..at + PREFIX_LEN + len;
            at = message.end;
            if self.answer_one(message).await {
                answered += 1;
                let len = u16::try_from(self.answer.len().min(TCP_LEN_MAX)).unwrap_or(u16::MAX);
                self.output.extend_from_slice(&len.to_be_bytes());
                self.output.extend_from_slice(&self.answer);
            }
            if self.output.len() >= WRITE_LEN {
                self.write().await?;
            }
        }
        self.input.drain(..at);
        for buffer in [&mut self.input, &mut self.output, &mut self.answer] {
            if buffer.capacity() > KEPT_LEN_MAX {
                buffer.shrink_to(KEPT_LEN_MAX);
            }
        }
        Ok(answered)
    }

    /// Answers one message into `answer`. False if it gets none.
    async fn answer_one(&mut self, message: std::ops::Range<usize>) -> bool {
        let context = PacketContext {
            transport: Transport::Tcp,
            udp_len_max: self.shared.limits.udp_len_max,
            forwards: self.shared.forward.is_some(),
            seed: super::next_random(&mut self.seed),
        };
        let packet = &self.input[message];
        let outcome = {
            let snapshot = self.shared.live.load();
            handle_packet(&snapshot, packet, context, &mut self.answer)
        };
        match outcome {
            Outcome::Silent => {
                self.shared.metrics.count(Event::Silent, 1);
                false
            }
            Outcome::Answered(answered) => {
                self.shared.metrics.answered(&answered, Transport::Tcp);
                true
            }
            Outcome::Forward(answered) => {
                self.shared.metrics.answered(&answered, Transport::Tcp);
                let fallback = std::mem::take(&mut self.answer);
                let query = packet.to_vec();
                self.answer = match self.shared.forward(query, Transport::Tcp, fallback) {
                    Ok(answer) => answer.await,
                    Err(failure) => failure,
                };
                true
            }
        }
    }

    /// Writes what is ready. A client that does not read is idle.
    async fn write(&mut self) -> io::Result<()> {
        if !self.output.is_empty() {
            let idle = self.shared.limits.tcp_idle;
            timeout(idle, self.stream.write_all(&self.output))
                .await
                .map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
            self.output.clear();
        }
        Ok(())
    }
}
