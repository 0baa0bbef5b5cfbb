//! Writes a fleet into etcd as its controllers would, without them.

use std::net::IpAddr;

use anyhow::{Context as _, Result, bail};
use etcd_client::{Client, Txn, TxnOp};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tombolo_model::fleet::FleetInput;
use tombolo_model::io::RecordWrite;
use tombolo_model::names::ServiceKey;
use tombolo_model::record::{Record, RecordKey};
use tombolo_registry::batch::Op;
use tombolo_registry::key::Layout;

use crate::bench::fleet::Size;

/// Puts in a transaction: etcd's limit.
const OPS_MAX: usize = 128;
/// Transactions at a time: 32 were the fastest (DESIGN §2.2).
const WRITERS: usize = 32;

/// Writes records to an etcd.
pub(super) struct Filler {
    endpoints: Vec<String>,
    client: tokio::sync::OnceCell<Client>,
}

/// One endpoint that is no longer ready, or is again.
pub(super) struct Change {
    input: FleetInput,
    pub(super) service: ServiceKey,
    pub(super) address: IpAddr,
    pub(super) ready: bool,
}

impl Change {
    /// Here and there; twice the same endpoint says something else each time.
    pub(super) fn of(size: Size, number: usize) -> Result<Self> {
        let service = number * 13 % size.services;
        let exporter = number % size.exporters;
        let ready = number / size.services % 2 == 1;
        let input = size.endpoint(service, exporter, number % size.endpoints, ready)?;
        let FleetInput::Record {
            key: RecordKey::Endpoint {
                service, address, ..
            },
            ..
        } = &input
        else {
            bail!("no endpoint");
        };
        let (service, address) = (service.clone(), *address);
        Ok(Self {
            input,
            service,
            address,
            ready,
        })
    }
}

impl Filler {
    pub(super) fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            client: tokio::sync::OnceCell::new(),
        }
    }

    async fn client(&self) -> Result<Client> {
        let connect = || Client::connect(&self.endpoints, None);
        Ok(self.client.get_or_try_init(connect).await?.clone())
    }

    /// Writes a whole fleet. Returns the number of keys.
    pub(super) async fn fill(&self, size: Size) -> Result<usize> {
        let client = self.client().await?;
        let ops = size
            .records()?
            .into_iter()
            .filter_map(|input| op(input).transpose());
        let ops: Vec<TxnOp> = ops.collect::<Result<_>>()?;
        let keys = ops.len();
        let transactions = ops.chunks(OPS_MAX).map(|ops| {
            let mut client = client.clone();
            let txn = Txn::new().and_then(ops);
            async move { client.txn(txn).await.map(drop) }
        });
        let transactions: Vec<_> = transactions.collect();
        let mut done = stream::iter(transactions).buffer_unordered(WRITERS);
        while done.try_next().await?.is_some() {}
        Ok(keys)
    }

    pub(super) async fn change(&self, change: &Change) -> Result<()> {
        let mut client = self.client().await?;
        let op = op(change.input.clone())?.context("no record")?;
        client.txn(Txn::new().and_then([op])).await?;
        Ok(())
    }
}

/// The put of a record; `None` for what is none.
fn op(input: FleetInput) -> Result<Option<TxnOp>> {
    let FleetInput::Record {
        origin,
        key,
        record: Some(record),
    } = input
    else {
        return Ok(None);
    };
    let write = RecordWrite {
        key,
        record: Some::<Record>(record),
    };
    let Op { key, value } = Op::new(&Layout::default(), &origin, &write)?;
    Ok(Some(TxnOp::put(key, value.unwrap_or_default(), None)))
}
