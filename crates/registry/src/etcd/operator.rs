//! What an operator does to a registry, beside the clusters that write their partitions: access,
//! members, settings, and taking a cluster out.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, DeleteOptions, Txn, TxnOp};
use tombolo_model::names::Region;
use tombolo_model::record::{Member, Origin, RecordKey, Settings};

use super::access::{self, Grantee, Proof, Role};
use super::config::{ConfigError, EtcdConfig};
use super::connection::{CALL_DEADLINE, Connection, Repeat};
use super::failure::Failure;
use super::seen::Seen;
use crate::error::Error;
use crate::key::{KeyRange, Place};
use crate::value::{self, ValueError};

/// How often an edit is tried again because someone else was faster.
const EDIT_ATTEMPTS_MAX: usize = 5;

/// An operator's access to a registry in etcd.
#[derive(Debug)]
pub struct Operator {
    connection: Connection,
}

/// How an etcd is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdStatus {
    /// The version of the member that was asked.
    pub version: String,
    /// The size of its data on disk, in bytes.
    pub size_bytes: u64,
    /// How much of that is in use.
    pub used_bytes: u64,
    /// Alarms, in etcd's words: `nospace`, `corrupt`.
    pub alarms: Vec<&'static str>,
}

/// What becomes of a record that cannot be read, when it is edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It stays, and the edit is refused: what it said would be lost.
    Kept,
    /// It counts as nothing, as the edit says everything anew.
    Replaced,
}

/// What an edit found.
enum Found {
    Nothing,
    Bytes(Vec<u8>, i64),
}

// === impl Operator ===

impl Operator {
    /// Connects when it is first used.
    pub fn try_new(config: EtcdConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let connection = Connection::new(Arc::new(config), Arc::new(Seen::new()));
        Ok(Self { connection })
    }

    /// Makes role and user of a cluster or replicator, or makes them what they should be.
    pub async fn grant(&self, grantee: &Grantee, user: &str, proof: &Proof) -> Result<(), Error> {
        let role = Role::of(&self.connection.config.layout, grantee);
        access::grant(&self.connection, &role, user, proof).await
    }

    /// What is recorded of a cluster, if anything readable is.
    pub async fn member(&self, origin: &Origin) -> Result<Option<Member>, Error> {
        let key = self.key(&Place::Member(origin.clone()))?;
        Ok(match self.find(&key).await? {
            Found::Nothing => None,
            Found::Bytes(bytes, _) => value::decode_member(&bytes).ok(),
        })
    }

    /// Records something of a cluster: `edit` gets what is there and returns what shall be. What a
    /// newer release recorded stays in any case.
    pub async fn edit_member(
        &self,
        origin: &Origin,
        malformed: Malformed,
        edit: impl Fn(Option<Member>) -> Member,
    ) -> Result<Member, Error> {
        let key = self.key(&Place::Member(origin.clone()))?;
        for _ in 0..EDIT_ATTEMPTS_MAX {
            let (known, revision) = match self.find(&key).await? {
                Found::Nothing => (None, 0),
                Found::Bytes(bytes, revision) => (
                    known(&key, malformed, value::decode_member(&bytes))?,
                    revision,
                ),
            };
            let member = edit(known);
            let bytes = value::encode_member(&member).map_err(|source| Error::Value {
                key: key.clone(),
                source,
            })?;
            if self.replace(&key, revision, bytes).await? {
                return Ok(member);
            }
        }
        Err(contended(&key))
    }

    /// Sets what holds for the whole registry.
    pub async fn set_settings(&self, region: &Region, settings: &Settings) -> Result<(), Error> {
        let key = self.key(&Place::Settings(region.clone()))?;
        for _ in 0..EDIT_ATTEMPTS_MAX {
            let revision = match self.find(&key).await? {
                Found::Nothing => 0,
                Found::Bytes(bytes, revision) => {
                    known(&key, Malformed::Replaced, value::decode_settings(&bytes))?;
                    revision
                }
            };
            let bytes = value::encode_settings(settings);
            if self.replace(&key, revision, bytes).await? {
                return Ok(());
            }
        }
        Err(contended(&key))
    }

