//! A connection to one member of an etcd at a time: made when it is needed, left for that of the
//! next member when it fails, and made anew when certificates or password change on disk.
//!
//! The client's own balancing over members sends every second call to one that is dead; a
//! connection that is known to work is kept instead.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Error as ClientError, GetOptions, GetResponse, Txn, TxnResponse};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::config::{EtcdConfig, Secrets};
use super::failure::{Failure, FailureKind};
use super::seen::{Counts, Seen, count, signed};
use crate::key::KeyRange;

/// For calls that touch few keys. Ten times what a busy etcd needs.
pub(crate) const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// For a page of a listing: 50,000 keys take 0.2 s where nothing else runs.
const PAGE_DEADLINE: Duration = Duration::from_secs(30);

/// The longest answer taken: 50,000 keys of the measured fleet have 10 MiB, and a longer answer
/// is asked for again in smaller pages.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How often a page is asked for in smaller pages, each a quarter of the last.
const PAGE_CUT: usize = 4;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) config: Arc<EtcdConfig>,
    pub(super) seen: Arc<Seen>,
    slot: Mutex<Slot>,
}

struct Slot {
    /// The connection, and what it was made with.
    made: Option<(Client, Secrets)>,
    /// Which endpoint it is to, or is to be tried next.
    endpoint: usize,
    /// Counts connections, so that one failure is not held against the next connection.
    generation: u64,
}

/// Whether a call may be sent again when its answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or the same again.
    Harmless,
    /// Only if it was not done for certain.
    IfNotSent,
}

// === impl Connection ===

impl Connection {
    /// A connection of its own registry.
    pub(crate) fn of(config: EtcdConfig) -> Self {
        Self::new(Arc::new(config), Arc::new(Seen::new()))
    }

    pub(super) fn new(config: Arc<EtcdConfig>, seen: Arc<Seen>) -> Self {
        Self {
            config,
            seen,
            slot: Mutex::new(Slot {
                made: None,
                endpoint: 0,
                generation: 0,
            }),
        }
    }

    /// Another connection of the same registry: one that a slow reader of this one cannot stall.
    pub(crate) fn sibling(&self) -> Self {
        Self::new(Arc::clone(&self.config), Arc::clone(&self.seen))
    }

    /// What happened so far.
    pub(crate) fn counts(&self) -> Counts {
        self.seen.counts()
    }

    /// How often it was not the etcd of before.
    pub(crate) fn regress_count(&self) -> u64 {
        self.seen.regress_count()
    }

    /// The client, connected within the dial timeout if it is not yet.
    pub(super) async fn client(&self) -> Result<(Client, u64), Failure> {
        let (endpoint, generation) = {
            let slot = self.slot.lock();
            if let Some((client, _)) = &slot.made {
                return Ok((client.clone(), slot.generation));
            }
            (slot.endpoint, slot.generation)
        };
        match self.dial(endpoint).await {
            Ok((client, secrets)) => {
                let mut slot = self.slot.lock();
                slot.made = Some((client.clone(), secrets));
                slot.generation += 1;
                Ok((client, slot.generation))
            }
            Err(failure) => {
                self.failed(generation);
                Err(failure)
            }
        }
    }

    async fn dial(&self, index: usize) -> Result<(Client, Secrets), Failure> {
        let endpoint = &self.config.endpoints[index];
        let secrets = self.config.secrets()?;
        let options = self.config.options(endpoint, &secrets);
        let dialled = Client::connect([endpoint], Some(options));
        let deadline = self.config.dial_timeout;
        match timeout(deadline, dialled).await {
            Ok(Ok(client)) => {
                count(&self.seen.counters.connections);
                Ok((client, secrets))
            }
            Ok(Err(error)) => {
                let failure = Failure::from(error);
                let kind = match failure.kind {
                    FailureKind::Denied => FailureKind::Denied,
                    FailureKind::NotSent
                    | FailureKind::Token
                    | FailureKind::Compacted
                    | FailureKind::TooLarge
                    | FailureKind::LeaseGone
                    | FailureKind::Unknown => FailureKind::NotSent,
                };
                Err(Failure { kind, ..failure })
            }
            Err(_) => {
                let seconds = deadline.as_secs();
                let reason = format!("{endpoint} was not reached within {seconds} s");
                Err(Failure::not_sent(reason))
            }
        }
    }

