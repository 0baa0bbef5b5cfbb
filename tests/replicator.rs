//! `tombolo replicator` between real etcds, as an operator meets it: credentials, the admin
//! endpoint, and what a compaction that passes it costs.

#![expect(clippy::unwrap_used, reason = "test crate")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use etcd_client::{Client, ConnectOptions, GetOptions};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tombolo_testbed::{Etcd, EtcdSpec, Part, Spec, Testbed, Tls, wait_for};

/// Everything takes less.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Where the keys of region eu begin.
const EU: &str = "/tombolo/v1/regions/eu/";

/// Two regions' etcds, and a client of each that may do everything.
struct Regions {
    testbed: Testbed,
    eu: Etcd,
    us: Etcd,
    runtime: Runtime,
    files: TempDir,
}

struct Replicator(Part);

impl Regions {
    fn start(us: &EtcdSpec) -> Self {
        let mut testbed = Testbed::start(&Spec::default()).unwrap();
        let eu = testbed.start_etcd("eu", &EtcdSpec::default()).unwrap();
        let us = testbed.start_etcd("us", us).unwrap();
        Self {
            testbed,
            eu,
            us,
            runtime: Runtime::new().unwrap(),
            files: TempDir::new().unwrap(),
        }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.files.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn replicator(&self, more: &[&str]) -> Replicator {
        let (from, to) = (self.eu.first().endpoint(), self.us.first().endpoint());
        let mut command = tombolo(&["replicator", "--region", "eu", "--registry", &from]);
        command.args(["--to", &format!("us={to}"), "--admin", "127.0.0.1:0"]);
        command.args(more);
        let part = self.testbed.start_program("replicator", &command, None);
        Replicator(part.unwrap())
    }

    fn client(&self, etcd: &Etcd, options: Option<ConnectOptions>) -> Client {
        let connected = Client::connect(etcd.endpoints(), options);
        self.runtime.block_on(connected).unwrap()
    }

    fn put(&self, client: &mut Client, key: &str, value: &str) {
        let put = client.put(format!("{EU}{key}"), value, None);
        self.runtime.block_on(put).unwrap();
    }

    /// The keys of eu, without the lock.
    fn keys(&self, client: &mut Client) -> Vec<(String, String)> {
        let all = GetOptions::new().with_prefix();
        let found = self.runtime.block_on(client.get(EU, Some(all))).unwrap();
        let pairs = found.kvs().iter().map(|kv| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (text(kv.key()).replace(EU, ""), text(kv.value()))
        });
        pairs.filter(|(key, _)| key != "replicator").collect()
    }

    fn until_equal(&self, from: &mut Client, to: &mut Client) {
        until("both regions have the same", || {
            Ok((self.keys(from) == self.keys(to)).then_some(()))
        });
    }
}

impl Replicator {
    fn log(&self) -> String {
        fs::read_to_string(self.0.log_file()).unwrap()
    }

    /// An answer of its admin endpoint, once there is one.
    fn get(&self, path: &str) -> Result<String> {
        let log = self.log();
        let (_, rest) = log
            .rsplit_once("admin endpoint address=Ok(")
            .context("no admin endpoint yet")?;
        let (address, _) = rest.split_once(')').context("a half line")?;
        let mut command = Command::new("curl");
        command.args(["-s", "-m", "5"]);
        let output = command.arg(format!("http://{address}{path}")).output()?;
        Ok(String::from_utf8(output.stdout)?)
    }

    fn metric(&self, series: &str) -> Option<f64> {
        let metrics = self.get("/metrics").ok()?;
        let line = metrics.lines().find(|line| line.starts_with(series))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    fn until_metric(&self, series: &str, holds: impl Fn(f64) -> bool) {
        until(series, || {
            self.0.check_running()?;
            Ok(self.metric(series).filter(|value| holds(*value)).map(drop))
        });
    }
}

fn until(what: &str, holds: impl FnMut() -> Result<Option<()>>) {
    wait_for(what, TIMEOUT, holds).unwrap();
}

fn tombolo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command.args(args);
    command
}

fn done(command: &mut Command) {
    let output = command.output().unwrap();
    let both = [&*output.stdout, &*output.stderr].concat();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&both)
    );
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

const COPYING: &str = "tombolo_replicator_state{peer=\"us\",state=\"copying\"}";

