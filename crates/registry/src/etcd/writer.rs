//! Transactions of one writer: opening its session, writing under it, leaving (DESIGN §2.2).
//!
//! Each of them compares what it rests on, so that a writer that was replaced, expired or is
//! another cluster changes nothing, however late its request arrives.

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetResponse, LeaseGrantResponse, PutOptions, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};
use tombolo_model::io::RecordWrite;
use tombolo_model::record::{Origin, Owner, Record, RecordKey};

use super::connection::{CALL_DEADLINE, Connection, Repeat};
use super::failure::{Failure, FailureKind};
use crate::batch::Op;
use crate::error::Error;
use crate::key::{KeyRange, Layout};
use crate::session::{Held, Opening, Standing};
use crate::value::decode_record;

/// Until a session that is not kept alive is over.
pub(crate) const LEASE_TTL_SECS: i64 = 30;

/// How often opening is tried again because someone else was faster.
const OPEN_ATTEMPTS_MAX: usize = 5;

/// The keys that decide who may write, in the order in which they are read.
const DECIDING: [RecordKey; 3] = [RecordKey::Owner, RecordKey::Session, RecordKey::Left];

/// Who writes: what each transaction compares.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub(super) owner: Owner,
    /// The bytes of `owner` as they stand there, which another release may have written.
    owner_bytes: Vec<u8>,
    /// The lease of the session, and its epoch.
    pub(super) lease: i64,
    /// How many regresses were known when it was opened: it does not outlive the next.
    pub(super) regresses: u64,
    /// Whether it is known that the session is over.
    pub(super) ended: bool,
}

/// A partition's deciding keys as they were read.
struct Read {
    standing: Standing,
    /// The revision of each key's last change, 0 where it is not there.
    revisions: [i64; 3],
    owner_bytes: Option<Vec<u8>>,
}

// === impl Writer ===

impl Writer {
    /// Opens a session under a new lease. Returns the revision at which it stands there.
    pub(super) async fn open(
        connection: &Connection,
        origin: &Origin,
        opening: Opening,
    ) -> Result<(Self, u64), Error> {
        let lease = grant_session(connection).await?;
        let opened = Self::open_under(connection, origin, opening, lease).await;
        if opened.is_err() {
            // It would run out by itself.
            revoke(connection, lease).await.ok();
        }
        opened
    }

    async fn open_under(
        connection: &Connection,
        origin: &Origin,
        opening: Opening,
        lease: i64,
    ) -> Result<(Self, u64), Error> {
        let layout = &connection.config.layout;
        let keys = deciding(layout, origin)?;
        for _ in 0..OPEN_ATTEMPTS_MAX {
            let read = read(connection, origin, &keys).await?;
            let epoch = super::seen::unsigned(lease);
            let writes = read.standing.admit(origin, opening.clone(), epoch)?;
            let ops: Vec<Op> = writes
                .iter()
                .map(|write| Op::new(layout, origin, write))
                .collect::<Result<_, _>>()?;
            let unchanged: Vec<_> = keys
                .iter()
                .zip(read.revisions)
                .map(|(key, revision)| {
                    Compare::mod_revision(key.as_bytes(), CompareOp::Equal, revision)
                })
                .collect();
            let [owner_key, session_key, _] = &keys;
            let put_owner = ops.iter().find(|op| op.key == *owner_key);
            let owner_bytes = put_owner.and_then(|op| op.value.clone());
            let then: Vec<_> = ops
                .iter()
                .map(|op| {
                    let lease = if op.key == *session_key { lease } else { 0 };
                    txn_op(op, lease)
                })
                .collect();
            let txn = Txn::new().when(unchanged).and_then(then);
            let (answer, revision) = connection
                .transact(Repeat::IfNotSent, txn)
                .await
                .map_err(Failure::of_write)?;
            if answer.succeeded() {
                let writer = Self {
                    owner: opening.owner,
                    owner_bytes: owner_bytes.or(read.owner_bytes).unwrap_or_default(),
                    lease,
                    regresses: connection.seen.regress_count(),
                    ended: false,
                };
                return Ok((writer, revision));
            }
        }
        let reason = "the partition's session changes all the time".into();
        Err(Error::Unavailable { reason })
    }