    /// Leaves the connection of this generation for that of the next member.
    pub(super) fn failed(&self, generation: u64) {
        let mut slot = self.slot.lock();
        if slot.generation == generation {
            slot.made = None;
            slot.generation += 1;
            slot.endpoint = (slot.endpoint + 1) % self.config.endpoints.len();
        }
    }

    /// Drops the connection if certificates or password are other ones by now.
    pub(crate) fn reload(&self) {
        // Files that cannot be read now may be on their way; the connection works meanwhile.
        let Ok(secrets) = self.config.secrets() else {
            return;
        };
        let mut slot = self.slot.lock();
        if slot.made.as_ref().is_some_and(|(_, used)| *used != secrets) {
            slot.made = None;
            slot.generation += 1;
            drop(slot);
            tracing::info!("registry credentials have changed on disk: connecting again");
        }
    }

    /// A call with a deadline, tried at each member as far as that is safe.
    pub(crate) async fn call<T, F>(
        &self,
        what: &str,
        deadline: Duration,
        repeat: Repeat,
        send: impl Fn(Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut left = self.config.endpoints.len();
        loop {
            let failure = match self.client().await {
                Ok((client, generation)) => {
                    let failure = match timeout(deadline, send(client)).await {
                        Ok(Ok(answer)) => return Ok(answer),
                        Ok(Err(error)) => Failure::from(error),
                        Err(_) => Failure::deadline(what, deadline),
                    };
                    if failure.is_of_connection() {
                        self.failed(generation);
                    }
                    failure
                }
                Err(failure) => failure,
            };
            let again = match failure.kind {
                FailureKind::NotSent | FailureKind::Token => true,
                FailureKind::Unknown => repeat == Repeat::Harmless,
                FailureKind::Denied
                | FailureKind::Compacted
                | FailureKind::TooLarge
                | FailureKind::LeaseGone => false,
            };
            if !again || left == 0 {
                return Err(failure);
            }
            left -= 1;
        }
    }

    /// A transaction, and the revision at which it was answered.
    pub(crate) async fn transact(
        &self,
        repeat: Repeat,
        txn: Txn,
    ) -> Result<(TxnResponse, u64), Failure> {
        let mark = self.seen.mark();
        let send = |client: Client| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        };
        let answer = self
            .call("a transaction", CALL_DEADLINE, repeat, send)
            .await?;
        let revision = self.seen.answered(answer.header(), mark);
        Ok((answer, revision))
    }

    /// The current revision, by a linearizable read of one key of a range that may be read.
    pub(crate) async fn revision(&self, range: &KeyRange) -> Result<u64, Failure> {
        let start = range.start.clone();
        let end = [&*start, &[0]].concat();
        let (_, revision) = self.range(&KeyRange { start, end }, 1, None).await?;
        Ok(revision)
    }

    /// The first keys of a range, at most `limit`, as they were at a revision or are now; fewer
    /// where the answer would be too long. Returns the current revision too.
    pub(crate) async fn range(
        &self,
        range: &KeyRange,
        limit: usize,
        at: Option<u64>,
    ) -> Result<(GetResponse, u64), Failure> {
        let mut limit = limit;
        let deadline = if limit == 1 {
            CALL_DEADLINE
        } else {
            PAGE_DEADLINE
        };
        loop {
            let mark = self.seen.mark();
            let mut options = GetOptions::new()
                .with_range(range.end.clone())
                .with_limit(i64::try_from(limit).unwrap_or(i64::MAX));
            if let Some(revision) = at {
                options = options.with_revision(signed(revision));
            }
            let send = |client: Client| {
                let (start, options) = (range.start.clone(), options.clone());
                async move {
                    let client = client
                        .kv_client()
                        .max_decoding_message_size(ANSWER_BYTES_MAX);
                    let mut client = client;
                    client.get(start, Some(options)).await
                }
            };
            let answer = self.call("a list", deadline, Repeat::Harmless, send);
            match answer.await {
                Ok(answer) => {
                    let revision = self.seen.answered(answer.header(), mark);
                    return Ok((answer, revision));
                }
                Err(failure) if failure.kind == FailureKind::TooLarge && limit > 1 => {
                    limit = (limit / PAGE_CUT).max(1);
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

// === impl Slot ===

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot")
            .field("made", &self.made.is_some())
            .field("endpoint", &self.endpoint)
            .field("generation", &self.generation)
            .finish()
    }
}
