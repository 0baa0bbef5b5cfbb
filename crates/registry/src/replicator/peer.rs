//! The peer's side: the lock, what stands there, and transactions that compare the lock.

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use tombolo_model::record::RecordKey;

use super::Route;
use super::mirror::Held;
use crate::batch::Op;
use crate::etcd::raw::{Connection, Failure, FailureKind, Repeat, grant, keep_alive, revoke};
use crate::key::{KeyRange, Layout, Place};

/// Keys in a page of a listing (measured in DESIGN §2.2).
const PAGE_LEN: usize = 50_000;

/// A peer whose lock is held.
#[derive(Debug)]
pub(super) struct Peer {
    connection: Connection,
    layout: Layout,
    range: KeyRange,
    lock: String,
    lease: i64,
    /// How often it was not the etcd of before, as of when the lock was taken.
    regresses: u64,
}

/// Why the lock was not taken.
#[derive(Debug)]
pub(super) enum LockError {
    /// Another replicator has it.
    Held,
    /// The peer could not be asked.
    Failed(Failure),
}

// === impl Peer ===

impl Peer {
    pub(super) async fn lock(route: &Route) -> Result<Self, LockError> {
        let layout = route.to.layout.clone();
        let connection = Connection::of(route.to.clone());
        let range = KeyRange::of_prefix(&layout.region_prefix(&route.region));
        let lock = layout
            .key(&Place::Replicator(route.region.clone()))
            .map_err(|error| LockError::Failed(Failure::not_sent(error.to_string())))?;
        let granted = grant(&connection).await.map_err(LockError::Failed)?;
        let peer = Self {
            regresses: connection.regress_count(),
            connection,
            layout,
            range,
            lock,
            lease: granted.id(),
        };
        let options = PutOptions::new().with_lease(peer.lease);
        let vacant = Compare::create_revision(peer.lock.as_bytes(), CompareOp::Equal, 0);
        let put = TxnOp::put(peer.lock.as_bytes(), route.holder.as_bytes(), Some(options));
        let txn = Txn::new().when([vacant]).and_then([put]);
        match peer.connection.transact(Repeat::IfNotSent, txn).await {
            Ok((answer, _)) if answer.succeeded() => Ok(peer),
            Ok(_) => {
                peer.unlock().await;
                Err(LockError::Held)
            }
            Err(failure) => {
                peer.unlock().await;
                Err(LockError::Failed(failure))
            }
        }
    }

    /// Ends the lease; it would run out by itself.
    pub(super) async fn unlock(&self) {
        revoke(&self.connection, self.lease).await.ok();
    }

    /// A sign of life; `false` once the lock is lost.
    pub(super) async fn keep_alive(&self) -> Result<bool, Failure> {
        if !keep_alive(&self.connection, self.lease).await? {
            return Ok(false);
        }
        self.connection.revision(&self.range).await?;
        Ok(self.is_the_same())
    }

    /// Whether it is the etcd that was locked. A restored one may still have the lock, and not
    /// what was written since.
    fn is_the_same(&self) -> bool {
        self.connection.regress_count() == self.regresses
    }

    /// Connects anew if certificates or password are other ones by now.
    pub(super) fn reload(&self) {
        self.connection.reload();
    }

    /// What stands there of the region.
    pub(super) async fn list(&self) -> Result<Held, Failure> {
        let mut held = Held::default();
        let mut range = self.range.clone();
        let mut at = None;
        loop {
            let (mut answer, revision) = self.connection.range(&range, PAGE_LEN, at).await?;
            at = at.or(Some(revision));
            let more = answer.more();
            let page = answer.take_kvs();
            let last = page.last().map(|kv| kv.key().to_vec());
            for kv in page.iter().filter(|kv| kv.key() != self.lock.as_bytes()) {
                held.insert(kv.key(), kv.value(), kv.lease() == self.lease);
            }
            match last.filter(|_| more) {
                Some(last) => range = range.after(&last),
                None => return Ok(held),
            }
        }
    }

    /// One transaction; `false` if the lock is lost. The same again changes nothing more.
    pub(super) async fn write(&self, ops: &[Op]) -> Result<bool, Failure> {
        let held = Compare::lease(self.lock.as_bytes(), CompareOp::Equal, self.lease);
        let then: Vec<_> = ops.iter().map(|op| self.txn_op(op)).collect();
        let txn = Txn::new().when([held]).and_then(then);
        match self.connection.transact(Repeat::Harmless, txn).await {
            Ok((answer, _)) => Ok(answer.succeeded() && self.is_the_same()),
            Err(failure) if failure.kind == FailureKind::LeaseGone => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn txn_op(&self, op: &Op) -> TxnOp {
        let key = op.key.as_bytes();
        match &op.value {
            Some(value) => {
                let lease = is_session(&self.layout, key).then_some(self.lease);
                let options = lease.map(|lease| PutOptions::new().with_lease(lease));
                TxnOp::put(key, value.clone(), options)
            }
            None => TxnOp::delete(key, None),
        }
    }
}

pub(super) fn is_session(layout: &Layout, key: &[u8]) -> bool {
    let place = layout.parse(key);
    matches!(place, Ok(Place::Record { key, .. }) if key == RecordKey::Session)
}