    /// One transaction of the session. Returns its revision.
    pub(super) async fn commit(
        &self,
        connection: &Connection,
        origin: &Origin,
        ops: &[Op],
    ) -> Result<u64, Error> {
        let keys = deciding(&connection.config.layout, origin)?;
        let [_, session_key, _] = &keys;
        let then: Vec<_> = ops
            .iter()
            .map(|op| {
                let lease = if op.key == *session_key {
                    self.lease
                } else {
                    0
                };
                txn_op(op, lease)
            })
            .collect();
        self.transact(connection, origin, &keys, then).await
    }

    /// Puts `left` and deletes all else of the partition.
    pub(super) async fn leave(
        &self,
        connection: &Connection,
        origin: &Origin,
    ) -> Result<u64, Error> {
        let layout = &connection.config.layout;
        let keys = deciding(layout, origin)?;
        let left = Op::new(
            layout,
            origin,
            &RecordWrite {
                key: RecordKey::Left,
                record: Some(Record::Left(self.owner.clone())),
            },
        )?;
        let whole = KeyRange::of_prefix(&layout.own_prefix(origin));
        let after = whole.clone().after(left.key.as_bytes());
        let delete = |start: Vec<u8>, end: Vec<u8>| {
            TxnOp::delete(start, Some(DeleteOptions::new().with_range(end)))
        };
        let then = vec![
            delete(whole.start, left.key.as_bytes().to_vec()),
            delete(after.start, after.end),
            txn_op(&left, 0),
        ];
        self.transact(connection, origin, &keys, then).await
    }

    async fn transact(
        &self,
        connection: &Connection,
        origin: &Origin,
        keys: &[String; 3],
        then: Vec<TxnOp>,
    ) -> Result<u64, Error> {
        if self.ended {
            let read = read(connection, origin, keys).await?;
            return Err(read.standing.refusal(origin, &self.owner));
        }
        let operations = then.len();
        let [owner_key, session_key, _] = keys;
        let when = vec![
            Compare::value(
                owner_key.as_bytes(),
                CompareOp::Equal,
                self.owner_bytes.clone(),
            ),
            Compare::lease(session_key.as_bytes(), CompareOp::Equal, self.lease),
        ];
        let txn = Txn::new().when(when).and_then(then).or_else(gets(keys));
        let (answer, revision) = connection
            .transact(Repeat::IfNotSent, txn)
            .await
            .map_err(Failure::of_write)?;
        if answer.succeeded() {
            connection.seen.counters.transaction(operations);
            return Ok(revision);
        }
        let read = Read::of(connection, origin, &answer);
        Err(read.standing.refusal(origin, &self.owner))
    }

    /// Whether the session stands there as this writer put it.
    pub(super) async fn stands(
        &self,
        connection: &Connection,
        origin: &Origin,
    ) -> Result<bool, Error> {
        let keys = deciding(&connection.config.layout, origin)?;
        let [_, session_key, _] = &keys;
        let when = [Compare::lease(
            session_key.as_bytes(),
            CompareOp::Equal,
            self.lease,
        )];
        let txn = Txn::new().when(when);
        let (answer, _) = connection
            .transact(Repeat::Harmless, txn)
            .await
            .map_err(Failure::of_read)?;
        Ok(answer.succeeded())
    }
}

// === impl Read ===

