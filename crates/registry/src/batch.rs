//! From a batch of records to transactions of keys and bytes.
//!
//! A batch is written in its order, in as few transactions as etcd's limits allow. It is checked
//! and encoded as a whole first, so that a record which cannot be stored stops all of it before
//! anything is written.

use std::collections::BTreeSet;

use tombolo_model::io::RecordWrite;
use tombolo_model::record::{Origin, Record, RecordKey};

use crate::error::Error;
use crate::key::Layout;
use crate::value;

/// The most operations in a transaction: etcd's own default limit (`--max-txn-ops`).
pub const TRANSACTION_OPS_MAX: usize = 128;

/// The most bytes of keys and values in a transaction, below etcd's default request limit of
/// 1.5 MiB, with room for compares and framing.
pub const TRANSACTION_BYTES_MAX: usize = 1024 * 1024;

/// What one key becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// The key.
    pub key: String,
    /// Its new value; `None` deletes it.
    pub value: Option<Vec<u8>>,
}

impl Op {
    /// The encoded write.
    pub fn new(layout: &Layout, origin: &Origin, write: &RecordWrite) -> Result<Self, Error> {
        let RecordWrite { key, record } = write;
        let text = layout
            .record(origin, key)
            .map_err(|source| Error::Key { source })?;
        let value = match record {
            None => None,
            Some(record) => match value::encode_record(key, record) {
                Ok(bytes) => Some(bytes),
                Err(source) => return Err(Error::Value { key: text, source }),
            },
        };
        Ok(Self { key: text, value })
    }

    fn len(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// The transactions that write `batch` for the session of `epoch`, none of them empty.
pub fn transactions(
    layout: &Layout,
    origin: &Origin,
    epoch: u64,
    batch: &[RecordWrite],
) -> Result<Vec<Vec<Op>>, Error> {
    let mut ops = Vec::with_capacity(batch.len());
    for write in batch {
        let op = Op::new(layout, origin, write)?;
        check_allowed(origin, epoch, write, &op)?;
        ops.push(op);
    }
    Ok(split(ops))
}

/// Owner, session and left are not a batch's to write, and `synced` only for the own session.
fn check_allowed(origin: &Origin, epoch: u64, write: &RecordWrite, op: &Op) -> Result<(), Error> {
    match (&write.key, &write.record) {
        (RecordKey::Owner | RecordKey::Session | RecordKey::Left, _) => {
            let key = op.key.clone();
            Err(Error::Reserved { key })
        }
        (RecordKey::Synced, Some(Record::Synced(synced))) if *synced != epoch => {
            let (cluster, epoch) = (origin.cluster.clone(), *synced);
            Err(Error::StaleEpoch { cluster, epoch })
        }
        (
            RecordKey::Synced
            | RecordKey::Report
            | RecordKey::Export(_)
            | RecordKey::Endpoint { .. }
            | RecordKey::Config { .. },
            _,
        ) => Ok(()),
    }
}

/// Cuts where a limit is reached, or where a key comes again: etcd refuses a transaction that
/// writes a key twice.
pub(crate) fn split(ops: Vec<Op>) -> Vec<Vec<Op>> {
    let mut transactions = Vec::new();
    let mut current: Vec<Op> = Vec::new();
    let mut keys = BTreeSet::new();
    let mut bytes = 0;
    for op in ops {
        let full = current.len() == TRANSACTION_OPS_MAX || bytes + op.len() > TRANSACTION_BYTES_MAX;
        if !current.is_empty() && (full || keys.contains(&op.key)) {
            transactions.push(std::mem::take(&mut current));
            keys.clear();
            bytes = 0;
        }
        bytes += op.len();
        keys.insert(op.key.clone());
        current.push(op);
    }
    if !current.is_empty() {
        transactions.push(current);
    }
    transactions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(key: &str, len: usize) -> Op {
        Op {
            key: key.to_owned(),
            value: Some(vec![0; len]),
        }
    }

    fn lens(ops: Vec<Op>) -> Vec<usize> {
        split(ops).iter().map(Vec::len).collect()
    }

    #[test]
    fn a_transaction_ends_at_each_limit_and_before_a_key_comes_again() {
        let many = (0..300).map(|i| op(&i.to_string(), 1)).collect();
        assert_eq!(lens(many), [128, 128, 44]);
        let large = ["a", "b", "c"]
            .map(|key| op(key, value::VALUE_LEN_MAX))
            .to_vec();
        assert_eq!(lens(large), [1, 1, 1]);
        let again = ["a", "b", "a", "a"].map(|key| op(key, 1)).to_vec();
        assert_eq!(lens(again), [2, 1, 1]);
        assert_eq!(lens(Vec::new()), [0; 0]);
    }
}
