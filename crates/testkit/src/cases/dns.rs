//! The `dns` part of `expect.yaml`, for whoever has DNS servers to ask.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::Case;
use super::expect::Query;
use super::stage::Stage;
use super::world::World;

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

/// What a DNS server said.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Reply {
    /// The response code.
    pub rcode: String,
    /// Addresses as text, SRV as port and target.
    pub answers: Vec<String>,
}

/// An answer as `plan -o json` prints it.
#[derive(Clone, Debug, Deserialize)]
pub struct Asked {
    /// Whose answer it is.
    pub cluster: String,
    /// The name as it was asked for.
    pub name: String,
    /// The type that was asked for.
    #[serde(rename = "type")]
    pub kind: String,
    /// What was said.
    #[serde(flatten)]
    pub reply: Reply,
}

impl Asked {
    /// The answers in a report.
    pub fn all(report: &Value) -> Result<Vec<Self>> {
        let queries = report.get("queries").context("a report without queries")?;
        Vec::deserialize(queries).context("queries are not of the shape that they should have")
    }
}

impl DnsQuery {
    /// What is wrong with the answer of a cluster.
    fn judge(&self, cluster: &str, world: &World, reply: &Reply) -> Result<()> {
        let mut wanted = Vec::new();
        for answer in &self.answers {
            match answer.as_str() {
                "<vip4>" => wanted.extend(self.addresses(cluster, world, IpAddr::is_ipv4)?),
                "<vip6>" => wanted.extend(self.addresses(cluster, world, IpAddr::is_ipv6)?),
                _ => wanted.push(answer.clone()),
            }
        }
        let mut got = reply.answers.clone();
        wanted.sort();
        got.sort();
        ensure!(
            self.rcodes.contains(&reply.rcode) && wanted == got,
            "expected {} {wanted:?}, got {} {got:?}",
            self.rcodes.join(" or "),
            reply.rcode
        );
        Ok(())
    }

    /// The import's addresses of a family in a cluster; there is at least one.
    fn addresses(
        &self,
        cluster: &str,
        world: &World,
        is_wanted: fn(&IpAddr) -> bool,
    ) -> Result<Vec<String>> {
        let service = self.service.as_ref().context("the address of no service")?;
        let import = world.held(cluster).imports.get(service);
        let ips = &import.context("the address of no import")?.spec.ips;
        let of_family = |ip: &&String| ip.parse().is_ok_and(|ip| is_wanted(&ip));
        let ips: Vec<String> = ips.iter().filter(of_family).cloned().collect();
        ensure!(!ips.is_empty(), "the import has no such address");
        Ok(ips)
    }
}

/// Asks every query of a stage in every cluster that it is for, and says which answers are wrong.
pub fn check_dns(
    case: &Case,
    stage: usize,
    world: &World,
    ask: &dyn Fn(&str, &str, &str) -> Result<Reply>,
) -> Vec<String> {
    let queries = match case.dns(stage) {
        Ok(queries) => queries,
        Err(error) => return vec![format!("dns: {error:#}")],
    };
    let mut problems = Vec::new();
    for query in &queries {
        for cluster in &query.clusters {
            let judged = ask(cluster, &query.name, &query.kind)
                .and_then(|reply| query.judge(cluster, world, &reply));
            if let Err(error) = judged {
                let DnsQuery { name, kind, .. } = query;
                problems.push(format!("{cluster}: dns {name} {kind}: {error:#}"));
            }
        }
    }
    problems
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