    /// Takes a cluster out for good: `left` with its owner's UID, everything else deleted, all at
    /// once. Returns whether it was there.
    pub async fn remove_cluster(&self, origin: &Origin) -> Result<bool, Error> {
        let layout = &self.connection.config.layout;
        let record = |key| {
            layout
                .record(origin, key)
                .map_err(|source| Error::Key { source })
        };
        let (owner, left) = (record(&RecordKey::Owner)?, record(&RecordKey::Left)?);
        for _ in 0..EDIT_ATTEMPTS_MAX {
            let Found::Bytes(bytes, revision) = self.find(&owner).await? else {
                return Ok(false);
            };
            let whole = KeyRange::of_prefix(&layout.own_prefix(origin));
            let after = whole.clone().after(left.as_bytes());
            let delete = |start: Vec<u8>, end: Vec<u8>| {
                TxnOp::delete(start, Some(DeleteOptions::new().with_range(end)))
            };
            let unchanged = Compare::mod_revision(owner.as_bytes(), CompareOp::Equal, revision);
            let txn = Txn::new().when([unchanged]).and_then([
                delete(whole.start, left.as_bytes().to_vec()),
                delete(after.start, after.end),
                // `owner` and `left` have the same message.
                TxnOp::put(left.as_bytes(), bytes, None),
            ]);
            let done = self.connection.transact(Repeat::IfNotSent, txn).await;
            if done.map_err(Failure::of_write)?.0.succeeded() {
                return Ok(true);
            }
        }
        Err(contended(&owner))
    }

    /// How the etcd is: size, alarms.
    pub async fn status(&self) -> Result<EtcdStatus, Error> {
        let ask =
            |client: etcd_client::Client| async move { client.maintenance_client().status().await };
        let call = self
            .connection
            .call("status", CALL_DEADLINE, Repeat::Harmless, ask);
        let status = call.await.map_err(Failure::of_read)?;
        let alarms = status.errors().iter().filter_map(|error| {
            ["NOSPACE", "CORRUPT"]
                .into_iter()
                .zip(["nospace", "corrupt"])
                .find(|(word, _)| error.to_uppercase().contains(word))
                .map(|(_, alarm)| alarm)
        });
        Ok(EtcdStatus {
            alarms: alarms.collect(),
            version: status.version().to_owned(),
            size_bytes: super::seen::unsigned(status.db_size()),
            used_bytes: super::seen::unsigned(status.raft_used_db_size()),
        })
    }

    fn key(&self, place: &Place) -> Result<String, Error> {
        let key = self.connection.config.layout.key(place);
        key.map_err(|source| Error::Key { source })
    }

    async fn find(&self, key: &str) -> Result<Found, Error> {
        let found = self.connection.range(&KeyRange::of_key(key), 1, None).await;
        let (answer, _) = found.map_err(Failure::of_read)?;
        Ok(match answer.kvs().first() {
            None => Found::Nothing,
            Some(kv) => Found::Bytes(kv.value().to_vec(), kv.mod_revision()),
        })
    }

    /// Puts a key if nobody did since this revision.
    async fn replace(&self, key: &str, revision: i64, bytes: Vec<u8>) -> Result<bool, Error> {
        let unchanged = Compare::mod_revision(key, CompareOp::Equal, revision);
        let txn = Txn::new()
            .when([unchanged])
            .and_then([TxnOp::put(key, bytes, None)]);
        let done = self.connection.transact(Repeat::IfNotSent, txn).await;
        Ok(done.map_err(Failure::of_write)?.0.succeeded())
    }
}

/// What stands at a key, to be replaced. What a newer release wrote is left to it: this one would
/// drop what it does not know.
fn known<T>(
    key: &str,
    malformed: Malformed,
    decoded: Result<T, ValueError>,
) -> Result<Option<T>, Error> {
    match decoded {
        Ok(value) => Ok(Some(value)),
        Err(source)
            if malformed == Malformed::Kept || matches!(source, ValueError::Schema { .. }) =>
        {
            Err(Error::Recorded {
                key: key.to_owned(),
                source,
            })
        }
        Err(_) => Ok(None),
    }
}

fn contended(key: &str) -> Error {
    let reason = format!("{key} changes all the time").into();
    Error::Unavailable { reason }
}