impl Read {
    /// From an answer that has the deciding keys in their order.
    fn of(connection: &Connection, origin: &Origin, answer: &TxnResponse) -> Self {
        let gets: Vec<GetResponse> = answer
            .op_responses()
            .into_iter()
            .filter_map(|op| match op {
                TxnOpResponse::Get(get) => Some(get),
                TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
            })
            .collect();
        let found = |i: usize| gets.get(i).and_then(|get: &GetResponse| get.kvs().first());
        let held = |i: usize| match found(i) {
            None => Held::Vacant,
            Some(kv) => match decode_record(origin, &DECIDING[i], kv.value()) {
                Ok(record) => Held::Known(record),
                Err(_) => Held::Unreadable,
            },
        };
        if let Some(kv) = [0, 1, 2].into_iter().find_map(found) {
            connection.seen.watched(kv.mod_revision());
        }
        Self {
            standing: Standing {
                owner: owner(held(0)),
                session: match held(1) {
                    Held::Vacant => Held::Vacant,
                    Held::Known(Record::Session(session)) => Held::Known(session),
                    Held::Known(_) | Held::Unreadable => Held::Unreadable,
                },
                left: owner(held(2)),
            },
            revisions: [0, 1, 2].map(|i| found(i).map_or(0, etcd_client::KeyValue::mod_revision)),
            owner_bytes: found(0).map(|kv| kv.value().to_vec()),
        }
    }
}

fn owner(held: Held<Record>) -> Held<Owner> {
    match held {
        Held::Vacant => Held::Vacant,
        Held::Known(Record::Owner(owner) | Record::Left(owner)) => Held::Known(owner),
        Held::Known(_) | Held::Unreadable => Held::Unreadable,
    }
}

fn deciding(layout: &Layout, origin: &Origin) -> Result<[String; 3], Error> {
    let [owner, session, left] = &DECIDING;
    let key = |key| {
        layout
            .record(origin, key)
            .map_err(|source| Error::Key { source })
    };
    Ok([key(owner)?, key(session)?, key(left)?])
}

fn gets(keys: &[String; 3]) -> Vec<TxnOp> {
    keys.iter()
        .map(|key| TxnOp::get(key.as_bytes(), None))
        .collect()
}

async fn read(connection: &Connection, origin: &Origin, keys: &[String; 3]) -> Result<Read, Error> {
    let txn = Txn::new().and_then(gets(keys));
    let (answer, _) = connection
        .transact(Repeat::Harmless, txn)
        .await
        .map_err(Failure::of_read)?;
    Ok(Read::of(connection, origin, &answer))
}

fn txn_op(op: &Op, lease: i64) -> TxnOp {
    let key = op.key.as_bytes();
    match &op.value {
        Some(value) if lease == 0 => TxnOp::put(key, value.clone(), None),
        Some(value) => {
            let options = PutOptions::new().with_lease(lease);
            TxnOp::put(key, value.clone(), Some(options))
        }
        None => TxnOp::delete(key, None),
    }
}

/// A new lease. An answer that is lost leaves one behind that runs out.
pub(crate) async fn grant(connection: &Connection) -> Result<LeaseGrantResponse, Failure> {
    connection
        .call(
            "a lease",
            CALL_DEADLINE,
            Repeat::Harmless,
            |client| async move { client.lease_client().grant(LEASE_TTL_SECS, None).await },
        )
        .await
}

/// The same, for a session of the own region.
async fn grant_session(connection: &Connection) -> Result<i64, Error> {
    let mark = connection.seen.mark();
    let granted = grant(connection).await.map_err(Failure::of_read)?;
    connection.seen.answered(granted.header(), mark);
    Ok(granted.id())
}

/// Ends a lease and what lies under it; one that is not there has ended.
pub(crate) async fn revoke(connection: &Connection, lease: i64) -> Result<(), Error> {
    let revoked = connection
        .call(
            "the end of a lease",
            CALL_DEADLINE,
            Repeat::Harmless,
            |client| async move { client.lease_client().revoke(lease).await },
        )
        .await;
    match revoked {
        Ok(_) => Ok(()),
        Err(failure) if failure.kind == FailureKind::LeaseGone => Ok(()),
        Err(failure) => Err(failure.of_write()),
    }
}

/// Whether a lease is there; it is kept alive then.
pub(crate) async fn keep_alive(connection: &Connection, lease: i64) -> Result<bool, Failure> {
    let kept = connection
        .call(
            "a sign of life",
            CALL_DEADLINE,
            Repeat::Harmless,
            |client| async move { client.lease_client().keep_alive(lease).await },
        )
        .await;
    match kept {
        Ok(_) => Ok(true),
        Err(failure) if failure.kind == FailureKind::LeaseGone => Ok(false),
        Err(failure) => Err(failure),
    }
}