#[test]
fn etcd_a_compaction_that_passes_a_replicator_costs_one_listing() {
    let regions = Regions::start(&EtcdSpec::default());
    let (mut from, mut to) = (
        regions.client(&regions.eu, None),
        regions.client(&regions.us, None),
    );
    for key in ["members/a", "members/b", "members/c", "settings"] {
        regions.put(&mut from, key, "1");
    }
    let replicator = regions.replicator(&[]);
    replicator.until_metric(COPYING, |is| is > 0.0);
    regions.until_equal(&mut from, &mut to);
    let put = "tombolo_replicator_keys_put_total{peer=\"us\"}";
    replicator.until_metric(put, |keys| keys >= 4.0);
    let before = replicator.metric(put).unwrap();

    // It does not run while its watch breaks and history goes: what it would have been told is
    // not to be had any more.
    replicator.0.pause().unwrap();
    regions.eu.first().part().kill().unwrap();
    regions.eu.restart_all().unwrap();
    let mut from = regions.client(&regions.eu, None);
    for round in 2..20 {
        regions.put(&mut from, "members/a", &round.to_string());
    }
    let gone = from.delete(format!("{EU}members/b"), None);
    regions.runtime.block_on(gone).unwrap();
    let now = regions.runtime.block_on(from.get("x", None)).unwrap();
    let revision = now.header().unwrap().revision();
    regions
        .runtime
        .block_on(from.compact(revision, None))
        .unwrap();
    replicator.0.resume().unwrap();

    regions.until_equal(&mut from, &mut to);
    let lists = |cause: &str| {
        let series = format!("tombolo_replicator_lists_total{{peer=\"us\",cause=\"{cause}\"}}");
        replicator.metric(&series)
    };
    assert_eq!((lists("start"), lists("behind")), (Some(1.0), Some(1.0)));
    let log = replicator.log();
    let lines = log.matches("listing the registry again").count();
    assert_eq!(lines, 1, "{log}");
    // The difference, and not what was there already.
    replicator.until_metric(put, |keys| keys >= before + 1.0);
    assert_eq!(replicator.metric(put), Some(before + 1.0));
    let deleted = "tombolo_replicator_keys_deleted_total{peer=\"us\"}";
    assert_eq!(replicator.metric(deleted), Some(1.0));
    replicator.0.stop(TIMEOUT).unwrap();
}

#[test]
fn etcd_each_side_has_its_own_credentials() {
    let regions = Regions::start(&EtcdSpec::default().tls(Tls::Mutual));
    // At home a user who may only read; at the peer a certificate, and who has none is nobody.
    let password = regions.file("password", "secret\n");
    let home = regions.eu.first().endpoint();
    done(
        tombolo(&["registry", "grant", "--replicator", "eu", "--source"]).args([
            "--password-file",
            &password,
            "--registry",
            &home,
        ]),
    );
    let mut from = regions.client(&regions.eu, None);
    regions.put(&mut from, "members/east", "1");
    regions.runtime.block_on(async {
        from.user_add("root", "root", None).await.unwrap();
        from.role_add("root").await.ok();
        from.user_grant_role("root", "root").await.unwrap();
        from.auth_enable().await.unwrap();
    });
    let authority = regions.us.authority().unwrap();
    let identity = authority.issue("tombolo-replicator-eu").unwrap();
    let (ca, cert, key) = (
        format!("us={}", text(&authority.certificate())),
        format!("us={}", text(&identity.certificate)),
        format!("us={}", text(&identity.key)),
    );
    let user = ["--registry-user", "tombolo-replicator-eu"];
    let user = [&user[..], &["--registry-password-file", &password]].concat();
    let peer = ["--to-ca", &ca, "--to-cert", &cert, "--to-key", &key];
    let replicator = regions.replicator(&[&user[..], &peer].concat());
    replicator.until_metric(COPYING, |is| is > 0.0);
    assert_eq!(replicator.get("/readyz").unwrap(), "ok\n");
    let state = replicator.get("/debug/state").unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    let told = ["peer", "state", "keysPut"].map(|field| state[0][field].to_string());
    assert_eq!(told, ["\"us\"", "\"copying\"", "1"], "{state}");
    replicator.0.stop(TIMEOUT).unwrap();

    // Without those of the peer it waits, and says for what.
    let replicator = regions.replicator(&user);
    let failures = "tombolo_replicator_failures_total{peer=\"us\",at=\"peer\"}";
    replicator.until_metric(failures, |count| count > 0.0);
    let missing = replicator.get("/readyz").unwrap();
    assert!(missing.starts_with("peer us: "), "{missing}");
    let waiting = "tombolo_replicator_state{peer=\"us\",state=\"waiting\"}";
    assert_eq!(replicator.metric(waiting), Some(1.0));
    replicator.until_metric("tombolo_replicator_behind_seconds{peer=\"us\"}", |s| {
        s > 0.0
    });
    replicator.0.stop(TIMEOUT).unwrap();
}
