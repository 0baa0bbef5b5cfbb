//! The `dns` part of `expect.yaml`, for whoever has DNS servers to ask.

use anyhow::{Result, ensure};

use super::expect::Query;
use super::stage::Stage;

/// A query to ask in some clusters, with its right answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsQuery {
    /// The namespace and name of the service that `<vip4>` and `<vip6>` stand for; `None` where
    /// the query belongs to no single service.
    pub service: Option<(String, String)>,
    /// The clusters whose DNS servers to ask.
    pub clusters: Vec<String>,
    /// The name to ask for, with the final dot.
    pub name: String,
    /// The record type.
    pub kind: String,
    /// Any of these response codes is right.
    pub rcodes: Vec<String>,
    /// The exact set of answers; `<vip4>` and `<vip6>` stand for the import's addresses in the
    /// cluster that was asked. An SRV answer is its port and target.
    pub answers: Vec<String>,
}

/// Every query of a stage.
pub(crate) fn queries(stage: &Stage) -> Result<Vec<DnsQuery>> {
    let mut all = Vec::new();
    for service in stage.services.values() {
        let key = Some((service.namespace.clone(), service.name.clone()));
        for query in &service.dns {
            all.push(resolve(query, key.clone(), &service.imported_in)?);
        }
    }
    if let Some(blocked) = &stage.blocked {
        let key = Some((blocked.namespace.clone(), blocked.name.clone()));
        for query in &blocked.dns {
            all.push(resolve(
                query,
                key.clone(),
                std::slice::from_ref(&blocked.cluster),
            )?);
        }
    }
    for query in &stage.dns {
        all.push(resolve(query, None, &[])?);
    }
    Ok(all)
}

fn resolve(
    query: &Query,
    service: Option<(String, String)>,
    importers: &[String],
) -> Result<DnsQuery> {
    let clusters: Vec<String> = match &query.ask_in {
        Some(names) => names
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect(),
        None => importers.to_vec(),
    };
    ensure!(!clusters.is_empty(), "nobody to ask for {}", query.name);
    Ok(DnsQuery {
        service,
        clusters,
        name: query.name.clone(),
        kind: query.kind.clone(),
        rcodes: query.rcode.clone(),
        answers: query.answers.clone(),
    })
}
