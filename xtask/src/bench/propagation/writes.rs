//! How many writes an export, a change and the end of an export cost, by what Tombolo counts
//! itself.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::time::sleep;

use super::report;

/// Everything that follows from a change is written by then.
const SETTLED: Duration = Duration::from_secs(3);
/// Far longer than an answer takes.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The admin endpoint of the process that is measured.
#[derive(Clone, Copy)]
pub(in crate::bench) struct Counters(pub(in crate::bench) SocketAddr);

/// Writes by cluster.
type Counts = BTreeMap<String, u64>;

/// A port that nobody listens on now.
pub(in crate::bench) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

impl Counters {
    /// An answer of the admin endpoint.
    pub(in crate::bench) fn get(self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.0, ANSWER_WITHIN)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        ensure!(text.starts_with("HTTP/1.0 200") || text.starts_with("HTTP/1.1 200"));
        let (_, body) = text.split_once("\r\n\r\n").context("no body")?;
        Ok(body.to_owned())
    }

    /// The writes to all API servers so far.
    pub(in crate::bench) fn total(self) -> Result<u64> {
        Ok(self.read()?.into_values().sum())
    }

    /// The writes to API servers so far.
    fn read(self) -> Result<Counts> {
        let text = self.get("/metrics")?;
        let mut counts = Counts::new();
        let prefix = "tombolo_actions_total{cluster=\"";
        for rest in text.lines().filter_map(|line| line.strip_prefix(prefix)) {
            let (cluster, labels) = rest.split_once('"').context("no cluster")?;
            let is_write = ["create", "update", "update-status", "delete"]
                .iter()
                .any(|kind| labels.contains(&format!("kind=\"{kind}\"")));
            if is_write {
                let (_, number) = rest.rsplit_once(' ').context("no number")?;
                *counts.entry(cluster.to_owned()).or_default() += number.parse::<u64>()?;
            }
        }
        Ok(counts)
    }

    /// Prints what each of `services` has cost, in each cluster, since `before`; returns how it
    /// stands now.
    pub(super) async fn print(self, what: &str, services: u32, before: &Counts) -> Result<Counts> {
        sleep(SETTLED).await;
        let now = self.read()?;
        let each = |cluster: &str| {
            let of = |counts: &Counts| counts.get(cluster).copied().unwrap_or_default();
            let difference = of(&now).saturating_sub(of(before));
            let difference = u32::try_from(difference).unwrap_or(u32::MAX);
            f64::from(difference) / f64::from(services)
        };
        report(&format!(
            "writes for {what:<33} exporting {:4.1}, importing {:4.1}",
            each("c1"),
            each("c2")
        ));
        Ok(now)
    }

    /// How it stands at rest.
    pub(super) async fn at_rest(self) -> Result<Counts> {
        sleep(SETTLED).await;
        self.read()
    }
}
