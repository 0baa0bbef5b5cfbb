//! The DNS servers of `up`: one per cluster, as each has addresses and namespaces of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tombolo_dns::{Limits, Metrics, Server};
use tombolo_model::names::ClusterName;

use crate::input::{Refusal, chain};
use crate::names::Names;

/// The servers that run; none at first.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    addresses: BTreeMap<String, SocketAddr>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Servers {
    /// Starts one for each cluster: at `listen`, and at the ports that follow it unless it is 0.
    pub(crate) fn start<'a>(
        listen: SocketAddr,
        clusters: impl Iterator<Item = (&'a ClusterName, &'a Names)>,
    ) -> Result<Self, Refusal> {
        let mut servers = Self::default();
        let mut next = Some(listen);
        for (cluster, names) in clusters {
            let Some(address) = next else {
                let message = format!("--dns {listen}: no port is left for cluster {cluster}");
                return Err(Refusal::usage(vec![message]));
            };
            next = after(address);
            let live = names.live();
            let metrics = Arc::new(Metrics::new(live.load().zones(), Instant::now()));
            let server = Server::bind(&[address], Limits::default(), live, metrics)
                .map_err(|error| Refusal::failed(format!("--dns: {}", chain(&error))))?;
            let bound = server.local_addresses().first().copied();
            servers
                .addresses
                .extend(bound.map(|bound| (cluster.to_string(), bound)));
            for (_, task) in server.tasks(&servers.stop) {
                servers.tasks.spawn(task);
            }
        }
        Ok(servers)
    }

    /// Where the server of a cluster listens.
    pub(crate) fn address(&self, cluster: &str) -> Option<SocketAddr> {
        self.addresses.get(cluster).copied()
    }

    /// Waits until a server fails; for ever where there is none.
    pub(crate) async fn failed(&mut self) -> Refusal {
        match self.tasks.join_next().await {
            Some(Err(error)) => Refusal::failed(format!("a DNS server failed: {error}")),
            Some(Ok(())) => Refusal::failed("a DNS server ended by itself".to_owned()),
            None => std::future::pending().await,
        }
    }

    /// Ends them, once what is in hand is answered.
    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// The next port of an address, `None` after the last; any port has no next.
fn after(address: SocketAddr) -> Option<SocketAddr> {
    let port = match address.port() {
        0 => 0,
        port => port.checked_add(1)?,
    };
    Some(SocketAddr::new(address.ip(), port))
}
